"""Process supervision: a clock that stops while suspended, and what each platform supports."""

from __future__ import annotations

import math
import os
import sys
import time

from fmnes.errors import ArgumentError

# -- Time without suspensions
#
# A batch system that suspends a job (`scontrol suspend`, gang scheduling, `kill -STOP`) stops its processes
# while the system's clock goes on. A gap of several ticks between two readings therefore means a suspension.
# (Or a busy machine: then an evaluation gets too much time, which is better than too little.)


#: Longest time between two readings of an AwakeClock.
TICK = 0.25
#: A process that is suspended alone may have stopped itself for good: its time stands still for at most this
#: multiple of its timeout.
SUSPENDED_TIMES = 5.0
#: The longest wait that every selector accepts: some count milliseconds in 32 bits.
_LONGEST_WAIT = 86_400.0


class AwakeClock:
    """A clock that stops while this process is suspended. It must be read at least every TICK."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._asleep = 0.0

    def now(self) -> float:
        now = time.monotonic()
        gap = now - self._last
        if gap > 2 * TICK:
            self._asleep += gap - TICK
        self._last = now
        return now - self._asleep


def is_suspended(pid: int) -> bool:
    """Whether a process is stopped, as by SIGSTOP. False on systems without /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # "pid (command) state ppid ...", where the command may contain anything
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def wait_for(seconds: float) -> float | None:
    """Return a valid argument of a selector's `select`; None for an infinite wait."""
    return None if seconds == math.inf else min(max(seconds, 0.0), _LONGEST_WAIT)


# -- Platforms
#
# | | Linux | macOS | Windows |
# |---|---|---|---|
# | fork, process groups: `workers`, `timeout`, `Command` | yes | yes | no: refused by `need_supervision` |
# | detect an end without reaping (`os.waitid`) | yes | from Python 3.13 | |
# | notification of an end (`os.pidfd_open`) | yes | polls every 10 ms | |
# | find processes that left their group (`/proc`, a subreaper) | yes | no | |
# | end with the parent (`prctl`) | yes | no | |
# | memory limit of a program (`prlimit`) | yes | no: `memory_limit` is refused | |
#
# Missing functions are detected where they are used, with `hasattr` or an OSError, not by the system's name.


#: Supervision needs all of these.
_NEEDED = ("fork", "setsid", "killpg")


def can_supervise() -> bool:
    return sys.platform != "win32" and all(hasattr(os, name) for name in _NEEDED)


def need_supervision(what: str) -> None:
    """Raise ArgumentError, for the option `what`, where processes cannot be supervised."""
    if not can_supervise():
        raise ArgumentError(
            f"{what}: found on {sys.platform}, whose processes cannot be supervised (no fork, no process "
            "groups); wanted Linux or macOS, of which Windows has the first as WSL. Here fmnes evaluates in "
            "its own process, or without a timeout by a pool of yours: "
            "executor=concurrent.futures.ProcessPoolExecutor()"
        )


def reap(pid: int) -> int | None:
    """Reap a child and return its exit code (negative for a signal); None while it lives.

    For systems without `os.waitid`: kill the rest of its group at once, before its pid is reused. Raises
    ChildProcessError if other code in this process reaped it.
    """
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None
