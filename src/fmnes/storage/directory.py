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
from fmnes.storage.lock import (
    STOP,
    RunLock,
    holder,
    is_lock,
    is_stop_request,
    remove_stop_request,
    write_stop_request,
)
from fmnes.storage.log import EvaluationLog, is_log, side_files, torn
from fmnes.storage.snapshot import Arrays, other_version, read_snapshot, write_snapshot

# -- Files
#
#     config.json               the configuration; written last at creation, so the directory is complete
#     lock                      held by the process that runs it
#     evaluations.sqlite        the evaluation log
#     snapshot.npz              the optimizer at the beginning of a generation
#     snapshot.previous.npz     the snapshot before that, in case the last one is damaged
#     snapshot.first.npz        the first snapshot, from which the run can be replayed
#     result.json               the result; exists once the run has ended
#     result.npz                the history and the failed points of the result
#     stop                      a stop request of another process; removed when the run stops
#     kept/                     directories of failed programs, for the user
#
# A process may be killed at any moment: each file is replaced atomically, and the next process removes
# unfinished ones.

FORMAT = "fmnes-run"
VERSION = 1
CONFIG, RESULT, LOCK, LOG = "config.json", "result.json", "lock", "evaluations.sqlite"
SNAPSHOT, PREVIOUS, FIRST = "snapshot.npz", "snapshot.previous.npz", "snapshot.first.npz"
ENDING, KEPT = "result.npz", "kept"

#: Files that are written to a temporary file first, which a kill leaves behind.
_WRITTEN = (CONFIG, RESULT, LOG, SNAPSHOT, PREVIOUS, FIRST, ENDING, STOP)
_MAX_JSON_BYTES = 256 * 2**20


class RunExists(RunError):
    """The directory holds a run already; nothing was changed."""


class RunDirectory:
    """An open run directory (`create` or `open`); a context manager that holds the lock unless read-only."""

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
        """Create a run at `path`; `config` is JSON data without NaN or inf.

        `path` must not exist, be empty, or hold a run that has evaluated nothing. Otherwise RunError is
        raised and nothing is changed.
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
            _refuse_used(path)  # again: another process may have created a run before the lock
            # Left behind by a run that ended before its first evaluation.
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
        """Open the run at `path`; with `read_only` without the lock, even while it is running."""
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
        config = _read_json(path / CONFIG)  # before the lock is created in a foreign directory
        with contextlib.ExitStack() as undo:
            lock = None
            if not read_only:
                lock = RunLock(path / LOCK)
                undo.callback(lock.release)
                _remove(*(file for name in _WRITTEN for file in unfinished(path / name)))
                remove_stop_request(path)  # meant for the previous process
                config = _read_json(path / CONFIG)  # the previous process may have changed it
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
        """Write a snapshot; the last one becomes the previous one. A valid one exists at every moment."""
        self._check_writable()
        try:
            if not (self.path / PREVIOUS).exists() and not (self.path / FIRST).exists():
                keep_as(self.path / SNAPSHOT, self.path / FIRST)
            write_snapshot(self.path / SNAPSHOT, metadata, arrays, keep=self.path / PREVIOUS)
        except OSError as error:
            raise RunError(f"{self.path / SNAPSHOT}: could not be written ({error})") from error

    def read_snapshot(self) -> tuple[dict[str, Any], Arrays] | None:
        """The last valid snapshot, or None if there is none yet.

        Warns if a later one is damaged: the evaluations since then are in the log, so nothing is lost.
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
        """Go back to the first snapshot, from which the run is replayed by its log."""
        self._check_writable()
        first = self.path / FIRST
        if not first.exists():
            return
        try:
            read_snapshot(first)
            # The previous one last, so that a valid one exists at every moment.
            with atomic_write(self.path / SNAPSHOT) as file:
                file.write(first.read_bytes())
            (self.path / PREVIOUS).unlink(missing_ok=True)
            sync_directory(self.path)
        except (OSError, SnapshotError) as error:
            raise RunError(f"{self.path}: cannot go back to {FIRST} ({error})") from error

    def update_config(self, config: dict[str, Any]) -> None:
        """Replace the configuration, for example with a larger budget."""
        self._check_writable()
        config = _plain("config", config)
        _write_json(self.path / CONFIG, config)
        self.config = config

    def finish(
        self, result: dict[str, Any] | None, ending: tuple[dict[str, Any], Arrays] | None = None
    ) -> None:
        """Store the result, JSON data without NaN or inf; None removes it, for a run that continues.

        ending: metadata and arrays of `result.npz`.
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
        """The content of `result.npz`, or None."""
        try:
            return read_snapshot(self.path / ENDING) if (self.path / ENDING).exists() else None
        except SnapshotError as error:
            raise RunError(f"{error}; it may be removed, the run does not need it") from None

    @property
    def result(self) -> dict[str, Any] | None:
        """The content of `result.json`, or None."""
        return _read_json(self.path / RESULT) if (self.path / RESULT).exists() else None

    @property
    def in_use_by(self) -> str | None:
        """The process that is running it now, such as "process 17 on node3", or None."""
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
    """Raises RunError unless the directory is empty or holds a run without evaluations. Changes nothing.

    A file name proves nothing: a user may have a config.json and a lock, too.
    """
    names = set(os.listdir(path))
    ours = CONFIG in names and _is_config(path / CONFIG)
    if ours and names & {SNAPSHOT, PREVIOUS, FIRST}:
        raise RunExists(
            f"{path}: found a run in this directory, wanted a new or empty one; fmnes.resume goes on with it"
        )
    # A new run creates the lock first, and it is empty for a moment.
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
    """The configuration of the run at `path`; no other file is read."""
    return _read_json(Path(path) / CONFIG)


def is_run(path: Path) -> bool:
    """Whether it is a run directory, by its configuration."""
    return _is_config(path / CONFIG)


def _is_config(path: Path) -> bool:
    try:
        _read_json(path)
    except RunError:
        return False
    return True


def _refuse_special(path: Path) -> None:
    """Raises RunError if one of a run's files is a pipe, a device or the like.

    A stop request is exempt: it is opened only if it is a plain file.
    """
    for file in (*(path / name for name in _WRITTEN if name not in (LOG, STOP)), *side_files(path / LOG)):
        if os.path.lexists(file) and not is_regular(file):
            raise RunError(f"{file}: found something else than a plain file, wanted a run directory of ours")


def _remove(*paths: Path) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def _plain(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """The data as JSON returns it: tuples as lists, keys as strings."""
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


# -- Archiving a run directory

#: Errors of a rename to a name that has been taken in the meantime.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


def archive_run(path: str | os.PathLike[str]) -> Path:
    """Rename a run directory to the next free of path.1, path.2, …, and return the new path.

    Raises RunError if it is not a run directory, or in use.
    """
    path = Path(path).absolute()
    if path.name in ("", ".."):
        raise RunError(f"{path}: found no name of its own, wanted a run directory that can be renamed")
    if not is_run(path):  # before the lock is created in a foreign directory
        raise RunError(f"{path}: found no run of ours, wanted one to move aside")
    try:
        before = os.stat(path)
        lock = RunLock(path / LOCK)
    except OSError as error:
        raise RunError(f"{path}: cannot be moved aside ({error})") from None
    try:
        # While we waited, another process may have archived it and begun a new run.
        if not os.path.samestat(before, os.stat(path)):
            raise RunError(f"{path}: found another run there than a moment ago; wanted it to stay")
        return _rename(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be moved aside ({error})") from None
    finally:
        lock.release()


def next_free(path: Path) -> Path:
    """The name that `archive_run` would use now."""
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


# -- Stop requests, from any process and any machine that shares the directory


class Answer(Enum):
    """The outcome of a stop request."""

    STOPPED = "stopped"
    NOT_RUNNING = "not running"
    """No request was written."""
    ASKED = "asked"
    """It has not stopped yet."""


def request_stop(path: str | os.PathLike[str], seconds: float) -> Answer:
    """Ask the run at `path` to stop, as Ctrl-C would, and wait up to `seconds` for it.

    Raises RunError if it is not a run directory, or not writable.
    """
    run = Path(path).absolute()
    if not is_run(run):
        raise RunError(f"{run}: found no run of ours, wanted one to stop")
    if holder(run / LOCK) is None:
        return Answer.NOT_RUNNING
    write_stop_request(run)
    end = time.monotonic() + seconds
    while holder(run / LOCK) is not None:
        if not time.monotonic() < end:  # also if it is NaN
            return Answer.ASKED
        time.sleep(0.05)
    remove_stop_request(run)  # it ended before it saw the request
    return Answer.STOPPED
