"""Files of a queue: their names, how they are read and written, the job, tasks and answers."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fmnes._files import replace_file
from fmnes.arguments import is_number
from fmnes.errors import ArgumentError, RunError
from fmnes.evaluation.exit_status import FROM_OUTSIDE
from fmnes.evaluation.queue.fingerprint import Fingerprint
from fmnes.outcome import DETAIL_LIMIT, Outcome, dump, load, read_json, read_outcome
from fmnes.result import Vector
from fmnes.space import Space

# -- What the files of a queue are called. A name says all that must be known before a file is opened.
#
#     open/0.12.3.0.0.h1                            a task that waits for a worker
#     claimed/0.12.3.0.0.h1@node7-4711-5f3a09c2     a worker has it
#     answers/0.12.3.0.0.h1@node7-4711-5f3a09c2     what came of it
#     workers/node7-4711-5f3a09c2                   a worker, while it lives
#
# The numbers are restart, generation, slot, redraw and attempt; h1 says that it was handed out once before.
# Two workers never write to one name. Whatever is called otherwise is not ours: it is neither read nor
# deleted.


#: Of an evaluation: restart, generation, slot, redraw, attempt.
Key = tuple[int, int, int, int, int]

#: Without zeros before it, so that there is one way to write a name.
_NUMBER = r"(0|[1-9]\d{0,17})"
_TASK = re.compile(
    rf"{_NUMBER}\.(-1|0|[1-9]\d{{0,17}})\.{_NUMBER}\.{_NUMBER}\.{_NUMBER}\.h{_NUMBER}", re.ASCII
)
_WORKER = re.compile(r"[A-Za-z0-9-]{1,60}-\d{1,10}-[0-9a-f]{8}", re.ASCII)
#: An unfinished write of ours.
_UNFINISHED = re.compile(r"\.[\w.@-]{1,200}\.[0-9a-f]{8}\.tmp", re.ASCII)


class Name(NamedTuple):
    """Of a task, of the claim of one, or of an answer."""

    key: Key
    handout: int
    """How often the task had been handed out before."""
    worker: str = ""

    def __str__(self) -> str:
        task = f"{'.'.join(map(str, self.key))}.h{self.handout}"
        return f"{task}@{self.worker}" if self.worker else task


def read_task(text: str) -> Name | None:
    """The name of an open task; None for what is none."""
    found = _TASK.fullmatch(text)
    if not found:
        return None
    restart, generation, slot, redraw, attempt, handout = map(int, found.groups())
    return Name((restart, generation, slot, redraw, attempt), handout)


def read_claim(text: str) -> Name | None:
    """The name of a claim or of an answer; None for what is none."""
    task, at, worker = text.partition("@")
    name = read_task(task)
    return name._replace(worker=worker) if at and name and is_worker(worker) else None


def is_worker(text: str) -> bool:
    return _WORKER.fullmatch(text) is not None


def is_unfinished(text: str) -> bool:
    return _UNFINISHED.fullmatch(text) is not None


def new_worker() -> str:
    """A name that nobody else has."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60] or "unnamed"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def new_unfinished(name: str) -> str:
    """Where a file is written before it gets its name."""
    return f".{name}.{secrets.token_hex(4)}.tmp"


# -- The directory of a queue: whether it is ours, and how its files are read, written and watched.
#
#     fmnes-queue.json   the mark: this directory is a queue of ours
#     job.json           what is evaluated, and for whom
#     driver             touched by the driver, now and then
#     lock               held by the driver
#     open/ claimed/ answers/ workers/ kept/
#
# Whoever may write to it may put anything there. So only plain files are read, and only so many bytes of
# them;
# a file is written under another name first, so that nobody sees half of it.


FORMAT, VERSION = "fmnes-queue", 1
MARK, JOB, DRIVER, LOCK = "fmnes-queue.json", "job.json", "driver", "lock"
OPEN, CLAIMED, ANSWERS, WORKERS, KEPT = "open", "claimed", "answers", "workers", "kept"
_FOLDERS = (OPEN, CLAIMED, ANSWERS, WORKERS)
_MAX_MARK = 10_000
#: No link is followed; and Windows changes the ends of lines unless told not to.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def make_place(path: Path) -> None:
    """Make a queue there, or check that there is one. Raises RunError for a directory of somebody else's."""
    try:
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)  # answers are believed: it is yours alone
        if not is_place(path):
            found = sorted(os.listdir(path))
            if found:
                raise RunError(
                    f"{path}: found {found[0]!r} and no {MARK}, wanted an empty directory, a new one, or one "
                    "that a queue was made in"
                )
            write(path, MARK, json.dumps({"format": FORMAT, "version": VERSION}).encode())
        for name in _FOLDERS:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path / name)
        check_place(path)
    except FileExistsError:
        raise RunError(f"{path}: found a file, wanted a directory or nothing") from None
    except OSError as error:
        raise RunError(f"{path}: no queue can be made there ({error})") from None


def is_place(path: Path) -> bool:
    """Whether somebody has made a queue there. Raises RunError for a mark that is not ours."""
    try:
        mark = read_json(read(path / MARK, _MAX_MARK))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise RunError(f"{path / MARK}: found a file that cannot be read ({error}), wanted ours") from None
    if not isinstance(mark, dict) or mark.get("format") != FORMAT:
        raise RunError(f"{path / MARK}: found a file that is not ours, wanted the mark of a queue")
    if mark.get("version") != VERSION:
        raise RunError(
            f"{path}: found a queue of version {str(mark.get('version'))[:20]}, wanted {VERSION}: the driver "
            "and its workers must have the same version of fmnes"
        )
    return True


def check_place(path: Path) -> None:
    """Raises RunError if a folder is something else: a link might lead anywhere."""
    for name in _FOLDERS:
        try:
            mode = os.lstat(path / name).st_mode
        except OSError as error:
            raise RunError(f"{path / name}: found {error.strerror!r}, wanted a folder of the queue") from None
        if not stat.S_ISDIR(mode):
            raise RunError(f"{path / name}: found something else, wanted a folder of the queue")


def read(path: str | Path, limit: int) -> bytes:
    """All of a plain file. Raises OSError for what is none, a link too, and for more than `limit` bytes."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _PLAIN)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        if status.st_size > limit:
            raise OSError(errno.EFBIG, "a file of unreasonable size")
        data = b""
        while chunk := os.read(descriptor, limit + 1 - len(data)):
            data += chunk
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise OSError(errno.EFBIG, "a file of unreasonable size")
    return data


def write(folder: str | Path, name: str, data: bytes, *, durable: bool = False) -> None:
    """A file that is there as a whole or not at all; durable: also after a power cut."""
    with _unfinished(folder, name, data, durable) as temporary:
        replace_file(temporary, os.path.join(folder, name))


def probe(folder: str | Path, size: int) -> None:
    """Raises OSError if no file of so many bytes can be written to the disk."""
    with _unfinished(folder, "probe", bytes(size), True) as temporary:
        os.unlink(temporary)


@contextlib.contextmanager
def _unfinished(folder: str | Path, name: str, data: bytes, durable: bool) -> Iterator[str]:
    """The path of a file with these data, which is removed if the block fails."""
    temporary = os.path.join(folder, new_unfinished(name))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o600)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)  # a network file system may say here that the disk is full
        yield temporary
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def beat(folder: Path, name: str) -> bool:
    """Give a sign of life: touch it. False if it is not there any more."""
    try:
        # Opened anew: a network file system asks its server then, and does not go by what it remembers.
        if os.utime in os.supports_dir_fd:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.utime(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)
        else:
            os.utime(folder / name)
    except FileNotFoundError:
        return False
    return True


def last_change(path: Path) -> Any:
    """What changes with every sign of life, to be compared with nothing but itself; None if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _PLAIN)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size
    finally:
        os.close(descriptor)


def remove(path: str | Path) -> bool:
    """Whether it was there, and is gone now."""
    try:
        os.unlink(path)
    except OSError:  # not there; or a folder, which we never make
        return False
    return True


# -- How long to wait before one looks again: an eighth of the time that it takes until something happens.
#
# So a look costs little beside what is waited for, whether that takes a millisecond or an hour.


LEAST, MOST = 0.001, 0.4
_SHARE = 8.0
#: What came after more than this was a straggler, and says nothing about the next.
_LONG = 1.0


class PollBackoff:
    def __init__(self) -> None:
        self._last = time.monotonic()
        self._usual = 0.0
        """Seconds from one event to the next, lately."""

    def happened(self, events: int = 1) -> None:
        now = time.monotonic()
        gap = min((now - self._last) / max(events, 1), _LONG)
        self._usual += 0.2 * (gap - self._usual)
        self._last = now

    def next(self) -> float:
        waited = time.monotonic() - self._last
        return min(max(waited / _SHARE, self._usual / _SHARE, LEAST), MOST)


# -- What is evaluated through a queue, and for whom: its file `job.json`, which the driver alone writes.


_MAX_BYTES = 256 * 2**20
#: Coordinates of a point: a file that wants more is not ours.
_MAX_DIMENSION = 2**31


class Job(NamedTuple):
    objective: Fingerprint
    d: int
    timeout: float | None
    """Seconds an evaluation may take."""
    lease: float
    """Seconds after which the driver gives up a worker that gives no sign of life."""
    space: Space | None
    """Named parameters, if it has some."""
    run: str = ""
    """The run directory, where the run can be resumed."""
    driver: str = ""
    """A name that no other driver has."""
    over: bool = False
    """The driver has ended, and left nothing to do."""

    @property
    def id(self) -> str:
        """The same for a run that is resumed: what was answered for this name is an answer."""
        names = None if self.space is None else self.space.as_json()
        text = json.dumps([self.objective.hash, self.d, self.timeout, names])
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        plain = self._asdict() | {"objective": self.objective.as_json()}
        plain["space"] = None if self.space is None else self.space.as_json()
        return plain


def new_driver() -> str:
    return secrets.token_hex(8)


def write_job(place: Path, job: Job) -> None:
    write(place, JOB, json.dumps(job.as_json()).encode(), durable=True)


def read_job(place: Path) -> Job | None:
    """None if there is none yet. Raises RunError for what no driver of ours has written."""
    try:
        data = read(place / JOB, _MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{place / JOB}: found a file that cannot be read ({error}), wanted ours") from None
    try:
        return _job(read_json(data))
    except (ValueError, ArgumentError) as error:
        raise RunError(f"{place / JOB}: found a file that is not ours ({error}), wanted a job") from None


def _job(found: Any) -> Job:
    """Raises ValueError or ArgumentError for what `as_json` does not write."""
    if not isinstance(found, dict) or set(found) != set(Job._fields):
        raise ValueError("no job")
    d, timeout, lease = found["d"], found["timeout"], found["lease"]
    if type(d) is not int or not 0 < d < _MAX_DIMENSION:
        raise ValueError("no dimension")
    if not is_number(lease) or lease <= 0 or not (timeout is None or (is_number(timeout) and timeout > 0)):
        raise ValueError("no seconds")
    run, driver, over = found["run"], found["driver"], found["over"]
    if not isinstance(run, str) or not isinstance(driver, str) or not isinstance(over, bool):
        raise ValueError("no driver")
    space = None if found["space"] is None else Space.from_json(found["space"])
    if space is not None and len(space.names) != d:
        raise ValueError(f"{len(space.names)} parameters for points of {d} coordinates")
    objective = Fingerprint.from_json(found["objective"])
    return Job(objective, d, timeout, float(lease), space, run, driver, over)


def beat_seconds(lease: float) -> float:
    """Seconds between two signs of life: several of them may come late."""
    return min(2.0, lease / 6)


# -- A task and an answer as JSON. Numbers are exact: points as the hexadecimal bytes of their float64.
#
# Read from a directory, so nothing of it is trusted: whatever we would not have written is a ValueError,
# and
# nothing else is raised.


#: Bytes of an answer: its words and outputs are limited where they are made.
MAX_ANSWER = 1 << 20
_OUTSIDE = {number.name for number in FROM_OUTSIDE}
#: What an answer may leave out, and what that means.
_WORDS: dict[str, Any] = {"reason": "", "fault": "", "detail": "", "seconds": None, "outputs": None}


def max_task(d: int) -> int:
    """Bytes of a task of so many coordinates."""
    return 16 * d + 1000


def dump_task(job: str, key: Key, x: Vector) -> bytes:
    return json.dumps({"job": job, "key": key, "x": _bytes(x).hex()}).encode()


def load_task(data: bytes, key: Key, d: int) -> tuple[str, Vector]:
    """The job it belongs to, and the point. (d,)"""
    task = _table(data, {"job", "key", "x"})
    if not _is_key(task["key"], key):
        raise ValueError("a task of another name")
    job, x = task["job"], task["x"]
    if not isinstance(job, str) or not isinstance(x, str):
        raise ValueError("no text where there should be some")
    point = np.frombuffer(bytes.fromhex(x), dtype="<f8").astype(np.float64)
    if len(point) != d or not np.isfinite(point).all():
        raise ValueError(f"no point of {d} finite coordinates")
    return job, point


def dump_answer(job: str, key: Key, x: Vector, outcome: Outcome) -> bytes:
    answer = {
        "job": job,
        "key": key,
        "point": digest(x),
        "status": outcome.status,
        "value": outcome.value.hex(),
        "reason": _cut(outcome.reason),
        "fault": _cut(outcome.fault),
        "detail": _cut(outcome.detail),
        "seconds": None if math.isnan(outcome.seconds) else outcome.seconds,
        "outputs": None if outcome.outputs is None else json.loads(dump(outcome.outputs)),
    }
    return json.dumps(answer).encode()


def load_answer(data: bytes, job: str, key: Key, x: Vector) -> Outcome:
    """What came of this point. An answer of another job, name or point is none."""
    answer = _WORDS | _table(data, {"job", "key", "point", "status", "value", *_WORDS})
    if answer["job"] != job or not _is_key(answer["key"], key) or answer["point"] != digest(x):
        raise ValueError("an answer to another question")
    status, outputs, seconds = answer["status"], answer["outputs"], answer["seconds"]
    reason, fault, detail = (_word(answer[name]) for name in ("reason", "fault", "detail"))
    if status == "lost":  # the mark of a death from outside stays: see `deaths.Retried`
        fault = fault if fault in _OUTSIDE else ""
    return read_outcome(
        status,
        _value(answer["value"]),
        reason,
        fault,
        detail,
        math.nan if seconds is None else seconds,
        None if outputs is None else load(outputs),
    )


def digest(x: Vector) -> str:
    return hashlib.sha256(_bytes(x)).hexdigest()


def _bytes(x: Vector) -> bytes:
    return np.ascontiguousarray(x, dtype="<f8").tobytes()


def _table(data: bytes, names: set[str]) -> dict[str, Any]:
    """A table of these names. Those that have defaults may be missing."""
    found = read_json(data)
    if not isinstance(found, dict):
        raise ValueError("no table")
    wrong = sorted((names - set(found) - set(_WORDS)) | (set(found) - names))
    if wrong:
        raise ValueError(f"{len(wrong)} fields too many or too few: {wrong[0][:40]!r}")
    return found


def _is_key(found: Any, key: Key) -> bool:
    return isinstance(found, list) and all(type(number) is int for number in found) and found == list(key)


def _value(found: Any) -> float:
    """Exactly what `float.hex` writes: what others take for hexadecimal may be too large for a float."""
    try:
        value = float.fromhex(found)
    except (TypeError, OverflowError):
        raise ValueError("a value that is no number") from None
    if value.hex() != found:
        raise ValueError("a value that is not written as ours")
    return value


def _word(found: Any) -> str:
    if not isinstance(found, str) or len(found) > DETAIL_LIMIT:
        raise ValueError(f"a reason, fault or detail that is no text of at most {DETAIL_LIMIT} characters")
    return found


def _cut(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()[:DETAIL_LIMIT]
