"""Coordinates that take whole numbers, or steps of some width: their grid, and the nearest point on it.

A grid value is (a + k b)/c for a whole number k: a, b and c are whole where the width and the origin are
decimal numbers, so that steps of 0.1 give 0.3 and not 0.30000000000000004.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import is_number, shown
from fmnes.errors import ArgumentError
from fmnes.result import Vector

Floats = NDArray[np.float64]

#: Wider steps than this, or narrower ones than its inverse, leave floating point.
MAX_WIDTH = 1e100
#: How far, in steps, a number may lie from the grid for rounding alone.
ROUNDING = 1e-9
#: Numbers up to here, and their products with small ones, are exact in float64.
_EXACT = 2**40


@dataclass(frozen=True, eq=False)
class Grid:
    """The values of the discrete coordinates; all arrays have one entry for each of those. (n,)"""

    where: NDArray[np.intp]
    """Which coordinates are discrete."""
    width: Vector
    a: Vector
    b: Vector
    c: Vector
    first: Vector
    """The least index k that is inside the bounds; -inf: there is none."""
    last: Vector
    lower: Vector
    """The user's bounds: no value is beyond them, not by the last bit either."""
    upper: Vector
    d: int
    """Coordinates in all."""

    @property
    def covers_all(self) -> bool:
        """Is every coordinate discrete? Then points repeat."""
        return len(self.where) == self.d

    @property
    def real(self) -> NDArray[np.intp]:
        """The other coordinates."""
        return np.delete(np.arange(self.d), self.where)

    def index(self, values: Floats) -> Floats:
        """Of the nearest grid value. values: (…, n)"""
        k = np.rint((values * self.c - self.a) / self.b)
        return np.clip(k, self.first, self.last)

    def value(self, index: Floats) -> Floats:
        # "+ 0.0": no -0.0, which is another point to whoever compares bytes.
        return np.clip((self.a + index * self.b) / self.c, self.lower, self.upper) + 0.0

    def inside(self, x: Vector) -> Vector:
        """A point whose discrete coordinates need not be on the grid, but between its ends. (d,)"""
        x = x.copy()
        x[self.where] = np.clip(x[self.where], self.lower, self.upper)
        return x

    def nearest(self, x: Floats) -> Floats:
        """The points with their discrete coordinates on the grid. x: (…, d)"""
        x = x.copy()
        x[..., self.where] = self.value(self.index(x[..., self.where]))
        return x


def check_integers(integers: Any, d: int) -> Vector | None:
    """The width of each coordinate's grid, 0 for a real one; None if all are real."""
    wanted = "True (whole numbers), False, or the width of a step (0 or None: any real number)"
    if integers is None:
        return None
    given = [integers] * d if _is_width(integers) else integers
    try:
        if isinstance(given, (str, bytes, dict, set)):
            raise TypeError
        items = [item.item() if isinstance(item, np.generic) else item for item in given]
    except Exception:  # what iteration raises is up to the object
        raise ArgumentError(
            f"integers: found {shown(integers)}, wanted for each of the {d} coordinates {wanted}"
        ) from None
    if len(items) != d:
        raise ArgumentError(
            f"integers: found {len(items)} entries, wanted one for each of the {d} coordinates: {wanted}"
        )
    for i, item in enumerate(items):
        if item is not None and not _is_width(item):
            raise ArgumentError(f"integers: found {shown(item)} at coordinate {i}, wanted {wanted}")
        if item and not 1 / MAX_WIDTH <= item <= MAX_WIDTH:
            raise ArgumentError(
                f"integers: found a width of {float(item):g} at coordinate {i}, wanted one between "
                f"{1 / MAX_WIDTH:g} and {MAX_WIDTH:g}; scale the problem"
            )
    widths = np.array([0.0 if item is None else float(item) for item in items])
    return widths if widths.any() else None


def _is_width(found: Any) -> bool:
    return isinstance(found, (bool, np.bool_)) or (is_number(found) and found >= 0)


def grid_of(widths: Vector, lower: Vector, upper: Vector) -> Grid:
    """widths: of each coordinate, 0 for a real one. The bounds may be infinite. All (d,)

    Steps are counted from the lower bound, or from 0 where there is none; whole numbers always from 0.
    """
    where = np.flatnonzero(widths)
    columns = [_column(int(i), float(widths[i]), float(lower[i]), float(upper[i])) for i in where]
    # Bounds beyond 64 bits are whole numbers of Python's, of which NumPy would make no numbers of its own.
    a, b, c, first, last = np.array(columns, dtype=np.float64).T
    return Grid(where, widths[where], a, b, c, first, last, lower[where], upper[where], len(widths))


def _column(i: int, width: float, lower: float, upper: float) -> tuple[float, float, float, float, float]:
    whole = width == 1
    a, b, c = _fraction(0.0 if whole or math.isinf(lower) else lower, width)
    spare = 0.0 if whole else ROUNDING
    first = lower if math.isinf(lower) else math.ceil((lower * c - a) / b - spare)
    last = upper if math.isinf(upper) else math.floor((upper * c - a) / b + spare)
    if last <= first:
        kind = "whole number" if whole else f"step of {width:g}"
        found = f"bounds: found [{lower:g}, {upper:g}] at coordinate {i}"
        if whole and last == first:
            raise ArgumentError(
                f"{found}, which has one whole number only, {first}; wanted at least two to choose from: "
                "leave the coordinate out, or widen its bounds"
            )
        raise ArgumentError(
            f"{found}, which has no room for one {kind}; wanted bounds at least as wide as that"
        )
    return a, b, c, first, last


def _fraction(origin: float, width: float) -> tuple[float, float, float]:
    """a, b and c, whole where that says exactly the same."""
    fractions = [Fraction(number).limit_denominator(10**6) for number in (origin, width)]
    c = math.lcm(*(fraction.denominator for fraction in fractions))
    a, b = (float(fraction * c) for fraction in fractions)
    if [float(fraction) for fraction in fractions] != [origin, width] or max(abs(a), b, c) > _EXACT:
        return origin, width, 1.0
    return a, b, float(c)
