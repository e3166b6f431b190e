"""Evaluators that record: answers known from the log are replayed, new ones are written."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fmnes.errors import RunError, StorageError
from fmnes.evaluation.evaluator import Evaluator, Outcomes, Task, TaskStream
from fmnes.identity import START, EvaluationId
from fmnes.outcome import Outcome, bug_name
from fmnes.storage.log import EvaluationLog
from fmnes.storage.log_reader import Batch
from fmnes.storage.rows import MAX_STORED_DIMENSION, Known, Logged, x_hash

# -- Recording in the log
#
# A resumed optimizer asks for the same points again. Every attempt that the log has, lost ones included, is
# answered from it; the others are evaluated and written.

#: Minimum seconds between the ends of two evaluations: more than the rounding of such a time.
_APART = 1e-6

_Row = TypeVar("_Row", Known, Logged)

#: The fault of a row that cancels the earlier rows of its point.
_TAKEN_BACK = "forgotten"
#: A row that takes back a failure.
FORGOTTEN = Outcome("lost", reason="the run stopped here; it is evaluated again", fault=_TAKEN_BACK)
#: Rows that take back what was evaluated after a failure that is taken back.
FORGOTTEN_VALUE = replace(FORGOTTEN, reason="a success after a failure that was taken back")
_FORGOTTEN_LOSS = replace(FORGOTTEN, reason="it was lost after a failure that was taken back")


class RecordingEvaluator:
    """Answers tasks from the log, evaluates the others, and writes them to the log."""

    def __init__(self, evaluator: Evaluator, log: EvaluationLog) -> None:
        self._evaluator = evaluator
        self._log = log
        self._faults: list[Task] = []
        """The tasks of this batch that failed with an error, with the last attempt in the log; the start
        counts as part of the first generation."""
        self.evaluated = 0
        """The number of evaluations that were made rather than replayed."""
        self._ended = 0.0
        """End of the last evaluation, in seconds since the epoch."""

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        if isinstance(tasks, TaskStream):  # overlapping generations call `answers` first
            yield from self._made(tasks, deadline)
            return
        rest: list[tuple[int, Task]] = []
        # The start is judged together with the first generation.
        first = bool(tasks) and tasks[0].id[:2] == (0, 0)
        self._faults = [task for task in self._faults if first and task.id.generation == START]
        known = self._log.find(*tasks[0].id[:2]) if tasks else {}
        for position, task in enumerate(tasks):
            rows = known.get(task.id.point, [])
            counted = _since_forgotten(rows)
            attempt = rows[-1].attempt + 1 if rows else task.id.attempt
            if task.id.attempt >= len(counted):
                rest.append((position, _attempt(task, attempt)))
                continue
            remembered = counted[task.id.attempt]
            if remembered.x_hash != x_hash(task.x):
                raise RunError(
                    f"{self._log.path}: found another point at generation {task.id.generation}, slot "
                    f"{task.id.slot}"
                    ", not the one asked for: the run was made with another version of NumPy or fmnes, or "
                    "on another kind of machine, and cannot go on bit for bit"
                )
            if _broke(remembered.outcome):
                self._faults.append(_attempt(task, attempt - 1))
            yield position, replace(remembered.outcome, remembered=True)
        if rest and (deadline is None or time.monotonic() < deadline):
            for i, outcome in self._made([task for _, task in rest], deadline):
                yield rest[i][0], outcome

    def _made(self, tasks: Sequence[Task], deadline: float | None) -> Outcomes:
        """Evaluate, and write each row before its outcome is passed on."""
        began = time.monotonic()
        with closing(self._evaluator(tasks, deadline)) as finished:
            for i, outcome in finished:
                task = tasks[i]
                self.evaluated += 1
                # Parallel evaluators measure the time; otherwise it is the time since the last outcome.
                seconds = time.monotonic() - began if math.isnan(outcome.seconds) else outcome.seconds
                # A replay sorts by the ends of evaluations, so they must increase even if the clock does not.
                self._ended = max(time.time(), self._ended + _APART)
                try:
                    self._log.record(task.id, outcome, task.x, self._ended - seconds, seconds)
                except RunError as error:
                    raise StorageError(str(error)) from error
                if _broke(outcome):
                    if isinstance(tasks, TaskStream) and task.id.generation > 0:
                        self._faults.clear()  # after the first generation a single one may stop the run
                    self._faults.append(task)
                yield i, outcome
                began = time.monotonic()

    def answers(self, restart: int, since: int) -> tuple[list[Logged], dict[EvaluationId, int]]:
        """The valid rows of a search from a generation on, in order of completion, and attempts per point."""
        tries: dict[EvaluationId, list[Logged]] = {}
        for row in self._log.since(restart, since):
            tries.setdefault(row.key.point, []).append(row)
        counting = [row for rows in tries.values() for row in _since_forgotten(rows)]
        counting.sort(key=lambda row: row.started + row.duration)
        self._ended = max([self._ended, *(row.started + row.duration for row in counting[-1:])])
        for row in counting:
            if (restart, row.key.generation) == (0, 0) and _broke(row.outcome) and row.x is not None:
                self._faults.append(Task(row.x, row.key))
        return counting, {name: rows[-1].key.attempt + 1 for name, rows in tries.items()}

    def forget_faults(self) -> None:
        """Cancel the failures of the last batch, which stopped the run: a resume evaluates them again.

        In one transaction: a resumed run may be killed before it has repeated them.
        """
        now = time.time()
        self._log.record_many(
            (task.id._replace(attempt=task.id.attempt + 1), FORGOTTEN, task.x, now, 0.0)
            for task in self._faults
        )
        self._faults = []

    def close(self) -> None:
        self._evaluator.close()


def _attempt(task: Task, attempt: int) -> Task:
    return task._replace(id=task.id._replace(attempt=attempt))


def taken_back(outcome: Outcome) -> Outcome:
    """The outcome of the row that cancels one with this outcome."""
    return {"infeasible": FORGOTTEN, "value": FORGOTTEN_VALUE, "lost": _FORGOTTEN_LOSS}[outcome.status]


def uncounted(outcome: Outcome) -> bool:
    """Whether it is the outcome of a cancelling row."""
    return outcome.fault == _TAKEN_BACK


def _since_forgotten(rows: Sequence[_Row]) -> Sequence[_Row]:
    """The attempts that count: those after the last cancelled one."""
    last = max((i for i, row in enumerate(rows) if uncounted(row.outcome)), default=-1)
    return rows[last + 1 :]


def _broke(outcome: Outcome) -> bool:
    return outcome.status == "infeasible" and bool(bug_name(outcome))


# -- Recording in memory


class MemoryRecorder:
    """Keeps every evaluation in memory."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._made: list[tuple[Task, Outcome, float, float]] = []

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        began = time.monotonic()
        with closing(self._evaluator(tasks, deadline)) as finished:
            for position, outcome in finished:
                # Parallel evaluators measure the time; otherwise it is the time since the last outcome.
                seconds = time.monotonic() - began if math.isnan(outcome.seconds) else outcome.seconds
                self._made.append((tasks[position], outcome, time.time() - seconds, seconds))
                yield position, outcome
                began = time.monotonic()

    def batches(self) -> list[Batch]:
        """All evaluations, by key."""
        if not self._made:
            return []
        made = sorted(self._made, key=lambda one: one[0].id)
        tasks = [task for task, *_ in made]
        outcomes = [outcome for _, outcome, *_ in made]
        short = len(tasks[0].x) <= MAX_STORED_DIMENSION
        batch = Batch(
            keys=np.array([task.id for task in tasks], dtype=np.int64),
            statuses=[outcome.status for outcome in outcomes],
            values=np.array([outcome.value for outcome in outcomes]),
            reasons=[outcome.reason for outcome in outcomes],
            faults=[outcome.fault for outcome in outcomes],
            details=[outcome.detail for outcome in outcomes],
            started=np.array([started for *_, started, _ in made]),
            seconds=np.array([seconds for *_, seconds in made]),
            x=np.array([task.x for task in tasks]) if short else None,
            outputs=[outcome.outputs for outcome in outcomes],
        )
        return [batch]

    def close(self) -> None:
        self._evaluator.close()
