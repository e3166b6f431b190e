"""The constants of FM-NES: those the paper prints, those it leaves to others, and those it needs otherwise.

The paper's tables come out with these; where it prints another value, that one can be chosen.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.steps.paths import expected_norm
from fmnes.steps.phases import MOVEMENT, Rates, learning_rates
from fmnes.steps.weights import RankWeights, distance_alphas, rank_weights

#: Up to this dimension a decomposition costs no more than what would replace it.
SMALL = 24


class Constants(NamedTuple):
    """All that depends on d and λ alone."""

    weights: RankWeights
    alphas: NDArray[np.float64]
    rates: Rates
    expected_norm: float
    c_sigma: float
    c_c: float
    c_1: float
    refresh: int
    decompose: int
    """One in so many refreshes is a decomposition."""


@cache
def constants(d: int, population_size: int, path_rate: str, alpha: str) -> Constants:
    weights = rank_weights(population_size)
    mu = weights.mu_eff
    rates = learning_rates(d, population_size)
    c_sigma = (mu + 2) / (d + mu + 5)
    return Constants(
        weights=weights,
        alphas=distance_alphas(d, population_size, public=alpha == "public"),
        rates=rates,
        expected_norm=expected_norm(d),
        # The paper prints c_σ without √d; its tables come out with it, as in the original DX-NES.
        c_sigma=c_sigma if path_rate == "printed" else c_sigma / math.sqrt(d),
        c_c=(4 + mu / d) / (d + 4 + 2 * mu / d),
        c_1=2 / ((d + 1.3) ** 2 + mu),
        # 1/η_B generations are what the shape takes to become another one; in a fifth of that its axes turn
        # but a little. In low dimension that is long, and a refresh cheap, so it is never more than d.
        refresh=max(1, min(d, round(1 / (5 * rates.shape[MOVEMENT, -1])))),
        # 4 at d = 40, 2 at d = 100, 1 from 107 on: in higher dimension there are more axes of about the same
        # length, which a turn leaves alone, and being late with them costs evaluations.
        decompose=1 if d <= SMALL else max(1, round(160 / d)),
    )
