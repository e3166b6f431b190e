"""The evaluator protocol, and the choice of the evaluator of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import check_callable, check_one_argument, shown
from fmnes.errors import ArgumentError
from fmnes.identity import EvaluationId
from fmnes.outcome import Outcome
from fmnes.result import Vector
from fmnes.space import Space


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


def choose_evaluator(
    fun: Any,
    d: int,
    *,
    workers: int = 1,
    timeout: float | None = None,
    retries: int = 0,
    executor: Any = None,
    vectorized: bool = False,
    on_error: Literal["infeasible", "raise"] = "infeasible",
    kept_in: str | None = None,
    space: Space | None = None,
    overlap: float = 0.0,
) -> Evaluator:
    """Return the evaluator for these options. Modules that need POSIX are imported only if they are used.

    kept_in: the folder for directories of a Command's failed evaluations, created when needed.
    space: named parameters; the objective gets its points by name.
    """
    from fmnes.evaluation.exit_status import RetryKilled  # these import this module
    from fmnes.evaluation.programs.command import Command
    from fmnes.evaluation.serial import Serial, Vectorized

    if overlap and vectorized:
        raise ArgumentError(
            f"overlap: found {shown(overlap)} where all points of a generation are evaluated together; "
            "wanted 0, or workers="
        )
    if not isinstance(fun, Command):
        check_callable(fun)
        check_one_argument(fun, d, None if space is None else space.names)
    if executor is not None:
        if workers != 1 or vectorized:
            raise ArgumentError("executor: found together with workers or vectorized; wanted one of them")
        make = getattr(executor, "make_evaluator", None)
        if make is not None and not isinstance(executor, type):
            # Such as a FileQueue, which does more than submit.
            made: Evaluator = make(fun, d, timeout=timeout, retries=retries, kept_in=kept_in, space=space)
            return made
        from fmnes.evaluation.executor import executor_evaluator

        return executor_evaluator(executor, fun, d, timeout=timeout, space=space)
    if isinstance(fun, Command):
        if vectorized:
            raise ArgumentError("fun: found a Command together with vectorized; wanted workers=")
        from fmnes.evaluation.programs.preflight import check_runnable

        command = fun if timeout is None else replace(fun, timeout=timeout)
        # Any point shows the names, and which of them are integers.
        check_runnable(command, d, None if space is None else space.named(np.zeros(d)))
        from fmnes.evaluation.programs.runner import CommandEvaluator

        named = None if space is None else space.named
        return RetryKilled(CommandEvaluator(command, workers, kept_in, named=named), retries)
    if space is not None:
        fun = Named(fun, space, vectorized)
    if vectorized:
        if workers != 1 or timeout is not None:
            raise ArgumentError("vectorized: found together with workers or timeout; wanted one of them")
        return Vectorized(fun)
    if workers > 1 or timeout is not None:
        from fmnes.evaluation.workers.pool import Workers

        return RetryKilled(Workers(fun, workers, timeout=timeout), retries)
    return Serial(fun, on_error)


class Named:
    """Calls `fun` with {name: value} in the user's units; if it is `vectorized`, with {name: (n,)}."""

    def __init__(self, fun: Callable[[Any], Any], space: Space, vectorized: bool) -> None:
        self._fun = fun
        self._convert = space.columns if vectorized else space.named

    def __call__(self, x: NDArray[np.float64]) -> Any:
        return self._fun(self._convert(x))

    def __repr__(self) -> str:
        return repr(self._fun)
