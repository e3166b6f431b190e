"""Is the distribution on a ridge? The ratio of its two longest axes (paper section IV-C).

Only two singular values are wanted, and the matrix changes little from one generation to the next. So a small
block of vectors is kept, multiplied a few times in every generation (subspace iteration, warm-started), and
read. A block of two vectors would often mistake the second axis for the first; eight do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fmnes.backends import Array

BLOCK = 8
SWEEPS = 2


def start_block(d: int, xp: Any) -> Array:
    """Orthonormal vectors that meet every direction, for a matrix nothing is known about yet. (d, ≤ BLOCK)"""
    # Columns of a cosine transform: dense, so that no axis-parallel ridge can hide from all of them.
    rows, columns = np.arange(d)[:, None] + 0.5, np.arange(min(d, BLOCK))[None, :]
    block = np.cos(np.pi / d * rows * columns)
    return xp.asarray(block / np.linalg.norm(block, axis=0))


def leading_block(d: int, xp: Any) -> Array:
    """The block of a matrix whose left singular vectors are the coordinate axes, longest first."""
    return xp.eye(d, min(d, BLOCK))


def axis_ratio(
    product: Callable[[Array], Array], transposed: Callable[[Array], Array], block: Array, xp: Any
) -> tuple[Array, Array]:
    """σ₁/σ₂ of a matrix A given as x ↦ A x and x ↦ Aᵀ x on blocks (d, b), and the next block."""
    for _ in range(SWEEPS):
        block = xp.linalg.qr(product(transposed(block)))[0]
    values = xp.linalg.svd(transposed(block), compute_uv=False)
    return values[0] / values[1], block
