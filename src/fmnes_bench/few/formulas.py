"""The formulas of the problems for few evaluations: twelve shared ones, and those of the literature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# -- Twelve problems: smooth, ill-conditioned, curved, on edges, in corners, bumpy.
#
# Each has a start that works, a box, and a random instance. Their optimum is 0.


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


# -- Problems with hidden constraints from the literature, and boxes with a small working part.
#
# Sources: Gelbart, Snoek & Adams 2014 (arXiv:1403.5607); Müller & Day 2019 (10.1287/ijoc.2018.0864), test
# problems 1, 2 and 8, all as Bussemaker et al. 2025 use them (8 has a larger working part than the original).
# There is a box and no start. Every optimum is known.


class Boxed(NamedTuple):
    """An objective in a box; `optimum` is the infimum of its values, `at` a point where it is approached."""

    d: int
    value: Callable[[Array], float]
    works: Callable[[Array], bool]
    lower: float
    upper: float
    optimum: float
    at: Array

    def fun(self, x: Array) -> float:
        """The value, NaN where the evaluation fails."""
        inside = (x >= self.lower).all() and (x <= self.upper).all()
        return self.value(x) if inside and self.works(x) else math.nan


def _branin(x: Array) -> float:
    """The Branin function, on the unit square."""
    a, b = 15 * x[0] - 5, 15 * x[1]
    bowl = b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6
    return float(bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10)


def gelbart() -> Boxed:
    """Branin, which fails outside of a disk that holds one of its three minima."""
    at = np.array([(math.pi + 5) / 15, 2.275 / 15])
    return Boxed(2, _branin, lambda x: bool(((x - 0.5) ** 2).sum() <= 0.22), 0.0, 1.0, 10 / (8 * math.pi), at)


def _ackley(x: Array) -> float:
    near = 20 * math.exp(-0.2 * math.sqrt((x**2).mean()))
    return float(20 + math.e - near - math.exp(np.cos(2 * math.pi * x).mean()))


def muller_1() -> Boxed:
    """Ackley's function; failing slabs |x_i| <= 0.2, and several failing regions. 30 % of the box works."""
    at = np.array([-3.0672590717752857, -0.2, -0.2, -0.2, -0.2])

    def works(x: Array) -> bool:
        return bool((np.abs(x) > 0.2).all() and (x * (np.sin(x) + 0.1)).sum() <= 0)

    return Boxed(5, _ackley, works, -10.0, 10.0, 6.015470941299117, at)


def _bird(x: Array) -> float:
    first = math.exp((1 - math.sin(x[0])) ** 2) * math.cos(x[1])
    second = math.exp((1 - math.cos(x[1])) ** 2) * math.sin(x[0])
    return float((x[0] - x[1]) ** 2 + first + second)


def muller_2() -> Boxed:
    """The bird function of two of four parameters, which all decide what fails. 63 % of the box works."""
    at = np.array([4.70104313, 3.15293848, 0.0, 0.0])

    def works(x: Array) -> bool:
        minus, plus = np.sqrt(np.abs(x[0] - x + 1)), np.sqrt(np.abs(x[0] + x + 1))
        terms = x * np.sin(minus) * np.cos(plus) + (x[0] + 1) * np.sin(plus) * np.cos(minus)
        return bool(terms.sum() <= 5)

    return Boxed(4, _bird, works, -3 * math.pi, 3 * math.pi, -106.76453674926479, at)


def muller_8() -> Boxed:
    """Sums of sines with many minima in each of ten parameters. 27 % of the box works."""
    j = np.arange(1, 6)[:, None]

    def value(x: Array) -> float:
        return float((j * np.sin((j + 1) * x) + j).sum())

    def works(x: Array) -> bool:
        return bool((x**4 - 16 * x**2 + 5 * x).sum() <= 1000 * len(x))

    return Boxed(10, value, works, -10.0, 10.0, 10 * 1.1854674995377948, np.full(10, -0.3129087083790149))


def small_part(d: int, edge: float) -> Boxed:
    """A sphere in the unit box, which works only where every parameter is above `edge`."""
    at = np.full(d, edge + 0.1 * (1 - edge))
    return Boxed(
        d, lambda x: float(((x - at) ** 2).sum()), lambda x: bool(x.min() >= edge), 0.0, 1.0, 0.0, at
    )


HIDDEN: dict[str, Callable[[], Boxed]] = {
    "gelbart": gelbart,
    "muller-1": muller_1,
    "muller-2": muller_2,
    "muller-8": muller_8,
}
#: By the share of the box that works.
BOXES: dict[str, Callable[[], Boxed]] = {
    "0.1 %": lambda: small_part(3, 0.9),
    "0.24 %": lambda: small_part(5, 0.7),
    "1.6 %": lambda: small_part(3, 0.75),
}
