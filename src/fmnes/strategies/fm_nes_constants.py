"""The constants of FM-NES: those the paper prints, those it leaves to others, and those it needs otherwise.

The paper's tables come out with these; where it prints another value, that one can be chosen.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import NUMPY, Array, Backend
from fmnes.steps.paths import expected_norm
from fmnes.steps.phases import MOVEMENT, Rates, learning_rates
from fmnes.steps.weights import RankWeights, distance_alphas, rank_weights

#: Up to this dimension a decomposition costs no more than what would replace it.
SMALL = 24


class Selected(NamedTuple):
    """What depends on how many are selected."""

    weights: RankWeights
    c_sigma: Array
    c_c: Array
    c_1: Array
    c_step: Array
    """CMA-ES's rate of the path that its step size follows, …"""
    damping: Array
    """… and how slowly it does."""


class Constants(NamedTuple):
    """All that depends on d and λ alone."""

    selected: Selected
    """With the best half of all points."""
    alphas: NDArray[np.float64]
    rates: Rates
    expected_norm: float
    refresh: int
    decompose: int
    """One in so many refreshes is a decomposition."""


@lru_cache(maxsize=64)
def constants(
    d: int, population_size: int, path_rate: str = "tables", alpha: str = "tables", for_every_d: bool = False
) -> Constants:
    rates = learning_rates(d, population_size, for_every_d)
    return Constants(
        selected=selected(d, population_size, population_size, path_rate, for_every_d),
        alphas=distance_alphas(d, population_size, public=alpha == "public"),
        rates=rates,
        expected_norm=expected_norm(d),
        # 1/η_B generations are what the shape takes to become another one; in a fifth of that its axes turn
        # but a little. In low dimension that is long, and a refresh cheap, so it is never more than d.
        refresh=max(1, min(d, round(1 / (5 * rates.shape[MOVEMENT, -1])))),
        # 4 at d = 40, 2 at d = 100, 1 from 107 on: in higher dimension there are more axes of about the same
        # length, which a turn leaves alone, and being late with them costs evaluations.
        decompose=1 if d <= SMALL else max(1, round(160 / d)),
    )


@lru_cache(maxsize=256)
def selected(d: int, population_size: int, parents_of: int, path_rate: str, for_every_d: bool) -> Selected:
    """With the best half of so many."""
    return selected_by(rank_weights(population_size, parents_of), d, path_rate, for_every_d, NUMPY)


def selected_by(
    weights: RankWeights, d: int, path_rate: str, for_every_d: bool, backend: Backend
) -> Selected:
    mu = weights.mu_eff
    c_step = (mu + 2) / (d + mu + 5)
    excess = ((mu - 1) / (d + 1)) ** 0.5 - 1
    return Selected(
        weights=weights,
        # The paper prints c_σ without √d; its tables come out with it, as in the original DX-NES.
        c_sigma=c_step if path_rate == "printed" else c_step / math.sqrt(d),
        c_c=(4 + mu / d) / (d + 4 + 2 * mu / d),
        # Below d ≈ 10, where η_B is far faster than published, the rank-one update has less left to do.
        c_1=2 / ((d + (4 if for_every_d else 1.3)) ** 2 + mu),
        c_step=c_step,
        damping=1 + 2 * backend.larger(excess, 0.0) + c_step,
    )
