"""The normal distribution: Φ, log Φ and the inverse of Φ."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from fmnes.surrogate.kernels import Floats

_erfc = np.frompyfunc(math.erfc, 1, 1)
_quantile = np.frompyfunc(NormalDist().inv_cdf, 1, 1)
#: Below this, log Φ is its asymptotic series, whose first omitted term is 1e-12 there.
_FAR = -20.0


def cdf(u: ArrayLike) -> Floats:
    """Φ(u)."""
    return 0.5 * np.asarray(_erfc(np.asarray(u, float) / -math.sqrt(2.0)), float)


def density(u: ArrayLike) -> Floats:
    """φ(u)."""
    return np.asarray(np.exp(-0.5 * np.square(np.asarray(u, float))) / math.sqrt(2.0 * math.pi))


def log_cdf(u: ArrayLike) -> Floats:
    """log Φ(u), without loss of digits in either tail."""
    u = np.asarray(u, float)
    upper_tail = cdf(-np.abs(u))
    r = 1.0 / np.square(np.minimum(u, _FAR))
    series = np.log1p(-r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r * (1.0 - 9.0 * r)))))
    far = -0.5 / r - 0.5 * np.log(2.0 * math.pi / r) + series
    near = np.where(u > 0.0, np.log1p(-upper_tail), np.log(np.maximum(upper_tail, 1e-300)))
    return np.where(u < _FAR, far, near)


def inverse_cdf(p: ArrayLike) -> Floats:
    """Inverse of Φ for p in (0, 1)."""
    return np.asarray(_quantile(np.asarray(p, float)), float)
