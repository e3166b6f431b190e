"""What supervised workers cost and what they save: python -m benchmarks.workers, from the repository's root.

Prints the overhead of one evaluation, the share of the ideal throughput, the time to start a worker, and for
every fault how many of the seven other evaluations of its batch kept their results.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fmnes.evaluation.evaluator import Task, evaluate_all
from fmnes.evaluation.workers.pool import Workers
from fmnes.outcome import EvaluationId, Outcome
from tests import faults


def batch(n: int, d: int, second: float = 0.0) -> list[Task]:
    x = np.full((n, d), second)
    x[:, 0] = np.arange(n)
    return [Task(row, EvaluationId(0, 0, slot)) for slot, row in enumerate(x)]


def seconds(act: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """The median and the least."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return statistics.median(times), min(times)


def overhead() -> None:
    n = 2000
    tasks = batch(n, d=20)
    with Workers(faults.echo, 2) as workers:
        list(evaluate_all(workers, tasks))
        median, least = seconds(lambda: list(evaluate_all(workers, tasks)), 9)
    print(
        f"overhead, 2 workers, d = 20: {1e3 * median / n:.3f} ms an evaluation (least {1e3 * least / n:.3f})"
    )


def start() -> None:
    def one() -> None:
        with Workers(faults.echo, 1) as workers:
            list(evaluate_all(workers, batch(1, d=20)))

    median, least = seconds(one, 5)
    print(f"start, one evaluation, end of a worker: {median:.2f} s (least {least:.2f})")


def throughput() -> None:
    nap, population, count = 0.05, 64, 8
    tasks = batch(population, d=20, second=nap)
    with Workers(faults.sleeps, count) as workers:
        list(evaluate_all(workers, tasks))
        median, least = seconds(lambda: list(evaluate_all(workers, tasks)), 5)
    ideal = nap * population / count
    shares = f"{ideal / median:.1%} of ideal (best {ideal / least:.1%})"
    print(f"throughput, 50 ms of sleep, population 64, 8 workers: {shares}")


def fault_table() -> None:
    print("\nOne bad task in a batch of 8, 2 workers, timeout 1 s:")
    print(f"{'fault':36}{'innocents kept':16}{'the bad one':12}{'seconds':>8}  reason")
    with Workers(faults.faulty, 2, timeout=1.0) as workers:
        list(evaluate_all(workers, batch(8, d=20)))
        for number, name in enumerate(faults.FAULTS):
            tasks = batch(8, d=20, second=number)
            began = time.perf_counter()
            outcomes = dict(evaluate_all(workers, tasks))
            took = time.perf_counter() - began
            bad = outcomes.pop(faults.BAD)
            kept = sum(o == Outcome("value", faults.right(tasks[i].x)) for i, o in outcomes.items())
            print(f"{name:36}{kept} of 7{'':10}{bad.status:12}{took:8.2f}  {bad.reason[:60]}")


def main() -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as directory:
        os.environ["FMNES_TEST_PIDS"] = str(Path(directory) / "pids")
        overhead()
        throughput()
        start()
        fault_table()


if __name__ == "__main__":
    main()
