"""A resumed run is the uninterrupted one, bit for bit, whatever has stopped it.

And what is no run, or another one, is refused before anything is evaluated. The drivers are real processes
and get real signals (`tests/torture.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError, Optimizer, RunError, StopReason, minimize, resume
from fmnes.run import history, state
from fmnes.storage import log_reader
from fmnes.storage.directory import RunDirectory
from fmnes.storage.log import EvaluationLog
from fmnes.storage.snapshot import read_snapshot
from tests import torture
from tests.torture import SCENARIOS, Driver, Kill, bumpy, differences, left_after, portrait, watching

Portrait = dict[str, Any]


@functools.cache
def reference(name: str) -> Portrait:
    return SCENARIOS[name].reference()


def go_on(run: Path, fun: Any = None, **changes: Any) -> Portrait:
    with watching() as seen:
        result = resume(run, fun, **changes)
    return portrait(result, *seen)


def whole(fun: Any, *arguments: Any, **settings: Any) -> Portrait:
    with watching() as seen:
        result = minimize(fun, *arguments, **settings)
    return portrait(result, *seen)


def finish(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Portrait:
    """Go on with a driver's run in this process, to its end."""
    monkeypatch.setenv(torture.CALLS, str(driver.calls))
    return go_on(driver.run, SCENARIOS[driver.scenario].fun)


def check_kills(kills: list[Kill], driver: Driver, twice: int) -> None:
    """No evaluation in the log is lost or repeated, at most `twice` a kill were run twice, nobody is left."""
    calls = torture.read_calls(driver.calls)
    assert [kill.repeated(calls) for kill in kills] == [[] for _ in kills]
    assert torture.lost_from_log(kills, torture.read_log(driver.run)) == 0
    assert max(len(kill.run_twice(calls)) for kill in kills) <= twice
    assert left_after(driver.tag, 240.0) == []


# -- kill -9 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        ("plain", "snapshots=1"),
        ("bounds", "snapshots=0"),
        ("restarts", "snapshots=0"),
        ("resampling", "snapshots=0.05"),
        ("workers", "snapshots=1"),
        ("workers", "snapshots=0"),
        ("lost", "snapshots=0.05"),
        ("command", "snapshots=0"),
        ("noise", "snapshots=0"),
        ("noise workers", "snapshots=1"),
        ("noisy command", "snapshots=0"),
        ("noisy command", "snapshots=0.2"),
        ("constraints", "snapshots=0"),
        ("constraints", "snapshots=1"),
        ("surrogate", "snapshots=0"),
        ("surrogate", "snapshots=1"),
        ("surrogate workers", "snapshots=0.05"),
    ],
)
def test_kill_9_at_random_moments(
    name: str, hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kills in a row, each somewhere in a third of what there is to do."""
    scenario, wanted = SCENARIOS[name], reference(name)
    rng = random.Random(f"{name} {hook}")
    share = scenario.settings["max_evaluations"] // 3
    kills = []
    for _ in range(2):
        with Driver(name, tmp_path, hook) as driver:
            assert driver.wait_for(torture.count_calls(driver.calls) + rng.randrange(1, share))
            time.sleep(rng.uniform(0.0, 0.01))
            assert driver.kill() == -signal.SIGKILL
            kills.append(Kill.of(driver))
    found = finish(driver, monkeypatch)
    assert differences(found, wanted) == []
    assert name != "restarts" or wanted["state"]["population_size"] > 6  # it has restarted
    if name == "noisy command":  # a function fitted to the values has moved the search
        noise = wanted["state"]["noise"]
        assert noise["seen"] and noise["record"][0]
    if not scenario.settings.get("noise"):  # else points are evaluated twice, and are no names of evaluations
        check_kills(kills, driver, twice=scenario.workers)


def test_five_kills_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = []
    for i in range(5):
        with Driver("plain", tmp_path, f"snapshots={i % 2}") as driver:
            assert driver.wait_for(torture.count_calls(driver.calls) + 17)
            driver.kill()
            kills.append(Kill.of(driver))
    assert differences(finish(driver, monkeypatch), reference("plain")) == []
    check_kills(kills, driver, twice=1)


def test_no_more_evaluations_than_workers_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is slow here, so that the kill comes while it is being written."""
    with Driver("workers", tmp_path, "slow_disk=0.3") as driver:
        assert driver.wait_for(5)
        time.sleep(0.1)
        driver.kill()
        kill = Kill.of(driver)
    finish(driver, monkeypatch)
    check_kills([kill], driver, twice=2)


def test_killed_before_its_first_snapshot(tmp_path: Path) -> None:
    with Driver("plain", tmp_path, "signal_at=rename 1 SIGKILL") as driver:
        assert driver.process.wait(120) == -signal.SIGKILL
    assert not (driver.run / "snapshot.npz").exists()
    assert minimize(bumpy, [1.0, 0.5], 1.0, rng=1, max_evaluations=10, run_dir=driver.run).nfev == 10


# -- signals that ask -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("patient", signal.SIGINT),
        ("patient workers", signal.SIGTERM),
        ("command", signal.SIGTERM),
    ],
)
def test_an_interrupt_returns_the_best_so_far_and_the_run_goes_on(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driver(name, tmp_path) as driver:
        assert driver.wait_for(15)
        driver.process.send_signal(number)
        found = driver.finish()
    kill = Kill.of(driver)
    assert found["stop_reason"] == "INTERRUPTED"
    # One may be in the log and not be counted yet, if the signal comes just then.
    assert found["x"] is not None and 0 < found["nfev"] < reference(name)["nfev"]
    assert len(kill.logged) - found["nfev"] in (0, 1)
    assert differences(finish(driver, monkeypatch), reference(name)) == []
    check_kills([kill], driver, twice=SCENARIOS[name].workers)


def test_an_interrupt_while_a_snapshot_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of any evaluation: it ends the run all the same, with what it has."""
    with Driver("plain", tmp_path, "signal_at=write 3 SIGTERM") as driver:
        found = driver.finish()
    assert (found["stop_reason"], found["nfev"]) == ("INTERRUPTED", 7)
    assert differences(finish(driver, monkeypatch), reference("plain")) == []


@pytest.mark.parametrize("name", ["hang", "stubborn"])
def test_ctrl_c_twice_is_immediate(name: str, tmp_path: Path) -> None:
    """The evaluations under way hang, and ignore what they are asked."""
    with Driver(name, tmp_path) as driver:
        assert driver.wait_for(4)
        time.sleep(0.5)
        driver.process.send_signal(signal.SIGINT)
        # Two signals of one kind are one as long as the first has not come.
        while torture.is_pending(driver.process.pid, signal.SIGINT):
            time.sleep(0.01)
        time.sleep(0.2)
        driver.process.send_signal(signal.SIGINT)
        driver.process.wait(240)
    assert left_after(driver.tag, 240.0) == []


# -- other endings with more to do ------------------------------------------------------------------------

METHODS = {
    "fm-nes": {"restarts": 2},
    "cma-es": {"method": "cma-es", "bounds": (-0.3, 4.0)},
    "resampling": {"method": fmnes.Resampling(fmnes.CMAES())},
    "steps": {"method": "dx-nes-ic", "population_size": 12},
}


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("often", [True, False])
def test_a_larger_budget(
    settings: dict[str, Any], often: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps that end in the middle of a generation, as if it had been one."""
    if often:
        monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.01)
    wanted = whole(bumpy, [1.0, 0.5], 1.0, rng=3, max_evaluations=309, **settings)
    first = minimize(bumpy, [1.0, 0.5], 1.0, rng=3, max_evaluations=61, run_dir=tmp_path / "run", **settings)
    assert first.stop_reason is StopReason.MAX_EVALUATIONS and first.nfev == 61
    for budget in (62, 130, 309):
        found = go_on(tmp_path / "run", bumpy, max_evaluations=budget)
        assert found["nfev"] == budget or found["stop_reason"] != "MAX_EVALUATIONS"
    assert differences(found, wanted) == []


def test_no_budget_and_a_lower_target(tmp_path: Path) -> None:
    settings = {"rng": 2, "target": 1e-2, "surrogate": False}
    first = minimize(square, [1.0, 2.0], 1.0, run_dir=tmp_path / "run", max_evaluations=30, **settings)
    assert first.stop_reason is StopReason.MAX_EVALUATIONS
    second = go_on(tmp_path / "run", square, max_evaluations=None)
    assert differences(second, whole(square, [1.0, 2.0], 1.0, **settings)) == []
    third = go_on(tmp_path / "run", square, target=1e-6)
    assert differences(third, whole(square, [1.0, 2.0], 1.0, **{**settings, "target": 1e-6})) == []


def square(x: Any) -> float:
    return float(np.sum(x * x))


class Interrupted:
    """Does `what` at its calls `at` (from 1), as often as it is called then."""

    def __init__(self, *at: int, what: type[BaseException] = KeyboardInterrupt, fun: Any = bumpy) -> None:
        self.calls = 0
        self._at, self._what, self._fun = at, what, fun

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if self.calls in self._at:
            raise self._what("here")
        return self._fun(x)


def test_a_half_finished_generation_is_completed(tmp_path: Path) -> None:
    settings = {"rng": 1, "population_size": 10, "max_evaluations": 100, "evaluate_start": False}
    first = minimize(Interrupted(34), [1.0, 0.5], 1.0, run_dir=tmp_path / "run", **settings)
    assert (first.stop_reason, first.nfev, first.nit) == (StopReason.INTERRUPTED, 33, 3)
    fun = Interrupted()
    found = go_on(tmp_path / "run", fun, max_evaluations=40)
    assert fun.calls == 7 and (found["nfev"], found["nit"]) == (40, 4)
    assert differences(found, whole(bumpy, [1.0, 0.5], 1.0, **{**settings, "max_evaluations": 40})) == []


@pytest.mark.parametrize("number", range(1, 32, 6))
def test_an_interrupt_at_any_evaluation(number: int, tmp_path: Path) -> None:
    settings = {"rng": 1, "population_size": 6, "max_evaluations": 40, "bounds": (-1.0, 2.0)}
    first = minimize(Interrupted(number), [1.0, 0.5], 1.0, run_dir=tmp_path / "run", **settings)
    assert (first.stop_reason, first.nfev) == (StopReason.INTERRUPTED, number - 1)
    second = resume(tmp_path / "run", Interrupted(3))
    assert second.nfev == min(number + 1, 40)
    fun = Interrupted()
    found = go_on(tmp_path / "run", fun)
    assert fun.calls == 40 - second.nfev
    assert differences(found, whole(bumpy, [1.0, 0.5], 1.0, **settings)) == []


@pytest.mark.parametrize("retries", [0, 1])
def test_after_lost(retries: int, tmp_path: Path) -> None:
    settings = {"rng": 1, "population_size": 10, "max_evaluations": 100, "evaluate_start": False}
    lost = Interrupted(*range(34, 99), what=fmnes.Lost)
    first = minimize(lost, [1.0, 0.5], 1.0, run_dir=tmp_path / "run", retries=retries, **settings)
    assert (first.stop_reason, first.nfev) == (StopReason.LOST, 33)
    assert lost.calls == 40 + 7 * retries and "here" in first.message
    for fun in (None, lambda x: 0.0):
        with pytest.raises((ArgumentError, RunError), match="objective"):
            resume(tmp_path / "run", fun)
    fun = Interrupted()
    found = go_on(tmp_path / "run", fun)
    assert fun.calls == 67
    assert differences(found, whole(bumpy, [1.0, 0.5], 1.0, **settings)) == []


def test_after_a_disk_that_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Driver("plain", tmp_path, "limit_files=150000") as driver:
        found = driver.finish()
    kill = Kill.of(driver)
    assert found["stop_reason"] == "STORAGE" and "evaluations.sqlite" in found["message"]
    assert 0 < found["nfev"] == len(kill.logged) < 200
    assert differences(finish(driver, monkeypatch), reference("plain")) == []
    check_kills([kill], driver, twice=1)


FULL_DISK = """
import sys
import fmnes, fmnes.run.state
fmnes.run.state.SNAPSHOT_SECONDS = 0.0
sphere = fmnes.problems.get("sphere", d=5)
result = fmnes.minimize(sphere.fun, sphere.x0, sphere.sigma0, xtol=None, ftol=None, run_dir=sys.argv[1])
print(result.stop_reason.name, result.nfev)
"""


def test_a_disk_that_is_really_full(tmp_path: Path, with_small_disk: list[str]) -> None:
    done = subprocess.run(
        [*with_small_disk, sys.executable, "-c", FULL_DISK, tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.startswith("STORAGE "), done.stderr


def test_after_a_callback(tmp_path: Path) -> None:
    """Whether it stops the run or breaks, the run is saved."""

    def stops(view: fmnes.View) -> bool:
        return view.generation == 5

    def breaks(view: fmnes.View) -> None:
        if view.generation == 9:
            raise ZeroDivisionError("my plot")

    settings = {"rng": 1, "population_size": 10, "max_evaluations": 151, "noise": False}
    first = minimize(bumpy, [1.0, 0.5], 1.0, run_dir=tmp_path / "run", callback=stops, **settings)
    assert (first.stop_reason, first.nfev) == (StopReason.CALLBACK, 51)
    fun = Interrupted()
    fun.__qualname__ = "bumpy"  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError, match="my plot"):
        resume(tmp_path / "run", fun, callback=breaks)
    assert fun.calls == 40
    seen: list[int] = []
    with watching() as ends:
        result = resume(tmp_path / "run", fun, callback=lambda view: seen.append(view.generation))
    assert fun.calls == 100 and seen[-1] == 15 and seen == sorted(set(seen))
    assert differences(portrait(result, *ends), whole(bumpy, [1.0, 0.5], 1.0, **settings)) == []


def used_seconds(run: Path) -> float:
    metadata, _ = read_snapshot(run / "snapshot.npz")
    return float(metadata["run"]["seconds"])


def test_time_that_was_used_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.0)  # the time is that of the last snapshot
    run = tmp_path / "run"
    fun = Interrupted(fun=lambda x: time.sleep(0.02) or bumpy(x))
    settings = {"rng": 1, "population_size": 6, "max_seconds": 0.5, "run_dir": run}
    first = minimize(fun, [1.0, 0.5], 1.0, **settings)
    assert first.stop_reason is StopReason.MAX_SECONDS
    used = used_seconds(run)
    second = resume(run, fun)
    assert second.stop_reason is StopReason.MAX_SECONDS
    assert second.nfev >= first.nfev and used_seconds(run) >= used
    third = resume(run, fun, max_seconds=None, max_evaluations=second.nfev + 20)
    assert third.nfev == second.nfev + 20 == fun.calls


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["many snapshots", "one snapshot"])
@pytest.mark.parametrize("number", [2, 17])
@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_what_the_log_has_counts_after_the_deadline(
    overlap: float, number: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline limits new evaluations only; the start and a half-finished generation are replayed."""
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", seconds)
    run, fun = tmp_path / "run", Interrupted(number)
    settings = {"rng": 1, "population_size": 6, "max_seconds": 1e6, "overlap": overlap}
    first = minimize(fun, [1.0, 0.5], 1.0, run_dir=run, **settings)
    assert (first.stop_reason, first.nfev) == (StopReason.INTERRUPTED, number - 1)
    edit_snapshot(run / "snapshot.npz", lambda metadata: metadata["run"].update(seconds=1e7))
    second = resume(run, fun)
    assert second.stop_reason is StopReason.MAX_SECONDS
    assert (second.nfev, second.fun, fun.calls) == (number - 1, first.fun, number)
    assert resume(run, fun, max_seconds=None, max_evaluations=30).nfev == 30
    assert fun.calls == 31


# -- who evaluates ----------------------------------------------------------------------------------------


def test_another_number_of_workers_and_an_executor(tmp_path: Path) -> None:
    settings = {"rng": 1, "population_size": 10, "max_evaluations": 120}
    wanted = whole(bumpy, [1.0, 0.5], 1.0, **settings)
    minimize(
        bumpy, [1.0, 0.5], 1.0, run_dir=tmp_path / "run", workers=2, **{**settings, "max_evaluations": 33}
    )
    with ThreadPoolExecutor(2) as pool:
        resume(tmp_path / "run", bumpy, max_evaluations=57, workers=1, executor=pool)
    resume(tmp_path / "run", bumpy, max_evaluations=84, workers=3, timeout=60)
    assert (
        differences(go_on(tmp_path / "run", bumpy, max_evaluations=120, workers=1, timeout=None), wanted)
        == []
    )


def test_a_vectorized_objective(tmp_path: Path) -> None:
    def rows(x: Any) -> Any:
        return np.where(x[:, 0] < -0.5, np.nan, np.sum(x * x, axis=1))

    settings = {"rng": 1, "population_size": 10, "max_evaluations": 146, "vectorized": True}
    wanted = whole(rows, [0.5, 0.5], 1.0, **settings)
    fun = Interrupted(5, fun=rows)
    first = minimize(fun, [0.5, 0.5], 1.0, run_dir=tmp_path / "run", **settings)
    assert (first.stop_reason, first.nfev) == (StopReason.INTERRUPTED, 31)
    broken = Interrupted(3, what=ValueError, fun=rows)
    with pytest.raises(ValueError, match="here"):
        resume(tmp_path / "run", broken)
    fun = Interrupted(fun=rows)
    assert differences(go_on(tmp_path / "run", fun), wanted) == []
    assert fun.calls == 10  # of 15 generations, 5 were made before, and the start
    assert differences(go_on(tmp_path / "run"), wanted) == []


def test_a_generator_of_the_users(tmp_path: Path) -> None:
    for kind in (np.random.MT19937, np.random.Philox, np.random.SFC64):
        run = tmp_path / kind.__name__
        wanted = whole(square, [1.0, 2.0], 1.0, rng=np.random.Generator(kind(3)), max_evaluations=60)
        minimize(square, [1.0, 2.0], 1.0, rng=np.random.Generator(kind(3)), max_evaluations=25, run_dir=run)
        assert differences(go_on(run, square, max_evaluations=60), wanted) == []


# -- a run that has ended ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the run had ended with NO_FEASIBLE:RuntimeWarning")
def test_a_finished_run_returns_its_result_without_fun(tmp_path: Path) -> None:
    fails = Interrupted(*range(1, 9999), what=fmnes.Infeasible)
    endings: list[tuple[StopReason, Any, dict[str, Any]]] = [
        (StopReason.MAX_EVALUATIONS, bumpy, {"max_evaluations": 77, "ftol": None}),
        (StopReason.TARGET, square, {"target": 1e-3, "restarts": 1}),
        (StopReason.XTOL, square, {"bounds": (-1.0, 2.0)}),
        (StopReason.FTOL, bumpy, {}),
        (StopReason.NO_FEASIBLE, fails, {}),
    ]
    for reason, fun, settings in endings:
        run = tmp_path / reason.name
        wanted = whole(fun, [0.9, 0.5], 0.3, rng=1, run_dir=run, **settings)
        assert wanted["stop_reason"] == reason.name
        for again in (None, fun):
            assert differences(go_on(run, again), wanted) == []
        assert json.loads((run / "result.json").read_text())["data"]["nfev"] == wanted["nfev"]


def test_a_finished_run_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory remembers how to run it, so a larger budget needs no fun either."""
    monkeypatch.setenv(torture.CALLS, str(tmp_path / "calls"))
    settings = {"rng": 1, "population_size": 6, "workers": 2}
    fun = torture.command()
    first = whole(fun, [1.0, 0.5], 1.0, max_evaluations=9, run_dir=tmp_path / "run", **settings)
    assert torture.count_calls(tmp_path / "calls") == 9
    assert differences(go_on(tmp_path / "run"), first) == []
    assert torture.count_calls(tmp_path / "calls") == 9
    second = go_on(tmp_path / "run", max_evaluations=14)
    assert torture.count_calls(tmp_path / "calls") == 14
    assert differences(second, whole(fun, [1.0, 0.5], 1.0, max_evaluations=14, **settings)) == []


def test_a_finished_run_is_taken_up_at_its_last_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.0)
    settings = {"rng": 1, "max_evaluations": 1_000, "xtol": None, "ftol": None, "surrogate": False}
    tell, updates = Optimizer.tell, []
    monkeypatch.setattr(
        Optimizer, "tell", lambda self, *args, **more: updates.append(1) or tell(self, *args, **more)
    )
    first = whole(square, [1.0] * 5, 1.0, run_dir=tmp_path / "run", **settings)
    assert len(updates) > 100
    updates.clear()
    (tmp_path / "run" / "result.npz").unlink()  # otherwise the result is read and nothing is replayed
    assert differences(go_on(tmp_path / "run"), first) == []
    assert len(updates) <= 2


def test_the_log_is_read_only_where_it_has_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.0)
    find, read = EvaluationLog.find, []

    def counted(self: Any, *where: Any, **options: Any) -> Any:
        read.append(where)
        return find(self, *where, **options)

    monkeypatch.setattr(EvaluationLog, "find", counted)
    settings = {"rng": 1, "population_size": 10, "evaluate_start": False, "run_dir": tmp_path / "run"}
    minimize(bumpy, [1.0, 0.5], 1.0, max_evaluations=35, **settings)
    assert read == []
    assert resume(tmp_path / "run", bumpy, max_evaluations=80).nfev == 80
    assert set(read) == {(0, 3)}  # the generation that was not complete


PARAMETERS = {
    "width": fmnes.Real(0.1, 10, log=True),
    "layers": fmnes.Integer(1, 12),
    "angle": fmnes.Real(-1, 1),
}


def by_name(p: Any) -> Any:
    if p["angle"] > 0.5:
        raise fmnes.Infeasible("too steep")
    return (p["width"] - 2) ** 2 + p["layers"] + p["angle"] ** 2, {"mass": p["width"] * p["layers"]}


FINISHED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "arrays": (bumpy, [1.0, 0.5], {"sigma0": 1.0, "max_evaluations": 77}),
    "a target after a restart": (square, [3.0, 1.0], {"sigma0": 1.0, "target": 1e-3, "restarts": 1}),
    "confirmation searches": (bumpy, [0.9, 0.5], {"sigma0": 0.3}),
    "named parameters": (by_name, PARAMETERS, {"max_evaluations": 90}),
    "no value": (Interrupted(*range(1, 9999), what=fmnes.Infeasible), [0.9, 0.5], {"sigma0": 0.3}),
    "no covariance": (square, [1.0] * 301, {"sigma0": 1.0, "max_evaluations": 50}),
}


def files(run: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p.relative_to(run)): (p.stat().st_mtime_ns, p.read_bytes()) for p in run.rglob("*") if p.is_file()
    }


def fields_of(result: fmnes.Result) -> dict[str, Any]:
    """All of it, the types and the timings of the history included."""
    table = result.evaluations
    columns = {} if table is None else {name: table[name].tolist() for name in table.columns}
    plain = {f.name: getattr(result, f.name) for f in dataclasses.fields(result) if f.name != "evaluations"}
    failures = [
        [f.reason, f.count, f.detail, f.x.dtype.str, f.x.shape, f.x.tobytes()] for f in result.failures
    ]
    history = {name: (column.dtype.str, column.tolist()) for name, column in result.history.items()}
    return json.loads(repr_json({**plain, "failures": failures, "history": history, "evaluations": columns}))


def repr_json(data: Any) -> str:
    return json.dumps(data, default=lambda v: v.tolist() if isinstance(v, np.ndarray) else repr(v))


@pytest.mark.filterwarnings("ignore:the run had ended with NO_FEASIBLE")
@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_is_read_and_nothing_changes(name: str, tmp_path: Path) -> None:
    fun, x0, settings = FINISHED[name]
    run = tmp_path / "run"
    first = minimize(fun, x0, rng=1, run_dir=run, keep_evaluations=True, **settings)
    called = functools.update_wrapper(lambda x: pytest.fail("it was called"), fun) if callable(fun) else fun
    called.__qualname__ = json.loads((run / "config.json").read_text())["data"]["objective"]["name"]
    wanted, before = fields_of(first), files(run)
    assert fields_of(resume(run, called, keep_evaluations=True)) == wanted
    for again in (None, called):
        result = resume(
            run, again, **{k: v for k, v in settings.items() if k in ("max_evaluations", "target")}
        )
        assert result == first and result.evaluations is None
    assert files(run) == before
    # The replay gives the same: the part of the result that only readers need may be missing.
    (run / "result.npz").unlink()
    replayed = resume(run, keep_evaluations=True)
    assert replayed == first and replayed.evaluations is not None
    assert fields_of(replayed)["evaluations"] == wanted["evaluations"]
    assert (run / "result.npz").exists()


def test_a_finished_run_of_another_objective_is_refused(tmp_path: Path) -> None:
    minimize(square, [1.0, 2.0], 1.0, rng=1, max_evaluations=20, run_dir=tmp_path / "run")
    before = files(tmp_path / "run")
    with pytest.raises(RunError, match="another objective"):
        resume(tmp_path / "run", bumpy)
    assert files(tmp_path / "run") == before


def test_a_finished_run_goes_on_when_there_is_more_to_do(tmp_path: Path) -> None:
    run = tmp_path / "run"
    minimize(square, [1.0, 2.0], 1.0, rng=1, max_evaluations=20, run_dir=run)
    assert resume(run, square, max_evaluations=30).nfev == 30
    assert resume(run, square, target=10.0).stop_reason is StopReason.TARGET
    assert resume(run).stop_reason is StopReason.TARGET  # the target is stored


# -- refused, before anything is evaluated ----------------------------------------------------------------


def edit_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    envelope = json.loads(path.read_text())
    change(envelope)
    path.write_text(json.dumps(envelope))


def edit_snapshot(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the metadata of a snapshot, and leave it whole."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    metadata = json.loads(members["metadata.json"])
    change(metadata)
    members["metadata.json"] = json.dumps(metadata).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def newer_log(run: Path) -> None:
    with closing(sqlite3.connect(run / "evaluations.sqlite")) as log:
        log.execute("PRAGMA user_version=3")


def all_snapshots(act: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def change(run: Path) -> None:
        for name in ("snapshot.npz", "snapshot.previous.npz", "snapshot.first.npz"):
            act(run / name)

    return change


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no directory": (shutil.rmtree, "found nothing there"),
    "a file": (lambda run: (shutil.rmtree(run), run.write_text("hello")), "found a file"),
    "an empty directory": (lambda run: (shutil.rmtree(run), run.mkdir()), "no config.json"),
    "no configuration": (lambda run: (run / "config.json").unlink(), "no config.json"),
    "a damaged configuration": (lambda run: cut(run / "config.json"), "damaged or foreign"),
    "an edited configuration": (
        lambda run: edit_json(run / "config.json", lambda e: e["data"]["settings"].update(retries=9)),
        "checksum",
    ),
    "a newer configuration": (
        lambda run: edit_json(run / "config.json", lambda e: e.update(version=2)),
        "newer fmnes",
    ),
    "no log": (lambda run: (run / "evaluations.sqlite").unlink(), r"no evaluations\.sqlite"),
    "a damaged log": (lambda run: cut(run / "evaluations.sqlite"), r"evaluations\.sqlite: "),
    "a foreign log": (lambda run: (run / "evaluations.sqlite").write_text("hello"), r"evaluations\.sqlite: "),
    "a newer log": (newer_log, "newer fmnes"),
    "no snapshots": (all_snapshots(Path.unlink), "no snapshot"),
    "damaged snapshots": (all_snapshots(cut), "damaged or foreign"),
    "newer snapshots": (
        all_snapshots(lambda path: edit_snapshot(path, lambda m: m.update(version=3))),
        "newer fmnes",
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `bumpy` with more to do. Copy it before use."""
    run = tmp_path_factory.mktemp("made") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "SNAPSHOT_SECONDS", 0.0)
        minimize(bumpy, [1.0, 0.5], 1.0, rng=1, population_size=10, max_evaluations=55, run_dir=run)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def never(x: Any) -> float:
    raise AssertionError("it was called")


never.__qualname__ = "bumpy"


def contents(run: Path) -> dict[str, bytes]:
    """Of all that matters: not of the lock, which says who was last, nor of the log's header, a counter."""
    if not run.is_dir():
        return {}
    files = {path.name: path.read_bytes() for path in run.iterdir() if path.name != "lock"}
    return {name: raw[100:] if name.endswith("sqlite") else raw for name, raw in files.items()}


@pytest.mark.parametrize(("act", "words"), DAMAGE.values(), ids=DAMAGE)
def test_what_is_no_whole_run_is_refused(act: Callable[[Path], Any], words: str, run: Path) -> None:
    act(run)
    before = contents(run)
    with pytest.raises(RunError, match=words):
        resume(run, never, max_evaluations=100)
    assert contents(run) == before


REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "another function": (square, {}, RunError, "'bumpy'.*'square'.*another objective"),
    "a command": (torture.command(), {}, RunError, "another objective"),
    "no function": (None, {"max_evaluations": 100}, ArgumentError, "fun: found none.*'bumpy'"),
    "no function and a target": (None, {"target": 0.0}, ArgumentError, "fun: found none.*'bumpy'"),
    "no workers": (never, {"workers": 0}, ArgumentError, "workers: found 0"),
    "a wrong budget": (never, {"max_evaluations": 0}, ArgumentError, "max_evaluations: found 0"),
    "a wrong timeout": (never, {"timeout": -1.0}, ArgumentError, "timeout: found -1"),
    "wrong retries": (never, {"retries": -1}, ArgumentError, "retries: found -1"),
    "no seconds": (never, {"max_seconds": 0.0}, ArgumentError, "max_seconds: found 0"),
}


@pytest.mark.parametrize(("fun", "changes", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_call_is_refused(
    fun: Any, changes: dict[str, Any], error: type[Exception], words: str, run: Path
) -> None:
    before = contents(run)
    with pytest.raises(error, match=words):
        resume(run, fun, **changes)
    assert contents(run) == before


def test_a_used_directory_is_refused(run: Path) -> None:
    before = contents(run)
    with pytest.raises(RunError, match=r"fmnes\.resume"):
        minimize(never, [1.0, 0.5], 1.0, run_dir=run)
    assert contents(run) == before


def test_a_run_in_use_is_refused(tmp_path: Path) -> None:
    with Driver("plain", tmp_path) as driver:
        assert driver.wait_for(5)
        driver.process.send_signal(signal.SIGSTOP)  # so that it cannot end meanwhile
        with pytest.raises(RunError, match=f"in use by process {driver.process.pid}"):
            resume(driver.run, never)
        with pytest.raises(RunError, match="found a run"):
            minimize(never, [1.0], 1.0, run_dir=driver.run)
        driver.process.send_signal(signal.SIGCONT)
        assert differences(driver.finish(), reference("plain")) == []


def test_a_damaged_last_snapshot_costs_nothing(run: Path) -> None:
    cut(run / "snapshot.npz")
    fun = Interrupted()
    fun.__qualname__ = "bumpy"  # type: ignore[attr-defined]
    with pytest.warns(RuntimeWarning, match="going on from the one before"):
        found = go_on(run, fun, max_evaluations=90)
    assert fun.calls == 35
    wanted = whole(bumpy, [1.0, 0.5], 1.0, rng=1, population_size=10, max_evaluations=90)
    assert differences(found, wanted) == []


def test_a_damaged_result_does_not_keep_a_run_from_going_on(run: Path) -> None:
    """All that is in it follows from the log and the snapshot."""
    cut(run / "result.json")
    assert resume(run, bumpy, max_evaluations=90).nfev == 90


# -- what once went wrong ---------------------------------------------------------------------------------


def test_the_seed_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flat(x: Any) -> float:
        return 3.0

    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.0)
    settings = {"rng": 5, "restarts": 1, "max_evaluations": 150, "noise": False}
    first = minimize(flat, [1.5, 1.0], 1.0, run_dir=tmp_path / "run", **settings)
    assert first.history["restart"][-1] == 1 and first.seed == 5
    assert resume(tmp_path / "run", flat, max_evaluations=180).seed == 5


def test_failed_points_stay_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.0)
    settings = {"rng": 1, "method": fmnes.Resampling(fmnes.XNES())}
    wanted = whole(bumpy, [0.0, 1.0], 1.0, max_evaluations=100, **settings)
    minimize(bumpy, [0.0, 1.0], 1.0, max_evaluations=80, run_dir=tmp_path / "run", **settings)
    found = go_on(tmp_path / "run", bumpy, max_evaluations=100)
    assert differences(found, wanted) == []


@pytest.mark.parametrize("number", range(1, 11, 3))
def test_failed_points_stay_in_order_when_one_was_lost(number: int) -> None:
    settings = {"rng": 1, "population_size": 10, "max_evaluations": 60}
    found = whole(Interrupted(number, what=fmnes.Lost), [-0.3, 0.5], 1.0, **settings)
    assert differences(found, whole(bumpy, [-0.3, 0.5], 1.0, **settings)) == []


def test_resampling_goes_on_after_a_lost_evaluation(tmp_path: Path) -> None:
    settings = {"rng": 3, "population_size": 8, "max_evaluations": 60}
    settings["method"] = fmnes.Resampling(fmnes.XNES())

    class Unlucky(Interrupted):
        def __call__(self, x: Any) -> Any:
            if self.calls == 1:
                self.calls += 1
                raise fmnes.Lost("network")
            return super().__call__(x)

    Unlucky.__qualname__ = "Interrupted"
    first = minimize(Unlucky(30), [-0.5, 1.0], 1.0, run_dir=tmp_path / "run", **settings)
    assert first.stop_reason is StopReason.INTERRUPTED
    found = go_on(tmp_path / "run", Interrupted())
    assert found["stop_reason"] == "MAX_EVALUATIONS", found["message"]
    assert differences(found, whole(bumpy, [-0.5, 1.0], 1.0, **settings)) == []


def test_a_target_that_was_reached_beside_a_lost_evaluation(tmp_path: Path) -> None:
    def fun(x: Any) -> float:
        calls.append(x)
        if len(calls) == 2:
            raise fmnes.Lost("network")
        return -1.0 if len(calls) == 4 else square(x)

    calls: list[Any] = []
    first = whole(fun, [1.0, 2.0], 1.0, rng=1, population_size=8, target=0.0, run_dir=tmp_path / "run")
    assert first["stop_reason"] == "TARGET"
    assert differences(go_on(tmp_path / "run"), first) == []


def foreign_snapshot(path: Path) -> None:
    fmnes.Optimizer([1.0, 0.5], 1.0, rng=1).save(path)


def snapshot_of(x0: list[float], rng: int) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        other = path.with_name("other")
        minimize(bumpy, x0, 1.0, rng=rng, population_size=10, max_evaluations=35, run_dir=other)
        shutil.copy(other / "snapshot.npz", path)
        shutil.rmtree(other)

    return act


@pytest.mark.parametrize(
    "act",
    [foreign_snapshot, snapshot_of([1.0, 0.5], 2), snapshot_of([1.0, 0.5, 0.0], 1)],
    ids=["of an Optimizer", "of another seed", "of another dimension"],
)
def test_a_snapshot_of_something_else_is_refused(act: Callable[[Path], Any], run: Path) -> None:
    all_snapshots(act)(run)
    before = contents(run)
    with pytest.raises(RunError):
        resume(run, never, max_evaluations=100)
    if act is foreign_snapshot:  # the others are found out by the first point that is asked for
        assert contents(run) == before


def test_a_damaged_row_of_the_last_generation_is_refused(run: Path) -> None:
    with closing(sqlite3.connect(run / "evaluations.sqlite", isolation_level=None)) as log:
        log.execute("UPDATE evaluations SET reason = 'edited' WHERE generation = 5 AND slot = 3")
    with pytest.raises(RunError, match="damaged row"):
        resume(run, never, max_evaluations=100)


def test_a_refused_call_changes_nothing(run: Path) -> None:
    before = contents(run)
    with ThreadPoolExecutor(1) as pool, pytest.raises(ArgumentError, match="executor: found together with"):
        resume(run, bumpy, max_evaluations=100, workers=2, executor=pool)
    assert contents(run) == before


def test_killed_before_a_larger_budget_is_in_the_snapshot(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(RunDirectory, "write_snapshot", killed)
        resume(run, bumpy, max_evaluations=100)
    assert json.loads((run / "config.json").read_text())["data"]["settings"]["max_evaluations"] == 100
    assert resume(run, bumpy).nfev == 100


def test_failed_points_that_are_too_long_to_be_stored(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with more than 10,000 coordinates, only quicker."""
    monkeypatch.setattr(log_reader, "MAX_STORED_DIMENSION", 1)
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.0)
    settings = {"rng": 1, "population_size": 10, "run_dir": run.with_name("long")}
    minimize(bumpy, [-0.5, 0.5], 1.0, max_evaluations=40, **settings)
    wanted = minimize(bumpy, [-0.5, 0.5], 1.0, rng=1, population_size=10, max_evaluations=80)
    found = resume(run.with_name("long"), bumpy, max_evaluations=80)
    assert [(f.reason, f.count) for f in found.failures] == [(f.reason, f.count) for f in wanted.failures]


@pytest.mark.parametrize("target", ["1", float("nan")])
def test_a_wrong_target_is_refused(target: Any, run: Path) -> None:
    with pytest.raises(ArgumentError, match="target: found"):
        resume(run, never, target=target)


@pytest.mark.parametrize("name", ["max_evaluations", "retries", "restarts", "workers"])
def test_whole_numbers_of_numpy(name: str, tmp_path: Path) -> None:
    settings = {"max_evaluations": 10, name: np.int64(1)}
    minimize(square, [1.0, 2.0], 1.0, rng=1, run_dir=tmp_path / "run", **settings)


def test_a_command_with_an_environment_is_asked_for_again(tmp_path: Path) -> None:
    """The environment is not stored, for it may hold secrets."""
    program = "import os, sys; print(float(sys.argv[1]) ** 2 + float(os.environ['OFFSET']))"
    argv = [sys.executable, "-I", "-S", "-c", program, "{x0}"]
    fun = fmnes.Command(argv, environment={"OFFSET": "5"}, keep="none")
    minimize(fun, [1.0], 1.0, rng=1, max_evaluations=4, run_dir=tmp_path / "run")
    with pytest.raises(ArgumentError, match="environment"):
        resume(tmp_path / "run", max_evaluations=8)


def test_an_objective_that_changes_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def fun(x: Any) -> float:
        os.chdir(tmp_path / "elsewhere")
        return square(x)

    assert minimize(fun, [1.0, 2.0], 1.0, rng=1, max_evaluations=20, run_dir="run").nfev == 20


def test_a_reason_that_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.0)

    def fun(x: Any) -> float:
        if x[0] < 1:
            raise fmnes.Infeasible("bad \udcff")
        return square(x)

    wanted = whole(fun, [1.0, 2.0], 1.0, rng=1, max_evaluations=50, run_dir=tmp_path / "run")
    assert go_on(tmp_path / "run")["failures"] == wanted["failures"]


def test_a_finished_run_of_a_program_that_is_gone(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho $1\n")
    program.chmod(0o700)
    fun = fmnes.Command([program, "{x0}"], keep="none")
    wanted = whole(fun, [1.0], 1.0, rng=1, max_evaluations=4, run_dir=tmp_path / "run")
    program.unlink()
    assert differences(go_on(tmp_path / "run"), wanted) == []


@pytest.mark.parametrize("on_error", ["infeasible", "raise"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_objective_that_raised_can_be_corrected(workers: int, on_error: Any, tmp_path: Path) -> None:
    """A first generation that looks like a bug stops the run; so does on_error="raise"."""
    bug = Interrupted(*range(1, 99), what=ValueError)
    settings = {"rng": 1, "max_evaluations": 20, "run_dir": tmp_path / "run", "on_error": on_error}
    with pytest.raises((fmnes.ObjectiveError, ValueError)):
        minimize(bug, [1.0, 0.5], 1.0, workers=workers, **settings)
    assert resume(tmp_path / "run", Interrupted()).nfev == 20


def test_an_objective_that_returned_no_number_can_be_corrected(tmp_path: Path) -> None:
    with pytest.raises(fmnes.ObjectiveError, match="returned str"):
        minimize(Interrupted(fun=str), [1.0, 0.5], 1.0, rng=1, max_evaluations=20, run_dir=tmp_path / "run")
    assert resume(tmp_path / "run", Interrupted()).nfev == 20


def test_a_result_with_points_too_long_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with more than a million coordinates, only quicker."""
    monkeypatch.setattr(history, "MAX_RESULT_DIMENSION", 1)
    settings = {"rng": 1, "population_size": 10, "max_evaluations": 40}
    found = minimize(bumpy, [-0.5, 0.5], 1.0, run_dir=tmp_path / "run", **settings)
    assert found.x is not None and found.failures
    written = json.loads((tmp_path / "run" / "result.json").read_text())["data"]
    assert (written["x"], written["x_mean"], written["fun"]) == (None, None, found.fun)
    assert {failure["first_x"] for failure in written["failures"]} == {None}
    assert np.array_equal(resume(tmp_path / "run").x, found.x)
