"""One row per generation, in columns that grow by doubling."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.result import View

COLUMNS = (
    "restart",
    "generation",
    "evaluations",
    "best",
    "generation_best",
    "sigma",
    "longest_axis",
    "shortest_axis",
    "feasible_share",
    "seconds",
)
_WHOLE = ("restart", "generation", "evaluations")


class History:
    def __init__(self) -> None:
        self._rows = np.empty((64, len(COLUMNS)))
        self._length = 0
        self._started = time.monotonic()

    def has(self, view: View) -> bool:
        """True if this generation's row is there already."""
        if not self._length:
            return False
        restart, generation = self._rows[self._length - 1, :2]
        return bool((restart, generation) >= (view.restart, view.generation))

    def add(self, view: View) -> None:
        if self._length == len(self._rows):
            self._rows = np.concatenate((self._rows, np.empty_like(self._rows)))
        self._rows[self._length] = (
            view.restart,
            view.generation,
            view.evaluations,
            view.best.fun,
            view.generation_best,
            view.sigma,
            view.axis_lengths.max(),
            view.axis_lengths.min(),
            view.feasible_share,
            time.monotonic() - self._started,
        )
        self._length += 1

    @property
    def rows(self) -> NDArray[np.float64]:
        return self._rows[: self._length]

    def restore(self, rows: NDArray[np.float64]) -> None:
        """Go on from the rows of a saved run, and from its time."""
        self._length = len(rows)
        self._rows = np.concatenate((rows, np.empty((64, len(COLUMNS)))))
        if len(rows):
            self._started = time.monotonic() - float(rows[-1, COLUMNS.index("seconds")])

    def columns(self) -> dict[str, NDArray[Any]]:
        rows = self.rows
        return {
            name: rows[:, i].astype(np.int64) if name in _WHOLE else rows[:, i].copy()
            for i, name in enumerate(COLUMNS)
        }
