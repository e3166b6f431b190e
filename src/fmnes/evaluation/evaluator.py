"""What an evaluator is, and which one a run gets: whoever calls the objective does it behind this."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from fmnes.arguments import check_callable, check_one_argument
from fmnes.errors import ArgumentError
from fmnes.outcome import Outcome
from fmnes.result import Vector
from fmnes.space import Space

#: The generation that the start's own evaluation is said to be of.
START = -1


class Task(NamedTuple):
    """One evaluation to make, and its name."""

    x: Vector
    generation: int
    slot: int
    redraw: int = 0
    attempt: int = 0
    restart: int = 0

    @property
    def point(self) -> tuple[int, int, int, int]:
        """The name of its point: all tries of it have that in common."""
        return self.restart, self.generation, self.slot, self.redraw

    @property
    def key(self) -> tuple[int, int, int, int, int]:
        return self.restart, self.generation, self.slot, self.redraw, self.attempt


#: Each finished task's position in its batch, and what came of it.
Outcomes = Generator[tuple[int, Outcome], None, None]


class Evaluator(Protocol):
    """Yields (position in `tasks`, outcome) for each task as it finishes, in any order.

    Whoever consumes it may stop early: closing the iterator abandons the tasks that are left. So does the
    deadline, a time of time.monotonic(): the iterator then ends early, without an outcome for them.
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
    """Whoever calls the objective, by what was asked for. Processes are POSIX's: loaded only where wanted.

    kept_in: the folder for what is kept of a Command's failed evaluations; made when there is something.
    space: named parameters; the objective gets its points in their words.
    """
    from fmnes.evaluation.deaths import Retried  # each of them knows this module
    from fmnes.evaluation.named import Named
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
            # One that does more than submit, such as a queue of files, evaluates in its own way.
            made: Evaluator = make(fun, d, timeout=timeout, retries=retries, kept_in=kept_in, space=space)
            return made
        from fmnes.evaluation.executors import evaluator_by

        return evaluator_by(executor, fun, d, timeout=timeout, space=space)
    if isinstance(fun, Command):
        if vectorized:
            raise ArgumentError("fun: found a Command together with vectorized; wanted workers=")
        from fmnes.evaluation.programs.runnable import check_runnable

        command = fun if timeout is None else replace(fun, timeout=timeout)
        # Any point will do: it tells the names, and which of them are whole numbers.
        check_runnable(command, d, None if space is None else space.named(np.zeros(d)))
        from fmnes.evaluation.programs.runner import CommandEvaluator

        named = None if space is None else space.named
        return Retried(CommandEvaluator(command, workers, kept_in, named=named), retries)
    if space is not None:
        fun = Named(fun, space, vectorized)
    if vectorized:
        if workers != 1 or timeout is not None:
            raise ArgumentError("vectorized: found together with workers or timeout; wanted one of them")
        return Vectorized(fun)
    if workers > 1 or timeout is not None:
        from fmnes.evaluation.workers.pool import Workers

        return Retried(Workers(fun, workers, timeout=timeout), retries)
    return Serial(fun, on_error)
