"""The 52 ways in which an evaluation, a run or a machine may fail, each as a whole run (docs/failures.md).

The faults are real ones, in worker processes (`tests/faults.py`) and in programs (`tests/torture.py`). One
that costs an evaluation must leave exactly the run in which that point had returned NaN.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import (
    ArgumentError,
    Command,
    Infeasible,
    Lost,
    ObjectiveError,
    Optimizer,
    Result,
    RunError,
    StopReason,
    UsageError,
    minimize,
    resume,
)
from fmnes.run import state
from fmnes.storage import log
from tests import torture
from tests.faults import FAULTS
from tests.rows import through
from tests.test_snapshot import mutate
from tests.torture import Driver, GoesWrong, Kill, differences, left_after, portrait, watching

X0 = [1.0, 2.0]
SETTINGS: dict[str, Any] = {"rng": 1, "population_size": 6, "max_evaluations": 15}


def square(x: Any) -> float:
    return float(np.sum(x * x))


def same(a: Result, b: Result, *but: str) -> bool:
    """The same run, number for number."""
    numbers = ("nfev", "nit", "n_infeasible", "stop_reason", "success", "message", "seed")
    columns = [name for name in a.history if name != "seconds"]
    return (
        all(getattr(a, name) == getattr(b, name) for name in numbers if name not in but)
        and a.fun == b.fun
        and np.array_equal(a.x, b.x)  # type: ignore[arg-type]
        and np.array_equal(a.x_mean, b.x_mean)
        and all(np.array_equal(a.history[c], b.history[c], equal_nan=True) for c in columns)
    )


@functools.cache
def bad_points() -> list[tuple[float, ...]]:
    """The points at slots 2, 3 and 4 of generation 1."""
    opt = Optimizer(X0, 1.0, rng=SETTINGS["rng"], population_size=SETTINGS["population_size"])
    opt.tell([square(x) for x in opt.ask()])
    return [tuple(x) for x in opt.ask()[2:5]]


def goes_wrong(*faults: str) -> GoesWrong:
    """Each of them at a bad point of its own."""
    return GoesWrong(dict(zip(bad_points(), faults, strict=False)))


@functools.cache
def without_them(n: int) -> Result:
    """The run in which so many bad points return NaN, and nothing else is wrong."""
    return minimize(goes_wrong(*n * ["returns NaN"]), X0, 1.0, **SETTINGS)


def without_it() -> Result:
    return without_them(1)


def check_each_costs_one(result: Result, *faults: str) -> None:
    """Each has cost one evaluation, for the reason that the fault gives; all others are what they were."""
    assert same(result, without_them(len(faults)))
    assert result.n_infeasible == sum(failure.count for failure in result.failures) == len(faults)
    for x, name in zip(bad_points(), faults, strict=False):
        (failure,) = [failure for failure in result.failures if (failure.x == x).all(axis=1).any()]
        expected = FAULTS[name]
        assert failure.reason.startswith(expected.reason) and expected.detail in failure.detail


def by_workers(*faults: str, **settings: Any) -> Result:
    return minimize(goes_wrong(*faults), X0, 1.0, workers=2, **SETTINGS, **settings)


def by_program(*faults: str, **settings: Any) -> Result:
    """The same faults in an external program."""
    workers = settings.pop("workers", 2)
    return minimize(torture.command(*faults, **settings), X0, 1.0, workers=workers, **SETTINGS)


def check_program_costs_one(result: Result, *reasons: str) -> None:
    assert same(result, without_them(len(reasons)))
    assert sorted((f.reason, f.count, *f.x[0]) for f in result.failures) == sorted(
        (reason, 1, *x) for reason, x in zip(reasons, bad_points(), strict=False)
    )


@pytest.fixture
def tag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """In the environment of all processes that the test starts, so that they can be found."""
    tag = f"fmnes-case-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv(torture.TAG, tag)
    monkeypatch.setenv("FMNES_TEST_PIDS", str(tmp_path / "pids"))
    return tag


# -- 1 to 10: an evaluation that does not come back -------------------------------------------------------


def test_case_01_an_exception() -> None:
    check_each_costs_one(minimize(goes_wrong("ValueError"), X0, 1.0, **SETTINGS), "ValueError")
    check_each_costs_one(by_workers("ValueError"), "ValueError")
    check_program_costs_one(by_program("raise ValueError('mesh')"), "exited with code 1")


def test_case_02_an_exception_that_cannot_be_sent() -> None:
    faults = ("exception that cannot be unpickled", "exception without words")
    check_each_costs_one(by_workers(*faults), *faults)


def test_case_03_sys_exit() -> None:
    check_each_costs_one(minimize(goes_wrong("sys.exit(3)"), X0, 1.0, **SETTINGS), "sys.exit(3)")
    check_each_costs_one(by_workers("sys.exit(3)"), "sys.exit(3)")
    check_program_costs_one(by_program("sys.exit(3)"), "exited with code 3")


def test_case_04_os_exit() -> None:
    faults = ("os._exit(1)", "os._exit(0)")
    check_each_costs_one(by_workers(*faults), *faults)


def test_case_05_a_crash() -> None:
    faults = ("segfault", "os.abort()", "illegal instruction")
    check_each_costs_one(by_workers(*faults), *faults)


def test_case_05_a_crash_of_a_program() -> None:
    check_program_costs_one(by_program("os.kill(os.getpid(), signal.SIGSEGV)"), "died: SIGSEGV")


def test_case_06_killed_for_its_memory() -> None:
    check_each_costs_one(by_workers("SIGKILL"), "SIGKILL")
    result = by_program("os.kill(os.getpid(), signal.SIGKILL)")
    check_program_costs_one(result, "killed (SIGKILL), maybe out of memory")


def test_case_07_out_of_memory() -> None:
    check_each_costs_one(by_workers("out of memory"), "out of memory")


@pytest.mark.parametrize("fault", ["hang", "hang in C", "stopped"])
def test_case_08_a_hang(fault: str, tag: str) -> None:
    timeout = 1.5 if fault == "stopped" else 3.0  # one that has stopped itself is waited for five times that
    check_each_costs_one(by_workers(fault, timeout=timeout), fault)
    assert left_after(tag, 120.0) == []


def test_case_08_a_hang_of_a_program(tag: str) -> None:
    result = by_program("subprocess.Popen(['sleep', '600']); time.sleep(600)", timeout=3)
    check_program_costs_one(result, "timed out after 3 s")
    assert left_after(tag, 120.0) == []


def test_case_09_a_hang_that_ignores_sigterm(tag: str) -> None:
    check_each_costs_one(by_workers("hang ignoring SIGTERM", timeout=3.0), "hang ignoring SIGTERM")
    fault = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    check_program_costs_one(by_program(fault, timeout=3), "timed out after 3 s")
    assert left_after(tag, 120.0) == []


def test_case_10_what_it_leaves_running(tag: str, tmp_path: Path) -> None:
    faults = ("leaves a child", "leaves a daemon")
    check_each_costs_one(by_workers(*faults), *faults)
    assert (tmp_path / "pids").read_text() and left_after(tag, 120.0) == []


def test_case_10_a_long_chain_of_daemons(tag: str, tmp_path: Path) -> None:
    """Each is found only when the one before it is dead. On a busy machine two of them are a long chain."""
    fun = torture.LeavesChain(bad_points()[0], 40, tmp_path / "done")
    result = minimize(fun, X0, 1.0, workers=2, **SETTINGS)
    left = left_after(tag, 120.0)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert same(result, without_it()) and result.failures[0].reason == "exited with code 1"
    assert left == []


def test_case_10_what_a_program_leaves_running(tag: str) -> None:
    result = by_program("subprocess.Popen(['sleep', '600'], start_new_session=True); sys.exit(4)")
    check_program_costs_one(result, "exited with code 4")
    assert left_after(tag, 120.0) == []


# -- 11 to 19: what comes back ----------------------------------------------------------------------------


@through("workers", [1, 2])
def test_cases_11_to_13_no_finite_number(workers: int) -> None:
    with pytest.warns(RuntimeWarning, match="returned -inf"):
        result = minimize(Returns(math.nan, math.inf, -math.inf), X0, 1.0, workers=workers, **SETTINGS)
    assert same(result, without_them(3))
    assert {(f.reason, f.count, *f.x[0]) for f in result.failures} == {
        (reason, 1, *x)
        for reason, x in zip(("returned NaN", "returned inf", "returned -inf"), bad_points(), strict=True)
    }


class Returns:
    """These values at the bad points."""

    def __init__(self, *values: Any) -> None:
        self._values = dict(zip(bad_points(), values, strict=False))

    def __call__(self, x: Any) -> Any:
        return self._values.get(tuple(x), square(x))


@pytest.mark.parametrize("wrong", ["0.5", 1j, [1.0, 2.0], {"f": 1.0}], ids=repr)
def test_case_14_something_else_than_a_number(wrong: Any) -> None:
    calls: list[Any] = []
    with pytest.raises(ObjectiveError, match=f"the objective returned {type(wrong).__name__}"):
        minimize(lambda x: calls.append(x) or wrong, X0, 1.0, **SETTINGS)
    assert len(calls) == 1
    with pytest.warns(RuntimeWarning, match="taken for a failed evaluation"):
        assert same(minimize(Returns(wrong), X0, 1.0, **SETTINGS), without_it())


def test_case_14_does_not_depend_on_who_is_first() -> None:
    """The first point is all right, but takes longer than the others."""
    first = Optimizer(X0, 1.0, rng=1, population_size=6).ask()[0]
    other = threading.Event()

    def fun(x: Any) -> Any:
        if np.array_equal(x, first):
            other.wait(60)
            time.sleep(0.2)
            return square(x)
        other.set()
        return "text"

    settings = {**SETTINGS, "max_evaluations": 6, "evaluate_start": False}
    with ThreadPoolExecutor(2) as pool, pytest.warns(RuntimeWarning, match="taken for a failed evaluation"):
        assert minimize(fun, X0, 1.0, executor=pool, **settings).n_infeasible == 5


def test_case_14_none_means_failed() -> None:
    result = minimize(Returns(None), X0, 1.0, **SETTINGS)
    assert same(result, without_it()) and result.failures[0].reason == "returned None"


def test_case_15_too_deep() -> None:
    faults = ("recursion", "stack overflow")
    check_each_costs_one(by_workers(*faults), *faults)


def test_case_16_an_objective_that_cannot_be_sent(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(ArgumentError, match=r"fun: found .*cannot be sent to a worker process.*locks"):
        minimize(lambda x: lock.locked() or 0.0, X0, 1.0, workers=2, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_case_17_a_flood_of_output(tmp_path: Path) -> None:
    check_each_costs_one(by_workers("prints 50 MB"), "prints 50 MB")
    flood = "[os.write(1, b'x' * 2**20) for _ in range(200)]; print()"  # and then its value, as always
    result = by_program(flood, keep="all", directory=tmp_path)
    assert same(result, minimize(square, X0, 1.0, **SETTINGS))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 30e6


@pytest.mark.parametrize("workers", [1, 2])
def test_case_18_an_objective_that_writes_to_its_point(workers: int) -> None:
    def fun(x: Any) -> float:
        value = float(np.sum(x * x))
        x[:] = 1e9
        return value

    assert same(minimize(fun, X0, 1.0, workers=workers, **SETTINGS), minimize(square, X0, 1.0, **SETTINGS))


@pytest.mark.parametrize("workers", [1, 2])
def test_case_19_an_objective_that_seeds_numpy(workers: int) -> None:
    def fun(x: Any) -> float:
        np.random.seed(0)  # noqa: NPY002
        return float(np.sum(x * x))

    before = np.random.get_state()  # noqa: NPY002
    try:
        result = minimize(fun, X0, 1.0, workers=workers, **SETTINGS)
    finally:
        np.random.set_state(before)  # noqa: NPY002
    assert same(result, minimize(square, X0, 1.0, **SETTINGS))


# -- 20 to 30: the search, and its arguments --------------------------------------------------------------


def test_case_20_nothing_succeeds(tmp_path: Path) -> None:
    def fun(x: Any) -> float:
        raise Infeasible("mesh failed" if x[0] > 1 else "diverged")

    for settings in ({}, {"run_dir": tmp_path / "run"}, {"method": "cma-es"}, {"bounds": (0.0, 3.0)}):
        result = minimize(fun, X0, 1.0, rng=1, **settings)  # type: ignore[arg-type]
        assert result.stop_reason is StopReason.NO_FEASIBLE and not result.success
        assert result.x is None and result.fun == math.inf and result.n_infeasible == result.nfev
        assert sum(f.count for f in result.failures) == result.nfev
        assert "generations in a row" in result.message and result.failures[0].reason in result.message


def test_case_21_x0_itself_fails() -> None:
    result = minimize(lambda x: math.nan if x[0] > 0.9 else square(x), X0, 1.0, rng=1, target=1e-8)
    assert result.success and result.n_infeasible > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_case_22_a_bug(workers: int) -> None:
    """Of a whole first generation that fails in one and the same way, the first one is shown."""

    def fun(x: Any) -> float:
        return x[7]  # type: ignore[no-any-return]

    with pytest.raises(ObjectiveError, match=r"looks like a bug.*first 7.*IndexError(.|\n)*return x\[7\]"):
        minimize(fun, X0, 1.0, workers=workers, **SETTINGS)
    with pytest.raises(ObjectiveError, match=r"looks like a bug.*exited with code 9"):
        minimize(Command([sys.executable, "-c", "exit(9)"], keep="none"), X0, 1.0, **SETTINGS)


def test_case_23_a_flat_objective() -> None:
    for settings in ({}, {"method": "cma-es"}, {"method": "xnes"}):
        result = minimize(lambda x: 3.0, X0, 1.0, rng=1, **settings)  # type: ignore[arg-type]
        assert result.stop_reason is StopReason.FLAT and result.fun == 3.0
        assert np.linalg.norm(result.x_mean - X0) < 20


def test_case_24_ties() -> None:
    a, b = (minimize(lambda x: float(np.sum(np.round(x))), X0, 1.0, workers=n, **SETTINGS) for n in (1, 2))
    assert same(a, b)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_case_25_any_scale(scale: float) -> None:
    settings: dict[str, Any] = {"rng": 1, "max_evaluations": 200, "surrogate": False}
    a, b = (minimize(lambda x, s=s: s * square(x), X0, 1.0, **settings) for s in (1.0, scale))  # type: ignore[misc]
    assert np.array_equal(a.x_mean, b.x_mean) and a.nfev == b.nfev == 200
    assert np.array_equal(a.history["sigma"], b.history["sigma"])


def test_case_25_an_offset_that_hides_the_values() -> None:
    result = minimize(lambda x: 1e17 + square(x), X0, 1.0, rng=1)
    assert result.stop_reason in (StopReason.FLAT, StopReason.FTOL) and result.fun == 1e17


@pytest.mark.parametrize("method", ["fm-nes", "cma-es", "xnes"])
def test_case_26_an_ill_conditioned_problem(method: str) -> None:
    def valley(x: Any) -> float:
        return float(x[0] ** 2 + 1e20 * x[1] ** 2)

    result = minimize(valley, X0, 1.0, rng=1, xtol=None, ftol=None, method=method)
    assert result.stop_reason is StopReason.ILL_CONDITIONED and not result.success
    assert np.isfinite(result.fun) and np.isfinite(result.x_mean).all()


def test_case_27_a_step_size_that_leaves_floating_point() -> None:
    grows = minimize(lambda x: -square(x), X0, 1.0, rng=1, method="cma-es")
    assert grows.stop_reason is StopReason.SIGMA_OVERFLOW and np.isfinite(grows.fun)
    shrinks = minimize(square, [0.0, 0.0], 1e-125, rng=1, xtol=None, ftol=None)
    assert shrinks.stop_reason is StopReason.SIGMA_UNDERFLOW and np.isfinite(shrinks.x_mean).all()


def test_case_28_a_thousand_dimensions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = minimize(square, np.full(1000, 3.0), 1e-3, rng=1, max_evaluations=50)
    assert np.isfinite(result.x_mean).all() and np.isfinite(result.history["sigma"]).all()
    assert result.history["best"][-1] < square(np.full(1000, 3.0))


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"x0": []}, "x0"),
        ({"x0": [1.0, math.nan]}, "x0"),
        ({"sigma0": 0.0}, "sigma0"),
        ({"sigma0": math.nan}, "sigma0"),
        ({"population_size": 1}, "population_size"),
        ({"population_size": 7}, "population_size"),
        ({"bounds": (2.0, 0.0)}, "bounds"),
        ({"bounds": (0.0, 1.5)}, "x0"),
        ({"rng": "seed"}, "rng"),
        ({"method": "fmnes"}, "method"),
        ({"workers": 0}, "workers"),
        ({"timeout": 0.0}, "timeout"),
        ({"retries": -1}, "retries"),
    ],
    ids=str,
)
def test_case_29_a_wrong_argument(change: dict[str, Any], argument: str, tmp_path: Path) -> None:
    """Said before anything is evaluated or written."""
    arguments = {"x0": X0, "sigma0": 1.0, "run_dir": tmp_path / "run", **change}
    with pytest.raises(ArgumentError, match=rf"\b{argument}\b"):
        minimize(lambda x: pytest.fail("it was called"), **arguments)
    assert not (tmp_path / "run").exists()


def test_case_30_a_wrong_tell() -> None:
    opt = Optimizer(X0, 1.0, rng=1, population_size=8)
    with pytest.raises(UsageError, match="ask"):
        opt.tell([1.0] * 8)
    points = opt.ask().copy()
    for wrong in ([1.0] * 7, [1.0] * 9, "values", [1.0] * 7 + ["a"]):
        with pytest.raises(ArgumentError, match="tell"):
            opt.tell(wrong)
        assert np.array_equal(opt.ask(), points) and opt.evaluations == 0
    opt.tell([1.0] * 8)
    with pytest.raises(UsageError, match="ask"):
        opt.tell([1.0] * 8)
    assert (opt.generation, opt.evaluations) == (1, 8)


# -- 31 to 41: the run and its directory ------------------------------------------------------------------


def finish(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv(torture.CALLS, str(driver.calls))
    with watching() as seen:
        result = resume(driver.run, torture.SCENARIOS[driver.scenario].fun)
    return portrait(result, *seen)


def test_case_31_kill_9_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many more of these in test_resume.py."""
    wanted = torture.SCENARIOS["plain"].reference()
    with Driver("plain", tmp_path) as driver:
        assert driver.wait_for(45)
        driver.kill()
        kill = Kill.of(driver)
    assert differences(finish(driver, monkeypatch), wanted) == []
    assert kill.repeated(torture.read_calls(driver.calls)) == []


@pytest.mark.parametrize("moment", ["write 3", "rename 3", "sync 3"])
def test_case_32_kill_9_while_a_snapshot_is_written(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driver("plain", tmp_path, f"signal_at={moment} SIGKILL") as driver:
        assert driver.process.wait(120) == -signal.SIGKILL
    kill = Kill.of(driver)
    assert len(kill.calls) == 7 and len(kill.logged) == 7
    assert differences(finish(driver, monkeypatch), torture.SCENARIOS["plain"].reference()) == []
    assert kill.repeated(torture.read_calls(driver.calls)) == []
    assert not list(driver.run.glob(".*")), "what the killed process left half-written is cleared away"


def test_case_33_a_full_disk() -> None:
    """A whole run stops with STORAGE and goes on: test_resume.py. Here a program's own files do not fit."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    fault = f"resource = __import__('resource'); resource.setrlimit(resource.RLIMIT_FSIZE, (10, {hard})); "
    fault += "mesh = open('mesh.dat', 'wb', buffering=0); mesh.write(b'x' * 10); mesh.write(b'x')"
    check_program_costs_one(by_program(fault), "exited with code 1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 41 evaluations with a snapshot for each generation. Copy it before use."""
    run = tmp_path_factory.mktemp("made") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "SNAPSHOT_SECONDS", 0.0)
        minimize(square, X0, 1.0, rng=1, population_size=8, max_evaluations=41, run_dir=run)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_case_34_a_damaged_file(made: Path, tmp_path: Path) -> None:
    """Bits flipped, bytes cut out, tails cut off: an error of ours, or it does not matter."""
    wanted = minimize(square, X0, 1.0, rng=1, population_size=8, max_evaluations=50)
    rng = random.Random(1)
    refused = 0
    for names in 12 * [
        ["config.json"],
        ["evaluations.sqlite"],
        ["snapshot.npz"],
        ["snapshot.npz", "snapshot.previous.npz"],
    ]:
        run = Path(shutil.copytree(made, tmp_path / "run"))
        for name in names:
            (run / name).write_bytes(mutate((run / name).read_bytes(), rng))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # "going on from the one before"
                result = resume(run, square, max_evaluations=50)
            assert same(result, wanted) or result.stop_reason is StopReason.STORAGE
        except RunError:
            refused += 1
        shutil.rmtree(run)
    assert refused > 12


def test_case_34_no_code_is_run_from_a_file(run: Path, tmp_path: Path) -> None:
    """A pickle where an array should be: NumPy would call it, were it allowed to."""

    class Payload:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "called"),)

    for name in ("snapshot.npz", "snapshot.previous.npz", "snapshot.first.npz"):
        np.savez(run / name, payload=np.array([Payload()], dtype=object))
    with pytest.raises(RunError, match="snapshot"):
        resume(run, square, max_evaluations=50)
    assert not (tmp_path / "called").exists()


def test_case_35_another_problem(run: Path) -> None:
    with pytest.raises(RunError, match="another objective"):
        resume(run, math.fsum, max_evaluations=50)
    with pytest.raises(RunError, match="another objective"):
        resume(run, torture.command(), max_evaluations=50)


def test_case_36_two_processes(tmp_path: Path) -> None:
    with Driver("plain", tmp_path) as first:
        assert first.wait_for(1)
        first.process.send_signal(signal.SIGSTOP)  # so that it cannot end meanwhile
        with pytest.raises(RunError, match=f"in use by process {first.process.pid}"):
            resume(first.run, torture.SCENARIOS["plain"].fun)
        first.process.send_signal(signal.SIGCONT)
        assert first.finish()["nfev"] == 200


def test_case_37_a_stale_lock(run: Path) -> None:
    """The file of a process that was killed: what counts is the lock, not the file."""
    for content in (b"1 somewhere\n", b"", b"\xff" * 1000):
        (run / "lock").write_bytes(content)
        assert resume(run).nfev == 41


def test_case_38_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only told that it is one: the log takes the mode that works there, and the run is the same."""
    monkeypatch.setattr(log, "on_network", lambda path: True)
    minimize(square, X0, 1.0, rng=1, max_evaluations=20, run_dir=tmp_path / "run")
    assert not list((tmp_path / "run").glob("*-wal"))
    result = resume(tmp_path / "run", square, max_evaluations=50)
    assert same(result, minimize(square, X0, 1.0, rng=1, max_evaluations=50))


def test_case_39_a_torn_last_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut may do to the last evaluation: it is made again, and no other."""
    with Driver("plain", tmp_path) as driver:
        assert driver.wait_for(30)
        driver.kill()
    wal = driver.run / "evaluations.sqlite-wal"
    os.truncate(wal, wal.stat().st_size - 15)
    kill = Kill.of(driver)
    assert len(kill.calls) - 2 <= len(kill.logged) < len(kill.calls)
    with pytest.warns(RuntimeWarning, match="the last record was cut off and is dropped"):
        finished = finish(driver, monkeypatch)
    assert differences(finished, torture.SCENARIOS["plain"].reference()) == []
    assert kill.repeated(torture.read_calls(driver.calls)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["case_40", "case_41"])
def test_cases_40_and_41_asked_to_end(
    number: int, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: Ctrl-C and SIGTERM end a run with what it has, and what is under way is killed."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    calls = tmp_path / "calls"
    monkeypatch.setenv(torture.CALLS, str(calls))

    def ask() -> None:
        while torture.count_calls(calls) < 6:
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=ask)
    thread.start()
    result = minimize(torture.hangs_later, [2.0, 2.0], 1.0, rng=1, workers=2, run_dir=tmp_path / "run")
    thread.join()
    signal.signal(signal.SIGINT, before)
    assert result.stop_reason is StopReason.INTERRUPTED and result.x is not None
    assert left_after(tag, 120.0) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# -- 42, 43: clusters -------------------------------------------------------------------------------------


def dies_once(x: Any) -> float:
    """The process that gets the first point of generation 2 is gone, once."""
    mark = Path(os.environ["FMNES_TEST_MARK"])
    if len(torture.read_calls(Path(os.environ[torture.CALLS]))) >= 12 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    torture.note(x)
    return float(np.sum(x * x))


def test_case_42_a_lost_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of the standard pool is killed, and the whole pool with it. The run goes on with another."""
    monkeypatch.setenv(torture.CALLS, str(tmp_path / "calls"))
    monkeypatch.setenv("FMNES_TEST_MARK", str(tmp_path / "mark"))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        first = minimize(dies_once, X0, 1.0, executor=pool, retries=0, run_dir=tmp_path / "run", **SETTINGS)
    assert first.stop_reason is StopReason.LOST and first.n_infeasible == 0
    assert 12 <= first.nfev < 15 and "BrokenProcessPool" in first.message
    with ThreadPoolExecutor(2) as pool:
        result = resume(tmp_path / "run", dies_once, executor=pool)
    assert same(result, minimize(square, X0, 1.0, **SETTINGS))
    assert torture.count_calls(tmp_path / "calls") == 15


class Shaky(Executor):
    """Runs things at once. `gone` tells at each one whether the scheduler is away, or a node is lost."""

    def __init__(self, gone: Callable[[int], str]) -> None:
        self._gone, self._count = gone, itertools.count()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        what = self._gone(next(self._count))
        if what == "scheduler":
            raise ConnectionRefusedError("scheduler")
        future: Future[Any] = Future()
        if what == "node":
            future.set_exception(BrokenProcessPool("node"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_case_42_a_lost_node_is_retried() -> None:
    result = minimize(square, X0, 1.0, executor=Shaky(lambda n: "node" if n == 10 else ""), **SETTINGS)
    assert same(result, minimize(square, X0, 1.0, **SETTINGS))


def test_case_43_no_scheduler(tmp_path: Path) -> None:
    away = Shaky(lambda n: "scheduler" if n >= 10 else "")
    first = minimize(square, X0, 1.0, executor=away, retries=0, run_dir=tmp_path / "run", **SETTINGS)
    assert first.stop_reason is StopReason.LOST and first.nfev == 10
    assert "ConnectionRefusedError" in first.message
    result = resume(tmp_path / "run", square, executor=Shaky(lambda n: ""))
    assert same(result, minimize(square, X0, 1.0, **SETTINGS))


# -- 44 to 46: programs -----------------------------------------------------------------------------------


def test_case_44_no_program(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\necho 1\n")
    for name, words in (("no-such-program-anywhere", "no program"), (str(tmp_path / "script"), "chmod")):
        with pytest.raises(ArgumentError, match=f"argv: found .*{words}"):
            minimize(Command([name, "{x0}"]), X0, 1.0, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@through(
    "reasons",
    [
        {
            "print('done'); sys.exit()": "printed no number; last line: 'done'",
            "sys.exit()": "printed no number; nothing at all",
            "print('FAIL: mesh has 3 holes'); sys.exit(1)": "mesh has 3 holes",
        },
        {
            "print(json.dumps({'fail': 'diverged'})); sys.exit()": "diverged",
            "print(1.5); print('no licence', file=sys.stderr); sys.exit(2)": "exited with code 2",
            "value = math.nan": "returned NaN",
        },
    ],
)
def test_case_45_a_program_that_fails(reasons: dict[str, str]) -> None:
    result = by_program(*reasons)
    check_program_costs_one(result, *reasons.values())
    assert all("no licence" in f.detail for f in result.failures if f.reason == "exited with code 2")


def test_case_45_a_program_without_a_licence() -> None:
    """Exit code 75: the machine failed, the point is tried again; it is still there when all is in order."""
    lost = "sys.exit(75 if task['attempt'] == 0 else 0) if task['attempt'] == 0 else None"
    assert same(by_program(lost), minimize(square, X0, 1.0, **SETTINGS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SETTINGS, "retries", 0)
        result = by_program("sys.exit(75)")
    assert result.stop_reason is StopReason.LOST and result.n_infeasible == 0 and result.nfev == 12


def test_case_46_odd_names(tmp_path: Path) -> None:
    """Spaces, quotes and all that a shell would act upon, in paths and arguments."""
    odd = tmp_path / """a b;touch oops $(touch oops) `touch oops` 'q" *? #1 %41"""
    odd.mkdir()
    program = odd / "simu late.py"
    program.write_text(
        f"#!{sys.executable} -IS\n"
        "import json, sys\n"
        "assert sys.argv[2:] == ['$HOME; touch oops', '| *', '{x0}', ''], sys.argv\n"
        "print(sum(v * v for v in json.load(open(sys.argv[1]))['x']))\n"
    )
    program.chmod(0o700)
    argv = [str(program), "{params}", "$HOME; touch oops", "| *", "{{x0}}", ""]
    command = Command(argv, directory=odd / "work", keep="all", here=odd)
    result = minimize(command, X0, 1.0, run_dir=odd / "run", **SETTINGS)
    assert same(result, minimize(square, X0, 1.0, **SETTINGS))
    assert not [path for path in tmp_path.rglob("oops")] and not Path("oops").exists()
    assert same(resume(odd / "run"), result)


# -- 47 to 52: the rest of the world ----------------------------------------------------------------------


def test_case_47_a_clock_that_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a year at each look, back and forth, in the process that holds all the timers."""
    jumps = itertools.cycle([3e7, -3e7])
    monkeypatch.setattr(time, "time", lambda: 1e9 + next(jumps))
    result = minimize(
        square, X0, 1.0, workers=2, timeout=60, max_seconds=300, run_dir=tmp_path / "run", **SETTINGS
    )
    assert same(result, minimize(square, X0, 1.0, **SETTINGS))
    assert (np.diff(result.history["seconds"]) >= 0).all() and result.history["seconds"][-1] < 1e6
    assert same(resume(tmp_path / "run"), result)


def test_case_48_a_callback_that_raises(tmp_path: Path) -> None:
    def plot(view: fmnes.View) -> None:
        if view.generation == 2:
            raise OSError("no display")

    calls: list[Any] = []

    def fun(x: Any) -> float:
        calls.append(x)
        return square(x)

    with pytest.raises(OSError, match="no display"):
        minimize(fun, X0, 1.0, callback=plot, run_dir=tmp_path / "run", **SETTINGS)
    result = resume(tmp_path / "run", fun)
    assert same(result, minimize(square, X0, 1.0, **SETTINGS)) and len(calls) == 15


def test_case_49_a_parent_that_must_not_be_forked() -> None:
    """Other threads hold locks that a forked child could never take."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with logging._lock:  # type: ignore[attr-defined]
            held.set()
            done.wait(60)

    def fun(x: Any) -> float:
        logging.getLogger("objective").setLevel(logging.INFO)  # takes that lock
        assert threading.active_count() == 1
        return float(np.sum(x * x))

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        result = minimize(fun, X0, 1.0, workers=2, timeout=60, **SETTINGS)
    finally:
        done.set()
        thread.join()
    assert same(result, minimize(square, X0, 1.0, **SETTINGS))


def with_numpy(path: Path, version: str) -> None:
    """A snapshot as another version of NumPy would have written it."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    metadata = json.loads(members["metadata.json"])
    members["metadata.json"] = json.dumps({**metadata, "numpy": version}).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_case_50_another_numpy(run: Path) -> None:
    with_numpy(run / "snapshot.npz", "1.0.0")
    with pytest.warns(RuntimeWarning, match=r"NumPy 1\.0\.0"):
        resume(run, square, max_evaluations=50)


def test_case_51_an_answer_that_comes_late_or_twice() -> None:
    slow = minimize(Sleeps(5.0), X0, 1.0, workers=2, timeout=3.0, **SETTINGS)
    assert same(slow, without_it()) and slow.failures[0].reason == "timed out after 3 s"
    twice = minimize(Forks(), X0, 1.0, workers=2, **SETTINGS)
    assert same(twice, minimize(square, X0, 1.0, **SETTINGS))


class Sleeps(Returns):
    """At the bad point, before its value."""

    def __call__(self, x: Any) -> Any:
        time.sleep(self._values.get(tuple(x), 0.0))
        return square(x)


class Forks:
    """Two processes come back from every fourth call, each with an answer."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, x: Any) -> float:
        self._count += 1
        if self._count % 4 == 0:
            os.fork()
        return square(x)


def test_case_52_no_process_can_be_started_for_a_while() -> None:
    """No more file descriptors in the first second: workers and programs come later, no point is blamed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for fun in (square, torture.command()):
        free = os.dup(0)
        os.close(free)
        timer = threading.Timer(0.7, resource.setrlimit, [resource.RLIMIT_NOFILE, (soft, hard)])
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
        timer.start()
        try:
            result = minimize(fun, X0, 1.0, workers=2, retries=6, **SETTINGS)
        finally:
            timer.join()
        assert same(result, minimize(square, X0, 1.0, **SETTINGS))


def test_case_52_no_process_can_be_started_at_all() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
    try:
        result = minimize(torture.command(), X0, 1.0, retries=0, **SETTINGS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert result.stop_reason is StopReason.LOST and (result.nfev, result.n_infeasible) == (0, 0)
    assert "Too many open files" in result.message


def test_a_raised_lost_is_never_told_as_failed() -> None:
    """What R stands for, in one line of an objective."""
    counter = itertools.count()

    def fun(x: Any) -> float:
        if next(counter) == 11:
            raise Lost("licence server down")
        return square(x)

    assert same(minimize(fun, X0, 1.0, **SETTINGS), minimize(square, X0, 1.0, **SETTINGS))
