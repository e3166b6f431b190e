"""The problems of `fmnes bench few`: formulas, and every suite under one form."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fmnes_bench
from fmnes.errors import ArgumentError
from fmnes_bench.coco import runs as coco
from fmnes_bench.peers import Start
from fmnes_bench.search import suite as search

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


# -- Every suite under one form.


class Case(NamedTuple):
    """One problem of a suite."""

    suite: str
    problem: str
    d: int
    instance: int


class Problem(NamedTuple):
    """What is minimised, what a method knows of it, and what its regret is measured by."""

    fun: Callable[[Array], float]
    """The value of a point (d,), NaN where the evaluation fails."""
    start: Start
    optimum: float
    scale: float
    """The value at the start (where there is none, the median of working points) less the optimum."""


class Suite(NamedTuple):
    names: Sequence[str]
    dimensions: dict[str, int] | None
    """Of each problem; None where they can be chosen."""
    budget: Callable[[str], int]
    """Multiples of d, unless another number is asked for."""
    open: Callable[[Case], contextlib.AbstractContextManager[Problem]]


DIMENSIONS = (2, 3, 5, 10, 20)
#: Evaluations in the boxes with a small working part.
BOX_EVALUATIONS = 4000
#: The groups of `fmnes bench search` in which evaluations fail.
SEARCH_GROUPS = ("study", "regions", "rotated")
REAL = {"lens": 10, "double-gauss": 19, "airfoil": 8, "op-amp": 8}


@contextlib.contextmanager
def _shared(case: Case) -> Iterator[Problem]:
    fun, x0, lower, upper = make(case.problem, case.d, case.instance)
    start = _start(x0, np.full(case.d, SIGMA0), lower, upper, bounded=True)
    yield Problem(fun, start, 0.0, fun(x0))


@contextlib.contextmanager
def _bbob(case: Case) -> Iterator[Problem]:
    """COCO's functions, with the start and the first steps of `fmnes bench coco`."""
    opened = coco.Case("bbob", int(case.problem.removeprefix("f")), case.instance, case.d)
    optimum = coco.optimal_value(opened)
    with coco.opened(opened) as problem:
        start = coco.start_of(opened, problem)
        value = float(problem(start.x0))
        yield Problem(lambda x: float(problem(x)), start, optimum, value - optimum)


@contextlib.contextmanager
def _search(case: Case) -> Iterator[Problem]:
    """The problems have no box; for methods that need one it reaches well beyond start and optimum."""
    made = search.get(case.problem, case.d, case.instance)
    rng = np.random.default_rng(coco.seed_for(*case))
    told = made.told

    def fun(x: Array) -> float:
        values = made.fun(x[None]) if told is None else told(x[None], rng)
        return float(values[0]) if np.isfinite(values[0]) else np.nan

    sigma0 = np.broadcast_to(made.sigma0, made.d).astype(float)
    reach = np.maximum(10 * sigma0, 2 * np.abs(made.optimum - made.x0).max())
    start = _start(made.x0, sigma0, made.x0 - reach, made.x0 + reach, bounded=False)
    yield Problem(fun, start, made.minimum, made.gap_at(made.x0))


@contextlib.contextmanager
def _boxed(make: Callable[[], Boxed], case: Case) -> Iterator[Problem]:
    """A box without a start: peers get the centre, and a quarter of the width as first steps."""
    made = make()
    lower, upper = np.full(made.d, made.lower), np.full(made.d, made.upper)
    start = _start((lower + upper) / 2, (upper - lower) / 4, lower, upper, bounded=True, known=False)
    yield Problem(made.fun, start, made.optimum, _middle(case.suite, case.problem) - made.optimum)


@functools.cache
def _middle(suite: str, name: str) -> float:
    """The median value of 100 uniformly random points that work."""
    made = BOXED[suite][name]()
    rng = np.random.default_rng(0)
    values: list[float] = []
    while len(values) < 100:
        value = made.fun(rng.uniform(made.lower, made.upper, made.d))
        values += [value] if np.isfinite(value) else []
    return float(np.median(values))


@contextlib.contextmanager
def _real(case: Case) -> Iterator[Problem]:
    """The real problems of `benchmarks/real`. Their optimum is unknown, so it counts as 0."""
    tasks = _tasks()
    counted = tasks.Counted(tasks.TASKS[case.problem]())

    def fun(x: Array) -> float:
        counted.left = 1
        value = float(counted(x[None])[0])
        return value if np.isfinite(value) else np.nan

    start = _start(counted.x0, counted.sigma0, counted.lower, counted.upper, bounded=True)
    yield Problem(fun, start, 0.0, fun(start.x0))


def _tasks() -> Any:
    """Import `benchmarks.real.tasks`, which the repository has and the package has not."""
    root = Path(fmnes_bench.__file__).parents[2]
    if not (root / "benchmarks" / "real").is_dir():
        raise ArgumentError("suite: 'real' needs a checkout of the repository with its folder benchmarks")
    if str(root) not in sys.path:
        sys.path.append(str(root))
    import importlib

    return importlib.import_module("benchmarks.real.tasks")


def _start(
    x0: Array, sigma0: Array, lower: Array, upper: Array, *, bounded: bool, known: bool = True
) -> Start:
    return Start(x0, sigma0, lower, upper, bounded, np.zeros(len(x0), dtype=bool), known)


BOXED = {"hidden": HIDDEN, "boxes": BOXES}


def _own_dimensions(problems: dict[str, Callable[[], Boxed]]) -> dict[str, int]:
    return {name: make().d for name, make in problems.items()}


def _in_box(case: Case) -> contextlib.AbstractContextManager[Problem]:
    return _boxed(BOXED[case.suite][case.problem], case)


SUITES: dict[str, Suite] = {
    "shared": Suite(list(FORMULAS), None, lambda name: 100, _shared),
    "bbob": Suite([f"f{i}" for i in range(1, 25)], None, lambda name: 200, _bbob),
    "search": Suite(
        [name for group in SEARCH_GROUPS for name in search.GROUPS[group]], None, lambda name: 100, _search
    ),
    "hidden": Suite(list(HIDDEN), _own_dimensions(HIDDEN), lambda name: 100, _in_box),
    "boxes": Suite(
        list(BOXES),
        _own_dimensions(BOXES),
        lambda name: BOX_EVALUATIONS // BOXES[name]().d,
        _in_box,
    ),
    "real": Suite(list(REAL), REAL, lambda name: 50, _real),
}


def open_problem(case: Case) -> contextlib.AbstractContextManager[Problem]:
    """The problem of a case; it is valid inside the `with` block."""
    return SUITES[case.suite].open(case)


def cases_of(suite: str, dimensions: Sequence[int], instances: Sequence[int]) -> list[Case]:
    """All problems of a suite. `dimensions` has no effect on problems that have only one."""
    known = SUITES[suite]
    return [
        Case(suite, name, d, instance)
        for name in known.names
        for d in (dimensions if known.dimensions is None else [known.dimensions[name]])
        for instance in instances
    ]
