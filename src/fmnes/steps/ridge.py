"""Is the distribution on a ridge? The ratio of its two longest axes (paper section IV-C).

Only two singular values are wanted, and the matrix changes little from one generation to the next. So a small
block of vectors is kept, multiplied by A Aᵀ in every generation, and read by the Rayleigh–Ritz method: a warm
subspace iteration. A block of two vectors would often mistake the second axis for the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fmnes.backends import Array, Backend

BLOCK = 6
#: ‖BᵀB − I‖² below which a block B is made orthonormal by a series, which leaves 0.3 ‖BᵀB − I‖³.
NEARLY = 0.01


def start_block(d: int, dtype: Any, xp: Any) -> Array:
    """Orthonormal vectors that meet every direction, for a matrix nothing is known about yet. (d, ≤ BLOCK)"""
    # Columns of a cosine transform: dense, so that no axis-parallel ridge can hide from all of them.
    rows, columns = np.arange(d)[:, None] + 0.5, np.arange(min(d, BLOCK))[None, :]
    block = np.cos(np.pi / d * rows * columns)
    return xp.asarray(block / np.linalg.norm(block, axis=0), dtype=dtype)


def leading_block(d: int, dtype: Any, xp: Any) -> Array:
    """The block of a matrix whose left singular vectors are the coordinate axes, longest first."""
    return xp.eye(d, min(d, BLOCK), dtype=dtype)


def axis_ratio(A: Array, block: Array | None, backend: Backend) -> tuple[Array, Array | None]:
    """σ₁/σ₂ of A (d, d), and the next block (d, b): orthonormal, longest axis first.

    Without a block it is exact and takes O(d³).
    """
    xp = backend.xp
    if block is None:
        values = backend.eigenvalues_psd(A.dot(A.T))  # squares, but the two largest lose no digits
        return xp.sqrt(values[-1] / values[-2]), None
    image = A.T.dot(block)
    values, vectors = backend.eigh_psd(image.T.dot(image))  # Ritz values and vectors, ascending
    ratio = xp.sqrt(values[-1] / values[-2])
    block = A.dot(image.dot(vectors[:, ::-1]))
    return ratio, _orthonormal(block / xp.sqrt(xp.vecdot(block, block, axis=0)), backend)


def _orthonormal(block: Array, backend: Backend) -> Array:
    """The nearest orthonormal vectors. block: (d, b), unit columns."""
    xp = backend.xp
    gram = block.T.dot(block)
    error = xp.eye(len(gram), dtype=gram.dtype) - gram

    def nearly() -> Array:
        # (I − E)^(−1/2) = I + E/2 + 3/8 E² + …; Ritz vectors that change little are nearly orthonormal still.
        return block + block.dot(0.5 * error + 0.375 * error.dot(error))

    def anyhow() -> Array:
        values, vectors = backend.eigh_psd(gram)
        half = vectors / xp.sqrt(xp.maximum(values, 1e-12 * values[-1]))
        return block.dot(half.dot(vectors.T))

    return backend.cond(xp.vdot(error, error) < NEARLY, nearly, anyhow)
