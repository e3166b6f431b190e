"""The margin: discrete coordinates keep a chance of another value, however short the steps have become.

R. Hamano, S. Saito, M. Nomura and S. Shirakawa, "CMA-ES with Margin: Lower-Bounding Marginal Probability for
Mixed-Integer Black-Box Optimization", GECCO 2022 (arXiv:2205.13482), section 4. Each discrete coordinate is
N(m, s²) before it is rounded; ℓ are the limits between the grid's values.

    at an end of the grid   Pr(the other side of the one limit) ≥ α, by moving m
    elsewhere               Pr(below the cell of m) and Pr(above it) ≥ α/2, by moving m and stretching s

The paper writes all probabilities down and corrects each. Here a probability is compared with α by the
distance of m from the limit in units of s, so most coordinates need no normal distribution function at all.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from fmnes.errors import ArgumentError
from fmnes.result import Vector
from fmnes.search.integers import Grid

_NORMAL = NormalDist()


def margin(grid: Grid, mean: Vector, deviation: Vector, alpha: float) -> tuple[Vector, Vector] | None:
    """The means and standard deviations of the discrete coordinates, corrected; None: nothing to correct.

    mean, deviation: of the discrete coordinates, in the user's units. (n,)
    alpha: the paper's α, 1/(d λ).
    """
    k = grid.index(mean)
    middle, half = grid.value(k), grid.width / 2
    low, up = middle - half, middle + half
    at_first, at_last = k == grid.first, k == grid.last

    # Binary coordinates, and those at an end of their grid: one limit, and m at most so far from it.
    limit = np.where(at_first, up, low)
    reach = -_NORMAL.inv_cdf(alpha) * deviation
    too_far = (at_first | at_last) & (np.abs(mean - limit) > reach)

    # All others: m and s such that the limits are χ_low and χ_up deviations away.
    farthest = -_NORMAL.inv_cdf(alpha / 2)
    chi_low, chi_up = (mean - low) / deviation, (up - mean) / deviation
    rare_low, rare_up = chi_low > farthest, chi_up > farthest
    too_rare = ~(at_first | at_last) & (rare_low | rare_up)
    if not (too_far.any() or too_rare.any()):
        return None

    for i in np.flatnonzero(too_rare & ~rare_up):
        chi_up[i] = _other_side(float(chi_low[i]), float(chi_up[i]), alpha)
    for i in np.flatnonzero(too_rare & ~rare_low):
        chi_low[i] = _other_side(float(chi_up[i]), float(chi_low[i]), alpha)
    chi_low = np.where(rare_low, farthest, chi_low)
    chi_up = np.where(rare_up, farthest, chi_up)
    total = chi_low + chi_up
    new_mean = np.where(too_far, limit + np.copysign(reach, mean - limit), mean)
    new_mean = np.where(too_rare, (low * chi_up + up * chi_low) / total, new_mean)
    return new_mean, np.where(too_rare, grid.width / total, deviation)


def _other_side(rare: float, other: float, alpha: float) -> float:
    """χ of the side that is likely enough, when the rare one is raised to α/2.

    What the rare side gets is taken from the other two in the proportion of what they have above α/2
    (the paper's equations for p″).
    """
    p_rare, p = _NORMAL.cdf(-rare), _NORMAL.cdf(-other)
    p += (p_rare - alpha / 2) * (p - alpha / 2) / (1 - p_rare - alpha)
    return -_NORMAL.inv_cdf(p)


def marginal_deviations(strategy: Any, state: Any) -> Vector:
    """The standard deviation of each of a strategy's coordinates. (d,)"""
    if hasattr(strategy, "deviations"):  # of one that has no matrix to take the diagonal of
        own: Vector = strategy.deviations(state)
        return own
    deviations: Vector = np.sqrt(np.diagonal(strategy.covariance(state)))
    return deviations


def check_deviations(strategy: Any) -> None:
    """Ours say how widely each coordinate is spread; one of the user's own may not."""
    if not any(callable(getattr(strategy, name, None)) for name in ("covariance", "deviations")):
        raise ArgumentError(
            f"integers: found with {strategy!r}, which has no covariance(state); wanted a method that has"
        )
