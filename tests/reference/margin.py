"""The margin of Hamano, Saito, Nomura and Shirakawa (GECCO 2022), section 4: one coordinate at a time.

Letters as in the paper; z are the values a coordinate may take, in rising order, and ℓ the limits between
neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

STANDARD = NormalDist()


def chi2_ppf(gamma: float) -> float:
    """The γ-quantile of the χ² distribution with one degree of freedom."""
    return STANDARD.inv_cdf((1 + gamma) / 2) ** 2


def margin(z: Sequence[float], m: float, A: float, sigma_c: float, alpha: float) -> tuple[float, float]:
    """m and A after the correction. sigma_c: σ √⟨C⟩_j, so that the coordinate is N(m, (A sigma_c)²)."""
    limits = [(z[k] + z[k + 1]) / 2 for k in range(len(z) - 1)]

    def cdf(at: float) -> float:
        return NormalDist(m, A * sigma_c).cdf(at)

    def CI(gamma: float) -> float:  # half of the confidence interval
        return math.sqrt(chi2_ppf(gamma)) * A * sigma_c

    if m <= limits[0] or m > limits[-1]:  # binary, or at an end
        l_close = limits[0] if m <= limits[0] else limits[-1]
        sign = 1.0 if m > l_close else -1.0
        return l_close + sign * min(abs(m - l_close), CI(1 - 2 * alpha)), A

    l_low = max(limit for limit in limits if limit < m)
    l_up = min(limit for limit in limits if m <= limit)
    p_low, p_up = cdf(l_low), 1 - cdf(l_up)
    p_mid = 1 - p_low - p_up
    p_low_1, p_up_1 = max(alpha / 2, p_low), max(alpha / 2, p_up)
    delta = 1 - p_low_1 - p_up_1 - p_mid
    total = p_low_1 + p_mid + p_up_1 - 3 * alpha / 2
    p_low_2 = p_low_1 + delta * (p_low_1 - alpha / 2) / total
    p_up_2 = p_up_1 + delta * (p_up_1 - alpha / 2) / total
    chi_low = math.sqrt(chi2_ppf(1 - 2 * p_low_2))
    chi_up = math.sqrt(chi2_ppf(1 - 2 * p_up_2))
    A = (l_up - l_low) / (chi_low + chi_up) / sigma_c
    return (l_low * chi_up + l_up * chi_low) / (chi_low + chi_up), A
