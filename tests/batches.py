"""Evaluators that take lists of tasks, and yield positions with outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fmnes.evaluation import evaluator, executor
from fmnes.evaluation.evaluator import Evaluator, Task, evaluate_all
from fmnes.evaluation.objective import Objective
from fmnes.evaluation.programs import runner
from fmnes.evaluation.workers import pool
from fmnes.outcome import EvaluationId, Outcome


def task(x: Any, slot: int = 0) -> Task:
    """The first attempt at a point of the first generation."""
    return Task(np.asarray(x, dtype=float), EvaluationId(0, 0, slot))


class Batches:
    """This evaluator, called with lists."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Iterator[tuple[int, Outcome]]:
        return evaluate_all(self._evaluator, tasks, deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._evaluator, name)

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: object) -> None:
        self._evaluator.close()


def Workers(*args: Any, **options: Any) -> Any:
    return Batches(pool.Workers(*args, **options))


def CommandEvaluator(*args: Any, **options: Any) -> Any:
    return Batches(runner.CommandEvaluator(*args, **options))


def ExecutorEvaluator(*args: Any, **options: Any) -> Any:
    return Batches(executor.ExecutorEvaluator(*args, **options))


def executor_evaluator(executor: Any, fun: Any, d: int, **options: Any) -> Any:
    return Batches(Objective(fun, d).evaluator(executor=executor, **options))


def Serial(*args: Any, **options: Any) -> Any:
    return Batches(evaluator.Serial(*args, **options))


def choose_evaluator(fun: Any, d: int, **options: Any) -> Any:
    return Batches(Objective(fun, d).evaluator(**options))
