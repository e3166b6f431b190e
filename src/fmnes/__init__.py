"""Optimise functions whose evaluation may fail.

    import fmnes
    result = fmnes.minimize(simulate, x0, sigma0)

FM-NES (Nomura & Ono 2021) and the methods it is compared with, made usable on real simulations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fmnes.version import __version__ as __version__

if TYPE_CHECKING:
    from fmnes import plots, problems
    from fmnes.analysis.explanation import explain
    from fmnes.bounds import Bounds
    from fmnes.constraints import Constraint
    from fmnes.errors import (
        ArgumentError,
        FmnesError,
        Infeasible,
        Lost,
        MissingExtra,
        ObjectiveError,
        RunError,
        SnapshotError,
        UsageError,
    )
    from fmnes.evaluation.programs.command import Command
    from fmnes.evaluation.queue.file_queue import FileQueue
    from fmnes.evaluations import Evaluations
    from fmnes.outcome import LOST
    from fmnes.parameters import Categorical, Integer, Real
    from fmnes.pareto import trade_off
    from fmnes.reading.run import Run, read_run
    from fmnes.result import Failure, Result, StopReason, View
    from fmnes.run.minimize import minimize
    from fmnes.run.resume import resume
    from fmnes.search.optimizer import Optimizer
    from fmnes.strategies import AFMNES, CMAES, CRFMNES, DXNESIC, FMNES, XNES, Resampling

__all__ = [
    "AFMNES",
    "CMAES",
    "CRFMNES",
    "DXNESIC",
    "FMNES",
    "LOST",
    "XNES",
    "ArgumentError",
    "Bounds",
    "Categorical",
    "Command",
    "Constraint",
    "Evaluations",
    "Failure",
    "FileQueue",
    "FmnesError",
    "Infeasible",
    "Integer",
    "Lost",
    "MissingExtra",
    "ObjectiveError",
    "Optimizer",
    "Real",
    "Resampling",
    "Result",
    "Run",
    "RunError",
    "SnapshotError",
    "StopReason",
    "UsageError",
    "View",
    "explain",
    "minimize",
    "plots",
    "problems",
    "read_run",
    "resume",
    "trade_off",
]

#: Where they are. Each is loaded when it is first asked for: a worker process, a task on a cluster and
#: `fmnes --version` then load what they need and no more.
_HOMES = {
    "analysis.explanation": "explain",
    "bounds": "Bounds",
    "constraints": "Constraint",
    "errors": "ArgumentError FmnesError Infeasible Lost MissingExtra ObjectiveError RunError SnapshotError "
    "UsageError",
    "evaluation.programs.command": "Command",
    "evaluation.queue.file_queue": "FileQueue",
    "outcome": "LOST",
    "parameters": "Categorical Integer Real",
    "evaluations": "Evaluations",
    "result": "Failure Result StopReason View",
    "run.minimize": "minimize",
    "reading.run": "Run read_run",
    "run.resume": "resume",
    "pareto": "trade_off",
    "search.optimizer": "Optimizer",
    "strategies": "AFMNES CMAES CRFMNES DXNESIC FMNES Resampling XNES",
}

if not TYPE_CHECKING:  # to a type checker, a `__getattr__` means that there is every name

    def __getattr__(name: str) -> Any:
        if name in ("plots", "problems"):
            return import_module(f"fmnes.{name}")
        for module, names in _HOMES.items():
            if name in names.split():
                globals()[name] = value = getattr(import_module(f"fmnes.{module}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]
