"""A run whose objective broke midway: it pauses, goes on when that is mended, and failures can be taken back.

Wherever a run goes on, it must come to the run that never broke, bit for bit.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ObjectiveError, StopReason, minimize, resume
from fmnes.storage.log import EvaluationLog
from tests.rows import through
from tests.torture import differences, portrait, watching

X0 = [1.0, 2.0, 3.0]
SETTINGS: dict[str, Any] = {"rng": 1, "max_evaluations": 150, "surrogate": False}


class Breaks:
    """A sphere that fails where x[0] < 0.5, and breaks at these calls."""

    def __init__(self, broken: range = range(0), act: Callable[[], Any] = lambda: absent) -> None:  # type: ignore[name-defined] # noqa: F821
        self.calls: list[bytes] = []
        self.broken, self.act = broken, act

    def __call__(self, x: Any) -> Any:
        self.calls.append(x.tobytes())
        if len(self.calls) - 1 in self.broken:
            return self.act()
        return math.nan if x[0] < 0.5 else float(x @ x)


def raises(error: type[BaseException], *arguments: Any) -> Callable[[], Any]:
    def act() -> Any:
        raise error(*arguments)

    return act


def whole(fun: Any, *arguments: Any, **settings: Any) -> dict[str, Any]:
    with watching() as seen:
        result = minimize(fun, *arguments, **settings)
    return portrait(result, *seen)


def go_on(run: Path, fun: Any, **settings: Any) -> dict[str, Any]:
    with watching() as seen:
        result = resume(run, fun, **settings)
    return portrait(result, *seen[-1:])


def breaks_at(run: Path, fun: Any, *arguments: Any, **settings: Any) -> str:
    with pytest.raises(ObjectiveError, match="seems to have stopped working") as caught:
        minimize(fun, *arguments, run_dir=run, **settings)
    return str(caught.value)


# -- a run that pauses ------------------------------------------------------------------------------------

#: How it breaks, and how many evaluations are enough to say so. λ is 6 here.
FAULTS: list[tuple[str, Callable[[], Any], int]] = [
    ("NameError: name 'absent'", Breaks().act, 6),
    ("ModuleNotFoundError: No module named 'absent'", lambda: __import__("absent"), 6),
    ("SyntaxError: ", lambda: compile("a b", "a file", "exec"), 6),
    ("ValueError: no licence", raises(ValueError, "no licence"), 20),
    ("FileNotFoundError: ", lambda: Path("/absent").read_text(), 20),
]


@through(("words", "act", "enough"), FAULTS)
def test_an_objective_that_stops_working_pauses_the_run(
    tmp_path_factory: pytest.TempPathFactory, words: str, act: Any, enough: int
) -> None:
    run = tmp_path_factory.mktemp("pause") / "run"
    fun = Breaks(range(57, 1000), act)
    text = breaks_at(run, fun, X0, 0.7, **SETTINGS)
    assert words in text and f"each of the last {enough} failed" in text
    assert len(fun.calls) == 57 + enough
    mended = Breaks()
    assert differences(go_on(run, mended), whole(Breaks(), X0, 0.7, **SETTINGS)) == []
    assert len(mended.calls) == 150 - 57  # nothing that had succeeded was evaluated again
    found = fmnes.read_run(run)
    assert (found.answered, found.made_again) == (150, enough)
    assert found.failed == found.result.n_infeasible  # type: ignore[union-attr]


def test_a_run_that_is_resumed_broken_pauses_at_once(tmp_path: Path) -> None:
    minimize(Breaks(), X0, 0.7, rng=1, max_evaluations=57, surrogate=False, run_dir=tmp_path / "run")
    for _ in range(2):
        broken = Breaks(range(1000), raises(ValueError, "no licence"))
        with pytest.raises(ObjectiveError, match=r"each of the last 6 failed .*ValueError: no licence"):
            resume(tmp_path / "run", broken, max_evaluations=150)
        assert len(broken.calls) == 6
    mended = go_on(tmp_path / "run", Breaks())
    assert differences(mended, whole(Breaks(), X0, 0.7, **SETTINGS)) == []


@pytest.mark.parametrize("snapshots", [0.0, 1e9])
def test_a_paused_run_goes_on_whatever_its_snapshots(
    snapshots: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one for each generation the last one is later than the first of the failures."""
    monkeypatch.setattr("fmnes.run.state.SNAPSHOT_SECONDS", snapshots)
    breaks_at(tmp_path / "run", Breaks(range(57, 1000), raises(ValueError, "bad")), X0, 0.7, **SETTINGS)
    assert differences(go_on(tmp_path / "run", Breaks()), whole(Breaks(), X0, 0.7, **SETTINGS)) == []


def test_a_run_killed_among_its_faults_pauses_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The streak is part of a snapshot: it goes on in the next process."""
    monkeypatch.setattr("fmnes.run.state.SNAPSHOT_SECONDS", 0.0)

    def act() -> Any:
        if len(fun.calls) == 57 + 15:
            raise KeyboardInterrupt
        raise ValueError("bad")

    fun = Breaks(range(57, 1000), act)
    assert minimize(fun, X0, 0.7, run_dir=tmp_path / "run", **SETTINGS).stop_reason is StopReason.INTERRUPTED
    with pytest.raises(ObjectiveError, match=r"each of the last 2[01] failed"):
        resume(tmp_path / "run", fun)
    assert differences(go_on(tmp_path / "run", Breaks()), whole(Breaks(), X0, 0.7, **SETTINGS)) == []


@pytest.mark.parametrize("settings", [{"workers": 2}, {"workers": 2, "overlap": 1.0}, {"vectorized": True}])
def test_it_pauses_in_workers_and_ahead(settings: Any, tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    fun = Flagged(flag, vectorized="vectorized" in settings)
    run = tmp_path / "run"
    minimize(fun, X0, 0.7, rng=1, max_evaluations=57, surrogate=False, run_dir=run, **settings)
    flag.touch()
    with pytest.raises((ObjectiveError, ModuleNotFoundError), match="absent"):
        resume(run, fun, max_evaluations=150)
    flag.unlink()
    found = resume(run, fun)
    assert (found.nfev, found.n_infeasible) == (150, 0)
    if "overlap" not in settings:
        assert found.fun == minimize(fun, X0, 0.7, **SETTINGS, **settings).fun


class Flagged:
    """It breaks while a file is there."""

    def __init__(self, flag: Path, vectorized: bool = False) -> None:
        self.flag, self.vectorized = str(flag), vectorized

    def __call__(self, x: Any) -> Any:
        if os.path.exists(self.flag):
            import absent  # type: ignore[import-not-found] # noqa: F401
        return np.sum(x * x, axis=1) if self.vectorized else float(x @ x)


def test_without_a_directory_the_result_so_far_is_kept() -> None:
    fun = Breaks(range(57, 1000))
    result = minimize(fun, X0, 0.7, **SETTINGS)
    assert result.stop_reason is StopReason.LOST and "NameError" in result.message
    assert result.fun == min(float(x @ x) for x in map(np.frombuffer, fun.calls[:57]) if x[0] >= 0.5)


INNOCENT: list[Callable[[], Any]] = [
    raises(fmnes.Infeasible, "mesh failed"),
    lambda: math.nan,
    lambda: None,
    raises(fmnes.Infeasible, "NameError: name 'absent' is not defined"),
]


@through("act", INNOCENT)
def test_what_the_objective_says_itself_never_pauses_a_run(act: Any) -> None:
    result = minimize(Breaks(range(57, 1000), act), X0, 0.7, **SETTINGS)
    assert result.stop_reason is StopReason.MAX_EVALUATIONS and result.nfev == 150


def test_a_fault_that_was_met_before_never_pauses_a_run() -> None:
    met = 30

    def fun(x: Any) -> float:
        nonlocal met
        met -= 1
        if met == 0 or met < -27:
            raise ValueError("negative depth")
        return float(x @ x)

    assert minimize(fun, X0, 0.7, **SETTINGS).nfev == 150


def test_faults_with_different_words_never_pause_a_run() -> None:
    def act() -> Any:
        raise ValueError(f"negative depth {len(fun.calls)}")

    fun = Breaks(range(57, 1000), act)
    assert minimize(fun, X0, 0.7, **SETTINGS).nfev == 150


def test_a_search_that_begins_where_all_fails_never_pauses_a_run(tmp_path: Path) -> None:
    """A start that succeeds alone; and a restart elsewhere."""
    result = minimize(Breaks(range(1, 1000), raises(ValueError, "bad")), X0, 0.7, **SETTINGS)
    assert result.nfev == 150
    fun = Breaks(range(145, 1000), raises(ValueError, "bad"))
    flat = {"rng": 1, "population_size": 8, "restarts": 1, "max_evaluations": 300}
    result = minimize(lambda x: 1.0 if fun(x) != 1 else 0.0, [1.0, 2.0], 0.5, **flat)
    assert result.n_infeasible > 100


def test_timeouts_and_crashes_never_pause_a_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n[ -e {tmp_path}/flag ] && kill -SEGV $$\necho $1\n")
    program.chmod(0o700)
    fun = fmnes.Command([program, "{x0}"], keep="none")
    minimize(fun, [1.0], 1.0, rng=1, max_evaluations=10, surrogate=False, run_dir=tmp_path / "run")
    (tmp_path / "flag").touch()
    result = resume(tmp_path / "run", max_evaluations=40)
    assert (result.nfev, result.n_infeasible) == (40, 30)


def test_a_program_that_lacks_a_module_pauses_the_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(sys.argv[1])\n")
    fun = fmnes.Command([sys.executable, program, "{x0}"], keep="none")
    minimize(fun, [1.0], 1.0, rng=1, max_evaluations=10, surrogate=False, run_dir=tmp_path / "run")
    program.write_text("import absent\n")
    with pytest.raises(ObjectiveError, match=r"each of the last 5 failed .*exited with code 1(.|\n)*absent"):
        resume(tmp_path / "run", max_evaluations=40)
    program.write_text("import sys\nprint(sys.argv[1])\n")
    result = resume(tmp_path / "run")
    assert (result.nfev, result.n_infeasible) == (40, 0)


# -- failures that are taken back -------------------------------------------------------------------------


def infeasible_later(x: Any, broken: bool) -> Any:
    """Its faults are of many kinds, so that the run does not pause."""
    if broken:
        raise fmnes.Infeasible(f"library {x[0]} not found")
    return math.nan if x[0] < 0.5 else float(x @ x)


#: Settings of runs in which evaluations depend on failures in different ways.
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "published": {"method": "fm-nes"},
    "redraws": {"method": fmnes.Resampling(fmnes.CMAES())},
    "failing bounds": {
        "method": fmnes.Resampling(fmnes.CMAES()),
        "bounds": (0.2, 4.0),
        "bounds_as": "failure",
    },
    "restarts": {"restarts": 3, "ftol": 1e-2, "xtol": 1e-2},
    "discrete": {"integers": 0.25},
    "workers": {"workers": 2},
    "surrogate": {"surrogate": True},
}


class LaterBroken:
    """It breaks from a call on, or while a file is there."""

    def __init__(self, flag: Path) -> None:
        self.flag = str(flag)

    def __call__(self, x: Any) -> Any:
        return infeasible_later(x, os.path.exists(self.flag))


@pytest.mark.filterwarnings("ignore:the run had ended with NO_FEASIBLE")
@pytest.mark.parametrize(
    ("kind", "good"),
    [(kind, good) for kind in KINDS for good in (0, 1, 4, 61, 84) if kind != "workers" or good == 61],
)
def test_after_failures_are_taken_back_the_run_is_the_one_that_never_broke(
    kind: str, good: int, tmp_path: Path
) -> None:
    fun, run = LaterBroken(tmp_path / "flag"), tmp_path / "run"
    settings = {**SETTINGS, **KINDS[kind]}
    wanted = whole(fun, X0, 0.7, **settings)
    if good:
        minimize(fun, X0, 0.7, run_dir=run, **settings | {"max_evaluations": good})
    (tmp_path / "flag").touch()
    if good:
        resume(run, fun, max_evaluations=130)
    else:
        minimize(fun, X0, 0.7, run_dir=run, **settings | {"max_evaluations": 130})
    (tmp_path / "flag").unlink()
    resume(run, fun, max_evaluations=140)  # it works again, and nobody has noticed
    found = go_on(run, fun, max_evaluations=150, forget_failures="not found")
    assert differences(found, wanted) == []
    assert differences(go_on(run, fun, max_evaluations=150), wanted) == []


@pytest.mark.parametrize("kind", ["redraws", "failing bounds"])
def test_points_drawn_again_beside_a_failure_that_is_taken_back(kind: str, tmp_path: Path) -> None:
    """Their draws come after its own, which is not made any more."""
    settings = {**SETTINGS, **KINDS[kind]}
    wanted = whole(Breaks(), X0, 0.7, **settings)
    for first in (3, 20, 41):
        fun = Breaks(range(first, first + 2), raises(fmnes.Infeasible, "mesh"))
        minimize(fun, X0, 0.7, run_dir=tmp_path / str(first), **settings)
        assert differences(go_on(tmp_path / str(first), Breaks(), forget_failures="mesh"), wanted) == []


def test_what_is_meant(tmp_path: Path) -> None:
    """The same run, by a text of the reason, of the output, by a moment, and all since the last success."""
    fun, moments = Breaks(), []
    wanted = whole(Breaks(), X0, 0.7, **SETTINGS)

    def act() -> Any:
        moments.append(time.time())
        raise ValueError(f"libfoo.so {len(fun.calls)}")

    fun.broken, fun.act = range(57, 1000), act
    minimize(fun, X0, 0.7, rng=1, max_evaluations=100, surrogate=False, run_dir=tmp_path / "broken")
    first = datetime.fromtimestamp(moments[0])
    last_success = datetime.fromtimestamp(moments[0] - 1e-3)
    for i, meant in enumerate(
        [True, "libfoo.so", "ValueError", "test_forgetting.py", first, first.isoformat(), first.astimezone()]
    ):
        assert last_success < first
        run = tmp_path / str(i)
        shutil.copytree(tmp_path / "broken", run)
        again = Breaks()
        assert differences(go_on(run, again, max_evaluations=150, forget_failures=meant), wanted) == [], meant
        if meant in (True, "libfoo.so"):
            assert len(again.calls) == 150 - 57  # no success was evaluated again


WRONG = ["no such reason", "", "2999-01-01", datetime(2999, 1, 1), 3, None, [], datetime.min]


@through("meant", WRONG)
def test_what_cannot_be_meant_is_refused_and_nothing_changes(
    tmp_path_factory: pytest.TempPathFactory, meant: Any
) -> None:
    run = tmp_path_factory.mktemp("wrong") / "run"
    minimize(Breaks(range(20, 30), raises(fmnes.Infeasible, "mesh")), X0, 0.7, run_dir=run, **SETTINGS)

    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in run.iterdir() if path.suffix in (".json", ".npz")}

    before, rows = contents(), count_rows(run)
    with pytest.raises(fmnes.ArgumentError, match=r"forget_failures: found .*wanted"):
        resume(run, Breaks(), forget_failures=meant)
    assert contents() == before and count_rows(run) == rows


def test_taken_back_twice_is_taken_back_once(tmp_path: Path) -> None:
    """A job that is submitted again with the same line goes on."""
    run = tmp_path / "run"
    fun = Breaks(range(20, 60), raises(fmnes.Infeasible, "mesh"))
    minimize(fun, X0, 0.7, rng=1, max_evaluations=60, surrogate=False, run_dir=run)
    wanted = whole(Breaks(), X0, 0.7, rng=1, max_evaluations=60, surrogate=False)
    again = Breaks()
    assert differences(go_on(run, again, forget_failures="mesh"), wanted) == []
    for meant in ("mesh", True):
        assert differences(go_on(run, again, forget_failures=meant), wanted) == []
    assert len(again.calls) == 40


def test_a_run_in_which_nothing_succeeded_can_be_resumed(tmp_path: Path) -> None:
    """As after a licence that was gone from the beginning; without the option nothing is evaluated."""
    run = tmp_path / "run"
    ended = minimize(
        Breaks(range(10**6), raises(fmnes.Infeasible, "no licence")), X0, 0.7, rng=1, run_dir=run
    )
    assert ended.stop_reason is StopReason.NO_FEASIBLE
    for more in ({}, {"max_evaluations": 10**5}):
        idle = Breaks()
        with pytest.warns(RuntimeWarning, match="forget_failures=True"):
            assert resume(run, idle, **more).stop_reason is StopReason.NO_FEASIBLE
        assert idle.calls == []
    found = go_on(run, Breaks(), max_evaluations=150, forget_failures=True)
    assert differences(found, whole(Breaks(), X0, 0.7, **SETTINGS)) == []


def test_points_too_long_to_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmnes.storage.log_reader.MAX_STORED_DIMENSION", 2)
    run = tmp_path / "run"
    fun = Breaks(range(20, 60), raises(fmnes.Infeasible, "mesh"))
    minimize(fun, X0, 0.7, rng=1, max_evaluations=60, surrogate=False, run_dir=run)
    wanted = whole(Breaks(), X0, 0.7, rng=1, max_evaluations=60, surrogate=False)
    assert differences(go_on(run, Breaks(), forget_failures="mesh"), wanted) == []
    assert len(fmnes.read_run(run).evaluations) == 60 + 2 * 40  # taken back, and made again


def test_points_that_were_handed_out_ahead(tmp_path: Path) -> None:
    flag, run = tmp_path / "flag", tmp_path / "run"
    fun = LaterBroken(flag)
    settings = {"rng": 1, "workers": 2, "overlap": 1.0}
    minimize(fun, X0, 0.7, run_dir=run, max_evaluations=50, **settings)
    flag.touch()
    resume(run, fun, max_evaluations=100)
    flag.unlink()
    resume(run, fun, max_evaluations=110)
    found = resume(run, fun, max_evaluations=150, forget_failures="not found")
    assert found.nfev == 150 and all("not found" not in failure.reason for failure in found.failures)
    assert resume(run, fun, max_evaluations=160).nfev == 160


def test_the_readers_count_what_counts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fun = Breaks(range(20, 30), raises(fmnes.Infeasible, "mesh"))
    minimize(fun, X0, 0.7, rng=1, max_evaluations=60, surrogate=False, run_dir=run)
    result = resume(run, Breaks(), forget_failures="mesh")
    found = fmnes.read_run(run)
    assert (found.answered, found.failed) == (result.nfev, result.n_infeasible) == (60, result.n_infeasible)
    assert found.made_again >= 10


# -- when something goes wrong meanwhile ------------------------------------------------------------------

KILLED = """
import os, signal, sys
import fmnes
from fmnes.run import forgetting
from tests.test_forgetting import Breaks

run, number = sys.argv[1], int(sys.argv[2])
count = 0

def dying(original):
    def act(*arguments, **options):
        global count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)
    return act

take_back = forgetting.take_back
def watched(*arguments):
    for name in ("replace", "unlink", "link", "fsync"):
        setattr(os, name, dying(getattr(os, name)))
    directory = arguments[0]
    directory.log._db.set_progress_handler(dying(lambda: 0), 50)  # in the middle of the transaction
    found = take_back(*arguments)
    os.kill(os.getpid(), signal.SIGUSR1)  # it came to the end
    return found
forgetting.take_back = watched
fmnes.resume(run, Breaks(), max_evaluations=150, forget_failures="mesh")
"""


def test_a_kill_while_failures_are_taken_back_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fun = Breaks(range(57, 1000), raises(fmnes.Infeasible, "mesh"))
    monkeypatch.setattr("fmnes.run.state.SNAPSHOT_SECONDS", 0.0)
    minimize(fun, X0, 0.7, rng=1, max_evaluations=100, surrogate=False, run_dir=tmp_path / "broken")
    wanted = whole(Breaks(), X0, 0.7, **SETTINGS)
    number, kills = 1, 0
    while True:
        run = tmp_path / str(number)
        shutil.copytree(tmp_path / "broken", run)
        command = [sys.executable, "-c", KILLED, str(run), str(number)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[1]
        )
        if done.returncode == -signal.SIGUSR1:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        kills += 1
        unmeant = tmp_path / f"{number} without"
        shutil.copytree(run, unmeant)
        # Either nothing was taken back, or all of it.
        found = resume(unmeant, Breaks(), max_evaluations=100)
        assert found.n_infeasible in (fun_failed(tmp_path / "broken"), good_failed())
        again = Breaks()
        assert differences(go_on(run, again, max_evaluations=150, forget_failures="mesh"), wanted) == []
        assert len(again.calls) == 150 - 57
        number += 1 if number < 6 else number // 2
    assert kills >= 6


def fun_failed(run: Path) -> int:
    return int(json.loads((run / "result.json").read_text())["data"]["n_infeasible"])


def good_failed() -> int:
    return minimize(Breaks(), X0, 0.7, rng=1, max_evaluations=100, surrogate=False).n_infeasible


@pytest.mark.parametrize("damaged", ["garbage", "missing"])
def test_a_first_snapshot_that_cannot_be_used(
    damaged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmnes.run.state.SNAPSHOT_SECONDS", 0.0)
    run = tmp_path / "run"
    fun = Breaks(range(20, 60), raises(fmnes.Infeasible, "mesh"))
    ended = minimize(fun, X0, 0.7, rng=1, max_evaluations=150, surrogate=False, run_dir=run)
    (run / "snapshot.first.npz").unlink()
    if damaged == "garbage":
        (run / "snapshot.first.npz").write_bytes(b"garbage")
    rows = count_rows(run)
    with pytest.raises(fmnes.RunError, match=r"snapshot"):
        resume(run, Breaks(), forget_failures="mesh")
    assert count_rows(run) == rows
    assert resume(run, Breaks()).fun == ended.fun


def count_rows(run: Path) -> int:
    log = EvaluationLog(run / "evaluations.sqlite", read_only=True)
    try:
        return log.count()
    finally:
        log.close()


def test_a_disk_that_does_not_take_it(tmp_path: Path) -> None:
    """No file may grow: nothing is taken back, and the run is as it was."""
    run = tmp_path / "run"
    fun = Breaks(range(20, 60), raises(fmnes.Infeasible, "mesh"))
    minimize(fun, X0, 0.7, rng=1, max_evaluations=150, surrogate=False, run_dir=run)
    rows = count_rows(run)
    script = (
        "import resource, sys, fmnes\nfrom tests.test_forgetting import Breaks\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))\n"
        "try: fmnes.resume(sys.argv[1], Breaks(), forget_failures='mesh')\n"
        "except fmnes.RunError as error: print('ours', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(run)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[1],
    )
    assert done.stdout.startswith("ours"), done.stdout + done.stderr
    assert count_rows(run) == rows
    wanted = whole(Breaks(), X0, 0.7, **SETTINGS)
    assert differences(go_on(run, Breaks(), forget_failures="mesh"), wanted) == []
