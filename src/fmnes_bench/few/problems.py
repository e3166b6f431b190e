"""The problems of `fmnes bench few`: every suite under one form."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fmnes_bench
from fmnes.errors import ArgumentError
from fmnes_bench.coco import problems as coco
from fmnes_bench.few import formulas
from fmnes_bench.peers import Start
from fmnes_bench.search import suite as search

Array = NDArray[np.float64]


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
    fun, x0, lower, upper = formulas.make(case.problem, case.d, case.instance)
    start = _start(x0, np.full(case.d, formulas.SIGMA0), lower, upper, bounded=True)
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
def _boxed(make: Callable[[], formulas.Boxed], case: Case) -> Iterator[Problem]:
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


BOXED = {"hidden": formulas.HIDDEN, "boxes": formulas.BOXES}


def _own_dimensions(problems: dict[str, Callable[[], formulas.Boxed]]) -> dict[str, int]:
    return {name: make().d for name, make in problems.items()}


def _in_box(case: Case) -> contextlib.AbstractContextManager[Problem]:
    return _boxed(BOXED[case.suite][case.problem], case)


SUITES: dict[str, Suite] = {
    "shared": Suite(list(formulas.FORMULAS), None, lambda name: 100, _shared),
    "bbob": Suite([f"f{i}" for i in range(1, 25)], None, lambda name: 200, _bbob),
    "search": Suite(
        [name for group in SEARCH_GROUPS for name in search.GROUPS[group]], None, lambda name: 100, _search
    ),
    "hidden": Suite(list(formulas.HIDDEN), _own_dimensions(formulas.HIDDEN), lambda name: 100, _in_box),
    "boxes": Suite(
        list(formulas.BOXES),
        _own_dimensions(formulas.BOXES),
        lambda name: BOX_EVALUATIONS // formulas.BOXES[name]().d,
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
