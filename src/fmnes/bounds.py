"""Bounds in all the forms in which users write them, as one lower and one upper bound for each coordinate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import floats, shown, suggest_options
from fmnes.errors import ArgumentError
from fmnes.result import Vector

#: What may be given as `bounds_as`.
BOUNDS_AS = ("map", "failure")
WANTED = (
    "a pair (lower, upper) for each coordinate, one pair of numbers for all, "
    "or fmnes.Bounds(lower, upper); None or inf for no bound"
)


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of the coordinates: on each side one number for all of them, or one per coordinate.

    Parameters
    ----------
    lower : float or array_like, optional
        Lower bounds. None or -inf means no bound, for all coordinates or for one.
    upper : float or array_like, optional
        Upper bounds. None or inf means no bound, for all coordinates or for one.

    Examples
    --------
    >>> import fmnes
    >>> bounds = fmnes.Bounds([0.0, 2.0], [1.0, 10.0])
    >>> fmnes.minimize(lambda x: float(x @ x), bounds=bounds, rng=1).x.round(3)
    array([0., 2.])
    >>> fmnes.Bounds(upper=[1.0, None])
    Bounds(lower=None, upper=[1.0, None])
    """

    lower: Any = None
    upper: Any = None


Bounds.__init__ = suggest_options(Bounds.__init__)  # type: ignore[method-assign]


def contain(bounds: Bounds, x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """x: (n, d). A point on a bound is inside; one that is not finite never is."""
    return np.asarray(((x >= bounds.lower) & (x <= bounds.upper) & np.isfinite(x)).all(axis=1))


def read_bounds(bounds: Any, d: int | None, *, may_be_equal: bool = False) -> Bounds | None:
    """Two vectors of d floats; None without bounds. d: None if only the bounds determine it."""
    if bounds is None:
        return None
    lower, upper = _sides(bounds, d)
    sides = {
        "lower": _numbers("lower", lower, -math.inf),
        "upper": _numbers("upper", upper, math.inf),
    }
    sizes = [d] if d is not None else [side.size for side in sides.values() if side.ndim]
    if not sizes:
        raise ArgumentError(
            "x0: found none, and scalar bounds, so the number of coordinates is unknown; "
            "wanted x0, or bounds for each coordinate"
        )
    if sizes[0] == 0:
        raise ArgumentError(f"bounds: found {shown(bounds)}, no coordinate at all; wanted {WANTED}")
    for name, side in sides.items():
        if side.ndim and side.shape != (sizes[0],):
            raise ArgumentError(
                f"bounds ({name}): found shape {side.shape}, wanted one number, or one for each of the "
                f"{sizes[0]} coordinates"
            )
    lower, upper = (np.broadcast_to(side, (sizes[0],)).astype(float) for side in sides.values())
    hint = _meant(bounds) if isinstance(bounds, (list, tuple)) else ""
    _check_order(lower, upper, hint, may_be_equal)
    for side in (lower, upper):
        side.setflags(write=False)  # they are handed out
    return Bounds(lower, upper)


def _sides(bounds: Any, d: int | None) -> tuple[Any, Any]:
    """The lower and the upper side, each as it was given."""
    if isinstance(bounds, Bounds):
        return bounds.lower, bounds.upper
    try:
        if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
            return _scipys_sides(bounds.lb, bounds.ub, d)
        if isinstance(bounds, (str, bytes, Mapping, Set)):
            raise TypeError
        plain = isinstance(bounds, np.ndarray) and bounds.shape[1:] == (2,) and bounds.dtype.kind in "fiu"
        pairs: Any = bounds if plain else list(bounds)
    except Exception:  # an object of the user's own may raise anything
        raise ArgumentError(f"bounds: found {shown(bounds)}, wanted {WANTED}") from None
    if len(pairs) == 2 and all(map(_is_scalar, pairs)):
        return pairs[0], pairs[1]
    if not isinstance(bounds, np.ndarray) and len(pairs) == 2 and any(map(_is_array, pairs)):
        # At d = 2 it could be either; so it is refused whatever d is.
        raise ArgumentError(
            f"bounds: found {shown(bounds)}, two sides with an array among them; wanted "
            "fmnes.Bounds(lower, upper), or list(zip(lower, upper)): a pair for each coordinate"
        )
    if d is not None and len(pairs) != d:
        raise ArgumentError(
            f"bounds: found {shown(bounds)}, {len(pairs)} items; wanted {d} pairs (lower, upper), one for "
            f"each coordinate{_meant(pairs)}"
        )
    if isinstance(pairs, np.ndarray):
        return pairs[:, 0], pairs[:, 1]
    sides = []
    for i, pair in enumerate(pairs):
        try:
            if isinstance(pair, (str, bytes, Mapping, Set)):
                raise TypeError
            low, high = pair
        except Exception:
            raise ArgumentError(
                f"bounds: found {shown(pair)} at coordinate {i}, wanted a pair (lower, upper){_meant(pairs)}"
            ) from None
        sides.append((low, high))
    return [low for low, _ in sides], [high for _, high in sides]


def _scipys_sides(lower: Any, upper: Any, d: int | None) -> tuple[Any, Any]:
    """Unwrap a one-element array, SciPy's form of a bound for all coordinates."""
    if max(np.size(lower), np.size(upper), d or 1) > 1:
        lower, upper = (side[0] if np.shape(side) == (1,) else side for side in (lower, upper))
    return lower, upper


def _meant(items: Any) -> str:
    """A hint for a pair of vectors."""
    two = len(items) == 2 and not all(map(_is_scalar, items))
    return "; two vectors are written as fmnes.Bounds(lower, upper)" if two else ""


def _is_scalar(side: Any) -> bool:
    """Whether it is a number, or was meant as one, and not a vector."""
    return getattr(side, "ndim", 1) == 0 or isinstance(side, (str, bytes)) or not hasattr(side, "__iter__")


def _is_array(side: Any) -> bool:
    return getattr(side, "ndim", 0) > 0


def _numbers(name: str, side: Any, none: float) -> NDArray[np.float64]:
    """One side as numbers, (d,) or (), with `none` for a missing bound."""
    if side is None:
        side = none
    elif isinstance(side, (list, tuple)):
        side = [none if number is None else number for number in side]
    array = floats(f"bounds ({name})", side, "a number or one for each coordinate (None or inf for no bound)")
    if array.ndim > 1:
        raise ArgumentError(
            f"bounds ({name}): found shape {array.shape}, wanted one number, or one for each coordinate"
        )
    bad = np.flatnonzero(np.isnan(array))
    if bad.size:
        where = f" at coordinate {bad[0]}" if array.ndim else ""
        raise ArgumentError(f"bounds ({name}): found NaN{where}, wanted numbers (None or inf for no bound)")
    return array


def _check_order(lower: Vector, upper: Vector, hint: str, may_be_equal: bool) -> None:
    wrong = np.flatnonzero(lower > upper if may_be_equal else lower >= upper)
    if wrong.size:
        i = int(wrong[0])
        how = "equal" if lower[i] == upper[i] else "crossed"
        raise ArgumentError(
            f"bounds: found lower {lower[i]:g} >= upper {upper[i]:g} at coordinate {i} ({how}), "
            f"wanted lower < upper{hint}"
        )


def check_inside(x0: Vector, bounds: Bounds) -> None:
    outside = np.flatnonzero((x0 < bounds.lower) | (x0 > bounds.upper))
    if not outside.size:
        return
    i = int(outside[0])
    below = x0[i] < bounds.lower[i]
    bound, side = (bounds.lower[i], "below the lower") if below else (bounds.upper[i], "above the upper")
    with np.errstate(over="ignore"):
        far = abs(x0[i] - bound)
    raise ArgumentError(
        f"x0: found {x0[i]:g} at coordinate {i}, outside the bounds: {far:g} {side} bound {bound:g}; "
        "wanted a start inside"
    )


def first_step(lower: Any, upper: Any, d: int) -> Any:
    """The default initial step between two bounds: a quarter of the width.

    In more than ten dimensions less, so that the first points lie as far from the start as they do in ten:
    the step that gets on best goes down with the root of d (on a sphere it is the distance over d, times
    what the population is worth).
    """
    # Quarters first: the width may be too large for floating point.
    return (upper / 4 - lower / 4) * min(1.0, math.sqrt(10 / d))


def start_from(
    bounds: Bounds | None, x0: Vector | None, sigma0: ArrayLike | None
) -> tuple[Vector, ArrayLike]:
    """x0 and sigma0, where they were left out from the bounds: the centre, and `first_step` of each width."""
    if x0 is not None and sigma0 is not None:
        return x0, sigma0
    missing = "x0" if x0 is None else "sigma0"
    what = "their centre" if x0 is None else "a quarter of their width"
    wanted = f"wanted {missing}=, or finite bounds= ({missing} then defaults to {what})"
    if bounds is None:
        raise ArgumentError(f"{missing}: found none and no bounds, {wanted}")
    finite = np.isfinite(bounds.lower) & np.isfinite(bounds.upper)
    if not finite.all():
        i = int(finite.argmin())
        open_one = f"[{bounds.lower[i]:g}, {bounds.upper[i]:g}]"
        raise ArgumentError(f"{missing}: found none, and bounds {open_one} at coordinate {i}; {wanted}")
    if x0 is None:  # halves first: the sum of two bounds may be too large for floating point
        x0 = np.clip(bounds.lower / 2 + bounds.upper / 2, bounds.lower, bounds.upper)
    if sigma0 is None:
        sigma0 = first_step(bounds.lower, bounds.upper, len(bounds.lower))
    return x0, sigma0
