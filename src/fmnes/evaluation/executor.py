"""Evaluation by any `concurrent.futures.Executor`: threads, processes, a cluster. Only `submit` is needed.

With `timeout`, with a program as objective, and with the cluster adapters of this package, each evaluation is
made by a supervised child process on the executor's machine: see `remote.py`. Otherwise the executor calls
the objective itself. If the future itself fails (a broken pool, a dead node), the cause is unknown: the
evaluation is lost, never failed.
"""

from __future__ import annotations

import itertools
import math
import os
import pickle
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple, Protocol

from fmnes.arguments import check_callable, shown
from fmnes.errors import ArgumentError, ObjectiveError
from fmnes.evaluation import remote
from fmnes.evaluation.evaluator import Outcomes, Task, TaskSource
from fmnes.evaluation.programs.command import Command
from fmnes.evaluation.workers.messages import decode
from fmnes.outcome import Outcome, Outputs, call, lost, read_outcome, read_outputs
from fmnes.result import Vector
from fmnes.space import Space

Plain = tuple[Literal["value", "infeasible", "lost"], float, str, str, str, float, Outputs | None]

#: Seconds between counts of a cluster's workers, which may grow and shrink.
RECOUNT_SECONDS = 5.0
#: Seconds between checks whether the executor has ended, if it has `is_gone`.
LOOK_SECONDS = 1.0
#: Objectives up to this size in bytes go with every task; larger ones only to workers that lack them.
SMALL = 32_768


def count_workers(executor: Any) -> int | None:
    """Return the number of workers, if it is known."""
    count = getattr(executor, "n_workers", None)
    n = count() if callable(count) else getattr(executor, "_max_workers", None)  # of the standard pools
    return n if isinstance(n, int) and n > 0 else None


class _Running(NamedTuple):
    task: Task
    cancel_file: str
    """Cancels this attempt; see `remote.abandon`."""


class ExecutorEvaluator:
    """Evaluates `fun` by `executor.submit`. The executor stays the caller's: `close` leaves it running."""

    def __init__(
        self, fun: Any, executor: Any, *, timeout: float | None = None, space: Space | None = None
    ) -> None:
        check_callable(fun)
        _check(executor)
        isolated = timeout is not None or isinstance(fun, Command) or getattr(executor, "isolates", False)
        self._submission: _Submission = (
            _Isolated(fun, executor, timeout, space) if isolated else _Direct(fun, executor)
        )
        self._executor = executor
        self._counted: tuple[float, float] = (0.0, -math.inf)
        """The number of workers, and when they were counted (time.monotonic())."""

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        running: dict[Future[Any], _Running] = {}
        finished: SimpleQueue[Future[Any]] = SimpleQueue()
        folder, numbers = _new_folder(), itertools.count()

        def submit(task: Task, again: bool = False) -> Outcome | None:
            """Submit a task; returns an outcome if that fails."""
            cancel_file = os.path.join(folder, str(next(numbers)))
            try:
                future = self._submission.submit(task, cancel_file, _left(deadline), again)
            except Exception as error:
                return self._submission.outcome_of_error(error)
            running[future] = _Running(task, cancel_file)
            future.add_done_callback(finished.put)
            return None

        try:
            while True:
                room = math.inf if tasks.may_wait else self._count_workers()
                while len(running) < room and (task := tasks.take()) is not None:
                    if (outcome := submit(task)) is not None:
                        yield task, outcome
                if not running:
                    return
                try:
                    future = finished.get(timeout=self._wait_seconds(deadline))
                except Empty:
                    if _left(deadline) == 0.0:
                        return
                    if self._is_gone():  # the remaining futures will never finish
                        for future in list(running):
                            yield running.pop(future).task, lost("the executor has ended")
                    continue
                if future not in running:  # already reported as lost
                    continue
                task, _ = running.pop(future)
                outcome = self._submission.collect(future)
                if outcome is None:  # that worker does not have the objective yet
                    outcome = submit(task, again=True)
                if outcome is not None:
                    yield task, outcome
        finally:
            self._submission.abandon(
                [one.cancel_file for future, one in running.items() if not future.cancel()]
            )

    def _wait_seconds(self, deadline: float | None) -> float | None:
        """Return the seconds to wait before the next check; None: until a future is done."""
        left = _left(deadline)
        if getattr(self._executor, "is_gone", None) is None:
            return left
        return LOOK_SECONDS if left is None else min(left, LOOK_SECONDS)

    def _is_gone(self) -> bool:
        """Whether the executor has ended: not all of its futures may notice."""
        is_gone = getattr(self._executor, "is_gone", None)
        return is_gone is not None and is_gone()

    def _count_workers(self) -> float:
        """Return the number of workers, counted now and then; infinite if it is unknown."""
        count, when = self._counted
        if time.monotonic() - when > RECOUNT_SECONDS:
            count = count_workers(self._executor) or math.inf
            self._counted = count, time.monotonic()
        return count

    def close(self) -> None:
        self._submission.close()


def _new_folder() -> str:
    """Return a unique folder name; the folder is created only to abandon tasks."""
    return os.path.join(tempfile.gettempdir(), f"fmnes-{uuid.uuid4().hex}")


def _left(deadline: float | None) -> float | None:
    """Return the seconds left, at most what a lock can wait for."""
    return None if deadline is None else min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)


def _check(executor: Any) -> None:
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        raise ArgumentError(f"executor: found {shown(executor)}, wanted an object with a submit method")
    package = type(executor).__module__.partition(".")[0]
    if package == "distributed" and hasattr(executor, "scatter"):
        # Its own `submit` merges equal calls, and its futures are not those of an executor.
        raise ArgumentError(
            "executor: found a Client of Dask, wanted an executor of it; "
            "write executor=fmnes.integrations.dask.executor(client)"
        )


class _Submission(Protocol):
    """How tasks are submitted and results collected."""

    def submit(self, task: Task, cancel_file: str, left: float | None, again: bool) -> Future[Any]: ...
    def collect(self, future: Future[Any]) -> Outcome | None: ...
    def outcome_of_error(self, error: BaseException) -> Outcome: ...
    def abandon(self, cancel_files: list[str]) -> None: ...
    def close(self) -> None: ...


class _Direct:
    """The executor calls the objective."""

    def __init__(self, fun: Callable[[Any], Any], executor: Any) -> None:
        self._fun = fun
        self._executor = executor

    def submit(self, task: Task, cancel_file: str, left: float | None, again: bool) -> Future[Any]:
        future: Future[Any] = self._executor.submit(evaluate, self._fun, task.x.copy())
        return future

    def collect(self, future: Future[Any]) -> Outcome:
        try:
            status, value, reason, fault, detail, seconds, found = future.result()
            outputs = None if found is None else read_outputs(found)
            return read_outcome(status, value, reason, fault, detail, seconds, outputs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # CancelledError is not an Exception
            return self.outcome_of_error(error)

    def outcome_of_error(self, error: BaseException) -> Outcome:
        """Return a lost outcome; raises ArgumentError if the objective cannot be sent."""
        if isinstance(error, pickle.PicklingError) or (
            isinstance(error, (TypeError, AttributeError)) and "pickle" in str(error)
        ):
            raise ArgumentError(
                f"fun: found {self._fun!r}, which this executor cannot send ({_describe(error)}); wanted a "
                "function defined in a module"
            ) from error
        return _lost(error)

    def abandon(self, cancel_files: list[str]) -> None:
        """Do nothing: an executor cannot end a running call."""

    def close(self) -> None:
        pass


def evaluate(fun: Callable[[Any], Any], x: Vector) -> Plain:
    """Evaluate in the executor's worker. Returns plain data: an exception of the user may break a pool."""
    began = time.monotonic()
    outcome = call(fun, x, elsewhere=True)
    seconds = time.monotonic() - began
    words = (outcome.reason, outcome.fault, outcome.detail)
    return outcome.status, outcome.value, *words, seconds, outcome.outputs


class _Isolated:
    """A supervised child process on the executor's machine calls the objective."""

    def __init__(self, fun: Any, executor: Any, timeout: float | None, space: Space | None) -> None:
        self._executor = executor
        self._packed = remote.pack(fun, timeout, space)
        self._data: Any = self._packed.data
        """The objective's bytes, or a reference to them from the executor's `put`."""
        self._loaded = False
        """A worker has loaded the objective."""

    def submit(self, task: Task, cancel_file: str, left: float | None, again: bool) -> Future[Any]:
        packed = self._packed
        data = packed.data if len(packed.data) <= SMALL else self._put() if again else None
        future: Future[Any] = self._executor.submit(
            remote.evaluate, packed.name, cancel_file, task.x.tobytes(), task.id, left, data
        )
        return future

    def _put(self) -> Any:
        """Store the objective once in an executor that has `put` for large data."""
        put = getattr(self._executor, "put", None)
        if put is not None and self._data is self._packed.data:
            self._data = put(self._packed.data)
        return self._data

    def collect(self, future: Future[Any]) -> Outcome | None:
        try:
            kind, body, seconds = future.result()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self.outcome_of_error(error)
        if kind == "unknown":
            return None
        if kind == "broken":
            words = body.decode(errors="replace")
            if not self._loaded:
                raise ObjectiveError(f"a worker of the executor cannot evaluate the objective, {words}")
            return lost("a worker of the executor could not load the objective", detail=words)
        self._loaded = True
        try:
            return decode(body, seconds)
        except (ValueError, TypeError) as error:
            return self.outcome_of_error(error)

    def outcome_of_error(self, error: BaseException) -> Outcome:
        """Return a lost outcome; data stored by `put` may be lost, too."""
        self._data = self._packed.data
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "fmnes":
            raise ArgumentError(
                f"executor: found workers without fmnes ({error}), wanted it installed there, too"
            ) from error
        return _lost(error)

    def abandon(self, cancel_files: list[str]) -> None:
        remote.abandon(cancel_files)

    def close(self) -> None:
        """End the children of this process's threads; others end after they have been idle."""
        remote.forget(self._packed.name)


def _lost(error: BaseException) -> Outcome:
    return lost(f"the executor failed: {_describe(error)}")


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}" if str(error) else type(error).__name__


class LinkedFuture(Future[Any]):
    """For adapters: a future that follows a future of another library. Cancelling it calls `end`."""

    def __init__(self, end: Callable[[], object]) -> None:
        super().__init__()
        self._end = end

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        with suppress(Exception):  # the executor may be gone
            self._end()
        return True

    def follow(self, theirs: Future[Any]) -> None:
        """Take over the result of a future that is done."""
        with suppress(InvalidStateError):  # this future was cancelled
            try:
                self.set_result(theirs.result())
            except InvalidStateError:
                raise
            except BaseException as error:
                self.set_exception(error)
