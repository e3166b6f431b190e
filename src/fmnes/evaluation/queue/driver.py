"""The driver's side of a queue: hands out points, collects answers, replaces dead workers."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmnes._logging import logger, one_line, waiting
from fmnes.errors import RunError, StorageError
from fmnes.evaluation.evaluator import Outcomes, Task, TaskStream, further
from fmnes.evaluation.queue import files
from fmnes.evaluation.queue.files import (
    MAX_ANSWER,
    WORKERS,
    Job,
    Key,
    Name,
    PollBackoff,
    beat_seconds,
    dump_task,
    is_worker,
    last_change,
    load_answer,
    load_task,
    max_task,
    read_job,
    remove,
    write_job,
)
from fmnes.evaluation.supervision import AwakeClock
from fmnes.outcome import Outcome, lost
from fmnes.result import Vector
from fmnes.storage.lock import RunLock

# -- Who is still there: by signs of life that change, never by what time it is elsewhere.
#
# A worker touches its files every few seconds. Whoever watches notes when it last saw one change, on its
# own
# clock: the clocks of two machines are never compared. While the watcher itself sleeps its clock stands
# still.


class StalenessTracker:
    """For how long each of some files has not changed."""

    def __init__(self, clock: AwakeClock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Any, float]] = {}

    def of(self, path: Path) -> float:
        """Seconds since it was first seen as it is; 0 for one that is gone."""
        found, now = last_change(path), self._clock.now()
        if found is None:
            return 0.0
        before, since = self._seen.get(path.name, (None, now))
        if found != before:
            since = now
        self._seen[path.name] = found, since
        return now - since

    def keep(self, names: Collection[str]) -> None:
        """Forget all others."""
        for name in [name for name in self._seen if name not in names]:
            del self._seen[name]


class LiveWorkers:
    """The workers that have registered in a queue's directory and give signs of life."""

    def __init__(self, place: Path, lease: float, clock: AwakeClock) -> None:
        self._folder = place / WORKERS
        self._lease = lease
        self._silences = StalenessTracker(clock)

    def count(self) -> int | None:
        """How many, as far as one knows; None where there is no queue yet. The dead are struck off."""
        try:
            names = [name for name in os.listdir(self._folder) if is_worker(name)]
        except OSError:
            return None
        alive = 0
        for name in names:
            if self._silences.of(self._folder / name) < self._lease:
                alive += 1
            else:  # who was only suspended registers anew
                remove(self._folder / name)
        self._silences.keep(names)
        return alive


# -- The driver's side of a queue: points are handed out, answers are collected, dead workers are
# replaced.
#
# What the death of a worker means is decided here and nowhere else. A worker that gives no sign of life for
# a
# lease has vanished, and its point is handed out anew at once, at no cost to `retries`: machines die, and
# the
# others go on. A point on which as many as VANISHED different workers have vanished is lost, as if the
# evaluation had said so: the loop tries it again as often as `retries` says, and then the run stops,
# resumable.
# So no point can take the machines down one by one for ever, and none is ever failed for it. A worker that
# is
# told to end gives its point back itself, which counts for nothing.


#: So many workers may vanish on one try of a point before it is lost.
VANISHED = 3
#: Seconds without a worker after which somebody is told, and again after so many more.
ALONE_SECONDS, ALONE_AGAIN = 10.0, 600.0
#: Seconds without an answer after which the driver checks that one can be written; doubles, up to the second.
PROBE_SECONDS, PROBE_MOST = 5.0, 60.0
#: Bytes that it writes for that: as many as the longest answer of a worker has.
PROBE_BYTES = 65_536


@dataclass
class _PendingTask:
    """A point that is handed out."""

    x: Vector
    since: float
    """When it was last seen in the queue."""
    handout: int = 0
    answer: Name | None = None
    """Its file, which has been read."""
    vanished: list[str] = field(default_factory=list)
    """Workers that did, with the point in their hands."""


class QueueDriver:
    """Who has locked the directory has one of these. Points are known by their keys.

    submit, poll and withdraw may be called in any order. An answer stays on disk until `forget`: if we are
    killed before it is in the log, the next driver finds it.
    """

    def __init__(
        self,
        directory: Path,
        job: Job,
        crew: LiveWorkers,
        clock: AwakeClock,
        *,
        call: str = "fmnes worker",
        resumed: bool = False,
    ) -> None:
        """call: the line that starts a worker. resumed: a driver before us may have left answers."""
        self._directory = directory
        self._job, self._id = job, job.id
        self._crew = crew
        self._clock = clock
        self._call = call
        self._open, self._claimed, self._answers = (
            directory / name for name in (files.OPEN, files.CLAIMED, files.ANSWERS)
        )
        self._wanted: dict[Key, _PendingTask] = {}
        self._given_up: list[tuple[Key, Outcome]] = []
        self._unusable: set[Name] = set()
        """Answers that are none and cannot be removed."""
        self._silences = StalenessTracker(clock)
        self._next_look = clock.now()
        self._probe_pause = PROBE_SECONDS
        self._next_probe = clock.now() + PROBE_SECONDS
        self._alone_since: float | None = None
        self._told = 0.0
        self._left: dict[Key, list[Name]] = {}
        """What a driver that was killed has left of the same run: claims and answers, until they are used."""
        with self._storing():
            self._take_over(resumed)
            write_job(directory, job)
            files.write(directory, files.DRIVER, b"")
        self._job_pulse = files.last_change(directory / files.JOB)

    # -- the three steps ----------------------------------------------------------------------------------

    def submit(self, key: Key, x: Vector) -> None:
        wanted = self._wanted[key] = _PendingTask(x, self._clock.now())
        with self._storing():
            for name in self._left.pop(key, []):
                if self._is_of_use(name, x):
                    wanted.handout = name.handout
                    return
            self._hand_out(key, wanted)

    def poll(self) -> list[tuple[Key, Outcome]]:
        """What has come in since the last time. Looks after the workers, too, now and then."""
        with self._storing():
            found = self._collect()
            now = self._clock.now()
            if found:  # so answers can be written
                self._probe_pause = PROBE_SECONDS
                self._next_probe = now + self._probe_pause
            elif now >= self._next_probe:
                self._probe()
                self._probe_pause = min(2 * self._probe_pause, PROBE_MOST)
                self._next_probe = now + self._probe_pause
            if now >= self._next_look:
                self._look_after()
                self._next_look = self._clock.now() + beat_seconds(self._job.lease)
        found += self._given_up
        self._given_up = []
        return found

    def count_workers(self) -> int | None:
        return self._crew.count()

    def forget(self, key: Key) -> None:
        """Its outcome is safe."""
        wanted = self._wanted.pop(key, None)
        if wanted is None:
            return
        if wanted.handout:  # somebody else may be about to take it up
            files.remove(self._open / str(Name(key, wanted.handout)))
        if wanted.answer:
            files.remove(self._answers / str(wanted.answer))

    def withdraw(self, keys: Iterable[Key]) -> None:
        """Nobody wants these any more. Who works on one sees that its claim is gone."""
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
        """Leave nothing to do, and say so: the workers end soon."""
        self._wanted.clear()
        self._left.clear()
        with contextlib.suppress(OSError, RunError):  # the directory may be gone, or full, or another's
            if self._is_ours():
                self._clear()
                write_job(self._directory, self._job._replace(over=True))

    # -- answers ------------------------------------------------------------------------------------------

    def _collect(self) -> list[tuple[Key, Outcome]]:
        found = []
        for name in self._names(self._answers):
            wanted = self._wanted.get(name.key)
            if wanted is None:
                if name.key not in self._left:  # late: somebody else was quicker, or nobody asks any more
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
        return load_answer(files.read(self._answers / str(name), MAX_ANSWER), self._id, name.key, x)

    def _probe(self) -> None:
        """Can a worker write its answer? If not, it ends, and the driver would wait for ever."""
        try:
            files.probe(self._answers, PROBE_BYTES)
        except OSError as error:
            raise StorageError(
                f"{self._answers}: found that {PROBE_BYTES} bytes cannot be written ({error.strerror}), so "
                "workers cannot answer; wanted room for answers: free some space, then resume the run"
            ) from error

    # -- workers ------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        files.beat(self._directory, files.DRIVER)
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
                # Neither waiting nor claimed nor answered: somebody has deleted it.
                self._anew(key, wanted)
        self._tell_if_alone(now)

    def _give_up(self, name: Name, wanted: _PendingTask, why: str) -> None:
        """The worker has not answered, and will not."""
        logger.warning("worker %s is given up for a point: %s", name.worker, one_line(why))
        # The same one may be suspended and wake up many times; but it may not answer with nonsense so often.
        wanted.vanished.append(name.worker)
        if len(set(wanted.vanished)) >= VANISHED or len(wanted.vanished) >= 10 * VANISHED:
            self._wanted.pop(name.key)
            words = (
                f"{len(set(wanted.vanished))} workers vanished on this point, the last: {name.worker}: {why}"
            )
            self._given_up.append((name.key, lost(words)))
        else:
            self._anew(name.key, wanted)

    def _anew(self, key: Key, wanted: _PendingTask) -> None:
        wanted.handout += 1
        wanted.since = self._clock.now()
        self._hand_out(key, wanted)

    def _hand_out(self, key: Key, wanted: _PendingTask) -> None:
        files.write(self._open, str(Name(key, wanted.handout)), dump_task(self._id, key, wanted.x))

    def _tell_if_alone(self, now: float) -> None:
        if self._crew.count() or not self._wanted:
            self._alone_since, self._told = None, 0.0
            return
        if self._alone_since is None:
            self._alone_since = now
        alone = now - self._alone_since
        if alone >= self._told + (ALONE_AGAIN if self._told else ALONE_SECONDS):
            self._told = alone
            waiting.warning(
                "no worker is there, and %d points wait for one since %.0f s; to start one:  %s",
                len(self._wanted),
                alone,
                one_line(self._call),
            )

    # -- the directory ------------------------------------------------------------------------------------

    def _take_over(self, resumed: bool) -> None:
        """From a driver before us. What is left of the same run is used, all else is cleared away."""
        try:
            before = read_job(self._directory)
        except RunError:
            before = None
        if not resumed or before is None or (before.id, before.run) != (self._id, self._job.run):
            return self._clear()
        # In this order: what is not open any more is claimed, or answered since then.
        for name in self._names(self._open, files.read_task):
            files.remove(self._open / str(name))
        for folder in (self._claimed, self._answers):
            for name in self._names(folder):
                self._left.setdefault(name.key, []).append(name)

    def _is_of_use(self, name: Name, x: Vector) -> bool:
        """Whether this claim or answer, left by a driver before us, is of this point; if not, it goes."""
        with contextlib.suppress(OSError, ValueError):
            self._read(name, x)
            return True
        with contextlib.suppress(OSError, ValueError):
            data = files.read(self._claimed / str(name), max_task(len(x)))
            job, point = load_task(data, name.key, len(x))
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
        """Whether we are still the driver that the job names."""
        last_change = files.last_change(self._directory / files.JOB)
        if last_change == self._job_pulse:
            return True
        found = read_job(self._directory)
        if found is None or found.driver != self._job.driver:
            return False
        self._job_pulse = last_change
        return True

    def _names(self, folder: Path, read: Callable[[str], Name | None] = files.read_claim) -> list[Name]:
        """In no order. What is not called as ours is not ours."""
        return [name for text in os.listdir(folder) if (name := read(text)) is not None]

    @contextlib.contextmanager
    def _storing(self) -> Iterator[None]:
        """A disk that fails stops the run as a full one does; it can be resumed."""
        try:
            yield
        except OSError as error:
            raise StorageError(f"{self._directory}: the queue cannot be used ({error})") from error


# -- The evaluator of a queue: hand out, wait, take in. Who works on the points is not its business.


class QueueEvaluator:
    def __init__(self, board: QueueDriver, lock: RunLock) -> None:
        self._board = board
        self._lock = lock
        self._closed = False

    takes_ahead = True

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        board = self._board
        positions = {task.key: position for position, task in enumerate(tasks)}
        pauses = PollBackoff()
        try:
            for task in tasks:
                board.submit(task.key, task.x)
            while True:
                for position in further(tasks, self._room(tasks) - len(positions)):
                    positions[tasks[position].key] = position
                    board.submit(tasks[position].key, tasks[position].x)
                if not positions:
                    return
                found = [(key, outcome) for key, outcome in board.poll() if key in positions]
                for key, outcome in found:
                    yield positions[key], outcome
                    del positions[key]
                    board.forget(key)
                if self._closed or (deadline is not None and time.monotonic() >= deadline):
                    return
                if found:
                    pauses.happened(len(found))
                    if not positions or isinstance(tasks, TaskStream):
                        continue  # nothing is left to wait for, or there is more to hand out
                left = pauses.next()
                time.sleep(left if deadline is None else max(0.0, min(left, deadline - time.monotonic())))
        finally:
            board.withdraw(list(positions))

    def _room(self, tasks: Sequence[Task]) -> float:
        """How many tasks of a growing batch may be handed out: what waits long was drawn too early."""
        return (self._board.count_workers() or math.inf) if isinstance(tasks, TaskStream) else 0

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._board.close()
            self._lock.release()
