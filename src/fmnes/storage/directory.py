"""The run directory: its files, the order in which they are written, and how a run is archived."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import time
from collections.abc import Iterator
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fmnes._files import atomic_write, is_regular, keep_as, read_regular, sync_directory, unfinished
from fmnes.errors import ArgumentError, RunError, SnapshotError, UsageError, warn
from fmnes.storage.lock import RunLock, holder, is_lock
from fmnes.storage.log import EvaluationLog, is_log, side_files, torn
from fmnes.storage.snapshot import Arrays, other_version, read_snapshot, write_snapshot
from fmnes.storage.stop_request import STOP, is_stop_request, remove_stop_request, write_stop_request

# -- A run directory: everything a run leaves on disk, and the order in which it may be written.
#
#     config.json               what the run was asked to do; written last at creation, so it says
# "complete"
#     lock                      held by the process that runs it
#     evaluations.sqlite        the evaluation log
#     snapshot.npz              the optimizer at the beginning of a generation
#     snapshot.previous.npz     the one before, should the last be damaged
#     snapshot.first.npz        the first one, from which the run can be replayed
#     result.json               there when the run has ended
#     result.npz                its history and the points that failed, for those who read the run
#     stop                      a wish that it stop, left by another process; gone when it has
#     kept/                     directories of programs that failed, for the user to look at
#
# A process may be killed at any moment: each file is replaced as a whole, and what it was writing is
# cleared
# away by the next one.


FORMAT = "fmnes-run"
VERSION = 1
CONFIG, RESULT, LOCK, LOG = "config.json", "result.json", "lock", "evaluations.sqlite"
SNAPSHOT, PREVIOUS, FIRST = "snapshot.npz", "snapshot.previous.npz", "snapshot.first.npz"
ENDING, KEPT = "result.npz", "kept"

#: What is written to a temporary file first, which a kill leaves behind.
_WRITTEN = (CONFIG, RESULT, LOG, SNAPSHOT, PREVIOUS, FIRST, ENDING, STOP)
_MAX_JSON_BYTES = 256 * 2**20


class RunExists(RunError):
    """The directory holds a run of ours already; nothing was changed."""


class RunDirectory:
    """Made by `create` or `open`. A context manager; until it is closed no other process gets in."""

    def __init__(
        self, path: Path, lock: RunLock | None, config: dict[str, Any], log: EvaluationLog | None
    ) -> None:
        self.path = path
        self.config = config
        self._log = log
        self._lock = lock

    @property
    def log(self) -> EvaluationLog:
        """The evaluation log; a reader opens it on first use."""
        if self._log is None:
            self._log = EvaluationLog(self.path / LOG, read_only=True)
        return self._log

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: dict[str, Any]) -> RunDirectory:
        """A new run at `path`; `config` is JSON data without NaN or inf.

        `path` must not exist, be empty, or hold a run of ours that has evaluated nothing. Whatever else is
        there is refused and left as it is.
        """
        path = Path(path).absolute()
        config = _plain("config", config)
        try:
            if not path.is_dir():
                path.mkdir(mode=0o700, parents=True, exist_ok=True)  # unless it is a file
                sync_directory(path.parent)
            _refuse_used(path)
        except FileExistsError:
            raise RunError(f"{path}: found a file, wanted a directory or nothing") from None
        except OSError as error:
            why = error.strerror or error
            raise RunError(
                f"{path}: the run directory cannot be made ({why}); wanted a place you may write to"
            ) from None
        with contextlib.ExitStack() as undo:
            lock = RunLock(path / LOCK)
            undo.callback(lock.release)
            _refuse_used(path)  # again: another process may have been quicker
            # Nothing was evaluated here: these are the remains of a run that was ended as it began.
            _remove(
                path / RESULT, path / ENDING, *(file for name in _WRITTEN for file in unfinished(path / name))
            )
            remove_stop_request(path)
            log = EvaluationLog(path / LOG)
            undo.callback(log.close)
            _write_json(path / CONFIG, config)
            undo.pop_all()
        return cls(path, lock, config, log)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, read_only: bool = False) -> RunDirectory:
        """The run at `path`; with `read_only` without the lock, so even while it is running."""
        path = Path(path).absolute()
        try:
            names = os.listdir(path)
        except FileNotFoundError:
            raise RunError(f"{path}: found nothing there, wanted a run directory") from None
        except NotADirectoryError:
            raise RunError(f"{path}: found a file, wanted a run directory") from None
        except OSError as error:
            raise RunError(f"{path}: cannot be read ({error.strerror}), wanted a run directory") from None
        if CONFIG not in names:
            raise RunError(f"{path}: found no {CONFIG} in it, wanted a run directory")
        _refuse_special(path)
        config = _read_json(path / CONFIG)  # before anything is written: it may not be a run directory
        with contextlib.ExitStack() as undo:
            lock = None
            if not read_only:
                lock = RunLock(path / LOCK)
                undo.callback(lock.release)
                _remove(*(file for name in _WRITTEN for file in unfinished(path / name)))
                remove_stop_request(path)  # it was meant for the process before this one
                config = _read_json(path / CONFIG)  # the process that had the lock may have changed it
            if LOG not in names:
                raise RunError(f"{path}: found no {LOG}, which belongs to every run; wanted it back")
            if not read_only and torn(path / LOG):
                warn(
                    f"{path / LOG}: the last record was cut off and is dropped; its evaluation is made again"
                )
            log = None if read_only else EvaluationLog(path / LOG)
            undo.pop_all()
        return cls(path, lock, config, log)

    def write_snapshot(self, metadata: dict[str, Any], arrays: Arrays) -> None:
        """The last one becomes the previous one. At every moment there is a good one on disk."""
        self._check_writable()
        try:
            if not (self.path / PREVIOUS).exists() and not (self.path / FIRST).exists():
                keep_as(self.path / SNAPSHOT, self.path / FIRST)
            write_snapshot(self.path / SNAPSHOT, metadata, arrays, keep=self.path / PREVIOUS)
        except OSError as error:
            raise RunError(f"{self.path / SNAPSHOT}: could not be written ({error})") from error

    def read_snapshot(self) -> tuple[dict[str, Any], Arrays] | None:
        """The last good snapshot, or None if the run has not come to its first one.

        Warns if that is not the last one: the evaluations since then are in the log, so nothing is lost.
        """
        names = [name for name in (SNAPSHOT, PREVIOUS, FIRST) if (self.path / name).exists()]
        problems: list[str] = []
        for name in (SNAPSHOT, *(name for name in names if name != SNAPSHOT)) if names else ():
            try:
                snapshot = read_snapshot(self.path / name)
            except SnapshotError as error:
                problems.append(str(error))
                continue
            if problems:
                warn(f"{'; and of the one before: '.join(problems)}; going on from the one before")
            return snapshot
        if problems:
            raise RunError("; and of the one before: ".join(problems))
        return None

    def rewind(self) -> None:
        """Go back to the first snapshot. The run that goes on from there is the same one, by its log."""
        self._check_writable()
        first = self.path / FIRST
        if not first.exists():
            return
        try:
            read_snapshot(first)
            # The previous one last: whatever happens in between, a good one is there.
            with atomic_write(self.path / SNAPSHOT) as file:
                file.write(first.read_bytes())
            (self.path / PREVIOUS).unlink(missing_ok=True)
            sync_directory(self.path)
        except (OSError, SnapshotError) as error:
            raise RunError(f"{self.path}: cannot go back to {FIRST} ({error})") from error

    def update_config(self, config: dict[str, Any]) -> None:
        """Say anew what the run is asked to do, such as a larger budget."""
        self._check_writable()
        config = _plain("config", config)
        _write_json(self.path / CONFIG, config)
        self.config = config

    def finish(
        self, result: dict[str, Any] | None, ending: tuple[dict[str, Any], Arrays] | None = None
    ) -> None:
        """Leave the result, JSON data without NaN or inf; None takes it back, for a run that goes on.

        ending: what readers may want besides, as a snapshot.
        """
        self._check_writable()
        if result is not None:
            try:
                _remove(self.path / ENDING)
                if ending is not None:
                    write_snapshot(self.path / ENDING, *ending)
            except (OSError, SnapshotError) as error:
                warn(f"{self.path / ENDING}: could not be written ({error}); the result is whole without it")
            return _write_json(self.path / RESULT, _plain("result", result))
        try:
            (self.path / RESULT).unlink(missing_ok=True)
            (self.path / ENDING).unlink(missing_ok=True)
            sync_directory(self.path)
        except OSError as error:
            raise RunError(f"{self.path / RESULT}: could not be removed ({error})") from error

    def read_ending(self) -> tuple[dict[str, Any], Arrays] | None:
        """What `finish` left besides the result, or None."""
        try:
            return read_snapshot(self.path / ENDING) if (self.path / ENDING).exists() else None
        except SnapshotError as error:
            raise RunError(f"{error}; it may be removed, the run does not need it") from None

    @property
    def result(self) -> dict[str, Any] | None:
        """What `finish` left, or None."""
        return _read_json(self.path / RESULT) if (self.path / RESULT).exists() else None

    @property
    def in_use_by(self) -> str | None:
        """Who is running it now, such as "process 17 on node3", or None."""
        return holder(self.path / LOCK)

    def _check_writable(self) -> None:
        if self._lock is None:
            raise UsageError(
                f"{self.path}: found a run directory opened read-only, or closed; wanted it open"
            )

    def close(self) -> None:
        """Safe to call twice."""
        if self._log is not None:
            self._log.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse_used(path: Path) -> None:
    """Raises RunError unless a run may begin here: there is nothing, or what we know to be ours, and empty.

    Nothing is changed. A name proves nothing: a user may well have a config.json and a lock.
    """
    names = set(os.listdir(path))
    ours = CONFIG in names and _is_config(path / CONFIG)
    if ours and names & {SNAPSHOT, PREVIOUS, FIRST}:
        raise RunExists(
            f"{path}: found a run in this directory, wanted a new or empty one; fmnes.resume goes on with it"
        )
    # The lock is what a run begins with, and it is empty for the moment that it takes to write it.
    begun = ours or (names > {LOCK} and (path / LOCK).stat().st_size > 0)
    known = set()
    if LOCK in names and is_lock(path / LOCK):
        known |= {LOCK}
    if ours:
        known |= {CONFIG, RESULT, ENDING}
    if begun and STOP in names and is_stop_request(path / STOP):
        known |= {STOP}
    if begun and LOG in names and is_log(path / LOG):
        known |= {file.name for file in side_files(path / LOG)}
    if begun:
        known |= {file.name for name in _WRITTEN for file in unfinished(path / name)}
    foreign = sorted(names - known)
    if foreign:
        raise RunError(
            f"{path}: found {', '.join(foreign[:3])}{', ...' if foreign[3:] else ''} in it, wanted a new or "
            "empty directory"
        )
    if LOG in names:
        with contextlib.closing(EvaluationLog(path / LOG, read_only=True)) as log:
            evaluations = log.count()
        if evaluations:
            raise RunExists(
                f"{path}: found a run of {evaluations} evaluations without its {SNAPSHOT}, wanted a new or "
                "empty directory; with the snapshot back in its place fmnes.resume goes on with it"
            )


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the run at `path` was asked to do, without a look at anything else."""
    return _read_json(Path(path) / CONFIG)


def is_run(path: Path) -> bool:
    """Whether it is a run directory of ours, by its configuration."""
    return _is_config(path / CONFIG)


def _is_config(path: Path) -> bool:
    try:
        _read_json(path)
    except RunError:
        return False
    return True


def _refuse_special(path: Path) -> None:
    """Raises RunError if one of a run's files is a pipe, a device or the like.

    Where a wish to stop would be anything may lie: what is not a plain file is never opened.
    """
    for file in (*(path / name for name in _WRITTEN if name not in (LOG, STOP)), *side_files(path / LOG)):
        if os.path.lexists(file) and not is_regular(file):
            raise RunError(f"{file}: found something else than a plain file, wanted a run directory of ours")


def _remove(*paths: Path) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def _plain(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """The data as it will be read back: tuples as lists, keys as strings."""
    try:
        plain = json.loads(json.dumps(data, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{name}: found {error}; wanted JSON data without NaN or infinity") from None
    if not isinstance(plain, dict):
        raise ArgumentError(f"{name}: found {type(data).__name__}, wanted a dict")
    return plain


def _write_json(path: Path, data: dict[str, Any]) -> None:
    envelope = {"format": FORMAT, "version": VERSION, "checksum": _checksum(data), "data": data}
    text = json.dumps(envelope, indent=2, allow_nan=False).encode()
    if len(text) > _MAX_JSON_BYTES:  # it could not be read back
        raise RunError(f"{path}: found {len(text)} bytes to write, wanted at most {_MAX_JSON_BYTES}")
    try:
        with atomic_write(path) as file:
            file.write(text)
    except OSError as error:
        raise RunError(f"{path}: could not be written ({error})") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        text = read_regular(path, _MAX_JSON_BYTES).decode()
        return _unwrap(json.loads(text, parse_constant=_refuse_constant))
    except RunError as error:
        raise RunError(f"{path}: {error}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: found a damaged or foreign file ({error}), wanted a {FORMAT}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"the number {name}")


def _unwrap(envelope: Any) -> dict[str, Any]:
    if not isinstance(envelope, dict) or envelope.get("format") != FORMAT:
        raise RunError(f"found another format, wanted a {FORMAT}")
    version = envelope.get("version")
    if type(version) is not int or version != VERSION:
        raise RunError(f"found version {version!r}, wanted {VERSION}: {other_version(version, VERSION)}")
    data = envelope.get("data")
    if not isinstance(data, dict) or envelope.get("checksum") != _checksum(data):
        raise RunError("found data that does not fit its checksum: damaged, or edited by hand")
    return data


def _checksum(data: dict[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8).hexdigest()


# -- Moving a run directory aside, for a new run to begin in its place. Nothing is deleted.


#: What a rename says of a name that was taken in the meantime.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


def archive_run(path: str | os.PathLike[str]) -> Path:
    """Rename a run directory of ours to the next free of path.1, path.2, …; returns where it is now.

    Raises RunError for whatever is not a run directory of ours, and while the run is in use.
    """
    path = Path(path).absolute()
    if path.name in ("", ".."):
        raise RunError(f"{path}: found no name of its own, wanted a run directory that can be renamed")
    if not is_run(path):  # before a lock is made in somebody else's directory
        raise RunError(f"{path}: found no run of ours, wanted one to move aside")
    try:
        before = os.stat(path)
        lock = RunLock(path / LOCK)
    except OSError as error:
        raise RunError(f"{path}: cannot be moved aside ({error})") from None
    try:
        # While we waited, another process may have moved it aside and begun a new one: that is not ours.
        if not os.path.samestat(before, os.stat(path)):
            raise RunError(f"{path}: found another run there than a moment ago; wanted it to stay")
        return _rename(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be moved aside ({error})") from None
    finally:
        lock.release()


def next_free(path: Path) -> Path:
    """The name that it would get. Only a glance: it may be taken a moment later."""
    return next(name for name in _names(path) if not os.path.lexists(name))


def _names(path: Path) -> Iterator[Path]:
    return (path.with_name(f"{path.name}.{n}") for n in itertools.count(1))


def _rename(path: Path) -> Path:
    for name in _names(path):
        if os.path.lexists(name):
            continue
        try:
            os.rename(path, name)  # onto a directory only if that is empty
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            continue
        sync_directory(path.parent)
        return name
    raise AssertionError("there is always another number")


# -- Asking a run to stop, from any process and any machine that shares its directory.


class Answer(Enum):
    """What came of it."""

    STOPPED = "stopped"
    NOT_RUNNING = "not running"
    """It was not; nothing was asked."""
    ASKED = "asked"
    """It has not stopped yet, and will."""


def request_stop(path: str | os.PathLike[str], seconds: float) -> Answer:
    """Ask the run at `path` to stop, as Ctrl-C would, and wait so many seconds for it.

    Raises RunError for what is no run directory of ours, or cannot be written to.
    """
    run = Path(path).absolute()
    if not is_run(run):
        raise RunError(f"{run}: found no run of ours, wanted one to stop")
    if holder(run / LOCK) is None:
        return Answer.NOT_RUNNING
    write_stop_request(run)
    end = time.monotonic() + seconds
    while holder(run / LOCK) is not None:
        if not time.monotonic() < end:  # also if that is no number
            return Answer.ASKED
        time.sleep(0.05)
    remove_stop_request(run)  # it has ended by itself before it saw this
    return Answer.STOPPED
