"""Moving a run directory aside, for a new run to begin in its place. Nothing is deleted."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from fmnes.errors import RunError
from fmnes.storage.atomic import sync_directory
from fmnes.storage.directory import LOCK, is_run
from fmnes.storage.lock import RunLock

#: What a rename says of a name that was taken in the meantime.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


def move_aside(path: str | os.PathLike[str]) -> Path:
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
