"""The evaluator protocol, and the choice of the evaluator of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol, overload

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


#: Position in the batch and outcome of each finished task.
Outcomes = Generator[tuple[int, Outcome], None, None]


class Evaluator(Protocol):
    """Yields (position in `tasks`, outcome) for each task as it finishes, in any order.

    Closing the iterator abandons the remaining tasks. At the deadline, a time of time.monotonic(), the
    iterator ends without outcomes for them.
    """

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes: ...
    def close(self) -> None: ...


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
) -> Evaluator:
    """Return the evaluator for these options. Modules that need POSIX are imported only if they are used.

    kept_in: the folder for directories of a Command's failed evaluations, created when needed.
    space: named parameters; the objective gets its points by name.
    """
    from fmnes.evaluation.exit_status import RetryKilled  # these import this module
    from fmnes.evaluation.programs.command import Command
    from fmnes.evaluation.serial import Serial, Vectorized

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


class TaskStream(Sequence[Task]):
    """A batch that grows: `draw` returns the next task, or None if there is none at the moment.

    An evaluator that supports it (`takes_ahead`) asks for more tasks when it has room. The batch ends when
    nothing is running and `draw` returns None.
    """

    def __init__(self, draw: Callable[[], Task | None]) -> None:
        self._draw = draw
        self._count = 0
        self._tasks: dict[int, Task] = {}
        """Unfinished tasks only, to limit the memory of a long run."""

    def grow(self) -> int | None:
        """Draw the next task and return its position."""
        task = self._draw()
        if task is None:
            return None
        self._tasks[self._count] = task
        self._count += 1
        return self._count - 1

    def pop(self, position: int) -> Task:
        """Remove and return a finished task."""
        return self._tasks.pop(position)

    def left(self) -> list[Task]:
        """Return the unfinished tasks."""
        return list(self._tasks.values())

    @overload
    def __getitem__(self, position: int) -> Task: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Task]: ...
    def __getitem__(self, position: Any) -> Any:
        if position not in self._tasks:
            raise IndexError(position)
        return self._tasks[position]

    def __len__(self) -> int:
        """Return the number of tasks drawn so far."""
        return self._count


def draw_more(tasks: Sequence[Task], room: float) -> list[int]:
    """Draw up to `room` tasks from a TaskStream and return their positions; none for other sequences."""
    found: list[int] = []
    if isinstance(tasks, TaskStream):
        while len(found) < room and (position := tasks.grow()) is not None:
            found.append(position)
    return found


def check_takes_stream(evaluator: Any, overlap: float) -> None:
    """Raise ArgumentError, and close the evaluator, if it does not support a TaskStream."""
    if overlap and not getattr(evaluator, "takes_ahead", False):
        evaluator.close()
        raise ArgumentError(
            f"overlap: found {shown(overlap)} where all points of a generation are evaluated together; "
            "wanted 0, or workers="
        )


class Named:
    """Calls `fun` with {name: value} in the user's units; if it is `vectorized`, with {name: (n,)}."""

    def __init__(self, fun: Callable[[Any], Any], space: Space, vectorized: bool) -> None:
        self._fun = fun
        self._convert = space.columns if vectorized else space.named

    def __call__(self, x: NDArray[np.float64]) -> Any:
        return self._fun(self._convert(x))

    def __repr__(self) -> str:
        return repr(self._fun)
