"""A smooth map of the whole space onto the box between the bounds.

The search samples y without bounds; users see x = onto(y). For a coordinate between l and u, with layers
a = (u − l)/10:

    l − a ≤ y ≤ l + a     x = l + (y − (l − a))²/(4a)    reaches the bound with slope 0
    l + a ≤ y ≤ u − a     x = y                          bit for bit
    u − a ≤ y ≤ u + a     x = u − ((u + a) − y)²/(4a)
    anywhere else         mirrored at l − a and u + a, and so periodic

so x and its slope are continuous, and an optimum on the bound is an interior optimum in y. The transformation
of N. Hansen's `cma` is the same with other layer widths. With one bound only, the layer is σ₀ wide and there
is one mirror.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import MIN_SIGMA0
from fmnes.bounds import Bounds
from fmnes.errors import ArgumentError
from fmnes.result import Vector

Floats = NDArray[np.float64]

#: Width of a layer, relative to the box.
LAYER = 0.1
#: Distance of a start from the bound, relative to the layer: on the bound the slope is 0, and the first
#: points would all be the same.
START_INSIDE = 1e-3
#: The longest step, relative to the box (as in `cma`). Points of wider steps are spread evenly over the box
#: for every mean: their values carry no information about y, and σ would grow without limit.
LONGEST_STEP = 1.0 / 3.0
#: Beyond this, sums of bounds overflow: such coordinates are computed in larger units.
_HUGE = 1e300
_LARGE_UNIT = 1.0 / 16.0
_MAX = float(np.finfo(float).max)


@dataclass(frozen=True, eq=False)
class Box:
    """The map for all coordinates."""

    lower: Vector
    upper: Vector
    first: Vector
    """Lower end of the range where x = y; infinite without a bound."""
    last: Vector
    """Upper end of that range."""
    table: Floats
    """Constants of each coordinate for `_bend`, in units of `unit`. (7, d)"""

    @classmethod
    def of(cls, bounds: Bounds, steps: Any) -> Box | None:
        """Return the map, or None without bounds; steps: σ₀, a number or one per coordinate."""
        lower, upper = bounds.lower, bounds.upper
        has_lower, has_upper = np.isfinite(lower), np.isfinite(upper)
        if not (has_lower | has_upper).any():
            return None
        steps = np.broadcast_to(np.asarray(steps, dtype=float), lower.shape)
        size = [np.where(has_lower, np.abs(lower), 0), np.where(has_upper, np.abs(upper), 0), steps]
        unit = np.where(np.max(size, axis=0) > _HUGE, _LARGE_UNIT, 1.0)
        low, high = lower * unit, upper * unit
        # Relative to the lower bound; without one, mirrored and relative to the upper bound.
        side = np.where(has_lower, 1.0, -1.0)
        base = np.where(has_lower, low, high)
        with np.errstate(invalid="ignore"):  # unbounded coordinates, which `_bend` never gets
            width = np.where(has_lower & has_upper, high - low, np.inf)
            layer = np.where(has_lower & has_upper, LAYER * width, steps * unit)
        with np.errstate(over="ignore"):
            first, last = (low + layer) / unit, (high - layer) / unit
        table = np.stack([unit, side, base, base - side * layer, layer, width, high])
        return cls(lower, upper, first, last, table)

    def onto(self, y: Floats) -> Floats:
        """Map y, (d,) or (n, d), into the bounds, exactly; what is not finite stays so."""
        bent = (y < self.first) | (y > self.last)
        if not bent.any():
            return y
        x = y.copy()
        coordinates = np.nonzero(bent)[-1]
        x[bent] = np.clip(
            _bend(y[bent], self.table[:, coordinates]), self.lower[coordinates], self.upper[coordinates]
        )
        return x

    def start(self, x0: Vector) -> Vector:
        """Return the y of `x0`, moved away from a bound if it is on one. (d,)"""
        unit, _, _, _, layer, _, _ = self.table
        low, high, x = self.lower * unit, self.upper * unit, x0 * unit
        least = START_INSIDE * layer
        with np.errstate(all="ignore"):  # branches that are not chosen
            # Roots of the factors: their product may leave floating point.
            near = low - layer + 2 * np.sqrt(layer) * np.sqrt(np.maximum(x - low, least))
            far = high + layer - 2 * np.sqrt(layer) * np.sqrt(np.maximum(high - x, least))
            y = np.where(x0 < self.first, near / unit, np.where(x0 > self.last, far / unit, x0))
        return np.clip(y, -_MAX, _MAX)

    def longest_step(self, scale: Vector | None) -> float:
        """Return the longest step in units of `scale`, from the widest interval; inf without a bound."""
        with np.errstate(over="ignore"):
            return float(((self.upper - self.lower) / (1.0 if scale is None else scale)).max()) * LONGEST_STEP

    def covariance(self, mean: Vector, covariance: Floats) -> Floats:
        """Return the covariance of onto(y) for y from N(mean, covariance). (d, d)

        The slope at the mean is useless near a bound, where it goes to 0 while points still spread. Each
        variance is integrated; each covariance is multiplied with both *mean* slopes, which is exact if one
        of the two coordinates is linear (Stein's lemma).
        """
        z, weights = _quadrature()
        deviations = np.sqrt(np.diag(covariance))
        y = mean + deviations * z[:, None]
        x = self.onto(y)
        if x is y:
            return covariance
        bent = (x != y).any(axis=0)
        x, weights = x[:, bent], weights[:, None]
        x = x - (weights * x).sum(axis=0)
        slopes = np.ones_like(mean)
        slopes[bent] = (weights * x * z[:, None]).sum(axis=0) / deviations[bent]
        mapped = covariance * np.outer(slopes, slopes)
        mapped[bent, bent] = (weights * x * x).sum(axis=0)
        return mapped


def limited_steps(steps: Any, bounds: Bounds) -> Any:
    """Return σ₀, or one per coordinate limited to `LONGEST_STEP` if it is too long for the box."""
    longest = (bounds.upper * _LARGE_UNIT - bounds.lower * _LARGE_UNIT) * LONGEST_STEP / _LARGE_UNIT
    with np.errstate(invalid="ignore"):  # spacing of infinity
        space = np.spacing(np.maximum(np.abs(bounds.lower), np.abs(bounds.upper)))
    narrow = longest < np.fmax(space, MIN_SIGMA0)
    if narrow.any():
        i = int(narrow.argmax())
        found = f"lower {float(bounds.lower[i])} and upper {float(bounds.upper[i])} at coordinate {i}"
        raise ArgumentError(
            f"bounds: found {found}, too close together for floating point; wanted room between them"
        )
    return steps if (np.asarray(steps) <= longest).all() else np.minimum(steps, longest)


def _bend(y: Floats, table: Floats) -> Floats:
    """Map y outside the linear part, with its coordinates' columns of the table. (n,), (7, n)"""
    unit, side, base, turn, layer, width, high = table
    with np.errstate(all="ignore"):  # branches that are not chosen, and y that is not finite
        span = width + 2 * layer
        s = np.fmod(np.abs(y * unit - turn), 2 * span)  # from the mirror at the base; fmod is exact
        s = np.minimum(s, 2 * span - s)
        r = span - s  # from the other mirror
        x = turn + side * s
        # s · (s/4a), not s²/(4a): squares of tiny and huge numbers leave floating point.
        x = np.where(s < 2 * layer, base + side * (s * (s / (4 * layer))), x)
        x = np.where(r < 2 * layer, high - r * (r / (4 * layer)), x)
        return np.asarray(x / unit)


@lru_cache(maxsize=1)
def _quadrature() -> tuple[Floats, Floats]:
    """Gauss-Hermite points and weights for the standard normal distribution."""
    z, weights = np.polynomial.hermite_e.hermegauss(50)
    return z, weights / weights.sum()
