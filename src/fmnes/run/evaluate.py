"""Evaluation of one generation: ask, evaluate, tell. Points that were not evaluated stay open."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import StorageError
from fmnes.evaluation.evaluator import Evaluator, Task
from fmnes.evaluation.serial import Vectorized, call_vectorized
from fmnes.identity import EvaluationId
from fmnes.outcome import LOST, Outcome, from_number
from fmnes.result import Stop, StopReason
from fmnes.run.checks import LostEvaluations, OutcomeChecks, backoff_seconds, raise_if_broken
from fmnes.run.interrupts import StopRequestWatcher
from fmnes.run.recording import RecordingEvaluator
from fmnes.run.snapshots import RunState
from fmnes.search.stopping import redraws_failed


@dataclass
class Work:
    """What the evaluation of points needs, for single and for overlapping generations."""

    state: RunState
    evaluator: Evaluator
    losses: LostEvaluations
    doubts: OutcomeChecks
    deadline: float | None = None
    """In time.monotonic()."""
    stop_requests: StopRequestWatcher | None = None
    answered: list[tuple[EvaluationId, Outcome, NDArray[np.float64]]] = field(default_factory=list)
    """Counted outcomes with their names and points, since the last `note_failures`."""
    first: list[Outcome | None] = field(default_factory=list)
    """The outcomes of the first generation, with overlapping generations."""

    def note_failures(self) -> None:
        """Record the failures by generation and slot, whatever the order of completion."""
        for _, outcome, point in sorted(self.answered, key=lambda answer: answer[0]):
            self.state.failures.add(outcome, point)
        self.answered.clear()

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


def evaluate_generation(work: Work) -> Stop | None:
    """Evaluate the open points of the generation; returns why the run cannot continue, if so."""
    opt = work.state.opt
    x = opt.ask()
    if isinstance(work.evaluator, Vectorized):
        if stop := work.out_of_time():
            return stop
        _evaluate_vectorized(work, x, work.evaluator.fun)
        return None
    names = opt.asked
    first = opt.evaluations == 0 and work.state.totals.restarts == 0 and not work.losses.tries
    outcomes, stop = evaluate(work, names, x)
    if first:
        raise_if_broken(outcomes, work.state.start)
    counted = opt.evaluations
    opt.tell([o if o is not None else LOST for o in outcomes])
    counted = opt.evaluations - counted
    told = [(names[i], o, x[i]) for i, o in enumerate(outcomes) if is_answer(o)]
    work.answered += told[:counted]
    if stop and stop.reason is StopReason.INTERRUPTED:
        return work.interrupted()
    return stop or count_lost(work, names, outcomes)


def evaluate(
    work: Work, names: Sequence[EvaluationId], x: NDArray[np.float64]
) -> tuple[list[Outcome | None], Stop | None]:
    """The outcomes of these points (None: not evaluated), and why the run cannot continue, if so.

    A deadline limits new evaluations only: the run ends when the log has no more answers.
    """
    state, tries = work.state, work.losses.tries
    tasks = [Task(x[i], id._replace(attempt=tries.get(id, 0))) for i, id in enumerate(names)]
    outcomes: list[Outcome | None] = [None] * len(tasks)
    if not isinstance(work.evaluator, RecordingEvaluator) and (stop := work.out_of_time()):
        return outcomes, stop
    try:
        with closing(work.evaluator(tasks, work.deadline)) as finished:
            for position, outcome in finished:
                work.doubts.check_outcome(outcome, first=position == 0 and state.evaluations == 0)
                outcomes[position] = outcome
                if _hits(outcomes, state.opt.target):
                    break
                work.check_stop_request()
    except KeyboardInterrupt:
        return outcomes, work.interrupted()
    except StorageError as error:
        return outcomes, Stop(StopReason.STORAGE, str(error))
    return outcomes, None if any(outcomes) else work.out_of_time()


def count_lost(work: Work, names: Sequence[EvaluationId], outcomes: Sequence[Outcome | None]) -> Stop | None:
    """Count the lost points and wait before their retry."""
    worst, stop = work.losses.tally(names, outcomes)
    if worst and not stop:
        work.pause(backoff_seconds(worst))
    return stop


def is_answer(outcome: Outcome | None) -> TypeGuard[Outcome]:
    return outcome is not None and outcome.status != "lost"


def _evaluate_vectorized(work: Work, x: NDArray[np.float64], fun: Callable[[Any], Any]) -> None:
    opt = work.state.opt
    f = call_vectorized(fun, x) if len(x) else np.empty(0)
    work.doubts.check_values(f)
    # Names are needed only if failed points are drawn again in the same generation.
    names = opt.asked if redraws_failed(opt) else None
    counted = opt.evaluations
    opt.tell(f)
    counted = opt.evaluations - counted
    if names is None:
        work.state.failures.add_values(f[:counted], x[:counted])
    else:
        work.answered += [(names[i], from_number(float(f[i])), x[i]) for i in range(counted)]


def _hits(outcomes: list[Outcome | None], target: float | None) -> bool:
    """Whether the target is reached and all earlier slots are evaluated: later ones change nothing."""
    if target is None:
        return False
    for outcome in outcomes:
        if outcome is None:
            return False
        if outcome.status == "value" and outcome.value <= target:
            return True
    return False
