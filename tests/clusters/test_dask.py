"""Dask alone: what may be handed over, and a scheduler that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.executor import count_workers
from fmnes.integrations import dask as ours
from fmnes.outcome import EvaluationId
from tests.batches import ExecutorEvaluator
from tests.clusters.objectives import ends_its_driver, is_alive, notes, traced, valley
from tests.clusters.test_engines import RUN, wait_until

ROOT = Path(__file__).parents[2]


def test_a_client_itself_is_refused_in_words(dask_client: Any) -> None:
    with pytest.raises(ArgumentError, match=r"found a Client of Dask.*dask\.executor\(client\)"):
        fmnes.minimize(valley, **RUN, executor=dask_client)


def test_an_address_and_a_cluster_and_neither(dask_client: Any) -> None:
    for where in (dask_client.scheduler.address, dask_client.cluster):
        with ours.executor(where) as executor:
            assert count_workers(executor) == 2
            assert fmnes.minimize(valley, **RUN, executor=executor).nfev == 60
    with pytest.raises(ArgumentError, match=r"cluster: found 3, wanted a distributed\.Client"):
        ours.executor(3)
    assert dask_client.status == "running"


def test_equal_points_are_evaluated_each(dask: Any, tmp_path: Path) -> None:
    batch = [Task(np.ones(3), EvaluationId(0, 0, slot)) for slot in range(6)]
    evaluator = ExecutorEvaluator(partial(traced, folder=str(tmp_path)), dask)
    assert {outcome.value for _, outcome in evaluator(batch)} == {6.0}
    assert len(notes(tmp_path)) == 6


def test_large_data_goes_over_once_for_each_worker(dask_client: Any) -> None:
    sizes: list[int] = []

    class Counting(ours.DaskExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            sizes.extend(len(arg) for arg in args if isinstance(arg, bytes))
            return super().submit(fn, *args, **kwargs)

        def put(self, data: bytes) -> Any:
            puts.append(len(data))
            return super().put(data)

    puts: list[int] = []
    table = np.random.default_rng(1).random(100_000)
    fun = partial(_with_table, table=table)
    result = fmnes.minimize(fun, **RUN, executor=Counting(dask_client, {}))
    assert result == fmnes.minimize(fun, **RUN)
    assert len(puts) == 1 and puts[0] > table.nbytes  # and from there on Dask's own way
    assert max(sizes) < 1000
    assert len(sizes) <= 60 + 60 // 2  # not every task had to be sent twice


def _with_table(x: Any, table: Any) -> float:
    return float(np.sum(x**2) + table[:10].sum())


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """In a process of its own, with one worker of two threads."""
    file = tmp_path / "scheduler.json"
    flags = ["--scheduler-file", str(file), "--no-dashboard"]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0"]
    with subprocess.Popen([*command, "--host", "127.0.0.1", *flags], **quiet) as first:
        assert wait_until(file.exists)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "2", "--no-nanny"]
        with subprocess.Popen([*command, *flags, "--death-timeout", "60"], **quiet) as worker:
            yield str(file), first
            worker.kill()
            first.kill()


def test_a_driver_killed_with_9_leaves_nothing_running(scheduler: Any, tmp_path: Path) -> None:
    file, _ = scheduler
    code = f"""
import sys, functools, fmnes
from distributed import Client
from fmnes.integrations import dask
from tests.clusters.objectives import sleeps
client = Client(scheduler_file={file!r})
fun = functools.partial(sleeps, folder={str(tmp_path)!r})
fmnes.minimize(fun, [1.0], 1.0, executor=dask.executor(client), max_evaluations=9)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as driver:
        assert wait_until(lambda: notes(tmp_path))
        driver.kill()
    pids = [int(pid) for pid in notes(tmp_path)]
    assert all(map(is_alive, pids))
    assert wait_until(lambda: not any(map(is_alive, pids)))


def test_a_dead_scheduler_ends_in_a_resumable_stop(scheduler: Any, tmp_path: Path) -> None:
    from distributed import Client

    file, process = scheduler
    client = Client(scheduler_file=file, timeout=60, set_as_default=False)
    client.wait_for_workers(1)
    client._timeout = 1.0  # how long it looks for a scheduler that has gone; 30 s by default
    fun = partial(ends_its_driver, folder=str(tmp_path), driver=process.pid, number=signal.SIGKILL)
    result = fmnes.minimize(fun, **RUN, executor=ours.executor(client), run_dir=tmp_path / "run")
    assert result.stop_reason is fmnes.StopReason.LOST and "Dask is clos" in result.message
    assert 0 < result.nfev < 60 and result.n_infeasible < result.nfev
    client.close(0)
    assert fmnes.resume(tmp_path / "run", fun) == fmnes.minimize(valley, **RUN)
