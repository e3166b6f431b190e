"""Evolution paths, search phases, learning rates, expansion and the share of feasible points."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import NUMPY, Array, Backend

# Evolution paths: fading sums of the steps taken, scaled to stay N(0, I) under random choice.


def follow(path: Array, step: Array, rate: Array, mu_eff: Array) -> Array:
    """p ← (1 − c) p + √(c(2 − c) μ_eff) · step."""
    variance = rate * (2 - rate) * mu_eff
    root = math.sqrt(variance) if isinstance(variance, float) else variance**0.5  # known, or compiled
    return (1 - rate) * path + root * step


def expected_norm(d: int) -> float:
    """E‖N(0, I)‖ in d dimensions."""
    return math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))


# The three search phases of DX-NES-IC and the learning rates that go with them.
#
# The rates depend on the phase and on λ_F, the number of feasible points, which is one of 0 … λ. So they are
# tables, made once: looking a rate up is the same on every backend and costs nothing in a generation.


CONVERGENCE, STAGNATION, MOVEMENT = 0, 1, 2
PHASES = ("convergence", "stagnation", "movement")


def phase_of(path_norm: Array, expected: float, backend: Backend) -> Array:
    """The phase (paper step 5) as a number: an index of PHASES. `path_norm` is ‖p_σ‖."""
    return backend.search((0.1 * expected, expected), path_norm)


def phase_name(path_norm: Array, expected: float, backend: Backend) -> str:
    """The phase in words for an observer; empty inside compiled code, where values are unknown."""
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


# Emphasised expansion (paper step 10): axes that are growing while the distribution moves grow faster.


#: Second moment changes below this are rounding noise: with no feasible point the rate is 0 and τ should be.
TAU_NOISE = 1e-9


def expansion_rate(gamma: Array, tau: Array, d: int, population_size: Array, backend: Backend) -> Array:
    """γ ← max((1 − c_γ) γ + c_γ √(1 + d_γ max τ), 1). tau: relative growth of each axis (d,), d > 1."""
    c_gamma = 1 / (3 * (d - 1))
    smaller = min if isinstance(population_size, int) else backend.xp.minimum
    d_gamma = smaller(1.0, d / population_size)
    grown = backend.xp.sqrt(1 + d_gamma * tau.max())
    return backend.larger((1 - c_gamma) * gamma + c_gamma * grown, 1.0)


def axis_factors(gamma: Array, tau: Array, moving: Array, backend: Backend) -> tuple[Array, Array]:
    """The eigenvalues of Q on the current axes (d,), and ln det(Q)/d; all 1 and 0 unless moving."""
    xp = backend.xp

    def expanding() -> tuple[Array, Array]:
        growing = tau > TAU_NOISE
        return xp.where(growing, gamma, 1.0), xp.log(gamma) * xp.count_nonzero(growing) / len(tau)

    return backend.choose(moving, expanding, lambda: (xp.ones(len(tau), tau.dtype), 0 * gamma))  # type: ignore[no-any-return]


# Adaptation to the share of successful points: trust in the sample, and the population size.
#
# s   smoothed share of points that succeed; 1 until the first failure


#: How much of s is the last generation.
SMOOTHING = 0.1
#: Limit of λ/λ₀.
MAX_GROWTH = 4
#: The ratio of the longest to the shortest axis, as a logarithm, from which on all of 1/s is taken.
LOG_RATIO = 2.0


def follow_share(share: Array, feasible: Array, population_size: Array) -> Array:
    return share + SMOOTHING * (feasible / population_size - share)


def trust_in_path(share: Array) -> Array:
    """The weight of the path in the change of σ: the share of points that fail.

    The sample takes failed points for bad ones, so it shrinks σ wherever points fail; the path sees the mean
    alone, but is noisier. So the weight of the sample is the share of points that succeed.
    """
    return 1 - share


def parents_of(feasible: Array, d: int, population_size: Array, backend: Backend) -> Array:
    """The number of points whose best half is selected: those that succeed, but at least d.

    Failed points in the best half would attract the mean. But the mean of few points is noisy, and there are
    about d directions to average over. All points if all succeed, or fewer than two.
    """
    enough = backend.larger(feasible, d)
    all_of_them = (feasible < 2) | (enough > population_size)
    return backend.choose(all_of_them, lambda: population_size, lambda: enough)


def population_growth(share: Array, axis_ratio: Array, backend: Backend) -> Array:
    """λ/λ₀: with s⁻¹, λ₀ points of a generation succeed.

    Learning a shape needs that many points, so the exponent grows with the ratio of the axes. A round shape
    needs λ₀ only.
    """
    xp = backend.xp
    exponent = xp.minimum(1.0, xp.log(axis_ratio) / LOG_RATIO)
    return xp.minimum(float(MAX_GROWTH), xp.exp(-exponent * xp.log(backend.larger(share, 1e-3))))
