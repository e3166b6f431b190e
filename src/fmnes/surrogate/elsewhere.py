"""The first points of a restart: where in the box another basin is likely.

Expected improvement times the probability that the evaluation works, by Gaussian processes over the box.
Points close to where searches have ended are left out.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fmnes.surrogate import gaussian_process, quasi_random
from fmnes.surrogate.evaluated import Evaluated
from fmnes.surrogate.trust_region import Snap, maximise

Floats = NDArray[np.float64]

#: No point is proposed closer than this to the end of an earlier search, as a share of the range.
EXCLUDED = 0.1
#: Score of a point that is closer.
_LOW = -1e3
#: The processes are made of at most this many points: the best, the latest, and others evenly spaced.
BEST, LATEST, OTHERS = 60, 40, 100
#: Length scales over the whole box are shorter than within a region.
_LENGTH_PRIOR = (math.log(0.3), 0.8)
#: Smallest noise variance of the labels "works" and "failed".
_LABEL_NOISE = 1e-3
#: Candidates all over the box, and around each of the best points.
_CANDIDATES, _AROUND, _CENTRES = 1024, 40, 5
_AROUND_STEP = 0.1


def propose(
    data: Evaluated, ended: Floats, lower: Floats, upper: Floats, rng: np.random.Generator, snap: Snap | None
) -> Floats:
    """The next point to evaluate. ended: where searches have ended (k, d)."""
    d = data.d
    width = upper - lower
    seed = int(rng.integers(2**31))
    spread = quasi_random.points(_CANDIDATES, d, seed)
    rows = _some(data)
    x, y = (data.u[rows] - lower) / width, data.y[rows]
    worked = np.isfinite(y)
    values = gaussian_process.warp(y[worked])
    if not values.any():
        # Without a difference between values the process would propose the corners of the box only.
        anywhere: Floats = lower + spread[0] * width
        return anywhere
    value = gaussian_process.fit(x[worked], values, length_prior=_LENGTH_PRIOR)
    works = None
    if not worked.all():
        labels = np.where(worked, 1.0, -1.0)
        works = gaussian_process.fit(x, labels, iterations=15, noise=_LABEL_NOISE, length_prior=_LENGTH_PRIOR)
    taken = (ended - lower) / width

    def snapped(v: Floats) -> Floats:
        if snap is None:
            return v
        near: Floats = (snap(lower + v * width) - lower) / width
        return near

    def score(v: Floats) -> Floats:
        mean, deviation = gaussian_process.predict(value, v)
        result = gaussian_process.log_expected_improvement(mean, deviation, value.best_y)
        if works is not None:
            result = result + gaussian_process.probability_log(works, v)
        if len(taken):
            distance = np.abs(v[:, None] - taken[None]).max(axis=2).min(axis=1)
            result = result + np.where(distance < EXCLUDED, _LOW, 0.0)
        if snap is not None:
            result = np.where(data.knows(lower + v * width), 2 * _LOW, result)
        return result

    best = x[worked][np.argsort(values, kind="stable")[:_CENTRES]]
    around = best.repeat(_AROUND, axis=0) + _AROUND_STEP * rng.standard_normal((len(best) * _AROUND, d))
    candidates = snapped(np.clip(np.concatenate([spread, around]), 0.0, 1.0))
    found, _ = maximise(score, candidates, np.zeros(d), np.ones(d), np.ones(d), rng, snapped)
    return lower + found * width


def _some(data: Evaluated) -> NDArray[np.intp]:
    """The rows that the processes are made of, in the order of evaluation."""
    n = len(data)
    if n <= BEST + LATEST + OTHERS:
        return np.arange(n)
    order = np.argsort(np.where(np.isfinite(data.y), data.y, np.inf), kind="stable")
    kept = np.union1d(order[:BEST], np.arange(n - LATEST, n))
    rest = np.setdiff1d(np.arange(n), kept)
    return np.union1d(kept, rest[:: max(1, len(rest) // OTHERS)])
