"""Evaluations from before the search began: what a user gives as `known`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fmnes.arguments import shown
from fmnes.bounds import Bounds, contain
from fmnes.errors import ArgumentError
from fmnes.outcome import from_return
from fmnes.result import Vector
from fmnes.search.integers import ROUNDING, Grid


def read_known(
    known: Any, d: int, bounds: Bounds | None, grid: Grid | None
) -> Iterator[tuple[Vector, float]]:
    """Pairs of a point and its value, checked; NaN for a point that fails, whatever it was given as."""
    if known is None or isinstance(known, (str, bytes, Mapping)):
        raise ArgumentError(f"known: found {shown(known)}, wanted pairs such as [(x, value), ...]")
    try:
        pairs = [(x, value) for x, value in known]
    except Exception:  # what iteration raises is up to the object
        raise ArgumentError(f"known: found {shown(known)}, wanted pairs such as [(x, value), ...]") from None
    for i, (x, value) in enumerate(pairs):
        yield _point(i, x, d, bounds, grid), _value(i, value)


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
