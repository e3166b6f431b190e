"""Runs of a COCO study, and their storage."""

from __future__ import annotations

import contextlib
import shutil
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes_bench.coco.methods import NOMAD_BUDGET, NOMAD_DIMENSIONS, WITH_VALUES, method_named
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
from fmnes_bench.peers import Finished
from fmnes_bench.trials import Store, open_folder, read_lines, versions

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
