"""The archive of evaluated points: those given as `known`, and those of grids, where points repeat."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import shown
from fmnes.bounds import Bounds, contain
from fmnes.constraints import Limits
from fmnes.errors import ArgumentError, SnapshotError
from fmnes.outcome import from_return
from fmnes.result import Vector
from fmnes.search.grid import ROUNDING, Grid
from fmnes.storage.snapshot import Saved, finite, shaped

#: Most points in an archive, …
MAX_POINTS = 100_000
#: … and their bytes: the archive is part of every snapshot.
MAX_BYTES = 2**24


class Archive:
    """Values by point, the oldest first; NaN for a failed evaluation."""

    def __init__(self, d: int) -> None:
        self._d = d
        self._values: dict[bytes, float] = {}
        self._outputs: dict[bytes, Vector] = {}
        """The outputs that have limits, of the same points; empty without limits."""

    @property
    def limit(self) -> int:
        """Most points kept: 100,000 in 10 dimensions, 2,095 in 1,000."""
        return max(1, min(MAX_POINTS, MAX_BYTES // (8 * (self._d + 1))))

    def __len__(self) -> int:
        return len(self._values)

    def get(self, x: Vector) -> float | None:
        """Return the value of a point; NaN if it failed, None if it is unknown."""
        return self._values.get(_key(x)) if self._values else None

    def outputs(self, x: Vector) -> Vector:
        """Return the outputs of a known point that have limits."""
        return self._outputs[_key(x)]

    def add(self, x: Vector, value: float, outputs: Vector | None = None) -> None:
        """Add a value. The limit is applied by `forget_oldest`, between generations."""
        self._values[_key(x)] = value if math.isfinite(value) else math.nan
        if outputs is not None:
            self._outputs[_key(x)] = outputs.copy()

    def items(self) -> Iterator[tuple[Vector, float]]:
        """Yield the points and their values, the oldest first."""
        for key, value in self._values.items():
            yield np.frombuffer(key, dtype=np.float64), value

    def forget_oldest(self) -> None:
        """Remove the oldest points beyond the limit."""
        for key in list(islice(self._values, max(0, len(self) - self.limit))):
            del self._values[key]
            self._outputs.pop(key, None)

    def dump(self) -> Saved:
        if not self._values:
            return {}, {}
        x = np.frombuffer(b"".join(self._values), dtype=np.float64).reshape(-1, self._d)
        arrays = {"archive.x": x, "archive.f": np.array(list(self._values.values()))}
        if self._outputs:
            arrays["archive.outputs"] = np.array([self._outputs[key] for key in self._values])
        return {}, arrays

    def restore(self, arrays: dict[str, NDArray[Any]], n_outputs: int = 0) -> None:
        """Restore into an empty archive; n_outputs: those that have limits."""
        if "archive.x" not in arrays and "archive.f" not in arrays:
            return
        f = arrays["archive.f"]
        x = finite(arrays["archive.x"], (f.size, self._d))
        if np.isinf(shaped(f, (f.size,))).any():
            raise SnapshotError("infinity among the values of the archive")
        outputs: Any = [None] * f.size
        if n_outputs:
            outputs = shaped(arrays["archive.outputs"], (f.size, n_outputs))
        for point, value, row in zip(x, f.tolist(), outputs, strict=True):
            self.add(point, value, row)


def _key(x: Vector) -> bytes:
    """A point's bytes; 0.0 and -0.0 are one point."""
    return (np.asarray(x, dtype=np.float64) + 0.0).tobytes()


def read_known(
    known: Any, d: int, bounds: Bounds | None, grid: Grid | None, limits: Limits | None = None
) -> Iterator[tuple[Vector, float, Vector | None]]:
    """Yield checked points with their values (NaN for a failed one) from the argument `known`.

    With limits also the outputs that have limits; else None.
    """
    if known is None or isinstance(known, (str, bytes, Mapping)):
        raise ArgumentError(f"known: found {shown(known)}, wanted pairs such as [(x, value), ...]")
    try:
        pairs = [(x, value) for x, value in known]
    except Exception:  # what iteration raises is up to the object
        raise ArgumentError(f"known: found {shown(known)}, wanted pairs such as [(x, value), ...]") from None
    for i, (x, value) in enumerate(pairs):
        yield _point(i, x, d, bounds, grid), *_value(i, value, limits)


def _point(i: int, found: Any, d: int, bounds: Bounds | None, grid: Grid | None) -> Vector:
    try:
        x = np.array(found, dtype=np.float64)
    except Exception:  # an object of the user's own may raise anything
        raise ArgumentError(f"known: found the point {shown(found)} at {i}, wanted {d} numbers") from None
    if x.shape != (d,):
        raise ArgumentError(f"known: found a point of shape {x.shape} at {i}, wanted {(d,)} as x0 has")
    if not np.isfinite(x).all():
        raise ArgumentError(f"known: found the point {shown(found)} at {i}, wanted finite numbers")
    if bounds is not None and not contain(bounds, x[None])[0]:
        raise ArgumentError(f"known: found the point {shown(found)} at {i}, wanted one inside the bounds")
    if grid is not None:
        x, given = grid.nearest(x), x
        off = np.abs(x - given)[grid.where] > ROUNDING * grid.width
        if off.any():
            j = int(grid.where[off.argmax()])
            raise ArgumentError(
                f"known: found {given[j]:g} at coordinate {j} of the point at {i}, wanted one of its grid, "
                f"such as {x[j]:g}"
            )
    x.setflags(write=False)  # the user may receive it as the best
    return x


def _value(i: int, found: Any, limits: Limits | None) -> tuple[float, Vector | None]:
    try:
        outcome = from_return(found if limits is None else limits.name_outputs(found))
    except TypeError as error:
        raise ArgumentError(f"known: value {i}: {error}") from None
    if outcome.status == "lost":
        raise ArgumentError(f"known: found LOST at {i}, wanted a value, or None for a point that fails")
    if limits is not None and (checked := limits.check(outcome)) is not outcome:
        raise ArgumentError(f"known: value {i}: {checked.reason}")
    outputs = None if limits is None else limits.row(outcome)
    return outcome.value if outcome.status == "value" else np.nan, outputs
