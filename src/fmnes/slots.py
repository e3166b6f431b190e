"""One generation in progress: λ slots, each with a point that either has a value or still needs one.

This one mechanism serves points outside the bounds (filled as failed before anybody is asked), lost
evaluations (the slot stays open), resampling (a failed slot gets a new draw) and half-finished generations.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError
from fmnes.evaluation.outcome import Outcome, from_return

Floats = NDArray[np.float64]


@dataclass
class Generation:
    z: Floats
    """The draws, (draws, d)."""
    x: Floats
    """The points in the user's coordinates, (λ, d)."""
    f: Floats
    """Values; NaN for a failed point, and wherever `open`. (λ,)"""
    open: NDArray[np.bool_]
    """Slots that still need a value. (λ,)"""
    redraws: NDArray[np.int64]
    """How often each slot's point was drawn anew. (λ,)"""
    evaluated: int = 0
    """Evaluations told in this generation."""

    @classmethod
    def of(cls, z: Floats, x: Floats, inside: NDArray[np.bool_]) -> Generation:
        """Points that are not `inside` the bounds are failed from the start, at no cost."""
        nans, zeros, _ = _templates(len(x))
        return cls(z, x, nans.copy(), inside, zeros.copy())

    @property
    def complete(self) -> bool:
        return not np.count_nonzero(self.open)

    def open_slots(self) -> NDArray[np.intp]:
        if np.count_nonzero(self.open) == len(self.open):
            return _templates(len(self.open))[2]
        return np.flatnonzero(self.open)

    def points(self, slots: NDArray[np.intp]) -> Floats:
        return self.x if len(slots) == len(self.x) else self.x[slots]

    def fill(self, slots: NDArray[np.intp], values: Floats) -> None:
        if len(slots) == len(self.f):
            self.f, self.open = values, np.zeros_like(self.open)
        else:
            self.f[slots] = values
            self.open[slots] = False
        self.evaluated += len(slots)


@lru_cache(maxsize=16)
def _templates(lam: int) -> tuple[Floats, NDArray[np.int64], NDArray[np.intp]]:
    """NaNs, zeros and slot numbers to copy from, for generations of one size."""
    slots = np.arange(lam)
    slots.flags.writeable = False
    return np.full(lam, np.nan), np.zeros(lam, dtype=np.int64), slots


def read_values(values: Any, n: int) -> tuple[Floats, NDArray[np.bool_] | None]:
    """What a user told, as floats (NaN for failed), and a mask of lost ones, None if there are none. (n,)"""
    if isinstance(values, (str, bytes, Mapping, Set)):
        raise ArgumentError(f"tell: found {type(values).__name__}, wanted a sequence of {n} values")
    try:
        array = np.asarray(values)
    except ValueError:  # a ragged list: its bad element is named below
        array = np.asarray(None)
    if array.dtype == np.float64 and array.shape == (n,):
        return array.copy(), None
    if array.dtype.kind in "fiub":
        if array.size != n or array.ndim not in (1, 2) or len(array) != n:
            raise _wrong_count(array.shape, n)
        return array.reshape(n).astype(np.float64), None
    try:
        items = list(values)
    except TypeError:
        raise ArgumentError(f"tell: found {values!r}, wanted a sequence of {n} values") from None
    if len(items) != n:
        raise _wrong_count(len(items), n)
    outcomes = [_outcome(i, item) for i, item in enumerate(items)]
    told = np.array([o.value if o.status == "value" else np.nan for o in outcomes])
    return told, np.array([o.status == "lost" for o in outcomes])


def _outcome(i: int, item: Any) -> Outcome:
    try:
        return from_return(item)
    except TypeError as error:
        raise ArgumentError(f"tell: value {i}: {error}") from None


def _wrong_count(found: Any, n: int) -> ArgumentError:
    return ArgumentError(
        f"tell: found {found} values, wanted {n}, one for each point that ask returned, in order"
    )
