"""The evaluations that the models are made of: points in units of the range, and values (NaN: failed)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Most points kept, but for a tenth more; the oldest are dropped.
MAX_POINTS = 20_000


class Evaluated:
    """A growing table of evaluations, in the order in which they counted."""

    def __init__(self, d: int) -> None:
        self.d = d
        self.most = MAX_POINTS
        self._u = np.empty((64, d))
        self._y = np.empty(64)
        self._drawn = np.empty(64, dtype=bool)
        self._n = 0
        self._keys: set[bytes] = set()
        self.first = 0
        """The first evaluation of the present search; earlier ones are data of the models only."""
        self.forgotten = 0
        """How many points were dropped."""

    def __len__(self) -> int:
        return self._n

    @property
    def u(self) -> Floats:
        """The points. (n, d)"""
        return self._u[: self._n]

    @property
    def y(self) -> Floats:
        """Their values; NaN for a failed evaluation. (n,)"""
        return self._y[: self._n]

    @property
    def drawn(self) -> NDArray[np.bool_]:
        """Which points the search distribution itself has drawn. (n,)"""
        return self._drawn[: self._n]

    def add(self, u: Floats, value: float, drawn: bool = False) -> None:
        if self._n == len(self._y):
            more = max(64, self._n)
            self._u = np.concatenate([self._u, np.empty((more, self.d))])
            self._y = np.concatenate([self._y, np.empty(more)])
            self._drawn = np.concatenate([self._drawn, np.empty(more, dtype=bool)])
        self._u[self._n], self._y[self._n], self._drawn[self._n] = u, value, drawn
        self._n += 1
        self._keys.add(_key(u))

    def forget_oldest(self) -> int:
        """Drop the oldest points if there are too many. Returns how many."""
        if len(self) <= self.most + self.most // 10:
            return 0
        n = len(self) - self.most
        self.restore(self.u[n:].copy(), self.y[n:].copy(), self.drawn[n:].copy())
        self.first = max(0, self.first - n)
        self.forgotten += n
        return n

    def restore(self, u: Floats, y: Floats, drawn: NDArray[np.bool_]) -> None:
        self._u, self._y, self._drawn, self._n = u, y, drawn, len(y)
        self._keys = {_key(row) for row in u}

    @property
    def best(self) -> int:
        """The index of the best point of the present search, or of all if none of it worked."""
        for first in (self.first, 0):
            y = self.y[first:]
            if np.isfinite(y).any():
                return first + int(np.nanargmin(y))
        raise ValueError("no evaluation worked")

    @property
    def any_worked(self) -> bool:
        return bool(np.isfinite(self.y).any())

    def knows(self, u: Floats) -> NDArray[np.bool_]:
        """Which of these points were evaluated. (n,)"""
        return np.array([_key(row) in self._keys for row in u], dtype=bool)

    def near(self, u: Floats, distance: float) -> bool:
        """Whether a point was evaluated this close in every coordinate."""
        return bool((np.abs(self.u - u).max(axis=1) < distance).any())


def _key(u: Floats) -> bytes:
    """0.0 and -0.0 are one point."""
    return (u + 0.0).tobytes()
