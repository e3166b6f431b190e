"""One generation in progress: λ slots, each with a point and, once it is known, its value.

A slot is open until its value counts. A lost evaluation leaves its slot open; with resampling a failed slot
gets a new draw. `screen` decides which slots need no evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import SnapshotError
from fmnes.result import Vector
from fmnes.search.archive import Archive
from fmnes.storage.snapshot import Saved, count, finite, shaped

Floats = NDArray[np.float64]


#: Points that were evaluated before, in `Repeat.slot`: the best one, and the last one.
BEST, LAST = -1, -2


class Repeat(NamedTuple):
    """A point that is evaluated again."""

    slot: int
    """The slot of the same generation that has the point; BEST or LAST: it was evaluated before."""
    value: float
    """Its value before; NaN if a slot of the generation has it."""
    x: Vector
    """(d,)"""


@dataclass
class Generation:
    """The draws, points and values of one generation."""

    z: Floats
    """The draws, (draws, d)."""
    x: Floats
    """The points in the user's coordinates, (λ, d)."""
    f: Floats
    """Values; NaN for a failed point, and wherever there is none yet. (λ,)"""
    open: NDArray[np.bool_]
    """Slots whose value does not count yet: it is missing, or out of order. (λ,)"""
    redraws: NDArray[np.int64]
    """How often each slot was redrawn. (λ,)"""
    source: NDArray[np.int8]
    """The `Source` of each slot's value. (λ,)"""
    evaluated: int = 0
    """Evaluations in this generation."""
    n_open: int = -1
    out_of_order: NDArray[np.bool_] | None = None
    """Open slots whose value is in `f` but does not count before those of all slots in front: values count in
    slot order, in whatever order they arrive. None: there are none. (λ,)"""
    poll: int | None = None
    """For a generation of polled neighbours: how many neighbours of the best point are known once it is
    complete. None: the points are draws."""
    proposed: bool = False
    """Are the points proposed by the models, so that they are no draws?"""
    modelled: NDArray[np.bool_] | None = None
    """Evaluated slots that the models have. None: there are none. (λ,)"""
    outputs: Floats | None = None
    """The outputs that have limits; NaN where there is no value. None: there are no limits. (λ, k)"""
    repeat: Repeat | None = None
    """The point of the last slot, which is evaluated again to see the noise, and is no draw; None: none."""
    only_repeat: bool = False
    """Is that the only slot?"""
    handed_out: set[int] | None = None
    """Slots whose point `ask(n)` returned. Not saved: after a load they are handed out again."""

    def __post_init__(self) -> None:
        if self.n_open < 0:
            self.n_open = int(np.count_nonzero(self.open))

    @classmethod
    def of(cls, z: Floats, x: Floats, screened: Screened | None, n_outputs: int = 0) -> Generation:
        """A generation of these draws and points.

        screened: None if all points are evaluated. n_outputs: those that have limits.
        """
        common = _common(len(x))
        outputs = np.full((len(x), n_outputs), np.nan) if n_outputs else None
        if screened is None:
            new = cls(z, x, common.nans, common.all, common.zeros, common.evaluated, n_open=len(x))
        else:
            open = screened.source == Source.EVALUATED
            new = cls(z, x, screened.values, open, common.zeros, screened.source)
            if outputs is not None and screened.outputs is not None:
                outputs = screened.outputs
        new.outputs = outputs
        return new

    @property
    def size(self) -> int:
        """Slots without the point that is evaluated again."""
        return len(self.f) - (self.repeat is not None)

    @property
    def complete(self) -> bool:
        return self.n_open == 0

    def open_slots(self) -> NDArray[np.intp]:
        if self.n_open == len(self.open):
            return _common(len(self.open)).slots
        return np.flatnonzero(self.open)

    def points(self, slots: NDArray[np.intp]) -> Floats:
        return self.x if len(slots) == len(self.x) else self.x[slots]

    def fill(self, slots: NDArray[np.intp], values: Floats, outputs: Floats | None = None) -> None:
        """Fill open slots with values that count."""
        self._set_outputs(slots, outputs)
        if len(slots) == len(self.f):
            self.f, self.open = values, _common(len(values)).none
        else:
            self.f, self.open = _with(self.f, slots, values), _with(self.open, slots, False)
        if self.out_of_order is not None:
            out_of_order = _with(self.out_of_order, slots, False)
            self.out_of_order = out_of_order if out_of_order.any() else None
        self.evaluated += len(slots)
        self.n_open -= len(slots)

    @property
    def duplicates(self) -> NDArray[np.intp]:
        """Slots that wait for the value of another slot."""
        return np.flatnonzero((self.source == Source.DUPLICATE) & np.isnan(self.f))

    def fill_duplicates(self, slots: NDArray[np.intp], values: Floats, outputs: Floats | None = None) -> None:
        self._set_outputs(slots, outputs)
        self.f = _with(self.f, slots, values)

    def _set_outputs(self, slots: NDArray[np.intp], outputs: Floats | None) -> None:
        if outputs is not None:
            assert self.outputs is not None
            self.outputs = _with(self.outputs, slots, outputs)

    @property
    def waiting(self) -> NDArray[np.intp]:
        """Slots of which the models have not decided yet whether they are evaluated."""
        return np.flatnonzero(self.source == Source.WAITING)

    def open_more(self, slots: NDArray[np.intp]) -> None:
        """Have these waiting slots evaluated."""
        self.source = _with(self.source, slots, Source.EVALUATED)
        self.open = _with(self.open, slots, True)
        self.n_open += len(slots)
        if self.handed_out is not None:
            self.handed_out.difference_update(slots.tolist())

    def predict_rest(self) -> None:
        """Leave the waiting slots to the models."""
        self.source = _with(self.source, self.waiting, Source.PREDICTED)

    def take_for_models(self) -> NDArray[np.intp]:
        """Return the evaluated slots that the models do not have yet, in slot order; now they have them."""
        before = _common(len(self.f)).none if self.modelled is None else self.modelled
        self.modelled = self.source == Source.EVALUATED
        return np.flatnonzero(self.modelled & ~before)

    def redraw(self, slots: NDArray[np.intp], z: Floats, x: Floats, screened: Screened | None) -> None:
        """New draws and points for these failed slots."""
        self.z, self.x = _with(self.z, slots, z), _with(self.x, slots, x)
        self.redraws = _with(self.redraws, slots, self.redraws[slots] + 1)
        source = Source.EVALUATED if screened is None else screened.source
        self.source = _with(self.source, slots, source)
        self.f = _with(self.f, slots, np.nan if screened is None else screened.values)
        if self.outputs is not None:
            known = None if screened is None else screened.outputs
            self.outputs = _with(self.outputs, slots, np.nan if known is None else known)
        self.open = _with(self.open, slots, source == Source.EVALUATED)
        self.n_open = int(np.count_nonzero(self.open))
        self.handed_out = None  # all points that were handed out have their values

    def hand_out(self, slots: NDArray[np.intp], n: int) -> list[int]:
        """Return the first n of these open slots that were not handed out yet."""
        taken = self.handed_out or set()
        free = [slot for slot in slots.tolist() if slot not in taken][:n]
        self.handed_out = taken.union(free)
        return free

    def take_back(self, slot: int) -> None:
        if self.handed_out:
            self.handed_out.discard(slot)

    def needs(self, slot: int) -> bool:
        return bool(self.open[slot]) and not (self.out_of_order is not None and self.out_of_order[slot])

    def keep(self, slots: NDArray[np.intp], values: Floats, outputs: Floats | None = None) -> None:
        """Store values out of order; `fill` counts them later."""
        self._set_outputs(slots, outputs)
        self.f = _with(self.f, slots, values)
        self.out_of_order = _with(
            _common(len(self.f)).none if self.out_of_order is None else self.out_of_order, slots, True
        )

    def next_out_of_order(self) -> NDArray[np.intp]:
        """Return the out-of-order slots that can count now: no slot in front of them lacks a value."""
        slots = np.flatnonzero(self.open)
        if self.out_of_order is None:
            return slots[:0]
        out_of_order = self.out_of_order[slots]
        return slots if out_of_order.all() else slots[: int(out_of_order.argmin())]

    def dump(self) -> Saved:
        names = ["z", "x", "f", "open", "redraws", "source"]
        if self.out_of_order is not None:
            names.append("out_of_order")
        if self.modelled is not None:
            names.append("modelled")
        if self.outputs is not None:
            names.append("outputs")
        metadata: dict[str, Any] = {"evaluated": self.evaluated, "poll": self.poll, "proposed": self.proposed}
        if self.repeat is not None:
            slot, value, _ = self.repeat
            metadata["repeat"] = [slot, None if math.isnan(value) else value, self.only_repeat]
        return metadata, {f"current.{name}": getattr(self, name) for name in names}

    @classmethod
    def restore(
        cls,
        metadata: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        draws: int,
        lam: int,
        d: int,
        width: int,
        any_size: bool = False,
        n_outputs: int = 0,
    ) -> Generation:
        """width: columns of z. any_size: with models or limits the number of points may differ from λ.

        n_outputs: numbers that have limits.
        """
        proposed = metadata.get("proposed", False) is True
        if any_size:  # a proposal has any number of points, and a generation one more than its draws
            lam = arrays["current.f"].size
            draws = len(arrays["current.z"])
        out_of_order = arrays.get("current.out_of_order")
        open = shaped(arrays["current.open"], (lam,), kinds="b")
        if out_of_order is not None and (shaped(out_of_order, (lam,), kinds="b") & ~open).any():
            raise SnapshotError("a slot that is counted and waits to be counted")
        source = read_sources(arrays["current.source"], lam)
        modelled = arrays.get("current.modelled")
        outputs = shaped(arrays["current.outputs"], (lam, n_outputs)) if n_outputs else None
        if (open & (source != Source.EVALUATED)).any():
            raise SnapshotError("an open slot that is not to be evaluated")
        repeat, alone = None, False
        if metadata.get("repeat") is not None:
            slot, value, alone = metadata["repeat"]
            if type(slot) is not int or not LAST <= slot < lam - 1 or type(alone) is not bool:
                raise SnapshotError(f"a point that repeats slot {slot!r} of {lam}")
            if (value is None) != (slot >= 0) or (alone and lam != 1):
                raise SnapshotError(f"a point that repeats slot {slot} with the value {value!r}")
            x = finite(arrays["current.x"][-1:], (1, d))[0]
            repeat = Repeat(slot, math.nan if value is None else float(value), x)
        return cls(
            repeat=repeat,
            only_repeat=alone,
            z=finite(arrays["current.z"], (draws, width)),
            x=shaped(arrays["current.x"], (lam, d)),
            f=shaped(arrays["current.f"], (lam,)),
            open=open,
            redraws=shaped(arrays["current.redraws"], (lam,), kinds="i"),
            source=source,
            evaluated=count(metadata["evaluated"]),
            proposed=proposed,
            poll=None if metadata.get("poll") is None else count(metadata["poll"]),
            modelled=None if modelled is None else shaped(modelled, (lam,), kinds="b"),
            outputs=outputs,
            out_of_order=out_of_order if out_of_order is not None and out_of_order.any() else None,
        )


class _Common(NamedTuple):
    """Initial arrays that generations of one size share; read-only."""

    nans: Floats
    zeros: NDArray[np.int64]
    evaluated: NDArray[np.int8]
    all: NDArray[np.bool_]
    none: NDArray[np.bool_]
    slots: NDArray[np.intp]


@lru_cache(maxsize=16)
def _common(lam: int) -> _Common:
    bools = (np.ones(lam, np.bool_), np.zeros(lam, np.bool_))
    common = _Common(
        np.full(lam, np.nan), np.zeros(lam, np.int64), np.zeros(lam, np.int8), *bools, np.arange(lam)
    )
    for array in common:
        array.flags.writeable = False
    return common


def feasible_values(f: Floats) -> list[float]:
    """Return the feasible values as a list: for few numbers min() is faster than NumPy."""
    feasible = np.isfinite(f)
    values: list[float] = (f if np.count_nonzero(feasible) == len(f) else f[feasible]).tolist()
    return values


def _with(array: NDArray[Any], slots: NDArray[np.intp], values: Any) -> NDArray[Any]:
    new = array.copy()
    new[slots] = values
    return new


# -- Which points of a generation are evaluated, and what the other slots get instead.
#
# Only here are slots filled without an evaluation.


class Source(IntEnum):
    """Provenance of a slot's value. The numbers are saved in snapshots."""

    EVALUATED = 0
    """The objective is evaluated at the point."""
    KNOWN = 1
    """The archive has the value."""
    DUPLICATE = 2
    """Another slot of the generation evaluates the same point; its value is copied afterwards."""
    OUTSIDE = 3
    """The point violates a bound: it failed, at no cost."""
    UNUSED = 4
    """The slot has no point: fewer neighbours are polled than the generation has slots."""
    PREDICTED = 5
    """The models of `fmnes.surrogate` rank the point; it is not evaluated."""
    WAITING = 6
    """The models have not decided yet whether the point is evaluated."""


class Screened(NamedTuple):
    """The decisions for n points."""

    source: NDArray[np.int8]
    """A `Source` for each point. (n,)"""
    values: Floats
    """Values of the known points; NaN for a failed point, and where there is no value yet. (n,)"""
    outputs: Floats | None = None
    """With limits: their outputs that have limits. (n, k)"""

    def with_evaluated(self) -> Screened:
        """Return these and one more point, which is evaluated."""
        assert self.outputs is None
        return Screened(np.append(self.source, np.int8(Source.EVALUATED)), np.append(self.values, np.nan))

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Points that are known to fail. (n,)"""
        known_to_fail = (self.source == Source.KNOWN) & np.isnan(self.values)
        failed: NDArray[np.bool_] = known_to_fail | (self.source == Source.OUTSIDE)
        return failed

    @property
    def n_known(self) -> int:
        return int(np.count_nonzero(self.source == Source.KNOWN))


def screen(
    x: Floats,
    inside: NDArray[np.bool_] | None,
    archive: Archive | None,
    pending: Iterable[Floats] = (),
    n_outputs: int = 0,
) -> Screened | None:
    """Decide for each point of x whether it is evaluated; None: all are.

    inside: which points satisfy the bounds; None: all.
    archive: the evaluated points; None: points do not repeat.
    pending: points of the same generation that are evaluated already.
    n_outputs: outputs that have limits.
    """
    if archive is None and (inside is None or inside.all()):
        return None
    source = np.zeros(len(x), dtype=np.int8)  # EVALUATED
    if inside is not None:
        source[~inside] = Source.OUTSIDE
    values = np.full(len(x), np.nan)
    outputs = np.full((len(x), n_outputs), np.nan) if n_outputs else None
    if archive is not None:
        evaluated = {point.tobytes() for point in pending}
        for i in np.flatnonzero(source == Source.EVALUATED).tolist():
            if (value := archive.get(x[i])) is not None:
                source[i], values[i] = Source.KNOWN, value
                if outputs is not None:
                    outputs[i] = archive.outputs(x[i])
            elif (key := x[i].tobytes()) in evaluated:
                source[i] = Source.DUPLICATE
            else:
                evaluated.add(key)
    return Screened(source, values, outputs)


def poll_only(n: int, size: int) -> Screened:
    """Evaluate the first n of `size` slots, and leave the others unused."""
    source = np.where(np.arange(size) < n, Source.EVALUATED, Source.UNUSED).astype(np.int8)
    return Screened(source, np.full(size, np.nan))


def read_sources(array: NDArray[np.int8], size: int) -> NDArray[np.int8]:
    """Check the sources in a saved file. Raises ValueError for an unknown one."""
    for source in np.unique(shaped(array, (size,), kinds="i")).tolist():
        Source(source)
    return array
