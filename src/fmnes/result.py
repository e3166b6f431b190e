"""What a run tells its user: the stop reasons, the view of a generation, its history, the result."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from fmnes import summary
from fmnes._equality import EqualByValue, same

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # every type checker brings it; a default needs Python 3.13

    from fmnes.constraints import ConstraintResult
    from fmnes.evaluations import Evaluations

    #: A point as the user sees it: a `Vector`, or `Named`.
    X = TypeVar("X", default=Any)
    #: Several points as `Optimizer.ask` returns them: a `Vector`, (n, d), or a list of `Named`.
    Xs = TypeVar("Xs", default=Any)
else:
    from typing import TypeVar

    X, Xs = TypeVar("X"), TypeVar("Xs")

Vector: TypeAlias = NDArray[np.float64]
#: A point by name, in the user's units: float, int for `fmnes.Integer`, or a choice of `fmnes.Categorical`.
Named: TypeAlias = dict[str, Any]


class StopReason(enum.Enum):
    """Why a run ended. The value is a description; `Result.message` adds the numbers.

    Examples
    --------
    >>> import fmnes
    >>> fmnes.StopReason.TARGET.value
    'the target was reached'
    >>> fmnes.StopReason["XTOL"].converged
    True
    """

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
    STALLED = "no better value is found, and the steps stay long"
    HOPELESS = "an earlier search has found a better value than this one can reach"
    NOISE = "the values differ by chance, and their average no longer falls by more than its error"

    @property
    def converged(self) -> bool:
        """Whether the search has settled: XTOL, FTOL or REPEATED."""
        return self in (StopReason.XTOL, StopReason.FTOL, StopReason.REPEATED)

    @property
    def restartable(self) -> bool:
        """Whether a new search with a larger population may do better."""
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
        StopReason.STALLED,
        StopReason.HOPELESS,
        StopReason.NOISE,
    }
)


class Stop(NamedTuple):
    """A stop reason with its numbers.

    Attributes
    ----------
    reason : StopReason
        Why the search ended.
    numbers : str
        The numbers that led to it; may be empty.

    Examples
    --------
    >>> import fmnes
    >>> from fmnes.result import Stop
    >>> Stop(fmnes.StopReason.MAX_EVALUATIONS, "100 of 100").message
    'the evaluation budget is spent (100 of 100)'
    """

    reason: StopReason
    numbers: str = ""

    @property
    def message(self) -> str:
        """The reason in words, with the numbers."""
        return f"{self.reason.value} ({self.numbers})" if self.numbers else self.reason.value


class Best(NamedTuple, Generic[X]):
    """The best feasible point seen so far; `x` is None and `fun` +inf while there is none.

    Attributes
    ----------
    x : ndarray or dict or None
        The point, (d,); with named parameters {name: value}.
    fun : float
        Its value.
    evaluation : int
        Which evaluation it was, counted from 1; 0 while there is none, and for a point that was known
        before.

    Examples
    --------
    >>> import fmnes
    >>> opt = fmnes.Optimizer([1.0, 2.0], 0.5, rng=1)
    >>> opt.best.x is None, opt.best.fun
    (True, inf)
    >>> opt.tell([float(x @ x) for x in opt.ask()])
    >>> opt.best.fun == float(opt.best.x @ opt.best.x)
    True
    """

    x: X | None
    fun: float
    evaluation: int

    def __eq__(self, other: object) -> bool:
        return same(tuple(self), tuple(other)) if isinstance(other, tuple) else NotImplemented

    def __ne__(self, other: object) -> bool:  # a tuple has one of its own
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)


@dataclass(frozen=True, slots=True, eq=False)
class View(EqualByValue, Generic[X]):
    """One generation as an observer sees it (callbacks, history, progress, stop rules). Read only.

    Attributes
    ----------
    generation : int
        Complete generations of this search; a restart counts from 0 again.
    evaluations : int
        Evaluations so far, of all searches together; failed ones included.
    population_size : int
        Points of the next generation.
    mean : ndarray or dict
        Mean of the points it samples, (d,); with named parameters {name: value}.
    sigma : float
        The step size in the search's own numbers. These are the numbers of x, except on log scales, with
        mapped bounds, and if sigma0 has one number per coordinate, whose geometric mean is the first step
        size.
    axis_lengths : ndarray
        Standard deviations along the distribution's axes, divided by sigma; not sorted. (d,)
    phase : str
        "movement", "stagnation" or "convergence"; empty for strategies without phases.
    feasible_share : float
        The share of the last complete generation's points that has a value; NaN before the first. A point
        outside the bounds has none (`bounds_as="failure"`), although it cost no evaluation.
    generation_best : float
        Best value of the last complete generation; +inf if it had none.
    best : Best
        The best of all searches so far.
    restart : int
        Number of earlier searches: restarts and second looks.
    n_repeated : int
        Points so far that were known already, and were not evaluated again.
    n_infeasible : int
        Evaluations so far that failed (points outside the bounds cost none and are not counted).

    Examples
    --------
    >>> import fmnes
    >>> def watch(view):
    ...     return view.best.fun < 1e-3  # True stops the run
    >>> result = fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, callback=watch, rng=1)
    >>> result.stop_reason.name
    'CALLBACK'
    """

    generation: int
    evaluations: int
    population_size: int
    mean: X
    sigma: float
    axis_lengths: Vector
    phase: str
    feasible_share: float
    generation_best: float
    best: Best[X]
    restart: int = 0
    n_repeated: int = 0
    n_infeasible: int = 0


class Columns(TypedDict, total=False):
    """The columns of `Result.history`: arrays with one entry per generation, named as in `View`.

    Attributes
    ----------
    restart : ndarray of int
        Number of earlier searches: restarts and second looks.
    generation : ndarray of int
        Complete generations of this search, counted from 1.
    evaluations : ndarray of int
        Evaluations so far, of all searches together; failed ones included.
    best : ndarray
        Best value so far; +inf while there is none.
    generation_best : ndarray
        Best value of this generation; +inf if it had none.
    sigma : ndarray
        The step size after it, in the search's own numbers.
    longest_axis : ndarray
        The largest of the distribution's standard deviations, divided by sigma.
    shortest_axis : ndarray
        The smallest of them.
    feasible_share : ndarray
        The share of this generation's points that has a value. A point outside the bounds has none
        (`bounds_as="failure"`), although it cost no evaluation.
    seconds : ndarray
        Time since the run began; time before a resume does not count.

    Examples
    --------
    >>> import fmnes
    >>> result = fmnes.minimize(lambda x: float(x @ x), [1.0, 2.0], 0.5, rng=1, target=1e-6)
    >>> len(result.history["best"]) == result.nit
    True
    >>> bool((result.history["best"][1:] <= result.history["best"][:-1]).all())
    True
    """

    restart: NDArray[np.int64]
    generation: NDArray[np.int64]
    evaluations: NDArray[np.int64]
    best: NDArray[np.float64]
    generation_best: NDArray[np.float64]
    sigma: NDArray[np.float64]
    longest_axis: NDArray[np.float64]
    shortest_axis: NDArray[np.float64]
    feasible_share: NDArray[np.float64]
    seconds: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Failure(EqualByValue):
    """All failed evaluations that share one reason.

    Attributes
    ----------
    reason : str
        The message of the objective or of the program, or a description such as "returned NaN".
    count : int
        The number of evaluations.
    x : ndarray
        The first points that failed for this reason, oldest first; fewer if there are many or long ones.
        In the user's units, named parameters in their order. (≤ 100, d)
    detail : str
        The end of the first one's traceback or error output.
    directory : str or None
        Where a program's files of such a failure are kept; only `fmnes.read_run` fills it in.

    Examples
    --------
    >>> import fmnes
    >>> def simulate(x):
    ...     if x[0] < 0:
    ...         raise fmnes.Infeasible("mesh failed")
    ...     return float(x @ x)
    >>> result = fmnes.minimize(simulate, [3.0, 2.0], 2.0, max_evaluations=100, rng=1)
    >>> result.failures[0].reason
    'mesh failed'
    """

    reason: str
    count: int
    x: NDArray[np.float64]
    detail: str
    directory: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Noise(EqualByValue):
    """The noise of an objective whose values differ at the same point.

    Attributes
    ----------
    standard_deviation : float
        The standard deviation of one evaluation: at `Result.x` if it was evaluated again, else at points of
        the last generations.
    level : float or None
        The difference of two values at one point as a share of the spread of the values of a generation,
        from 0 to 1, on average. Above 0.3 the search takes smaller steps. None if the search compared only
        its best point.
    compared : int
        How many points the search has evaluated twice.
    found : str
        The first values that differed.

    Examples
    --------
    >>> import numpy as np
    >>> import fmnes
    >>> chance = np.random.default_rng(1)
    >>> def measure(x):
    ...     return float(x @ x) + 0.1 * chance.standard_normal()
    >>> result = fmnes.minimize(measure, [3.0, 2.0], 0.5, rng=1, max_evaluations=2000)
    >>> 0.05 < result.noise.standard_deviation < 0.2
    True
    """

    standard_deviation: float
    level: float | None
    compared: int
    found: str

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON data.

        Returns
        -------
        dict
            Plain data that `json.dumps` accepts.
        """
        return {
            "standard_deviation": _number(self.standard_deviation),
            "level": self.level,
            "compared": self.compared,
            "found": self.found,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Result(EqualByValue, Generic[X]):
    """What `minimize` returns. Names that SciPy's OptimizeResult has mean the same here.

    Two results compare equal if all fields except the timings are equal: the same seed gives an equal result.

    Attributes
    ----------
    x : ndarray or dict
        Best feasible point, (d,); with named parameters {name: value}. It is None if no evaluation
        succeeded (`fun` is +inf then); the type does not say so. With `constraints` and no point within all
        limits it is the least violated one: see `feasible`.
    fun : float
        Its value; +inf if there was none.
    success : bool
        The target was reached or, without a target, the search converged to a finite value; where points
        fail, a second look found nothing better. With noise only a target is a success, and only if the
        average at `x` reaches it: an average that no longer falls does not prove a minimum.
    stop_reason : StopReason or None
        Why it ended; None for an `Optimizer` that may continue.
    message : str
        The same in words, with the numbers.
    nfev : int
        Evaluations spent, failed ones included, up to and including the first that reached the target.
    nit : int
        Complete generations.
    n_infeasible : int
        Evaluations that failed (points outside the bounds cost none and are not counted).
    x_mean : ndarray or dict
        Mean of the final search distribution, as `x`; often the better answer if the objective is noisy.
    seed : int or None
        The seed that repeats this run; None if a Generator was passed in.
    failures : list of Failure
        Why evaluations failed, the most frequent reason first.
    history : Columns
        One array per column (see `fmnes.result.Columns`), one entry per generation:
        pandas.DataFrame(result.history) reads it. Above 32,768 generations every second one is kept, then
        every fourth, and so on, and always the last. Empty for an `Optimizer`.
    second_looks : int
        How often the run searched again from where it had converged; the message says what that found.
    covariance : ndarray or None
        Covariance of the final search distribution, for a warm start; None above 300 coordinates. (d, d)
    sigma0 : float
        The step size the search began with, for a warm start.
    n_repeated : int
        Points that were known already, and were not evaluated again: they cost nothing and are not in
        `nfev`. Only if every coordinate is discrete.
    parameters : dict or None
        The named parameters, {name: fmnes.Real or fmnes.Integer}; None with arrays.
    evaluations : Evaluations or None
        Every evaluation, as a table, if `keep_evaluations` asked for it.
    constraints : dict of str to ConstraintResult or None
        With `constraints`: each output with limits, its value at `x`, whether the limits are satisfied and
        active, and what they cost.
    noise : Noise or None
        If values at the same point differ: by how much, and how that was found. `x` is then the point with
        the best estimated mean, usually `x_mean`, and `fun` is the average of several evaluations there.
        None if no value differed, or none was compared.
    fun_error : float or None
        With noise the standard error of `fun`; None without.
    best_seen : Best or None
        With noise the luckiest single value and its point; None without.

    Examples
    --------
    >>> import fmnes
    >>> result = fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, target=1e-6, rng=1)
    >>> result.success, result.stop_reason.name
    (True, 'TARGET')
    """

    x: X
    fun: float
    success: bool
    stop_reason: StopReason | None
    message: str
    nfev: int
    nit: int
    n_infeasible: int
    x_mean: X
    seed: int | None
    failures: list[Failure] = field(default_factory=list)
    history: Columns = field(default_factory=Columns)
    second_looks: int = 0
    covariance: NDArray[np.float64] | None = None
    sigma0: float = np.nan
    n_repeated: int = 0
    parameters: dict[str, Any] | None = None
    evaluations: Evaluations | None = field(default=None, repr=False, compare=False)
    constraints: dict[str, ConstraintResult] | None = None
    noise: Noise | None = None
    fun_error: float | None = None
    best_seen: Best[X] | None = None

    @property
    def feasible(self) -> bool:
        """Whether `x` is a point whose evaluation succeeded, within all limits."""
        return self.x is not None and all(c.satisfied for c in (self.constraints or {}).values())

    @property
    def vector(self) -> Vector | None:
        """The numbers of `x` in the user's units, with names or without, (d,); None if there is no point.

        Of a choice it has the position.
        """
        x: Any = self.x
        if not isinstance(x, dict):
            return x  # type: ignore[no-any-return]
        kinds = self.parameters or {}
        choices = {name for name in x if hasattr(kinds.get(name), "choices")}
        return np.array([kinds[n].index(v) if n in choices else v for n, v in x.items()], dtype=float)

    @property
    def n_failed(self) -> int:
        """Evaluations that failed; `n_infeasible` is the same and stays until 1.0."""
        return self.n_infeasible

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON data: without the history, and without NaN or infinity.

        Returns
        -------
        dict
            Plain data that `json.dumps` accepts.
        """
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
            "feasible": self.feasible,
            "constraints": None
            if self.constraints is None
            else {name: found.as_json() for name, found in self.constraints.items()},
            "fun_error": _number(self.fun_error),
            "noise": None if self.noise is None else self.noise.as_json(),
            "best_seen": _best_as_json(self.best_seen),
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


def _best_as_json(best: Best | None) -> dict[str, Any] | None:
    if best is None or best.x is None:
        return None
    return {"x": _plain(best.x), "fun": best.fun, "evaluation": best.evaluation}


def _number(value: float | None) -> float | None:
    """A number as JSON data, which has no NaN."""
    return value if value is not None and np.isfinite(value) else None


def _plain(x: Any) -> Any:
    """A point as JSON data."""
    return x.tolist() if isinstance(x, np.ndarray) else x
