"""What a run tells its user: the stop reasons, the view of a generation, its history, the result."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from fmnes import summary
from fmnes.equality import EqualByValue, same

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # every type checker brings it; a default needs Python 3.13

    from fmnes.records.table import Evaluations

    #: A point as the user sees it: a `Vector`, or `Named`.
    X = TypeVar("X", default=Any)
    #: Several points as `Optimizer.ask` returns them: a `Vector`, (n, d), or a list of `Named`.
    Xs = TypeVar("Xs", default=Any)
else:
    from typing import TypeVar

    X, Xs = TypeVar("X"), TypeVar("Xs")

Vector: TypeAlias = NDArray[np.float64]
#: A point by name, in the user's units; the values of `fmnes.Integer` parameters are int.
Named: TypeAlias = dict[str, float | int]


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


class Best(NamedTuple, Generic[X]):
    """The best feasible point seen so far; `x` is None and `fun` +inf while there is none."""

    x: X | None
    """(d,); of named parameters {name: value}."""
    fun: float
    """Its value."""
    evaluation: int
    """Which evaluation it was, counted from 1; 0 while there is none, and for one that was known before."""

    def __eq__(self, other: object) -> bool:
        return same(tuple(self), tuple(other)) if isinstance(other, tuple) else NotImplemented

    def __ne__(self, other: object) -> bool:  # a tuple has one of its own
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)


@dataclass(frozen=True, slots=True, eq=False)
class View(EqualByValue, Generic[X]):
    """One generation as an observer sees it (callbacks, history, progress, stop rules). Read only."""

    generation: int
    """Complete generations of this search; of a restart counted anew."""
    evaluations: int
    """Evaluations so far, of all searches together; failed ones included."""
    population_size: int
    """Points of the next generation."""
    mean: X
    """Of the points it samples. (d,); of named parameters {name: value}."""
    sigma: float
    """The step size, in the search's own numbers: those of x, but for log scales, for bounds that are mapped,
    and for a sigma0 that has one for each coordinate, whose geometric mean it began with."""
    axis_lengths: Vector
    """Standard deviations along the distribution's axes, divided by sigma; not sorted. (d,)"""
    phase: str
    """"movement", "stagnation" or "convergence"; empty for strategies without phases."""
    feasible_share: float
    """Of the last complete generation's points, the share that has a value; NaN before the first. A point
    outside the bounds has none (`bounds_as="failure"`), though it cost no evaluation."""
    generation_best: float
    """Best value of the last complete generation; +inf if it had none."""
    best: Best[X]
    """The best of all searches so far."""
    restart: int = 0
    """Searches before this one: restarts and second looks."""
    n_repeated: int = 0
    """Points so far that were known already, and not evaluated again."""
    n_infeasible: int = 0
    """Evaluations so far that failed (points outside the bounds cost none and are not counted)."""


class Columns(TypedDict, total=False):
    """The columns of `Result.history`: arrays of one entry for each generation. They are those of `View`."""

    restart: NDArray[np.int64]
    """Searches before this one: restarts and second looks."""
    generation: NDArray[np.int64]
    """Complete generations of this search, counted from 1."""
    evaluations: NDArray[np.int64]
    """Evaluations so far, of all searches together; failed ones included."""
    best: NDArray[np.float64]
    """Best value so far; +inf while there is none."""
    generation_best: NDArray[np.float64]
    """Best value of this generation; +inf if it had none."""
    sigma: NDArray[np.float64]
    """The step size after it, in the search's own numbers."""
    longest_axis: NDArray[np.float64]
    """The largest of the distribution's standard deviations, divided by sigma."""
    shortest_axis: NDArray[np.float64]
    """The smallest of them."""
    feasible_share: NDArray[np.float64]
    """Of this generation's points, the share that has a value. A point outside the bounds has none
    (`bounds_as="failure"`), though it cost no evaluation."""
    seconds: NDArray[np.float64]
    """Time since the run began; what passed before it was resumed does not count."""


@dataclass(frozen=True, slots=True, eq=False)
class Failure(EqualByValue):
    """All failed evaluations that share one reason."""

    reason: str
    """What the objective or the program said, or we of it."""
    count: int
    """How many."""
    x: NDArray[np.float64]
    """The first points that failed so, oldest first; fewer where there are many or long ones. In the user's
    units, named parameters in their order. (≤ 100, d)"""
    detail: str
    """The first one's traceback or error output, its tail."""
    directory: str | None = None
    """Where a program's files of such a failure can be looked at; only `fmnes.read_run` knows it."""


@dataclass(frozen=True, slots=True, eq=False)
class Result(EqualByValue, Generic[X]):
    """What `minimize` returns. The names are those of SciPy's OptimizeResult where it has them.

    Results are equal where all that they hold is, but for the seconds it took: the same seed gives an equal
    result.
    """

    x: X
    """Best feasible point seen; None if there was none. (d,); of named parameters {name: value}."""
    fun: float
    """Its value; +inf if there was none."""
    success: bool
    """The target was reached or, without a target, the search converged to a finite value; where points fail,
    a second look has found nothing better."""
    stop_reason: StopReason | None
    """Why it ended; None of an `Optimizer` that may go on."""
    message: str
    """The same in words, with the numbers."""
    nfev: int
    """Evaluations spent, failed ones included, up to and including the first that reached the target."""
    nit: int
    """Complete generations."""
    n_infeasible: int
    """Evaluations that failed (points outside the bounds cost none and are not counted)."""
    x_mean: X
    """Mean of the final search distribution, as `x`; often the better answer when the objective is noisy."""
    seed: int | None
    """The seed that repeats this run; None if a Generator was passed in."""
    failures: list[Failure] = field(default_factory=list)
    """Why evaluations failed, the most frequent reason first."""
    history: Columns = field(default_factory=Columns)
    """One array per column (`fmnes.result.Columns` says what they hold), one entry per generation:
    pandas.DataFrame(result.history) reads it. Of more than 32,768 generations every second one is kept, then
    every fourth, … and always the last. Empty of an `Optimizer`."""
    second_looks: int = 0
    """How often the run looked again from where it had converged; the message says what that found."""
    covariance: NDArray[np.float64] | None = None
    """Of the final search distribution, for a warm start; None beyond 300 coordinates. (d, d)"""
    sigma0: float = np.nan
    """The step size the search began with, for a warm start."""
    n_repeated: int = 0
    """Points that were known already, and not evaluated again: they cost nothing and are not in `nfev`. Only
    where every coordinate is discrete."""
    parameters: dict[str, Any] | None = None
    """The named parameters, {name: fmnes.Real or fmnes.Integer}; None of arrays."""
    evaluations: Evaluations | None = field(default=None, repr=False, compare=False)
    """Every evaluation, as a table, if `keep_evaluations` asked for it."""

    @property
    def vector(self) -> Vector | None:
        """The numbers of `x` in the user's units, named or not. (d,)"""
        x: Any = self.x
        return np.array(list(x.values()), dtype=float) if isinstance(x, dict) else x

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

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return EqualByValue.__eq__(_untimed(self), _untimed(other))

    def __repr__(self) -> str:
        return summary.text(self)

    def __str__(self) -> str:
        return summary.text(self, fully=True)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return summary.html(self)


def _untimed(result: Result) -> Result:
    """Without how long it took."""
    history = {name: column for name, column in result.history.items() if name != "seconds"}
    return replace(result, history=cast(Columns, history))


def _plain(x: Any) -> Any:
    """A point as JSON data."""
    return x.tolist() if isinstance(x, np.ndarray) else x
