"""An objective in our own process: what it raises is its point's, and what it forks is no second driver."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from tests import faults
from tests.batches import Serial, task

RUN: dict[str, Any] = dict(x0=[1.5, 1.0], sigma0=0.3, rng=1, max_evaluations=60, surrogate=False)


def raises_to_the_right(error: BaseException) -> Any:
    def fun(x: Any) -> float:
        if x[0] > 1.7:
            raise error
        return float(x @ x)

    return fun


#: As pyo3 makes it, by its module and name; its own class cannot be imported.
Panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


@pytest.mark.parametrize("error", [Panic("unwrap on None"), SystemExit(3), SystemExit()], ids=repr)
def test_an_exit_and_a_panic_fail_their_point(error: BaseException) -> None:
    """As they do in a worker."""
    result = fmnes.minimize(raises_to_the_right(error), **RUN)
    failed = fmnes.minimize(raises_to_the_right(ValueError()), **RUN)
    assert result.nfev == 60 and result.n_infeasible == failed.n_infeasible > 0
    assert result.fun == failed.fun
    assert [failure.reason.partition(":")[0] for failure in result.failures] == [type(error).__name__]


@pytest.mark.parametrize("overlap", [0.0, 0.5])
@pytest.mark.parametrize("error", [faults.Own("mine"), asyncio.CancelledError(), GeneratorExit()], ids=repr)
def test_what_else_is_no_exception_goes_through_and_the_run_goes_on(
    error: BaseException, overlap: float, tmp_path: Path
) -> None:
    calls, broken = 0, True

    def fun(x: Any) -> float:
        nonlocal calls
        calls += 1
        if broken and calls == 20:
            raise error
        return float(x @ x)

    whole = fmnes.minimize(lambda x: float(x @ x), overlap=overlap, **RUN)
    with pytest.raises(type(error)) as caught:
        fmnes.minimize(fun, overlap=overlap, run_dir=tmp_path / "run", **RUN)
    assert caught.value is error and calls == 20
    broken = False
    result = fmnes.resume(tmp_path / "run", fun)
    assert calls == 61 and result.nfev == 60 and result.n_infeasible == 0  # that one was made twice
    assert result.fun == whole.fun and np.array_equal(result.x, whole.x)


@pytest.mark.parametrize("where", [{"workers": 2}, {"timeout": 60.0}, {"executor": ThreadPoolExecutor(1)}])
def test_elsewhere_they_fail_their_point(where: dict[str, Any]) -> None:
    """They cannot always travel from there."""
    wrong = fmnes.minimize(raises_to_the_right(ValueError()), **RUN)
    result = fmnes.minimize(raises_to_the_right(asyncio.CancelledError()), **RUN, **where)
    assert result.nfev == 60 and result.n_infeasible == wrong.n_infeasible > 0 and result.fun == wrong.fun


def test_an_interrupt_is_ctrl_c() -> None:
    result = fmnes.minimize(raises_to_the_right(KeyboardInterrupt()), **RUN)
    assert result.stop_reason is fmnes.StopReason.INTERRUPTED
    assert result.n_infeasible == 0


@pytest.mark.parametrize(
    "error", [faults.Own("mine"), asyncio.CancelledError(), SystemExit(3), ValueError("no")]
)
def test_on_error_raise_lets_it_through(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        fmnes.minimize(raises_to_the_right(error), on_error="raise", **RUN)
    assert caught.value is error


@pytest.mark.parametrize("error", [StopIteration(), GeneratorExit()])
def test_what_would_end_our_own_iteration_is_told_in_words(error: BaseException) -> None:
    with pytest.raises(fmnes.ObjectiveError, match=f"the objective raised {type(error).__name__}"):
        fmnes.minimize(raises_to_the_right(error), on_error="raise", **RUN)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("no words")


def test_an_exception_whose_words_raise_something_worse() -> None:
    ((_, outcome),) = Serial(lambda x: faults.raises(Unspeakable()), "infeasible")([task(np.ones(2))])
    assert (outcome.status, outcome.fault) == ("infeasible", "Unspeakable")


FORKS = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import fmnes

way, ending, directory = sys.argv[1:]
calls = 0

def end_of_child():
    print("child", flush=False)
    if ending == "sys.exit(3)":
        sys.exit(3)
    if ending == "sys.exit(words)":
        sys.exit("words")
    if ending == "sys.exit()":
        sys.exit()
    if ending == "exception":
        raise ValueError("in the child")
    if ending == "interrupt":
        raise KeyboardInterrupt
    return 1.0

def fun(x):
    global calls
    calls += 1
    if calls == 5:
        sys.stdout.flush()
        if (pid := os.fork()) == 0:
            return end_of_child()
        print("exit code", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return float(x @ x)

def vectorized(X):
    values = [fun(x) for x in X]
    return values

run = dict(x0=[1.0, 1.0], sigma0=0.5, rng=1, max_evaluations=60, surrogate=False)
if way == "serial":
    result = fmnes.minimize(fun, run_dir=directory, **run)
elif way == "raise":
    result = fmnes.minimize(fun, on_error="raise", **run)
elif way == "vectorized":
    result = fmnes.minimize(vectorized, vectorized=True, **run)
else:
    with ThreadPoolExecutor(1) as pool:
        result = fmnes.minimize(fun, executor=pool, **run)
print("result", result.fun.hex(), result.nfev, result.n_infeasible)
"""
CODES = {"return": 0, "sys.exit()": 0, "sys.exit(3)": 3, "sys.exit(words)": 1, "exception": 1, "interrupt": 1}


@pytest.mark.parametrize(
    ("way", "ending"),
    [
        *(("serial", ending) for ending in CODES),
        *((way, "sys.exit(3)") for way in ("raise", "vectorized", "executor")),
    ],
)
def test_a_forked_child_is_never_a_second_driver(way: str, ending: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS, way, ending, str(tmp_path / "run")],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    want = fmnes.minimize(lambda x: float(x @ x), [1.0, 1.0], 0.5, rng=1, max_evaluations=60, surrogate=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "child",
        f"exit code {CODES[ending]}",
        f"result {want.fun.hex()} 60 0",
    ]
    assert ("words" in done.stderr) == (ending == "sys.exit(words)")
    assert ("ValueError: in the child" in done.stderr) == (ending == "exception")
