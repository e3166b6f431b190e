"""Guard process: kills programs and everything they started when the driver ends.

`sweep` finds processes that left their program's group, by a token in their environment. The guard is a
separate process that kills the programs when the driver dies, even by kill -9. This file is also the guard's
script, so it imports the standard library only.
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

#: The environment variable that marks a program and all it starts.
TOKEN = "FMNES_TOKEN"
#: Most passes of a sweep over the list of processes, and the pause between two.
_PASSES, _PAUSE = 20, 0.005


class Guard:
    """A process that kills the programs when this process is gone."""

    _process: subprocess.Popen[bytes] | None = None

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._bare: set[tuple[str, bytes]] = set()
        # Remove the token of an outer run, whose sweep would kill this guard too early.
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
        """Kill all processes with the token, such as daemons that left their program's group."""
        sweep(self.token, self._bare)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # a dead guard must not stop the run
                self._process.stdin.write(line.encode())


def sweep(token: str, bare: set[tuple[str, bytes]]) -> bool:
    """Kill every process that has the token in its environment; True if there was one.

    A process can fork and end after it was listed and before its environment is read, and shows none during
    an exec. So the list is read again until the environment of each process on it was read: then none had the
    token, and no other process starts one with it. `bare` remembers those that never show an environment.
    """
    mark = f"{TOKEN}={token}".encode()
    others: set[str] = set()
    found = False
    for pass_ in range(_PASSES):
        again = pause = False
        for name in _processes() - others:
            kind = _kind(name, mark)
            if kind == "marked":
                found = True
                with suppress(OSError):
                    os.kill(int(name), signal.SIGKILL)
            elif kind == "bare":
                identity = (name, _start_time(name))
                if pass_ == _PASSES - 1:
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
    with suppress(OSError):  # there is no /proc on this system
        return {name for name in os.listdir("/proc") if name.isdigit()}
    return set()


def _kind(name: str, mark: bytes) -> str:
    """Classify a process: marked, other (no mark), ended, bare (no environment, or not yet), or unknown."""
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
    """Return the start time, which together with the pid identifies a process."""
    with suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19]
    return b""


def _guard(driver: int, token: str) -> None:
    """Run the guard: record running groups, wait for the driver's end, kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("fmnes-guard")  # so that `killall python3` spares the guard
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
        elif os.getppid() != driver:  # the driver is gone, and a process it forked holds the pipe open
            break
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    quiet = 0  # a program between fork and exec has no token yet: sweep more than once
    bare: set[tuple[str, bytes]] = set()
    for _ in range(100):
        quiet = 0 if sweep(token, bare) else quiet + 1
        if quiet == 3:
            return
        time.sleep(0.02)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2])
