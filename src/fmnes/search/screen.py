"""Decide which points of a generation are evaluated, and what the other slots get instead.

Only here are slots filled without an evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.search.archive import Archive
from fmnes.search.saved import shaped

Floats = NDArray[np.float64]


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
