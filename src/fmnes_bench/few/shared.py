"""Twelve problems for few evaluations: smooth, ill-conditioned, curved, on edges, in corners, bumpy.

Each has a start that works, a box, and a random instance. Their optimum is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Formula(NamedTuple):
    """An objective, where it works, and where a search starts."""

    value: Callable[[Array], float]
    works: Callable[[Array], bool]
    x0: Array


class Draws(NamedTuple):
    """What an instance draws first: the centre c, a rotation Q, and the generator for the rest."""

    d: int
    rng: np.random.Generator
    c: Array
    Q: Array

    @property
    def half(self) -> int:
        return max(1, self.d // 2)


#: All first steps are this long; the box is [-5, 5]^d, wider where the start needs it.
SIGMA0, REACH = 1.25, 5.0


def make(name: str, d: int, instance: int) -> tuple[Callable[[Array], float], Array, Array, Array]:
    """The objective (NaN where it fails), the start, and the bounds."""
    rng = np.random.default_rng([sum(map(ord, name)), d, instance])
    c = rng.uniform(-2, 2, d)
    formula = FORMULAS[name](Draws(d, rng, c, _rotation(rng, d)))
    x0 = formula.x0
    lower = np.minimum(np.full(d, -REACH), x0 - 0.5)
    upper = np.maximum(np.full(d, REACH), x0 + 0.5)

    def fun(x: Array) -> float:
        inside = (x >= lower - 1e-12).all() and (x <= upper + 1e-12).all()
        return float(formula.value(x)) if inside and formula.works(x) else math.nan

    return fun, x0, lower, upper


def _rotation(rng: np.random.Generator, d: int) -> Array:
    return np.asarray(np.linalg.qr(rng.normal(size=(d, d)))[0])


def _everywhere(x: Array) -> bool:
    return True


def _scales(condition: float, d: int) -> Array:
    """Square roots of the eigenvalues of a Hessian: from 1 to the condition in equal factors."""
    return np.asarray(condition ** (np.arange(d) / max(1, d - 1)))


def _square(y: Array) -> float:
    return float((y**2).sum())


def sphere(p: Draws) -> Formula:
    """Smooth and round."""
    return Formula(lambda x: _square(x - p.c), _everywhere, p.rng.uniform(-4, 4, p.d))


def rotated_ellipsoid(p: Draws) -> Formula:
    """Condition 1e4."""
    scales = _scales(100.0, p.d)
    return Formula(lambda x: _square(scales * (p.Q @ (x - p.c))), _everywhere, p.rng.uniform(-4, 4, p.d))


def rosenbrock(p: Draws) -> Formula:
    """A curved valley."""

    def value(x: Array) -> float:
        return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (x[:-1] - 1) ** 2).sum())

    return Formula(value, _everywhere, p.rng.uniform(-2, 0.5, p.d))


def corner(p: Draws) -> Formula:
    """A sphere; the optimum is the corner of the part that works."""
    return Formula(
        lambda x: _square(x - p.c), lambda x: bool((x >= p.c).all()), p.c + p.rng.uniform(1.5, 3, p.d)
    )


def _on_planes(count: Callable[[Draws], int]) -> Callable[[Draws], Formula]:
    def formula(p: Draws) -> Formula:
        """A sphere that still falls across each of `count` planes, on which the optimum lies."""
        normals = p.Q[: count(p)]
        g = normals.T @ p.rng.uniform(0.5, 2, len(normals))
        return Formula(
            lambda x: float(((x - p.c) ** 2).sum() + g @ (x - p.c)),
            lambda x: bool((normals @ (x - p.c) >= 0).all()),
            p.c + normals.T @ np.full(len(normals), 2.0),
        )

    return formula


def ellipsoid_on_planes(p: Draws) -> Formula:
    """The same with half as many planes as parameters, and an ellipsoid of condition 900."""
    normals = p.Q[: p.half]
    axes = _rotation(p.rng, p.d)
    scales = _scales(30.0, p.d)
    g = normals.T @ p.rng.uniform(0.5, 2, p.half) * 10
    return Formula(
        lambda x: float(((scales * (axes @ (x - p.c))) ** 2).sum() + g @ (x - p.c)),
        lambda x: bool((normals @ (x - p.c) >= 0).all()),
        p.c + normals.T @ np.full(p.half, 2.0),
    )


def linear_on_ball(p: Draws) -> Formula:
    """A curved edge."""
    g = p.rng.normal(size=p.d)
    g /= np.linalg.norm(g)
    return Formula(
        lambda x: float(g @ (x - p.c) + 3.0), lambda x: bool(((x - p.c) ** 2).sum() <= 9.0), p.c.copy()
    )


def corridor(p: Draws) -> Formula:
    """A sphere in a narrow curved corridor."""
    x0 = p.c.copy()
    x0[1] += 2.5
    x0[0] += 0.3 * 6.25
    x0[2:] += 1.5 if p.d > 2 else 0
    return Formula(
        lambda x: _square(x - p.c),
        lambda x: bool(abs((x[0] - p.c[0]) - 0.3 * (x[1] - p.c[1]) ** 2) < 0.25),
        x0,
    )


def bumpy(p: Draws) -> Formula:
    """A smooth trend with bumps, and a half space that fails."""
    return Formula(
        lambda x: float(((x - p.c) ** 2).sum() + 2 * (1 - np.cos(3 * (x - p.c))).sum()),
        lambda x: bool((x - p.c).sum() > -1.0),
        p.c + p.rng.uniform(1, 2.5, p.d),
    )


def log_cliff(p: Draws) -> Formula:
    """Values over many decades; fails where the first parameter is small."""
    return Formula(
        lambda x: math.exp(min(50.0, 0.8 * np.abs(p.Q @ (x - p.c)).sum())) - 1,
        lambda x: bool(x[0] >= p.c[0] - 0.5),
        p.c + p.rng.uniform(0.5, 2.5, p.d),
    )


def island(p: Draws) -> Formula:
    """Works only in a rotated box around the optimum, which lies near one of its corners."""
    w = p.rng.uniform(0.8, 3, p.d)
    return Formula(
        lambda x: float(((x - p.c) ** 2).sum() * (1 + 0.3 * np.sin(3 * x[0]))),
        lambda x: bool((np.abs(p.Q @ (x - p.c) - 0.6 * w) <= w).all()),
        p.c + p.Q.T @ (1.2 * w),
    )


FORMULAS: dict[str, Callable[[Draws], Formula]] = {
    "sphere": sphere,
    "rell": rotated_ellipsoid,
    "rosen": rosenbrock,
    "ic-sphere": corner,
    "active1": _on_planes(lambda p: 1),
    "activeh": _on_planes(lambda p: p.half),
    "aellh": ellipsoid_on_planes,
    "curved": linear_on_ball,
    "narrow": corridor,
    "bumpy": bumpy,
    "logcliff": log_cliff,
    "island": island,
}
