"""`fmnes stop`: a wish in the run directory ends a run as Ctrl-C does, and nothing else comes of it.

The drivers are real processes (`tests/torture.py`); where the loop must be in this one, it gets real signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fmnes
from fmnes import RunError, StopReason, minimize, resume
from fmnes.run import interrupts
from fmnes.storage.directory import Answer, RunDirectory, archive_run, request_stop
from fmnes.storage.lock import STOP, is_stop_request, write_stop_request
from tests import torture
from tests.torture import SCENARIOS, Driver, Kill, bumpy, differences, portrait, watching

#: The machine may be busy: a wish is seen within a second of a driver that gets its turn.
PATIENCE = 200.0


def command_line(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fmnes", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def finish(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv(torture.CALLS, str(driver.calls))
    with watching() as seen:
        result = resume(driver.run, SCENARIOS[driver.scenario].fun)
    return portrait(result, *seen)


def wait_until(true: Callable[[], bool], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come to pass"
        time.sleep(0.005)


def sleeping(folder: Path) -> tuple[Path, Path]:
    """A "sleepy" driver of this folder will sleep as long as the first is there; then the second is."""
    sleep, asleep = folder / f"calls{torture.SLEEP}", folder / f"calls{torture.ASLEEP}"
    sleep.touch()
    return sleep, asleep


@contextmanager
def asked_in_the_background(run: Path, when: threading.Event) -> Iterator[list[Answer]]:
    """A run of this process is asked to stop as soon as `when` is set."""
    answers: list[Answer] = []

    def ask() -> None:
        assert when.wait(240)
        answers.append(request_stop(run, 60))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        when.set()
        thread.join()


# -- in the middle of an evaluation -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sleepy", "sleepy workers", "sleepy command"])
def test_a_run_stops_in_the_middle_of_a_long_evaluation_and_goes_on_bit_for_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep, asleep = sleeping(tmp_path)
    with Driver(name, tmp_path) as driver:
        wait_until(asleep.exists)
        done = command_line("stop", driver.run, "--wait", "200")
        assert (done.returncode, done.stderr) == (0, "")
        found = driver.finish()
    assert done.stdout.startswith(f"stopped: interrupted (at evaluation {found['nfev']})\nto go on")
    assert found["stop_reason"] == "INTERRUPTED" and found["x"] is not None
    assert not (driver.run / STOP).exists()
    kill = Kill.of(driver)  # nobody is left
    sleep.unlink()
    wanted = SCENARIOS[name].reference()  # before calls are noted here
    assert differences(finish(driver, monkeypatch), wanted) == []
    assert kill.logged and kill.repeated(torture.read_calls(driver.calls)) == []


def test_an_executor_is_not_waited_for(tmp_path: Path) -> None:
    begun, over = threading.Event(), threading.Event()

    def hangs(x: Any) -> float:
        begun.set()
        over.wait(120)
        return bumpy(x)

    with ThreadPoolExecutor(2) as executor:
        try:
            with asked_in_the_background(tmp_path / "run", begun) as answers:
                result = minimize(hangs, [1.0, 0.5], 1.0, rng=1, executor=executor, run_dir=tmp_path / "run")
        finally:
            over.set()
    assert result.stop_reason is StopReason.INTERRUPTED and result.nfev == 0
    assert answers == [Answer.STOPPED]


def test_a_run_that_ignores_sigint_stops_all_the_same(tmp_path: Path) -> None:
    """So does every process that a shell starts with "&"."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    begun = threading.Event()

    def hangs(x: Any) -> float:
        begun.set()
        time.sleep(120)
        return 0.0

    try:
        with asked_in_the_background(tmp_path / "run", begun):
            result = minimize(hangs, [1.0, 0.5], 1.0, rng=1, run_dir=tmp_path / "run")
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.stop_reason is StopReason.INTERRUPTED
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# -- between two evaluations ------------------------------------------------------------------------------


def test_where_others_handle_signals_they_are_left_alone(tmp_path: Path) -> None:
    caught: list[int] = []
    before = {n: signal.signal(n, lambda n, _: caught.append(n)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        check_between_evaluations(tmp_path)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert caught == []


def test_a_loop_in_another_thread_stops_between_two_evaluations(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        executor.submit(check_between_evaluations, tmp_path).result()


def test_an_objective_that_swallows_the_interrupt_is_stopped_after_it(tmp_path: Path) -> None:
    begun, swallowed = threading.Event(), 0

    def swallows(x: Any) -> float:
        nonlocal swallowed
        begun.set()
        try:
            time.sleep(0.02)
        except KeyboardInterrupt:
            swallowed += 1
        return bumpy(x)

    options: dict[str, Any] = {"rng": 1, "xtol": None, "ftol": None, "max_evaluations": 2000}
    with asked_in_the_background(tmp_path / "run", begun):
        result = minimize(swallows, [1.0, 0.5], 1.0, run_dir=tmp_path / "run", **options)
    assert result.stop_reason is StopReason.INTERRUPTED and swallowed <= 1


def check_between_evaluations(folder: Path) -> None:
    """No evaluation is cut off, and the run goes on to what it would have come to."""
    begun = threading.Event()
    entered, left = 0, 0

    def slow(x: Any) -> float:
        nonlocal entered, left
        entered += 1
        begun.set()
        time.sleep(0.02)
        left += 1
        return bumpy(x)

    options: dict[str, Any] = {"rng": 3, "xtol": None, "ftol": None, "max_evaluations": 2000}
    with asked_in_the_background(folder / "run", begun) as answers:
        result = minimize(slow, [1.0, 0.5], 1.0, run_dir=folder / "run", **options)
    assert answers == [Answer.STOPPED] and result.stop_reason is StopReason.INTERRUPTED
    assert result.nfev == entered == left > 0


# -- wishes that are not for this run ---------------------------------------------------------------------


def test_a_wish_of_last_week_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "LOOK_SECONDS", 0.001)
    run = tmp_path / "run"
    minimize(bumpy, [1.0, 0.5], 1.0, rng=1, max_evaluations=20, run_dir=run)
    write_stop_request(run)
    (run / ".stop.abcdefgh.tmp").touch()  # of a `fmnes stop` that was killed
    assert fmnes.read_run(run).result.nfev == 20 and is_stop_request(run / STOP)
    assert request_stop(run, 0) is Answer.NOT_RUNNING

    def slow(x: Any) -> float:
        time.sleep(0.005)
        return bumpy(x)

    slow.__module__, slow.__qualname__ = bumpy.__module__, bumpy.__qualname__
    assert resume(run, slow, max_evaluations=60).nfev == 60
    assert not (run / STOP).exists() and not (run / ".stop.abcdefgh.tmp").exists()


def test_a_run_that_evaluated_nothing_may_begin_again_with_a_wish_in_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunDirectory.create(run, {}).close()
    write_stop_request(run)
    assert minimize(bumpy, [1.0, 0.5], 1.0, rng=1, max_evaluations=20, run_dir=run).nfev == 20
    assert not (run / STOP).exists()
    (run / STOP).mkdir()
    with pytest.raises(RunError, match="found a run"):
        minimize(bumpy, [1.0, 0.5], 1.0, rng=1, max_evaluations=20, run_dir=run)


def test_a_wish_alone_makes_no_directory_ours(tmp_path: Path) -> None:
    write_stop_request(tmp_path)
    with pytest.raises(RunError, match="found stop in it"):
        minimize(bumpy, [1.0, 0.5], 1.0, rng=1, max_evaluations=20, run_dir=tmp_path)
    assert os.listdir(tmp_path) == [STOP]


def test_a_wish_moves_aside_with_its_run(tmp_path: Path) -> None:
    minimize(bumpy, [1.0, 0.5], 1.0, rng=1, max_evaluations=20, run_dir=tmp_path / "run")
    write_stop_request(tmp_path / "run")
    assert is_stop_request(archive_run(tmp_path / "run") / STOP)


def test_kill_9_with_a_wish_in_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Driver("plain", tmp_path) as driver:
        assert driver.wait_for(30)
        driver.process.send_signal(signal.SIGSTOP)
        done = command_line("stop", driver.run, "--wait", "0.2")
        assert done.returncode == 1 and "asked to stop, and still runs after 0.2 s" in done.stdout
        assert is_stop_request(driver.run / STOP)
        driver.kill()
    assert differences(finish(driver, monkeypatch), SCENARIOS["plain"].reference()) == []
    assert not (driver.run / STOP).exists()


def test_a_suspended_run_stops_when_it_goes_on(tmp_path: Path) -> None:
    _, asleep = sleeping(tmp_path)
    with Driver("sleepy", tmp_path) as driver:
        wait_until(asleep.exists)
        driver.process.send_signal(signal.SIGSTOP)
        assert command_line("stop", driver.run, "--wait", "0").returncode == 0
        assert driver.process.poll() is None
        driver.process.send_signal(signal.SIGCONT)
        assert driver.finish()["stop_reason"] == "INTERRUPTED"


FOREIGN: dict[str, Callable[[Path], None]] = {
    "a note": lambda path: path.write_text("stop at the baker's\n") and None,
    "binary": lambda path: path.write_bytes(b"\xff\x00" * 10) and None,
    "large": lambda path: path.write_text("fmnes stop, asked by process 1 on a\n" * 1000) and None,
    "a directory": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_what_is_not_ours_is_no_wish_and_stays(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "LOOK_SECONDS", 0.001)
    run, refused = tmp_path / "run", []

    def looks(x: Any) -> float:
        if not os.path.lexists(run / STOP):
            make(run / STOP)
            with pytest.raises(RunError, match="found a file that is not ours"):
                request_stop(run, 0)
            refused.append(os.lstat(run / STOP).st_ino)
        time.sleep(0.003)
        return bumpy(x)

    result = minimize(looks, [1.0, 0.5], 1.0, rng=1, max_evaluations=40, run_dir=run)
    assert result.stop_reason is StopReason.MAX_EVALUATIONS
    assert resume(run, looks, max_evaluations=50).nfev == 50
    assert fmnes.read_run(run).result.nfev == 50
    assert refused == [os.lstat(run / STOP).st_ino]


# -- the command ------------------------------------------------------------------------------------------


def test_what_is_no_run_or_does_not_run_is_said(tmp_path: Path) -> None:
    minimize(bumpy, [1.0, 0.5], 1.0, rng=1, max_evaluations=20, run_dir=tmp_path / "run")
    done = command_line("stop", "run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("not running: ") and "to go on" in done.stdout
    assert not (tmp_path / "run" / STOP).exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    wrong = {"other": "found no config.json", "rum": "did you mean 'run'?", "mine": "found no run of ours"}
    for path, words in wrong.items():
        done = command_line("stop", path, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "") and words in done.stderr
    assert os.listdir(tmp_path / "other") == [] and os.listdir(tmp_path / "mine") == ["config.json"]


def test_without_a_run_directory_nobody_watches(tmp_path: Path) -> None:
    def threads(x: Any) -> float:
        names.update(thread.name for thread in threading.enumerate())
        return bumpy(x)

    names: set[str] = set()
    minimize(threads, [1.0, 0.5], 1.0, rng=1, max_evaluations=5)
    assert "fmnes stop requests" not in names
    minimize(threads, [1.0, 0.5], 1.0, rng=1, max_evaluations=5, run_dir=tmp_path / "run")
    assert "fmnes stop requests" in names
    wait_until(lambda: all(thread.name != "fmnes stop requests" for thread in threading.enumerate()))
