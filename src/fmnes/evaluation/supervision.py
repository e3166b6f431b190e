"""Supervision of processes: their time, what each platform supports, and what the death of one means."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace

from fmnes.errors import ArgumentError
from fmnes.evaluation.evaluator import Evaluator, Outcomes, Task, TaskSource
from fmnes.outcome import EvaluationId, Outcome, infeasible, lost

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


def need_supervision(what: str) -> None:
    """Raise ArgumentError, for the option `what`, where processes cannot be supervised."""
    if sys.platform == "win32" or not all(hasattr(os, name) for name in _NEEDED):
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


# -- The outcome of an evaluation whose process died, for workers and programs.
#
# | the process ended by | the evaluation |
# |---|---|
# | a crash: SIGSEGV, SIGABRT, SIGFPE, … | failed |
# | SIGKILL | failed: the system kills processes that run out of memory |
# | SIGTERM, SIGINT, SIGHUP, or the exit code that a shell makes of them | lost: ended from outside |
# | the same at every retry, alone, and the driver was not ended | failed: the point caused it |
# | exit code 126 or 127: a program or a shared library is missing or cannot be executed | lost |
# | any other exit code | failed |
# | an unknown cause, or the driver itself was stopping | lost |


#: Signals that come from outside, not from a computation. (Windows has no SIGHUP.)
FROM_OUTSIDE = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
#: Exit codes of shells and of the dynamic loader for programs that cannot run with any point.
NOT_RUN = {
    126: "it, or a program that it calls, cannot be executed",
    127: "it, a program that it calls or a shared library was not found",
}
#: A batch system that ends all processes of a job has also signalled the driver after this time.
SETTLE_SECONDS = 10.0


def outcome_of_death(code: int | None, *, stopping: bool = False) -> Outcome:
    """Return the outcome of an evaluation whose process ended without an answer.

    code: the exit code, negative for a signal; None if unknown. stopping: the driver was stopping, or ended
    the evaluation itself.
    """
    if stopping:
        return lost("ended with the run")
    if code is None:
        return lost("how its process ended is unknown")
    number = -code if code < 0 else code - 128
    if number in FROM_OUTSIDE:
        # `RetryKilled` uses the fault to detect points that cause such an end themselves.
        return replace(lost(f"ended from outside ({signal_name(number)})"), fault=signal_name(number))
    if code < 0 and signal_name(number) == "SIGKILL":
        return infeasible("killed (SIGKILL), maybe out of memory", fault="SIGKILL")
    if code < 0:
        return infeasible(f"died: {signal_name(number)}", fault=signal_name(number))
    if code in NOT_RUN:
        return lost(f"exited with code {code}: {NOT_RUN[code]}")
    said = f" (a shell's word for {signal_name(number)})" if 0 < number < signal.NSIG else ""
    return infeasible(f"exited with code {code}{said}", fault=f"exit {code}")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals have no names
        return f"signal {number}"


class _OneAlone:
    """Hands on the tasks of a source; one that must run alone waits until nothing else is running."""

    def __init__(self, tasks: TaskSource, alone: Collection[EvaluationId]) -> None:
        self.may_wait = tasks.may_wait
        self.running: set[EvaluationId] = set()
        self.paused = False
        """Hand on tasks that run alone only."""
        self._tasks = tasks
        self._alone = alone
        self._next: Task | None = None

    def take(self) -> Task | None:
        if self._alone and any(id.point in self._alone for id in self.running):
            return None
        task = self._next = self._next or self._tasks.take()
        if task is None:
            return None
        alone = bool(self._alone) and task.id.point in self._alone
        if (alone and self.running) or (self.paused and not alone):
            return None
        self._next = None
        self.running.add(task.id)
        return task


class RetryKilled:
    """Wraps an evaluator; repeats evaluations that were ended from outside alone, one at a time.

    A simulation may end its own process group (`trap 'kill 0' EXIT`, an MPI abort), which looks like a batch
    system ending the job. If all `retries` of a point end like this while nothing else is running, and the
    driver still runs SETTLE_SECONDS later, the point has failed. This excludes evaluations that the objective
    reports as lost (`fmnes.Lost`, exit code 75) and those lost by a cluster.
    """

    def __init__(self, evaluator: Evaluator, retries: int) -> None:
        self._evaluator = evaluator
        self._retries = retries
        self._deaths: dict[EvaluationId, int] = {}
        """Points that were last ended from outside: how often since the first time, alone."""

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        source = _OneAlone(tasks, self._deaths)
        while True:
            repeated: list[tuple[Task, Outcome]] = []
            with closing(self._evaluator(source, deadline)) as finished:
                for task, outcome in finished:
                    source.running.discard(task.id)
                    if self._repeats(task, outcome):
                        repeated.append((task, outcome))
                        source.paused = True
                    else:  # a lost evaluation has no fault for others
                        yield task, replace(outcome, fault="") if outcome.status == "lost" else outcome
            # One wait for all of them.
            if not repeated or not _stays_well(deadline):
                return
            source.paused = False
            for task, outcome in repeated:
                yield task, self._verdict(task, outcome)

    def _verdict(self, task: Task, outcome: Outcome) -> Outcome:
        tries = 1 + self._deaths.pop(task.id.point)
        reason = f"ended by {outcome.fault} at each of {tries} tries"
        return infeasible(reason, fault=outcome.fault, detail=outcome.detail)

    def _repeats(self, task: Task, outcome: Outcome) -> bool:
        """Whether a point has been ended from outside at each attempt, the last retry included."""
        if not (outcome.status == "lost" and outcome.fault):
            if self._deaths:
                self._deaths.pop(task.id.point, None)
            return False
        self._deaths[task.id.point] = self._deaths.get(task.id.point, -1) + 1
        return 0 < self._retries <= self._deaths[task.id.point]

    def close(self) -> None:
        self._evaluator.close()


def _stays_well(deadline: float | None) -> bool:
    """Wait to see whether the driver is ended, too (its SIGTERM raises KeyboardInterrupt here)."""
    clock = AwakeClock()  # a suspended job may be ended next
    end = clock.now() + SETTLE_SECONDS
    while (left := end - clock.now()) > 0:
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(min(left, TICK))
    return True
