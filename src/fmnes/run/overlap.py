"""Overlapping generations: idle workers receive points of the next generation before the present one ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np

from fmnes.errors import StorageError
from fmnes.evaluation.evaluator import Task, TaskStream
from fmnes.identity import EvaluationId
from fmnes.outcome import Outcome
from fmnes.result import Stop, StopReason
from fmnes.run.checks import raise_if_broken
from fmnes.run.evaluate import Work
from fmnes.search.overlap import OverlapScheduler
from fmnes.search.stopping import limit_reached
from fmnes.storage.rows import Logged, x_hash

#: Called when a generation has ended; returns a reason to stop.
Look = Callable[[], Stop | None]


def evaluate_overlapping(work: Work, flow: OverlapScheduler, look: Look) -> Stop | None:
    """Evaluate until there is a reason to stop, or no task is left."""
    if stop := work.out_of_time():
        return stop
    supply = TaskStream(lambda: _next_task(work, flow))
    try:
        with closing(work.evaluator(supply, work.deadline)) as finished:
            for position, outcome in finished:
                task = supply.pop(position)
                work.doubts.check_outcome(outcome, first=work.state.evaluations == 0)
                if stop := _take_in(work, flow, look, task.id.point, outcome):
                    return stop
                work.check_stop_request()
    except KeyboardInterrupt:
        return work.interrupted()
    except StorageError as error:
        return Stop(StopReason.STORAGE, str(error))
    for task in supply.left():  # they were not evaluated
        flow.give_back(task.id.point)
    if seconds := work.losses.seconds_to_next():  # only lost points are left
        work.pause(seconds)
    return None


def recall(work: Work, flow: OverlapScheduler, look: Look) -> Stop | None:
    """Replay the evaluations of this search that the log has, in order of completion.

    The value of a point that is not drawn again, as with another version of NumPy, is only noted.
    """
    answers = getattr(work.evaluator, "answers", None)
    if answers is None:
        return None
    opt = work.state.opt
    oldest = min([opt.generation, *(id.generation for id in flow.out)])
    try:
        rows, tries = answers(work.state.totals.restarts, oldest)
    except StorageError as error:
        return Stop(StopReason.STORAGE, str(error))
    work.losses.tries.update(tries)
    slots: dict[int, list[int]] = {}
    for row in rows:
        slots.setdefault(row.key.generation, []).append(row.key.slot)
    expected = -1
    for row in rows:
        if expected != opt.generation:  # late results must be pending when it ends
            expected = opt.generation
            flow.expect(slots.get(expected, ()))
        name = row.key.point
        if name not in flow.out or x_hash(flow.out[name].x) != row.x_hash:
            _remember(work, row)
        elif row.outcome.status != "lost":
            outcome = replace(row.outcome, remembered=True)
            work.doubts.check_outcome(outcome, first=work.state.evaluations == 0)
            if stop := _take_in(work, flow, look, name, outcome):
                return stop
    flow.take_back()
    return None


def _next_task(work: Work, flow: OverlapScheduler) -> Task | None:
    for name in work.losses.take_due():
        flow.give_back(name)
    found = flow.take()
    if found is None:
        return None
    name, x = found
    return Task(x, name._replace(attempt=work.losses.tries.get(name, 0)))


def _take_in(
    work: Work, flow: OverlapScheduler, look: Look, name: EvaluationId, outcome: Outcome
) -> Stop | None:
    """Process one outcome."""
    state, opt = work.state, work.state.opt
    worst, stop = work.losses.tally([name], [outcome])
    if outcome.status == "lost":
        if not stop:
            work.losses.wait(name, worst)
        return stop
    work.answered.append((name, outcome, flow.out[name].x))
    if opt.generation == 0 and state.totals.restarts == 0:
        work.first.append(outcome)
    if not flow.tell(name, outcome.value if outcome.status == "value" else np.nan):
        return limit_reached(opt)
    if work.first:
        raise_if_broken(work.first, state.start)
        work.first = []
    return look()


def _remember(work: Work, row: Logged) -> None:
    if row.outcome.status == "value" and row.x is not None:
        work.state.opt.note(row.x, row.outcome.value)
