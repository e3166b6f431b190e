"""The evaluator protocol, and evaluation in this process: by points, or a whole generation in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fmnes.constraints import Limits
from fmnes.errors import Infeasible, Lost, ObjectiveError
from fmnes.outcome import (
    WRONG_TYPE,
    EvaluationId,
    Outcome,
    call,
    call_in_one_process,
    from_exception,
    from_number,
    from_return,
    infeasible,
)
from fmnes.result import Vector

# -- The evaluator protocol.


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


# -- Evaluation in this process: point by point, or a whole generation in one call.


class Serial:
    """Calls `fun` in this process, one point after another."""

    def __init__(self, fun: Callable[[Vector], Any], on_error: Literal["infeasible", "raise"]) -> None:
        self._fun = fun
        self._call = call if on_error == "infeasible" else call_or_raise

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        while deadline is None or time.monotonic() < deadline:
            task = tasks.take()
            if task is None:
                return
            yield task, self._call(self._fun, task.x.copy())  # the objective may write to it

    def close(self) -> None:
        pass


class Vectorized:
    """Calls `fun` once for all points."""

    def __init__(self, fun: Callable[[Any], Any], limits: Limits | None = None) -> None:
        """limits: on outputs, which `fun` returns beside the values, {name: (n,)} or (n, k)."""
        self.fun, self._limits = fun, limits

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        batch = take_all(tasks)
        if not batch:
            return
        began = time.monotonic()
        x = np.array([task.x for task in batch])
        outputs: list[Any] = [None] * len(batch)
        if self._limits is None:
            values = call_vectorized(self.fun, x)
        else:
            values, outputs = call_with_outputs(self.fun, x, self._limits)
        seconds = (time.monotonic() - began) / len(batch)  # the average
        for task, value, found in zip(batch, values, outputs, strict=True):
            yield task, replace(from_number(float(value)), seconds=seconds, outputs=found)

    def close(self) -> None:
        pass


def call_or_raise(fun: Callable[[Any], Any], x: Any) -> Outcome:
    """Like `call`, but raise exceptions other than Infeasible and Lost."""
    try:
        returned = call_in_one_process(fun, x)
    except (Infeasible, Lost) as error:
        return from_exception(error)
    except (StopIteration, GeneratorExit) as error:  # these would end the calling generator
        raise ObjectiveError(f"the objective raised {type(error).__name__}") from error
    try:
        return from_return(returned)
    except TypeError as error:
        return infeasible(str(error), fault=WRONG_TYPE)


def call_with_outputs(
    fun: Callable[[Any], Any], x: NDArray[np.float64], limits: Limits
) -> tuple[NDArray[np.float64], list[dict[str, float]]]:
    """The values, and the outputs of each point, of `fun` that returns both for all points at once."""
    answer = call_in_one_process(fun, x.copy())
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        wanted = "{name: array of shape (n,)}" if limits.named else "array of shape (n, k)"
        raise ObjectiveError(
            f"the vectorized objective returned {type(answer).__name__}; wanted (values, {wanted}), as there "
            "are constraints"
        )
    values, found = answer
    if not isinstance(found, Mapping):
        table = np.asarray(found)
        if table.shape != (len(x), len(limits)):
            raise ObjectiveError(
                f"the vectorized objective returned outputs of shape {table.shape}; wanted "
                f"{(len(x), len(limits))}"
            )
        found = {name: table[:, i] for i, name in enumerate(limits.names)}
    columns = {str(name): np.asarray(column).reshape(-1) for name, column in found.items()}
    for name, column in columns.items():
        if column.shape != (len(x),) or column.dtype.kind not in "fiub":
            raise ObjectiveError(
                f"the vectorized objective returned the output {name!r} as {column.dtype} of shape "
                f"{column.shape}; wanted numbers of shape {(len(x),)}"
            )
    rows = [{name: float(column[i]) for name, column in columns.items()} for i in range(len(x))]
    return _values(values, x), rows


def call_vectorized(fun: Callable[[Any], Any], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return fun(x) for all points at once, (n, d) -> (n,); exceptions of `fun` pass."""
    return _values(call_in_one_process(fun, x.copy()), x)


def _values(answer: Any, x: NDArray[np.float64]) -> NDArray[np.float64]:
    returned = np.asarray(answer)
    if returned.dtype.kind not in "fiub" or returned.shape != (len(x),):
        found = f"{returned.dtype} of shape {returned.shape}"
        if answer is None:
            found = "None (did you forget `return`?)"
        raise ObjectiveError(
            f"the vectorized objective returned {found} for points of "
            f"shape {x.shape}; wanted real numbers of shape {(len(x),)} (NaN or inf for a failed evaluation)"
        )
    return returned.astype(np.float64)
