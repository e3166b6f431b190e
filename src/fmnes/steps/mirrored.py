"""Mirrored sampling: every draw z is used twice, as z and as −z.

The points of a generation stand interleaved: draw k gives point 2k (with +z) and point 2k + 1 (with −z).
Where points come from elsewhere, each has a draw of its own, and as many draws as weights are no pairs.
"""

from __future__ import annotations

import numpy as np

from fmnes.backends import Array, Backend

_SIGNS = np.array([[1.0], [-1.0]])


def mirrored_points(mean: Array, sigma: Array, steps: Array, backend: Backend) -> Array:
    """m ± σ · step for every row of `steps` (n, d). Returns (2n, d)."""
    n, d = steps.shape
    points = steps[:, None, :] * (sigma * backend.xp.asarray(_SIGNS, steps.dtype))
    points += mean
    return points.reshape(2 * n, d)


def pair_sums(weights: Array, draws: int) -> Array:
    """W_k = w_{2k} + w_{2k+1}: a pair's share in sums that are even in z, such as Σ w z zᵀ. (2n,) -> (n,)"""
    return weights if len(weights) == draws else weights[0::2] + weights[1::2]


def pair_differences(weights: Array, draws: int) -> Array:
    """S_k = w_{2k} − w_{2k+1}: a pair's share in sums that are odd in z, such as Σ w z. (2n,) -> (n,)"""
    return weights if len(weights) == draws else weights[0::2] - weights[1::2]
