"""The problems of the search benchmark: active constraints, regions of failure, and their names."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes import problems
from fmnes.errors import ArgumentError, not_among
from fmnes.problems import random_rotation

# -- A problem of the benchmark.


Array = NDArray[np.float64]
Exact = Callable[[Array], Array]
Told = Callable[[Array, np.random.Generator], Array]


def generous(d: int) -> int:
    """Evaluations after which a run is cut: several times what the hardest problems need."""
    return 20_000 * (d + 1)


def where(inside: Any, values: Array) -> Array:
    """The values inside, +inf elsewhere; of NumPy or JAX."""
    chosen: Array = inside.__array_namespace__().where(inside, values, np.inf)
    return chosen


@dataclass(frozen=True, eq=False)
class Problem:
    """Something to minimise, with what there is to find. It is solved within `gap` of the minimum."""

    name: str
    fun: Exact = field(repr=False)
    """Values (n,) of points (n, d), without noise; +inf where the evaluation fails. JAX's arrays do, too."""
    x0: Array = field(repr=False)
    sigma0: float | Array
    optimum: Array = field(repr=False)
    minimum: float = 0.0
    gap: float = 1e-9
    bounds: tuple[Array, Array] | None = field(default=None, repr=False)
    told: Told | None = field(default=None, repr=False)
    """The noisy or randomly failing objective that a search gets in place of `fun`."""
    at_mean: bool = False
    """Judge the mean of the search distribution by `fun`, because values are noisy."""
    max_evaluations: int = 0
    """0: as many as is `generous`."""

    @property
    def d(self) -> int:
        return len(self.x0)

    @property
    def budget(self) -> int:
        return self.max_evaluations or generous(self.d)

    def gap_at(self, x: Array) -> float:
        """How far above the minimum the point x (d,) is."""
        return float(self.fun(x[None])[0]) - self.minimum


# -- Quadratics with active constraints, written around the minimum to avoid cancellation.
#
# y   x − x*, x* the optimum
# H   Hessian, (d, d)
# g   gradient at the optimum, (d,)
# f   ½ yᵀHy + gᵀy: 0 at the optimum, which is one if every feasible y has gᵀy >= 0


#: Eigenvalues of the Hessian, largest over smallest; of the separable one in the box, whose axes are known.
CONDITION, SEPARABLE_CONDITION = 1e3, 3.0


def geometric(condition: float, d: int) -> Array:
    """From 1 to the condition, in equal factors. (d,)"""
    return np.asarray(condition ** (np.arange(d) / max(d - 1, 1)))


def value(y: Array, axes: Array, curvatures: Array, g: Array) -> Array:
    """f (n,) at y (n, d), H = axesᵀ diag(curvatures) axes."""
    along = y @ axes.T
    f: Array = 0.5 * (along * along) @ curvatures + y @ g
    return f


def active_ellipsoid(name: str, d: int, active: int, seed: list[int]) -> Problem:
    """`active` planes in one random frame, the ellipsoid in another; beyond each plane it still falls."""
    axes, frame = random_rotation(d, [*seed, 0]), random_rotation(d, [*seed, 1])
    optimum = np.random.default_rng([*seed, 2]).standard_normal(d)
    normals = frame[:active]
    g = normals.sum(axis=0)
    curvatures = geometric(CONDITION, d)

    def fun(x: Array) -> Array:
        y = x - optimum
        inside = (y @ normals.T >= 0).all(-1)
        return where(inside, value(y, axes, curvatures, g))

    return Problem(name, fun, optimum + frame.T @ np.full(d, 3.0), 1.0, optimum)


def in_box(name: str, d: int, rotated: bool, seed: list[int]) -> Problem:
    """The unit box, with a centre that has about half of its coordinates outside."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(-0.5, 1.5, d)
    curvatures = rng.permutation(geometric(CONDITION if rotated else SEPARABLE_CONDITION, d))
    axes = random_rotation(d, [*seed, 0]) if rotated else np.eye(d)
    optimum, g = box_optimum(axes.T @ (curvatures[:, None] * axes), centre)
    return Problem(
        name,
        partial(_shifted, optimum=optimum, axes=axes, curvatures=curvatures, g=g),
        np.full(d, 0.5),
        0.25,
        optimum,
        gap=1e-8,
        bounds=(np.zeros(d), np.ones(d)),
    )


def _shifted(x: Array, optimum: Array, axes: Array, curvatures: Array, g: Array) -> Array:
    return value(x - optimum, axes, curvatures, g)


def box_optimum(hessian: Array, centre: Array) -> tuple[Array, Array]:
    """The least ½ (x − c)ᵀH(x − c) in the unit box: its x, and the gradient there, exactly 0 where x is free.

    Coordinate descent finds which bounds hold; with these the free coordinates are a linear system.
    """
    x = np.clip(centre, 0.0, 1.0)
    diagonal = np.diagonal(hessian)
    for _ in range(10_000):
        before = x.copy()
        for i in range(len(x)):
            x[i] = min(max(x[i] - hessian[i] @ (x - centre) / diagonal[i], 0.0), 1.0)
        if np.abs(x - before).max() < 1e-13:
            break
    free = (x > 0) & (x < 1)
    held = hessian[np.ix_(free, ~free)] @ (x - centre)[~free]
    x[free] = centre[free] - np.linalg.solve(hessian[np.ix_(free, free)], held)
    g = hessian @ (x - centre)
    g[free] = 0.0
    return x, g


# -- Regions of failure that are narrow, curved, or uncertain at their edge.
#
# w   coordinates in a random frame around a random point: w = Q (x − shift)


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


# -- The problems of the benchmark by name.

#: Standard deviation of the noise in f; how near the mean has to come, and how soon, for each coordinate.
NOISE, NOISE_GAP, NOISE_EVALUATIONS = 1.0, 0.1, 2000
#: The beam of `fmnes init`: density 100 and width 0.01 (their bounds), height³ = 0.0125 (the beam breaks).
BEAM_HEIGHT = 0.0125 ** (1 / 3)

#: The problems of the paper.
PAPER = tuple(
    before + name for before in ("", "ic-") for name in ("sphere", "ellipsoid", "rosenbrock", "cigar")
)

Make = Callable[[str, int, list[int]], Problem]


def half(d: int) -> int:
    return max(1, d // 2)


def _known(name: str, of: str, d: int, **parameters: Any) -> Problem:
    """One of `fmnes.problems`."""
    p = problems.get(of, d=d, **parameters)
    return Problem(name, p.fun, p.x0, p.sigma0, p.optimum, p.minimum)


def _plain(name: str, d: int, seed: list[int]) -> Problem:
    return _known(name, name, d)


def _published(name: str, d: int, seed: list[int]) -> Problem:
    """With the paper's own target."""
    return dataclasses.replace(_known(name, name.removeprefix("paper-"), d), gap=1e-10)


def _active(count: Callable[[int], int]) -> Make:
    return lambda name, d, seed: _known(name, "shifted-sphere-active", d, active=count(d))


def _rotated_active(count: Callable[[int], int]) -> Make:
    return lambda name, d, seed: _known(
        name, "rotated-shifted-sphere-active", d, active=count(d), rotation_seed=seed[-1]
    )


def _noisy(name: str, d: int, seed: list[int]) -> Problem:
    p = problems.get(name.removeprefix("noisy-"), d=d)

    def told(x: Array, rng: np.random.Generator) -> Array:
        return np.asarray(p.fun(x) + NOISE * rng.standard_normal(len(x)))

    judged: dict[str, Any] = {"gap": NOISE_GAP * d, "at_mean": True}
    return Problem(
        name, p.fun, p.x0, p.sigma0, p.optimum, told=told, max_evaluations=NOISE_EVALUATIONS * d, **judged
    )


def _beam(name: str, d: int, seed: list[int]) -> Problem:
    """What `fmnes init` writes: width, height and the logarithm of the density."""

    def fun(x: Array) -> Array:
        width, height, density = x[..., 0], x[..., 1], math.e ** x[..., 2]
        breaks = 500.0 / (2e7 * density**0.5 * width * height**3) > 0.02
        return where(~breaks & (width <= 4 * height), 2.0 * density * width * height)

    lower, upper = np.array([0.01, 0.01, math.log(100.0)]), np.array([1.0, 1.0, math.log(20000.0)])
    optimum = np.array([0.01, BEAM_HEIGHT * (1 + 1e-15), math.log(100.0)])
    minimum = 2.0 * 100.0 * 0.01 * BEAM_HEIGHT
    x0, sigma0 = np.array([0.3, 0.3, math.log(1000.0)]), np.array([0.1, 0.1, math.log(3.0)])
    return Problem(
        name, fun, x0, sigma0, optimum, minimum, 0.01 * minimum, (lower, upper), max_evaluations=3000
    )


GROUPS: dict[str, dict[str, Make]] = {
    "study": {
        **dict.fromkeys(PAPER, _plain),
        "active1": _active(lambda d: 1),
        "activeh": _active(half),
        "actived": _active(lambda d: d),
        "aell1": lambda name, d, seed: active_ellipsoid(name, d, 1, seed),
        "aellh": lambda name, d, seed: active_ellipsoid(name, d, half(d), seed),
        "slope": slope,
    },
    "paper": {f"paper-{name}": _published for name in PAPER},
    "box": {
        "box-separable": lambda name, d, seed: in_box(name, d, False, seed),
        "box-rotated": lambda name, d, seed: in_box(name, d, True, seed),
    },
    "rotated": {
        "rotated-active1": _rotated_active(lambda d: 1),
        "rotated-activeh": _rotated_active(half),
        "rotated-actived": _rotated_active(lambda d: d),
    },
    "regions": {
        "narrow": narrow,
        "wedge": wedge,
        "curved": curved,
        "uncertain1": lambda name, d, seed: uncertain_edge(name, d, 1),
        "uncertainh": lambda name, d, seed: uncertain_edge(name, d, half(d)),
    },
    "noise": dict.fromkeys(("noisy-sphere", "noisy-ellipsoid"), _noisy),
    "beam": {"beam": _beam},
}
PROBLEMS: dict[str, Make] = {name: make for group in GROUPS.values() for name, make in group.items()}
GROUP_OF = {name: group for group, made in GROUPS.items() for name in made}


def has(name: str, d: int) -> bool:
    """Is there such a problem at d? The beam has three parameters, the paper's problems have 40."""
    if name == "beam":
        return d == 3
    return d == 40 if GROUP_OF[name] == "paper" else d >= 2


def get(name: str, d: int, instance: int = 0) -> Problem:
    """The problem at d; what is random in its definition (rotations, centres) depends on the instance."""
    check_problem(name)
    if not has(name, d):
        raise ArgumentError(f"dimensions: found {d} for {name!r}, wanted {_dimension_of(name)}")
    return PROBLEMS[name](name, d, [zlib.crc32(name.encode()), d, instance])


def _dimension_of(name: str) -> str:
    return {"beam": "3", "paper": "40"}.get(GROUP_OF[name], ">= 2")


def check_problem(name: str) -> None:
    known = [*GROUPS, *PROBLEMS]
    if name not in PROBLEMS:
        raise not_among("problems", name, known, "some of")
