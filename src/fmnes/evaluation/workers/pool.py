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
from fmnes.evaluation.evaluator import Outcomes, Task, further
from fmnes.evaluation.supervision import TICK, AwakeClock, need_supervision, wait_for
from fmnes.evaluation.workers.messages import BROKEN, NO_FILES, READY, decode, frame, ship
from fmnes.evaluation.workers.worker import State, Worker
from fmnes.outcome import Outcome, infeasible, lost

#: How often in a row workers may fail to start before the points are given back as lost.
_STARTS = 5
#: Importing the objective's module may be slow, but a worker that takes longer than this is stuck.
_START_SECONDS = 300.0

Finished = list[tuple[int, Outcome]]


class Workers:
    """Evaluates `fun` in child processes, each started at first use and reused until something goes wrong.

    A child that dies, hangs beyond `timeout` seconds, runs out of memory or answers nonsense is replaced, and
    its evaluation is infeasible, with the reason and the end of what it has printed. An evaluation is lost
    where its child was ended from outside (SIGTERM, SIGINT, SIGHUP) or none could be started. Where its child
    had no file descriptors left, it is tried once more in a fresh one.

    What an evaluation leaves running in the background lives on until its worker is replaced or closed.
    Children get the environment, the directory and the sys.path of the moment this object was made.
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
        """fun: the objective, or what `ship` has made of it.

        path: where its modules are looked for before sys.path. is_wanted: asked at every tick; once it says
        no, the batch ends early, as at its deadline.
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
        """When it was last looked who is suspended."""
        self._workers: list[Worker] = []
        self._pending: deque[int] = deque()
        self._without_files: set[int] = set()
        """Tasks that met a child without file descriptors."""
        self._state = "free"
        self._loaded = False
        """A worker has loaded the objective."""
        self._broken = ""
        """Why none could."""
        self._failed_starts = 0
        self._retry_at = 0.0
        self._not_started = lost("no worker process could be started")

    takes_ahead = True

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        if self._state != "free":
            raise UsageError(f"these workers are {self._state}")
        self._state = "busy with another batch"
        self._pending = deque(range(len(tasks)))
        self._without_files.clear()
        self._looked = self._clock.now()
        self._failed_starts, self._retry_at = 0, 0.0
        unanswered = len(tasks)
        finished: Finished = []
        try:
            while True:
                # Handed over before the next ones go out: no more than `workers` can be lost with the caller.
                yield from finished
                unanswered -= len(finished)
                self._pending.extend(more := further(tasks, self._count - unanswered))
                unanswered += len(more)
                if not unanswered or self._over(deadline):
                    return
                self._start(min(self._count, len(tasks)))
                self._feed(tasks)
                if self._failed_starts >= _STARTS and not self._workers:
                    yield from [(position, self._not_started) for position in self._pending]
                    return
                finished = self._wait(math.inf if deadline is None else deadline)
                if self._broken:
                    raise ObjectiveError(f"a worker process could not load the objective:\n\n{self._broken}")
        finally:
            self._abandon()
            self._state = "closed" if self._state == "closed" else "free"

    def close(self) -> None:
        """End all children. The idle ones end by themselves, so that their exit handlers are run."""
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
        """Kill what is running, and see it dead."""
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
        if now >= self._retry_at:  # those that fail together are one failure
            self._failed_starts += 1
            self._retry_at = now + 0.05 * 2**self._failed_starts

    def _feed(self, tasks: Sequence[Task]) -> None:
        for worker in self._workers:
            if self._pending and worker.state is State.IDLE:
                position = self._pending.popleft()
                worker.give(position, tasks[position].x, self._timeout)

    def _wait(self, deadline: float = math.inf) -> Finished:
        """Sleep until something happens, and tell which tasks that has finished."""
        now = time.monotonic()
        until = deadline - now if self._is_wanted is None else min(deadline - now, TICK)
        if self._retry_at > now:
            until = min(until, self._retry_at - now)
        expires = min((worker.expires for worker in self._workers), default=math.inf)
        if expires < math.inf:  # the clock wants to be looked at
            until = min(until, expires - self._clock.now(), TICK)
        finished: Finished = []
        # The channel first: a child that answered and then died did answer.
        for key, event in sorted(
            self._selector.select(wait_for(until)), key=lambda ready: ready[0].data[1] == "control"
        ):
            worker, which = key.data
            if which == "control":
                if worker.hear_guard():
                    finished += self._remove(worker, guard_is_gone=True)
            elif worker.state in (State.LEAVING, State.KILLING):
                pass  # kqueue tells of reading and of writing one by one: the other has closed the channel
            elif event & selectors.EVENT_WRITE:
                worker.push()
            else:
                self._hear(worker, finished)
        if expires < math.inf:
            for worker in self._expired():
                finished += self._expire(worker)
        return finished

    def _expired(self) -> list[Worker]:
        """Those with whom our patience is over. That of a suspended one stands still."""
        if all(worker.expires == math.inf for worker in self._workers):
            return []
        now = self._clock.now()
        passed = now - self._looked
        if passed >= TICK or any(worker.expires <= now for worker in self._workers):
            self._looked = now
            for worker in self._workers:
                worker.stand_still(passed)
        return [worker for worker in self._workers if worker.expires <= now]

    def _hear(self, worker: Worker, finished: Finished) -> None:
        try:
            answer = worker.hear()
            if answer is None:
                return
            if worker.state is State.STARTING:
                return self._hear_first(worker, answer)
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
        if no_files or outcome.fault == "MemoryError":  # the next one deserves a process that has them all
            worker.kill()
        if no_files and task not in self._without_files:  # and this one, too: others have left them open
            self._without_files.add(task)
            self._pending.appendleft(task)
        else:
            finished.append((task, outcome))

    def _hear_first(self, worker: Worker, answer: bytes) -> None:
        """Has it loaded the objective?"""
        if answer.startswith(READY):
            worker.note_ready(answer)
            self._loaded = True
            return
        why = answer.removeprefix(BROKEN).decode(errors="replace")
        worker.kill()
        if self._loaded:  # it could be before, so this is the machine: a file system, a lack of memory
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
            comes_to = None
        elif worker.state is State.EVALUATING:
            comes_to = infeasible(f"timed out after {self._timeout:g} s", fault="timeout")
        else:
            comes_to = infeasible("the objective closed its connection", fault="connection closed")
        worker.kill(comes_to, show_stack=True)
        return []

    def _remove(self, worker: Worker, *, guard_is_gone: bool) -> Finished:
        """It is gone: what does its task come to?"""
        self._workers.remove(worker)
        killed = worker.state is State.KILLING
        ending = worker.leave(guard_is_gone=guard_is_gone)
        outcome = ending.outcome
        if worker.task is None:
            if not killed:
                self._count_failed_start(outcome.reason, ending.printed(since=0.0) or outcome.detail)
            return []
        if ending.time < worker.started:  # it died before it got this task
            self._pending.appendleft(worker.task)
            self._count_failed_start(outcome.reason)
            return []
        self._failed_starts = 0
        detail = ending.printed(worker.started) or outcome.detail
        seconds = time.monotonic() - worker.started
        return [(worker.task, replace(outcome, detail=detail, seconds=seconds))]
