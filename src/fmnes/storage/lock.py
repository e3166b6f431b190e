"""The lock of a run directory, and the request to stop, which is left there for the process that holds it.

One process at a time holds a run, by a lock of the operating system that is released after any crash. The
lock on the open file counts, not the existence of the file. It contains the holder, for error messages.

A stop request is a file, so that it also reaches a driver on another machine. Any process with write
permission may leave one. The driver removes it when it stops, and `resume` removes a stale one. A file of
this name that fmnes did not write is ignored.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import sys
import time
import weakref
from pathlib import Path

from fmnes._files import atomic_write, read_regular
from fmnes.errors import RunError

# -- The run lock: one process at a time, by a lock of the operating system that is released after any crash.

#: A killed process releases its lock only after its memory has been freed, so wait briefly.
PATIENCE_SECONDS = 0.5

#: Do not block on a pipe; on Windows do not translate line ends.
_PLAIN = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, shared: bool = False) -> None:
        # One byte far behind the text: on Windows other processes cannot read locked bytes.
        os.lseek(descriptor, 2**30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int, shared: bool = False) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


class RunLock:
    """Holds `path` locked from construction until `release`, or until this process ends in any way."""

    def __init__(self, path: str | os.PathLike[str], patience: float = PATIENCE_SECONDS) -> None:
        self._path = Path(path)
        self._descriptor: int | None = None
        try:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | _PLAIN
            self._descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise RunError(
                f"{self._path}: the lock file cannot be opened ({error.strerror}); wanted a run directory "
                "that this process may write to"
            ) from None
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise RunError(f"{self._path}: found something else than a plain file, wanted a lock of ours")
            self._acquire(self._descriptor, patience)
        except BaseException:
            self.release()
            raise
        # For error messages only: a full disk must not prevent a resume.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            host = re.sub(r"[^\w.-]", "-", socket.gethostname())[:255] or "unnamed"
            os.write(self._descriptor, f"{os.getpid()} {host}\n".encode())
        _held.add(self)

    def _acquire(self, descriptor: int, patience: float) -> None:
        deadline = time.monotonic() + patience
        while True:
            try:
                return _try_lock(descriptor)
            except OSError as error:
                if error.errno not in _BUSY:
                    raise RunError(
                        f"{self._path}: this file system gives no lock ({error.strerror}); wanted one on "
                        "which a run can be kept to one process"
                    ) from None
            if time.monotonic() >= deadline:
                raise RunError(
                    f"{self._path.parent}: in use by {_written_in(descriptor)}; wait for it to end, or "
                    "choose another directory"
                )
            time.sleep(0.05)

    def release(self) -> None:
        """Safe to call twice. A forked child only closes its own copy of the descriptor."""
        _held.discard(self)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def holder(path: str | os.PathLike[str]) -> str | None:
    """The process that holds the lock now, such as "process 17 on node3", or None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _PLAIN)
    except OSError:
        return None
    try:
        _try_lock(descriptor, shared=True)
    except OSError as error:
        return _written_in(descriptor) if error.errno in _BUSY else None
    finally:
        os.close(descriptor)
    return None


def is_lock(path: str | os.PathLike[str]) -> bool:
    """Whether fmnes has written this file. A new one may still be empty."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _PLAIN)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and (status.st_size == 0 or _read(descriptor) is not None)
    finally:
        os.close(descriptor)


def _written_in(descriptor: int) -> str:
    found = _read(descriptor)
    return f"process {found[1]} on {found[2]}" if found else "another process"


def _read(descriptor: int) -> re.Match[str] | None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    text = os.read(descriptor, 2000).decode("utf-8", "replace")
    return re.fullmatch(r"(\d{1,10}) ([\w.-]{1,255})\n", text)


_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _release_all() -> None:
    for lock in list(_held):
        lock.release()


# A forked child shares the open file; the lock would then outlive a killed parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_all)


# -- Stop requests: a file in the run directory, so that they also reach a driver on another machine.

STOP = "stop"
_MAX_BYTES = 1000


def write_stop_request(run: Path) -> None:
    """Ask the driver to stop. Raises RunError if a foreign file has this name."""
    path = run / STOP
    if os.path.lexists(path) and not is_stop_request(path):
        raise RunError(f"{path}: found a file that is not ours, wanted this name free; move it elsewhere")
    host = re.sub(r"[^\w.-]", "-", socket.gethostname())[:255] or "unnamed"
    try:
        with atomic_write(path) as file:
            if hasattr(os, "fchmod"):  # another user may own the driver
                os.fchmod(file.fileno(), 0o644)
            file.write(f"fmnes stop, asked by process {os.getpid()} on {host}\n".encode())
    except OSError as error:
        raise RunError(f"{path}: could not be written ({error}); wanted a run that we may write to") from None


def read_stop_request(path: Path) -> str | None:
    """The process that left it, such as "process 17 on node3"; None if there is none."""
    try:
        text = read_regular(path, _MAX_BYTES).decode()
    except (OSError, ValueError):
        return None
    found = re.fullmatch(r"fmnes stop, asked by (process \d{1,10} on [\w.-]{1,255})\n", text)
    return found[1] if found else None


def is_stop_request(path: Path) -> bool:
    return read_stop_request(path) is not None


def has_stop_request(run: Path) -> bool:
    """Whether the file exists; takes a few microseconds."""
    # A network file system may cache for half a minute that a file does not exist, but it asks its server
    # when the directory is opened.
    try:
        if sys.platform == "win32":
            return os.path.lexists(run / STOP)
        directory = os.open(run, os.O_RDONLY)
        try:
            os.lstat(STOP, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError:
        return False
    return True


def remove_stop_request(run: Path) -> str | None:
    """Remove a stop request; returns the process that left it, or None."""
    path = run / STOP
    asked_by = read_stop_request(path)
    if asked_by is not None:
        with contextlib.suppress(OSError):
            path.unlink()
    return asked_by
