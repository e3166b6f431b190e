"""The one loop over evaluations: replay from the log, evaluate, record, check and count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import StorageError
from fmnes.evaluation.evaluator import Evaluator, Task, TaskSource, Vectorized, call_vectorized
from fmnes.outcome import LOST, EvaluationId, Outcome, from_number
from fmnes.result import Stop, StopReason
from fmnes.run.checks import LostEvaluations, OutcomeChecks, backoff_seconds, raise_if_broken
from fmnes.run.interrupts import StopRequestWatcher
from fmnes.run.recording import Recorder
from fmnes.run.snapshots import RunState
from fmnes.search.counting import attained_values
from fmnes.search.noise_watch import single_target
from fmnes.search.optimizer import Optimizer
from fmnes.search.stopping import redraws_failed


@dataclass
class Work:
    """What the evaluation of points needs, for single and for overlapping generations."""

    state: RunState
    evaluator: Evaluator
    recorder: Recorder | None
    """None: evaluations are not kept."""
    losses: LostEvaluations
    doubts: OutcomeChecks
    deadline: float | None = None
    """In time.monotonic()."""
    stop_requests: StopRequestWatcher | None = None
    answered: list[tuple[EvaluationId, Outcome, NDArray[np.float64]]] = field(default_factory=list)
    """Counted outcomes with their ids and points, since the last `note_failures`."""

    def note_failures(self) -> None:
        """Record the failures by generation and slot, whatever the order of completion."""
        for _, outcome, point in sorted(self.answered, key=lambda answer: answer[0]):
            self.state.failures.add(outcome, point)
        self.answered.clear()

    def forget_suspects(self) -> None:
        """The generation counts: its failures stopped nothing."""
        if self.recorder:
            self.recorder.suspects.clear()

    def check_stop_request(self) -> None:
        """Raises KeyboardInterrupt after a stop request."""
        if self.stop_requests:
            self.stop_requests.check()

    def out_of_time(self) -> Stop | None:
        if self.deadline is None or time.monotonic() < self.deadline:
            return None
        return Stop(StopReason.MAX_SECONDS, f"at evaluation {self.state.evaluations}")

    def interrupted(self) -> Stop:
        return Stop(StopReason.INTERRUPTED, f"at evaluation {self.state.evaluations}")

    def pause(self, seconds: float) -> None:
        """Sleep, at most until the deadline."""
        left = seconds if self.deadline is None else self.deadline - time.monotonic()
        time.sleep(max(0.0, min(seconds, left)))


# -- The loop


class Points(TaskSource, Protocol):
    """Points to evaluate: those of one generation, or of a search whose generations overlap."""

    first: EvaluationId | None
    """If it is the run's first evaluation, its type is checked strictly; None: whichever ends first."""
    stop: Stop | None
    """Why the run cannot continue, if so."""

    def replay(self, recorder: Recorder) -> Iterable[tuple[Task, Outcome]]:
        """The evaluations that the log has already."""

    def count(self, task: Task, outcome: Outcome) -> bool:
        """Take an outcome; returns whether no further one is needed."""


def evaluate(work: Work, points: Points) -> Stop | None:
    """Evaluate these points; returns why the run cannot continue, if so.

    A deadline limits new evaluations only: it ends the run once the log has no more answers.
    """
    recorder, replayed = work.recorder, False
    try:
        if recorder:
            for task, outcome in points.replay(recorder):
                replayed = True
                recorder.suspect(task, outcome)
                if _count(work, points, task, outcome):
                    return points.stop
        if stop := work.out_of_time():
            return None if replayed else stop
        if recorder:
            recorder.begin()
        with closing(work.evaluator(points, work.deadline)) as finished:
            for task, outcome in finished:
                if work.state.opt.limits is not None:
                    outcome = work.state.opt.limits.check(outcome)
                if recorder:
                    recorder.record(task, outcome)  # on disk before it counts
                if _count(work, points, task, outcome):
                    return points.stop
                if recorder:
                    recorder.begin()
    except KeyboardInterrupt:
        return work.interrupted()
    except StorageError as error:
        return Stop(StopReason.STORAGE, str(error))
    return None


def _count(work: Work, points: Points, task: Task, outcome: Outcome) -> bool:
    """Check an outcome and count it; returns whether no further one is needed."""
    first = work.state.evaluations == 0 and points.first in (None, task.id.point)
    work.doubts.check_outcome(outcome, first)
    if points.count(task, outcome):
        return True
    work.check_stop_request()
    return False


# -- One generation: ask, evaluate, tell. Points that were not evaluated stay open


class Batch:
    """Points that are told together; the outcomes of those that were evaluated."""

    may_wait = True
    stop: Stop | None = None

    def __init__(self, work: Work, ids: Sequence[EvaluationId], x: NDArray[np.float64]) -> None:
        tries = work.losses.tries
        self.ids = ids
        self.first = ids[0] if ids else None
        self.outcomes: list[Outcome | None] = [None] * len(ids)
        """None: not evaluated."""
        self._opt = work.state.opt
        self._positions = {id.slot: i for i, id in enumerate(ids)}
        self._tasks = [
            Task(x[i], id._replace(attempt=tries[id]) if id in tries else id) for i, id in enumerate(ids)
        ]
        self._next = iter(self._tasks)

    def replay(self, recorder: Recorder) -> list[tuple[Task, Outcome]]:
        answered, rest = recorder.replay(self._tasks)
        self._next = iter(rest)
        return answered

    def take(self) -> Task | None:
        return next(self._next, None)

    def count(self, task: Task, outcome: Outcome) -> bool:
        self.outcomes[self._positions[task.id.slot]] = outcome
        return _hits(self.outcomes, self._opt)


def evaluate_generation(work: Work) -> Stop | None:
    """Evaluate the open points of the generation; returns why the run cannot continue, if so."""
    opt = work.state.opt
    x = opt.ask()
    if isinstance(work.evaluator, Vectorized) and work.recorder is None and opt.limits is None:
        if not (stop := work.out_of_time()):
            _evaluate_values(work, x, work.evaluator.fun)
        return stop
    batch = Batch(work, opt.asked, x)
    first = opt.evaluations == 0 and work.state.totals.restarts == 0 and not work.losses.tries
    stop = evaluate(work, batch)
    outcomes = batch.outcomes
    if first:
        raise_if_broken(outcomes, work.state.start)
    work.forget_suspects()
    counted = opt.evaluations
    opt.tell([o if o is not None else LOST for o in outcomes])
    counted = opt.evaluations - counted
    told = [(batch.ids[i], o, x[i]) for i, o in enumerate(outcomes) if is_answer(o)]
    work.answered += told[:counted]
    if stop and stop.reason is StopReason.INTERRUPTED:
        return work.interrupted()
    return stop or count_lost(work, batch)


def count_lost(work: Work, batch: Batch) -> Stop | None:
    """Count the lost points and wait before their retry."""
    worst, stop = work.losses.tally(batch.ids, batch.outcomes)
    if worst and not stop:
        work.pause(backoff_seconds(worst))
    return stop


def is_answer(outcome: Outcome | None) -> TypeGuard[Outcome]:
    return outcome is not None and outcome.status != "lost"


def _evaluate_values(work: Work, x: NDArray[np.float64], fun: Callable[[Any], Any]) -> None:
    """Evaluate a generation in one call, without an outcome for each point, which would take its time."""
    opt = work.state.opt
    f = call_vectorized(fun, x) if len(x) else np.empty(0)
    work.doubts.check_values(f)
    # Ids are needed only if failed points are drawn again in the same generation.
    ids = opt.asked if redraws_failed(opt) else None
    counted = opt.evaluations
    opt.tell(f)
    counted = opt.evaluations - counted
    if ids is None:
        work.state.failures.add_values(f[:counted], x[:counted])
    else:
        work.answered += [(ids[i], from_number(float(f[i])), x[i]) for i in range(counted)]


def output_row(opt: Optimizer, outcome: Outcome) -> NDArray[np.float64] | None:
    """The outputs of an evaluation that have limits, (k,); None without limits."""
    return None if opt.limits is None else opt.limits.row(outcome)


def attained(opt: Optimizer, outcome: Outcome) -> float:
    """The value of an evaluation; +inf if it violates a limit, NaN if it failed."""
    value = outcome.value if outcome.status == "value" else np.nan
    row = output_row(opt, outcome)
    return value if row is None else float(attained_values(opt, np.array([value]), row[None])[0])


def _hits(outcomes: list[Outcome | None], opt: Optimizer) -> bool:
    """Whether the target is reached and all earlier slots are evaluated: later ones change nothing."""
    target = single_target(opt)
    if target is None:
        return False
    for outcome in outcomes:
        if outcome is None:
            return False
        if outcome.status == "value" and outcome.value <= target and attained(opt, outcome) <= target:
            return True
    return False
