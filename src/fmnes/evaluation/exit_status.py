"""What the death of a process means. This file is the only place that decides it, for workers and programs.

| the process ended by | the evaluation |
|---|---|
| a crash: SIGSEGV, SIGABRT, SIGFPE, … | failed |
| SIGKILL | failed: that is how a system ends what has eaten its memory |
| SIGTERM, SIGINT, SIGHUP, or the exit code that a shell makes of them | lost: ended from outside |
| the same at every retry, alone, with the driver well afterwards | failed: it was the point's own doing |
| exit code 126 or 127: a program or a shared library is missing or cannot be executed | lost |
| any other exit code | failed |
| nobody was left to tell, or the driver itself was stopping | lost |
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from fmnes.evaluation.evaluator import Evaluator, Outcomes, Task, TaskStream, further
from fmnes.evaluation.supervision import TICK, AwakeClock
from fmnes.outcome import Outcome, infeasible, lost

#: Signals that no computation raises. (Windows has no SIGHUP.)
FROM_OUTSIDE = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
#: Exit codes of shells and of the dynamic loader for what cannot run at all, whatever the point is.
NOT_RUN = {
    126: "it, or a program that it calls, cannot be executed",
    127: "it, a program that it calls or a shared library was not found",
}
#: Whoever ends a job's processes one by one has come to the driver, too, after so many seconds.
SETTLE_SECONDS = 10.0


def outcome_of_death(code: int | None, *, stopping: bool = False) -> Outcome:
    """The outcome of an evaluation that ended with its process, which had not answered.

    code: its exit code, or minus the signal; None if nobody was left to tell. stopping: the driver was told
    to stop, or was ending the evaluation for a reason of its own.
    """
    if stopping:
        return lost("ended with the run")
    if code is None:
        return lost("nobody was left to tell how it ended")
    number = -code if code < 0 else code - 128
    if number in FROM_OUTSIDE:
        # The fault marks it as a death that may turn out to be the point's own doing; see `Retried`.
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


class RetryKilled:
    """An evaluator whose points, once ended from outside, are tried again one at a time.

    A simulation may end its own process group (`trap 'kill 0' EXIT`, an MPI abort), which looks exactly like
    a batch system ending the job. If all `retries` of a point die so with nothing else under way, and the
    driver is still well a little later, the point has failed. What the objective itself calls lost
    (`fmnes.Lost`, exit code 75) and what a cluster loses never comes to that.
    """

    def __init__(self, evaluator: Evaluator, retries: int) -> None:
        self._evaluator = evaluator
        self._retries = retries
        self._deaths: dict[tuple[int, ...], int] = {}
        """Of each point that was ended from outside and not answered since: how often so, alone."""

    @property
    def takes_ahead(self) -> bool:
        return getattr(self._evaluator, "takes_ahead", False)

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        if isinstance(tasks, TaskStream):
            yield from self._as_they_come(tasks, deadline)
            return
        together = [i for i, task in enumerate(tasks) if task.point not in self._deaths]
        alone = [i for i, task in enumerate(tasks) if task.point in self._deaths]
        repeated: list[tuple[int, Outcome]] = []
        for batch in [together, *([i] for i in alone)]:
            if not batch or (deadline is not None and time.monotonic() >= deadline):
                continue
            with closing(self._evaluator([tasks[i] for i in batch], deadline)) as finished:
                for position, outcome in finished:
                    i = batch[position]
                    if self._repeats(tasks[i], outcome):
                        repeated.append((i, outcome))
                    else:  # without its mark: nobody else may take what is lost for a fault
                        yield i, replace(outcome, fault="") if outcome.status == "lost" else outcome
        # One wait for all of them: the driver is well so long after each.
        if repeated and _stays_well(deadline):
            for i, outcome in repeated:
                yield i, self._verdict(tasks[i], outcome)

    def _as_they_come(self, tasks: TaskStream, deadline: float | None) -> Outcomes:
        """The same of a batch that grows: whoever is to be alone waits until nothing else is under way."""
        under_way: dict[int, int] = {}  # positions there, and here
        next_one: list[int] = []

        def draw() -> Task | None:
            if not next_one:
                next_one.extend(further(tasks, 1))
            if not next_one:
                return None
            if self._deaths and under_way:
                beside = [*under_way.values(), *next_one]
                if any(tasks[i].point in self._deaths for i in beside):
                    return None
            under_way[len(inner)] = i = next_one.pop()
            return tasks[i]

        inner = TaskStream(draw)
        with closing(self._evaluator(inner, deadline)) as finished:
            for position, outcome in finished:
                task, i = inner.pop(position), under_way.pop(position)
                if not self._repeats(task, outcome):
                    yield i, replace(outcome, fault="") if outcome.status == "lost" else outcome
                elif _stays_well(deadline):
                    yield i, self._verdict(task, outcome)

    def _verdict(self, task: Task, outcome: Outcome) -> Outcome:
        tries = 1 + self._deaths.pop(task.point)
        reason = f"ended by {outcome.fault} at each of {tries} tries"
        return infeasible(reason, fault=outcome.fault, detail=outcome.detail)

    def _repeats(self, task: Task, outcome: Outcome) -> bool:
        """Whether this was the last try of a point that was ended from outside at each of them."""
        if not (outcome.status == "lost" and outcome.fault):
            self._deaths.pop(task.point, None)
            return False
        self._deaths[task.point] = self._deaths.get(task.point, -1) + 1
        return 0 < self._retries <= self._deaths[task.point]

    def close(self) -> None:
        self._evaluator.close()


def _stays_well(deadline: float | None) -> bool:
    """Wait whether the driver itself is ended, too (its SIGTERM is a KeyboardInterrupt here)."""
    clock = AwakeClock()  # whoever suspends a job may be about to end it
    end = clock.now() + SETTLE_SECONDS
    while (left := end - clock.now()) > 0:
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(min(left, TICK))
    return True
