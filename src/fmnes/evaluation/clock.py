"""Time as an evaluation has it: while its process, or we, are suspended it stands still.

A batch system that suspends a job (`scontrol suspend`, gang scheduling, `kill -STOP`) stops its processes,
and the computer's clock goes on. Nobody tells us; but whoever looks at a clock at every tick and finds that
several have gone by knows that it was asleep. (Or busy: then an evaluation is given too much time by that,
which does less harm than too little.)
"""

from __future__ import annotations

import math
import time

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
