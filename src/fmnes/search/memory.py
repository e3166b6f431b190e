"""What is known of points without evaluating them: told before the search began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import Bounds, shown
from fmnes.errors import ArgumentError
from fmnes.outcome import from_return
from fmnes.result import Vector
from fmnes.search.saved import Saved, finite, shaped


class Memory:
    """Values by points; NaN for one that fails."""

    def __init__(self, d: int) -> None:
        self._d = d
        self._values: dict[bytes, float] = {}

    def get(self, x: Vector) -> float | None:
        """None: not known."""
        return self._values.get(_key(x)) if self._values else None

    def add(self, x: Vector, value: float) -> None:
        self._values[_key(x)] = value

    def dump(self) -> Saved:
        if not self._values:
            return {}, {}
        points = np.frombuffer(b"".join(self._values), dtype=np.float64).reshape(-1, self._d)
        return {}, {"known.x": points, "known.f": np.array(list(self._values.values()))}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Into a fresh one."""
        if "known.x" not in arrays:
            return
        x = arrays["known.x"]
        values = shaped(arrays["known.f"], (len(x),))
        for point, value in zip(finite(x, (len(x), self._d)), values.tolist(), strict=True):
            self.add(point, value)


def _key(x: Vector) -> bytes:
    return (np.asarray(x, dtype=np.float64) + 0.0).tobytes()  # -0.0 is 0.0


def read_known(known: Any, d: int, bounds: Bounds | None) -> Iterator[tuple[Vector, float]]:
    """Pairs of a point and its value, checked; NaN for a point that fails, whatever it was given as."""
    if known is None or isinstance(known, (str, bytes, Mapping)):
        raise ArgumentError(f"known: found {shown(known)}, wanted pairs such as [(x, value), ...]")
    try:
        pairs = [(x, value) for x, value in known]
    except Exception:  # what iteration raises is up to the object
        raise ArgumentError(f"known: found {shown(known)}, wanted pairs such as [(x, value), ...]") from None
    for i, (x, value) in enumerate(pairs):
        yield _point(i, x, d, bounds), _value(i, value)


def _point(i: int, found: Any, d: int, bounds: Bounds | None) -> Vector:
    try:
        x = np.array(found, dtype=np.float64)
    except Exception:  # an object of the user's own may raise anything
        raise ArgumentError(f"known: found the point {shown(found)} at {i}, wanted {d} numbers") from None
    if x.shape != (d,):
        raise ArgumentError(f"known: found a point of shape {x.shape} at {i}, wanted {(d,)} as x0 has")
    if not np.isfinite(x).all():
        raise ArgumentError(f"known: found the point {shown(found)} at {i}, wanted finite numbers")
    if bounds is not None and not bounds.contain(x[None])[0]:
        raise ArgumentError(f"known: found the point {shown(found)} at {i}, wanted one inside the bounds")
    x.setflags(write=False)  # it may be handed out as the best
    return x


def _value(i: int, found: Any) -> float:
    try:
        outcome = from_return(found)
    except TypeError as error:
        raise ArgumentError(f"known: value {i}: {error}") from None
    if outcome.status == "lost":
        raise ArgumentError(f"known: found LOST at {i}, wanted a value, or None for a point that fails")
    return outcome.value if outcome.status == "value" else np.nan
