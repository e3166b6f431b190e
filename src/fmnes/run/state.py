"""The state of a run across its searches: start, searches so far, totals, streak of equal failures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ObjectiveError
from fmnes.outcome import WRONG_TYPE, Outcome
from fmnes.result import Best, Stop, StopReason, Vector, View
from fmnes.run.restarts import KINDS, Plan, SearchSummary
from fmnes.run.settings import BOX, ORIGINS
from fmnes.search.optimizer import Optimizer
from fmnes.storage.snapshot import Arrays, Saved, count, finite

# -- The start and the searches


@dataclass
class StartPoint:
    """The start's own evaluation, before the first search."""

    open: bool = False
    """It is still to be made."""
    made: bool = False
    value: float = np.nan
    fault: str = ""
    """Of its outcome: a first generation with the same one is a bug."""

    def dump(self) -> list[Any]:
        return [self.open, self.made, None if np.isnan(self.value) else self.value, self.fault]

    @classmethod
    def restore(cls, saved: list[Any]) -> StartPoint:
        open, made, value, fault = saved
        if type(open) is not bool or type(made) is not bool:
            raise ValueError(f"a start that is {open!r} and {made!r}")
        return cls(open, made, np.nan if value is None else float(value), str(fault))


class First(NamedTuple):
    """How the first search began: what restarts go back to."""

    x0: Vector
    sigma0: NDArray[Any]
    population_size: int

    @property
    def sigma(self) -> float:
        """One number for the steps: their geometric mean."""
        return float(np.exp(np.log(self.sigma0).mean()))


class ConfirmedSearch(NamedTuple):
    """The search that a confirmation search (second_look) checks; the answer unless that one gains."""

    x_mean: Vector
    covariance: NDArray[np.float64] | None

    @classmethod
    def of(cls, opt: Optimizer) -> ConfirmedSearch:
        result = opt.result()
        return cls(result.x_mean, result.covariance)


@dataclass
class Searches:
    first: First
    plan: Plan
    """How the present one began."""
    past: list[SearchSummary] = field(default_factory=list)
    """Those before it."""
    confirmed_search: ConfirmedSearch | None = None

    @classmethod
    def of(cls, opt: Optimizer, restarts: int = 0) -> Searches:
        """With nothing known but that each search had twice the points of the one before."""
        size = opt.population_size // 2**restarts
        kinds = ["first", *["large"] * restarts]
        plans = [Plan(kind, size * 2**i) for i, kind in enumerate(kinds)]
        ended = Stop(StopReason.FTOL)
        past = [SearchSummary(plan.kind, plan.population_size, 0, True, False, ended) for plan in plans[:-1]]
        return cls(First(opt.x0, opt.sigma0, size), plans[-1], past)

    def dump(self) -> Saved:
        metadata = {
            "first_population_size": self.first.population_size,
            "plan": list(self.plan),
            "searches": [searched.dump() for searched in self.past],
        }
        arrays = {"first.x0": self.first.x0, "first.sigma0": np.asarray(self.first.sigma0, dtype=float)}
        if self.confirmed_search is not None:
            arrays["looked_at.x_mean"] = self.confirmed_search.x_mean
            if self.confirmed_search.covariance is not None:
                arrays["looked_at.covariance"] = self.confirmed_search.covariance
        return metadata, arrays

    @classmethod
    def restore(cls, run: dict[str, Any], arrays: Arrays, opt: Optimizer, restarts: int) -> Searches:
        kind, size, step, origin = run["plan"]
        if kind not in KINDS or origin not in (*ORIGINS, BOX) or not 0 < step <= 1:
            raise ValueError(f"a search that began as {run['plan']}")
        past = [SearchSummary.restore(saved) for saved in run["searches"]]
        if len(past) != restarts:
            raise ValueError(f"{len(past)} searches before restart {restarts}")
        d = len(opt.x0)
        sigma0 = finite(arrays["first.sigma0"], (d,) if arrays["first.sigma0"].ndim else ())
        if not (sigma0 > 0).all():
            raise ValueError("a first sigma0 that is not positive")
        first = First(finite(arrays["first.x0"], (d,)), sigma0, count(run["first_population_size"]))
        confirmed_search = None
        if "looked_at.x_mean" in arrays:
            covariance = arrays.get("looked_at.covariance")
            confirmed_search = ConfirmedSearch(
                finite(arrays["looked_at.x_mean"], (d,)),
                None if covariance is None else finite(covariance, (d, d)),
            )
        return cls(first, Plan(kind, count(size), float(step), origin), past, confirmed_search)


class Answer(NamedTuple):
    """A point that was evaluated several times, because of noise."""

    x: Vector
    mean: float
    error: float
    """The standard error of the mean."""
    deviation: float
    """The standard deviation of one value."""

    def dump(self) -> list[float]:
        return [self.mean, self.error, self.deviation]

    @classmethod
    def restore(cls, saved: list[Any], x: NDArray[Any], d: int) -> Answer:
        mean, error, deviation = map(float, saved)
        if not all(map(np.isfinite, (mean, error, deviation))):
            raise ValueError(f"an answer of {saved}")
        return cls(finite(x, (d,)), mean, error, deviation)


# -- Totals

_NONE = Best(None, np.inf, 0)


@dataclass
class Totals:
    """Of the start's own evaluation, and of the searches before the last one."""

    restarts: int = 0
    evaluations: int = 0
    generations: int = 0
    infeasible: int = 0
    repeated: int = 0
    best: Best = _NONE

    def take_start(self, x: Vector, value: float) -> None:
        """The start was evaluated, before the first search; NaN: it failed, +inf: it violates a limit."""
        self.evaluations += 1
        if np.isfinite(value):
            self.best = Best(x, value, 1)
        elif np.isnan(value):
            self.infeasible += 1

    def take(self, opt: Optimizer) -> None:
        """That search is over, and another one begins."""
        self.best = self.best_with(opt)
        self.evaluations += opt.evaluations
        self.generations += opt.generation
        self.infeasible += opt.n_infeasible
        self.repeated += opt.n_repeated
        self.restarts += 1

    def best_with(self, opt: Optimizer) -> Best:
        if opt.best.fun < self.best.fun:
            number = opt.best.evaluation and self.evaluations + opt.best.evaluation  # 0: known before
            return opt.best._replace(evaluation=number)
        return self.best

    def view_with(self, view: View, opt: Optimizer) -> View:
        """The view of `opt` with the searches before it counted in."""
        if not self.evaluations and not self.restarts:
            return view
        return replace(
            view,
            evaluations=self.evaluations + view.evaluations,
            best=self.best_with(opt),
            restart=self.restarts,
            n_repeated=self.repeated + view.n_repeated,
            n_infeasible=self.infeasible + view.n_infeasible,
        )

    def dump(self) -> tuple[dict[str, int], Arrays]:
        counts = {
            "restarts": self.restarts,
            "evaluations": self.evaluations,
            "generations": self.generations,
            "infeasible": self.infeasible,
            "repeated": self.repeated,
            "best_evaluation": self.best.evaluation,
        }
        if self.best.x is None:
            return counts, {}
        return counts, {"totals.best.x": self.best.x, "totals.best.fun": np.asarray(self.best.fun)}

    @classmethod
    def restore(cls, counts: dict[str, Any], arrays: Arrays) -> Totals:
        best = Best(None, np.inf, 0)
        if "totals.best.x" in arrays:
            best = Best(
                arrays["totals.best.x"], float(arrays["totals.best.fun"]), int(counts["best_evaluation"])
            )
        names = ("restarts", "evaluations", "generations", "infeasible", "repeated")
        return cls(**{name: count(counts[name]) for name in names}, best=best)


# -- Streaks of equal failures, as when the objective has stopped working
#
# A search may enter a region where all points fail. So consecutive failures are suspicious only if they are
# faults (an exception, an exit code, an unreadable answer) with the same text from the same place, and are
# new in this run.

#: Exceptions that are about the code and its installation, never about a point.
NEVER_A_POINT = (
    "NameError",
    "ImportError",
    "ModuleNotFoundError",
    "SyntaxError",
    "IndentationError",
    "TabError",
)
#: Beginnings of faults that all points of a region may have, or that cause a warning.
_POINTWISE = ("timeout", "SIG", "signal ", WRONG_TYPE)
#: What is enough of those, and of any fault that all evaluations since a resume had: one generation, between
#: these numbers of evaluations.
FEWEST, MOST = 5, 20
#: Of all other faults: two generations, and at least this number of evaluations.
LONG = 20


class StoppedWorking(ObjectiveError):
    """Each of the last evaluations broke in one and the same way, and those before did not."""

    def __init__(self, last: Outcome, length: int) -> None:
        self.reason = last.reason
        self.what = (
            "the objective seems to have stopped working: evaluations succeeded before, and each of the last "
            f"{length} failed in one and the same way, which is new in this run: {last.reason}"
        )
        super().__init__(
            f"{self.what}. These failures do not count: resume the run when the cause is mended, and the "
            "points are evaluated again. If these points are bad, say so (raise fmnes.Infeasible; a program "
            f"prints FAIL and a reason).\n\n{last.detail}".rstrip()
        )


@dataclass
class Streak:
    """The last evaluations of a run, as far as they have the same fault. Lost ones do not count."""

    reason: str = ""
    place: str = ""
    length: int = 0
    is_new: bool = False
    """The run had not met this reason before."""

    @classmethod
    def begin(cls, outcome: Outcome, is_new: bool) -> Streak:
        return cls(outcome.reason, _place(outcome), 1, is_new)

    def goes_on(self, outcome: Outcome) -> bool:
        return self.length > 0 and outcome.reason == self.reason and _place(outcome) == self.place

    def dump(self) -> list[Any]:
        return [self.reason, self.place, self.length, self.is_new]

    @classmethod
    def restore(cls, saved: list[Any]) -> Streak:
        reason, place, length, is_new = saved
        if type(is_new) is not bool:
            raise ValueError(f"a streak that is {is_new!r}")
        return cls(str(reason), str(place), count(length), is_new)


def can_be_suspicious(outcome: Outcome) -> bool:
    """Timeouts, crashes and what the objective itself calls infeasible never are."""
    fault = outcome.fault
    return outcome.status == "infeasible" and fault != "" and not fault.startswith(_POINTWISE)


def is_never_a_point(outcome: Outcome) -> bool:
    """Also of a program in Python, whose error output is the detail."""
    if outcome.fault in NEVER_A_POINT:
        return True
    starts = tuple(f"{name}: " for name in NEVER_A_POINT)
    return outcome.fault.startswith("exit ") and any(
        line.startswith(starts) for line in outcome.detail.splitlines()
    )


def _place(outcome: Outcome) -> str:
    """Where it was raised: the last line of the traceback that names a file."""
    lines = [line.strip() for line in outcome.detail.splitlines() if line.startswith('  File "')]
    return lines[-1] if lines else ""
