"""The first evaluations: points proposed by two models in a trust region around the best point.

A Gaussian process proposes where the expected improvement is largest, a local quadratic model proposes its
minimum; the one that has just found a better point proposes again. A max-margin model of the failures keeps
the points off the failing part. The region grows after improvements and shrinks without them.

All points are in units of the search range: u = (x − origin)/width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.surrogate import edge_model, gaussian_process, normal, value_model
from fmnes.surrogate.evaluated import Evaluated

Floats = NDArray[np.float64]
#: Rounds points to values that may be evaluated; None: all may.
Snap = Callable[[Floats], Floats]

#: The largest region, as a share of the range.
LARGEST = 1.0
#: The region ends when it is smaller than this share of its first size.
SMALLEST = 1e-3
#: The quadratic model takes part in regions up to this size.
QUADRATIC_BELOW = 0.4
#: An improvement is a gain of more than this share of the distance from the best to the median value.
GAIN = 1e-3
GROWTH, SHRINKAGE = 1.6, 0.6
#: Improvements in a row after which the region grows.
GAINS_TO_GROW = 3
#: A failed evaluation counts as this part of one that did not improve.
FAILURE_COUNTS = 0.34
#: Distances in the edge model are sharper by this factor in log Φ(factor × margin).
EDGE_SHARPNESS = 2.0
#: Per failure in a row: how much the margin that a point must have grows (up to MAX_CUT), …
CUT, MAX_CUT = 0.1, 0.9
#: … and how the region contracts (down to MIN_CONTRACTION).
CONTRACTION, MIN_CONTRACTION = 0.8, 0.1
#: The ratio of the region's axes to their mean, at most, and one over it at least.
LONGEST_AXIS = 5.0
#: Data of the models reaches this many sizes of the region.
REACH = 8.0
#: The region ends when the last 3 d + 10 evaluations gained less than this share of the distance from the
#: best value to the median.
STALL_GAIN, STALL_EVALUATIONS = 1e-4, 3.0
#: Two points closer than this share of the region are one.
SAME = 1e-4
_LOWEST = -1e6


class Region(NamedTuple):
    """The state between two evaluations."""

    size: float
    """Half the width of the region, as a share of the range."""
    first_size: float
    began: int
    """Evaluations before it."""
    gains: int = 0
    """Improvements in a row."""
    misses: float = 0.0
    """Evaluations without an improvement since the last change; failed ones count less."""
    failures: int = 0
    """Failed evaluations in a row."""
    quadratic: bool = False
    """Does the quadratic model propose the next point?"""
    fitted_at: int = 0
    """Evaluations at the last fit of the length scales."""
    theta: Floats | None = None
    """Hyperparameters of the Gaussian process."""


class Models(NamedTuple):
    """The models around the best point, in coordinates (u − centre)/size."""

    centre: Floats
    process: gaussian_process.GaussianProcess | None
    value: value_model.ValueModel | None
    edge: edge_model.EdgeModel | None
    half: Floats
    """The region's half axes, relative to its size. (d,)"""


def begin(size: float, began: int) -> Region:
    size = min(LARGEST, size)
    return Region(size, size, began)


def has_ended(region: Region, data: Evaluated) -> bool:
    """Whether the region is too small, or the last evaluations gained too little."""
    return region.size <= SMALLEST * region.first_size or stalled(
        data, region.began, STALL_EVALUATIONS, STALL_GAIN
    )


def stalled(
    data: Evaluated, since: int, per_dimension: float, share: float, first: int | None = None
) -> bool:
    """Whether the last `per_dimension` d + 10 evaluations, all after `since`, gained less than this share.

    The gain is relative to the distance from the best value of the present search to the median of all, or of
    the `first` values: while a search converges, most values come close to the best one.
    """
    window = stall_window(data.d, per_dimension)
    if len(data) - since <= window:
        return False
    y = data.y
    worked = y[:first][np.isfinite(y[:first])]
    present, before = y[data.first :], y[data.first : -window]  # of this search
    if not np.isfinite(before).any() or not len(worked):
        return False
    low = float(np.nanmin(present))
    gain = float(np.nanmin(before)) / 2 - low / 2
    return bool(gain <= share * max(0.0, np.median(worked / 2) - low / 2))


def stall_window(d: int, per_dimension: float) -> int:
    """How many evaluations have to gain too little."""
    return int(per_dimension * d + 10)


def propose(
    data: Evaluated, region: Region, lower: Floats, upper: Floats, rng: np.random.Generator, snap: Snap | None
) -> tuple[Floats | None, Region]:
    """The next point to evaluate, and the region with refitted models.

    None: every point found is evaluated already.
    """
    refit = region.theta is None or len(data) - region.fitted_at >= max(1, len(data) // 15)
    models = fit(data, region.size, region.theta, refit)
    process = models.process
    if process is not None:
        region = region._replace(theta=process.theta)
    if refit:
        region = region._replace(fitted_at=len(data))
    centre, size = models.centre, region.size
    half = models.half * max(MIN_CONTRACTION, CONTRACTION**region.failures)
    cut = min(MAX_CUT, CUT * region.failures)
    # Coordinates of the region: v = (u − centre)/size, within the range and the half axes.
    low, high = (lower - centre) / size, (upper - centre) / size
    near, far = np.maximum(low, -half), np.minimum(high, half)

    def snapped(v: Floats) -> Floats:
        return v if snap is None else (snap(centre + size * v) - centre) / size

    v = snapped(np.clip(_candidates(len(centre), half, rng), low, high))
    if process is None:
        return _unknown(data, centre + size * v[rng.permutation(len(v))], snap), region

    def new(v: Floats, score: Floats) -> Floats:
        if snap is None:
            return score
        return np.where(data.knows(snap(centre + size * v)), -np.inf, score)

    def improvement(v: Floats) -> Floats:
        mean, deviation = gaussian_process.predict(process, v)
        score = gaussian_process.log_expected_improvement(mean, deviation, process.best_y)
        if models.edge is not None:
            margin = edge_model.margin(models.edge, v / models.half)
            score = score + normal.log_cdf(EDGE_SHARPNESS * (margin - cut))
        return new(v, score)

    def quadratic(v: Floats) -> Floats:
        assert models.value is not None
        score = -value_model.predict(models.value, v / models.half)
        if models.edge is not None:
            margin = edge_model.margin(models.edge, v / models.half)
            score = np.where(margin > cut, score, _LOWEST + margin)
        return new(v, score)

    if models.value is not None and region.quadratic:
        best, score = maximise(quadratic, v, near, far, half, rng, snapped)
        if np.isfinite(score) and not data.near(centre + size * best, SAME * size):
            return centre + size * best, region
    region = region._replace(quadratic=False)
    best, score = maximise(improvement, v, near, far, half, rng, snapped)
    return (centre + size * best if np.isfinite(score) else None), region


def observe(region: Region, value: float, best_before: float, median: float, d: int) -> Region:
    """The region after an evaluation. median: of all values so far, the new one included."""
    worked = math.isfinite(value)
    if worked and value < best_before - GAIN * abs(best_before - median):
        region = region._replace(gains=region.gains + 1, misses=0.0)
    else:
        # The model that has just improved proposes again; otherwise it is the other's turn.
        more = 1.0 if worked else FAILURE_COUNTS
        region = region._replace(gains=0, misses=region.misses + more, quadratic=not region.quadratic)
    region = region._replace(failures=0 if worked else region.failures + 1)
    if region.gains >= GAINS_TO_GROW:
        region = region._replace(size=min(LARGEST, region.size * GROWTH), gains=0)
    if region.misses >= max(3, d // 2 + 1) - 0.01:
        region = region._replace(size=region.size * SHRINKAGE, misses=0.0)
    return region


def fit(data: Evaluated, size: float, theta: Floats | None, refit: bool) -> Models:
    """The models of the data around the best point of the present search."""
    d, y = data.d, data.y
    centre = data.u[data.best]
    v = (data.u - centre) / size
    distance = np.abs(v).max(axis=1)
    worked = np.isfinite(y)
    near = np.argsort(distance, kind="stable")[: 150 + 10 * d]
    near = near[worked[near]]
    kept = near[distance[near] <= REACH]
    if len(kept) < 2 * d + 2:
        kept = near[: 2 * d + 2]
    process = None
    if len(kept) >= 2:
        warped = gaussian_process.warp(y[kept])
        process = gaussian_process.fit(v[kept], warped, theta, 25 if refit else 0)
    half = np.ones(d) if process is None else half_axes(process.theta)
    z = v / half
    squared = np.einsum("ij,ij->i", z, z)
    value = None
    chosen = nearest(squared, np.flatnonzero(worked), value_points(d))
    if size <= QUADRATIC_BELOW:
        value = value_model.fit(z[chosen], y[chosen], min(len(chosen), max(15, 2 * d)))
    return Models(centre, process, value, fit_edge(z, worked), half)


def half_axes(theta: Floats) -> Floats:
    """The half axes of a region, from the length scales of the process. (d,)"""
    scales = np.exp(theta[:-2])
    half: Floats = np.clip(scales / np.exp(np.log(scales).mean()), 1 / LONGEST_AXIS, LONGEST_AXIS)
    return half


def fit_edge(z: Floats, worked: NDArray[np.bool_]) -> edge_model.EdgeModel | None:
    """The edge model of the nearest points; None: none of them failed."""
    squared = np.einsum("ij,ij->i", z, z)
    around = nearest(squared, np.arange(len(z)), edge_points(z.shape[1]))
    return None if worked[around].all() else edge_model.fit(z[around], worked[around])


def value_points(d: int) -> int:
    """How many of the nearest successes the value model is made of."""
    return min(max((d + 1) * (d + 2), 10 * d, 30), 300)


def edge_points(d: int) -> int:
    """How many of the nearest points the edge model is made of."""
    return min(max(40 * d, 40), 400)


def nearest(squared: Floats, chosen: NDArray[np.intp], n: int) -> NDArray[np.intp]:
    """The n of these indices with the smallest distance, the nearest first."""
    return chosen[np.argsort(squared[chosen], kind="stable")[:n]]


def _candidates(d: int, half: Floats, rng: np.random.Generator) -> Floats:
    """Random points of the region: few coordinates moved far, or all of them a little. (2100, d)"""
    n = 1200
    uniform = rng.uniform(-1.0, 1.0, (n, d)) * half
    moved = rng.random((n, d)) < min(1.0, 20 / d)
    moved[np.arange(n), rng.integers(d, size=n)] = True
    middle = rng.standard_normal((n // 2, d)) * 0.3 * half
    close = rng.standard_normal((n // 4, d)) * 0.05 * half
    return np.concatenate([np.where(moved, uniform, 0.0), middle, close])


def maximise(
    score: Callable[[Floats], Floats],
    v: Floats,
    low: Floats,
    high: Floats,
    scale: Floats,
    rng: np.random.Generator,
    snapped: Callable[[Floats], Floats],
    kept: int = 8,
    rounds: int = 6,
    each: int = 12,
) -> tuple[Floats, float]:
    """The best of these points after some rounds of local sampling around the best ones, and its score."""
    s = score(v)
    top = np.argsort(-s, kind="stable")[:kept]
    v, s, step = v[top], s[top], 0.15
    for _ in range(rounds):
        moves = rng.standard_normal((len(v), each, v.shape[1])) * (step * scale)
        more = snapped(np.clip((v[:, None] + moves).reshape(-1, v.shape[1]), low, high))
        v, s = np.concatenate([v, more]), np.concatenate([s, score(more)])
        top = np.argsort(-s, kind="stable")[:kept]
        v, s, step = v[top], s[top], step / 2
    return v[0], float(s[0])


def _unknown(data: Evaluated, u: Floats, snap: Snap | None) -> Floats | None:
    """The first of these points that is not evaluated yet."""
    unknown = u if snap is None else u[~data.knows(snap(u))]
    for first in unknown:
        return np.array(first)
    return None
