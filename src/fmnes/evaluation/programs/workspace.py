"""The directories of the evaluations: a fresh one for each, and which of them stay to be looked at."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from fmnes.errors import warn
from fmnes.evaluation.programs.removal import remove

#: The most bytes, files and levels that are copied to another file system; what has more stays where it is.
_COPY_BYTES, _COPY_FILES, _COPY_DEPTH = 100_000_000, 10_000, 100
_KEPT = re.compile(r"g\d+-s\d+-a\d+-\w+-([0-9a-f]{8})", re.ASCII)


class Workspace:
    """Where the directories of one run's evaluations are.

    They are made below `directory`, or else in a temporary folder; what stays is then moved to `kept_in`, if
    that is given. At most `max_kept` stay. The first of each reason goes before all others; of these the
    latest stay. Nothing is removed that another workspace has kept, but for earlier ones of this `kept_in`.
    """

    def __init__(self, directory: str | None, max_kept: int, kept_in: str | None = None) -> None:
        self._given = directory
        self._max_kept = max_kept
        self._kept_in = None if kept_in is None or directory is not None else Path(kept_in).absolute()
        self._root: str | None = None
        self._kept: list[tuple[Path, str]] | None = None
        """What stays, and a mark of its reason, from the first on; None before the first."""
        self._warned = False

    def new(self, prefix: str) -> Path:
        if self._given is not None:
            self._root = self._given
            os.makedirs(self._given, mode=0o700, exist_ok=True)
        elif self._root is None or not os.path.isdir(self._root):
            self._root = tempfile.mkdtemp(prefix="fmnes-")
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self._root))

    def keep(self, directory: Path, reason: str) -> Path | None:
        """Where the directory stays; None if there are enough, and it is gone."""
        if self._kept is None:
            self._kept = [] if self._kept_in is None else _left_in(self._kept_in)
        mark = hashlib.sha256(reason.encode(errors="replace")).hexdigest()[:8]
        kept = [*self._kept, (directory, mark)]
        while len(kept) > self._max_kept:
            leaves, _ = kept.pop(_first_repeated([one for _, one in kept]))
            self.remove(leaves)
        stays = directory if kept and kept[-1][0] == directory else None
        if stays is not None and self._kept_in is not None:
            stays = _moved(directory, self._kept_in / f"{directory.name}-{mark}")
            kept[-1] = (stays, mark)
        self._kept = kept
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
    """One for all the calls by hand of a process, so that they keep no more than `max_kept` together."""
    return Workspace(directory, max_kept)


def _first_repeated(marks: list[str]) -> int:
    """The position of the first that has been there before; else that of the last."""
    seen = set()
    for i, mark in enumerate(marks):
        if mark in seen:
            return i
        seen.add(mark)
    return len(marks) - 1


def _left_in(folder: Path) -> list[tuple[Path, str]]:
    """What the run has kept before it was resumed."""
    found = []
    with suppress(OSError):
        for path in [] if folder.is_symlink() else folder.iterdir():  # a link may lead to another run's
            name = _KEPT.fullmatch(path.name)
            status = path.lstat()
            if name and stat.S_ISDIR(status.st_mode):
                found.append((status.st_mtime_ns, path, name[1]))
    return [(path, mark) for _, path, mark in sorted(found)]


def _moved(directory: Path, target: Path) -> Path:
    """Where the directory is afterwards: at the target, or where it was if it cannot be moved there."""
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
    """Whether it can be copied in no time: few, plain, small files."""
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
