"""The driver's side of a queue: hands out points, collects answers, replaces dead workers."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmnes.errors import RunError, StorageError, logger, one_line, waiting
from fmnes.evaluation.evaluator import Outcomes, Task, TaskSource
from fmnes.evaluation.queue import files
from fmnes.evaluation.queue.files import Name
from fmnes.evaluation.supervision import AwakeClock
from fmnes.outcome import EvaluationId, Outcome, lost
from fmnes.result import Vector
from fmnes.storage.lock import RunLock

# -- Live workers
#
# A worker touches its files every few seconds. The observer notes on its own clock, which stops while it is
# suspended, when it last saw a file change: the clocks of two machines are never compared.


class StalenessTracker:
    """Tracks how long each file has not changed."""

    def __init__(self, clock: AwakeClock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Any, float]] = {}

    def of(self, path: Path) -> float:
        """Return the seconds since the last change that was seen; 0 if the file is gone."""
        found, now = files.last_change(path), self._clock.now()
        if found is None:
            return 0.0
        before, since = self._seen.get(path.name, (None, now))
        if found != before:
            since = now
        self._seen[path.name] = found, since
        return now - since

    def keep(self, names: Collection[str]) -> None:
        """Forget all other files."""
        for name in [name for name in self._seen if name not in names]:
            del self._seen[name]


class LiveWorkers:
    """The workers that have registered in a queue's directory and send heartbeats."""

    def __init__(self, directory: Path, lease: float, clock: AwakeClock) -> None:
        self._folder = directory / files.WORKERS
        self._lease = lease
        self._silences = StalenessTracker(clock)

    def count(self) -> int | None:
        """Count live workers and remove the files of dead ones; None if there is no queue yet."""
        try:
            names = [name for name in os.listdir(self._folder) if files.is_worker(name)]
        except OSError:
            return None
        alive = 0
        for name in names:
            if self._silences.of(self._folder / name) < self._lease:
                alive += 1
            else:  # a worker that was only suspended registers again
                files.remove(self._folder / name)
        self._silences.keep(names)
        return alive


# -- The driver
#
# Only this class decides what the death of a worker means. A worker without a heartbeat for one lease has
# vanished; its point is handed out again at once, which does not count as a retry. After VANISHED different
# workers have vanished on a point, its evaluation is lost: it is repeated up to `retries` times, then the run
# stops and can be resumed. So one point cannot take down all machines, and it is never marked as failed for
# that. A worker that is asked to end returns its point, which is not counted.


#: The evaluation of a point is lost after this number of workers have vanished on it.
VANISHED = 3
#: Seconds without a worker before the first warning, and between later ones.
ALONE_SECONDS, ALONE_AGAIN = 10.0, 600.0
#: Seconds without an answer before the driver tests that one can be written; doubles up to the maximum.
PROBE_SECONDS, PROBE_MOST = 5.0, 60.0
#: Bytes written by that test, about the size of the largest answer.
PROBE_BYTES = 65_536


@dataclass
class _PendingTask:
    """A point that was handed out."""

    x: Vector
    since: float
    """When it was last seen in the queue."""
    handout: int = 0
    answer: Name | None = None
    """The answer's file, after it was read."""
    vanished: list[str] = field(default_factory=list)
    """Workers that vanished while they evaluated it."""


class QueueDriver:
    """Hands out points and collects answers; needs the directory's lock. Points are identified by keys.

    submit, poll and withdraw may be called in any order. An answer stays on disk until `forget`: if the
    driver is killed before the answer is in the log, the next driver finds it.
    """

    def __init__(
        self,
        directory: Path,
        job: files.Job,
        workers: LiveWorkers,
        clock: AwakeClock,
        *,
        call: str = "fmnes worker",
        resumed: bool = False,
    ) -> None:
        """call: the command line of a worker. resumed: an earlier driver may have left answers."""
        self._directory = directory
        self._job, self._id = job, job.id
        self._workers = workers
        self._clock = clock
        self._call = call
        self._open, self._claimed, self._answers = (
            directory / name for name in (files.OPEN, files.CLAIMED, files.ANSWERS)
        )
        self._wanted: dict[EvaluationId, _PendingTask] = {}
        self._given_up: list[tuple[EvaluationId, Outcome]] = []
        self._unusable: set[Name] = set()
        """Invalid answers that cannot be removed."""
        self._silences = StalenessTracker(clock)
        self._next_look = clock.now()
        self._probe_pause = PROBE_SECONDS
        self._next_probe = clock.now() + PROBE_SECONDS
        self._alone_since: float | None = None
        self._warned_at = 0.0
        self._left: dict[EvaluationId, list[Name]] = {}
        """Claims and answers that a killed driver of the same run left, until they are used."""
        with self._storing():
            self._take_over(resumed)
            files.write_job(directory, job)
            files.write(directory, files.DRIVER, b"")
        self._job_change = files.last_change(directory / files.JOB)

    def submit(self, key: EvaluationId, x: Vector) -> None:
        wanted = self._wanted[key] = _PendingTask(x, self._clock.now())
        with self._storing():
            for name in self._left.pop(key, []):
                if self._is_of_use(name, x):
                    wanted.handout = name.handout
                    return
            self._hand_out(key, wanted)

    def poll(self) -> list[tuple[EvaluationId, Outcome]]:
        """Return new outcomes; regularly check the workers, too."""
        with self._storing():
            found = self._collect()
            now = self._clock.now()
            if found:  # answers can be written
                self._probe_pause = PROBE_SECONDS
                self._next_probe = now + self._probe_pause
            elif now >= self._next_probe:
                self._probe()
                self._probe_pause = min(2 * self._probe_pause, PROBE_MOST)
                self._next_probe = now + self._probe_pause
            if now >= self._next_look:
                self._look_after()
                self._next_look = self._clock.now() + files.heartbeat_seconds(self._job.lease)
        found += self._given_up
        self._given_up = []
        return found

    def count_workers(self) -> int | None:
        return self._workers.count()

    def forget(self, key: EvaluationId) -> None:
        """Delete the answer of a point: its outcome is in the log."""
        wanted = self._wanted.pop(key, None)
        if wanted is None:
            return
        if wanted.handout:  # another worker may be about to claim it
            files.remove(self._open / str(Name(key, wanted.handout)))
        if wanted.answer:
            files.remove(self._answers / str(wanted.answer))

    def withdraw(self, keys: Iterable[EvaluationId]) -> None:
        """Cancel these points. Their workers notice that the claim is gone."""
        gone = {key: wanted for key in keys if (wanted := self._wanted.pop(key, None)) is not None}
        for key, wanted in gone.items():
            files.remove(self._open / str(Name(key, wanted.handout)))
            if wanted.answer:
                files.remove(self._answers / str(wanted.answer))
        if gone:
            with contextlib.suppress(OSError):
                for name in self._names(self._claimed):
                    if name.key in gone:
                        files.remove(self._claimed / str(name))

    def close(self) -> None:
        """Remove all tasks and mark the job as over: the workers end soon."""
        self._wanted.clear()
        self._left.clear()
        with contextlib.suppress(OSError, RunError):  # the directory may be gone, full or taken over
            if self._is_ours():
                self._clear()
                files.write_job(self._directory, self._job._replace(over=True))

    def _collect(self) -> list[tuple[EvaluationId, Outcome]]:
        found = []
        for name in self._names(self._answers):
            wanted = self._wanted.get(name.key)
            if wanted is None:
                if name.key not in self._left:  # late: answered by another worker, or withdrawn
                    files.remove(self._answers / str(name))
            elif wanted.answer is None and name not in self._unusable:
                try:
                    outcome = self._read(name, wanted.x)
                except FileNotFoundError:
                    continue
                except (OSError, ValueError) as error:
                    if not files.remove(self._answers / str(name)):
                        self._unusable.add(name)
                    self._give_up(name, wanted, f"its answer cannot be used ({error})")
                else:
                    wanted.answer = name
                    found.append((name.key, outcome))
        return found

    def _read(self, name: Name, x: Vector) -> Outcome:
        return files.load_answer(
            files.read(self._answers / str(name), files.MAX_ANSWER), self._id, name.key, x
        )

    def _probe(self) -> None:
        """Raise StorageError if workers cannot write answers: they end then, and the driver would hang."""
        try:
            files.probe(self._answers, PROBE_BYTES)
        except OSError as error:
            raise StorageError(
                f"{self._answers}: found that {PROBE_BYTES} bytes cannot be written ({error.strerror}), so "
                "workers cannot answer; wanted room for answers: free some space, then resume the run"
            ) from error

    def _look_after(self) -> None:
        files.heartbeat(self._directory, files.DRIVER)
        if not self._is_ours():
            raise StorageError(
                f"{self._directory}: found another driver in it, although this one holds its lock; this file "
                "system cannot keep a queue to one driver, wanted another directory for each"
            )
        now = self._clock.now()
        unclaimed = {name.key for name in self._names(self._open, files.read_task)}
        claims = self._names(self._claimed)
        for name in claims:
            wanted = self._wanted.get(name.key)
            if wanted is None or wanted.answer or name.handout != wanted.handout:
                if name.key not in self._left:
                    files.remove(self._claimed / str(name))
            elif self._silences.of(self._claimed / str(name)) >= self._job.lease:
                files.remove(self._claimed / str(name))
                self._give_up(name, wanted, f"no sign of life for {self._job.lease:g} s")
            else:
                wanted.since = now
        self._silences.keep({str(name) for name in claims})
        for key, wanted in list(self._wanted.items()):
            if wanted.answer or key in unclaimed:
                wanted.since = now
            elif now - wanted.since >= self._job.lease and key in self._wanted:
                # Neither open nor claimed nor answered: its file was deleted from outside.
                self._hand_out_again(key, wanted)
        self._warn_if_alone(now)

    def _give_up(self, name: Name, wanted: _PendingTask, why: str) -> None:
        """Hand out the point of a dead worker again, or give it up as lost."""
        logger.warning("worker %s is given up for a point: %s", name.worker, one_line(why))
        # One worker may be suspended repeatedly, but repeated invalid answers must end, too.
        wanted.vanished.append(name.worker)
        if len(set(wanted.vanished)) >= VANISHED or len(wanted.vanished) >= 10 * VANISHED:
            self._wanted.pop(name.key)
            words = (
                f"{len(set(wanted.vanished))} workers vanished on this point, the last: {name.worker}: {why}"
            )
            self._given_up.append((name.key, lost(words)))
        else:
            self._hand_out_again(name.key, wanted)

    def _hand_out_again(self, key: EvaluationId, wanted: _PendingTask) -> None:
        wanted.handout += 1
        wanted.since = self._clock.now()
        self._hand_out(key, wanted)

    def _hand_out(self, key: EvaluationId, wanted: _PendingTask) -> None:
        files.write(self._open, str(Name(key, wanted.handout)), files.dump_task(self._id, key, wanted.x))

    def _warn_if_alone(self, now: float) -> None:
        if self._workers.count() or not self._wanted:
            self._alone_since, self._warned_at = None, 0.0
            return
        if self._alone_since is None:
            self._alone_since = now
        alone = now - self._alone_since
        if alone >= self._warned_at + (ALONE_AGAIN if self._warned_at else ALONE_SECONDS):
            self._warned_at = alone
            waiting.warning(
                "no worker is there, and %d points wait for one since %.0f s; to start one:  %s",
                len(self._wanted),
                alone,
                one_line(self._call),
            )

    def _take_over(self, resumed: bool) -> None:
        """Keep claims and answers that an earlier driver of the same run left; delete everything else."""
        try:
            before = files.read_job(self._directory)
        except RunError:
            before = None
        if not resumed or before is None or (before.id, before.run) != (self._id, self._job.run):
            return self._clear()
        # The order matters: a task that is no longer open is claimed or answered.
        for name in self._names(self._open, files.read_task):
            files.remove(self._open / str(name))
        for folder in (self._claimed, self._answers):
            for name in self._names(folder):
                self._left.setdefault(name.key, []).append(name)

    def _is_of_use(self, name: Name, x: Vector) -> bool:
        """Whether this claim or answer of an earlier driver is for this point; delete it if not."""
        with contextlib.suppress(OSError, ValueError):
            self._read(name, x)
            return True
        with contextlib.suppress(OSError, ValueError):
            data = files.read(self._claimed / str(name), files.max_task(len(x)))
            job, point = files.load_task(data, name.key, len(x))
            if job == self._id and point.tobytes() == x.tobytes():
                return True
        files.remove(self._claimed / str(name))
        files.remove(self._answers / str(name))
        return False

    def _clear(self) -> None:
        for folder, read in (
            (self._open, files.read_task),
            (self._claimed, files.read_claim),
            (self._answers, files.read_claim),
        ):
            for text in os.listdir(folder):
                if read(text) or files.is_unfinished(text):
                    files.remove(folder / text)

    def _is_ours(self) -> bool:
        """Whether the job still names this driver."""
        changed = files.last_change(self._directory / files.JOB)
        if changed == self._job_change:
            return True
        found = files.read_job(self._directory)
        if found is None or found.driver != self._job.driver:
            return False
        self._job_change = changed
        return True

    def _names(self, folder: Path, read: Callable[[str], Name | None] = files.read_claim) -> list[Name]:
        """List the valid names in a folder, in no particular order."""
        return [name for text in os.listdir(folder) if (name := read(text)) is not None]

    @contextlib.contextmanager
    def _storing(self) -> Iterator[None]:
        """Turn OSError into StorageError, which stops the run so that it can be resumed."""
        try:
            yield
        except OSError as error:
            raise StorageError(f"{self._directory}: the queue cannot be used ({error})") from error


class QueueEvaluator:
    """Evaluates tasks through a QueueDriver."""

    def __init__(self, driver: QueueDriver, lock: RunLock) -> None:
        self._driver = driver
        self._lock = lock
        self._closed = False

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        driver = self._driver
        pending: dict[EvaluationId, Task] = {}
        pauses = files.PollBackoff()
        try:
            while True:
                room = math.inf if tasks.may_wait else driver.count_workers() or math.inf
                while len(pending) < room and (task := tasks.take()) is not None:
                    pending[task.id] = task
                    driver.submit(task.id, task.x)
                if not pending:
                    return
                found = [(key, outcome) for key, outcome in driver.poll() if key in pending]
                for key, outcome in found:
                    yield pending[key], outcome
                    del pending[key]
                    driver.forget(key)
                if self._closed or (deadline is not None and time.monotonic() >= deadline):
                    return
                if found:
                    pauses.happened(len(found))
                    if not (pending and tasks.may_wait):
                        continue  # finished, or more tasks can be handed out
                left = pauses.next()
                time.sleep(left if deadline is None else max(0.0, min(left, deadline - time.monotonic())))
        finally:
            driver.withdraw(list(pending))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._driver.close()
            self._lock.release()
