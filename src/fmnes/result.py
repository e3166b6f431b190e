"""What a run tells its user: the stop reasons, the view of a generation, the result."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class StopReason(enum.Enum):
    """Why a run ended. The value says it in words; `Result.message` adds the numbers."""

    TARGET = "the target was reached"
    MAX_EVALUATIONS = "the evaluation budget is spent"
    MAX_SECONDS = "the time budget is spent"
    XTOL = "the steps have become too small to matter"
    FTOL = "the values no longer differ"
    FLAT = "all values are equal: the objective is flat here"
    ILL_CONDITIONED = "the search distribution has become too elongated for floating point"
    SIGMA_OVERFLOW = "the step size grew beyond all bounds: the objective may have no minimum"
    SIGMA_UNDERFLOW = "the step size fell below what floating point can hold"
    NO_FEASIBLE = "no evaluation succeeds any more"
    LOST = "evaluations were lost to machine failures"
    NUMERICAL = "the update gave a non-finite state; the last good one was kept"
    STORAGE = "the run could not be saved"
    CALLBACK = "the callback asked to stop"
    INTERRUPTED = "interrupted"
    REPEATED = "every point it would try was evaluated before"

    @property
    def converged(self) -> bool:
        """True for the endings that mean the search has settled."""
        return self in (StopReason.XTOL, StopReason.FTOL, StopReason.REPEATED)

    @property
    def restartable(self) -> bool:
        """True where a fresh run with a larger population may do better."""
        return self in _RESTARTABLE


_RESTARTABLE = frozenset(
    {
        StopReason.XTOL,
        StopReason.FTOL,
        StopReason.FLAT,
        StopReason.ILL_CONDITIONED,
        StopReason.SIGMA_OVERFLOW,
        StopReason.SIGMA_UNDERFLOW,
        StopReason.NO_FEASIBLE,
        StopReason.NUMERICAL,
        StopReason.REPEATED,
    }
)


class Stop(NamedTuple):
    """A stop reason with its numbers."""

    reason: StopReason
    numbers: str = ""

    @property
    def message(self) -> str:
        return f"{self.reason.value} ({self.numbers})" if self.numbers else self.reason.value


class Best(NamedTuple):
    """The best feasible point seen so far; `x` is None and `fun` +inf while there is none."""

    x: Any
    """(d,); of named parameters {name: value}."""
    fun: float
    evaluation: int
    """Which evaluation it was, counted from 1; 0 while there is none, and for one that was known before."""


@dataclass(frozen=True, slots=True)
class View:
    """One generation as an observer sees it (callbacks, history, progress, stop rules). Read only."""

    generation: int
    evaluations: int
    population_size: int
    mean: Any
    """Of the points it samples. (d,); of named parameters {name: value}."""
    sigma: float
    axis_lengths: Vector
    """Standard deviations along the distribution's axes, divided by sigma; not sorted. (d,)"""
    phase: str
    """"movement", "stagnation" or "convergence"; empty for strategies without phases."""
    feasible_share: float
    """Feasible share of the last complete generation's points; NaN before the first."""
    generation_best: float
    """Best value of the last complete generation; +inf if it had none."""
    best: Best
    restart: int = 0
    n_repeated: int = 0
    """Points so far that were known already, and not evaluated again."""
    n_infeasible: int = 0
    """Evaluations so far that failed; points outside the bounds are not evaluated, and not counted."""


@dataclass(frozen=True, slots=True)
class Failure:
    """All failed evaluations that share one reason."""

    reason: str
    count: int
    x: NDArray[np.float64]
    """The first points that failed so, oldest first; fewer where there are many or long ones. In the user's
    units, named parameters in their order. (≤ 100, d)"""
    detail: str
    """The first one's traceback or error output, its tail."""


@dataclass(frozen=True, slots=True)
class Result:
    """What `minimize` returns. The names are those of SciPy's OptimizeResult where it has them."""

    x: Any
    """Best feasible point seen; None if there was none. (d,); of named parameters {name: value}."""
    fun: float
    """Its value; +inf if there was none."""
    success: bool
    """The target was reached or, without a target, the search converged to a finite value; where points fail,
    a second look has found nothing better."""
    stop_reason: StopReason | None
    message: str
    nfev: int
    """Evaluations spent, failed ones included, up to and including the first that reached the target."""
    nit: int
    """Complete generations."""
    n_infeasible: int
    """Evaluations that failed (points outside the bounds cost none and are not counted)."""
    x_mean: Any
    """Mean of the final search distribution, as `x`; often the better answer when the objective is noisy."""
    seed: int | None
    """The seed that repeats this run; None if a Generator was passed in."""
    failures: list[Failure] = field(default_factory=list)
    history: dict[str, NDArray[Any]] = field(default_factory=dict)
    """One array per column, one entry per generation: pandas.DataFrame(result.history) reads it.
    Of more than 32,768 generations every second one is kept, then every fourth, … and always the last."""
    second_looks: int = 0
    """How often the run looked again from where it had converged; the message says what that found."""
    covariance: NDArray[np.float64] | None = None
    """Of the final search distribution, for a warm start; None beyond 300 coordinates. (d, d)"""
    sigma0: float = np.nan
    """The step size the search began with, for a warm start."""
    n_repeated: int = 0
    """Points that were known already, and not evaluated again: they cost nothing and are not in `nfev`. Only
    where every coordinate is discrete."""
    parameters: dict[str, Any] | None = field(default=None, repr=False)
    """The named parameters, {name: fmnes.Real or fmnes.Integer}; None of arrays."""

    @property
    def vector(self) -> Vector | None:
        """The numbers of `x` in the user's units, named or not. (d,)"""
        return np.array(list(self.x.values()), dtype=float) if isinstance(self.x, dict) else self.x

    def as_json(self) -> dict[str, Any]:
        """The result as JSON data: without the history, and without NaN or infinity."""
        return {
            "x": _plain(self.x),
            "fun": None if self.x is None else self.fun,
            "success": self.success,
            "stop_reason": self.stop_reason.name if self.stop_reason else None,
            "message": self.message,
            "nfev": self.nfev,
            "nit": self.nit,
            "n_infeasible": self.n_infeasible,
            "n_repeated": self.n_repeated,
            "x_mean": _plain(self.x_mean),
            "seed": self.seed,
            "second_looks": self.second_looks,
            "failures": [
                {"reason": f.reason, "count": f.count, "first_x": f.x[0].tolist() if len(f.x) else None}
                for f in self.failures
            ],
        }

    def __str__(self) -> str:
        point = "no feasible point" if self.x is None else f"fun = {self.fun:.6g}"
        failed = f", {self.n_infeasible} failed" if self.n_infeasible else ""
        repeated = f", {self.n_repeated} known points not run again" if self.n_repeated else ""
        return f"{point} after {self.nfev} evaluations{failed}{repeated}: {self.message}"


def _plain(x: Any) -> Any:
    """A point as JSON data."""
    return x.tolist() if isinstance(x, np.ndarray) else x
