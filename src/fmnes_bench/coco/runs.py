"""COCO's problems, the methods of a study behind one call, one run of each, and the storage of runs.

A method is `method(fun, start, max_evaluations, seed)`. `fun` takes a point and returns a number, or NaN for
a failed evaluation; it raises `Finished` when the run is over. A method may return earlier. All restart with
twice the points when they have converged.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError, MissingExtra, not_among
from fmnes.strategies import METHODS as OURS
from fmnes_bench import constraints, peers
from fmnes_bench.peers import Evaluate, Finished, Start
from fmnes_bench.trials import Store, open_folder, read_lines, versions

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


# -- The methods of fmnes and the peers behind one call.

Method = Callable[[Recorder, Start, int, int], None]


def ours(
    fun: Recorder, start: Start, max_evaluations: int, seed: int, *, method: str, restarts: int | str
) -> None:
    options = {"method": method, "restarts": restarts, "vectorized": True}
    peers.ours(points_of(fun), start, max_evaluations, seed, **options)


def points_of(fun: Recorder) -> Evaluate:
    """The recorder as the peers call it: many points at once."""
    return lambda points: np.array([fun(x) for x in points])


def theirs(fun: Recorder, start: Start, max_evaluations: int, seed: int, *, name: str) -> None:
    run = nomad if name == "nomad" else peers.PEERS[name].run
    try:
        peers.load(name)
    except ImportError as error:
        if name == "nomad":
            raise ArgumentError(
                "methods: found 'nomad', wanted its package: pip install PyNomadBBO"
            ) from None
        raise MissingExtra(error.name or name, "coco") from None
    run(points_of(fun), start, max_evaluations, seed)


def nomad(evaluate: Evaluate, start: Start, max_evaluations: int, seed: int) -> None:
    """NOMAD in the region of interest with its own first frame, restarted with another seed."""
    peers.nomad_until_finished(
        evaluate, start._replace(bounded=True), max_evaluations, seed, restart_from_best=False, frame=False
    )


#: Methods that are given the values of violated constraints.
WITH_VALUES = ("afm-nes-values", "afm-nes-plain", "cma-al", "cobyqa", "de")
PEERS = ("cma-ipop", "cma-bipop", "cmawm", "nomad", "random")
#: NOMAD is for few parameters and few evaluations: its models cost milliseconds an evaluation at d = 5.
NOMAD_DIMENSIONS, NOMAD_BUDGET = 10, 500


def method_named(name: str) -> Method:
    """A method of `minimize` by name, with "-bipop" appended for BIPOP restarts, or a peer."""
    if name in WITH_VALUES:
        return cast(Method, constraints.METHODS[name])
    if name in PEERS:
        return functools.partial(theirs, name=name)
    plain = name.removesuffix("-bipop")
    if plain not in OURS:
        known = [*OURS, *(f"{ours}-bipop" for ours in OURS), *PEERS, *WITH_VALUES]
        raise not_among("methods", name, known, "some of")
    return functools.partial(ours, method=plain, restarts=peers.RESTARTS if plain == name else "bipop")


def check_method(name: str, suite: str) -> None:
    """Try one evaluation, so that a missing package or an unsupported suite is reported before any run."""
    if name in WITH_VALUES:
        if suite != "bbob-constrained":
            raise ArgumentError(f"methods: found {name!r} on {suite}, wanted it on bbob-constrained")
        return constraints.check_methods([name])
    d, mixed = 4, suite == "bbob-mixint"
    start = Start(
        np.ones(d), np.ones(d), np.full(d, -5.0), np.full(d, 5.0), mixed, np.arange(d) < (2 if mixed else 0)
    )
    try:
        method_named(name)(Recorder(lambda x: 1.0, 0.0, 1), start, 1, 1)
    except Finished:
        pass
    except ArgumentError as error:
        raise ArgumentError(f"methods: found {name!r}, which cannot run {suite}: {error}") from None


# -- One run: one method on one problem, until the last target or the end of its budget.


class Job(NamedTuple):
    """One run to make; the key of its result."""

    case: Case
    method: str
    budget: int
    """Evaluations per dimension."""

    @property
    def max_evaluations(self) -> int:
        return self.budget * self.case.dimension


class Run(NamedTuple):
    job: Job
    evaluations: int
    failed: int
    best: float
    """The least f − f_opt; inf if every evaluation failed."""
    seconds: float
    hits: tuple[int, ...]
    """The evaluation at which each target was first reached, the easiest first, as far as it got."""


def jobs_for(cases: Sequence[Case], methods: Sequence[str], budget: int) -> list[Job]:
    jobs = [Job(case, method, budget) for case in cases for method in methods if method != "nomad"]
    few = [case for case in cases if case.dimension <= NOMAD_DIMENSIONS]
    return jobs + [Job(case, "nomad", min(budget, NOMAD_BUDGET)) for case in few if "nomad" in methods]


def run_job(case: Case, method: str, budget: int, data: Path | None = None) -> Run:
    """data: a folder for what `cocopp` reads, a folder in it for each method and each run."""
    job, observer = Job(case, method, budget), None
    if data is not None:
        name = f"{case.suite}_f{case.function:03}_i{case.instance:02}_d{case.dimension:02}_{budget}"
        folder = data / method / name
        shutil.rmtree(folder, ignore_errors=True)  # of an unfinished run
        observer = observer_for(case, method, str(folder.absolute()))
    search = method_named(method)
    seed = seed_for(*case, method)
    optimum = optimal_value(case)
    started = time.perf_counter()
    with opened(case, observer) as problem, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the peers warn about failed values
        fun = recorder(problem, method, optimum, job.max_evaluations)
        with contextlib.suppress(Finished):
            search(fun, start_of(case, problem), job.max_evaluations, seed)
    seconds = time.perf_counter() - started
    return Run(job, fun.evaluations, fun.failed, fun.best, seconds, tuple(fun.hits))


def recorder(problem: Any, method: str, optimum: float, max_evaluations: int) -> Recorder:
    """The problem as this method sees it: violated points have failed, or their values are reported."""
    if method not in WITH_VALUES:
        return Recorder(lambda x: evaluate(problem, x), optimum, max_evaluations)
    m = problem.number_of_constraints

    def limits(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(problem.constraint(x)) if len(x) else np.zeros(m)

    return Recorder(lambda x: float(problem(x)), optimum, max_evaluations, limits)


# -- The folder of a study: runs.csv with one line per run, and configuration.json.

HEADER = "suite,function,instance,dimension,method,budget,evaluations,failed,best,seconds,hits"
CONFIGURATION = {"format": "fmnes-coco", "version": 1}
PACKAGES = ("coco-experiment", "cma", "cmaes", "PyNomadBBO")


def open_store(folder: Path) -> Store[Job, Run]:
    open_folder(folder, CONFIGURATION, **versions(*PACKAGES))
    path = folder / "runs.csv"
    return Store(
        path, HEADER, read=lambda: read_lines(path, HEADER, _run), key=lambda run: run.job, line=_line
    )


def _line(run: Run) -> str:
    counts = f"{run.evaluations},{run.failed},{run.best:.3g},{run.seconds:.3g}"
    hits = " ".join(map(str, run.hits))
    return f"{','.join(map(str, run.job.case))},{run.job.method},{run.job.budget},{counts},{hits}"


def _run(fields: list[str]) -> Run:
    suite, function, instance, dimension, method, budget, evaluations, failed, best, seconds, hits = fields
    case = Case(suite, int(function), int(instance), int(dimension))
    counts = (int(evaluations), int(failed), float(best), float(seconds))
    return Run(Job(case, method, int(budget)), *counts, tuple(map(int, hits.split())))
