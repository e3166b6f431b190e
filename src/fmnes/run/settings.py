"""The configuration of a run (`config.json`): its settings, objective, search, versions and parameters."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from fmnes.arguments import check_choice, check_count, check_flag, check_number, is_number, shown
from fmnes.constraints import Limits
from fmnes.errors import ArgumentError, FmnesError, RunError
from fmnes.evaluation.evaluator import Evaluator
from fmnes.evaluation.objective import Objective, read_description
from fmnes.outcome import Outcome
from fmnes.parameters import Real
from fmnes.result import Named, Vector
from fmnes.space import Space, make_space
from fmnes.storage.directory import KEPT
from fmnes.strategies import DEFAULT_METHOD, Resampling, Strategy
from fmnes.version import __version__

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

BIPOP = "bipop"
ORIGINS = ("start", "best", "uniform")
#: The origin of restarts anywhere in a finite box, without restart_from.
BOX = "box"

# -- The population size for a number of workers: `population_size="workers"`

#: A larger population per dimension saves no time (docs/benchmarks/scale.md).
MOST_PER_DIMENSION = 50


def population_for(workers: int, d: int, usual: int) -> int:
    """One point per worker, at least `usual`, at most 50 d; an even number."""
    size = max(usual, min(workers, MOST_PER_DIMENSION * d))
    return size + size % 2


def worker_count(workers: int, executor: Any, vectorized: bool) -> int:
    """The number of evaluations that run at the same time."""
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


# -- Whether models save evaluations: `surrogate`

#: "auto" switches the models on up to this number of evaluations per dimension, and of dimensions.
FEW_EVALUATIONS, FEW_DIMENSIONS = 200, 40
#: Under limits models also take part in the first evaluations of a longer run: this number per dimension, and
#: up to this number of dimensions, so that they take seconds.
FIRST_EVALUATIONS, FIRST_DIMENSIONS = 50, 20


def evaluations_with_models(
    surrogate: Literal["auto"] | bool,
    settings: Settings,
    opt: Optimizer,
    *,
    program: bool,
    plain: bool,
) -> int | None:
    """In how many evaluations of the run models take part; 0: in none, None: in all.

    program: the objective is one. plain: another option excludes models.
    """
    if isinstance(surrogate, str) and surrogate == "auto":
        d = len(opt.x0)
        few = settings.max_evaluations is not None and settings.max_evaluations <= FEW_EVALUATIONS * d
        expensive = few or program
        suits = opt.strategy.name == DEFAULT_METHOD and not opt.has_categories
        if not suits or d > FEW_DIMENSIONS or plain or settings.vectorized:
            return 0
        if expensive:
            return None
        return FIRST_EVALUATIONS * d if opt.limits is not None and d <= FIRST_DIMENSIONS else 0
    if not is_number(surrogate, whole=True) and not isinstance(surrogate, (bool, np.bool_)):
        raise ArgumentError(f'surrogate: found {shown(surrogate)}, wanted True, False or "auto"')
    check_flag("surrogate", surrogate)
    if surrogate and settings.vectorized:
        raise ArgumentError("surrogate: found True together with vectorized, wanted one of the two")
    return None if surrogate else 0


def batch_size(settings: Settings, executor: Any) -> int:
    """The points that are evaluated at the same time; 1 for an executor that does not say."""
    if executor is None:
        return cores() if settings.workers == -1 else settings.workers
    from fmnes.evaluation.executor import count_workers  # needed with an executor only

    return count_workers(executor) or 1


def cores() -> int:
    """The number of cores available to this process, which a batch system may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# -- Settings


@dataclass(frozen=True)
class Settings:
    """The settings of a run other than those of the search itself, as plain data."""

    max_evaluations: int | None
    max_seconds: float | None
    workers: int
    vectorized: bool
    timeout: float | None
    retries: int
    on_error: Literal["infeasible", "raise"]
    restarts: int | str
    target: float | None
    restart_from: str | None
    """None: anywhere in a finite box, if the method can, else "start"."""
    second_look: bool
    evaluate_start: bool

    def __post_init__(self) -> None:
        """Check and normalise the values, whether they come from a user or from a run directory."""

        def settle(name: str, value: Any) -> None:  # 1e4 as 10000, NumPy's True as True
            object.__setattr__(self, name, value)

        settle("max_evaluations", check_number("max_evaluations", self.max_evaluations, above=0, whole=True))
        for name in ("max_seconds", "timeout"):
            settle(name, check_number(name, getattr(self, name), above=0))
        settle("target", check_number("target", self.target))
        check_choice("on_error", self.on_error, ("infeasible", "raise"))
        settle("restarts", _check_restarts(self.restarts))
        if self.restart_from is not None:
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
        self, objective: Objective, executor: Any, run_dir: str | os.PathLike[str] | None, overlap: float
    ) -> Evaluator:
        """The evaluator; the directories of failed programs are kept in the run directory."""
        return objective.evaluator(
            workers=cores() if self.workers == -1 else self.workers,
            timeout=self.timeout,
            retries=self.retries,
            executor=executor,
            on_error=self.on_error,
            kept_in=None if run_dir is None else os.path.join(os.path.abspath(run_dir), KEPT),
            overlap=overlap,
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _check_restarts(found: Any) -> int | str:
    if isinstance(found, str):
        if found != BIPOP:
            raise ArgumentError(f"restarts: found {shown(found)}, wanted a whole number or {BIPOP!r}")
        return found
    return check_count("restarts", found, 0)


# -- The whole configuration

#: Exceptions that data of an unexpected shape raises.
UNUSABLE = (FmnesError, LookupError, TypeError, ValueError, AttributeError, OverflowError)
_ANY = Real(start=1.0, sigma=2.0)


@dataclass(frozen=True)
class RunConfig:
    """The validated content of `config.json`: what a run was asked to do."""

    settings: Settings
    objective: dict[str, Any]
    """As `describe_objective` returns it."""
    search: dict[str, Any]
    versions: dict[str, str]
    space: Space | None
    """The named parameters; None with arrays."""
    limits: Limits | None = None
    """The limits on outputs, for readers only: a resume restores them from the snapshot."""

    @classmethod
    def read(cls, path: Path, data: dict[str, Any]) -> RunConfig:
        """Validate the configuration of the run at `path`. Raises RunError."""
        try:
            config = cls(
                settings=Settings(**data["settings"]),
                objective=read_description(data["objective"]),
                search=dict(data["search"]),
                versions={str(k): str(v) for k, v in dict(data["versions"]).items()},
                space=Space.from_json(data["parameters"]) if "parameters" in data else None,
                limits=Limits.from_json(data["constraints"]) if "constraints" in data else None,
            )
            config.names  # noqa: B018 (raises if they are not a list)
            return config
        except UNUSABLE as error:
            raise RunError(f"{path}: found an unusable configuration ({error})") from None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, or those that a Command gives the coordinates; may be empty."""
        if self.space is not None:
            return self.space.names
        return tuple(str(name) for name in self.objective.get("names") or ())

    def coordinates(self, d: int) -> Space:
        """The names and units of points of d coordinates; arrays without names get x0, x1, …"""
        try:
            names = self.names or [f"x{i}" for i in range(d)]
            space = self.space or make_space([(name, _ANY) for name in names])
        except (FmnesError, TypeError) as error:
            raise RunError(f"found an unusable configuration ({error})") from None
        if len(space.names) != d:
            raise RunError(f"found {len(space.names)} parameters for points of {d} coordinates")
        return space

    def as_json(self) -> dict[str, Any]:
        """The data of `config.json`."""
        data: dict[str, Any] = {
            "settings": self.settings.as_json(),
            "objective": self.objective,
            "search": self.search,
            "versions": self.versions,
        }
        if self.space is not None:
            data["parameters"] = self.space.as_json()
        if self.limits is not None:
            data["constraints"] = self.limits.as_json()
        return data


def describe_search(opt: Optimizer) -> dict[str, Any]:
    """The search as plain data, for readers only: a resume restores it from the snapshot."""
    return {
        "method": opt.strategy.name,
        "population_size": opt.population_size,
        "seed": None if opt.seed is None else str(opt.seed),  # JSON readers may round large integers
        "xtol": opt.xtol,
        "ftol": opt.ftol,
        "surrogate": opt.surrogate,
        "noise": opt.noise is not None,
    }


def versions() -> dict[str, str]:
    """The versions of fmnes, NumPy and Python in use."""
    return {"fmnes": __version__, "numpy": np.__version__, "python": platform.python_version()}


# -- Types of what `minimize` and `Optimizer` take, for type checkers
#
# The options that every overload shares are written once, as TypedDicts. `tests/test_typing.py` compares them
# with the signatures.

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
