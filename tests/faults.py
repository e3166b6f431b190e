"""Objectives that really fail, in every way that we promise to survive. Workers import them by name.

`FAULTS` lists the ways and what must come of them. `faulty` evaluates a point [number of the task, number of
the fault, ...]: the task BAD goes wrong in that way, all others have the value `right(x)`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fmnes

BAD = 2


class Fault(NamedTuple):
    act: Callable[[], Any]
    status: str
    fault: str
    reason: str
    """How the reason begins."""
    detail: str = ""
    """Something that the detail must tell."""


def right(x: Any) -> float:
    return float(np.sum(x**2)) + 0.1


def faulty(x: Any) -> Any:
    return list(FAULTS.values())[int(x[1])].act() if x[0] == BAD else right(x)


class CannotReturn(Exception):
    """Pickles, but cannot be unpickled: __init__ wants more than it gets back."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__("no way back")


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Own(BaseException):
    """Not an Exception, nor one of Python's."""


def raises(error: BaseException) -> Any:
    raise error


def dies(number: int) -> Any:
    os.kill(os.getpid(), number)
    time.sleep(600)


def kills_guard() -> Any:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def segfault() -> Any:
    print("about to crash")
    ctypes.string_at(0)


def hang() -> Any:
    print("still here")
    time.sleep(600)


def hang_ignoring() -> Any:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(600)


def hang_blocked() -> Any:
    """In C, without letting another thread run, and back to it when a signal comes."""
    while True:
        ctypes.PyDLL(None).sleep(600)


def out_of_memory() -> Any:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.RLIM_INFINITY))
    return np.ones(1 << 30).sum()


def recursion() -> Any:
    return recursion()


def stack_overflow() -> Any:
    """Through C, with the counter that would stop it out of the way."""
    sys.setrecursionlimit(1 << 30)
    value = functools.partial(print)
    for _ in range(100_000):
        value = functools.partial(print, value)
    return repr(value)


def writes_garbage() -> Any:
    """Into every descriptor there is."""
    for fd in range(3, 32):
        try:
            os.write(fd, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(600)


def prints_much() -> Any:
    for _ in range(50):
        os.write(1, b"x" * (1 << 20))
    print("the end of it", file=sys.stderr)
    os._exit(1)


def leave(*command: str, **options: Any) -> None:
    """Start a program, note its number, and care no more."""
    process = subprocess.Popen(command, **options)
    with Path(os.environ["FMNES_TEST_PIDS"]).open("a") as file:
        file.write(f"{process.pid}\n")
    process.returncode = 0  # or Python would warn that it still runs


def leaves_child() -> Any:
    leave("sleep", "600")
    os._exit(1)


def leaves_daemon() -> Any:
    """It has left our session and our process group."""
    leave("sleep", "600", start_new_session=True)
    os._exit(1)


def leaves_child_and_hangs() -> Any:
    leave("sh", "-c", "trap '' TERM HUP INT; sleep 600; sleep 600", start_new_session=True)
    time.sleep(600)


FAULTS = {
    "ValueError": Fault(
        lambda: raises(ValueError("mesh failed")), "infeasible", "ValueError", "ValueError: mesh", "faults.py"
    ),
    "exception that cannot be unpickled": Fault(
        lambda: raises(CannotReturn(1, 2)), "infeasible", "CannotReturn", "CannotReturn: no way back"
    ),
    "exception without words": Fault(lambda: raises(Wordless()), "infeasible", "Wordless", "Wordless"),
    "BaseException": Fault(lambda: raises(Own("mine")), "infeasible", "Own", "Own: mine"),
    "KeyboardInterrupt": Fault(
        lambda: raises(KeyboardInterrupt()), "infeasible", "KeyboardInterrupt", "KeyboardInterrupt"
    ),
    "sys.exit(3)": Fault(lambda: sys.exit(3), "infeasible", "SystemExit", "SystemExit: 3"),
    "MemoryError": Fault(lambda: raises(MemoryError()), "infeasible", "MemoryError", "MemoryError"),
    "out of memory": Fault(out_of_memory, "infeasible", "MemoryError", "MemoryError: Unable to allocate"),
    "recursion": Fault(recursion, "infeasible", "RecursionError", "RecursionError"),
    "returns NaN": Fault(lambda: float("nan"), "infeasible", "", "returned NaN"),
    "returns str": Fault(lambda: "0.5", "infeasible", "wrong type", "the objective returned str"),
    "returns complex": Fault(lambda: 1j, "infeasible", "wrong type", "the objective returned complex"),
    "returns what cannot be pickled": Fault(
        threading.Lock, "infeasible", "wrong type", "the objective returned lock"
    ),
    "raises Lost": Fault(lambda: raises(fmnes.Lost("no licence")), "lost", "", "no licence"),
    "segfault": Fault(segfault, "infeasible", "SIGSEGV", "died: SIGSEGV", "about to crash"),
    "stack overflow": Fault(stack_overflow, "infeasible", "SIGSEGV", "died: SIGSEGV", "stack_overflow"),
    "os.abort()": Fault(os.abort, "infeasible", "SIGABRT", "died: SIGABRT", "Aborted"),
    "illegal instruction": Fault(lambda: dies(signal.SIGILL), "infeasible", "SIGILL", "died: SIGILL"),
    "SIGKILL": Fault(
        lambda: dies(signal.SIGKILL), "infeasible", "SIGKILL", "killed (SIGKILL), maybe out of memory"
    ),
    "os._exit(1)": Fault(lambda: os._exit(1), "infeasible", "exit 1", "exited with code 1"),
    "os._exit(0)": Fault(lambda: os._exit(0), "infeasible", "exit 0", "exited with code 0"),
    "SIGTERM from a scheduler": Fault(
        lambda: dies(signal.SIGTERM), "lost", "SIGTERM", "ended from outside (SIGTERM)"
    ),
    "kills its guard": Fault(kills_guard, "lost", "", "how its process ended is unknown"),
    "hang": Fault(hang, "infeasible", "timeout", "timed out after ", "still here"),
    "hang ignoring SIGTERM": Fault(hang_ignoring, "infeasible", "timeout", "timed out", "hang_ignoring"),
    "hang in C": Fault(hang_blocked, "infeasible", "timeout", "timed out", "hang_blocked"),
    "stopped": Fault(lambda: dies(signal.SIGSTOP), "infeasible", "timeout", "timed out"),
    "prints 50 MB": Fault(prints_much, "infeasible", "exit 1", "exited with code 1", "the end of it"),
    "closes all files": Fault(
        lambda: os.closerange(3, 256), "infeasible", "exit 1", "exited with code 1", "Bad file descriptor"
    ),
    "closes all files and goes on": Fault(
        lambda: (os.closerange(3, 256), time.sleep(600)), "infeasible", "connection closed", "the objective"
    ),
    "becomes another program": Fault(
        lambda: os.execlp("sleep", "sleep", "600"), "infeasible", "connection closed", "the objective closed"
    ),
    "writes garbage": Fault(writes_garbage, "infeasible", "unreadable answer", "unreadable answer"),
    "leaves a child": Fault(leaves_child, "infeasible", "exit 1", "exited with code 1"),
    "leaves a daemon": Fault(leaves_daemon, "infeasible", "exit 1", "exited with code 1"),
    "leaves a child and hangs": Fault(leaves_child_and_hangs, "infeasible", "timeout", "timed out"),
}


# What else an objective may do


def echo(x: Any) -> float:
    return float(x[0])


def digest(x: Any) -> float:
    """Of all bytes of x; writes to x as well."""
    value = int.from_bytes(hashlib.sha256(x.tobytes()).digest()[:6], "little")
    x[:] = 0.0
    return float(value)


def pid(x: Any) -> float:
    time.sleep(0.01)
    return float(os.getpid())


def sleeps(x: Any) -> float:
    """For x[1] seconds."""
    time.sleep(float(x[1]))
    return right(x)


def threads(x: Any) -> float:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return sum(float(os.environ.get(name, 0)) for name in names)


def reads_input(x: Any) -> float:
    return float(len(sys.stdin.read()))


def seeds(x: Any) -> float:
    np.random.seed(int(x[0]))  # noqa: NPY002
    return 0.0


def forks(x: Any) -> float:
    """Two processes return from here."""
    os.fork()
    return right(x)


def leaves_running(x: Any) -> float:
    leave("sleep", "600")
    return 0.0


def has_exit_handler(x: Any) -> float:
    atexit.register(leave, "true")
    return 0.0


def dies_later(x: Any) -> float:
    """As soon as the test says so, which is between two batches."""

    def wait() -> None:
        while not Path(os.environ["FMNES_TEST_PIDS"] + ".end").exists():
            time.sleep(0.01)
        os._exit(7)

    threading.Thread(target=wait, daemon=True).start()
    note(os.getpid(), os.getppid())
    return right(x)


def note(*numbers: int) -> None:
    """For the test, which waits for it: one line in one write."""
    with Path(os.environ["FMNES_TEST_PIDS"]).open("a") as file:
        file.write(" ".join(map(str, numbers)) + "\n")


def naps(x: Any) -> float:
    """For x[1] seconds of its own: while it is suspended it has none of its many short naps."""
    note(os.getpid(), os.getppid())
    for _ in range(round(float(x[1]) / 0.02)):
        time.sleep(0.02)
    return right(x)


def sleeps_and_notes(x: Any) -> float:
    note(os.getpid(), os.getppid())
    time.sleep(float(x[1]))
    return right(x)


def sleeps_the_first_time(x: Any) -> float:
    """The task BAD waits to be ended, once in a run."""
    if x[0] == BAD and not Path(os.environ["FMNES_TEST_PIDS"]).exists():
        note(os.getpid())
        time.sleep(600)
    return right(x)


def _leak(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for _ in range(count):
        os.open(os.devnull, os.O_RDONLY)


def leaks(x: Any) -> float:
    """Ten files at each call are never closed."""
    _leak(10)
    return right(x)


def leaks_and_wraps(x: Any) -> float:
    try:
        _leak(10)
    except OSError:
        os.closerange(40, 64)  # by now there are files again
        raise RuntimeError("no mesh") from None
    return right(x)


def leaks_and_blames_the_point(x: Any) -> float:
    try:
        return leaks(x)
    except OSError as error:
        raise fmnes.Infeasible("mesh failed") from error


def leaks_and_returns_nan(x: Any) -> float:
    try:
        return leaks(x)
    except OSError:
        return float("nan")


def needs_too_many_files(x: Any) -> float:
    note(int(x[0]))
    _leak(100 if x[0] == BAD else 1)
    return right(x)


def ends_its_process_group(x: Any) -> float:
    """As a simulation does that cleans up after itself when it has failed."""
    if x[0] > 1.2:
        subprocess.run(["bash", "-c", "trap 'kill 0' EXIT; exit 3"])
    return right(x)
