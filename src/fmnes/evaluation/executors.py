"""Evaluation by any `concurrent.futures.Executor`: threads, processes, a cluster. It needs `submit` only.

An executor tells less than our own workers. If the objective reports (a value, an exception), the outcome is
the point's. If the future itself fails (a broken pool, a dead node), nobody knows whose fault that was: the
evaluation is lost, never infeasible. And no executor can be made to kill what is running.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from contextlib import suppress
from typing import Any, Literal

from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes.evaluation.evaluator import Outcomes, Task
from fmnes.outcome import Outcome, call, lost
from fmnes.outputs import Outputs
from fmnes.result import Vector

Plain = tuple[Literal["value", "infeasible", "lost"], float, str, str, str, float, Outputs | None]


class ExecutorEvaluator:
    """Evaluates `fun` by `executor.submit`. The executor stays the caller's: `close` leaves it running."""

    def __init__(self, fun: Callable[[Any], Any], executor: Any, *, timeout: float | None = None) -> None:
        if not callable(fun):
            raise ArgumentError(f"fun: found {shown(fun)}, wanted a function of one point")
        if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
            raise ArgumentError(f"executor: found {shown(executor)}, wanted an object with a submit method")
        if timeout is not None:
            raise ArgumentError(
                f"timeout: found {timeout!r} together with executor; an executor cannot be made to kill an "
                "evaluation, wanted workers= instead"
            )
        self._fun = fun
        self._executor = executor

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        positions: dict[Future[Plain], int] = {}
        try:
            for position, task in enumerate(tasks):
                try:
                    future = self._executor.submit(evaluate, self._fun, task.x.copy())
                except Exception as error:
                    yield position, self._fate(error)
                else:
                    positions[future] = position
            left = None
            if deadline is not None:  # more than a lock can wait for is as good as for ever
                left = min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)
            with suppress(TimeoutError):
                for future in as_completed(positions, left):
                    yield positions.pop(future), self._outcome(future)
        finally:
            for future in positions:
                future.cancel()

    def close(self) -> None:
        pass

    def _outcome(self, future: Future[Plain]) -> Outcome:
        try:
            status, value, reason, fault, detail, seconds, outputs = future.result()
            return Outcome(status, value, reason, fault, detail, seconds, outputs=outputs)
        except Exception as error:
            return self._fate(error)

    def _fate(self, error: BaseException) -> Outcome:
        """The objective has not reported: its evaluation is lost, unless it could not even be sent."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, pickle.PicklingError) or (
            isinstance(error, (TypeError, AttributeError)) and "pickle" in str(error)
        ):
            raise ArgumentError(
                f"fun: found {self._fun!r}, which this executor cannot send ({text}); wanted a function "
                "defined in a module"
            ) from error
        return lost(f"the executor failed: {text}")


def evaluate(fun: Callable[[Any], Any], x: Vector) -> Plain:
    """Where the executor runs it. Plain data only goes back: an exception of the user's may break a pool."""
    began = time.monotonic()
    outcome = call(fun, x)
    seconds = time.monotonic() - began
    words = (outcome.reason, outcome.fault, outcome.detail)
    return outcome.status, outcome.value, *words, seconds, outcome.outputs
