"""Directories of evaluations: creating, keeping and removing them."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fmnes.errors import warn
from fmnes.outcome import EvaluationId

# -- Removing a directory tree of any depth, read-only ones included
#
# Each subdirectory is moved to the top before it is emptied: no recursion, no long paths, few open files.
# Links are removed and never followed. A directory that cannot be moved may be a mount point and is not
# entered.


#: Missing on Windows, where no program runs.
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_TRIES = 3


def remove(path: Path) -> OSError | None:
    """Remove the directory; returns the error if it still exists."""
    problem: OSError | None = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(0.005)  # a process that was just killed may still write a file into it
        try:
            problem = _empty(path)
            os.rmdir(path)
            return None
        except FileNotFoundError:
            return None
        except OSError as error:
            problem = problem or error
            if error.errno in (errno.ENOTDIR, errno.ELOOP):  # the program replaced it by a link
                with suppress(OSError):
                    os.unlink(path)
                    return None
    return problem


def _empty(path: Path) -> OSError | None:
    """Remove a directory's contents as far as possible; returns the first error."""
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
    """Remove files and move subdirectories to the top; returns their new names and the first error."""
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
    except PermissionError:  # a move changes the directory's own ".."
        _permit(name, directory)
        os.rename(name, new, src_dir_fd=directory, dst_dir_fd=top)


def _open(name: str, parent: int | None) -> int:
    """Open a directory, with write permission if this user owns it."""
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
    """Give the owner all permissions of a directory; links are not followed."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent)
    try:
        if parent is None or os.fstat(handle).st_dev == os.fstat(parent).st_dev:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)


# -- Directories of evaluations


#: Most bytes, files and levels that are copied to another file system; larger directories are not moved.
_COPY_BYTES, _COPY_FILES, _COPY_DEPTH = 100_000_000, 10_000, 100
_NAME = re.compile(r"(?:r(\d+)-)?g(-?\d+)-s(\d+)(?:-w(\d+))?-a(\d+)-\w+-([0-9a-f]{8})", re.ASCII)

#: Precedes the path in the detail of an outcome.
KEPT_LINE = "kept: "
#: Restart, generation, slot, redraw and attempt of an evaluation.


class _Kept(NamedTuple):
    key: EvaluationId
    path: Path
    mark: str
    """Hash of its reason."""


class Workspace:
    """The directories of one run's evaluations.

    They are made below `directory`, or in a temporary folder and moved to `kept_in` if that is given. At most
    `max_kept` are kept: first the one with the smallest key for each reason, in whatever order they ended;
    then the latest. Directories kept by other workspaces are not removed, except earlier ones in `kept_in`.
    """

    def __init__(self, directory: str | None, max_kept: int, kept_in: str | None = None) -> None:
        self._given = directory
        self._max_kept = max_kept
        self._kept_in = None if kept_in is None or directory is not None else Path(kept_in).absolute()
        self._root: str | None = None
        self._kept: list[_Kept] | None = None
        """Kept directories in the order of the keys; None before the first."""
        self._warned = False

    def new(self, key: EvaluationId) -> Path:
        if self._given is not None:
            self._root = self._given
            os.makedirs(self._given, mode=0o700, exist_ok=True)
        elif self._root is None or not os.path.isdir(self._root):
            self._root = tempfile.mkdtemp(prefix="fmnes-")
        return Path(tempfile.mkdtemp(prefix=_prefix(key), dir=self._root))

    def keep(self, directory: Path, key: EvaluationId, reason: str) -> Path | None:
        """Keep a directory and return its path; None if it was removed because of `max_kept`."""
        if self._kept is None:
            self._kept = [] if self._kept_in is None else _left_in(self._kept_in)
        mark = hashlib.sha256(reason.encode(errors="replace")).hexdigest()[:8]
        new = _Kept(key, directory, mark)
        self._kept = sorted([*self._kept, new], key=lambda kept: kept.key)
        while len(self._kept) > self._max_kept:
            leaves = _first_repeated(self._kept) or new
            self._kept.remove(leaves)
            self.remove(leaves.path)
        if new not in self._kept:
            return None
        if self._kept_in is None:
            return directory
        stays = _moved(directory, self._kept_in / f"{directory.name}-{mark}")
        self._kept[self._kept.index(new)] = new._replace(path=stays)
        return stays

    def remove(self, directory: Path) -> None:
        problem = remove(directory)
        if problem is not None and not self._warned:
            self._warned = True
            warn(f"{directory}, left by a program, cannot be removed: {problem.strerror} (told once)")

    def close(self) -> None:
        if self._given is None and self._root is not None:
            with suppress(OSError):  # something is kept in it
                os.rmdir(self._root)


@functools.cache
def by_hand(directory: str | None, max_kept: int, process: int) -> Workspace:
    """Return the workspace for all direct calls in a process, which share `max_kept`."""
    return Workspace(directory, max_kept)


def kept_directory(folder: Path, key: EvaluationId, detail: str = "") -> Path | None:
    """Return the directory of an evaluation, if it still exists.

    folder: `kept` of the run directory. detail: of the outcome; its last line names the original path, which
    counts for a program with a `directory` of its own.
    """
    _, told, said = detail.rpartition(KEPT_LINE)
    path = Path(said if told else "")
    found = [kept.path for kept in _left_in(folder) if kept.key == tuple(key)]
    if found:  # several, if the run was killed before the outcome was logged
        return next((one for one in found if one.name == path.name), found[0])
    return path if path.is_absolute() and path.is_dir() else None


def _prefix(key: EvaluationId) -> str:
    """Return the prefix of the directory's name; restart and redraw only if not 0."""
    restart, generation, slot, redraw, attempt = key
    before, after = f"r{restart}-" if restart else "", f"-w{redraw}" if redraw else ""
    return f"{before}g{generation}-s{slot}{after}-a{attempt}-"


def _first_repeated(kept: list[_Kept]) -> _Kept | None:
    """Return the first directory whose reason occurred before."""
    seen = set()
    for one in kept:
        if one.mark in seen:
            return one
        seen.add(one.mark)
    return None


def _left_in(folder: Path) -> list[_Kept]:
    """List what a run has kept, in any order."""
    found = []
    with suppress(OSError):
        for path in [] if folder.is_symlink() else folder.iterdir():  # a link may lead to another run
            name = _NAME.fullmatch(path.name)
            if name and stat.S_ISDIR(path.lstat().st_mode):
                key = EvaluationId(*(int(part or 0) for part in name.groups()[:5]))
                found.append(_Kept(key, path, name[6]))
    return found


def _moved(directory: Path, target: Path) -> Path:
    """Move the directory to the target if possible; returns where it is then."""
    try:
        with suppress(FileExistsError):
            os.mkdir(target.parent)
        if not stat.S_ISDIR(target.parent.lstat().st_mode):  # a link may lead anywhere
            return directory
        os.rename(directory, target)
        return target
    except OSError as error:
        if error.errno != errno.EXDEV or not _is_small(directory):
            return directory
    try:
        shutil.copytree(directory, target, symlinks=True)
    except (OSError, RecursionError):
        remove(target)
        return directory
    remove(directory)
    return target


def _is_small(directory: Path) -> bool:
    """Whether it can be copied quickly: a few plain, small files."""
    waiting = [(directory, 0)]
    files = size = 0
    try:
        while waiting:
            folder, depth = waiting.pop()
            with os.scandir(folder) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    files, size = files + 1, size + status.st_size
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((folder / entry.name, depth + 1))
                    elif not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                        return False  # a pipe, a device
                    if size > _COPY_BYTES or files > _COPY_FILES or depth > _COPY_DEPTH:
                        return False
        return not directory.is_symlink()
    except OSError:
        return False
