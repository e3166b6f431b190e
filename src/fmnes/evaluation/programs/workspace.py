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
from typing import NamedTuple

from fmnes.errors import warn
from fmnes.evaluation.programs.removal import remove

#: The most bytes, files and levels that are copied to another file system; what has more stays where it is.
_COPY_BYTES, _COPY_FILES, _COPY_DEPTH = 100_000_000, 10_000, 100
_NAME = re.compile(r"(?:r(\d+)-)?g(-?\d+)-s(\d+)(?:-w(\d+))?-a(\d+)-\w+-([0-9a-f]{8})", re.ASCII)

#: What comes before the path in the detail of an outcome.
KEPT_LINE = "kept: "
#: The name of an evaluation: restart, generation, slot, redraw, attempt.
Key = tuple[int, ...]


class _Kept(NamedTuple):
    key: Key
    path: Path
    mark: str
    """Of its reason."""


class Workspace:
    """Where the directories of one run's evaluations are.

    They are made below `directory`, or else in a temporary folder; what stays is then moved to `kept_in`, if
    that is given. At most `max_kept` stay. The first of each reason goes before all others, in the order of
    the keys, as the ledger of failures has it, whatever order they ended in; of the others the latest stay.
    Nothing is removed that another workspace has kept, but for earlier ones of this `kept_in`.
    """

    def __init__(self, directory: str | None, max_kept: int, kept_in: str | None = None) -> None:
        self._given = directory
        self._max_kept = max_kept
        self._kept_in = None if kept_in is None or directory is not None else Path(kept_in).absolute()
        self._root: str | None = None
        self._kept: list[_Kept] | None = None
        """What stays, in the order of the keys; None before the first."""
        self._warned = False

    def new(self, key: Key) -> Path:
        if self._given is not None:
            self._root = self._given
            os.makedirs(self._given, mode=0o700, exist_ok=True)
        elif self._root is None or not os.path.isdir(self._root):
            self._root = tempfile.mkdtemp(prefix="fmnes-")
        return Path(tempfile.mkdtemp(prefix=_prefix(key), dir=self._root))

    def keep(self, directory: Path, key: Key, reason: str) -> Path | None:
        """Where the directory stays; None if there are enough, and it is gone."""
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
    """One for all the calls by hand of a process, so that they keep no more than `max_kept` together."""
    return Workspace(directory, max_kept)


def kept_directory(folder: Path, key: Key, detail: str = "") -> Path | None:
    """Where the directory of an evaluation is, if it is still there.

    folder: `kept` of the run directory, wherever that is by now. detail: the outcome's, whose last line says
    where it was kept: with a `directory` of its own, a program's are there.
    """
    _, told, said = detail.rpartition(KEPT_LINE)
    path = Path(said if told else "")
    found = [kept.path for kept in _left_in(folder) if kept.key == tuple(key)]
    if found:  # several, if the run was killed before it was logged
        return next((one for one in found if one.name == path.name), found[0])
    return path if path.is_absolute() and path.is_dir() else None


def _prefix(key: Key) -> str:
    """Of the directory's name; the restart and the redraw only where there are some."""
    restart, generation, slot, redraw, attempt = key
    before, after = f"r{restart}-" if restart else "", f"-w{redraw}" if redraw else ""
    return f"{before}g{generation}-s{slot}{after}-a{attempt}-"


def _first_repeated(kept: list[_Kept]) -> _Kept | None:
    """The first whose reason has been there before."""
    seen = set()
    for one in kept:
        if one.mark in seen:
            return one
        seen.add(one.mark)
    return None


def _left_in(folder: Path) -> list[_Kept]:
    """What a run has kept, in any order."""
    found = []
    with suppress(OSError):
        for path in [] if folder.is_symlink() else folder.iterdir():  # a link may lead to another run's
            name = _NAME.fullmatch(path.name)
            if name and stat.S_ISDIR(path.lstat().st_mode):
                found.append(_Kept(tuple(int(part or 0) for part in name.groups()[:5]), path, name[6]))
    return found


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
