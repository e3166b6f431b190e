"""Exploration of a finite box: generations of points that do not come from the search distribution.

Until an evaluation succeeds, the points are spread over the box (spread.py). They fill the slots of ordinary
generations, so that the log, snapshots, workers and `ask` see nothing special; they make no update.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.bounds import Bounds
from fmnes.errors import SnapshotError
from fmnes.result import Vector
from fmnes.search.saved import Saved, count, finite, shaped
from fmnes.search.spread import CANDIDATES, first_step_share, spread_points

Floats = NDArray[np.float64]

#: Points that are tried without a budget before a run in a box ends with NO_FEASIBLE: a working part of 0.1 %
#: of the box is found by 98 % of the runs.
MAX_FAILED = 3000
#: Earlier points that are kept; beyond it every second one is dropped.
MAX_POINTS = 6000


class Begin(NamedTuple):
    """Where the search distribution begins after an exploration."""

    x: Vector
    share: float
    """Its step size, as a share of sigma0."""


class Explorer:
    """The points evaluated in a box so far, and the points to evaluate before the search begins."""

    def __init__(self, bounds: Bounds) -> None:
        self._lower, self._upper = bounds.lower, bounds.upper
        self.exploring = False
        """Whether generations consist of points from here."""
        self.succeeded = False
        """Whether an evaluation has succeeded."""
        self.evaluated = 0
        """Points evaluated so far."""
        self._points = np.empty((0, len(bounds.lower)))
        """Those that are kept, in the unit box."""
        self._values = np.empty(0)
        """Their values; NaN for failed ones."""

    @property
    def _d(self) -> int:
        return len(self._lower)

    def next_points(self, rng: np.random.Generator, drawn: Floats) -> Floats:
        """Return the points of the next generation; drawn: its draws of the search distribution. (n, d)"""
        candidates = rng.random((len(drawn), CANDIDATES, self._d))
        return self._out(spread_points(self._points, candidates, self._in(drawn), self.evaluated))

    def add(self, x: Floats, f: Floats) -> None:
        """Store evaluated points, NaN for a failed one."""
        self.evaluated += len(f)
        self.succeeded = self.succeeded or bool(np.isfinite(f).any())
        self._points = np.concatenate((self._points, self._in(x)))
        self._values = np.concatenate((self._values, np.where(np.isfinite(f), f, np.nan)))
        if len(self._values) > MAX_POINTS:
            self._points, self._values = self._points[::2], self._values[::2]

    def begin(self) -> Begin:
        """End the exploration after the first success, and return where the search begins."""
        self.exploring = False
        x = self._out(self._points[int(np.nanargmin(self._values))])
        return Begin(x, first_step_share(self.evaluated, self._d))

    def _in(self, x: Floats) -> Floats:
        """Convert points to the unit box. Halves, as a width may be too large for floating point."""
        u: Floats = (x / 2 - self._lower / 2) / (self._upper / 2 - self._lower / 2)
        return u

    def _out(self, u: Floats) -> Floats:
        x: Floats = np.clip((1 - u) * self._lower + u * self._upper, self._lower, self._upper)
        return x

    def dump(self) -> Saved:
        return {"explorer": [self.exploring, self.succeeded, self.evaluated]}, {
            "explorer.points": self._points,
            "explorer.values": self._values,
        }

    def restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore into a new explorer."""
        values = arrays["explorer.values"]
        self._values = shaped(values, (values.size,))
        self._points = finite(arrays["explorer.points"], (values.size, self._d))
        self.exploring, self.succeeded, self.evaluated = metadata["explorer"]
        if type(self.exploring) is not bool or type(self.succeeded) is not bool:
            raise SnapshotError(f"exploration {metadata['explorer']!r}")
        if count(self.evaluated) < values.size:
            raise SnapshotError(f"{values.size} points of {self.evaluated}")
