"""Stop requests: a file in the run directory, so that they also reach a driver on another machine.

Any process with write permission may leave one. The driver removes it when it stops, and `resume` removes a
stale one. A file of this name that fmnes did not write is ignored.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from pathlib import Path

from fmnes._files import atomic_write, read_regular
from fmnes.errors import RunError

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
