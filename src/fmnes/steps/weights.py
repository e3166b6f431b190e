"""Weights by rank and by distance."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import NUMPY, Array, Backend

# Weights by rank, and by rank and distance (paper eqs. 5–9, constants as in the tables).


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
