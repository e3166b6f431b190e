"""Removing what a program has left behind: a tree of any depth, also a read-only one, and nothing else.

No recursion and no long paths: each subdirectory is moved to the top before it is emptied, so that all names
have one part and few files are open. Links are removed and never followed. What cannot be moved is not
entered either: it may be a mount point, and what is in there is not the program's.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

#: Windows, where no program runs, has neither.
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_TRIES = 3


def remove(path: Path) -> OSError | None:
    """Remove the directory; what went wrong if it is still there."""
    problem: OSError | None = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(0.005)  # what was killed a moment ago may still write a file into it
        try:
            problem = _empty(path)
            os.rmdir(path)
            return None
        except FileNotFoundError:
            return None
        except OSError as error:
            problem = problem or error
            if error.errno in (errno.ENOTDIR, errno.ELOOP):  # the program has put a link in its place
                with suppress(OSError):
                    os.unlink(path)
                    return None
    return problem


def _empty(path: Path) -> OSError | None:
    """Remove what is in a directory, as far as possible; the first of the problems."""
    top = _open(str(path), None)
    try:
        waiting, problem = _clear(top, top)
        while waiting:
            name = waiting.pop()
            try:
                directory = _open(name, top)
                try:
                    moved, trouble = _clear(directory, top)
                finally:
                    os.close(directory)
                waiting += moved
                os.rmdir(name, dir_fd=top)
            except OSError as error:
                trouble = error
            problem = problem or trouble
        return problem
    finally:
        os.close(top)


def _clear(directory: int, top: int) -> tuple[list[str], OSError | None]:
    """Remove the files in a directory and move its subdirectories to the top: their new names, a problem."""
    moved = []
    problem = None
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        try:
            if is_directory:
                new = secrets.token_hex(16)
                _move(name, directory, new, top)
                moved.append(new)
            else:
                os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            problem = problem or error
    return moved, problem


def _move(name: str, directory: int, new: str, top: int) -> None:
    try:
        os.rename(name, new, src_dir_fd=directory, dst_dir_fd=top)
    except PermissionError:  # its own ".." is to be written to
        _permit(name, directory)
        os.rename(name, new, src_dir_fd=directory, dst_dir_fd=top)


def _open(name: str, parent: int | None) -> int:
    """A directory we may change, if it is ours at all."""
    try:
        directory = os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent)
    except PermissionError:
        _permit(name, parent)
        directory = os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent)
    with suppress(OSError):
        if os.fstat(directory).st_mode & 0o700 != 0o700:
            os.fchmod(directory, 0o700)
    return directory


def _permit(name: str, parent: int | None) -> None:
    """Allow ourselves everything in a directory that we cannot open, and nowhere else if it is a link."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent)
    try:
        if parent is None or os.fstat(handle).st_dev == os.fstat(parent).st_dev:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)
