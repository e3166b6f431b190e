"""The methods of a COCO study behind one call, one run of each, and the storage of runs.

A method is `method(fun, start, max_evaluations, seed)`. `fun` takes a point and returns a number, or NaN for
a failed evaluation; it raises `Finished` when the run is over. A method may return earlier. All restart with
twice the points when they have converged.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError, MissingExtra, nearest
from fmnes.run.minimize import minimize
from fmnes.strategies import METHODS as OURS
from fmnes_bench import constraints, peers
from fmnes_bench.coco.problems import (
    Case,
    Recorder,
    evaluate,
    observer_for,
    opened,
    optimal_value,
    seed_for,
    start_of,
)
from fmnes_bench.peers import Evaluate, Finished, Start
from fmnes_bench.trials import Store, open_folder, read_lines, versions

# -- The methods of fmnes and the peers behind one call.

Method = Callable[[Recorder, Start, int, int], None]

#: More restarts than any budget has room for: each needs twice the evaluations of the one before.
RESTARTS = 20
#: Of ours: the targets are closer to the optimum than the default tolerances.
TOLERANCE = 1e-12


def ours(
    fun: Recorder, start: Start, max_evaluations: int, seed: int, *, method: str, restarts: int | str
) -> None:
    options: dict[str, Any] = {"method": method, "restarts": restarts}
    if start.bounded:
        options["bounds"] = list(zip(start.lower.tolist(), start.upper.tolist(), strict=True))
    if start.integers.any():
        options["integers"] = start.integers
    minimize(
        points_of(fun),
        start.x0,
        start.sigma0,
        vectorized=True,
        max_evaluations=max_evaluations,
        rng=seed,
        xtol=TOLERANCE,
        ftol=TOLERANCE,
        **options,
    )


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
        evaluate,
        start._replace(bounded=True),
        max_evaluations,
        seed,
        restart_from_best=False,
        frame=False,
    )


#: Methods that are given the values of violated constraints.
WITH_VALUES = ("afm-nes-values", "afm-nes-models", "cma-al", "cobyqa", "de")
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
        raise ArgumentError(
            f"methods: found {name!r}, wanted some of {', '.join(known)}{nearest(name, known)}"
        )
    return functools.partial(ours, method=plain, restarts=RESTARTS if plain == name else "bipop")


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
