"""Points to evaluate before a search with discrete coordinates may report convergence.

Beyond the end of a grid all draws map to its last point: equal values there are no evidence of convergence.
Therefore the neighbours of the best point, one step away in one discrete coordinate, are evaluated first. The
rest of a finite space is enumerated if it has at most as many points as were evaluated already, and with
categories also if at most 100 are left: choices without an order say nothing about those beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.result import StopReason, Vector
from fmnes.search.grid import Grid

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

Floats = NDArray[np.float64]

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
