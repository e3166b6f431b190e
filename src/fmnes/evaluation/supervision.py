"""What supervision of processes needs: process groups, signals, and a clock that stops while suspended."""

from __future__ import annotations

import math
import os
import sys
import time

from fmnes.errors import ArgumentError

# -- Time as an evaluation has it: while its process, or we, are suspended it stands still.
#
# A batch system that suspends a job (`scontrol suspend`, gang scheduling, `kill -STOP`) stops its
# processes,
# and the computer's clock goes on. Nobody tells us; but whoever looks at a clock at every tick and finds
# that
# several have gone by knows that it was asleep. (Or busy: then an evaluation is given too much time by
# that,
# which does less harm than too little.)


#: Whoever measures time here looks at the clock at least this often.
TICK = 0.25
#: A process that is suspended although we are not may have stopped itself, and for good: it is waited for so
#: many times its timeout, and then its time goes on.
SUSPENDED_TIMES = 5.0
#: The longest wait that every selector takes: some count milliseconds in 32 bits.
_LONGEST_WAIT = 86_400.0


class AwakeClock:
    """Seconds in which this process was not suspended, for those who ask at least every TICK."""

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
    """Whether a process is stopped, as by SIGSTOP. Systems without /proc cannot tell: no."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # "pid (command) state ppid ...", where the command may contain anything
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def wait_for(seconds: float) -> float | None:
    """The argument of a selector's `select`: None for ever, never negative, never more than it takes."""
    return None if seconds == math.inf else min(max(seconds, 0.0), _LONGEST_WAIT)


# -- What this system offers to those who supervise processes, and a refusal in words where it is too
# little.
#
# | | Linux | macOS | Windows |
# |---|---|---|---|
# | fork, process groups: `workers`, `timeout`, `Command` | yes | yes | no: refused by `need_supervision` |
# | to see an end and leave the process's number taken (`os.waitid`) | yes | from Python 3.13 | |
# | to be told of an end (`os.pidfd_open`) | yes | looks every 10 ms | |
# | to find what has left its process group (`/proc`, a subreaper) | yes | no | |
# | to end with its parent (`prctl`) | yes | no | |
# | a limit of memory for a program (`prlimit`) | yes | no: `memory_limit` is refused | |
#
# What is missing elsewhere is asked for where it is used, with `hasattr` or an OSError: nothing here
# depends on
# a system's name but Windows, whose own files (`O_BINARY`) and locks (`msvcrt`) are in `storage`.


#: Without one of these there is no supervision.
_NEEDED = ("fork", "setsid", "killpg")


def can_supervise() -> bool:
    return sys.platform != "win32" and all(hasattr(os, name) for name in _NEEDED)


def need_supervision(what: str) -> None:
    """Raises ArgumentError where processes cannot be supervised; `what` is what asked for them."""
    if not can_supervise():
        raise ArgumentError(
            f"{what}: found on {sys.platform}, whose processes cannot be supervised (no fork, no process "
            "groups); wanted Linux or macOS, of which Windows has the first as WSL. Here fmnes evaluates in "
            "its own process, or without a timeout by a pool of yours: "
            "executor=concurrent.futures.ProcessPoolExecutor()"
        )


def reap(pid: int) -> int | None:
    """The exit code of a child of ours that has ended (minus the signal's number), and it is no more.

    None while it lives. For systems without `os.waitid`, which could tell and leave the child's number taken:
    what is left of its group is to be killed at once, before another process can have that number. Raises
    ChildProcessError if somebody else in this process took it.
    """
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None
