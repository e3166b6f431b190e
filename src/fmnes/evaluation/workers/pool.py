"""Supervised worker processes: a crash, a hang or a kill costs one evaluation and nothing else."""

from __future__ import annotations

import importlib
import io
import json
import math
import os
import pickle
import selectors
import sys
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmnes.arguments import check_number
from fmnes.errors import ArgumentError, ObjectiveError, UsageError
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.workers.worker import BROKEN, READY, Worker, decode, frame
from fmnes.outcome import Outcome, infeasible, lost

#: One thread each, unless the user has decided: the workers fill the machine by themselves.
THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
#: How often in a row workers may fail to start before the points are given back as lost.
_STARTS = 5
#: Importing the objective's module may be slow, but a worker that takes longer than this is stuck.
_START_SECONDS = 300.0

Finished = list[tuple[int, Outcome]]


class Workers:
    """Evaluates `fun` in child processes, each started at first use and reused until something goes wrong.

    A child that dies, hangs beyond `timeout` seconds, runs out of memory or answers nonsense is replaced, and
    its evaluation is infeasible, with the reason and the end of what it has printed. An evaluation is lost
    where its child was ended from outside (SIGTERM, SIGINT, SIGHUP) or none could be started.

    What an evaluation leaves running in the background lives on until its worker is replaced or closed.
    Children get the environment, the directory and the sys.path of the moment this object was made.
    """

    def __init__(self, fun: Callable[[Any], Any], workers: int, *, timeout: float | None = None) -> None:
        if isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1:
            raise ArgumentError(f"workers: found {workers!r}, wanted a whole number above 0")
        self._count = int(workers)
        self._timeout: float = check_number("timeout", timeout, above=0) or math.inf
        path = json.dumps([os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]).encode()
        self._greeting = path + b"\n" + frame(ship(fun))
        self._environment = dict.fromkeys(THREAD_LIMITS, "1") | dict(os.environ)
        self._directory = os.getcwd()
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._pending: deque[int] = deque()
        self._state = "free"
        self._loaded = False
        """A worker has loaded the objective."""
        self._broken = ""
        """Why none could."""
        self._failed_starts = 0
        self._retry_at = 0.0
        self._not_started = lost("no worker process could be started")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Iterator[tuple[int, Outcome]]:
        if self._state != "free":
            raise UsageError(f"these workers are {self._state}")
        self._state = "busy with another batch"
        self._pending = deque(range(len(tasks)))
        self._failed_starts, self._retry_at = 0, 0.0
        unanswered = len(tasks)
        finished: Finished = []
        try:
            while unanswered:
                # Handed over before the next ones go out: no more than `workers` can be lost with the caller.
                yield from finished
                unanswered -= len(finished)
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
            if worker.idle:
                worker.hang_up()
            elif not worker.ending:
                worker.end()
        while self._workers:
            self._wait()
        self._selector.close()

    def _over(self, deadline: float | None) -> bool:
        return self._state == "closed" or (deadline is not None and time.monotonic() >= deadline)

    def _abandon(self) -> None:
        """Kill what is running, and see it dead."""
        for worker in self._workers:
            if worker.position is not None and not worker.ending:
                worker.end()
        while any(worker.ending for worker in self._workers):
            self._wait()

    def _start(self, wanted: int) -> None:
        for _ in range(wanted - sum(not worker.ending for worker in self._workers)):
            if self._failed_starts >= _STARTS or time.monotonic() < self._retry_at:
                return
            try:
                worker = Worker(
                    self._selector,
                    self._greeting,
                    environment=self._environment,
                    directory=self._directory,
                    patience=_START_SECONDS,
                )
            except OSError as error:  # too many processes or files, no memory
                self._start_failed(str(error))
            else:
                self._workers.append(worker)

    def _start_failed(self, why: str, detail: str = "") -> None:
        self._not_started = lost(f"no worker process could be started: {why}", detail=detail)
        now = time.monotonic()
        if now >= self._retry_at:  # those that fail together are one failure
            self._failed_starts += 1
            self._retry_at = now + 0.05 * 2**self._failed_starts

    def _feed(self, tasks: Sequence[Task]) -> None:
        for worker in self._workers:
            if self._pending and worker.idle:
                position = self._pending.popleft()
                worker.give(position, tasks[position].x, self._timeout)

    def _wait(self, deadline: float = math.inf) -> Finished:
        """Sleep until something happens, and tell which tasks that has finished."""
        now = time.monotonic()
        until = min([deadline, *(worker.expires for worker in self._workers)])
        if self._retry_at > now:
            until = min(until, self._retry_at)
        events = self._selector.select(None if until == math.inf else max(until - now, 0.0))
        finished: Finished = []
        # "channel" before "lifeline": a child that answered and then died did answer.
        for key, event in sorted(events, key=lambda ready: ready[0].data[1]):
            worker, which = key.data
            if which == "lifeline":
                if worker.hear_guard():
                    finished += self._remove(worker)
            elif event & selectors.EVENT_WRITE:
                worker.push()
            else:
                finished += self._hear(worker)
        now = time.monotonic()
        for worker in [worker for worker in self._workers if worker.expires <= now]:
            finished += self._expire(worker)
        return finished

    def _hear(self, worker: Worker) -> Finished:
        try:
            answer = worker.hear()
            if answer is None:
                return []
            if not worker.ready:
                self._hear_first(worker, answer)
                return []
            outcome = decode(answer)
            if worker.position is None:
                raise ValueError("an answer without a question")
        except (ValueError, TypeError):
            worker.verdict = infeasible("unreadable answer", fault="unreadable answer")
            if not worker.ready:
                self._start_failed("unreadable answer")
            worker.end()
            return []
        finished = [(worker.position, outcome)]
        worker.position, worker.expires = None, math.inf
        self._failed_starts = 0
        if outcome.fault == "MemoryError":  # the next evaluation deserves a process with all its memory
            worker.end()
        return finished

    def _hear_first(self, worker: Worker, answer: bytes) -> None:
        """Has it loaded the objective?"""
        if answer == READY:
            worker.ready = self._loaded = True
            worker.expires = math.inf
            return
        why = answer.removeprefix(BROKEN).decode(errors="replace")
        worker.end()
        if self._loaded:  # it could be before, so this is the machine: a file system, a lack of memory
            self._start_failed("the objective could not be loaded again", why)
        else:
            self._broken = why

    def _expire(self, worker: Worker) -> Finished:
        if worker.ending:
            return self._remove(worker)
        if not worker.ready:
            self._start_failed(f"it was not ready after {_START_SECONDS:g} s")
        elif worker.connected:
            worker.verdict = infeasible(f"timed out after {self._timeout:g} s", fault="timeout")
        else:
            worker.verdict = infeasible("the objective closed its connection", fault="connection closed")
        worker.end(show_stack=True)
        return []

    def _remove(self, worker: Worker) -> Finished:
        """It is gone: what does its task come to?"""
        self._workers.remove(worker)
        ending = worker.leave()
        outcome = worker.verdict or ending.outcome
        if worker.position is None:
            if not worker.ending:
                self._start_failed(outcome.reason, ending.printed(since=0.0) or outcome.detail)
            return []
        if not worker.verdict and ending.time < worker.started:  # it died before it got this task
            self._pending.appendleft(worker.position)
            self._start_failed(outcome.reason)
            return []
        self._failed_starts = 0
        return [(worker.position, replace(outcome, detail=ending.printed(worker.started) or outcome.detail))]


class _ByReference(pickle.Pickler):
    """Functions and classes go by name, and the names of a script mean nothing in another process."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"{obj.__qualname__} is defined in the script itself")
        return NotImplemented


def ship(fun: Callable[[Any], Any]) -> bytes:
    """The function as bytes for our own children."""
    if not callable(fun):
        raise ArgumentError(f"fun: found {fun!r}, wanted a function of one point")
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError:
        cloudpickle = None
    try:
        if cloudpickle:
            return bytes(cloudpickle.dumps(fun))
        buffer = io.BytesIO()
        _ByReference(buffer).dump(fun)
        return buffer.getvalue()
    except Exception as error:
        hint = "wanted one without files, locks and the like"
        if not cloudpickle:
            hint = 'move it to a module, or pip install "fmnes[workers]", which can send it as it is'
        raise ArgumentError(
            f"fun: found {fun!r}, which cannot be sent to a worker process ({error}); {hint}"
        ) from error
