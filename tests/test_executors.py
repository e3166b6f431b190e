"""Any executor: the objective's own failures are the point's, all others are lost evaluations."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from fmnes.errors import ArgumentError
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.executors import ExecutorEvaluator
from fmnes.outcome import Outcome
from tests import faults


def tasks(n: int = 8, second: float = 0.0) -> list[Task]:
    return [Task(np.array([float(i), second, 0.3]), 0, i) for i in range(n)]


def processes(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


@pytest.fixture(scope="module")
def process_pool() -> Iterator[Executor]:
    with processes(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def thread_pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture(params=["process_pool", "thread_pool"])
def executor(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


class Inline(Executor):
    """Runs it at once, in this thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


REPORTED = [
    "ValueError",
    "exception that cannot be unpickled",
    "exception without words",
    "BaseException",
    "sys.exit(3)",
    "MemoryError",
    "recursion",
    "returns NaN",
    "returns str",
    "returns what cannot be pickled",
    "raises Lost",
]


@pytest.mark.parametrize("name", REPORTED)
def test_what_the_objective_reports_is_the_points(name: str, executor: Executor) -> None:
    fault = faults.FAULTS[name]
    batch = tasks(second=list(faults.FAULTS).index(name))
    outcomes = dict(ExecutorEvaluator(faults.faulty, executor)(batch))
    bad = outcomes.pop(faults.BAD)
    assert (bad.status, bad.fault) == (fault.status, fault.fault)
    assert bad.reason.startswith(fault.reason)
    assert outcomes == {
        i: Outcome("value", faults.right(batch[i].x)) for i in range(len(batch)) if i != faults.BAD
    }


def test_a_broken_pool_loses_evaluations_and_blames_no_point() -> None:
    batch = tasks(second=list(faults.FAULTS).index("os._exit(1)"))
    with processes(2) as executor:
        evaluator = ExecutorEvaluator(faults.faulty, executor)
        outcomes = dict(evaluator(batch))
        again = dict(evaluator(batch))  # now submit itself fails
    assert outcomes.keys() == again.keys() == set(range(8))
    assert {outcome.status for outcome in outcomes.values()} <= {"value", "lost"}
    assert outcomes[faults.BAD].status == "lost"
    assert "BrokenProcessPool" in outcomes[faults.BAD].reason
    assert {outcome.status for outcome in again.values()} == {"lost"}


def test_a_function_that_cannot_be_sent(process_pool: Executor) -> None:
    lock = threading.Lock()
    for fun in (lambda x: 0.0, lambda x: float(lock.locked())):
        with pytest.raises(ArgumentError, match=r"fun: found <function .*cannot send"):
            list(ExecutorEvaluator(fun, process_pool)(tasks(2)))


def test_the_objective_gets_a_copy(thread_pool: Executor) -> None:
    batch = tasks(2)
    list(ExecutorEvaluator(faults.digest, thread_pool)(batch))
    assert batch[1].x[0] == 1.0


def test_the_deadline_cancels_what_has_not_begun() -> None:
    begun = []

    def fun(x: Any) -> float:
        begun.append(x[0])
        time.sleep(x[1])
        return 0.0

    batch = [*tasks(1), *tasks(5, second=0.6)]
    with ThreadPoolExecutor(1) as executor:
        start = time.monotonic()
        outcomes = list(ExecutorEvaluator(fun, executor)(batch, start + 0.2))
        assert time.monotonic() - start < 0.5
    assert outcomes == [(0, Outcome("value", 0.0))]
    assert len(begun) == 2


def test_a_deadline_further_away_than_a_lock_can_wait(thread_pool: Executor) -> None:
    assert len(list(ExecutorEvaluator(faults.echo, thread_pool)(tasks(), time.monotonic() + 1e300))) == 8


def test_closing_the_iterator_cancels_what_has_not_begun() -> None:
    begun = []
    with ThreadPoolExecutor(1) as executor:
        evaluator = ExecutorEvaluator(lambda x: begun.append(x[0]) or time.sleep(0.05), executor)
        outcomes = evaluator(tasks(20))
        next(outcomes)
        outcomes.close()
        evaluator.close()
        assert executor.submit(os.getpid).result() == os.getpid()  # the pool is the caller's, and lives
    assert len(begun) < 5


def test_an_interrupt_passes_through() -> None:
    batch = tasks(second=list(faults.FAULTS).index("KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        list(ExecutorEvaluator(faults.faulty, Inline())(batch))


def test_bad_arguments(thread_pool: Executor) -> None:
    with pytest.raises(ArgumentError, match=r"timeout: found 2.0 together with executor.*workers="):
        ExecutorEvaluator(faults.echo, thread_pool, timeout=2.0)
    for wrong in (3, map, ThreadPoolExecutor):
        with pytest.raises(ArgumentError, match=r"executor: found .* wanted an object with a submit method"):
            ExecutorEvaluator(faults.echo, wrong)
    with pytest.raises(ArgumentError, match="fun: found 3"):
        ExecutorEvaluator(3, thread_pool)  # type: ignore[arg-type]
