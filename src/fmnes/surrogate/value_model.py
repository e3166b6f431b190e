"""A model of the objective near the mean of a search, chosen by leave-one-out.

Six kernels, linear to quadratic with a Matérn part, times three transforms of the values. The choice is for
the best order, as the search uses ranks only: Kendall's τ between the values and their leave-one-out
predictions, with a small bonus for accurate predictions.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fmnes.surrogate.kernels import (
    Floats,
    distances_between,
    inverse_cdf,
    inverse_root,
    matern52,
    squared_distances,
)

MIN_POINTS = 4
MIN_VALUES = 3
TRANSFORMS = ("raw", "log", "rank")
#: Worth of a tenfold smaller mean squared error, in units of τ.
_ACCURACY = 0.02


class Kernel(NamedTuple):
    """1 + u·v + quadratic (u·v)² + matern k(|u − v|/length), and ridge on the diagonal."""

    quadratic: float
    matern: float
    length: float
    ridge: float


KERNELS = (
    Kernel(0.0, 0.0, 1.0, 1e-2),
    Kernel(1.0, 0.0, 1.0, 1e-8),
    Kernel(1.0, 0.0, 1.0, 1e-2),
    Kernel(1.0, 0.1, 1.0, 1e-8),
    Kernel(0.1, 1.0, 1.0, 1e-6),
    Kernel(1.0, 1.0, 0.5, 1e-4),
)


class ValueModel(NamedTuple):
    """Values of the objective as a function of centred coordinates."""

    kind: str
    """The transform, one of `TRANSFORMS`. The transformed values have mean 0 and variance 1."""
    kernel: Kernel
    tau: float
    """Kendall's τ between values and leave-one-out predictions of the points that were checked."""
    loo: Floats
    """Leave-one-out prediction of each point, in transformed units. (n,)"""
    scale: float
    points: Floats
    weights: Floats
    values: Floats
    """In ascending order. (n,)"""
    transformed_values: Floats
    """In the same order. (n,)"""


def fit(z: Floats, y: Floats, n_check: int) -> ValueModel | None:
    """Fit all kernels and transforms and choose the best.

    Parameters
    ----------
    z : (n, d) array
        Coordinates, centred where the model is used.
    y : (n,) array
        Finite values.
    n_check : int
        The choice is judged on this number of leading points: those nearest to the centre come first.

    Returns
    -------
    ValueModel or None
        None with too few points or values, or if no kernel could be used.
    """
    n, d = z.shape
    rank = np.unique(y, return_inverse=True)[1]
    if n < MIN_POINTS or rank.max() + 1 < MIN_VALUES:
        return None
    scale = scale_of(z)
    points = z / scale
    targets = np.stack([transform(y, kind) for kind in TRANSFORMS], axis=1)
    check = slice(0, max(1, n_check))
    order = np.sign(rank[check][:, None] - rank[check]).astype(float)
    pairs = max(1.0, float(np.abs(order).sum()))
    variances = np.maximum(targets[check].var(axis=0), 1e-300)
    best: tuple[float, float, Kernel, int, Floats, Floats] | None = None
    with np.errstate(all="ignore"):  # what is not finite is not chosen
        gram = points @ points.T
        squared = squared_distances(gram, np.diag(gram), np.diag(gram))
        matern = {length: matern52(squared / length**2) for length in {kernel.length for kernel in KERNELS}}
        square, matrix = np.square(gram), np.empty_like(gram)
        for kernel in KERNELS:
            if kernel.quadratic and n < d + 2:
                continue
            _covariance(kernel, gram, square, matern[kernel.length], matrix)
            matrix.flat[:: n + 1] += kernel.ridge * max(1.0, np.trace(matrix) / n)
            try:
                root = inverse_root(matrix)
            except np.linalg.LinAlgError:
                continue
            weights = root.T @ (root @ targets)
            errors = weights / np.einsum("ij,ij->j", root, root)[:, None]
            loo = targets - errors
            digits = -np.log10(np.maximum(np.square(errors[check]).mean(axis=0) / variances, 1e-300))
            p = loo[check]
            signs = np.sign(p[:, None] - p)
            taus = np.einsum("ij,ijk->k", order, signs) / pairs
            scores = taus + _ACCURACY * np.clip(digits, -1.0, 8.0)
            usable = np.isfinite(scores) & np.isfinite(weights).all(axis=0) & np.isfinite(loo).all(axis=0)
            for j in np.flatnonzero(usable).tolist():
                if best is None or scores[j] > best[0]:
                    best = scores[j], float(taus[j]), kernel, j, weights[:, j], loo[:, j]
    if best is None:
        return None
    _, tau, kernel, j, weights, loo = best
    rows = np.argsort(y, kind="stable")
    return ValueModel(TRANSFORMS[j], kernel, tau, loo, scale, points, weights, y[rows], targets[rows, j])


def predict(model: ValueModel, z: Floats) -> Floats:
    """Predicted values in transformed units. z: (m, d)"""
    points = z / model.scale
    gram = points @ model.points.T
    matern = gram
    if model.kernel.matern:
        matern = matern52(distances_between(points, model.points) / model.kernel.length**2)
    matrix = np.empty_like(gram)
    _covariance(model.kernel, gram, np.square(gram), matern, matrix)
    return np.asarray(matrix @ model.weights)


def transformed(model: ValueModel, f: Floats) -> Floats:
    """True values in the units of the predictions, by interpolation between the values of the model."""
    lowest, highest = model.values[0], model.values[-1]
    unit = max(abs(lowest), abs(highest))  # in these units, no difference or slope overflows
    inside = np.clip(f, lowest, highest) / unit
    return np.asarray(np.interp(inside, model.values / unit, model.transformed_values))


def scale_of(z: Floats) -> float:
    """The length such that the mean of |z/scale|² is 1."""
    largest = float(np.abs(z).max(initial=0.0))
    if largest == 0.0:
        return 1.0
    return max(1e-300, largest * math.sqrt(float(np.square(z / largest).mean()) * z.shape[1]))


def transform(y: Floats, kind: str) -> Floats:
    """One of `TRANSFORMS` of the values, with mean 0 and variance 1; a constant becomes 0."""
    if kind == "rank":
        t = _normal_scores(y)
    else:
        largest = float(np.abs(y).max())
        t = y / largest if largest > 0.0 else y  # so that no difference overflows
        if kind == "log":
            above = t - t.min()
            offset = np.sort(above)[max(1, len(y) // 5) :]
            # Where a plateau is the minimum, the distance to the next value replaces the quantile.
            offset = offset[offset > 0.0][:1]
            t = np.log(above + offset) if len(offset) else above
    t = t - t.mean()
    deviation = float(t.std())
    return np.asarray(t / deviation if deviation > 0.0 else 0.0 * t)


def _covariance(kernel: Kernel, gram: Floats, square: Floats, matern: Floats, out: Floats) -> None:
    """Write the kernel of all pairs without its ridge to out. square: of the entries of gram."""
    np.add(gram, 1.0, out=out)
    for factor, part in ((kernel.quadratic, square), (kernel.matern, matern)):
        if factor:
            out += part if factor == 1.0 else factor * part


def _normal_scores(y: Floats) -> Floats:
    """Normal scores of the ranks; ties get the score of their mean rank."""
    _, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.interp(last[inverse] - 0.5 * (counts[inverse] + 1), np.arange(len(y)), _scores(len(y)))


@lru_cache(maxsize=512)
def _scores(n: int) -> Floats:
    """Normal quantiles of (i + 1/2)/n."""
    scores = inverse_cdf((np.arange(n) + 0.5) / n)
    scores.setflags(write=False)
    return scores
