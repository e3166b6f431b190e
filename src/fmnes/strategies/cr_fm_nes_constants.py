"""The constants of CR-FM-NES, where they differ from those of FM-NES and where they do not."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.steps.paths import expected_norm
from fmnes.steps.phases import learning_rates
from fmnes.steps.weights import RankWeights, distance_alphas, rank_weights


class Constants(NamedTuple):
    """All that depends on d and λ alone; tables by the number of feasible points, λ_F = 0 … λ."""

    weights: RankWeights
    alphas: NDArray[np.float64]
    """(λ + 1,)"""
    eta_sigma: NDArray[np.float64]
    """By phase and λ_F. (3, λ + 1)"""
    eta_B: NDArray[np.float64]
    """(λ + 1,)"""
    c_1: NDArray[np.float64]
    """(λ + 1,)"""
    expected_norm: float
    c_sigma: float
    c_c: float


@cache
def constants(d: int, population_size: int) -> Constants:
    weights = rank_weights(population_size)
    mu = weights.mu_eff
    feasible: Any = np.arange(population_size + 1)
    share = feasible / population_size
    return Constants(
        weights=weights,
        # Unlike in FM-NES: λ under the first root, c_σ without √d, η_B the same in every phase, λ_F in c₁.
        alphas=distance_alphas(d, population_size, public=True),
        eta_sigma=learning_rates(d, population_size).sigma,
        eta_B=np.tanh((np.minimum(0.02 * feasible, 3 * math.log(d)) + 5) / (0.23 * d + 25)),
        c_1=2 / ((d + 1.3) ** 2 + mu) * max(0, d - 5) / 6 * share,
        expected_norm=expected_norm(d),
        c_sigma=(mu + 2) / (d + mu + 5),
        c_c=(4 + mu / d) / (d + 4 + 2 * mu / d),
    )
