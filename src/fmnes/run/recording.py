"""Records every evaluation, and answers from the log what was evaluated before."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fmnes.errors import RunError, StorageError
from fmnes.evaluation.evaluator import Task
from fmnes.outcome import EvaluationId, Outcome, bug_name
from fmnes.result import Vector
from fmnes.storage.log import EvaluationLog
from fmnes.storage.log_reader import MAX_STORED_DIMENSION, Batch, Known, Logged, x_hash

# -- The recorder
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


class Recorder:
    """Writes evaluations to the log of a run directory, or to memory."""

    def __init__(self, log: EvaluationLog | MemoryLog, outputs: bool = False) -> None:
        """outputs: replay them too, as the search needs them."""
        self._log, self._outputs = log, outputs
        self._last = log.last_generation()
        """Restart and generation of the last row that was there before; None if there was none."""
        self.suspects: list[Task] = []
        """Failures by an error since the last complete generation: if the run stops for them, they do not
        count. The start is judged together with the first generation."""
        self.evaluated = 0
        """The number of evaluations that were made rather than replayed."""
        self._began = 0.0
        """When the evaluator was last asked for an outcome (time.monotonic())."""
        self._ended = 0.0
        """End of the last evaluation, in seconds since the epoch."""

    def begin(self) -> None:
        """Note that the evaluator is asked for the next outcome."""
        self._began = time.monotonic()

    def record(self, task: Task, outcome: Outcome) -> None:
        """Write an evaluation. It is stored when this returns; raises StorageError."""
        self.evaluated += 1
        # Parallel evaluators measure the time; otherwise it is the time since the last outcome.
        seconds = time.monotonic() - self._began if math.isnan(outcome.seconds) else outcome.seconds
        # A replay sorts by the ends of evaluations, so they must increase even if the clock does not.
        self._ended = max(time.time(), self._ended + _APART)
        try:
            self._log.record(task.id, outcome, task.x, self._ended - seconds, seconds)
        except RunError as error:
            raise StorageError(str(error)) from error
        self.suspect(task, outcome)

    def suspect(self, task: Task, outcome: Outcome) -> None:
        if outcome.status == "infeasible" and bug_name(outcome):
            self.suspects.append(task)

    def forget_suspects(self) -> None:
        """Cancel the failures that stopped the run: a resume evaluates them again.

        In one transaction: a resumed run may be killed before it has repeated them.
        """
        now = time.time()
        rows = [(_attempt(task, task.id.attempt + 1), task.x) for task in self.suspects]
        self._log.record_many((task.id, FORGOTTEN, x, now, 0.0) for task, x in rows)
        self.suspects = []

    def replay(self, tasks: Sequence[Task]) -> tuple[list[tuple[Task, Outcome]], list[Task]]:
        """Return those of these tasks of one generation that the log answers, with outcomes; and the others.

        Their attempts are then numbered as in the log.
        """
        if self._last is None or not tasks or tasks[0].id[:2] > self._last:
            return [], list(tasks)
        answered: list[tuple[Task, Outcome]] = []
        rest: list[Task] = []
        logged = self._log.find(*tasks[0].id[:2], outputs=self._outputs)
        for task in tasks:
            rows = logged.get(task.id.point, [])
            counted = _since_forgotten(rows)
            if task.id.attempt >= len(counted):
                rest.append(_attempt(task, rows[-1].attempt + 1) if rows else task)
                continue
            row = counted[task.id.attempt]
            if row.x_hash != x_hash(task.x):
                raise RunError(
                    f"{self._log.path}: found another point at generation {task.id.generation}, slot "
                    f"{task.id.slot}, not the one asked for: the run was made with another version of NumPy "
                    "or fmnes, or on another kind of machine, and cannot go on bit for bit"
                )
            answered.append((_attempt(task, rows[-1].attempt), replace(row.outcome, remembered=True)))
        return answered, rest

    def rows(self, restart: int, since: int) -> tuple[list[Logged], dict[EvaluationId, int]]:
        """The valid rows of a search from a generation on, in order of completion, and attempts per point."""
        tries: dict[EvaluationId, list[Logged]] = {}
        for row in self._log.since(restart, since, outputs=self._outputs):
            tries.setdefault(row.key.point, []).append(row)
        counting = [row for rows in tries.values() for row in _since_forgotten(rows)]
        counting.sort(key=lambda row: row.started + row.duration)
        self._ended = max([self._ended, *(row.started + row.duration for row in counting[-1:])])
        return counting, {id: rows[-1].key.attempt + 1 for id, rows in tries.items()}


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


# -- Evaluations in memory


class MemoryLog:
    """Keeps every evaluation in memory, for `keep_evaluations` without a run directory."""

    path = "memory"

    def __init__(self) -> None:
        self._rows: list[tuple[EvaluationId, Outcome, Vector, float, float]] = []

    def record(self, id: EvaluationId, outcome: Outcome, x: Vector, started: float, duration: float) -> None:
        self._rows.append((id, outcome, x, started, duration))

    def record_many(self, rows: Iterable[tuple[EvaluationId, Outcome, Vector, float, float]]) -> None:
        self._rows += rows

    def last_generation(self) -> None:
        """Nothing was evaluated before."""

    def find(
        self, restart: int, generation: int, outputs: bool = False
    ) -> Mapping[EvaluationId, list[Known]]:
        return {}

    def since(self, restart: int, generation: int, outputs: bool = False) -> Iterator[Logged]:
        return iter(())

    def batches(self) -> list[Batch]:
        """All evaluations, by id."""
        if not self._rows:
            return []
        rows = sorted(self._rows, key=lambda row: row[0])
        ids, outcomes, points, started, seconds = zip(*rows, strict=True)
        short = len(points[0]) <= MAX_STORED_DIMENSION
        batch = Batch(
            keys=np.array(ids, dtype=np.int64),
            statuses=[outcome.status for outcome in outcomes],
            values=np.array([outcome.value for outcome in outcomes]),
            reasons=[outcome.reason for outcome in outcomes],
            faults=[outcome.fault for outcome in outcomes],
            details=[outcome.detail for outcome in outcomes],
            started=np.array(started),
            seconds=np.array(seconds),
            x=np.array(points) if short else None,
            outputs=[outcome.outputs for outcome in outcomes],
        )
        return [batch]
