"""Supervised worker processes: a crash, a hang or a kill costs one evaluation and nothing else."""

from __future__ import annotations

import json
import math
import os
import selectors
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmnes.arguments import check_number
from fmnes.errors import ArgumentError, ObjectiveError, UsageError
from fmnes.evaluation.evaluator import Outcomes, Task, TaskSource, take_all
from fmnes.evaluation.supervision import TICK, AwakeClock, need_supervision, wait_for
from fmnes.evaluation.workers.messages import BROKEN, NO_FILES, READY, decode, frame, ship
from fmnes.evaluation.workers.worker import State, Worker
from fmnes.outcome import EvaluationId, Outcome, infeasible, lost

#: Consecutive failed starts of workers before the remaining points are lost.
_STARTS = 5
#: Seconds to import the objective's module; a worker that takes longer is stuck.
_START_SECONDS = 300.0

Finished = list[tuple[Task, Outcome]]


class Workers:
    """Evaluates `fun` in child processes, each started at first use and reused until something goes wrong.

    A child that dies, hangs beyond `timeout` seconds, runs out of memory or sends an invalid answer is
    replaced, and its evaluation has failed, with the reason and the end of its output. An evaluation is lost
    if its child was ended from outside (SIGTERM, SIGINT, SIGHUP) or none could be started. If its child had
    no free file descriptors, it is repeated once in a new one.

    Background processes of an evaluation live until its worker is replaced or closed. Children get the
    environment, the directory and the sys.path at the time this object was created.
    """

    def __init__(
        self,
        fun: Callable[[Any], Any] | bytes,
        workers: int,
        *,
        timeout: float | None = None,
        path: Sequence[str] = (),
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        """fun: the objective, or its bytes from `ship`.

        path: searched for modules before sys.path. is_wanted: called at every tick; once it returns False,
        the batch ends early, as at its deadline.
        """
        need_supervision("workers")
        if isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1:
            raise ArgumentError(f"workers: found {workers!r}, wanted a whole number above 0")
        self._count = int(workers)
        self._timeout: float = check_number("timeout", timeout, above=0) or math.inf
        self._is_wanted = is_wanted
        places = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
        places = [*(entry for entry in path if entry not in places), *places]
        function = fun if isinstance(fun, bytes) else ship(fun)
        self._first_message = json.dumps(places).encode() + b"\n" + frame(function)
        self._environment = dict(os.environ)
        self._directory = os.getcwd()
        self._selector = selectors.DefaultSelector()
        self._clock = AwakeClock()
        self._looked = self._clock.now()
        """When suspended workers were last checked."""
        self._workers: list[Worker] = []
        self._pending: deque[Task] = deque()
        self._without_files: set[EvaluationId] = set()
        """Tasks that failed once in a child without free file descriptors."""
        self._state = "free"
        self._loaded = False
        """A worker has loaded the objective."""
        self._broken = ""
        """Why no worker could load it."""
        self._failed_starts = 0
        self._retry_at = 0.0
        self._not_started = lost("no worker process could be started")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        if self._state != "free":
            raise UsageError(f"these workers are {self._state}")
        self._state = "busy with another batch"
        self._pending.clear()
        self._without_files.clear()
        self._looked = self._clock.now()
        self._failed_starts, self._retry_at = 0, 0.0
        taken = unanswered = 0
        finished: Finished = []
        try:
            while True:
                # Yielded before the next ones start, so that at most `workers` are lost with the caller.
                yield from finished
                unanswered -= len(finished)
                while unanswered < self._count and (task := tasks.take()) is not None:
                    self._pending.append(task)
                    unanswered += 1
                    taken += 1
                if not unanswered or self._over(deadline):
                    return
                self._start(min(self._count, taken))
                self._feed()
                if self._failed_starts >= _STARTS and not self._workers:
                    if tasks.may_wait:
                        self._pending.extend(take_all(tasks))
                    while self._pending:
                        yield self._pending.popleft(), self._not_started
                    return
                finished = self._wait(math.inf if deadline is None else deadline)
                if self._broken:
                    raise ObjectiveError(f"a worker process could not load the objective:\n\n{self._broken}")
        finally:
            self._abandon()
            self._state = "closed" if self._state == "closed" else "free"

    def close(self) -> None:
        """End all children. Idle ones exit by themselves, so that their exit handlers run."""
        if self._state == "closed":
            return
        self._state = "closed"
        for worker in self._workers:
            if worker.state is State.IDLE:
                worker.close_channel()
            elif worker.state is not State.KILLING:
                worker.kill()
        while self._workers:
            self._wait()
        self._selector.close()

    def _over(self, deadline: float | None) -> bool:
        if self._is_wanted is not None and not self._is_wanted():
            return True
        return self._state == "closed" or (deadline is not None and time.monotonic() >= deadline)

    def _abandon(self) -> None:
        """Kill running evaluations and wait for their ends."""
        for worker in self._workers:
            if worker.task is not None and worker.state is not State.KILLING:
                worker.kill()
        while any(worker.state is State.KILLING for worker in self._workers):
            self._wait()

    def _start(self, wanted: int) -> None:
        for _ in range(wanted - sum(worker.state is not State.KILLING for worker in self._workers)):
            if self._failed_starts >= _STARTS or time.monotonic() < self._retry_at:
                return
            try:
                worker = Worker(
                    self._selector,
                    self._clock,
                    self._first_message,
                    environment=self._environment,
                    directory=self._directory,
                    patience=_START_SECONDS,
                )
            except OSError as error:  # too many processes or files, no memory
                self._count_failed_start(str(error))
            else:
                self._workers.append(worker)

    def _count_failed_start(self, why: str, detail: str = "") -> None:
        self._not_started = lost(f"no worker process could be started: {why}", detail=detail)
        now = time.monotonic()
        if now >= self._retry_at:  # simultaneous failures count as one
            self._failed_starts += 1
            self._retry_at = now + 0.05 * 2**self._failed_starts

    def _feed(self) -> None:
        for worker in self._workers:
            if self._pending and worker.state is State.IDLE:
                worker.assign(self._pending.popleft(), self._timeout)

    def _wait(self, deadline: float = math.inf) -> Finished:
        """Wait for the next event, and return the tasks that it finished."""
        now = time.monotonic()
        until = deadline - now if self._is_wanted is None else min(deadline - now, TICK)
        if self._retry_at > now:
            until = min(until, self._retry_at - now)
        expires = min((worker.expires for worker in self._workers), default=math.inf)
        if expires < math.inf:  # the clock must be read at every tick
            until = min(until, expires - self._clock.now(), TICK)
        finished: Finished = []
        # The channel first: an answer counts even if the child died after it.
        for key, event in sorted(
            self._selector.select(wait_for(until)), key=lambda ready: ready[0].data[1] == "control"
        ):
            worker, which = key.data
            if which == "control":
                if worker.read_guard():
                    finished += self._remove(worker, guard_is_gone=True)
            elif worker.state in (State.LEAVING, State.KILLING):
                pass  # kqueue reports reading and writing separately: the other event closed the channel
            elif event & selectors.EVENT_WRITE:
                worker.push()
            else:
                self._handle(worker, finished)
        if expires < math.inf:
            for worker in self._expired():
                finished += self._expire(worker)
        return finished

    def _expired(self) -> list[Worker]:
        """Return the workers whose time is over; the time of suspended ones does not pass."""
        if all(worker.expires == math.inf for worker in self._workers):
            return []
        now = self._clock.now()
        passed = now - self._looked
        if passed >= TICK or any(worker.expires <= now for worker in self._workers):
            self._looked = now
            for worker in self._workers:
                worker.pause(passed)
        return [worker for worker in self._workers if worker.expires <= now]

    def _handle(self, worker: Worker, finished: Finished) -> None:
        try:
            answer = worker.read()
            if answer is None:
                return
            if worker.state is State.STARTING:
                return self._handle_first(worker, answer)
            outcome = decode(answer, time.monotonic() - worker.started)
            if worker.task is None:
                raise ValueError("an answer without a question")
        except (ValueError, TypeError):
            if worker.state is State.STARTING:
                self._count_failed_start("unreadable answer")
            return worker.kill(infeasible("unreadable answer", fault="unreadable answer"))
        task = worker.task
        worker.note_answer()
        self._failed_starts = 0
        no_files = answer.startswith(NO_FILES)
        if no_files or outcome.fault == "MemoryError":  # start the next evaluation in a new process
            worker.kill()
        if no_files and task.id not in self._without_files:  # earlier evaluations may have left files open
            self._without_files.add(task.id)
            self._pending.appendleft(task)
        else:
            finished.append((task, outcome))

    def _handle_first(self, worker: Worker, answer: bytes) -> None:
        """Handle the first answer: whether the worker has loaded the objective."""
        if answer.startswith(READY):
            worker.note_ready(answer)
            self._loaded = True
            return
        why = answer.removeprefix(BROKEN).decode(errors="replace")
        worker.kill()
        if self._loaded:  # another worker could, so the machine is at fault
            self._count_failed_start("the objective could not be loaded again", why)
        else:
            self._broken = why

    def _expire(self, worker: Worker) -> Finished:
        if worker.state is State.KILLING:
            return self._remove(worker, guard_is_gone=False)
        if worker.task is None:
            starting = worker.state is State.STARTING
            why = f"was not ready after {_START_SECONDS:g} s" if starting else "closed its connection"
            self._count_failed_start(f"it {why}")
            outcome = None
        elif worker.state is State.EVALUATING:
            outcome = infeasible(f"timed out after {self._timeout:g} s", fault="timeout")
        else:
            outcome = infeasible("the objective closed its connection", fault="connection closed")
        worker.kill(outcome, show_stack=True)
        return []

    def _remove(self, worker: Worker, *, guard_is_gone: bool) -> Finished:
        """Remove a worker that has ended, and return the outcome of its task."""
        self._workers.remove(worker)
        killed = worker.state is State.KILLING
        exit_ = worker.leave(guard_is_gone=guard_is_gone)
        outcome = exit_.outcome
        if worker.task is None:
            if not killed:
                self._count_failed_start(outcome.reason, exit_.printed(since=0.0) or outcome.detail)
            return []
        if exit_.time < worker.started:  # it died before it got this task
            self._pending.appendleft(worker.task)
            self._count_failed_start(outcome.reason)
            return []
        self._failed_starts = 0
        detail = exit_.printed(worker.started) or outcome.detail
        seconds = time.monotonic() - worker.started
        return [(worker.task, replace(outcome, detail=detail, seconds=seconds))]
