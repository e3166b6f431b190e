"""What is known of points without evaluating them: told before the search began, or evaluated on a grid.

There points come again, and need not be run again.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import SnapshotError
from fmnes.result import Vector
from fmnes.search.saved import Saved, finite, shaped

#: Points that are remembered at most, …
MAX_POINTS = 100_000
#: … and bytes of them: they are a part of every snapshot.
MAX_BYTES = 2**24


class Memory:
    """Values by point, the oldest first. A failed evaluation is remembered too, as NaN."""

    def __init__(self, d: int) -> None:
        self._d = d
        self._values: dict[bytes, float] = {}

    @property
    def limit(self) -> int:
        """How many points are kept; in 10 dimensions 100,000, in 1,000 dimensions 2,095."""
        return max(1, min(MAX_POINTS, MAX_BYTES // (8 * (self._d + 1))))

    def __len__(self) -> int:
        return len(self._values)

    def get(self, x: Vector) -> float | None:
        """Its value, NaN if it had failed; None if it is not known."""
        return self._values.get(_key(x)) if self._values else None

    def add(self, x: Vector, value: float) -> None:
        """Nothing is forgotten by this: what a generation has learned stays until it is complete."""
        self._values[_key(x)] = value if math.isfinite(value) else math.nan

    def forget_oldest(self) -> None:
        """Back to the limit."""
        for key in list(islice(self._values, max(0, len(self) - self.limit))):
            del self._values[key]

    def dump(self) -> Saved:
        if not self._values:
            return {}, {}
        x = np.frombuffer(b"".join(self._values), dtype=np.float64).reshape(-1, self._d)
        return {}, {"memory.x": x, "memory.f": np.array(list(self._values.values()))}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Into a fresh one."""
        if "memory.x" not in arrays and "memory.f" not in arrays:
            return
        f = arrays["memory.f"]
        x = finite(arrays["memory.x"], (f.size, self._d))
        if np.isinf(shaped(f, (f.size,))).any():
            raise SnapshotError("infinity among the remembered values")
        for point, value in zip(x, f.tolist(), strict=True):
            self.add(point, value)


def _key(x: Vector) -> bytes:
    """A point's bytes; 0.0 and -0.0 are one point."""
    return (np.asarray(x, dtype=np.float64) + 0.0).tobytes()
