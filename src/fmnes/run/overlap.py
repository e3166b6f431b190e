"""The points of overlapping generations: idle workers receive some before the present generation ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fmnes.evaluation.evaluator import Task
from fmnes.outcome import EvaluationId, Outcome
from fmnes.result import Stop
from fmnes.run.checks import raise_if_broken
from fmnes.run.evaluate import Work, evaluate, output_row
from fmnes.run.recording import Recorder
from fmnes.search.counting import note
from fmnes.search.overlap import OverlapScheduler
from fmnes.search.stopping import limit_reached
from fmnes.storage.log_reader import x_hash


class OverlappingPoints:
    """All points of a search, each taken when there is room for it."""

    may_wait = False
    first: EvaluationId | None = None

    def __init__(self, work: Work, scheduler: OverlapScheduler, look: Callable[[], Stop | None]) -> None:
        """look: called when a generation has ended; returns a reason to stop."""
        self.stop: Stop | None = None
        self._work, self._scheduler, self._look = work, scheduler, look
        self._under_way: set[EvaluationId] = set()
        self._replayed = False
        self._first: list[Outcome | None] = []
        """The outcomes of the first generation."""

    def replay(self, recorder: Recorder) -> Iterator[tuple[Task, Outcome]]:
        """The evaluations of this search that the log has, once, in order of completion.

        The value of a point that is not drawn again, as with another version of NumPy, is only noted.
        """
        if self._replayed:
            return
        self._replayed = True
        opt, scheduler = self._work.state.opt, self._scheduler
        oldest = min([opt.generation, *(id.generation for id in scheduler.out)])
        rows, tries = recorder.rows(opt.restart, oldest)
        self._work.losses.tries.update(tries)
        slots: dict[int, list[int]] = {}
        for row in rows:
            slots.setdefault(row.key.generation, []).append(row.key.slot)
        expected = -1
        for row in rows:
            if expected != opt.generation:  # late results must be pending when it ends
                expected = opt.generation
                scheduler.expect(slots.get(expected, ()))
            given = scheduler.out.get(row.key.point)
            if given is None or x_hash(given.x) != row.x_hash:
                if row.outcome.status == "value" and row.x is not None:
                    note(opt, row.x, row.outcome.value, output_row(opt, row.outcome))
            elif row.outcome.status != "lost":
                yield Task(given.x, row.key), replace(row.outcome, remembered=True)
        scheduler.take_back()

    def take(self) -> Task | None:
        losses = self._work.losses
        for id in losses.take_due():
            self._scheduler.give_back(id)
        found = self._scheduler.take()
        if found is None:
            return None
        id, x = found
        self._under_way.add(id)
        return Task(x, id._replace(attempt=losses.tries[id]) if id in losses.tries else id)

    def count(self, task: Task, outcome: Outcome) -> bool:
        id = task.id.point
        self._under_way.discard(id)
        self.stop = self._count(id, outcome)
        return self.stop is not None

    def _count(self, id: EvaluationId, outcome: Outcome) -> Stop | None:
        work, scheduler = self._work, self._scheduler
        state, opt = work.state, work.state.opt
        worst, stop = work.losses.tally([id], [outcome])
        if outcome.status == "lost":
            if not stop:
                work.losses.wait(id, worst)
            return stop
        work.answered.append((id, outcome, scheduler.out[id].x))
        if opt.generation == 0 and state.totals.restarts == 0:
            self._first.append(outcome)
        value = outcome.value if outcome.status == "value" else np.nan
        if not scheduler.tell(id, value, output_row(opt, outcome)):
            return limit_reached(opt)
        if self._first:
            raise_if_broken(self._first, state.start)
            self._first = []
        work.forget_suspects()
        return self._look()

    def give_back(self) -> None:
        """Hand out again what was not evaluated."""
        for id in self._under_way:
            self._scheduler.give_back(id)
        self._under_way.clear()


def evaluate_overlapping(work: Work, points: OverlappingPoints) -> Stop | None:
    """Evaluate until there is a reason to stop, or no task is left."""
    if stop := evaluate(work, points):
        return stop
    points.give_back()
    if seconds := work.losses.seconds_to_next():  # only lost points are left
        work.pause(seconds)
    return None
