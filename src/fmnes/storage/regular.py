"""Reading what may come from anywhere: a run directory that was unpacked may hold links, pipes and devices.

A pipe in place of a file would make us wait for ever, /dev/zero would fill the memory: so plain files only.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """The file, open for reading. Raises OSError for what is not a plain file, or a link to one."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file")
    return open(descriptor, "rb")


def read_regular(path: Path, limit: int) -> bytes:
    """All of it. Raises OSError if it is no plain file, or longer than `limit` bytes."""
    with open_regular(path) as file:
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
