"""Types of what `minimize` and `Optimizer` take, for type checkers.

The options that every overload shares are written once, as TypedDicts. `tests/test_typing.py` compares them
with the signatures. Nothing here is imported when the package runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, SupportsFloat, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from fmnes.outcome import Outcome
from fmnes.result import Named, Vector
from fmnes.strategies import Resampling, Strategy

#: Outputs without names.
Listed: TypeAlias = Sequence[SupportsFloat] | np.ndarray[Any, Any]
#: What an objective may return: a number, None for a failed evaluation, or a number with outputs.
Returned: TypeAlias = SupportsFloat | Outcome | tuple[SupportsFloat | None, Mapping[str, Any] | Listed] | None
ArrayObjective: TypeAlias = Callable[[Vector], Returned]
NamedObjective: TypeAlias = Callable[[Named], Returned]
VectorizedObjective: TypeAlias = Callable[[Vector], ArrayLike]
VectorizedNamedObjective: TypeAlias = Callable[[dict[str, np.ndarray[Any, Any]]], ArrayLike]


class SearchOptions(TypedDict, total=False):
    """What `minimize` and `Optimizer` take of any search."""

    method: str | Strategy | Resampling
    bounds_as: Literal["map", "failure"]
    target: float | None
    max_evaluations: int | None
    xtol: float | None
    ftol: float | None
    rng: int | np.random.Generator | None
    known: Any
    covariance: ArrayLike | None
    constraints: Any
    overlap: float
    noise: Literal["auto"] | bool


class OptimizerOptions(SearchOptions, total=False):
    """What `Optimizer` takes of any search."""

    surrogate: bool
    batch_size: int


class RunOptions(SearchOptions, total=False):
    """What `minimize` takes of any search."""

    population_size: int | Literal["workers"] | None
    max_seconds: float | None
    workers: int
    executor: Any
    timeout: float | None
    retries: int
    on_error: Literal["infeasible", "raise"]
    restarts: int | Literal["bipop"]
    restart_from: Literal["start", "best", "uniform"] | None
    second_look: bool
    evaluate_start: bool
    keep_evaluations: bool
    surrogate: Literal["auto"] | bool
    run_dir: str | os.PathLike[str] | None
    progress: bool
