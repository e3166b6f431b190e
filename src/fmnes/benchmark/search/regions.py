"""Regions of failure that are narrow, curved, or uncertain at their edge.

w   coordinates in a random frame around a random point: w = Q (x − shift)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fmnes import problems
from fmnes.benchmark.search.problem import Array, Problem, where
from fmnes.problems.problem import random_rotation

#: Half the width of the narrow region, and the slope of the sides of the wedge.
NARROW, WEDGE = 0.1, 0.1
#: The ring: from 1 to this.
OUTER = 1.1
#: At the edge itself an evaluation fails with this probability, so deep inside (or deeper) never.
AT_EDGE, LAYER = 0.5, 0.5


def slope(name: str, d: int, seed: list[int]) -> Problem:
    """A linear function on the unit ball, from its centre."""
    direction = np.random.default_rng(seed).standard_normal(d)
    direction /= np.linalg.norm(direction)

    def fun(x: Array) -> Array:
        return where((x * x).sum(-1) <= 1, 1 + x @ direction)

    # A hair inside: of the point on the sphere itself the computed norm may be above 1.
    return Problem(name, fun, np.zeros(d), 0.3, -(1 - 1e-15) * direction)


def narrow(name: str, d: int, seed: list[int]) -> Problem:
    """Between two close planes, |w_1| <= 0.1; the objective is least, and still falls, on one of them."""
    optimum = np.r_[NARROW, np.zeros(d - 1)]

    def fun(w: Array) -> Array:
        y = w - optimum
        return where(abs(w[..., 0]) <= NARROW, 0.5 * (y * y).sum(-1) - (1 - NARROW) * y[..., 0])

    return _framed(name, fun, np.r_[0.0, np.full(d - 1, 3.0)], 1.0, optimum, seed)


def wedge(name: str, d: int, seed: list[int]) -> Problem:
    """|w_2| <= w_1/10: the closer to the optimum, at the tip, the narrower. d >= 2."""

    def fun(w: Array) -> Array:
        return where(abs(w[..., 1]) <= WEDGE * w[..., 0], w[..., 0] + 0.5 * (w * w).sum(-1))

    return _framed(name, fun, np.r_[3.0, 0.0, np.full(d - 2, 3.0)], 1.0, np.zeros(d), seed)


def curved(name: str, d: int, seed: list[int]) -> Problem:
    """A thin ring in one plane, and a quarter of the way round it to go; a sphere across. d >= 2."""

    def fun(w: Array) -> Array:
        radius = (w[..., 0] ** 2 + w[..., 1] ** 2) ** 0.5
        inside = (radius >= 1) & (radius <= OUTER)
        return where(inside, OUTER + w[..., 0] + 0.5 * (w[..., 2:] ** 2).sum(-1))

    start = np.r_[0.0, (1 + OUTER) / 2, np.ones(d - 2)]
    return _framed(name, fun, start, 0.3, np.r_[-OUTER, np.zeros(d - 1)], seed)


def _framed(
    name: str, fun: Callable[[Array], Array], start: Array, sigma0: float, optimum: Array, seed: list[int]
) -> Problem:
    """A problem written in w, as the search sees it."""
    d = len(start)
    frame, shift = random_rotation(d, [*seed, 0]), np.random.default_rng([*seed, 1]).standard_normal(d)

    def seen(x: Array) -> Array:
        return fun((x - shift) @ frame.T)

    # Towards the start by a hair, for the rounding of the two changes of coordinates.
    inside = optimum + 1e-14 * (start - optimum)
    return Problem(name, seen, shift + frame.T @ start, sigma0, shift + frame.T @ inside)


def uncertain_edge(name: str, d: int, active: int) -> Problem:
    """`shifted-sphere-active`, whose evaluations near the edge fail by chance, the more often the nearer."""
    exact = problems.get("shifted-sphere-active", d=d, active=active)

    def told(x: Array, rng: np.random.Generator) -> Array:
        depth = x[:, :active].min(axis=1)
        fails = rng.random(len(x)) < AT_EDGE * np.clip(1 - depth / LAYER, 0, 1)
        return np.where(fails, np.inf, exact.fun(x))

    return Problem(name, exact.fun, exact.x0, exact.sigma0, exact.optimum, told=told)
