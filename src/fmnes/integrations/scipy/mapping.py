"""SciPy's map-like workers, `workers(func, iterable)`, as an executor."""

from __future__ import annotations

import functools
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes.evaluation.evaluator import Outcomes, Task
from fmnes.evaluation.programs.command import Command
from fmnes.outcome import Outcome, call, lost
from fmnes.result import Vector


class MapLike:
    """What `minimize` takes as executor: `pool.map`, `map`, a cluster's map."""

    def __init__(self, workers: Callable[..., Any]) -> None:
        self._workers = workers

    def make_evaluator(self, fun: Any, d: int, *, timeout: float | None, **_: Any) -> MapEvaluator:
        if isinstance(fun, Command):
            raise ArgumentError("fun: found a Command and map-like workers, wanted a number of workers")
        if timeout is not None:
            raise ArgumentError(
                f"timeout: found {timeout!r} and map-like workers, which cannot be made to kill an "
                "evaluation; wanted a number of workers"
            )
        return MapEvaluator(fun, self._workers)


class MapEvaluator:
    """All points in one call of the map. An evaluation that fails does not raise in there, so that the others
    are not lost with it."""

    def __init__(self, fun: Callable[[Any], Any], workers: Callable[..., Any]) -> None:
        self._fun = fun
        self._workers = workers

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        if not tasks:
            return
        done, foreign = 0, False
        try:
            points = [task.x.copy() for task in tasks]
            for outcome in self._workers(functools.partial(evaluate, self._fun), points):
                foreign = not isinstance(outcome, Outcome) or done == len(tasks)
                if foreign:
                    break
                yield done, outcome
                done += 1
                if deadline is not None and time.monotonic() >= deadline:
                    return
        except Exception as error:  # of the pool, not of the objective
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, pickle.PicklingError) or "pickle" in str(error):
                raise ArgumentError(
                    f"fun: found {shown(self._fun)}, which these workers cannot send ({text}); wanted a "
                    "function defined in a module"
                ) from error
            for position in range(done, len(tasks)):
                yield position, lost(f"the workers failed: {text}")
            return
        if foreign or done < len(tasks):
            raise ArgumentError(
                f"workers: found {shown(self._workers)}, which gave something else than one result for each "
                f"of {len(tasks)} points; wanted what func returns, for each point and in their order"
            )

    def close(self) -> None:
        """The pool stays the caller's."""


def evaluate(fun: Callable[[Any], Any], x: Vector) -> Outcome:
    began = time.monotonic()
    return replace(call(fun, x, elsewhere=True), seconds=time.monotonic() - began)
