"""The points that are spread over a box until one works: one at a time, with loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = Sequence[float]


def next_point(failed: Sequence[Point], candidates: Sequence[Point], draw: Point, n: int) -> Point:
    """The point after n others: every fourth is a draw, the others are farthest from all that failed."""
    if n % 4 == 3:
        return draw
    if not failed:
        return candidates[0]
    best, far = candidates[0], -1.0
    for candidate in candidates:
        nearest = min(math.dist(candidate, point) for point in failed)
        if nearest > far:
            best, far = candidate, nearest
    return best


def step_share(n: int, d: int) -> float:
    """σ = 0.1 n^(−1/d) of the widths; σ₀ is a quarter of them."""
    return 0.1 * n ** (-1 / d) / 0.25
