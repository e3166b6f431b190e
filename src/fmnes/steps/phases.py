"""The three search phases of DX-NES-IC and the learning rates that go with them.

The rates depend on the phase and on λ_F, the number of feasible points, which is one of 0 … λ. So they are
tables, made once: looking a rate up is the same on every backend and costs nothing in a generation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import NUMPY, Array, Backend

CONVERGENCE, STAGNATION, MOVEMENT = 0, 1, 2
PHASES = ("convergence", "stagnation", "movement")


def phase_of(path_norm: Array, expected: float, backend: Backend) -> Array:
    """The phase (paper step 5) as a number: an index of PHASES. `path_norm` is ‖p_σ‖."""
    return backend.search((0.1 * expected, expected), path_norm)


def phase_name(path_norm: Array, expected: float, backend: Backend) -> str:
    """The phase in words for an observer; empty inside compiled code, where nobody can look."""
    return PHASES[phase_of(path_norm, expected, backend)] if backend is NUMPY else ""


class Rates(NamedTuple):
    sigma: NDArray[np.float64]
    """η_σ by phase and λ_F. (3, λ + 1)"""
    shape: NDArray[np.float64]
    """η_B by phase and λ_F. (3, λ + 1)"""


#: No shape is to change faster than this, base rate: in two or three dimensions the formula would let it.
MAX_SHAPE_RATE = 0.3


@lru_cache(maxsize=64)
def learning_rates(d: int, population_size: int, for_every_d: bool = False) -> Rates:
    """for_every_d: η_B as xNES has it, about 0.2 λ/d^1.5, with λ_F for λ and the paper's saturation.

    The published rate is as fast at d ≈ 23 and starves the shape below that: an eleventh of it at d = 5.
    """
    feasible: Any = np.arange(population_size + 1)
    converging = 2 * np.tanh((0.025 * feasible + 0.75 * d + 10) / (d + 4))
    stagnating = np.tanh((0.024 * feasible + 0.7 * d + 20) / (d + 12))
    base = 120 * d * np.tanh(0.02 * feasible) / (47 * d * d + 6400)
    if for_every_d:
        base = np.minimum(9.5 * d**-1.5 * np.tanh(0.02 * feasible), MAX_SHAPE_RATE)
    return Rates(
        sigma=np.stack((converging, stagnating, np.ones(population_size + 1))),
        shape=np.stack((0.1 * base, 1.4 * base, 1.5 * base)),
    )
