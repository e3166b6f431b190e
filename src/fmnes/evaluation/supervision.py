"""What this system offers to those who supervise processes, and a refusal in words where it is too little.

| | Linux | macOS | Windows |
|---|---|---|---|
| fork, process groups: `workers`, `timeout`, `Command` | yes | yes | no: refused by `need_supervision` |
| to see an end and leave the process's number taken (`os.waitid`) | yes | from Python 3.13 | |
| to be told of an end (`os.pidfd_open`) | yes | looks every 10 ms | |
| to find what has left its process group (`/proc`, a subreaper) | yes | no | |
| to end with its parent (`prctl`) | yes | no | |
| a limit of memory for a program (`prlimit`) | yes | no: `memory_limit` is refused | |

What is missing elsewhere is asked for where it is used, with `hasattr` or an OSError: nothing here depends on
a system's name but Windows, whose own files (`O_BINARY`) and locks (`msvcrt`) are in `storage`.
"""

from __future__ import annotations

import os
import sys

from fmnes.errors import ArgumentError

#: Without one of these there is no supervision.
_NEEDED = ("fork", "setsid", "killpg")


def can_supervise() -> bool:
    return sys.platform != "win32" and all(hasattr(os, name) for name in _NEEDED)


def need_supervision(what: str) -> None:
    """Raises ArgumentError where processes cannot be supervised; `what` is what asked for them."""
    if not can_supervise():
        raise ArgumentError(
            f"{what}: found on {sys.platform}, whose processes cannot be supervised (no fork, no process "
            "groups); wanted Linux or macOS, of which Windows has the first as WSL. Here fmnes evaluates in "
            "its own process, or without a timeout by a pool of yours: "
            "executor=concurrent.futures.ProcessPoolExecutor()"
        )


def reap(pid: int) -> int | None:
    """The exit code of a child of ours that has ended (minus the signal's number), and it is no more.

    None while it lives. For systems without `os.waitid`, which could tell and leave the child's number taken:
    what is left of its group is to be killed at once, before another process can have that number. Raises
    ChildProcessError if somebody else in this process took it.
    """
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None
