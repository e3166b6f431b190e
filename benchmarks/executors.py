"""What a task costs the driver with an executor: python -m benchmarks.executors, from the repository's root.

Our own share is what a run with a run directory takes for each evaluation when the executor takes no time at
all: asking, submitting, collecting, logging, telling. Then whole evaluations of a function that does nothing,
by real executors, beside the executor alone. Rows for Dask and joblib need the extra `clusters`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import fmnes
from fmnes.evaluation.evaluator import Task, evaluate_all
from fmnes.evaluation.executor import ExecutorEvaluator
from fmnes.evaluation.workers.messages import encode
from fmnes.outcome import EvaluationId, Outcome
from tests.faults import echo

D, LAMBDA, TASKS = 20, 200, 10_000


class Instant(Executor):
    """Every task is done before it is submitted; for our own share."""

    isolates = True

    def __init__(self) -> None:
        self._value = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._value += 1
        future: Future[Any] = Future()
        future.set_result(("outcome", encode(Outcome("value", float(self._value))), 1.0))
        return future


def own_share(run_dir: Path | None) -> tuple[float, float]:
    """Seconds of a task in a run whose executor takes no time: by the clock, and of the processor."""
    began, used = time.perf_counter(), time.process_time()
    result = fmnes.minimize(
        echo, np.ones(D), 0.5, rng=1, population_size=LAMBDA, max_evaluations=TASKS, xtol=None, ftol=None,
        evaluate_start=False, executor=Instant(), run_dir=run_dir,
    )  # fmt: skip
    assert result.nfev == TASKS
    return (time.perf_counter() - began) / TASKS, (time.process_time() - used) / TASKS


def each(executor: Any, timeout: float | None) -> float:
    """Seconds of an evaluation, of those that are out together."""
    x = np.random.default_rng(1).random((LAMBDA, D))
    tasks = [Task(row, EvaluationId(0, 0, slot)) for slot, row in enumerate(x)]
    evaluator = ExecutorEvaluator(echo, executor, timeout=timeout)
    list(evaluate_all(evaluator, tasks))
    median = _median(lambda: list(evaluate_all(evaluator, tasks)))
    evaluator.close()
    return median


def alone(executor: Any) -> float:
    """The same of the executor itself, with a function that does nothing."""
    x = np.random.default_rng(1).random((LAMBDA, D))
    return _median(lambda: wait([executor.submit(echo, row) for row in x]))


def _median(act: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return statistics.median(times) / LAMBDA


@contextmanager
def dask() -> Iterator[Any]:
    from distributed import LocalCluster

    from fmnes.integrations import dask

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        dask.executor(cluster) as executor,
    ):
        yield executor


@contextmanager
def joblib() -> Iterator[Any]:
    from fmnes.integrations import joblib

    yield joblib.executor(2)


def main() -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; d = {D}, {LAMBDA} tasks out at a time")
    with tempfile.TemporaryDirectory() as folder:
        without = [own_share(None) for _ in range(5)]
        kept = [own_share(Path(folder, str(i))) for i in range(5)]
    for words, times in (("without", without), ("with", kept)):
        clock, processor = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
        times_told = f"{clock:.3f} ms, {processor:.3f} of the processor"
        print(f"our own share of a task, {words} a run directory: {times_told}")
    print(f"\n{'executor, 2 workers':36}{'ms a task':>10}{'alone':>8}")
    pools: dict[str, Callable[[], Any]] = {
        "ThreadPoolExecutor": lambda: ThreadPoolExecutor(2),
        "ProcessPoolExecutor": lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
        "Dask": dask,
        "joblib": joblib,
    }
    for name, make in pools.items():
        try:
            with make() as executor:
                for timeout in (None, 60.0):
                    isolated = timeout is not None or getattr(executor, "isolates", False)
                    if timeout is None and isolated:
                        continue
                    label = name + (", isolated" if isolated else "")
                    print(f"{label:36}{1e3 * each(executor, timeout):10.2f}{1e3 * alone(executor):8.2f}")
        except (fmnes.MissingExtra, ImportError) as error:
            print(f"{name:36}{error}")


if __name__ == "__main__":
    main()
