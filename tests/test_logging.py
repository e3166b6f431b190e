"""The library speaks through `logging`: silent by default, one line for each event."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes


def awkward(x: np.ndarray) -> float:
    """Lost once, failing in half of the space."""
    awkward.calls += 1  # type: ignore[attr-defined]
    if awkward.calls == 5:  # type: ignore[attr-defined]
        raise fmnes.Lost("licence\nserver down")
    if x[0] < 0:
        raise fmnes.Infeasible("mesh\r\nfailed \x1b[2J")
    return float(x @ x)


def run(caplog: pytest.LogCaptureFixture, level: int, **options: Any) -> list[tuple[int, str]]:
    """(level, line) of all that was said."""
    awkward.calls = 0  # type: ignore[attr-defined]
    with caplog.at_level(level, logger="fmnes"):
        fmnes.minimize(awkward, [1.0, 2.0], 0.5, rng=1, **options)
    return [(level, message) for name, level, message in caplog.record_tuples if name == "fmnes"]


def test_a_run_says_when_it_begins_and_ends_and_what_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    said = run(caplog, logging.INFO)
    assert [level for level, _ in said] == [logging.INFO, logging.WARNING, logging.INFO, logging.INFO]
    begins, lost, again, ended = (line for _, line in said)
    assert begins == "run begins at evaluation 0: afm-nes, d = 2, population 6, evaluations without a limit"
    assert lost == (
        "evaluation of generation 0, point 3, lost, try 1: licence server down; it is tried again"
    )
    assert again.startswith("search ended at evaluation ") and "too small to matter" in again
    assert again.endswith("; a second look begins at the best point, population 12")
    assert ended.startswith("run ended with fun = ") and ended.endswith("a second look found nothing better")


def test_restarts_and_the_budget_are_told(caplog: pytest.LogCaptureFixture) -> None:
    said = [line for _, line in run(caplog, logging.INFO, restarts=1, max_evaluations=1500, target=-1.0)]
    assert said[0].endswith("at most 1500 evaluations")
    assert any("; a restart (large) begins at the start, population 12" in line for line in said)
    assert "the evaluation budget is spent" in said[-1] and " after 1500 evaluations, " in said[-1]


def test_when_no_tries_are_left(caplog: pytest.LogCaptureFixture) -> None:
    def gone(x: np.ndarray) -> float:
        raise fmnes.Lost("no node")

    with caplog.at_level(logging.WARNING, logger="fmnes"):
        fmnes.minimize(gone, [1.0, 2.0], 0.5, rng=1, retries=1)
    assert caplog.messages == [
        "evaluation of the start lost, try 1: no node; it is tried again",
        "evaluation of the start lost, try 2: no node; no tries are left",
    ]


def test_details_are_each_failure_generation_and_snapshot(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    said = run(caplog, logging.DEBUG, max_evaluations=97, surrogate=False, run_dir=tmp_path / "run")
    result = fmnes.resume(tmp_path / "run")
    details = [line for level, line in said if level == logging.DEBUG]
    failed = [line for line in details if line.startswith("evaluation failed")]
    assert failed == ["evaluation failed: mesh failed \x1b[2J"] * result.n_infeasible and failed
    generations = [line for line in details if line.startswith("generation ")]
    assert len(generations) == result.nit and generations[0].startswith("generation 1: 7 evaluations, ")
    assert f"{result.n_infeasible} failed, best" in generations[-1]
    assert any(line.startswith("snapshot written at evaluation 0, in ") for line in details)
    assert all("\n" not in line and "\r" not in line for _, line in said)


def test_values_that_fail_many_at_once_are_told_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="fmnes"):
        result = fmnes.minimize(
            lambda x: np.where(x[:, 0] < 0.5, np.nan, (x * x).sum(axis=1)),
            [1.0, 2.0],
            0.5,
            rng=1,
            vectorized=True,
            max_evaluations=60,
        )
    assert caplog.messages.count("evaluation failed: returned NaN") == result.n_infeasible > 0


def test_a_resumed_run_says_where_it_goes_on(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    def fun(x: np.ndarray) -> float:
        return float(x @ x)

    fmnes.minimize(fun, [1.0, 2.0], 0.5, rng=1, max_evaluations=30, run_dir=tmp_path / "run")
    with caplog.at_level(logging.INFO, logger="fmnes"):
        fmnes.resume(tmp_path / "run", fun, max_evaluations=60)
    assert caplog.messages[0] == f"the run in {tmp_path / 'run'} is taken up again"
    assert caplog.messages[1].startswith("run begins at evaluation ") and "at most 60 " in caplog.messages[1]


SCRIPT = """
import {before}
import fmnes
calls = 0
def fun(x):
    global calls
    calls += 1
    if calls == 3:
        raise fmnes.Lost("gone")
    return float("nan") if x[0] < 0 else float(x @ x)
fmnes.minimize(fun, [1.0, 2.0], 0.5, rng=1, max_evaluations=60)
{after}
"""


def output(before: str, after: str = "") -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before, after=after)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout, done.stderr


def test_by_default_nothing_is_printed() -> None:
    # Not even warnings, which Python prints for a logger that nobody has configured.
    assert output("sys") == ("", "")
    assert output("logging") == ("", "")


def test_one_line_of_configuration_makes_it_speak() -> None:
    _, stderr = output("logging; logging.basicConfig(level=logging.INFO)")
    lines = stderr.splitlines()
    assert lines[0].startswith("INFO:fmnes:run begins") and lines[-1].startswith("INFO:fmnes:run ended")
    assert sum(line.startswith("WARNING:fmnes:evaluation of generation 0") for line in lines) == 1
    _, stderr = output("logging; logging.basicConfig()")
    assert len(stderr.splitlines()) == 1 and "lost" in stderr


def test_the_root_logger_is_left_alone() -> None:
    stdout, _ = output("logging", "print(logging.getLogger().handlers, logging.getLogger('fmnes').level)")
    assert stdout == "[] 0\n"
