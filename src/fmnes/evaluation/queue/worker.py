"""A worker of a queue: claims points, evaluates them in isolation, and answers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fmnes.errors import ArgumentError, RunError
from fmnes.evaluation.evaluator import Evaluator, Task, evaluate_all
from fmnes.evaluation.objective import Named
from fmnes.evaluation.programs.command import Command, check_runnable
from fmnes.evaluation.queue import files
from fmnes.evaluation.queue.file_queue import Fingerprint, differences, fingerprint
from fmnes.evaluation.queue.files import Name
from fmnes.outcome import Outcome
from fmnes.result import Vector

# -- Claims


_WORDS = b"a worker of fmnes; it is gone as soon as the worker is\n"


class Claims:
    """One worker's claims: at most one task at a time, claimed by a rename. A thread sends heartbeats."""

    def __init__(
        self, directory: Path, worker: str, seconds: float, withdrawn: Callable[[Name], None]
    ) -> None:
        """seconds: between heartbeats. withdrawn: called by the thread if a claim is gone."""
        self._open, self._claimed, self._workers = (
            directory / name for name in (files.OPEN, files.CLAIMED, files.WORKERS)
        )
        self.worker = worker
        self.seconds = seconds
        self._withdrawn = withdrawn
        self._waiting: list[Name] = []
        """Open tasks of the last listing."""
        self._lock = threading.Lock()
        self._held: Name | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Register the worker and start the heartbeats; a second call does nothing."""
        if self._thread is not None:
            return
        files.write(self._workers, self.worker, _WORDS)
        self._thread = threading.Thread(target=self._send_heartbeats, name="fmnes heartbeat", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        files.remove(self._workers / self.worker)

    def claim(self) -> Name | None:
        """Claim an open task; None if there is none.

        One listing serves several claims, in random order, so that workers rarely compete for one task.
        """
        for fresh in (False, True):
            if fresh:
                self._waiting = [name for text in os.listdir(self._open) if (name := files.read_task(text))]
                random.shuffle(self._waiting)
            while self._waiting:
                name = self._waiting.pop()
                claimed = name._replace(worker=self.worker)
                if self._rename(self._open / str(name), self._claimed / str(claimed)):
                    files.heartbeat(self._claimed, str(claimed))  # the file may be older than a lease
                    with self._lock:
                        self._held = claimed
                    return claimed
        return None

    def path(self, name: Name) -> Path:
        return self._claimed / str(name)

    def let_go(self) -> Name | None:
        """Stop the heartbeats of the claim and return its name; the file stays."""
        with self._lock:
            held, self._held = self._held, None
        return held

    def give_back(self) -> None:
        """Open the task for other workers."""
        held = self.let_go()
        if held is not None:
            self._rename(self.path(held), self._open / str(held._replace(worker="")))

    def drop(self, name: Name) -> None:
        files.remove(self.path(name))

    def _rename(self, source: Path, target: Path) -> bool:
        try:
            os.rename(source, target)
        except FileNotFoundError:
            # A network file system that repeats its request may report this for a rename that succeeded.
            return os.path.lexists(target)
        return True

    def _send_heartbeats(self) -> None:
        while not self._over.wait(self.seconds):
            with contextlib.suppress(OSError):  # the disk may fail temporarily
                if not files.heartbeat(self._workers, self.worker):  # counted as dead after a suspension
                    files.write(self._workers, self.worker, _WORDS)
                with self._lock:
                    if self._held is None or files.heartbeat(self._claimed, str(self._held)):
                        continue
                    # Handed out again? If no other worker has claimed it, keep it.
                    again = self._held._replace(handout=self._held.handout + 1)
                    if self._rename(self._open / str(again._replace(worker="")), self._claimed / str(again)):
                        self._held = again
                    else:
                        lost, self._held = self._held, None
                        self._withdrawn(lost)


# -- Signals
#
# A batch system ends a job with SIGTERM; Ctrl-C is SIGINT. A signal raises an exception only inside of
# `interruptible`. Elsewhere it is only recorded, so that no claim or answer is left incomplete.


T = TypeVar("T")

_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
#: Sent by the heartbeat thread to the main thread.
_WITHDRAWN = getattr(signal, "SIGUSR1", None)


class _Interrupted(BaseException):
    """Raised by a signal handler; caught in this file."""


class Signals:
    """A context manager that handles signals, for the main thread."""

    def __init__(self) -> None:
        self.ended = 0
        """The signal that ended the worker; 0 for none."""
        self._waiting = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in _ENDINGS:
            self._handlers[number] = signal.signal(number, self._end)
        if _WITHDRAWN:
            self._handlers[_WITHDRAWN] = signal.signal(_WITHDRAWN, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def name(self) -> str:
        return signal.Signals(self.ended).name

    def interruptible(self, act: Callable[[], T]) -> T | None:
        """Return the result of `act`; None if a signal came first."""
        result: T | None = None
        try:
            try:
                self._waiting = True
                if not self.ended:
                    result = act()
            finally:
                self._waiting = False
        except _Interrupted:
            pass
        return result

    def withdraw(self, name: Name) -> None:
        """Interrupt the running evaluation, from another thread."""
        if _WITHDRAWN:
            signal.pthread_kill(threading.main_thread().ident or 0, _WITHDRAWN)

    def _end(self, number: int, _: object) -> None:
        self.ended = number
        self._interrupt()

    def _interrupt(self, *_: object) -> None:
        if self._waiting:
            self._waiting = False
            raise _Interrupted


# -- The worker
#
# Evaluations run as with `workers=` or `Command`, in processes of their own, so that the worker survives a
# crash or a hang. The worker takes only points from the directory; the objective is its own.


#: Seconds that a worker waits for a driver: the first one, and the next one after a run has ended.
IDLE_SECONDS, OVER_SECONDS = 600.0, 60.0
#: A batch system that killed an evaluation may end this worker next: seconds to wait for that signal.
_SIGNAL_SECONDS = 1.0
#: Pause after a lost evaluation, which may be this machine's fault; doubles each time.
_LOST_SECONDS, _LOST_MOST = 0.5, 60.0
#: Answers of evaluations longer than this are synced to disk.
_PRECIOUS_SECONDS = 1.0
#: Attempts to write an answer, with pauses that double from one second.
_WRITES = 6


class WorkerSummary(NamedTuple):
    """How a worker ended."""

    why: str
    evaluations: int
    signal: int = 0


def work(
    directory: Path,
    objective: Any,
    *,
    idle: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> WorkerSummary:
    """Work for the queue in `directory` until its run has ended, or a signal comes. In the main thread only.

    idle: seconds to wait for a driver; by default IDLE_SECONDS, or OVER_SECONDS after the last one's end.
    say: called with one line for each event. Raises ArgumentError if the queue has another objective.
    """
    with Signals() as signals:
        worker = _Worker(directory.absolute(), objective, idle, say, signals)
        try:
            why = worker.run()
        finally:
            worker.close()
    if signals.ended:
        why = f"ended by {signals.name}; what it was working on is given back"
    return WorkerSummary(why, worker.made, signals.ended)


class _Worker:
    def __init__(
        self,
        directory: Path,
        objective: Any,
        idle: float | None,
        say: Callable[[str], None],
        signals: Signals,
    ) -> None:
        self._directory = directory
        self._objective = objective
        self._ours = fingerprint(objective)
        self._idle = idle
        self._say = say
        self._signals = signals
        self._claims = Claims(directory, files.new_worker(), 1.0, signals.withdraw)
        self._evaluator: Evaluator | None = None
        self._job: files.Job | None = None
        self._job_id = ""
        self._job_change: Any = None
        self._lost = 0
        """Consecutive lost evaluations."""
        self.made = 0

    def close(self) -> None:
        self._claims.give_back()
        self._claims.end()
        if self._evaluator is not None:
            self._evaluator.close()

    def run(self) -> str:
        """Work until the end, and return why it ended."""
        self._say(f"worker {self._claims.worker} waits for work in {self._directory}")
        since, driver, pauses = time.monotonic(), None, files.PollBackoff()
        while not self._signals.ended:
            name = self._claim()
            if name is not None:
                self._take(name)
                pauses.happened()
                since = time.monotonic()
                continue
            alive = files.last_change(self._directory / files.DRIVER)
            if self._update_job() or alive != driver:
                since, driver = time.monotonic(), alive
            over = self._job is not None and self._job.over
            patience = (OVER_SECONDS if over else IDLE_SECONDS) if self._idle is None else self._idle
            if time.monotonic() - since >= patience:
                return "the run has ended" if over else f"no driver gave a sign of life for {patience:g} s"
            self._signals.interruptible(lambda: time.sleep(pauses.next()))
        return ""

    def _update_job(self) -> bool:
        """Read the job if it changed; whether it did. Raises ArgumentError for another objective."""
        if self._job is None and not files.is_queue(self._directory):
            _refuse_foreign(self._directory)
            return False
        last_change = files.last_change(self._directory / files.JOB)
        if last_change is None or last_change == self._job_change:
            return False
        job = files.read_job(self._directory)
        if job is None:
            return False
        self._job_change = last_change
        if not job.over:
            self._accept(job)
        self._job = job
        return True

    def _accept(self, job: files.Job) -> None:
        if differing := differences(self._ours, job.objective):
            raise ArgumentError(_refusal(self._directory, self._ours, job.objective, differing))
        self._claims.seconds = files.heartbeat_seconds(job.lease)
        if job.id != self._job_id:
            if self._evaluator is not None:
                self._evaluator.close()
            self._evaluator = make_evaluator(self._objective, job, self._directory)
            self._job_id = job.id
        files.check_folders(self._directory)
        try:
            self._claims.begin()
        except OSError as error:
            raise RunError(f"{self._directory}: the worker could not be registered ({error})") from None

    def _claim(self) -> Name | None:
        if self._job is None or self._job.over:
            return None
        try:
            return self._claims.claim()
        except OSError:  # the directory may come back; otherwise the wait for a driver times out
            return None

    def _take(self, name: Name) -> None:
        """Evaluate a claimed task and answer, or give it back."""
        assert self._job is not None
        try:
            data = files.read(self._claims.path(name), files.max_task(self._job.d))
            job, x = files.load_task(data, name.key, self._job.d)
            if job != self._job_id:
                raise ValueError("a task of another job")
        except (OSError, ValueError) as error:
            if self._update_job():  # there is a new driver
                return self._claims.give_back()
            self._say(f"the task {name} cannot be used: {error}")
            return self._claims.drop(self._claims.let_go() or name)
        task = Task(x, name.key)
        outcome = self._signals.interruptible(lambda: self._evaluate(task))
        if outcome is not None and outcome.status == "lost" and outcome.fault:
            self._signals.interruptible(lambda: time.sleep(_SIGNAL_SECONDS))
        if self._signals.ended and (outcome is None or outcome.status == "lost"):
            return self._claims.give_back()
        if outcome is not None:  # else it was withdrawn
            self._answer(name, x, outcome)

    def _evaluate(self, task: Task) -> Outcome | None:
        assert self._evaluator is not None
        with closing(evaluate_all(self._evaluator, [task])) as finished:
            for _, outcome in finished:
                return outcome
        return None

    def _answer(self, name: Name, x: Vector, outcome: Outcome) -> None:
        """Write the answer, even without a claim: the driver takes the first answer."""
        data = files.dump_answer(self._job_id, name.key, x, outcome)
        durable = outcome.seconds > _PRECIOUS_SECONDS
        for left in reversed(range(_WRITES)):
            try:
                files.write(self._directory / files.ANSWERS, str(name), data, durable=durable)
                break
            except OSError as error:
                if not left:
                    raise RunError(f"{self._directory}: the answer could not be written ({error})") from None
                time.sleep(2.0 ** (_WRITES - 1 - left))
        self._claims.drop(self._claims.let_go() or name)
        self.made += 1
        self._lost = self._lost + 1 if outcome.status == "lost" else 0
        if self._lost:
            pause = min(_LOST_SECONDS * 2.0 ** min(self._lost - 1, 20), _LOST_MOST)
            self._signals.interruptible(lambda: time.sleep(pause))


def make_evaluator(objective: Any, job: files.Job, directory: Path) -> Evaluator:
    """Return the evaluator of a worker: one point at a time, in a process of its own."""
    space = job.space
    if isinstance(objective, Command):
        from fmnes.evaluation.programs.runner import CommandEvaluator

        command = replace(objective, timeout=job.timeout)
        check_runnable(command, job.d, None if space is None else space.named(np.zeros(job.d)))
        kept_in = str(directory / files.KEPT)
        return CommandEvaluator(command, 1, kept_in, named=None if space is None else space.named)
    from fmnes.evaluation.workers.pool import Workers

    fun = objective if space is None else Named(objective, space, False)
    return Workers(fun, 1, timeout=job.timeout)


def _refusal(directory: Path, ours: Fingerprint, theirs: Fingerprint, differing: str) -> str:
    return (
        f"objective: found {ours.name!r} (hash {ours.hash[:12]}), wanted {theirs.name!r} (hash "
        f"{theirs.hash[:12]}), which the driver of {directory} minimises: another {differing}. The hash is "
        "that of a function's source text and arguments, or of a program's command and templates; start the "
        "worker with the driver's own"
    )


def _refuse_foreign(directory: Path) -> None:
    """Raise RunError for a directory in which no driver can create a queue."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{directory}: found {error.strerror!r}, wanted the directory of a queue") from None
    foreign = [name for name in names if not files.is_unfinished(name) and name != files.MARK]
    if foreign and not files.is_queue(directory):
        raise RunError(
            f"{directory}: found {foreign[0]!r} and no {files.MARK}, wanted the directory of a queue"
        )
