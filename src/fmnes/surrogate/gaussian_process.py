"""A Gaussian process with a Matérn 5/2 kernel and one length scale for each coordinate.

The logarithms θ of the length scales, of the signal variance and of the noise variance are those of the
largest posterior density within bounds (MAP).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fmnes.surrogate.kernels import Floats, cdf, density, distances_between, inverse_root, log_cdf, matern52

#: Mean and standard deviation of the normal priors of θ; for the length scales see `LENGTH_PRIOR`.
_SIGNAL_PRIOR = (0.0, 1.5)
_NOISE_PRIOR = (math.log(1e-4), 2.5)
#: Median of a length scale in one dimension; it grows as √d. For coordinates of order 1.
LENGTH_PRIOR = (math.log(0.5), 0.8)
_LENGTHS = (math.log(0.01), math.log(20.0))
_SIGNALS = (-4.0, 4.0)
_LARGEST_NOISE = math.log(0.3)
#: Added to the noise, for points that coincide.
_JITTER = 1e-8
_SMALLEST_VARIANCE = 1e-12
#: Gains of the log posterior below this are not worth an iteration.
_GAIN = 1e-4
#: Of a step in θ: the quadratic model of the posterior holds no further.
_LONGEST = 2.0
#: Entries of the covariances that `predict` holds at a time: what fits into the cache.
_CHUNK = 1 << 16
#: Part of the variance of a label that is no uncertainty: without it, P(works) would be 0 or 1 at the points.
_LABEL_VARIANCE = 0.05
#: Distances from the smallest value are logarithmic from this share of the median distance on.
_WARP = 0.2
#: Below this, log EI is its asymptotic series, whose first omitted term is 1e-10 there.
_FAR = -25.0


class GaussianProcess(NamedTuple):
    """The posterior of a function, in units of standardised values."""

    theta: Floats
    """Log length scales, log signal variance, log noise variance. (d + 2,)"""
    mean_y: float
    scale_y: float
    best_y: float
    """The smallest standardised value."""
    points: Floats
    """Divided by the length scales. (n, d)"""
    weights: Floats
    """K⁻¹ y. (n,)"""
    root: Floats
    """K⁻¹ = rootᵀ root. (n, n)"""

    @property
    def length_scales(self) -> Floats:
        return np.asarray(np.exp(self.theta[:-2]))


def fit(
    x: Floats,
    y: Floats,
    theta: Floats | None = None,
    iterations: int = 25,
    *,
    noise: float = 1e-6,
    length_prior: tuple[float, float] = LENGTH_PRIOR,
) -> GaussianProcess:
    """Fit the process to values.

    Parameters
    ----------
    x : (n, d) array
        Coordinates of order 1.
    y : (n,) array
        Finite values. They are standardised; see `warp` for values of many decades.
    theta : (d + 2,) array, optional
        Where the search for θ starts; by default at the mean of the priors.
    iterations : int
        Most iterations of that search; 0 keeps `theta`.
    noise : float
        Smallest noise variance.
    length_prior : (float, float)
        Mean and standard deviation of the log length scales for d = 1.
    """
    d = x.shape[1]
    largest = float(np.abs(y).max(initial=0.0)) or 1.0
    mean, scale = largest * float((y / largest).mean()), largest * float((y / largest).std()) or 1.0
    standardised = (y - mean) / scale
    centre, width = prior(d, length_prior)
    if theta is None:
        theta = centre
    lower = np.array([_LENGTHS[0]] * d + [_SIGNALS[0], math.log(noise)])
    upper = np.array([_LENGTHS[1]] * d + [_SIGNALS[1], _LARGEST_NOISE])
    theta = np.clip(theta, lower, upper)
    if iterations:

        def objective(t: Floats) -> tuple[float, Floats]:
            return negative_log_posterior(x, standardised, t, centre, width)

        theta = _minimise(objective, theta, lower, upper, 1.0 / width**2, iterations)
    points = x / np.exp(theta[:d])
    root = inverse_root(_covariance(points, theta))
    weights = root.T @ (root @ standardised)
    return GaussianProcess(theta, mean, scale, float(standardised.min()), points, weights, root)


def predict(gp: GaussianProcess, x: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation at x (m, d), in units of standardised values."""
    points = x / gp.length_scales
    signal = math.exp(gp.theta[-2])
    mean, variance = np.empty(len(x)), np.zeros(len(x))
    n = len(gp.points)
    rows, width = max(1, _CHUNK // n), -(-n // 4)
    for first in range(0, len(x), rows):
        part = slice(first, first + rows)
        k = matern52(distances_between(points[part], gp.points))
        mean[part] = k @ gp.weights
        # |root k|², in parts as root is triangular.
        for above in range(0, n, width):
            block = gp.root[above : above + width, : above + width]
            v = k[:, : above + width] @ block.T
            variance[part] += np.einsum("ij,ij->i", v, v)
    return signal * mean, np.sqrt(np.maximum(signal - signal**2 * variance, _SMALLEST_VARIANCE))


def log_expected_improvement(mean: Floats, sd: Floats, best: float) -> Floats:
    """Log of the expectation of max(0, best − f) for f normal."""
    u = (best - mean) / sd
    near = np.log(np.maximum(u * cdf(u) + density(u), 1e-300))
    r = 1.0 / np.square(np.minimum(u, _FAR))
    series = np.log1p(-r * (3.0 - r * (15.0 - r * (105.0 - 945.0 * r))))
    far = -0.5 / r - 0.5 * math.log(2.0 * math.pi) + np.log(r) + series
    return np.asarray(np.log(sd) + np.where(u < _FAR, far, near))


def probability_log(gp: GaussianProcess, x: Floats) -> Floats:
    """Log probability of the label 1 at x (m, d), of a process fitted to labels 1 and −1."""
    mean, sd = predict(gp, x)
    return log_cdf((gp.mean_y + gp.scale_y * mean) / np.sqrt(np.square(gp.scale_y * sd) + _LABEL_VARIANCE))


def warp(y: Floats) -> Floats:
    """Make values of many decades fit for a Gaussian process; a monotone map.

    arcsinh of the distance from the smallest value, in units of 20 % of the median distance: linear near the
    best values, logarithmic far from them.
    """
    if len(y) == 0:
        return y
    largest = float(np.abs(y).max()) or 1.0
    above = y / largest  # so that no difference overflows
    above = above - above.min()
    unit = float(np.median(above))
    if unit <= 0.0:  # most values are on a plateau
        if not above.any():
            return np.asarray(above)
        unit = float(above[above > 0.0].min())
    return np.asarray(np.arcsinh(above / max(_WARP * unit, 1e-290)))


def prior(d: int, length_prior: tuple[float, float]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of θ before any value is known."""
    length = length_prior[0] + 0.5 * math.log(d), length_prior[1]
    both = np.array([length] * d + [_SIGNAL_PRIOR, _NOISE_PRIOR])
    return both[:, 0], both[:, 1]


def negative_log_posterior(
    x: Floats, y: Floats, theta: Floats, centre: Floats, width: Floats
) -> tuple[float, Floats]:
    """−log p(θ | y) without its constant, and its gradient; ∞ where the covariance is singular."""
    d = x.shape[1]
    points = x / np.exp(theta[:d])
    squared = distances_between(points, points)
    squared *= 5.0
    s = np.sqrt(squared)
    decay = np.exp(-s)
    decay *= math.exp(theta[d])
    s += 1.0
    squared /= 3.0
    squared += s
    squared *= decay
    noise = math.exp(theta[d + 1])
    squared.flat[:: len(y) + 1] += noise + _JITTER
    try:
        root = inverse_root(squared)
    except np.linalg.LinAlgError:
        return math.inf, np.zeros_like(theta)
    half = root @ y
    deviation = (theta - centre) / width
    value = 0.5 * float(half @ half) - float(np.log(np.diag(root)).sum()) + 0.5 * float(deviation @ deviation)
    weights = root.T @ half
    w = np.matmul(root.T, root, out=squared)  # K⁻¹ − K⁻¹y yᵀK⁻¹
    w -= np.multiply(weights[:, None], weights, out=root)
    trace = float(np.trace(w))
    gradient = deviation / width
    # tr(W K) = n − yᵀK⁻¹y, and K is the correlated part and the noise.
    gradient[d] += 0.5 * (len(y) - float(half @ half) - (noise + _JITTER) * trace)
    gradient[d + 1] += 0.5 * noise * trace
    # Σ_jk M_jk (x_j − x_k)² for each coordinate at once, with M symmetric.
    w *= s
    w *= decay
    m = w @ points
    gradient[:d] += (5.0 / 3.0) * (w.sum(axis=1) @ (points * points) - np.einsum("ij,ij->j", m, points))
    return value, gradient


def _covariance(points: Floats, theta: Floats) -> Floats:
    """K of points divided by the length scales."""
    matrix = matern52(distances_between(points, points))
    matrix *= math.exp(theta[-2])
    matrix.flat[:: len(points) + 1] += math.exp(theta[-1]) + _JITTER
    return matrix


def _minimise(
    objective: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    lower: Floats,
    upper: Floats,
    curvature: Floats,
    iterations: int,
) -> Floats:
    """Minimise between bounds by BFGS on the coordinates that are not held at a bound.

    curvature: diagonal of the first Hessian, a lower bound of the curvature.
    """
    x = start
    value, gradient = objective(x)
    hessian = np.diag(curvature)
    for iteration in range(iterations):
        held = ((x <= lower) & (gradient > 0.0)) | ((x >= upper) & (gradient < 0.0))
        free = np.flatnonzero(~held)
        if not len(free) or not math.isfinite(value):
            break
        step = np.zeros_like(x)
        step[free] = -np.linalg.solve(hessian[free[:, None], free], gradient[free])
        longest = float(np.abs(step).max())
        if longest == 0.0:
            break
        step *= min(1.0, _LONGEST / longest)
        length = 1.0
        while True:
            new = np.clip(x + length * step, lower, upper)
            expected = float(gradient @ (new - x))
            new_value, new_gradient = objective(new)
            if new_value <= value + 1e-4 * expected or length < 1e-3:
                break
            length *= 0.3
        if not new_value < value:
            break
        change, curve = new - x, new_gradient - gradient
        along, before = float(change @ curve), hessian @ change
        if iteration == 0 and along > 0.0:
            hessian *= max(1.0, float(curve @ curve) / along / curvature.max())
            before = hessian @ change
        total = float(change @ before)
        gain = value - new_value
        x, value, gradient = new, new_value, new_gradient
        if gain < _GAIN or not total > 1e-30:
            break
        if along < 0.2 * total:  # Powell's damping keeps the Hessian positive definite
            share = 0.8 * total / (total - along)
            curve = share * curve + (1.0 - share) * before
            along = float(change @ curve)
        hessian = hessian + np.outer(curve, curve) / along - np.outer(before, before) / total
    return x
