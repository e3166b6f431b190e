"""Formulas that the models share: covariance function, triangular algebra, and the normal distribution."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

#: From this size on, a triangular matrix is inverted in blocks. Measured: 3 to 5 times faster than
#: `np.linalg.inv`, which does not know that the matrix is triangular.
_BLOCK = 48


def squared_distances(gram: Floats, squares_a: Floats, squares_b: Floats) -> Floats:
    """|a − b|² of all pairs from aᵀb, |a|² and |b|²."""
    squared = -2.0 * gram
    squared += squares_a[:, None]
    squared += squares_b
    return np.maximum(squared, 0.0, out=squared)


def distances_between(a: Floats, b: Floats) -> Floats:
    """|a − b|² of all rows of a and b."""
    return squared_distances(a @ b.T, np.einsum("ij,ij->i", a, a), np.einsum("ij,ij->i", b, b))


def matern52(squared: Floats) -> Floats:
    """The Matérn 5/2 correlation at these squared distances, which are overwritten.

    In place: for large matrices, memory costs more than arithmetic.
    """
    squared *= 5.0
    s = np.sqrt(squared)
    squared /= 3.0
    squared += s
    squared += 1.0
    np.negative(s, out=s)
    squared *= np.exp(s, out=s)
    return squared


def inverse_root(matrix: Floats) -> Floats:
    """L⁻¹ of the Cholesky factor L of a matrix, so that L⁻ᵀ L⁻¹ is the inverse.

    Raises
    ------
    numpy.linalg.LinAlgError
        The matrix is not positive definite.
    """
    lower = np.asarray(np.linalg.cholesky(matrix), np.float64)
    _invert_lower(lower)
    return lower


def _invert_lower(lower: Floats) -> None:
    """Replace a lower triangular matrix by its inverse."""
    n = len(lower)
    if n <= _BLOCK:
        lower[:] = np.linalg.inv(lower)
        return
    half = n // 2
    first, last, below = lower[:half, :half], lower[half:, half:], lower[half:, :half]
    _invert_lower(first)
    _invert_lower(last)
    below[:] = -last @ (below @ first)


# -- The normal distribution: Φ, log Φ and the inverse of Φ

_erfc = np.frompyfunc(math.erfc, 1, 1)
_quantile = np.frompyfunc(NormalDist().inv_cdf, 1, 1)
#: Below this, log Φ is its asymptotic series, whose first omitted term is 1e-12 there.
_FAR = -20.0


def cdf(u: ArrayLike) -> Floats:
    """Φ(u)."""
    return 0.5 * np.asarray(_erfc(np.asarray(u, float) / -math.sqrt(2.0)), float)


def density(u: ArrayLike) -> Floats:
    """φ(u)."""
    return np.asarray(np.exp(-0.5 * np.square(np.asarray(u, float))) / math.sqrt(2.0 * math.pi))


def log_cdf(u: ArrayLike) -> Floats:
    """log Φ(u), without loss of digits in either tail."""
    u = np.asarray(u, float)
    upper_tail = cdf(-np.abs(u))
    r = 1.0 / np.square(np.minimum(u, _FAR))
    series = np.log1p(-r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r * (1.0 - 9.0 * r)))))
    far = -0.5 / r - 0.5 * np.log(2.0 * math.pi / r) + series
    near = np.where(u > 0.0, np.log1p(-upper_tail), np.log(np.maximum(upper_tail, 1e-300)))
    return np.where(u < _FAR, far, near)


def inverse_cdf(p: ArrayLike) -> Floats:
    """Inverse of Φ for p in (0, 1)."""
    return np.asarray(_quantile(np.asarray(p, float)), float)
