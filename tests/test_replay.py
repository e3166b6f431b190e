"""What a resumed run decides, it decides as the uninterrupted one: broken objectives, lost points, targets.

Kills are real: the objective of a process of its own sends it SIGKILL.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ObjectiveError, StopReason, minimize, resume

#: A process that runs SCRIPT with its run directory, and with the number of the call at which it is killed.
SCRIPT = """
import json, os, signal, sys
import fmnes

run, kill, stage = sys.argv[1], int(sys.argv[2]), sys.argv[3]
calls = []


def note(x):
    if len(calls) + 1 == kill:
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(x.tobytes().hex())
    with open(run + ".calls", "a") as file:
        file.write(calls[-1] + chr(10))


def count():
    with open(run + ".calls") as file:
        return len(file.read().split())


{fun}


def go(**settings):
    try:
        if os.path.exists(run):
            result = fmnes.resume(run, fun)
        else:
            result = fmnes.minimize(fun, rng=1, run_dir=run, **settings)
    except fmnes.ObjectiveError as error:
        print(json.dumps({{"error": str(error).splitlines()[0]}}))
    else:
        print(json.dumps(result.as_json()))


go({settings})
"""


class Runs:
    """Processes that run one script on one directory, one after another."""

    def __init__(self, folder: Path, fun: str, settings: str) -> None:
        self._run, self._script = folder / "run", SCRIPT.format(fun=fun, settings=settings)

    def __call__(self, kill: int = 0, stage: str = "") -> dict[str, Any]:
        command = [sys.executable, "-c", self._script, str(self._run), str(kill), stage]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if kill:
            assert done.returncode == -signal.SIGKILL, done.stderr
            return {}
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    @property
    def calls(self) -> list[str]:
        return (self._run.with_name("run.calls")).read_text().split()


def folder(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


# -- an objective that was broken -------------------------------------------------------------------------

BROKEN = """
def fun(x):
    note(x)
    if stage == "broken":
        raise ValueError("typo")
    return float(x @ x)
"""
BROKEN_SETTINGS = "x0=[1.0, 2.0], sigma0=0.5, population_size=8, max_evaluations=80"


def test_a_corrected_run_that_is_killed_forgets_the_rest_of_the_faults_too(tmp_path: Path) -> None:
    plain = Runs(folder(tmp_path, "plain"), BROKEN, BROKEN_SETTINGS)
    assert "looks like a bug" in plain(stage="broken")["error"]
    wanted = plain()
    assert wanted["n_infeasible"] == 0 and wanted["nfev"] == 80
    killed = Runs(folder(tmp_path, "killed"), BROKEN, BROKEN_SETTINGS)
    killed(stage="broken")
    for call in (4, 3):  # in the middle of generation 0, twice
        killed(kill=call)
    assert killed() == wanted
    assert len(killed.calls) == 9 + 80  # the start and 8 points were broken


def test_a_run_killed_before_its_faults_were_taken_back_goes_on_with_the_corrected_objective(
    tmp_path: Path,
) -> None:
    """As a run of version 0.1 that had stopped with an error: the log has the faults and nothing else."""
    runs = Runs(tmp_path, BROKEN, BROKEN_SETTINGS)
    assert "looks like a bug" in runs(stage="broken")["error"]
    with closing(sqlite3.connect(tmp_path / "run" / "evaluations.sqlite")) as log:
        assert log.execute("DELETE FROM evaluations WHERE fault = 'forgotten'").rowcount == 9
        log.commit()
    found = runs()
    assert (found["nfev"], found["n_infeasible"]) == (80, 0)


def test_an_objective_that_is_still_broken_is_shown_again(tmp_path: Path) -> None:
    runs = Runs(tmp_path, BROKEN, BROKEN_SETTINGS)
    for times in (1, 2, 3):
        assert "ValueError: typo" in runs(stage="broken")["error"]
        assert len(runs.calls) == 9 * times


def test_what_had_raised_is_evaluated_again_and_nothing_else(tmp_path: Path) -> None:
    calls: list[bytes] = []
    broken = True

    def fun(x: Any) -> Any:
        calls.append(x.tobytes())
        return "text" if broken and len(calls) == 13 else float(x @ x)

    settings: dict[str, Any] = {"rng": 1, "population_size": 8, "max_evaluations": 40}
    with pytest.raises(ObjectiveError, match="returned str"):
        minimize(fun, [1.0, 2.0], 0.5, on_error="raise", run_dir=tmp_path / "run", **settings)
    broken = False
    found = resume(tmp_path / "run", fun)
    assert len(calls) == 41 and len(set(calls)) == 40
    assert found.fun == minimize(lambda x: float(x @ x), [1.0, 2.0], 0.5, **settings).fun


def test_the_first_generation_of_a_restart_is_no_sign_of_a_bug(tmp_path: Path) -> None:
    calls: list[bytes] = []
    seen: dict[bytes, int] = {}

    def fun(x: Any) -> float:
        calls.append(x.tobytes())
        number = seen.setdefault(calls[-1], len(seen))
        if 144 <= number < 160:  # all 16 of generation 0 of the restart
            raise ValueError("solver crashed")
        return 1.0  # flat: ends with FLAT after 144 evaluations, then restarts

    options: dict[str, Any] = {"rng": 1, "population_size": 8, "restarts": 1, "noise": False}
    first = minimize(fun, [1.0, 2.0], 0.5, run_dir=tmp_path / "run", **options)
    assert first.n_infeasible == 16
    again = resume(tmp_path / "run", fun, max_evaluations=10**6)
    assert len(calls) == len(set(calls)) == first.nfev == again.nfev


LOST_BESIDE_FAULTS = """
def fun(x):
    note(x)
    if count() == 4:
        raise fmnes.Lost("licence server down")
    if x[0] < 0.5 or x[0] > 1.5:  # all of generation 0
        raise ValueError("solver diverged")
    return float((x - 1) @ (x - 1))
"""


def test_a_first_generation_with_a_lost_evaluation_is_judged_alike_by_a_resume(tmp_path: Path) -> None:
    settings = "x0=[2.2, 2.0], sigma0=0.25, population_size=8, max_evaluations=300"
    plain = Runs(folder(tmp_path, "plain"), LOST_BESIDE_FAULTS, settings)
    wanted = plain()
    assert wanted["stop_reason"] == "MAX_EVALUATIONS" and len(plain.calls) == 301
    for call in (6, 10, 31):
        killed = Runs(folder(tmp_path, f"killed {call}"), LOST_BESIDE_FAULTS, settings)
        killed(kill=call)
        assert killed() == wanted
        assert len(killed.calls) == 301 and len(set(killed.calls)) == 300


# -- lost evaluations -------------------------------------------------------------------------------------


LOST_BESIDE_TARGET = """
def fun(x):
    first = not os.path.exists(run + ".calls")
    note(x)
    if first:
        raise fmnes.Lost("licence server down")
    with open(run + ".calls") as file:
        return 2.0 if x.tobytes().hex() == file.readline().strip() else 1.0
"""


def test_a_target_reached_beside_a_lost_evaluation_stays_reached(tmp_path: Path) -> None:
    settings = "x0=[1.0, 1.0], sigma0=0.5, target=3.0, max_evaluations=100, evaluate_start=False"
    plain = Runs(folder(tmp_path, "plain"), LOST_BESIDE_TARGET, settings)
    wanted = plain()
    assert (wanted["stop_reason"], wanted["nfev"], wanted["fun"]) == ("TARGET", 1, 1.0)
    killed = Runs(folder(tmp_path, "killed"), LOST_BESIDE_TARGET, settings)
    killed(kill=2)
    assert killed() == wanted

    def fun(x: Any) -> float:
        raise AssertionError("it was called")

    fun.__qualname__ = "fun"
    found = resume(tmp_path / "plain" / "run", fun, max_evaluations=200)
    assert (found.stop_reason, found.nfev, found.fun) == (StopReason.TARGET, 1, 1.0)


def test_a_lost_point_keeps_its_place_in_the_count(tmp_path: Path) -> None:
    """Slot 0 is lost, and reaches the target at its second try: evaluation 8, whoever looks again."""
    calls: list[bytes] = []

    def fun(x: Any) -> float:
        calls.append(x.tobytes())
        if len(calls) == 1:
            raise fmnes.Lost("licence server down")
        return 0.0 if calls[-1] == calls[0] else 5.0

    settings: dict[str, Any] = {"rng": 1, "population_size": 8, "target": 1.0, "evaluate_start": False}
    first = minimize(fun, [1.0, 1.0], 0.5, run_dir=tmp_path / "run", **settings)
    assert (first.stop_reason, first.nfev) == (StopReason.TARGET, 8)
    assert resume(tmp_path / "run", fun, max_evaluations=50).message == first.message
    assert len(calls) == 9


def test_fewer_retries_do_not_stop_at_what_was_lost_before(tmp_path: Path) -> None:
    lost = set(range(3, 7))
    calls = 0

    def fun(x: Any) -> float:
        nonlocal calls
        calls += 1
        if calls in lost:
            raise fmnes.Lost("licence server down")
        return float(x @ x)

    settings: dict[str, Any] = {"rng": 1, "population_size": 4, "retries": 5}
    first = minimize(fun, [1.0, 1.0], 0.5, run_dir=tmp_path / "run", max_evaluations=7, **settings)
    assert first.stop_reason is StopReason.MAX_EVALUATIONS
    made = calls
    found = resume(tmp_path / "run", fun, retries=0, max_evaluations=12)
    assert (found.stop_reason, found.nfev, calls) == (StopReason.MAX_EVALUATIONS, 12, made + 5)


def test_retries_may_be_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses grow to 10 s and stay there, also where their formula would not fit into a float."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    calls = 0

    def fun(x: Any) -> float:
        nonlocal calls
        calls += 1
        if 6 < calls < 10_000:
            raise fmnes.Lost("licence server down")
        return float(x @ x)

    result = minimize(fun, [1.0, 1.0], 0.5, rng=1, retries=100_000, max_evaluations=20)
    assert result.nfev == 20 and pauses[0] == 0.1 and max(pauses) == pauses[-1] == 10.0


# -- the log ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_each_evaluation_has_its_own_duration(workers: int, tmp_path: Path) -> None:
    """Not the time since its generation was handed out."""
    minimize(
        slow,
        [1.0, 1.0],
        0.5,
        rng=1,
        population_size=8,
        max_evaluations=8,
        workers=workers,
        run_dir=tmp_path / "r",
    )
    with closing(sqlite3.connect(tmp_path / "r" / "evaluations.sqlite")) as log:
        rows = np.array(log.execute("SELECT started, duration FROM evaluations").fetchall())
    begin, end = rows[:, 0], rows.sum(axis=1)
    middle = (begin + end) / 2
    at_once = ((begin <= middle[:, None]) & (middle[:, None] <= end)).sum(axis=1)
    assert len(rows) == 8 and at_once.max() <= workers


def slow(x: Any) -> float:
    import time

    time.sleep(0.05)
    return float(np.sum(x * x))
