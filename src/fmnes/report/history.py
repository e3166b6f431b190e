"""One row per generation; of a very long run every second one, then every fourth, and always the last.

The history is part of every snapshot, so it must stay small.
"""

from __future__ import annotations

import time
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fmnes.result import Columns, View

#: What they hold is said there. A snapshot has them in this order.
COLUMNS = tuple(Columns.__annotations__)
_WHOLE = ("restart", "generation", "evaluations")
#: Rows; when there are so many, every second one goes.
MAX_ROWS = 2**15


class History:
    def __init__(self) -> None:
        self._rows = np.empty((64, len(COLUMNS)))
        self._length = 0
        self._seen = 0
        """Generations so far. The rows are those of generations 0, `_stride`, 2 `_stride`, … and the last."""
        self._stride = 1
        self._started = time.monotonic()

    def has(self, view: View) -> bool:
        """True if this generation's row is there already."""
        if not self._length:
            return False
        restart, generation = self._rows[self._length - 1, :2]
        return bool((restart, generation) >= (view.restart, view.generation))

    def add(self, view: View) -> None:
        if self._length and (self._seen - 1) % self._stride:
            self._length -= 1  # it was there only because it was the last
        if self._length == MAX_ROWS:
            self._length = MAX_ROWS // 2
            self._rows[: self._length] = self._rows[:MAX_ROWS:2]
            self._stride *= 2
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
        self._seen += 1

    @property
    def rows(self) -> NDArray[np.float64]:
        return self._rows[: self._length]

    def dump(self) -> tuple[list[int], NDArray[np.float64]]:
        """[generations so far, generations from row to row], and the rows."""
        return [self._seen, self._stride], self.rows

    @classmethod
    def restore(cls, counts: list[int], rows: NDArray[np.float64]) -> History:
        """Go on from the rows of a saved run, and from its time."""
        history = cls()
        seen, stride = counts
        if stride < 1:
            raise ValueError(f"a history of every {stride} generations")
        wanted = -(-seen // stride) + ((seen - 1) % stride > 0)
        if rows.shape != (wanted, len(COLUMNS)):
            raise ValueError(f"a history of shape {rows.shape} for {seen} generations by {stride}")
        history._length, history._seen, history._stride = len(rows), seen, stride
        history._rows = np.concatenate((rows, np.empty((64, len(COLUMNS)))))
        if len(rows):
            history._started = time.monotonic() - float(rows[-1, COLUMNS.index("seconds")])
        return history

    def columns(self) -> Columns:
        rows = self.rows
        columns = {
            name: rows[:, i].astype(np.int64) if name in _WHOLE else rows[:, i].copy()
            for i, name in enumerate(COLUMNS)
        }
        return cast(Columns, columns)
