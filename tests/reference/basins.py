"""Where the next search in a box begins, with loops. Points are in the unit box; NaN is a failed value."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = Sequence[float]


def next_start(
    archive: Sequence[Point], f: Sequence[float], tried: set[int], taken: Sequence[Point]
) -> tuple[int | None, set[int]]:
    """The best archived point that may be a start, and all that were examined.

    Within r = .35 N^(−1/d) of it there is no better point, no known optimum and no earlier start.
    """
    N, d = len(archive), len(archive[0])
    r = 0.35 * max(N, 2) ** (-1 / d)
    examined = set()
    for i in sorted(range(N), key=lambda i: math.inf if math.isnan(f[i]) else f[i]):
        if math.isnan(f[i]) or i in tried:
            continue
        examined.add(i)
        if any(math.dist(archive[i], point) < r for point in taken):
            continue
        if any(f[j] < f[i] and math.dist(archive[i], archive[j]) < r for j in range(N)):
            continue
        return i, examined
    return None, examined


def is_behind_a_hill(
    u: Point, value: float, optima: Sequence[tuple[Point, float]], fun: dict[tuple[float, ...], float]
) -> bool:
    """At 1/2 or 1/4 of the way from each of the two nearest optima f is above both ends, or fails."""
    nearest = sorted(optima, key=lambda optimum: math.dist(optimum[0], u))[:2]
    for x, f in nearest:
        hill = False
        for t in (0.5, 0.25):
            on_the_way = fun[tuple((1 - t) * a + t * b for a, b in zip(x, u, strict=True))]
            if math.isnan(on_the_way) or on_the_way > max(value, f):
                hill = True
        if not hill:
            return False
    return True


def small_step(N: int, d: int) -> float:
    """σ = .12 N^(−1/d) of the widths; σ₀ is a quarter of them."""
    return 0.12 * N ** (-1 / d) / 0.25


def has_stalled(generations_without_gain: int, d: int, population: int, longest: float, then: float) -> bool:
    return generations_without_gain > 40 + 60 * d / population and longest >= 0.3 * then


def is_hopeless(generation: int, best: float, spread: float, gain_of_four: float, before: float) -> bool:
    return generation > 5 and best - 3 * max(spread, gain_of_four) > before
