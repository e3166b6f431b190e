"""The points that a search evaluates before it may say that it has converged.

Beyond the ends of a grid all draws are the point at the end, so their values are equal and no step shortens:
where the mean is there, values that no longer differ say nothing. So the neighbours of the best point are
evaluated first, one step away in one discrete coordinate; and all points of a space of which no more is left
than the search has spent.
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

#: Stop reasons that are an answer, or lead to one. Before these, neighbours are evaluated.
ANSWERS = (
    StopReason.XTOL,
    StopReason.FTOL,
    StopReason.REPEATED,
    StopReason.FLAT,
    StopReason.ILL_CONDITIONED,
)


class Poll(NamedTuple):
    points: Floats
    """To evaluate in one generation. (n ≤ λ, d)"""
    polled: int
    """How many neighbours of the best point are evaluated then."""


def next_poll(search: Optimizer, reason: StopReason) -> Poll | None:
    """What is evaluated before the search stops for this reason; None: nothing is left."""
    grid, best, size = search._start.grid, search._best.x, search._distribution.population_size
    if grid is None or (reason not in ANSWERS and reason is not StopReason.NO_FEASIBLE):
        return None
    polled = search._polled
    if reason in ANSWERS and best is not None:
        around = neighbours(grid, best)
        left = [i for i in range(polled, len(around)) if search.known(around[i]) is None][:size]
        if left:
            return Poll(around[left], left[-1] + 1)
    if _may_be_enumerated(search, grid):
        points = [x for x in all_points(grid) if search.known(x) is None][:size]
        if points:
            return Poll(np.array(points), polled)
    return None


def neighbours(grid: Grid, x: Vector) -> Floats:
    """The points inside the bounds that are one step away in one discrete coordinate. (n, d)"""
    index = grid.index(x[grid.where])
    points = []
    for i, coordinate in enumerate(grid.where):
        for k in (index[i] - 1, index[i] + 1):
            if grid.first[i] <= k <= grid.last[i]:
                moved = index.copy()
                moved[i] = k
                point = x.copy()
                point[coordinate] = grid.value(moved)[i]
                points.append(point)
    return np.array(points).reshape(-1, grid.d)


def number_of_points(grid: Grid | None) -> float:
    """Infinite where a coordinate is real, or has no bound."""
    if grid is None or not grid.covers_all:
        return np.inf
    with np.errstate(over="ignore"):
        return float(np.prod(grid.last - grid.first + 1))


def all_points(grid: Grid) -> Floats:
    """Of a finite space, the last coordinate fastest. (n, d)"""
    ranges = [np.arange(first, last + 1) for first, last in zip(grid.first, grid.last, strict=True)]
    index = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, grid.d)
    return grid.value(index)


def all_known(search: Optimizer) -> bool:
    """Is each point of the space known?"""
    return len(search._archive) >= number_of_points(search._start.grid)


def _may_be_enumerated(search: Optimizer, grid: Grid) -> bool:
    """Does the rest of the space cost no more than was spent, nor more than is left to spend?"""
    size = number_of_points(grid)
    if not size <= search._archive.limit:
        return False
    most = search.evaluations
    if search.max_evaluations is not None:
        most = min(most, search.max_evaluations - search.evaluations)
    return size - len(search._archive) <= most
