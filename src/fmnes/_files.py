"""File operations: atomic writes, safe opening of untrusted files, network file systems."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# -- Atomic writes, and detection of network file systems.
#
# At any moment, and after any crash, a reader sees either the old file or the new one.


#: Suffix of an unfinished write; a killed process leaves such a file behind.
TEMPORARY = ".tmp"

#: File systems that other machines may write to, or whose server may go away: no shared memory, weak locks.
NETWORK_TYPES = frozenset(
    {
        "nfs",
        "nfs3",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "ncpfs",
        "davfs",
        "9p",
        "afs",
        "auristorfs",
    }
    | {
        "coda",
        "ceph",
        "glusterfs",
        "gpfs",
        "lustre",
        "beegfs",
        "fhgfs",
        "panfs",
        "pvfs2",
        "orangefs",
        "wekafs",
    }
    | {"ocfs2", "gfs", "gfs2", "acfs", "vboxsf", "vmhgfs", "prl_fs"}
)
#: On Windows: how often, and after how many seconds, to retry replacing a file that is open elsewhere.
_TRIES, _PAUSE = 20, 0.05
_LOCAL_FUSE = frozenset({"fuseblk", "fuse.fuse-overlayfs"})


@contextlib.contextmanager
def atomic_write(path: Path, *, keep: Path | None = None) -> Iterator[BinaryIO]:
    """A file that becomes `path` if the block succeeds, and is deleted otherwise.

    With `keep`, what was at `path` before can be found there afterwards.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep is not None:
            keep_as(path, keep)
        replace_file(temporary, path)
        sync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def replace_file(temporary: str, path: str | Path) -> None:
    """`os.replace`, with retries: on Windows it fails while the file is open elsewhere."""
    for _ in range(_TRIES if sys.platform == "win32" else 0):
        with contextlib.suppress(PermissionError):
            return os.replace(temporary, path)
        time.sleep(_PAUSE)
    os.replace(temporary, path)


def sync_directory(directory: Path) -> None:
    """Sync the directory, so that a rename is on disk too."""
    if sys.platform == "win32":  # a directory cannot be opened there
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # not supported by some network file systems
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def unfinished(path: Path) -> list[Path]:
    """Remains of killed writes to `path`; the holder of the directory's lock may delete them."""
    # Exactly the names that mkstemp and `keep_as` make: never delete a user's file.
    name = re.compile(rf"\.{re.escape(path.name)}\.(link|[a-z0-9_]{{8}}){re.escape(TEMPORARY)}")
    return [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name)]


def keep_as(path: Path, keep: Path) -> None:
    """Give the file at `path` the second name `keep`, so that `path` never goes missing."""
    link = path.with_name(f".{keep.name}.link{TEMPORARY}")
    try:
        link.unlink(missing_ok=True)
        os.link(path, link)
        os.replace(link, keep)
        link.unlink(missing_ok=True)  # the rename does nothing where both are the same file already
    except FileNotFoundError:
        pass  # nothing was there before
    except OSError:
        os.replace(path, keep)  # no hard links on this file system: for a moment there is `keep` alone


def on_network(path: Path) -> bool:
    """Whether `path` lies on a network file system. Without /proc: False."""
    try:
        mounts = Path("/proc/self/mounts").read_text(errors="surrogateescape")
    except OSError:
        return False
    return is_network(file_system_type(os.path.realpath(path), mounts))


def is_network(kind: str) -> bool:
    """Whether a file system type is a network one; unknown FUSE types count as network."""
    return kind in NETWORK_TYPES or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def file_system_type(path: str, mounts: str) -> str:
    """The type of the file system that holds `path`, by the text of /proc/mounts; empty if it is in none."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # The longest mount point holds it; of two at the same place the later one hides the earlier.
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


# -- Reading untrusted files: an unpacked run directory may contain links, pipes and devices.
#
# A pipe would block forever and /dev/zero would fill the memory, so only plain files are read.


def open_regular(path: str | Path, *, follow_links: bool = True) -> BinaryIO:
    """Open a file for reading. Raises OSError unless it is a plain file, or a link to one if followed."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags if follow_links else flags | getattr(os, "O_NOFOLLOW", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file")
    return open(descriptor, "rb")


def read_plain(path: str, limit: int) -> tuple[bytes, int]:
    """Read a file up to one byte beyond the limit, and its permissions; raises OSError."""
    with open_regular(path) as file:
        return file.read(limit + 1), os.fstat(file.fileno()).st_mode


def read_regular(path: str | Path, limit: int, *, follow_links: bool = True) -> bytes:
    """Read a file. Raises OSError as `open_regular` does, and if it is longer than `limit` bytes."""
    with open_regular(path, follow_links=follow_links) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, "a file of unreasonable size")
    return data


def is_regular(path: Path) -> bool:
    """Whether it is a plain file, or a link to one."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
