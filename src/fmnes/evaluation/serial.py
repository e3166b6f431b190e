"""Evaluation in this process: point by point, or a whole generation in one call."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import Infeasible, Lost, ObjectiveError
from fmnes.evaluation.evaluator import Outcomes, Task, draw_more
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

    takes_ahead = True

    def __init__(self, fun: Callable[[Vector], Any], on_error: Literal["infeasible", "raise"]) -> None:
        self._fun = fun
        self._call = call if on_error == "infeasible" else call_or_raise

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        waiting = deque(range(len(tasks)))
        while True:
            waiting.extend(draw_more(tasks, 1 - len(waiting)))
            if not waiting or (deadline is not None and time.monotonic() >= deadline):
                return
            position = waiting.popleft()
            yield position, self._call(self._fun, tasks[position].x.copy())  # the objective may write to it

    def close(self) -> None:
        pass


class Vectorized:
    """Calls `fun` once for all points."""

    def __init__(self, fun: Callable[[Any], Any]) -> None:
        self.fun = fun

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        began = time.monotonic()
        values = call_vectorized(self.fun, np.array([task.x for task in tasks])) if tasks else ()
        seconds = (time.monotonic() - began) / max(len(tasks), 1)  # the average
        for position, value in enumerate(values):
            yield position, replace(from_number(float(value)), seconds=seconds)

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
