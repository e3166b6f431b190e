"""File names and file formats of a queue directory: job, tasks, claims and answers."""

from __future__ import annotations

import contextlib
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

from fmnes._files import read_regular, replace_file
from fmnes.arguments import is_number
from fmnes.errors import ArgumentError, RunError
from fmnes.evaluation.queue.file_queue import Fingerprint
from fmnes.evaluation.supervision import FROM_OUTSIDE
from fmnes.outcome import DETAIL_LIMIT, EvaluationId, Outcome, dump, load, read_json, read_outcome
from fmnes.result import Vector
from fmnes.space import Space

# -- File names
#
#     open/0.12.3.0.0.h1                            a task that waits for a worker
#     claimed/0.12.3.0.0.h1@node7-4711-5f3a09c2     a worker has it
#     answers/0.12.3.0.0.h1@node7-4711-5f3a09c2     its outcome
#     workers/node7-4711-5f3a09c2                   a worker, while it lives
#
# The numbers are restart, generation, slot, redraw and attempt; h1: handed out once before. Two workers never
# write to one name. Files with other names are neither read nor deleted.


#: No leading zeros, so that each name has one spelling.
_NUMBER = r"(0|[1-9]\d{0,17})"
_TASK = re.compile(
    rf"{_NUMBER}\.(-1|0|[1-9]\d{{0,17}})\.{_NUMBER}\.{_NUMBER}\.{_NUMBER}\.h{_NUMBER}", re.ASCII
)
_WORKER = re.compile(r"[A-Za-z0-9-]{1,60}-\d{1,10}-[0-9a-f]{8}", re.ASCII)
#: A temporary file of an unfinished write.
_UNFINISHED = re.compile(r"\.[\w.@-]{1,200}\.[0-9a-f]{8}\.tmp", re.ASCII)


class Name(NamedTuple):
    """The name of a task, a claim or an answer."""

    key: EvaluationId
    handout: int
    """How often the task was handed out before."""
    worker: str = ""

    def __str__(self) -> str:
        task = f"{'.'.join(map(str, self.key))}.h{self.handout}"
        return f"{task}@{self.worker}" if self.worker else task


def read_task(text: str) -> Name | None:
    """Parse the name of an open task; None for other names."""
    found = _TASK.fullmatch(text)
    if not found:
        return None
    *numbers, handout = map(int, found.groups())
    return Name(EvaluationId(*numbers), handout)


def read_claim(text: str) -> Name | None:
    """Parse the name of a claim or of an answer; None for other names."""
    task, at, worker = text.partition("@")
    name = read_task(task)
    return name._replace(worker=worker) if at and name and is_worker(worker) else None


def is_worker(text: str) -> bool:
    return _WORKER.fullmatch(text) is not None


def is_unfinished(text: str) -> bool:
    return _UNFINISHED.fullmatch(text) is not None


def new_worker() -> str:
    """Return a unique worker name."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60] or "unnamed"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def new_unfinished(name: str) -> str:
    """Return the temporary name of a file while it is written."""
    return f".{name}.{secrets.token_hex(4)}.tmp"


# -- The directory
#
#     fmnes-queue.json   marks the directory as a queue
#     job.json           what is evaluated, and by which driver
#     driver             touched regularly by the driver
#     lock               held by the driver
#     open/ claimed/ answers/ workers/ kept/
#
# Its contents are not trusted: only plain files are read, up to a size limit. Files are written under a
# temporary name first, so that no reader sees an incomplete one.


FORMAT, VERSION = "fmnes-queue", 1
MARK, JOB, DRIVER, LOCK = "fmnes-queue.json", "job.json", "driver", "lock"
OPEN, CLAIMED, ANSWERS, WORKERS, KEPT = "open", "claimed", "answers", "workers", "kept"
_FOLDERS = (OPEN, CLAIMED, ANSWERS, WORKERS)
_MAX_MARK = 10_000
#: Follow no links, and keep line ends on Windows.
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def make_queue(path: Path) -> None:
    """Create a queue, or check the existing one. Raises RunError for a directory with other contents."""
    try:
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)  # private, because answers are trusted
        if not is_queue(path):
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
        check_folders(path)
    except FileExistsError:
        raise RunError(f"{path}: found a file, wanted a directory or nothing") from None
    except OSError as error:
        raise RunError(f"{path}: no queue can be made there ({error})") from None


def is_queue(path: Path) -> bool:
    """Whether the directory is a queue. Raises RunError for an invalid mark."""
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


def check_folders(path: Path) -> None:
    """Raise RunError unless every entry is a real folder: a link might lead anywhere."""
    for name in _FOLDERS:
        try:
            mode = os.lstat(path / name).st_mode
        except OSError as error:
            raise RunError(f"{path / name}: found {error.strerror!r}, wanted a folder of the queue") from None
        if not stat.S_ISDIR(mode):
            raise RunError(f"{path / name}: found something else, wanted a folder of the queue")


def read(path: str | Path, limit: int) -> bytes:
    """Read a plain file. Raises OSError for anything else, links included, and beyond `limit` bytes."""
    return read_regular(path, limit, follow_links=False)


def write(folder: str | Path, name: str, data: bytes, *, durable: bool = False) -> None:
    """Write a file atomically; durable: also across a power failure."""
    with _unfinished(folder, name, data, durable) as temporary:
        replace_file(temporary, os.path.join(folder, name))


def probe(folder: str | Path, size: int) -> None:
    """Raise OSError if a file of `size` bytes cannot be written."""
    with _unfinished(folder, "probe", bytes(size), True) as temporary:
        os.unlink(temporary)


@contextlib.contextmanager
def _unfinished(folder: str | Path, name: str, data: bytes, durable: bool) -> Iterator[str]:
    """Write a temporary file and yield its path; remove it if the block fails."""
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
            os.close(descriptor)  # a network file system may report a full disk only here
        yield temporary
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def heartbeat(folder: Path, name: str) -> bool:
    """Touch a file as a heartbeat; False if it no longer exists."""
    try:
        # Opening the folder makes a network file system ask its server instead of its cache.
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
    """Return a token that changes with every heartbeat, for comparison only; None if the file is gone."""
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
    """Delete a file; whether it existed."""
    try:
        os.unlink(path)
    except OSError:  # missing, or a folder, which a queue never contains here
        return False
    return True


# -- Polling interval


LEAST, MOST = 0.001, 0.4
_SHARE = 8.0
#: Longer gaps between events are cut to this: a straggler does not predict the next gap.
_LONG = 1.0


class PollBackoff:
    """Polling interval: an eighth of the expected waiting time, so that polling is always cheap."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._usual = 0.0
        """Moving average of the seconds between events."""

    def happened(self, events: int = 1) -> None:
        now = time.monotonic()
        gap = min((now - self._last) / max(events, 1), _LONG)
        self._usual += 0.2 * (gap - self._usual)
        self._last = now

    def next(self) -> float:
        waited = time.monotonic() - self._last
        return min(max(waited / _SHARE, self._usual / _SHARE, LEAST), MOST)


# -- The job: `job.json`, which only the driver writes


_MAX_BYTES = 256 * 2**20
#: Largest number of coordinates that is accepted.
_MAX_DIMENSION = 2**31


class Job(NamedTuple):
    objective: Fingerprint
    d: int
    timeout: float | None
    """Seconds allowed for an evaluation."""
    lease: float
    """Seconds without a heartbeat after which the driver counts a worker as dead."""
    space: Space | None
    """The named parameters, if any."""
    run: str = ""
    """The run directory, if the run can be resumed."""
    driver: str = ""
    """Unique name of the driver."""
    over: bool = False
    """The driver has ended."""

    @property
    def id(self) -> str:
        """Hash of the job, equal for a resumed run, so that its earlier answers stay valid."""
        names = None if self.space is None else self.space.as_json()
        text = json.dumps([self.objective.hash, self.d, self.timeout, names])
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        plain = self._asdict() | {"objective": self.objective.as_json()}
        plain["space"] = None if self.space is None else self.space.as_json()
        return plain


def new_driver() -> str:
    return secrets.token_hex(8)


def write_job(directory: Path, job: Job) -> None:
    write(directory, JOB, json.dumps(job.as_json()).encode(), durable=True)


def read_job(directory: Path) -> Job | None:
    """Read the job; None if there is none yet. Raises RunError for an invalid file."""
    try:
        data = read(directory / JOB, _MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(
            f"{directory / JOB}: found a file that cannot be read ({error}), wanted ours"
        ) from None
    try:
        return _job(read_json(data))
    except (ValueError, ArgumentError) as error:
        raise RunError(f"{directory / JOB}: found a file that is not ours ({error}), wanted a job") from None


def _job(found: Any) -> Job:
    """Parse the job. Raises ValueError or ArgumentError for what `as_json` does not write."""
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


def heartbeat_seconds(lease: float) -> float:
    """Seconds between heartbeats, a small part of the lease so that several may be late."""
    return min(2.0, lease / 6)


# -- Tasks and answers as JSON
#
# Points are hexadecimal float64 bytes, so that numbers are exact. The files are not trusted: whatever the
# writers below would not write raises ValueError, and nothing else is raised.


#: Largest answer in bytes.
MAX_ANSWER = 1 << 20
_OUTSIDE = {number.name for number in FROM_OUTSIDE}
#: Optional fields of an answer, with defaults.
_WORDS: dict[str, Any] = {"reason": "", "fault": "", "detail": "", "seconds": None, "outputs": None}


def max_task(d: int) -> int:
    """Return the largest size in bytes of a task with `d` coordinates."""
    return 16 * d + 1000


def dump_task(job: str, key: EvaluationId, x: Vector) -> bytes:
    return json.dumps({"job": job, "key": key, "x": _bytes(x).hex()}).encode()


def load_task(data: bytes, key: EvaluationId, d: int) -> tuple[str, Vector]:
    """Return the id of the job and the point, (d,)."""
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


def dump_answer(job: str, key: EvaluationId, x: Vector, outcome: Outcome) -> bytes:
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


def load_answer(data: bytes, job: str, key: EvaluationId, x: Vector) -> Outcome:
    """Return the outcome of this point. Raises ValueError for an answer of another job, name or point."""
    answer = _WORDS | _table(data, {"job", "key", "point", "status", "value", *_WORDS})
    if answer["job"] != job or not _is_key(answer["key"], key) or answer["point"] != digest(x):
        raise ValueError("an answer to another task")
    status, outputs, seconds = answer["status"], answer["outputs"], answer["seconds"]
    reason, fault, detail = (_word(answer[name]) for name in ("reason", "fault", "detail"))
    if status == "lost":  # `RetryKilled` needs the signal that ended it
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
    """Parse a JSON object with these fields. Those with defaults may be missing."""
    found = read_json(data)
    if not isinstance(found, dict):
        raise ValueError("no table")
    wrong = sorted((names - set(found) - set(_WORDS)) | (set(found) - names))
    if wrong:
        raise ValueError(f"{len(wrong)} fields too many or too few: {wrong[0][:40]!r}")
    return found


def _is_key(found: Any, key: EvaluationId) -> bool:
    return isinstance(found, list) and all(type(number) is int for number in found) and found == list(key)


def _value(found: Any) -> float:
    """Parse exactly what `float.hex` writes."""
    try:
        value = float.fromhex(found)
    except (TypeError, OverflowError):
        raise ValueError("a value that is not a number") from None
    if value.hex() != found:
        raise ValueError("a value that `float.hex` would write otherwise")
    return value


def _word(found: Any) -> str:
    if not isinstance(found, str) or len(found) > DETAIL_LIMIT:
        raise ValueError(f"a reason, fault or detail that is not a text of at most {DETAIL_LIMIT} characters")
    return found


def _cut(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()[:DETAIL_LIMIT]
