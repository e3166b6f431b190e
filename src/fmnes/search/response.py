"""A response surface for noisy values: a quadratic function fitted to many points averages their noise.

The last points of a search, in the coordinates z of its draws (x = mean + S z), are fitted by

    f(z) = b + g·z + h |z|²/2 + z·D z/2 + noise

without a penalty on b, g and h. The deviation D from a round function, which is what the search distribution
has not learned yet, has a penalty that maximises the restricted likelihood of the values: where noise hides D
it is 0. The noise may depend on the predicted value. As many of the last points take part as one function
fits.

With G, the predicted gain of the minimum over the mean, and L, the expected loss at the predicted minimum
because of the errors of the fit, the mean moves by the share 1 − L/G of the way, as an estimate by W. James
and C. Stein (1961) does.
The shape of the distribution takes the inverse root of the Hessian, with bounded axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import SnapshotError
from fmnes.storage.snapshot import count, finite

if TYPE_CHECKING:
    from fmnes.search.distribution import Distribution

Floats = NDArray[np.float64]

#: Above this number of coordinates there is no fit: its time grows with the fourth power.
MAX_DIMENSION = 30
#: Points that are kept.
MOST_POINTS = 20_000
#: A fit has at least this number of successes for each coordinate, and ten more.
LEAST_PER_COORDINATE = 4
#: The next fit comes after this share of the points of the last one, …
NEW_SHARE = 0.125
#: … and of the number of coefficients.
NEW_COEFFICIENTS = 0.5
#: Points beyond this distance, as a multiple of √d, end the window.
FARTHEST = 100.0
#: Twice the points are taken unless they raise the squared residuals of the later half by more than this
#: multiple of its variance for each of the coefficients without a penalty.
MISFIT = 3.0
#: Groups of predicted values with a variance of their own, and the fewest points of one.
GROUPS, LEAST_GROUP = 8, 40
#: Penalties, as multiples of the mean eigenvalue of the information on D.
PENALTIES = 10.0 ** np.arange(-6, 9)
#: A step is at most √d long in z, and an axis grows or shrinks by at most this factor.
LONGEST_AXIS = 2.0


@dataclass
class Record:
    """The last points of a search and their values."""

    rows: list[Floats] = field(default_factory=list)
    """Points, and in the last column their values; NaN: failed. (n, d + 1) each"""
    n: int = 0
    next_fit: int = 0
    """Points at which the next fit is due."""
    total: int = 0
    """Points so far, with those that were dropped."""

    def add(self, x: Floats, f: Floats) -> None:
        """Add the points of a generation."""
        self.rows.append(np.column_stack([x, f]))
        self.n += len(x)
        self.total += len(x)
        if self.n > 1.5 * MOST_POINTS:
            self.rows = [self.table[-MOST_POINTS:]]
            self.n = MOST_POINTS

    @property
    def table(self) -> Floats:
        """All rows. (n, d + 1)"""
        if len(self.rows) != 1:
            self.rows = [np.concatenate(self.rows)] if self.rows else []
        return self.rows[0] if self.rows else np.empty((0, 1))

    def dump(self) -> tuple[list[int], Floats]:
        return [self.next_fit, self.total], self.table

    @classmethod
    def restore(cls, counts: list[Any], table: NDArray[Any]) -> Record:
        next_fit, total = map(count, counts)
        if table.ndim != 2 or len(table) > total:
            raise SnapshotError(f"points of shape {table.shape} of {total}")
        finite(table[:, :-1], table[:, :-1].shape)
        return cls([table] if len(table) else [], len(table), next_fit, total)


class Fit(NamedTuple):
    """A fitted function of z."""

    gradient: Floats
    """At z = 0. (d,)"""
    hessian: Floats
    """(d, d)"""
    covariance: Floats
    """Of the coefficients, the deviations last. (p, p)"""
    predicted: Floats
    """At its points. (n,)"""
    values: Floats
    """Of its points. (n,)"""
    weights: Floats
    """The largest one is 1. (n,)"""
    variance: float
    """Of a value with weight 1."""


class Minimum(NamedTuple):
    """The predicted minimum within reach."""

    z: Floats
    """(d,)"""
    gain: float
    """G."""
    loss: float
    """L."""

    @property
    def share(self) -> float:
        """The share of the way that is expected to be best."""
        return max(0.0, 1.0 - self.loss / self.gain) if self.gain > 0 else 0.0


class Surface(NamedTuple):
    """A fit to the last points of a search, and where it leads."""

    fit: Fit
    minimum: Minimum
    mean: Floats
    """Of the distribution. (d,)"""
    axes: Floats
    """S. (d, d)"""
    scale: float
    """The unit of the fitted values."""

    @property
    def x(self) -> Floats:
        """The point with the lowest expected value."""
        return self.mean + self.axes @ (self.minimum.share * self.minimum.z)


def due(record: Record, d: int) -> bool:
    """Whether enough points are new."""
    return d <= MAX_DIMENSION and record.total >= record.next_fit


def fit_surface(record: Record, distribution: Distribution) -> Surface | None:
    """Fit the last points; None: there are too few, or no function fits them."""
    mean, axes = distribution.axes()
    d = len(mean)
    table = record.table
    if d > MAX_DIMENSION or len(table) < LEAST_PER_COORDINATE * d + 10:
        return None
    z = distribution.coordinates_of(table[:, :-1])
    with np.errstate(all="ignore"):  # points far away
        far = ~(np.einsum("ij,ij->i", z, z) <= FARTHEST**2 * d)
    first = int(far.nonzero()[0][-1]) + 1 if far.any() else 0
    z, f = z[first:], table[first:, -1]
    worked = np.isfinite(f)
    if not worked.any():
        return None
    scale = float(np.abs(f[worked]).max()) or 1.0  # so that no square overflows
    values = f[worked] / scale
    try:
        with np.errstate(all="ignore"):
            fit = _longest_fit(z[worked], values - np.median(values))
            if fit is None:
                return None
            minimum = _minimum(fit, *_walls(distribution, mean, axes))
    except np.linalg.LinAlgError:
        return None
    if not (np.isfinite(minimum.z).all() and math.isfinite(minimum.loss)):
        return None
    if _fails(z, worked, minimum.share * minimum.z):
        minimum = minimum._replace(gain=0.0)
    return Surface(fit, minimum, mean, axes, scale)


def step(record: Record, distribution: Distribution) -> None:
    """Move the mean towards the predicted minimum and adapt the shape, if a fit is due."""
    d = len(distribution.state.mean)
    if not due(record, d):
        return
    surface = fit_surface(record, distribution)
    if surface is None:
        record.next_fit = record.total + _coefficients(d)
        return
    n = len(surface.fit.values)
    record.next_fit = record.total + math.ceil(max(NEW_SHARE * n, NEW_COEFFICIENTS * _coefficients(d)))
    if surface.minimum.share > 0:
        distribution.move_mean(surface.x)
    factor = shape_factor(surface.fit.hessian)
    if factor is not None:
        distribution.change_shape(factor)


def shape_factor(hessian: Floats) -> Floats | None:
    """M with determinant 1 such that the function is rounder in the draws of S M; None: it is not convex."""
    eigenvalues, vectors = np.linalg.eigh(hessian)
    middle = float(np.median(eigenvalues))
    if not middle > 0:
        return None
    lengths = np.clip(eigenvalues / middle, LONGEST_AXIS**-2, LONGEST_AXIS**2) ** -0.5
    lengths /= math.exp(float(np.log(lengths).mean()))
    factor: Floats = (vectors * lengths) @ vectors.T
    return factor


def _coefficients(d: int) -> int:
    return (d + 1) * (d + 2) // 2


def _longest_fit(z: Floats, f: Floats) -> Fit | None:
    """The fit to as many of the last points as one function fits."""
    d = z.shape[1]
    n = max(_coefficients(d), LEAST_PER_COORDINATE * d + 10)
    if len(f) < min(n, LEAST_PER_COORDINATE * d + 10):
        return None
    found: Fit | None = None
    while True:
        n = min(n, len(f))
        longer = _weighted_fit(z[-n:], f[-n:])
        if found is not None:
            k = len(found.values)
            before = float(found.weights @ (found.values - found.predicted) ** 2)
            after = float(found.weights @ (found.values - longer.predicted[-k:]) ** 2)
            if not after - before <= MISFIT * (d + 2) * found.variance:
                return found
        found = longer
        if n == len(f):
            return found
        n *= 2


def _weighted_fit(z: Floats, f: Floats) -> Fit:
    """A fit with equal weights, and one with those of its residuals."""
    features = _features(z)
    first = _fit(features, z.shape[1], f, np.ones(len(f)))
    return _fit(features, z.shape[1], f, _weights(first))


def _weights(fit: Fit) -> Floats:
    """The inverse variance of the residuals as a function of the predicted value, which does not decrease."""
    order = np.argsort(fit.predicted, kind="stable")
    groups = np.array_split(order, max(1, min(GROUPS, len(order) // LEAST_GROUP)))
    squares = (fit.values - fit.predicted) ** 2
    variances = np.maximum.accumulate([float(squares[group].mean()) for group in groups])
    centres = [float(fit.predicted[group].mean()) for group in groups]
    logs = np.interp(fit.predicted, centres, np.log(np.maximum(variances, 1e-300)))
    weights: Floats = np.exp(logs.min() - logs)
    return weights


def _features(z: Floats) -> Floats:
    """1, z, |z|²/2, and the features of D: (z_i² − |z|²/d)/2 and z_i z_j. (n, p)"""
    d = z.shape[1]
    i, j = np.triu_indices(d, 1)
    squares = z * z
    round = squares.mean(axis=1, keepdims=True)
    deviations = [0.5 * (squares - round), z[:, i] * z[:, j]] if d > 1 else []
    return np.concatenate([np.ones((len(z), 1)), z, 0.5 * d * round, *deviations], axis=1)


def _fit(features: Floats, d: int, f: Floats, weights: Floats) -> Fit:
    """The coefficients with the penalty of the largest restricted likelihood."""
    weighted = features * weights[:, None]
    information, right = weighted.T @ features, weighted.T @ f
    free = d + 2
    inverse: Any = _inverse(information[:free, :free])
    across = information[:free, free:]
    rest = information[free:, free:] - across.T @ inverse @ across
    right_rest = right[free:] - across.T @ inverse @ right[:free]
    eigenvalues, vectors = np.linalg.eigh(rest) if len(rest) else (np.empty(0), rest)
    eigenvalues, turned = np.maximum(eigenvalues, 0.0), vectors.T @ right_rest
    residual = float(weights @ (f * f) - right[:free] @ inverse @ right[:free])
    freedom = len(f) - free
    penalties = PENALTIES * max(float(eigenvalues.mean()) if len(eigenvalues) else 1.0, 1e-200)
    best = (-math.inf, 0.0, 0.0)
    for penalty in penalties.tolist():
        squares = residual - float((turned * turned / (eigenvalues + penalty)).sum())
        variance = max(squares, 1e-290) / freedom
        likelihood = -freedom * math.log(variance) - float(np.log1p(eigenvalues / penalty).sum())
        best = max(best, (likelihood, penalty, variance))
    _, penalty, variance = best
    deviations = vectors @ (turned / (eigenvalues + penalty))
    base = inverse @ (right[:free] - across @ deviations)
    information[range(free, len(information)), range(free, len(information))] += penalty
    covariance = variance * _inverse(information)
    predicted = features @ np.concatenate([base, deviations])
    hessian = base[-1] * np.eye(d)
    if d > 1:
        i, j = np.triu_indices(d, 1)
        hessian += np.diag(deviations[:d] - deviations[:d].mean())
        hessian[i, j] += deviations[d:]
        hessian[j, i] += deviations[d:]
    return Fit(base[1 : d + 1], hessian, covariance, predicted, f, weights, variance)


def _inverse(matrix: Floats) -> Any:
    """The inverse of a positive definite matrix with rows of very different size."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-290))
    scaled = matrix / np.outer(scale, scale)
    scaled.flat[:: len(matrix) + 1] += 1e-12
    return np.linalg.inv(scaled) / np.outer(scale, scale)


def gradient_covariance(fit: Fit, z: Floats) -> Floats:
    """The covariance of the gradient at z. (d, d)"""
    d = len(z)
    rows = np.zeros((d, len(fit.covariance)))
    at = np.arange(d)
    rows[at, 1 + at], rows[:, d + 1] = 1.0, z
    if d > 1:
        i, j = np.triu_indices(d, 1)
        rows[:, d + 2 : 2 * d + 2] = np.diag(z) - z[:, None] / d
        pairs = 2 * d + 2 + np.arange(len(i))
        rows[i, pairs], rows[j, pairs] = z[j], z[i]
    found: Floats = rows @ fit.covariance @ rows.T
    return found


def _walls(distribution: Distribution, mean: Floats, axes: Floats) -> tuple[Floats, Floats]:
    """A and b with A z <= b inside the bounds."""
    low, high = distribution.bounds
    up, down = np.isfinite(high), np.isfinite(low)
    return np.concatenate([axes[up], -axes[down]]), np.concatenate([(high - mean)[up], (mean - low)[down]])


def _minimum(fit: Fit, A: Floats, b: Floats) -> Minimum:
    """The minimum within the bounds and √d, by adding the walls that it would cross."""
    d = len(fit.gradient)
    radius = math.sqrt(d)
    basis, origin = np.eye(d), np.zeros(d)
    held: list[int] = []
    while True:
        g, H = basis.T @ (fit.gradient + fit.hessian @ origin), basis.T @ fit.hessian @ basis
        v, shift = _trust_region(g, H, math.sqrt(max(radius**2 - float(origin @ origin), 0.0)))
        z = origin + basis @ v
        over = A @ z - b
        over[held] = -math.inf
        if len(held) == d - 1 or not (over > 1e-9 * np.abs(b)).any():
            break
        held.append(int(over.argmax()))
        _, lengths, Vt = np.linalg.svd(A[held])
        rank = int((lengths > 1e-12 * lengths[0]).sum())
        basis = Vt[rank:].T
        origin = np.linalg.pinv(A[held]) @ b[held]
        if not len(Vt[rank:]) or origin @ origin >= radius**2:
            return Minimum(np.zeros(d), 0.0, 0.0)
    gain = -float(fit.gradient @ z + 0.5 * z @ fit.hessian @ z)
    spread = basis.T @ gradient_covariance(fit, z) @ basis
    loss = 0.5 * float(np.trace(np.linalg.solve(H + shift * np.eye(len(H)), spread)))
    return Minimum(z, gain, loss)


def _trust_region(g: Floats, H: Floats, radius: float) -> tuple[Floats, float]:
    """The minimum of g·v + v·H v/2 for |v| <= radius, and μ with (H + μ I) v = −g."""
    eigenvalues, vectors = np.linalg.eigh(H)
    a = vectors.T @ g
    low = max(0.0, -float(eigenvalues[0])) + 1e-12 * float(np.abs(eigenvalues).max())
    if eigenvalues[0] > 0 and np.linalg.norm(a / eigenvalues) <= radius:
        return -vectors @ (a / eigenvalues), 0.0
    high = low + float(np.linalg.norm(a)) / max(radius, 1e-300) + 1e-300
    for _ in range(100):
        middle = math.sqrt(low * high) if high > 4 * low else (low + high) / 2
        longer = np.linalg.norm(a / (eigenvalues + middle)) > radius
        low, high = (middle, high) if longer else (low, middle)
    return -vectors @ (a / (eigenvalues + high)), high


def _fails(z: Floats, worked: NDArray[np.bool_], target: Floats) -> bool:
    """Whether most of the points around the target failed."""
    if worked.all():
        return False
    difference = z - target
    nearest = np.argsort(np.einsum("ij,ij->i", difference, difference), kind="stable")[: 2 * len(target) + 1]
    return 2 * int(worked[nearest].sum()) <= len(nearest)
