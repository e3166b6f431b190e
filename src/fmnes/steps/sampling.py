"""Recombination weights, mirrored sampling, and sums over long arrays in blocks that fit the cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import NUMPY, Array, Backend

# -- Weights by rank, and by rank and distance (paper eqs. 5–9, constants as in the tables).


class RankWeights(NamedTuple):
    raw: Array
    """ŵ_i = max(0, ln(λ/2 + 1) − ln i), best first. (λ,)"""
    centred: Array
    """w_i = ŵ_i/Σŵ − 1/λ; they sum to zero. (λ,)"""
    mu_eff: Array


@lru_cache(maxsize=256)
def rank_weights(population_size: int, parents_of: int | None = None) -> RankWeights:
    """parents_of: the number of points whose best half is selected; None: all."""
    size = population_size if parents_of is None else parents_of
    raw, centred, mu_eff = weights_of_half(math.log(size / 2 + 1), population_size, NUMPY)
    return RankWeights(raw, centred, float(mu_eff))


def weights_of_half(
    log_size: Array, room: int, backend: Backend, population_size: Array | None = None
) -> RankWeights:
    """log_size: ln(λ/2 + 1) of the λ points whose best half gets positive weights.

    room: λ; or more than that, with λ as `population_size`. The centred weights after λ are unused then.
    """
    xp = backend.xp
    logs = xp.asarray(np.log(np.arange(1, room + 1)), getattr(log_size, "dtype", None))
    raw = xp.maximum(0.0, log_size - logs)
    share = raw / raw.sum()
    population_size = room if population_size is None else population_size
    return RankWeights(raw, share - 1 / population_size, 1 / share.dot(share))


def distance_weights(
    weights: RankWeights,
    ranks: Array,
    pair_norm2: Array,
    alpha: Array,
    typical: float,
    backend: Backend,
    population_size: Array | None = None,
) -> Array:
    """w^dist (eqs. 8 and 9), in the order of sampling (λ,): far points of equal rank count more.

    ranks: (λ,); pair_norm2: ‖z‖² of each mirrored pair (λ/2,), or of each point (λ,); alpha: a scalar.
    population_size: λ, where there is room for more.
    typical: E‖z‖, from which norms are counted. It cancels in the quotient, and without it the exponential
        would overflow in high dimension.
    """
    xp = backend.xp
    grow = xp.exp(alpha * (xp.sqrt(pair_norm2) - typical))
    hat = (weights.raw[ranks].reshape(len(grow), -1) * grow[:, None]).reshape(-1)
    return hat / hat.sum() - 1 / (len(hat) if population_size is None else population_size)


@cache
def h_inverse(d: int) -> float:
    """The root a > 0 of (1 + a²) exp(a²/2)/0.24 − 10 − d = 0, from DX-NES-IC, by bisection."""
    low, high = 0.0, 10.0
    while True:
        a = (low + high) / 2
        if a in (low, high):
            return a
        if (1 + a * a) * math.exp(a * a / 2) / 0.24 - 10 - d > 0:
            high = a
        else:
            low = a


@lru_cache(maxsize=64)
def distance_alphas(d: int, population_size: int, public: bool = False) -> NDArray[np.float64]:
    """α for every number of feasible points λ_F = 0 … λ. (λ + 1,)"""
    feasible = np.arange(population_size + 1)
    return distance_alpha(feasible, d, population_size, public, NUMPY)  # type: ignore[no-any-return]


def distance_alpha(feasible: Array, d: int, population_size: Array, public: bool, backend: Backend) -> Array:
    """h⁻¹(d) · min(1, √(λ_F/d)) · √(λ_F/λ), as the tables need it; public code has λ in the first root."""
    xp = backend.xp
    reach = population_size if public else feasible
    return h_inverse(d) * xp.minimum(1, xp.sqrt(reach / d)) * xp.sqrt(feasible / population_size)


# -- Mirrored sampling, and sums over long arrays in blocks that fit the cache.

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
