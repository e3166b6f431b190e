"""The state of a run: start, searches so far, totals, streak of equal failures; and its snapshots."""

from __future__ import annotations

import time
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import FmnesError, ObjectiveError, RunError, SnapshotError, StorageError, logger
from fmnes.outcome import WRONG_TYPE, Outcome
from fmnes.result import Best, Stop, StopReason, Vector, View
from fmnes.run.history import History, Ledger
from fmnes.run.restarts import KINDS, Plan, SearchSummary
from fmnes.run.settings import BOX, ORIGINS
from fmnes.search.optimizer import Optimizer
from fmnes.storage.directory import RunDirectory
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


# -- Snapshots: their content, how often they are written, and how they are restored
#
# Each part of a run dumps and restores itself; `RunState` combines them. Evaluations after the last snapshot
# are in the log, so a snapshot only shortens the replay.

#: Minimum seconds between snapshots (0: one per generation), …
SNAPSHOT_SECONDS = 1.0
#: … and the minimum as a multiple of the time the last one took: at most 5 % of a run.
SNAPSHOT_REST = 20.0


@dataclass
class RunState:
    """A run in progress: everything that a resumed run needs."""

    opt: Optimizer
    totals: Totals = field(default_factory=Totals)
    history: History = field(default_factory=History)
    failures: Ledger = field(default_factory=Ledger)
    seconds: float = 0.0
    """The time of the sessions before this one."""
    seed: int | None = None
    start: StartPoint = field(default_factory=StartPoint)
    streak: Streak = field(default_factory=Streak)
    answer: Answer | None = None
    """With noise: the best point of the searches that have ended, evaluated several times."""
    last_answers: int = 0
    """Evaluations of the answer at the end of the budget. Not saved: with a larger budget the run goes on."""
    began_with: InitVar[Searches | None] = None
    """None: with the search that `opt` is."""

    def __post_init__(self, began_with: Searches | None) -> None:
        self._began = time.monotonic()
        self.seed = self.opt.seed if self.seed is None else self.seed
        self.searches = began_with or Searches.of(self.opt)

    @property
    def evaluations(self) -> int:
        return self.totals.evaluations + self.opt.evaluations

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        metadata, arrays = self.opt.dump()
        totals, best = self.totals.dump()
        history, rows = self.history.dump()
        failures, points = self.failures.dump()
        searches, more = self.searches.dump()
        metadata["run"] = {
            "seconds": self.seconds + time.monotonic() - self._began,
            "seed": None if self.seed is None else str(self.seed),
            "totals": totals,
            "history": history,
            "failures": failures,
            "start": self.start.dump(),
            "streak": self.streak.dump(),
            **({} if self.answer is None else {"answer": self.answer.dump()}),
            **searches,
        }
        if self.answer is not None:
            arrays["answer.x"] = self.answer.x
        return metadata, {**arrays, **best, **more, "history": rows, "failures": points}

    @classmethod
    def restore(cls, metadata: dict[str, Any], arrays: Arrays) -> RunState:
        """Raises SnapshotError for what `dump` cannot have written."""
        try:
            run = metadata["run"]
            if not 0 <= run["seconds"] < np.inf:
                raise ValueError(f"{run['seconds']} seconds")
            opt = Optimizer.restore(metadata, arrays)
            totals = Totals.restore(run["totals"], arrays)
            return cls(
                opt,
                totals,
                History.restore(run["history"], np.asarray(arrays["history"], dtype=float)),
                Ledger.restore(run["failures"], np.asarray(arrays["failures"], dtype=float)),
                float(run["seconds"]),
                None if run["seed"] is None else int(run["seed"]),
                StartPoint.restore(run["start"]),
                Streak.restore(run["streak"]),
                Answer.restore(run["answer"], arrays["answer.x"], len(opt.x0)) if "answer" in run else None,
                began_with=Searches.restore(run, arrays, opt, totals.restarts),
            )
        except (FmnesError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise SnapshotError(f"found an unusable snapshot ({type(error).__name__}: {error})") from None


class Snapshots:
    """Writes snapshots of a run at intervals."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._due = -np.inf

    def take(self, state: RunState) -> None:
        """Write a snapshot if it is due, at the beginning of a generation. Raises StorageError."""
        began = time.monotonic()
        if began < self._due:
            return
        try:
            self._directory.write_snapshot(*state.dump())
        except (RunError, SnapshotError) as error:
            raise StorageError(str(error)) from error
        now = time.monotonic()
        logger.debug("snapshot written at evaluation %d, in %.3g s", state.evaluations, now - began)
        self._due = now + max(SNAPSHOT_SECONDS, SNAPSHOT_REST * (now - began) if SNAPSHOT_SECONDS else 0.0)
