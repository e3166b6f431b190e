"""Evaluation in this process: point by point, or a whole generation in one call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import Infeasible, Lost, ObjectiveError
from fmnes.evaluation.evaluator import Outcomes, TaskSource, take_all
from fmnes.outcome import (
    WRONG_TYPE,
    Outcome,
    call,
    call_in_one_process,
    from_exception,
    from_number,
    from_return,
    infeasible,
)
from fmnes.result import Vector


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

    def __init__(self, fun: Callable[[Any], Any]) -> None:
        self.fun = fun

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        batch = take_all(tasks)
        began = time.monotonic()
        values = call_vectorized(self.fun, np.array([task.x for task in batch])) if batch else ()
        seconds = (time.monotonic() - began) / max(len(batch), 1)  # the average
        for task, value in zip(batch, values, strict=True):
            yield task, replace(from_number(float(value)), seconds=seconds)

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


def call_vectorized(fun: Callable[[Any], Any], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return fun(x) for all points at once, (n, d) -> (n,); exceptions of `fun` pass."""
    answer = call_in_one_process(fun, x.copy())
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
