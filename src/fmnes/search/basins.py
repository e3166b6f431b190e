"""Where the next search in a box begins: formulas without state.

All points are in the unit box. The neighbourhood of a point is MLSL's (A. Rinnooy Kan, G. Timmer,
"Stochastic global optimization methods", 1987): it shrinks as the number of points grows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Radius of a neighbourhood, in units of the typical distance between the points.
RADIUS = 0.35
#: First step of a search from an archived point, in the same units, as a multiple of a quarter of the widths.
STEP = 0.12 / 0.25
#: Where between an optimum and a possible start a hill is looked for, as shares of the way.
ON_THE_WAY = (0.5, 0.25)
#: Optima for which this is done: the nearest ones.
NEAREST = 2


class NextStart(NamedTuple):
    """A point from which a search may begin."""

    number: int
    """Of the point in the archive; -1: there is none."""
    examined: list[int]
    """All points that were considered; they need not be considered again."""


def distance_between(n: int, d: int) -> float:
    """Return the typical distance between n points of the unit box."""
    return float(max(n, 2) ** (-1.0 / d))


def next_start(points: Floats, values: Floats, tried: NDArray[np.bool_], taken: Floats) -> NextStart:
    """Return the best untried point that has no better point and no taken one within its neighbourhood.

    points: the archive (n, d); values: NaN for a failed one (n,). taken: known optima and earlier starts
    (m, d). Points with high values may be starts, too: the searches so far have filled the best of the
    archive with points of their own basins.
    """
    examined: list[int] = []
    radius = RADIUS * distance_between(len(points), points.shape[1])
    possible = np.flatnonzero(np.isfinite(values) & ~tried)
    for i in possible[np.argsort(values[possible], kind="stable")].tolist():
        examined.append(i)
        if len(taken) and np.linalg.norm(taken - points[i], axis=1).min() < radius:
            continue
        better = points[values < values[i]]  # not NaN
        if not len(better) or np.linalg.norm(better - points[i], axis=1).min() >= radius:
            return NextStart(i, examined)
    return NextStart(-1, examined)


def points_on_the_way(start: Floats, optima: Floats) -> Floats:
    """Return the points between the nearest optima and a possible start, one optimum after another. (n, d)"""
    nearest = nearest_optima(start, optima)
    return np.array([(1 - t) * optima[j] + t * start for j in nearest for t in ON_THE_WAY])


def nearest_optima(start: Floats, optima: Floats) -> NDArray[np.intp]:
    """Return which optima are compared with a possible start, the nearest first."""
    distances = np.linalg.norm(optima - start, axis=1)
    return np.argsort(distances, kind="stable")[:NEAREST]


def hill_between(on_the_way: Floats, value: float, optima_values: Floats) -> bool:
    """Return whether a hill, or a failing region, separates a possible start from each of these optima.

    on_the_way: the values of `points_on_the_way`, NaN for failed ones. value: of the start.
    """
    ways = on_the_way.reshape(len(optima_values), len(ON_THE_WAY))
    with np.errstate(invalid="ignore"):
        blocked = np.isnan(ways) | (ways > np.maximum(value, optima_values)[:, None])
    return bool(blocked.any(axis=1).all())
