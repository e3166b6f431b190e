"""The directory of a queue: whether it is ours, and how its files are read, written and watched.

    fmnes-queue.json   the mark: this directory is a queue of ours
    job.json           what is evaluated, and for whom
    driver             touched by the driver, now and then
    lock               held by the driver
    open/ claimed/ answers/ workers/ kept/

Whoever may write to it may put anything there. So only plain files are read, and only so many bytes of them;
a file is written under another name first, so that nobody sees half of it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fmnes.errors import RunError
from fmnes.evaluation.queue.names import new_unfinished
from fmnes.outputs import read_json
from fmnes.storage.atomic import replace

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
        replace(temporary, os.path.join(folder, name))


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


def pulse(path: Path) -> Any:
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
