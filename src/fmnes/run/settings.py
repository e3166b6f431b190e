"""The settings of a run as plain data, and the worker count they imply."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from fmnes.arguments import check_count, check_flag, check_number, is_number, shown
from fmnes.errors import ArgumentError
from fmnes.evaluation.evaluator import Evaluator, choose_evaluator
from fmnes.evaluation.programs.command import Command
from fmnes.run.restarts import ORIGINS, check_restarts
from fmnes.search.optimizer import Optimizer
from fmnes.space import Space
from fmnes.storage.directory import KEPT
from fmnes.strategies.base import check_choice
from fmnes.version import __version__

# -- λ from the number of workers: `population_size="workers"`.


#: Beyond so many points for each dimension a larger λ saves no time (docs/benchmarks/scale.md).
MOST_PER_DIMENSION = 50


def population_for(workers: int, d: int, usual: int) -> int:
    """So many that each worker has a point, never fewer than usual; an even number."""
    size = max(usual, min(workers, MOST_PER_DIMENSION * d))
    return size + size % 2


def worker_count(workers: int, executor: Any, vectorized: bool) -> int:
    """How many evaluations are made at a time."""
    if vectorized:
        raise ArgumentError(
            'population_size: found "workers" together with vectorized, where there are none; wanted a number'
        )
    if executor is None:
        return cores() if workers == -1 else workers
    from fmnes.evaluation.executor import count_workers  # needed with an executor only

    found = count_workers(executor)
    if found is None:
        raise ArgumentError(
            f'population_size: found "workers" with {shown(executor)}, which does not say how many it has; '
            "wanted a number"
        )
    return found


def cores() -> int:
    """Those that this process may use, which a batch system may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# -- What a run is asked to do, as plain data: it is kept in the run directory, and `resume` reads it
# there.


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do besides the search itself; plain data, kept in the run directory."""

    max_evaluations: int | None
    max_seconds: float | None
    workers: int
    vectorized: bool
    timeout: float | None
    retries: int
    on_error: Literal["infeasible", "raise"]
    restarts: int | str
    target: float | None
    restart_from: str
    second_look: bool
    evaluate_start: bool

    def __post_init__(self) -> None:
        """The one check of these values: a run directory's are checked as a user's are."""

        def settle(name: str, value: Any) -> None:  # 1e4 as 10000, NumPy's True as True
            object.__setattr__(self, name, value)

        settle("max_evaluations", check_number("max_evaluations", self.max_evaluations, above=0, whole=True))
        for name in ("max_seconds", "timeout"):
            settle(name, check_number(name, getattr(self, name), above=0))
        settle("target", check_number("target", self.target))
        check_choice("on_error", self.on_error, ("infeasible", "raise"))
        settle("restarts", check_restarts(self.restarts))
        check_choice("restart_from", self.restart_from, ORIGINS)
        for name in ("vectorized", "second_look", "evaluate_start"):
            check_flag(name, getattr(self, name))
            settle(name, bool(getattr(self, name)))
        settle("retries", check_count("retries", self.retries, 0))
        if is_number(self.workers, whole=True) and self.workers == -1:
            settle("workers", -1)
        else:
            settle("workers", check_count("workers", self.workers, 1, ", or -1: one for each core"))

    def evaluator(
        self,
        fun: Any,
        executor: Any,
        d: int,
        run_dir: str | os.PathLike[str] | None = None,
        space: Space | None = None,
    ) -> Evaluator:
        """Whoever evaluates `fun`. What failed programs leave to be looked at goes into the run directory."""
        return choose_evaluator(
            fun,
            d,
            workers=cores() if self.workers == -1 else self.workers,
            timeout=self.timeout,
            retries=self.retries,
            executor=executor,
            vectorized=self.vectorized,
            on_error=self.on_error,
            kept_in=None if run_dir is None else os.path.join(os.path.abspath(run_dir), KEPT),
            space=space,
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def describe_objective(fun: Any) -> dict[str, Any]:
    """What the run directory remembers: enough to run a Command again, or to know a function."""
    if isinstance(fun, Command):
        fields = {k: v for k, v in asdict(fun).items() if k != "environment"}
        plain = {k: os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in fields.items()}
        # Only the names: values may be secrets.
        return {"kind": "command", **plain, "environment_names": sorted(fun.environment or {})}
    module = getattr(fun, "__module__", None)
    name = getattr(fun, "__qualname__", None) or type(fun).__qualname__
    return {"kind": "function", "module": module, "name": name}


def describe_search(opt: Optimizer) -> dict[str, Any]:
    """What the run directory tells of the search; a resume takes it from the snapshot instead."""
    return {
        "method": opt.strategy.name,
        "population_size": opt.population_size,
        "seed": None if opt.seed is None else str(opt.seed),  # more digits than JSON's readers keep
        "xtol": opt.xtol,
        "ftol": opt.ftol,
    }


def versions() -> dict[str, str]:
    """What a run is made with."""
    return {"fmnes": __version__, "numpy": np.__version__, "python": platform.python_version()}


def command_from(remembered: dict[str, Any]) -> Command:
    """The Command that a run directory remembers."""
    left_out = ("kind", "environment_names")
    return Command(**{name: value for name, value in remembered.items() if name not in left_out})
