"""Noise: learning rates of the mean and of the shape that follow the signal-to-noise ratio.

M. Nomura, Y. Akimoto and I. Ono, "CMA-ES with Learning Rate Adaptation: Can CMA-ES with Default Population
Size Solve Multimodal and Noisy Problems?", 2023, applied to the step that any strategy proposes.

    m, σ, B    the distribution: points are m + σ B z, det B = 1
    m', σ', B' the one that the strategy proposes
    δ          B⁻¹ (m' − m)/σ, the step of the mean in the coordinates of the draws
    K          B⁻¹ B' (B⁻¹ B')ᵀ (σ'/σ)² − I, the step of the covariance in them; K/√2 has the paper's norm
    E, V       moving averages of a step and of its squared norm, with rate β
    η_m, η_Σ   learning rates, at most 1
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import SnapshotError
from fmnes.result import Vector
from fmnes.storage.snapshot import finite
from fmnes.strategies.base import Strategy

Floats = NDArray[np.float64]

#: β of the mean and of the shape, as in the paper.
MEAN_MEMORY, SHAPE_MEMORY = 0.1, 0.03
#: The rates aim at a signal-to-noise ratio of this multiple of themselves: α of the paper.
RATIO = 1.4
#: How fast the rates change: γ of the paper.
CHANGE = 0.1
#: A larger rate of the shape counts as 1: the proposal is taken as it is.
FULL = 0.999
#: Smallest factor of the squared length of an axis in one generation.
SMALLEST = 1e-12
#: Above this number of coordinates the rate of the shape stays 1: its estimate takes O(d³) a generation.
MAX_SHAPE_DIMENSION = 300


class Gaussian(NamedTuple):
    """The distribution of the points m + σ B z."""

    mean: Vector
    """m (d,)"""
    sigma: float
    """σ"""
    shape: Floats
    """B with determinant ±1. (d, d)"""


class Step(NamedTuple):
    """From one distribution to the next, in the coordinates of the draws."""

    mean: Vector
    """δ (d,)"""
    shape: Floats
    """K (d, d)"""


class Rates(NamedTuple):
    """The learning rates and the averages that they follow from."""

    mean: float
    """η_m"""
    shape: float
    """η_Σ"""
    mean_step: Vector
    """E of δ. (d,)"""
    mean_square: float
    """V of δ."""
    shape_step: Floats
    """E of K/√2. (d, d), or (0, 0) where the rate of the shape stays 1."""
    shape_square: float
    """V of K/√2."""


def first_rates(d: int) -> Rates:
    """Both rates are 1 and nothing is known."""
    size = d if d <= MAX_SHAPE_DIMENSION else 0
    return Rates(1.0, 1.0, np.zeros(d), 0.0, np.zeros((size, size)), 0.0)


def step_between(before: Gaussian, after: Gaussian) -> Step:
    """Return the step from one distribution to the next."""
    solved: Any = np.linalg.solve(before.shape, np.column_stack([after.mean - before.mean, after.shape]))
    T = solved[:, 1:] * (after.sigma / before.sigma)
    return Step(solved[:, 0] / before.sigma, T @ T.T - np.eye(len(T)))


def signal_to_noise(step: Floats, square: float, beta: float) -> float:
    """The signal-to-noise ratio of steps with this average E and this average squared norm V."""
    signal = float(np.vdot(step, step))
    return (signal - beta / (2 - beta) * square) / max(square - signal, 1e-300)


def next_rate(rate: float, step: Floats, square: float, beta: float) -> float:
    """The rate η after E and V have been updated: larger if the ratio is above RATIO · η."""
    excess = signal_to_noise(step, square, beta) / (RATIO * rate) - 1
    return min(1.0, rate * math.exp(min(CHANGE * rate, beta) * min(max(excess, -1.0), 1.0)))


def next_rates(rates: Rates, step: Step) -> Rates:
    """The rates after a generation with this proposed step."""
    b = MEAN_MEMORY
    mean_step = (1 - b) * rates.mean_step + b * step.mean
    mean_square = (1 - b) * rates.mean_square + b * float(step.mean @ step.mean)
    rates = rates._replace(
        mean=next_rate(rates.mean, mean_step, mean_square, b), mean_step=mean_step, mean_square=mean_square
    )
    if not rates.shape_step.size:
        return rates
    b = SHAPE_MEMORY
    K = step.shape / math.sqrt(2)
    shape_step = (1 - b) * rates.shape_step + b * K
    shape_square = (1 - b) * rates.shape_square + b * float(np.vdot(K, K))
    return rates._replace(
        shape=next_rate(rates.shape, shape_step, shape_square, b),
        shape_step=shape_step,
        shape_square=shape_square,
    )


def slowed(before: Gaussian, after: Gaussian, step: Step, rates: Rates, old: float) -> Gaussian:
    """Return the distribution that takes only these shares of a step.

    The step size is divided by the change of the rate of the mean, so that the optimum of both fits. old: η_m
    of the generation before.
    """
    mean = before.mean + rates.mean * (after.mean - before.mean)
    correction = old / rates.mean
    if rates.shape > FULL:
        return Gaussian(mean, after.sigma * correction, after.shape)
    eigenvalues, axes = np.linalg.eigh(np.eye(len(mean)) + rates.shape * step.shape)
    factors = np.sqrt(np.maximum(eigenvalues, SMALLEST))
    log_scale = float(np.log(factors).mean())
    root = (axes * (factors * math.exp(-log_scale))) @ axes.T
    return Gaussian(mean, before.sigma * math.exp(log_scale) * correction, before.shape @ root)


def slow_step(strategy: Strategy, before: Any, after: Any, rates: Rates) -> tuple[Any, Rates]:
    """Return the state that takes a share of the step between two states, and the next rates."""
    old = Gaussian(before.mean, float(before.sigma), strategy.shape_matrix(before))
    new = Gaussian(after.mean, float(after.sigma), strategy.shape_matrix(after))
    try:
        step = step_between(old, new)
        if not (np.isfinite(step.mean).all() and np.isfinite(step.shape).all()):
            return after, rates
        following = next_rates(rates, step)
        taken = slowed(old, new, step, following, rates.mean)
    except np.linalg.LinAlgError:  # singular to rounding: the criteria of condition end such a search
        return after, rates
    return strategy.with_shape(after, taken.mean, taken.sigma, taken.shape), following


def dump_rates(rates: Rates) -> dict[str, Floats]:
    """Return the arrays of a snapshot."""
    numbers = [rates.mean, rates.shape, rates.mean_square, rates.shape_square]
    return {
        "rates.numbers": np.array(numbers),
        "rates.mean": rates.mean_step,
        "rates.shape": rates.shape_step,
    }


def restore_rates(arrays: dict[str, NDArray[Any]], d: int) -> Rates | None:
    """Return the rates of a snapshot of d coordinates; None: it has none. Raises SnapshotError."""
    if "rates.numbers" not in arrays:
        return None
    mean, shape, mean_square, shape_square = finite(arrays["rates.numbers"], (4,)).tolist()
    if not (0 < mean <= 1 and 0 < shape <= 1 and mean_square >= 0 and shape_square >= 0):
        raise SnapshotError(f"learning rates {mean} and {shape}, wanted numbers above 0 and at most 1")
    first = first_rates(d)
    return Rates(
        mean,
        shape,
        finite(arrays["rates.mean"], first.mean_step.shape),
        mean_square,
        finite(arrays["rates.shape"], first.shape_step.shape),
        shape_square,
    )
