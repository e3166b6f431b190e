"""Ranks of values, failed ones included, and weights by rank and distance."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import NUMPY, Array, Backend

# -- From values to ranks, failed evaluations included. Ties stand in index order.
#
# A value is feasible if and only if it is finite. Nothing else in an update looks at f: strategies see
# ranks
# and the number of feasible points, so no overflow, NaN or scale of f can reach them.


def ranks_by_value(f: Array, backend: Backend) -> tuple[Array, Array]:
    """Rank of every point, 0 the best, and the number of feasible points. f: (λ,).

    Failed points come last, in the order of sampling, as in the paper's xNES and CMA-ES.
    """
    xp = backend.xp
    feasible = xp.isfinite(f)
    return backend.ranks(xp.where(feasible, f, xp.inf)), xp.count_nonzero(feasible)


def ranks_by_value_then_distance(f: Array, pair_norm2: Array, backend: Backend) -> tuple[Array, Array]:
    """The same with failed points ordered by ‖z‖, the closest to the mean first (paper eq. 3).

    f: (λ,); pair_norm2: ‖z‖² of each mirrored pair (λ/2,), taken once per pair so that the two halves of
    a failed pair tie exactly; or of each point (λ,).
    """
    xp = backend.xp
    feasible = xp.isfinite(f)
    count = xp.count_nonzero(feasible)

    def with_failed() -> Array:
        # By f, failed ones at +inf, then by ‖z‖² among failed ones, then by index.
        distance2 = xp.where(feasible, 0.0, pair_norm2.repeat(len(f) // len(pair_norm2)))
        return backend.ranks(xp.where(feasible, f, xp.inf), distance2)

    return backend.choose(count == len(f), lambda: backend.ranks(f), with_failed), count


# -- Weights by rank, and by rank and distance (paper eqs. 5–9, constants as in the tables).


class RankWeights(NamedTuple):
    raw: Array
    """ŵ_i = max(0, ln(λ/2 + 1) − ln i), best first. (λ,)"""
    centred: Array
    """w_i = ŵ_i/Σŵ − 1/λ; they sum to zero. (λ,)"""
    mu_eff: Array


@lru_cache(maxsize=256)
def rank_weights(population_size: int, parents_of: int | None = None) -> RankWeights:
    """parents_of: select the best half of so many, the first ones; None: of all."""
    size = population_size if parents_of is None else parents_of
    raw, centred, mu_eff = weights_of_half(math.log(size / 2 + 1), population_size, NUMPY)
    return RankWeights(raw, centred, float(mu_eff))


def weights_of_half(
    log_size: Array, room: int, backend: Backend, population_size: Array | None = None
) -> RankWeights:
    """log_size: ln(λ/2 + 1) of the λ points whose best half gets positive weights.

    room: λ; or more than that, with λ as `population_size`. The centred weights behind λ mean nothing then.
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
