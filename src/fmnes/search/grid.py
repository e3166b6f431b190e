"""Discrete coordinates: their grid, the margin that keeps neighbours reachable, and their polling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import is_number, shown
from fmnes.errors import ArgumentError
from fmnes.parameters import Choices
from fmnes.result import StopReason, Vector
from fmnes.strategies.base import Strategy, implements

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

# -- grid --------------------------------------------------------------------------------------------------
#
# A grid value is (a + k b)/c for a whole number k: a, b and c are whole if the width and the origin are
# decimal numbers, so that steps of 0.1 give 0.3 and not 0.30000000000000004.


Floats = NDArray[np.float64]

#: Wider steps than this, or narrower ones than its inverse, leave floating point.
MAX_WIDTH = 1e100
#: Tolerance for a number on the grid, in steps.
ROUNDING = 1e-9
#: Numbers up to here, and their products with small ones, are exact in float64.
_EXACT = 2**40


@dataclass(frozen=True, eq=False)
class Grid:
    """The values of the discrete coordinates; arrays have one entry per discrete coordinate. (n,)"""

    where: NDArray[np.intp]
    """Which coordinates are discrete."""
    width: Vector
    a: Vector
    b: Vector
    c: Vector
    first: Vector
    """The least index k inside the bounds; -inf without a bound."""
    last: Vector
    lower: Vector
    """The user's bounds, which no value exceeds, not even by rounding."""
    upper: Vector
    d: int
    """Number of all coordinates."""

    @property
    def covers_all(self) -> bool:
        """Is every coordinate discrete? Then points repeat."""
        return len(self.where) == self.d

    @property
    def real(self) -> NDArray[np.intp]:
        """The coordinates that are not discrete."""
        return np.delete(np.arange(self.d), self.where)

    def index(self, values: Floats) -> Floats:
        """Return the indices of the nearest grid values. values: (…, n)"""
        k = np.rint((values * self.c - self.a) / self.b)
        return np.clip(k, self.first, self.last)

    def value(self, index: Floats) -> Floats:
        # "+ 0.0" turns -0.0 into 0.0: points are compared by their bytes.
        return np.clip((self.a + index * self.b) / self.c, self.lower, self.upper) + 0.0

    def inside(self, x: Vector) -> Vector:
        """Clip the discrete coordinates to the ends of the grid. (d,)"""
        x = x.copy()
        x[self.where] = np.clip(x[self.where], self.lower, self.upper)
        return x

    def nearest(self, x: Floats) -> Floats:
        """Round the discrete coordinates to the grid. x: (…, d)"""
        x = x.copy()
        x[..., self.where] = self.value(self.index(x[..., self.where]))
        return x


def choices_of(integers: Any, d: int) -> NDArray[np.int64] | None:
    """The number of choices of each coordinate, 0 for a number; None if there are no categories. (d,)"""
    if not isinstance(integers, list) or not any(isinstance(item, Choices) for item in integers):
        return None
    return np.array([int(item) if isinstance(item, Choices) else 0 for item in integers])


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
        items = [1.0 if isinstance(item, Choices) else item for item in items]
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
    """Return the grid; widths are 0 for real coordinates, bounds may be infinite. All (d,)

    Steps count from the lower bound, or from 0 without one; whole numbers always from 0.
    """
    where = np.flatnonzero(widths)
    columns = [_column(int(i), float(widths[i]), float(lower[i]), float(upper[i])) for i in where]
    # Bounds beyond 64 bits are Python integers: without dtype NumPy would make objects of them.
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
    """Return a, b and c, whole if that is exact."""
    fractions = [Fraction(number).limit_denominator(10**6) for number in (origin, width)]
    c = math.lcm(*(fraction.denominator for fraction in fractions))
    a, b = (float(fraction * c) for fraction in fractions)
    if [float(fraction) for fraction in fractions] != [origin, width] or max(abs(a), b, c) > _EXACT:
        return origin, width, 1.0
    return a, b, float(c)


# -- margin ------------------------------------------------------------------------------------------------
#
# Discrete coordinates keep a probability of another value, however short the steps are.
#
# R. Hamano, S. Saito, M. Nomura and S. Shirakawa, "CMA-ES with Margin: Lower-Bounding Marginal Probability
# for Mixed-Integer Black-Box Optimization", GECCO 2022 (arXiv:2205.13482), section 4. Each discrete
# coordinate is N(m, s²) before it is rounded.
#
#     at an end of the grid   Pr(the other side of the one limit) ≥ α, by moving m
#     elsewhere               Pr(below the cell of m) and Pr(above it) ≥ α/2, by moving m and stretching s
#
# The paper computes and corrects each probability. Here the distance of m from the limit in units of s is
# compared instead, so most coordinates need no normal distribution function.


_NORMAL = NormalDist()


def margin(grid: Grid, mean: Vector, deviation: Vector, alpha: float) -> tuple[Vector, Vector] | None:
    """Return corrected means and deviations of the discrete coordinates; None: no correction.

    mean, deviation: of the discrete coordinates, in the user's units. (n,)
    alpha: the paper's α, 1/(d λ).
    """
    k = grid.index(mean)
    middle, half = grid.value(k), grid.width / 2
    low, up = middle - half, middle + half
    at_first, at_last = k == grid.first, k == grid.last

    # Binary coordinates, and those at an end of their grid: one limit, and m within reach of it.
    limit = np.where(at_first, up, low)
    reach = -_NORMAL.inv_cdf(alpha) * deviation
    too_far = (at_first | at_last) & (np.abs(mean - limit) > reach)

    # All others: m and s that put the limits χ_low and χ_up deviations away.
    farthest = -_NORMAL.inv_cdf(alpha / 2)
    chi_low, chi_up = (mean - low) / deviation, (up - mean) / deviation
    rare_low, rare_up = chi_low > farthest, chi_up > farthest
    too_rare = ~(at_first | at_last) & (rare_low | rare_up)
    if not (too_far.any() or too_rare.any()):
        return None

    for i in np.flatnonzero(too_rare & ~rare_up):
        chi_up[i] = _other_side(float(chi_low[i]), float(chi_up[i]), alpha)
    for i in np.flatnonzero(too_rare & ~rare_low):
        chi_low[i] = _other_side(float(chi_up[i]), float(chi_low[i]), alpha)
    chi_low = np.where(rare_low, farthest, chi_low)
    chi_up = np.where(rare_up, farthest, chi_up)
    total = chi_low + chi_up
    new_mean = np.where(too_far, limit + np.copysign(reach, mean - limit), mean)
    new_mean = np.where(too_rare, (low * chi_up + up * chi_low) / total, new_mean)
    return new_mean, np.where(too_rare, grid.width / total, deviation)


def _other_side(rare: float, other: float, alpha: float) -> float:
    """Return χ of the likely side when the rare side is raised to α/2.

    The other two probabilities decrease in proportion to their excess over α/2 (the paper's p″).
    """
    p_rare, p = _NORMAL.cdf(-rare), _NORMAL.cdf(-other)
    p += (p_rare - alpha / 2) * (p - alpha / 2) / (1 - p_rare - alpha)
    return -_NORMAL.inv_cdf(p)


def marginal_deviations(strategy: Strategy, state: Any) -> Vector:
    """The standard deviation of each of a strategy's coordinates. (d,)"""
    deviations: Vector = strategy.deviations(state)
    return deviations


def check_deviations(strategy: Strategy) -> None:
    """Refuse a strategy that does not define the spread of each coordinate."""
    if not implements(strategy, "covariance") and not implements(strategy, "deviations"):
        raise ArgumentError(
            f"integers: found with {strategy!r}, which has no covariance(state); wanted a method that has"
        )


# -- polling ---------------------------------------------------------------------------------------------
#
# Points to evaluate before a search with discrete coordinates may report convergence.
#
# Beyond the end of a grid all draws map to its last point: equal values there are no evidence of
# convergence. Therefore the neighbours of the best point, one step away in one discrete coordinate, are
# evaluated first. The rest of a finite space is enumerated if it has at most as many points as were evaluated
# already, and with categories also if at most 100 are left: choices without an order say nothing about those
# beside them.

#: Stop reasons that may mean convergence: neighbours are evaluated before them.
ANSWERS = (
    StopReason.XTOL,
    StopReason.FTOL,
    StopReason.REPEATED,
    StopReason.FLAT,
    StopReason.ILL_CONDITIONED,
)


#: With categories the rest of a space is enumerated if at most this many points are left.
FEW_POINTS = 100


class Poll(NamedTuple):
    points: Floats
    """To evaluate in one generation. (n ≤ λ, d)"""
    polled: int
    """Neighbours of the best point that are known afterwards."""


def next_poll(search: Optimizer, reason: StopReason) -> Poll | None:
    """Return what to evaluate before the search stops for this reason; None: nothing."""
    grid, best, size = search._start.grid, search._best.x, search._distribution.population_size
    if grid is None or (reason not in ANSWERS and reason is not StopReason.NO_FEASIBLE):
        return None
    polled = search._polled
    if reason in ANSWERS and best is not None:
        around = neighbours(grid, best, search._start.choices)
        left = [i for i in range(polled, len(around)) if search.known(around[i]) is None][:size]
        if left:
            return Poll(around[left], left[-1] + 1)
    if _may_be_enumerated(search, grid):
        points = [x for x in all_points(grid) if search.known(x) is None][:size]
        if points:
            return Poll(np.array(points), polled)
    return None


def neighbours(grid: Grid, x: Vector, choices: NDArray[np.int64] | None = None) -> Floats:
    """Return the points inside the bounds one step away in one discrete coordinate. (n, d)

    choices: the number of choices of each category, all of which are one step away; 0 for a number.
    """
    index = grid.index(x[grid.where])
    points = []
    for i, coordinate in enumerate(grid.where):
        steps = (index[i] - 1, index[i] + 1)
        for k in steps if choices is None or not choices[coordinate] else range(choices[coordinate]):
            if k != index[i] and grid.first[i] <= k <= grid.last[i]:
                moved = index.copy()
                moved[i] = k
                point = x.copy()
                point[coordinate] = grid.value(moved)[i]
                points.append(point)
    return np.array(points).reshape(-1, grid.d)


def number_of_points(grid: Grid | None) -> float:
    """Count the points of the space; infinite if a coordinate is real or unbounded."""
    if grid is None or not grid.covers_all:
        return np.inf
    with np.errstate(over="ignore"):
        return float(np.prod(grid.last - grid.first + 1))


def all_points(grid: Grid) -> Floats:
    """Return all points of a finite space, the last coordinate fastest. (n, d)"""
    ranges = [np.arange(first, last + 1) for first, last in zip(grid.first, grid.last, strict=True)]
    index = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, grid.d)
    return grid.value(index)


def all_known(search: Optimizer) -> bool:
    """Are all points of the space known?"""
    return len(search._archive) >= number_of_points(search._start.grid)


def _may_be_enumerated(search: Optimizer, grid: Grid) -> bool:
    """Does the rest of the space cost at most what was spent, and what is left of the budget?"""
    size = number_of_points(grid)
    if not size <= search._archive.limit:
        return False
    most = search.evaluations
    if search._start.choices is not None:
        most = max(most, FEW_POINTS)
    if search.max_evaluations is not None:
        most = min(most, search.max_evaluations - search.evaluations)
    return size - len(search._archive) <= most
