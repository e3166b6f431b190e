"""A smooth map of the whole space onto the box between the bounds, so that nothing fails there.

The search works with y and knows no bounds; users see x = onto(y). Of one coordinate between l and u, with
layers a = (u − l)/10:

    l − a ≤ y ≤ l + a     x = l + (y − (l − a))²/(4a)    comes to the bound with slope 0
    l + a ≤ y ≤ u − a     x = y                          bit for bit
    u − a ≤ y ≤ u + a     x = u − ((u + a) − y)²/(4a)
    anywhere else         mirrored at l − a and u + a, and so periodic

so x and its slope are continuous, and an optimum on the bound is one inside for the search. (As the
transformation of N. Hansen's `cma`, whose layers have other widths.) With a bound on one side only, the layer
is σ₀ wide and there is one mirror.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.bounds import Bounds
from fmnes.result import Vector

Floats = NDArray[np.float64]

#: The layer at a bound, as a part of the width.
LAYER = 0.1
#: How far inside a search starts that was to start on a bound, as a part of the layer: there the slope is 0,
#: and its first points would all be the same.
START_INSIDE = 1e-3
#: Beyond this, sums of a few bounds leave floating point: those coordinates are reckoned in larger units.
_HUGE = 1e300
_LARGE_UNIT = 1.0 / 16.0
_MAX = float(np.finfo(float).max)


@dataclass(frozen=True, eq=False)
class Box:
    lower: Vector
    upper: Vector
    first: Vector
    """From here …"""
    last: Vector
    """… to here x = y. Infinite where there is no bound."""
    table: Floats
    """What `_bend` needs of each coordinate, one row a number, all in `unit`s. (7, d)"""

    @classmethod
    def of(cls, bounds: Bounds, steps: Any) -> Box | None:
        """`steps` (σ₀: a number, or one for each coordinate). None if there is no bound at all."""
        lower, upper = bounds.lower, bounds.upper
        has_lower, has_upper = np.isfinite(lower), np.isfinite(upper)
        if not (has_lower | has_upper).any():
            return None
        steps = np.broadcast_to(np.asarray(steps, dtype=float), lower.shape)
        size = [np.where(has_lower, np.abs(lower), 0), np.where(has_upper, np.abs(upper), 0), steps]
        unit = np.where(np.max(size, axis=0) > _HUGE, _LARGE_UNIT, 1.0)
        low, high = lower * unit, upper * unit
        # Seen from the lower bound; where there is none, everything is mirrored and seen from the upper one.
        side = np.where(has_lower, 1.0, -1.0)
        base = np.where(has_lower, low, high)
        with np.errstate(invalid="ignore"):  # of open coordinates, which never come to `_bend`
            width = np.where(has_lower & has_upper, high - low, np.inf)
            layer = np.where(has_lower & has_upper, LAYER * width, steps * unit)
        with np.errstate(over="ignore"):
            first, last = (low + layer) / unit, (high - layer) / unit
        table = np.stack([unit, side, base, base - side * layer, layer, width, high])
        return cls(lower, upper, first, last, table)

    def onto(self, y: Floats) -> Floats:
        """The points of y, (d,) or (n, d), inside the bounds to the last bit. What is not finite stays so."""
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
        """The y of `x0`, which is inside; moved a little further in from a bound. (d,)"""
        unit, _, _, _, layer, _, _ = self.table
        low, high, x, y = self.lower * unit, self.upper * unit, x0 * unit, x0.copy()
        least = START_INSIDE * layer
        with np.errstate(all="ignore"):  # of coordinates and sides that are not chosen
            # Roots of the factors, whose product may be too small or too large.
            near = low - layer + 2 * np.sqrt(layer) * np.sqrt(np.maximum(x - low, least))
            far = high + layer - 2 * np.sqrt(layer) * np.sqrt(np.maximum(high - x, least))
            y = np.where(x0 < self.first, near / unit, np.where(x0 > self.last, far / unit, x0))
        return np.clip(y, -_MAX, _MAX)

    def secants(self, mean: Vector, deviations: Vector) -> Vector:
        """How much wider the image of each N(mean, deviation²) is, with the sign of the slope. (d,)

        The slope at the mean would say nothing near a bound: it goes to 0 there, while the points still
        spread. So a coordinate's standard deviation is that of its points, here over quantiles.
        """
        nodes = _quantiles()[:, None]
        with np.errstate(all="ignore"):
            y = mean + deviations * nodes
            x = self.onto(y)
            if x is y:
                return np.ones_like(mean)
            x = x - x.mean(axis=0)
            spread = np.sqrt((x * x).mean(axis=0)) / deviations
        linear = (y >= self.first) & (y <= self.last)
        return np.where(linear.all(axis=0), 1.0, np.where((x * nodes).sum(axis=0) < 0, -spread, spread))


def _bend(y: Floats, table: Floats) -> Floats:
    """x of y outside the linear part, each with its coordinate's column of the table. (n,), (7, n)"""
    unit, side, base, turn, layer, width, high = table
    with np.errstate(all="ignore"):  # of the branches that are not chosen, and where y is not finite
        span = width + 2 * layer
        s = np.fmod(np.abs(y * unit - turn), 2 * span)  # from the mirror at the base; exact however far
        s = np.minimum(s, 2 * span - s)
        r = span - s  # from the other mirror, if there is one
        x = turn + side * s
        # s · (s/4a), not s²/(4a): squares of tiny and huge numbers leave floating point.
        x = np.where(s < 2 * layer, base + side * (s * (s / (4 * layer))), x)
        x = np.where(r < 2 * layer, high - r * (r / (4 * layer)), x)
        return np.asarray(x / unit)


@lru_cache(maxsize=1)
def _quantiles(n: int = 100) -> Floats:
    """Of the standard normal distribution, scaled so that their variance is 1. (n,)"""
    z = np.array([NormalDist().inv_cdf((k + 0.5) / n) for k in range(n)])
    return z / math.sqrt(float(z @ z) / n)
