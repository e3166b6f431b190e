"""Evolution paths: fading sums of the steps taken, scaled to stay N(0, I) under random choice."""

from __future__ import annotations

import math

from fmnes.backends import Array


def follow(path: Array, step: Array, rate: Array, mu_eff: Array) -> Array:
    """p ← (1 − c) p + √(c(2 − c) μ_eff) · step."""
    variance = rate * (2 - rate) * mu_eff
    root = math.sqrt(variance) if isinstance(variance, float) else variance**0.5  # known, or compiled
    return (1 - rate) * path + root * step


def expected_norm(d: int) -> float:
    """E‖N(0, I)‖ in d dimensions."""
    return math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))
