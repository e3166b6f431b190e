"""Snapshots of whole runs: what is in them, how large they grow, how often they are written, and old ones."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import View, minimize, resume
from fmnes.result import Best
from fmnes.run import history, state
from fmnes.run.history import COLUMNS, History, Ledger
from fmnes.run.state import RunState, Snapshots
from fmnes.storage.directory import RunDirectory
from fmnes.storage.snapshot import read_snapshot, write_snapshot


def sphere(x: Any) -> float:
    return float(np.sum(x * x))


def letters(number: int) -> str:
    """Reasons that differ in more than numbers are never told as one."""
    return str(number).translate(str.maketrans("0123456789", "abcdefghij"))


# -- what is written can be read back ---------------------------------------------------------------------


def test_a_thousand_reasons_in_any_script_can_be_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters that JSON may write as twelve bytes, in reasons and tracebacks of every length."""
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 0.0)
    calls = 0

    def fun(x: Any) -> float:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise RuntimeError(f"{letters(calls)} " + "\U0001f4a5" * 250 + "\x01" * 40 + "\udcff")
        return sphere(x)

    run = tmp_path / "run"
    minimize(fun, [1.0, 2.0], 0.5, rng=1, population_size=200, max_evaluations=2400, run_dir=run)
    metadata, arrays = read_snapshot(run / "snapshot.npz")
    assert len(RunState.restore(metadata, arrays).failures.failures()) > 900
    found = resume(run, fun, max_evaluations=2600)
    assert found.nfev == 2600 and found.failures[0].reason == history.OTHER


def test_a_snapshot_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(fmnes.SnapshotError, match="bytes of metadata"):
        write_snapshot(tmp_path / "a.npz", {"text": "x" * 2**24}, {})
    assert not list(tmp_path.iterdir())


def test_half_of_a_surrogate_pair_can_be_read_back(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "a.npz", {"text": "σ \udcff \U0001f4a5"}, {})
    assert read_snapshot(tmp_path / "a.npz")[0]["text"] == "σ \udcff \U0001f4a5"


# -- and stays small --------------------------------------------------------------------------------------


def test_the_ledger_stays_small_whatever_fails() -> None:
    """A thousand reasons, a hundred points of each and 200 coordinates would be 160 MB."""
    ledger = Ledger()
    rng = np.random.default_rng(1)
    for i in range(12_000):
        ledger.add(
            history.Outcome("infeasible", reason=f"element {letters(i % 1009)}", detail="d" * 2000),
            rng.random(200),
        )
    entries, points = ledger.dump()
    assert len(entries) == history.MAX_REASONS + 1 and sum(entry[1] for entry in entries) == 12_000
    assert points.nbytes <= 8 * history.MAX_FIRST_NUMBERS and points.nbytes < 4e6
    assert sum(len(entry[2]) for entry in entries) < 500_000
    assert all(entry[3] >= 1 for entry in entries), "each reason has a point to look at"
    again = Ledger.restore(entries, points)
    for i in range(300):
        outcome, x = history.Outcome("infeasible", reason=f"element {letters(i % 7)}"), rng.random(200)
        ledger.add(outcome, x)
        again.add(outcome, x)
    for a, b in zip(ledger.failures(), again.failures(), strict=True):
        assert (a.reason, a.count, a.detail) == (b.reason, b.count, b.detail)
        np.testing.assert_array_equal(a.x, b.x)


def test_one_reason_keeps_a_hundred_points() -> None:
    ledger = Ledger()
    for i in range(150):
        ledger.add(history.Outcome("infeasible", reason="mesh failed"), np.full(20, i))
    (failure,) = ledger.failures()
    assert failure.count == 150 and failure.x.shape == (100, 20) and failure.x[99, 0] == 99


def test_points_too_long_to_be_kept_are_counted() -> None:
    ledger = Ledger()
    ledger.add(history.Outcome("infeasible", reason="mesh failed"), np.zeros(history.MAX_FIRST_NUMBERS + 1))
    (failure,) = ledger.failures()
    assert failure.count == 1 and len(failure.x) == 0
    result = fmnes.Result(None, np.inf, False, None, "", 1, 0, 1, np.zeros(1), 1, [failure])
    assert result.as_json()["failures"] == [{"reason": "mesh failed", "count": 1, "first_x": None}]


def view(generation: int) -> View:
    best = Best(None, np.inf, 0)
    return View(generation, 4 * generation, 4, np.zeros(2), 0.5**generation, np.ones(2), "", 1.0, 1.0, best)


@pytest.mark.parametrize("generations", [1, 2, 15, 16, 17, 31, 32, 33, 100, 1000])
def test_a_long_history_is_thinned_and_ends_with_the_last_generation(
    generations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_ROWS", 16)
    whole = History()
    for g in range(1, generations + 1):
        whole.add(view(g))
        if g == generations // 2:  # as a resumed run goes on with it
            whole = History.restore(*whole.dump())
    found = whole.columns()["generation"]
    stride = 1
    while len(wanted := sorted({*range(1, generations + 1, stride), generations})) > 16:
        stride *= 2
    assert found.tolist() == wanted
    assert whole.has(view(generations)) and not whole.has(view(generations + 1))


@pytest.mark.parametrize("counts", [[3, 1], [1, 1], [2, 0], [-2, 1], [10**30, 4]])
def test_a_history_that_does_not_fit_its_counts_is_refused(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="a history of"):
        History.restore(counts, np.zeros((2, len(COLUMNS))))


# -- seldom enough ----------------------------------------------------------------------------------------


class SlowDirectory(RunDirectory):
    """A disk that takes 20 ms for a snapshot, on a clock of its own."""

    def __init__(self) -> None:
        self.now, self.count = 0.0, 0

    def write_snapshot(self, *_: Any) -> None:
        self.now += 0.02
        self.count += 1


def test_snapshots_take_five_percent_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 1e-9)
    directory, run = SlowDirectory(), RunState(fmnes.Optimizer([1.0, 2.0], 0.5, rng=1))
    snaps = Snapshots(directory)
    monkeypatch.setattr(state.time, "monotonic", lambda: directory.now)
    for _ in range(10_000):  # generations of 1 ms
        snaps.take(run)
        directory.now += 0.001
    assert directory.count >= 20 and directory.count * 0.02 <= 0.05 * directory.now + 0.02


# -- interrupted ------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import fmnes
from fmnes.run import state

signal.signal(signal.SIGINT, signal.default_int_handler)
state.SNAPSHOT_SECONDS = 0.0
run = sys.argv[1]
calls = 0


def fun(x):
    global calls
    calls += 1
    if calls % 2:
        raise fmnes.Infeasible(f"residual {calls}")
    return float(x @ x)


def watch():
    while not os.path.exists(run + "/snapshot.npz"):
        time.sleep(0.001)
    while not any(name.startswith(".snapshot.npz") for name in os.listdir(run)):
        pass
    time.sleep(float(sys.argv[2]))
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=watch, daemon=True).start()
print(fmnes.minimize(fun, [1.0] * 300, 0.5, rng=1, run_dir=run, xtol=None, ftol=None).stop_reason.name)
"""


def test_ctrl_c_while_a_snapshot_is_written(tmp_path: Path) -> None:
    """The zip file's own clean-up must not hide the interrupt."""
    for i in range(4):
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED, str(tmp_path / str(i)), str(0.001 * i)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "INTERRUPTED\n", "")


@pytest.mark.parametrize("call", [1, 2, 5])
def test_whatever_interrupts_a_snapshot_is_raised_as_it_is(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it hurts: a member of the zip file is open, and nobody has a handle to close it by."""
    (tmp_path / "a.npz").write_bytes(b"old")
    made = 0

    class Member(zipfile._ZipWriteFile):  # type: ignore[misc,name-defined]
        def __init__(self, *arguments: Any) -> None:
            nonlocal made
            made += 1
            if made == call:
                raise KeyboardInterrupt
            super().__init__(*arguments)

    monkeypatch.setattr(zipfile, "_ZipWriteFile", Member)
    with pytest.raises(KeyboardInterrupt):
        write_snapshot(tmp_path / "a.npz", {}, {name: np.zeros(3) for name in "abcdefgh"})
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.npz", b"old")]


# -- what makes no sense ------------------------------------------------------------------------------------


def edit(change: dict[str, Any]) -> Any:
    return lambda run: run.update(change)


DAMAGE = {
    "no time": lambda run: run.pop("seconds"),
    "endless": edit({"seconds": 1e999}),
    "negative": edit({"seconds": -1.0}),
    "no stride": edit({"history": [3, 0]}),
    "less than nothing": lambda run: run["totals"].update(evaluations=-5),
    "other failures": edit({"failures": [["mesh failed", 2, "", 2]]}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_run_that_makes_no_sense_is_refused(damage: Any, tmp_path: Path) -> None:
    state = RunState(fmnes.Optimizer([1.0, 2.0], 0.5, rng=1))
    metadata, arrays = state.dump()
    assert RunState.restore(metadata, arrays).evaluations == 0
    damage(metadata["run"])
    with pytest.raises(fmnes.SnapshotError, match="unusable snapshot"):
        RunState.restore(metadata, arrays)


def test_a_damaged_snapshot_without_the_time_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    minimize(sphere, [1.0, 2.0], 0.5, rng=1, max_evaluations=20, run_dir=run)
    metadata, arrays = read_snapshot(run / "snapshot.npz")
    del metadata["run"]["seconds"]
    for name in ("snapshot.npz", "snapshot.previous.npz"):
        write_snapshot(run / name, metadata, arrays)
    with pytest.raises(fmnes.RunError, match=r"unusable snapshot .*seconds"):
        resume(run, sphere, max_evaluations=30)
