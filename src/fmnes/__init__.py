"""Optimise functions whose evaluation may fail.

    import fmnes
    result = fmnes.minimize(simulate, x0, sigma0)

FM-NES (Nomura & Ono 2021) and the methods it is compared with, made usable on real simulations.
"""

from fmnes import plots, problems
from fmnes.bounds import Bounds
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
from fmnes.outcome import LOST
from fmnes.parameters import Integer, Real
from fmnes.records.table import Evaluations
from fmnes.result import Failure, Result, StopReason, View
from fmnes.run.minimize import minimize
from fmnes.run.reading import Run, read_run
from fmnes.run.resume import resume
from fmnes.search.optimizer import Optimizer
from fmnes.strategies import AFMNES, CMAES, CRFMNES, DXNESIC, FMNES, XNES, Resampling
from fmnes.version import __version__ as __version__

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
    "Command",
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
    "minimize",
    "plots",
    "problems",
    "read_run",
    "resume",
]
