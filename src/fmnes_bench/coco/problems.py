"""COCO's problems, and the runtimes measured on them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import MissingExtra
from fmnes_bench.peers import Finished, Start

# -- Runtimes: the evaluation at which each of 51 targets was first reached, and the area under their curve.
#
# A target is a distance to the optimal value, f − f_opt ≤ 10^2 … 10^-8, five per decade. Failed evaluations
# count. The runtime curve is the share of (problem, target) pairs reached within a number of evaluations.

TARGETS: tuple[float, ...] = tuple(10 ** (2 - i / 5) for i in range(51))


class Recorder:
    """The objective as every method sees it: a number, or NaN where the evaluation failed."""

    def __init__(
        self,
        fun: Callable[[NDArray[np.float64]], float],
        optimum: float,
        max_evaluations: int,
        limits: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    ) -> None:
        """limits: the numbers g ≤ 0 of a point, for methods that call `both`."""
        self._fun, self._limits = fun, limits
        m = 0 if limits is None else len(limits(np.zeros(0)))
        self.equality, self.tolerances = np.zeros(m, dtype=bool), np.zeros(m)
        self._optimum = optimum
        self._left = max_evaluations
        self.evaluations = 0
        self.failed = 0
        self.best = np.inf
        """The least f − f_opt so far."""
        self.hits: list[int] = []
        """The evaluation at which each target was first reached; the targets that were not are left out."""

    @property
    def finished(self) -> bool:
        return self._left <= 0 or len(self.hits) == len(TARGETS)

    def __call__(self, x: Any) -> float:
        if self.finished:
            raise Finished
        self._left -= 1
        self.evaluations += 1
        value = self._fun(np.asarray(x, dtype=float))
        if not np.isfinite(value):
            self.failed += 1
            return np.nan
        self._note(value)
        return value

    def both(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """f and the numbers g of one evaluation; a violated point counts as failed here only."""
        assert self._limits is not None
        if self.finished:
            raise Finished
        self._left -= 1
        self.evaluations += 1
        x = np.asarray(x, dtype=float)
        value, g = self._fun(x), np.asarray(self._limits(x), dtype=float)
        if (g > 0).any():
            self.failed += 1
        else:
            self._note(value)
        return value, g

    def _note(self, value: float) -> None:
        if value - self._optimum < self.best:
            self.best = value - self._optimum
            while len(self.hits) < len(TARGETS) and self.best <= TARGETS[len(self.hits)]:
                self.hits.append(self.evaluations)


def area(hits: Sequence[int], d: int, budget: int) -> float:
    """The area under the runtime curve of one run, between 0 (no target reached) and 1 (all at once).

    The axis is the logarithm of evaluations per dimension, from 1 to `budget`. A target that was reached at
    evaluation t fills what is right of it, 1 − ln(t/d) / ln(budget), where t < d counts as d; one that was
    not reached within the budget fills nothing.
    """
    t = np.asarray(hits, dtype=float) / d
    return float(np.clip(1 - np.log(t) / np.log(budget), 0, 1).sum() / len(TARGETS))


# -- COCO's problems, opened one at a time: what is evaluated, where to start, and what the best value is.


#: The file into which COCO writes where an optimum lies: in the current directory, whatever one says.
BEST_PARAMETER = "._bbob_problem_best_parameter.txt"

BBOB_GROUPS = {
    "separable": range(1, 6),
    "moderate": range(6, 10),
    "ill-conditioned": range(10, 15),
    "multimodal": range(15, 20),
    "weakly structured": range(20, 25),
}
#: Nine functions, each with 1 to 6 + 3 d active constraints and half as many inactive ones.
CONSTRAINED_GROUPS = {
    name: range(6 * i + 1, 6 * i + 7)
    for i, name in enumerate(
        (
            "sphere",
            "separable ellipsoid",
            "linear slope",
            "rotated ellipsoid",
            "discus",
            "bent cigar",
            "different powers",
            "separable Rastrigin",
            "rotated Rastrigin",
        )
    )
}


class Suite(NamedTuple):
    dimensions: tuple[int, ...]
    groups: dict[str, range]
    """Functions that are alike, by name."""
    budget: int
    """Evaluations per dimension, unless another number is asked for."""

    @property
    def functions(self) -> list[int]:
        return [function for group in self.groups.values() for function in group]


SUITES = {
    "bbob": Suite((2, 3, 5, 10, 20, 40), BBOB_GROUPS, 2000),
    "bbob-constrained": Suite((2, 3, 5, 10, 20, 40), CONSTRAINED_GROUPS, 1000),
    "bbob-mixint": Suite((5, 10, 20, 40, 80, 160), BBOB_GROUPS, 2000),
}


class Case(NamedTuple):
    """One problem of a suite."""

    suite: str
    function: int
    instance: int
    dimension: int


def package() -> Any:
    try:
        import cocoex
    except ImportError:
        raise MissingExtra("COCO", "coco") from None
    cocoex.log_level("warning")  # otherwise it prints the folder of its data
    return cocoex


@contextlib.contextmanager
def opened(case: Case, observer: Any = None) -> Iterator[Any]:
    """COCO's problem object, which serves one run because it counts evaluations."""
    instances = f"instances: {case.instance}"
    chosen = f"dimensions: {case.dimension} function_indices: {case.function}"
    suite = package().Suite(case.suite, instances, chosen)  # it must live as long as its problem
    problem = suite.get_problem(0, observer)
    try:
        yield problem
    finally:
        problem.free()


def evaluate(problem: Any, x: NDArray[np.float64]) -> float:
    """The value, or NaN if a constraint is violated.

    f is evaluated in both cases, so that COCO counts each call as one evaluation.
    """
    failed = problem.number_of_constraints and (problem.constraint(x) > 0).any()
    value = float(problem(x))
    return np.nan if failed else value


def optimal_value(case: Case) -> float:
    """f_opt: the value at the optimum that COCO built the problem around.

    COCO gives the point for every suite, but the value only for `bbob`. Asking makes a problem unusable for a
    search, so this opens a separate one.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), opened(case) as problem:
        problem._best_parameter("print")
        return float(problem(np.loadtxt(BEST_PARAMETER, ndmin=1)))


def start_of(case: Case, problem: Any) -> Start:
    """On `bbob` anywhere in [-4, 4]^d, elsewhere where COCO proposes; steps of a fifth of the width."""
    lower, upper = np.array(problem.lower_bounds), np.array(problem.upper_bounds)
    x0 = np.array(problem.initial_solution, dtype=float)
    if case.suite == "bbob":
        x0 = np.random.default_rng(seed_for(*case)).uniform(-4, 4, case.dimension)
    integers = np.arange(case.dimension) < problem.number_of_integer_variables
    return Start(x0, (upper - lower) / 5, lower, upper, case.suite == "bbob-mixint", integers)


def seed_for(*name: str | int) -> int:
    """The seed that belongs to a name, such as that of a problem."""
    return zlib.crc32("/".join(map(str, name)).encode())


def observer_for(case: Case, method: str, folder: str) -> Any:
    """Writes what `cocopp` reads, into a new folder of this run."""
    options = f'outer_folder: "{os.path.dirname(folder)}" result_folder: "{os.path.basename(folder)}" '
    return package().Observer(case.suite, options + f"algorithm_name: {method}")
