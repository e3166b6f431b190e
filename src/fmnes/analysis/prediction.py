"""What models of the evaluations expect: the optimum, with its error, and the edge of the failing region.

A Gaussian process is fitted to the best points that work, in coordinates in which these are round, and
minimised where a model of the failures is as sure of success as at the evaluated points.
`benchmarks/prediction.py` measures how often what is said is true.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.reading.data import CHOICE, Floats, Table, distinct, evenly, in_box, on_scale
from fmnes.surrogate import edge_model, gaussian_process, trust_region

#: More parameters than this are too many for a model of at most MOST_POINTS points.
MOST_PARAMETERS, MOST_POINTS = 20, 300
#: Kendall's τ between values and leave-one-out predictions; below it nothing is predicted.
LEAST_ORDER = 0.5
#: The margin of the edge model that a point must have: that of the working points nearest to the edge.
MARGIN = 1.0
#: Random starts of the minimisation of the model, and its rounds: the steps halve with each.
STARTS, ROUNDS = 1000, 14


class Prediction(NamedTuple):
    """The optimum that a model of the evaluations expects.

    Attributes
    ----------
    parameters : dict of str to float
        The point where the model expects the smallest value and no failure, within the range of the best
        evaluated points.
    value : float
        The expected value there.
    error : float
        Its standard error, of the model and of its leave-one-out predictions of the nearest points.
    best : float
        The best value so far.
    better : bool
        Whether the expected value is better than the best one by more than its error, so that evaluating the
        point is worthwhile.
    order : float
        Kendall's rank correlation between the values and their leave-one-out predictions.

    Examples
    --------
    >>> import fmnes
    >>> def simulate(p):
    ...     return (p["width"] - 0.3) ** 2 + (p["height"] - p["width"]) ** 2
    >>> space = {"width": fmnes.Real(0, 1), "height": fmnes.Real(0, 1)}
    >>> options = {"rng": 2, "max_evaluations": 25, "surrogate": False}
    >>> result = fmnes.minimize(simulate, space, keep_evaluations=True, **options)
    >>> predicted = fmnes.explain(result).predicted
    >>> predicted.better, simulate(predicted.parameters) < result.fun
    (True, True)
    """

    parameters: dict[str, float]
    value: float
    error: float
    best: float
    better: bool
    order: float


class _Box(NamedTuple):
    """The range of the evaluated points, in the user's units. All: (d,)"""

    low: Floats
    high: Floats
    steps: Floats
    """0: any value; otherwise only multiples of it, counted from `low`, were evaluated."""
    logs: NDArray[np.bool_]

    @staticmethod
    def of(table: Table, logs: frozenset[str]) -> _Box:
        columns = list(table.points.values())
        return _Box(
            np.array([column.min() for column in columns]),
            np.array([column.max() for column in columns]),
            np.array([_step(column) for column in columns]),
            np.array([name in logs for name in table.points]),
        )

    def of_users(self, u: Floats) -> Floats:
        """Points of the unit box, rounded to the steps."""
        low, high = (np.where(self.logs, np.log(np.maximum(end, 1e-300)), end) for end in self[:2])
        x = low * (1 - u) + high * u  # the full range may overflow
        x = np.where(self.logs, np.exp(x), x)
        rounded = self.low + self.steps * np.round((x - self.low) / np.where(self.steps > 0, self.steps, 1.0))
        return np.asarray(np.clip(np.where(self.steps > 0, rounded, x), self.low, self.high))

    def nearest(self, u: Floats) -> Floats:
        """The same in units of the box."""
        names = [str(j) for j in range(len(self.low))]
        logs = frozenset(name for name, log in zip(names, self.logs, strict=True) if log)
        points = np.concatenate([self.low[None], self.high[None], self.of_users(u)])
        return in_box(on_scale(dict(zip(names, points.T, strict=True)), logs))[2:]


class _Units(NamedTuple):
    """z, in which the best points are round: u = centre + axes z, with u from 0 to 1 in the evaluated box."""

    centre: Floats
    axes: Floats
    inverse: Floats

    def of(self, u: Floats) -> Floats:
        return np.asarray((u - self.centre) @ self.inverse.T)

    def box(self, z: Floats) -> Floats:
        return np.asarray(np.clip(self.centre + z @ self.axes.T, 0.0, 1.0))


def prediction(table: Table, logs: frozenset[str]) -> Prediction | None:
    """The expected optimum; None where no model orders the values well, and with categories."""
    d = len(table.points)
    works = ~(table.failed | table.violated)
    ranked = np.flatnonzero(works)
    ranked = ranked[np.argsort(table.value[ranked], kind="stable")]
    chosen = ranked[: min(max((d + 1) * (d + 2), 10), MOST_POINTS)]
    if not 1 <= d <= MOST_PARAMETERS or len(chosen) < 2 * d + 2:
        return None
    if any(name.endswith(CHOICE) for name in table.points):
        return None
    try:
        with np.errstate(all="ignore"):  # what is not finite is not reported
            return _prediction(table, logs, works, chosen)
    except np.linalg.LinAlgError:
        return None


def _prediction(
    table: Table, logs: frozenset[str], works: NDArray[np.bool_], chosen: NDArray[np.intp]
) -> Prediction | None:
    u, y = in_box(on_scale(table.points, logs)), table.value[chosen]
    units = _round(u[chosen])
    z, d = units.of(u), u.shape[1]
    points = z[chosen]
    process = gaussian_process.fit(points / 2, y)  # / 2: coordinates of order 1
    errors = process.weights / np.square(process.root).sum(axis=0)  # of leave-one-out
    order = _kendall(y, (y - process.mean_y) / process.scale_y - errors)
    if not order >= LEAST_ORDER:
        return None
    squared = np.square(z).sum(axis=1)
    near = np.argsort(squared, kind="stable")[: trust_region.edge_points(d)]
    edge = None if works[near].all() else edge_model.fit(z[near], works[near])
    box = _Box.of(table, logs)

    def snapped(v: Floats) -> Floats:
        return units.of(box.nearest(units.box(v))) if box.steps.any() else v

    def score(v: Floats) -> Floats:
        expected = -gaussian_process.predict(process, v / 2)[0]
        if edge is None:
            return expected
        margin = edge_model.margin(edge, v)
        return np.where(margin >= MARGIN, expected, margin - 1e6)

    low, high = points.min(axis=0), points.max(axis=0)
    rng = np.random.default_rng(0)
    starts = snapped(np.concatenate([points, rng.uniform(low, high, (STARTS, d))]))
    best, _ = trust_region.maximise(score, starts, low, high, high - low, rng, snapped, rounds=ROUNDS)
    if edge is not None and not edge_model.margin(edge, best[None])[0] >= MARGIN:
        return None
    mean, deviation = (float(one[0]) for one in gaussian_process.predict(process, best[None] / 2))
    nearest = np.argsort(np.square(points - best).sum(axis=1), kind="stable")[: 2 * d + 2]
    value = process.mean_y + process.scale_y * mean
    error = process.scale_y * math.hypot(deviation, math.sqrt(float(np.square(errors[nearest]).mean())))
    at = box.of_users(units.box(best[None]))[0].tolist()
    if not all(map(math.isfinite, (value, error, *at))):
        return None
    known = bool((np.column_stack(list(table.points.values())) == at).all(axis=1).any())
    found, least = dict(zip(table.points, at, strict=True)), float(y[0])
    return Prediction(found, value, error, least, not known and value + error < least, order)


def _round(u: Floats) -> _Units:
    """Units in which these points, the best one first, are round around it."""
    deviations = u.std(axis=0)
    deviations = np.where(deviations > 0, deviations, 1.0)
    centred = (u - u.mean(axis=0)) / deviations
    variances, directions = np.linalg.eigh(centred.T @ centred / len(u))
    lengths = np.sqrt(np.maximum(variances, 1e-8 * variances.max()))
    axes = deviations[:, None] * directions * lengths
    return _Units(u[0], axes, (directions / lengths).T / deviations)


def _kendall(a: Floats, b: Floats) -> float:
    """Kendall's τ; pairs with equal a do not count."""
    signs = np.sign(a[:, None] - a)
    return float((signs * np.sign(b[:, None] - b)).sum() / max(1.0, np.abs(signs).sum()))


def _step(column: Floats) -> float:
    """The step of a parameter of which only multiples of one were evaluated; 0: any value was."""
    gaps = np.diff(np.unique(column))
    gaps = gaps[gaps > 1e-9 * gaps.max(initial=0.0)]  # others are rounding
    ratios = gaps / gaps.min(initial=np.inf)
    return float(gaps.min()) if len(gaps) and (np.abs(ratios - np.round(ratios)) < 1e-6).all() else 0.0


# -- The edge of the failing region that a model of the evaluations expects
#
# A margin model is fitted to evaluations of the whole run, one for each occupied cell, and judged by the
# points that are left out of it. It is cut through the best point: two parameters vary, the others stay.

#: Fewer points of either kind show no edge; of more than MOST in all some are left out.
LEAST, MOST = 5, 400
#: The share of left-out points on their side of the edge; below it no edge is expected.
LEAST_RIGHT = 0.75


class Edge(NamedTuple):
    """The margin in the plane of two parameters through the best point."""

    margin: Floats
    """Above 0 a point is expected to work. (len(along), len(along)), rows along the second parameter"""
    right: float
    """The share of left-out points on their side; failures and successes have the same weight."""


def edge_through_best(
    table: Table, logs: frozenset[str], across: str, down: str, along: Floats
) -> Edge | None:
    """The expected edge; None if none is clear. along: places from 0 to 1 in both ranges."""
    works = ~(table.failed | table.violated)
    if not works.any():
        return None
    u = in_box(on_scale(table.points, logs))
    best = u[np.flatnonzero(works)[np.argmin(table.value[works])]]
    rows = distinct(u)[0]
    rows = rows[evenly(len(rows), MOST)]
    failed = table.failed[rows]
    if min(failed.sum(), (~failed).sum()) < LEAST:
        return None
    model = edge_model.fit(u[rows] - best, ~failed)
    right = float((model.loo[failed] < 0).mean() + (model.loo[~failed] > 0).mean()) / 2
    if not right >= LEAST_RIGHT:
        return None
    names = list(table.points)
    plane = np.zeros((len(along), len(along), len(names)))
    for name, offsets in ((across, along), (down, along[:, None])):
        plane[:, :, names.index(name)] = offsets - best[names.index(name)]
    margin = edge_model.margin(model, plane.reshape(-1, len(names)))
    return Edge(margin.reshape(len(along), len(along)), right)
