"""Which points of a generation are evaluated, and which are ranked by a model of the values.

Two models are made of the evaluations nearest to the search distribution, in the coordinates z of its draws:
one of the values, chosen by leave-one-out errors, and a max-margin model of the failures. They are trusted
only where leave-one-out predictions order points as the evaluations did, failures included. That is judged on
the last points that the distribution itself has drawn: with others the steps would shrink too early.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.surrogate import edge_model, value_model
from fmnes.surrogate.trust_region import edge_points, nearest, value_points

Floats = NDArray[np.float64]

#: Kendall's τ from which the value model is trusted, and the same with failures ranked last.
TRUSTED, TRUSTED_WITH_FAILURES = 0.85, 0.7
#: Points on which that is judged, at least; and as shares of the evaluated points and of λ.
LEAST_JUDGED, JUDGED_OF_EVALUATED, JUDGED_OF_POPULATION = 15, 1.2, 0.75
#: Fewest successes for a model.
LEAST_SUCCESSES = 4
#: The score of a point that is predicted to fail, less its margin.
FAILING = 1e6


class Model(NamedTuple):
    """Models of values and failures in the coordinates of one distribution."""

    value: value_model.ValueModel
    edge: edge_model.EdgeModel | None
    """None: no evaluation near has failed."""
    trusted: bool


def fit(z: Floats, y: Floats, drawn: NDArray[np.bool_], evaluated: int, population_size: int) -> Model | None:
    """The models of evaluations at z with the values y (NaN: failed); None: too little is known.

    drawn: which points the distribution itself has drawn. evaluated: points of this generation so far.
    """
    d = z.shape[1]
    squared = np.einsum("ij,ij->i", z, z)
    worked = np.isfinite(y)
    chosen = nearest(squared, np.flatnonzero(worked), value_points(d))
    judged = int(max(LEAST_JUDGED, JUDGED_OF_EVALUATED * evaluated, JUDGED_OF_POPULATION * population_size))
    if len(chosen) < LEAST_SUCCESSES:
        return None
    value = value_model.fit(z[chosen], y[chosen], min(judged, len(chosen)))
    if value is None:
        return None
    around = nearest(squared, np.arange(len(y)), edge_points(d))
    edge = None if worked[around].all() else edge_model.fit(z[around], worked[around])
    last = np.flatnonzero(drawn)[-judged:]
    means = _left_out(value.loo, chosen, last, lambda i: value_model.predict(value, z[i]))
    if edge is not None:
        margins = _left_out(edge.loo, around, last, lambda i: edge_model.margin(edge, z[i]))
        means = np.where(margins > 0, means, FAILING)
    tau = kendall(np.where(worked[last], y[last], np.inf), means)
    return Model(value, edge, bool(value.tau >= TRUSTED and tau >= TRUSTED_WITH_FAILURES))


def _left_out(
    loo: Floats,
    members: NDArray[np.intp],
    wanted: NDArray[np.intp],
    predict: Callable[[NDArray[np.intp]], Floats],
) -> Floats:
    """Leave-one-out predictions of these points; of those that are no members, predictions."""
    at = {int(member): i for i, member in enumerate(members)}
    found = np.array([at.get(int(i), -1) for i in wanted], dtype=np.intp)
    result = loo[found]
    others = wanted[found < 0]
    if len(others):
        result[found < 0] = predict(others)
    return result


def kendall(truth: Floats, predicted: Floats) -> float:
    """Kendall's τ over the pairs whose true values differ; +inf is a value too. 0 without such a pair."""
    greater = truth[:, None] > truth[None]
    signs = greater.astype(float) - greater.T
    pairs = np.count_nonzero(signs)
    if not pairs:
        return 0.0
    return float((signs * np.sign(predicted[:, None] - predicted[None])).sum() / pairs)


def score(model: Model, z: Floats) -> Floats:
    """The predicted order of points: low is good, and points that are predicted to fail come last."""
    mean = value_model.predict(model.value, z)
    if model.edge is None:
        return mean
    margin = edge_model.margin(model.edge, z)
    scores: Floats = np.where(margin > 0, mean, FAILING - margin)
    return scores


def completed(model: Model, z: Floats, f: Floats, evaluated: NDArray[np.bool_]) -> Floats:
    """Values that rank a generation: predictions, the truth of evaluated points, NaN for failing ones."""
    ranked = score(model, z)
    ranked[ranked > FAILING / 2] = np.nan
    ranked[evaluated] = np.nan
    known = np.flatnonzero(evaluated & np.isfinite(f))
    ranked[known] = value_model.transformed(model.value, f[known])
    return ranked


def minimise(
    model: Model,
    z: Floats,
    radius: float,
    rng: np.random.Generator,
    to_model: Callable[[Floats], Floats],
    rounds: int = 12,
    each: int = 60,
) -> Floats:
    """The draw within the radius with the best predicted score: a small search from these draws. (d,)

    to_model: the coordinates of a draw's point, which differ from the draw where bounds bend the search.
    """
    d = z.shape[1]
    kept = 2 * d + 2

    def best_of(z: Floats, s: Floats) -> tuple[Floats, Floats]:
        order = np.argsort(s, kind="stable")[:kept]
        return z[order], s[order]

    points, scores = best_of(z, score(model, to_model(z)))
    step = 0.5
    for _ in range(rounds):
        around = rng.standard_normal((each // 2, d)) * (step / math.sqrt(d))
        around *= np.exp(rng.standard_normal((each // 2, 1)))
        n = each - each // 2
        first, second = rng.integers(len(points), size=(2, n))
        differences = (points[first] - points[second]) * rng.uniform(0.0, 1.5, (n, 1))
        more = points[0] + np.concatenate([around, differences])
        length = np.sqrt(np.einsum("ij,ij->i", more, more))[:, None]
        more *= np.minimum(1.0, radius / np.maximum(length, 1e-300))
        before = scores[0]
        points, scores = best_of(
            np.concatenate([points, more]), np.concatenate([scores, score(model, to_model(more))])
        )
        step *= 1.1 if scores[0] < before else 0.5
    found: Floats = points[0]
    return found
