"""A real `mpiexec`. A child that dies costs an evaluation; a rank that dies the job, and the run resumes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fmnes
from fmnes import ArgumentError
from tests.clusters.objectives import is_alive, kills_its_worker_once, notes, traced, valley
from tests.clusters.test_engines import RUN, wait_until

ROOT = Path(__file__).parents[2]
#: The environment's own before the system's: mpi4py may have been built for either.
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def job(what: str, folder: Path) -> subprocess.CompletedProcess[str]:
    assert MPIEXEC, 'no mpiexec: pip install "fmnes[clusters]" brings one'
    driver = ["-m", "mpi4py.futures", str(Path(__file__).with_name("mpi_driver.py")), what, str(folder)]
    return subprocess.run(
        [MPIEXEC, "-n", "3", sys.executable, *driver],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def told(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return read


def test_the_run_is_the_serial_one(tmp_path: Path) -> None:
    done = job("run", tmp_path)
    assert done.returncode == 0, done.stderr
    expected = fmnes.minimize(valley, **RUN)
    assert told(tmp_path) == {"stop": expected.stop_reason.name, "fun": expected.fun}
    assert set(Counter(notes(tmp_path)).values()) == {1}
    result = fmnes.resume(tmp_path / "run", partial(traced, folder=str(tmp_path)))
    assert result == expected


def test_a_child_that_dies_is_one_evaluation(tmp_path: Path) -> None:
    done = job("failures", tmp_path)
    assert done.returncode == 0, done.stderr
    outcomes = told(tmp_path)
    assert outcomes.pop("workers") == 2
    assert outcomes.pop("without a timeout") == "died: SIGSEGV"
    assert not is_alive(outcomes.pop("driver"))
    assert {i: outcome[:2] for i, outcome in outcomes.items()} == {
        "0": ["value", ""],
        "1": ["infeasible", "died: SIGSEGV"],
        "2": ["infeasible", "timed out after 5 s"],
        "3": ["lost", "ended from outside (SIGTERM)"],
        "4": ["infeasible", "exited with code 7"],
        "5": ["infeasible", "ValueError: bad input"],
    }
    assert "it is 1" in outcomes["1"][2]


def test_a_dead_rank_ends_the_job_and_the_run_resumes(tmp_path: Path) -> None:
    done = job("dead rank", tmp_path)
    assert done.returncode != 0
    killer = int((tmp_path / "first").read_text())
    assert wait_until(lambda: not is_alive(killer))
    before = Counter(notes(tmp_path))
    result = fmnes.resume(tmp_path / "run", partial(kills_its_worker_once, folder=str(tmp_path)))
    assert result == fmnes.minimize(valley, **RUN)
    made = Counter(notes(tmp_path))
    assert len(made) == 60 and sum(made.values()) - 60 <= 2  # what was running on the two ranks
    assert 12 <= len(before) < 60


def test_a_signal_to_the_driver_is_an_interrupt(tmp_path: Path) -> None:
    done = job("signal", tmp_path)
    assert done.returncode == 0, done.stderr
    assert told(tmp_path)["stop"] == "INTERRUPTED"
    assert not is_alive(int((tmp_path / "first").read_text()))


def test_a_wrong_pool() -> None:
    from fmnes.integrations import mpi

    with pytest.raises(ArgumentError, match="pool: found 3, wanted an MPIPoolExecutor"):
        mpi.executor(3)
