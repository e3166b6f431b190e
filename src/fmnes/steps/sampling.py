"""Mirrored sampling, and sums over long arrays in blocks that fit the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fmnes.backends import Array, Backend

# Mirrored sampling: every draw z is used twice, as z and as −z.
#
# The points of a generation are interleaved: draw k gives point 2k (with +z) and point 2k + 1 (with −z).
# With as many draws as weights, each point has its own draw and there are no mirrored pairs.


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


# -- Long arrays, one group of columns at a time, so that what a formula makes on its way stays in the
# cache.
#
# `(a * b + c) / d` over 10⁶ coordinates writes two intermediate results to memory and reads them back. Over
# a few thousand coordinates at a time it reads a, b, c, d and writes the result, and memory sees nothing
# else. That is for NumPy. A compiler does it by itself, so other backends get the whole arrays.


#: Size of a group's arguments: within a core's share of the cache, and work enough to hide the cost of calls.
GROUP_BYTES = 2**21
#: Shorter runs of memory are read and written more slowly.
MIN_COLUMNS = 2**11


def by_columns(function: Callable[..., tuple[Any, Any]], *arrays: Array, backend: Backend) -> tuple[Any, Any]:
    """function(*arrays), for arrays (..., d).

    `function` returns two tuples: arrays (..., d), whose columns depend on the same columns of its arguments
    only, and sums over all columns.
    """
    groups = _groups(arrays, backend)
    if len(groups) == 1:
        return function(*arrays)
    columns, sums = function(*(a[..., groups[0]] for a in arrays))
    d = arrays[0].shape[-1]
    whole = tuple(np.empty((*c.shape[:-1], d), c.dtype) for c in columns)
    for group in groups:
        if group.start > 0:
            columns, more = function(*(a[..., group] for a in arrays))
            sums = tuple(total + partial for total, partial in zip(sums, more, strict=True))
        for array, part in zip(whole, columns, strict=True):
            array[..., group] = part
    return whole, sums


def mirrored_points_by_columns(
    steps: Callable[..., Array], mean: Array, z: Array, *arrays: Array, backend: Backend
) -> Array:
    """mirrored_points(mean, 1, steps(z, *arrays)), (2n, d); z and steps are (n, d), the other arrays (d,)."""
    groups = _groups((z, mean, *arrays), backend)
    if len(groups) == 1:
        return mirrored_points(mean, 1.0, steps(z, *arrays), backend)
    n, d = z.shape
    points = np.empty((n, 2, d), np.result_type(mean, z))
    for group in groups:
        step = steps(z[:, group], *(a[group] for a in arrays))
        # Written where they belong at once: these arrays are the largest of a generation.
        np.add(mean[group], step, out=points[:, 0, group])
        np.subtract(mean[group], step, out=points[:, 1, group])
    return points.reshape(2 * n, d)


# Sums over coordinates and over draws. To JAX they are not matrix products, which it may compute with fewer
# digits (10 bits on recent GPUs) and whose operands it writes out; plain sums it does several at a time.


def dot(a: Array, b: Array, backend: Backend) -> Array:
    """Σ_i a_i b_i for each row of a. a: (..., d); b: like a, or (d,)."""
    if backend.xp is np:
        return a.dot(b) if a.ndim > b.ndim else np.vecdot(a, b)
    return (a * b).sum(axis=-1)


def largest(a: Array, backend: Backend) -> Array:
    """The largest |a_i|."""
    if backend.xp is np:  # which would write |a| out
        return np.maximum(a.max(), -a.min())
    return backend.xp.abs(a).max()


def weighted_sum(weights: Array, z: Array, backend: Backend) -> Array:
    """Σ_k weights_k z_k. weights: (n,); z: (n, d); returns (d,)."""
    return weights.dot(z) if backend.xp is np else (weights[:, None] * z).sum(axis=0)


def draw_sums(S: Array, Wa: Array, W: Array, z: Array, backend: Backend) -> tuple[Array, Array, Array]:
    """ΣS_k z_k, ΣWa_k z_k and ΣW_k z_k∗z_k, in one pass over the draws. Weights (n,); z (n, d); sums (d,)."""
    if backend.xp is np:
        return S.dot(z), Wa.dot(z), W.dot(z * z)
    sums = backend.sums_over_rows(S[:, None] * z, Wa[:, None] * z, W[:, None] * z * z)
    return sums[0], sums[1], sums[2]


def _groups(arrays: tuple[Array, ...], backend: Backend) -> list[slice]:
    """The groups of columns to work on, in their order; one group if there is nothing to gain."""
    d = arrays[0].shape[-1]
    if d <= MIN_COLUMNS or backend.xp is not np:
        return [slice(0, d)]
    width = max(MIN_COLUMNS, GROUP_BYTES // sum(a.nbytes // d for a in arrays))
    return [slice(start, start + width) for start in range(0, d, width)]
