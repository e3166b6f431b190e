"""What every engine promises: evaluations are isolated and timed in its workers, and what is lost is lost."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import StopReason
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.executor import count_workers
from fmnes.outcome import EvaluationId
from tests.batches import ExecutorEvaluator, executor_evaluator
from tests.clusters.objectives import (
    ends_its_driver,
    fails_variously,
    is_alive,
    kills_its_worker_once,
    notes,
    sleeps,
    traced,
    valley,
)

RUN: dict[str, Any] = {
    "x0": [1.0, 1.0, 1.0],
    "sigma0": 0.5,
    "rng": 1,
    "max_evaluations": 60,
    "surrogate": False,
}


def tasks(*first: float) -> list[Task]:
    return [Task(np.array([x, 0.5, 0.3]), EvaluationId(0, 0, slot)) for slot, x in enumerate(first)]


def wait_until(is_so: Any, seconds: float = 240.0) -> bool:
    end = time.monotonic() + seconds
    while not (found := is_so()) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(found)


def test_the_run_is_the_serial_one(engine: Executor) -> None:
    expected = fmnes.minimize(valley, **RUN)
    assert expected.n_infeasible > 0
    assert fmnes.minimize(valley, **RUN, executor=engine) == expected


def test_named_parameters_and_a_function_without_a_module(engine: Executor) -> None:
    space = {"a": fmnes.Real(0.1, 10, log=True), "n": fmnes.Integer(1, 9)}
    where = os.getpid()

    def fun(point: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        return (point["a"] - 2) ** 2 + point["n"], {"elsewhere": os.getpid() != where}

    result = fmnes.minimize(
        fun, space, rng=1, max_evaluations=20, surrogate=False, executor=engine, keep_evaluations=True
    )
    expected = fmnes.minimize(fun, space, rng=1, max_evaluations=20, surrogate=False)
    assert (result.x, result.fun) == (expected.x, expected.fun)
    assert result.evaluations is not None
    assert set(result.evaluations["elsewhere"]) == {True}


def test_each_failure_is_the_points_and_has_its_reason(engine: Executor) -> None:
    evaluator = ExecutorEvaluator(fails_variously, engine, timeout=5.0)
    outcomes = dict(evaluator(tasks(0, 1, 2, 3, 4, 5)))
    evaluator.close()
    told = {i: (outcome.status, outcome.fault, outcome.reason) for i, outcome in outcomes.items()}
    assert told == {
        0: ("value", "", ""),
        1: ("infeasible", "SIGSEGV", "died: SIGSEGV"),
        2: ("infeasible", "timeout", "timed out after 5 s"),
        3: ("lost", "", "ended from outside (SIGTERM)"),
        4: ("infeasible", "exit 7", "exited with code 7"),
        5: ("infeasible", "ValueError", "ValueError: bad input"),
    }
    for i in (1, 2, 3, 4):
        assert f"it is {i}" in outcomes[i].detail  # what it has printed
    assert outcomes[2].seconds >= 5.0 > outcomes[0].seconds >= 0


def test_a_crash_without_a_timeout_is_isolated_as_well(engine: Executor) -> None:
    ((_, outcome),) = ExecutorEvaluator(fails_variously, engine)(tasks(1))
    assert (outcome.status, outcome.reason) == ("infeasible", "died: SIGSEGV")


def test_a_worker_killed_in_mid_generation_costs_what_was_running_on_it(
    engine: Executor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fun = partial(kills_its_worker_once, folder=str(tmp_path))
    result = fmnes.minimize(fun, **RUN, executor=engine, run_dir=tmp_path / "run")
    assert (tmp_path / "first").exists()
    expected = fmnes.minimize(valley, **RUN)
    assert result == expected
    # Dask tries again by itself; of the others it is we who hear of it.
    assert ("lost, try 1" in caplog.text) == ("dask" not in type(engine).__module__)
    times = Counter(notes(tmp_path))
    assert len(times) == result.nfev
    # joblib ends all workers with one, also what one of them was about to answer.
    running = 3 if "joblib" in type(engine).__module__ else 1
    assert 1 <= sum(times.values()) - len(times) <= running


def test_a_program(engine: Executor, tmp_path: Path) -> None:
    script = "import sys, os; x = float(sys.argv[1]); print('FAIL: too far' if x > 1.2 else (x - 0.5) ** 2)"
    command = fmnes.Command([sys.executable, "-c", script, "{x0}"], keep="none")
    result = fmnes.minimize(command, [1.0], 0.5, rng=1, max_evaluations=12, surrogate=False, executor=engine)
    assert result == fmnes.minimize(command, [1.0], 0.5, rng=1, max_evaluations=12, surrogate=False)
    assert result.n_infeasible > 0
    slow = fmnes.Command([sys.executable, "-c", "import time; time.sleep(60)", "{x0}"], keep="none")
    evaluator = executor_evaluator(engine, slow, 1, timeout=0.5)
    outcomes = dict(evaluator([Task(np.zeros(1), EvaluationId(0, 0, 0))]))
    assert (outcomes[0].status, outcomes[0].fault) == ("infeasible", "timeout")


def test_a_large_objective_goes_over_and_is_not_sent_with_every_task(engine: Executor) -> None:
    table = np.random.default_rng(1).random(1_000_000)

    def fun(x: Any) -> float:
        return float(np.sum(x**2) + table[:10].sum())

    result = fmnes.minimize(fun, **RUN, executor=engine)
    assert result == fmnes.minimize(fun, **RUN)


def test_the_number_of_workers(engine: Executor) -> None:
    assert count_workers(engine) == 2


def test_max_seconds_ends_what_is_running(engine: Executor, tmp_path: Path) -> None:
    fmnes.minimize(valley, **RUN, executor=engine)  # its workers are there
    fun = partial(sleeps, folder=str(tmp_path))
    result = fmnes.minimize(fun, **{**RUN, "max_seconds": 5.0}, executor=engine)
    assert result.stop_reason is StopReason.MAX_SECONDS
    pids = [int(pid) for pid in notes(tmp_path)]
    assert pids
    assert wait_until(lambda: not any(map(is_alive, pids)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_driver_ends_the_run_and_what_is_running(
    engine: Executor, tmp_path: Path, number: int
) -> None:
    handler = signal.getsignal(number)
    fun = partial(ends_its_driver, folder=str(tmp_path), driver=os.getpid(), number=int(number))
    result = fmnes.minimize(fun, **RUN, executor=engine, run_dir=tmp_path / "run")
    assert result.stop_reason is StopReason.INTERRUPTED
    assert signal.getsignal(number) is handler
    sender = int((tmp_path / "first").read_text())
    assert wait_until(lambda: not is_alive(sender))
    again = fmnes.resume(tmp_path / "run", fun, executor=engine)
    assert again == fmnes.minimize(valley, **RUN)


def test_two_drivers_on_one_run_are_refused(engine: Executor, tmp_path: Path) -> None:
    refused = []

    def second(view: Any) -> None:
        try:
            fmnes.resume(tmp_path / "run", valley, executor=engine)
        except fmnes.RunError as error:
            refused.append(str(error))

    settings = {**RUN, "max_evaluations": 20}
    fmnes.minimize(valley, **settings, executor=engine, run_dir=tmp_path / "run", callback=second)
    assert refused and "in use" in refused[0]


def test_an_objective_that_no_worker_can_load(engine: Executor) -> None:
    class Broken:
        def __call__(self, x: Any) -> float:
            return 0.0

        def __setstate__(self, state: Any) -> None:
            raise RuntimeError("not here")

        def __getstate__(self) -> dict[str, int]:
            return {"a": 1}

    with pytest.raises(fmnes.ObjectiveError, match=r"cannot evaluate the objective, on [\s\S]*not here"):
        fmnes.minimize(Broken(), **RUN, executor=engine)


def test_traces(engine: Executor, tmp_path: Path) -> None:
    """Each point is evaluated once, in a run and its continuation together."""
    fun = partial(traced, folder=str(tmp_path))
    first = {**RUN, "max_evaluations": 25}
    fmnes.minimize(fun, **first, executor=engine, run_dir=tmp_path / "run")
    fmnes.resume(tmp_path / "run", fun, executor=engine, max_evaluations=60)
    assert set(Counter(notes(tmp_path)).values()) == {1}
