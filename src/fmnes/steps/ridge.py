"""Is the distribution on a ridge? The ratio of its two longest axes (paper section IV-C).

Only two singular values are wanted, and the matrix changes little from one generation to the next. So a small
block of vectors is kept, multiplied by A Aᵀ in every generation, and read by the Rayleigh–Ritz method: a warm
subspace iteration. A block of two vectors would often mistake the second axis for the first; eight do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fmnes.backends import Array, Backend

BLOCK = 4
SWEEPS = 1


def start_block(d: int, dtype: Any, xp: Any) -> Array:
    """Orthonormal vectors that meet every direction, for a matrix nothing is known about yet. (d, ≤ BLOCK)"""
    # Columns of a cosine transform: dense, so that no axis-parallel ridge can hide from all of them.
    rows, columns = np.arange(d)[:, None] + 0.5, np.arange(min(d, BLOCK))[None, :]
    block = np.cos(np.pi / d * rows * columns)
    return xp.asarray(block / np.linalg.norm(block, axis=0), dtype=dtype)


def leading_block(d: int, dtype: Any, xp: Any) -> Array:
    """The block of a matrix whose left singular vectors are the coordinate axes, longest first."""
    return xp.eye(d, min(d, BLOCK), dtype=dtype)


def axis_ratio(
    product: Callable[[Array], Array], transposed: Callable[[Array], Array], block: Array, backend: Backend
) -> tuple[Array, Array]:
    """σ₁/σ₂ of a matrix A given as x ↦ A x and x ↦ Aᵀ x on blocks (d, b), and the next block (d, b).

    The next block holds the Ritz vectors, orthonormal, longest axis first.
    """
    xp = backend.xp
    image = transposed(block)
    for _ in range(SWEEPS):
        block = product(image)
        # Unit columns: where the block holds singular vectors already, its Gram matrix is near the identity.
        block = block / xp.sqrt(xp.vecdot(block, block, axis=0))
        image = transposed(block)
    # Ritz values: eigenvalues of (blockᵀ A Aᵀ block) y = μ (blockᵀ block) y, made an ordinary problem by
    # the inverse square root of the Gram matrix, whose smallest eigenvalues are floored.
    values, vectors = backend.eigh_psd(block.T @ block)
    half = vectors / xp.sqrt(xp.maximum(values, 1e-12 * values[-1]))
    reduced = image @ half
    values, vectors = backend.eigh_psd(reduced.T @ reduced)
    return xp.sqrt(values[-1] / values[-2]), (block @ (half @ vectors))[:, ::-1]
