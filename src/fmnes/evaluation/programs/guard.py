"""What sees to it that no program, and nothing a program has started, outlives its driver.

`sweep` finds what has left its program's group, by a token in its environment. The guard, a small process of
its own, ends the programs when the driver dies, even by kill -9. This file is also the guard's script, so it
imports the standard library only.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

#: The variable that marks a program and all it starts.
TOKEN = "FMNES_TOKEN"
#: How often one sweep looks at the list of processes at most, and how long it waits where that may help.
_LOOKS, _PAUSE = 20, 0.005


class Guard:
    """A process that kills the programs when this process is gone."""

    _process: subprocess.Popen[bytes] | None = None

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._bare: set[tuple[str, bytes]] = set()
        # No token of a program that runs us: its sweep must not take our guard before it has done its work.
        environment = {name: value for name, value in os.environ.items() if name != TOKEN}
        if not sys.executable or getattr(sys, "frozen", False):  # there is no interpreter to run it
            return
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), self.token],
            bufsize=0,
            cwd="/",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def sweep(self) -> None:
        """Kill whatever carries our token: daemons, which have left their program's group."""
        sweep(self.token, self._bare)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # a guard that is gone or stopped must not stop the run
                self._process.stdin.write(line.encode())


def sweep(token: str, bare: set[tuple[str, bytes]]) -> bool:
    """Kill every process that has the token in its environment; True if there was one.

    A process can fork and end after we have listed it and before we read its environment, and in the middle
    of an exec it shows none. So we look again until each process on the list could be read: then none of them
    had the token, and nobody else starts one that has it. `bare` remembers those that never show any.
    """
    mark = f"{TOKEN}={token}".encode()
    others: set[str] = set()
    found = False
    for look in range(_LOOKS):
        again = pause = False
        for name in _processes() - others:
            kind = _kind(name, mark)
            if kind == "marked":
                found = True
                with suppress(OSError):
                    os.kill(int(name), signal.SIGKILL)
            elif kind == "bare":
                identity = (name, _start_time(name))
                if look == _LOOKS - 1:
                    bare.add(identity)
                if identity in bare:
                    others.add(name)
                    continue
            elif kind != "unknown":
                others.add(name)
            again |= kind != "other"
            pause |= kind in ("marked", "bare", "unknown")
        if not again:
            break
        if pause:
            time.sleep(_PAUSE)
    return found


def _processes() -> set[str]:
    with suppress(OSError):  # no /proc on this system
        return {name for name in os.listdir("/proc") if name.isdigit()}
    return set()


def _kind(name: str, mark: bytes) -> str:
    """marked, other (it has no mark), ended, bare (it has no environment, or not yet), or unknown."""
    try:
        fd = os.open(f"/proc/{name}/environ", os.O_RDONLY)
        try:
            if os.fstat(fd).st_uid != os.geteuid():
                return "other"
            environment = b""
            while data := os.read(fd, 65_536):
                environment += data
        finally:
            os.close(fd)
        if environment:
            return "marked" if mark in environment else "other"
        os.readlink(f"/proc/{name}/exe")
        return "bare"
    except PermissionError:
        return "other"
    except (ProcessLookupError, FileNotFoundError):  # also the kernel's own threads
        return "ended"
    except OSError:  # no file descriptor left
        return "unknown"


def _start_time(name: str) -> bytes:
    """With its number this tells a process from all that ever were."""
    with suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19]
    return b""


def _guard(driver: int, token: str) -> None:
    """The guard's life: note the groups that run, wait for the driver's end, kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("fmnes-guard")  # so that `killall python3` passes us by, and we can do our work
    groups: set[int] = set()
    rest = b""
    while True:
        if select.select([0], [], [], 1.0)[0]:
            data = os.read(0, 65_536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))
        elif os.getppid() != driver:  # it is gone, and a process it forked holds our pipe open
            break
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    quiet = 0  # a program caught between fork and exec has no token yet: look more than once
    bare: set[tuple[str, bytes]] = set()
    for _ in range(100):
        quiet = 0 if sweep(token, bare) else quiet + 1
        if quiet == 3:
            return
        time.sleep(0.02)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2])
