"""The evaluator protocol, and the choice of the evaluator of a run."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

from fmnes.identity import EvaluationId
from fmnes.outcome import Outcome
from fmnes.result import Vector


class Task(NamedTuple):
    """One evaluation to make."""

    x: Vector
    id: EvaluationId


#: Each finished task with its outcome.
Outcomes = Generator[tuple[Task, Outcome], None, None]


class TaskSource(Protocol):
    """Where an evaluator takes its tasks from, whenever it has room for more."""

    may_wait: bool
    """Whether tasks may wait in the evaluator; otherwise it takes only what it can begin at once."""

    def take(self) -> Task | None:
        """Return the next task; None if there is none at the moment."""


class Evaluator(Protocol):
    """Yields (task, outcome) for each task as it finishes, in any order.

    The iterator ends when nothing is running and `take` returns None. At the deadline, a time of
    time.monotonic(), it ends without outcomes for the remaining tasks. Closing it abandons them.
    """

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes: ...
    def close(self) -> None: ...


def take_all(tasks: TaskSource) -> list[Task]:
    """Take all tasks, for evaluators that need them together."""
    taken: list[Task] = []
    while (task := tasks.take()) is not None:
        taken.append(task)
    return taken


class TaskList:
    """A source of these tasks."""

    may_wait = True

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = iter(tasks)

    def take(self) -> Task | None:
        return next(self._tasks, None)


def evaluate_all(
    evaluator: Evaluator, tasks: Sequence[Task], deadline: float | None = None
) -> Generator[tuple[int, Outcome], None, None]:
    """Evaluate these tasks; yield the position and the outcome of each as it finishes."""
    positions: dict[int, list[int]] = {}
    for position, task in enumerate(tasks):
        positions.setdefault(id(task), []).append(position)
    with closing(evaluator(TaskList(tasks), deadline)) as finished:
        for task, outcome in finished:
            yield positions[id(task)].pop(0), outcome
