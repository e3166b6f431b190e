"""Running external programs: one process with its group, its two outputs, and a guard that outlives us.

Nothing a program starts may survive it. Three nets, because each has holes:

- every program leads its own session, and its process group is killed when it ends or is stopped;
- every program carries a token in its environment: what left the group is found by it (`sweep`);
- the guard, a small process of its own, does both when this process dies, even by kill -9.

This file is also the guard's script, so it imports the standard library only.
"""

from __future__ import annotations

import math
import os
import secrets
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

#: Bytes of each output that go to disk; of what follows only the last TAIL bytes are kept.
OUTPUT_LIMIT = 10_000_000
TAIL = 65_536
#: Seconds between the polite signal and the deadly one.
GRACE = 0.5
#: The variable that marks a program and all it starts.
TOKEN = "FMNES_TOKEN"
#: Seconds between two looks at a program's state on a system without pidfd.
POLL = 0.01

PARAMS, RESULTS, STDOUT, STDERR = "params.json", "results.txt", "stdout.txt", "stderr.txt"


class Ending(NamedTuple):
    """How a program ended."""

    code: int | None
    """As subprocess has it: negative for a signal. None: somebody else in this process took it."""
    timed_out: bool
    stdout: str
    stderr: str
    """The tails of its outputs."""


class _Output:
    """One output, read without ever blocking: the head goes to a file, the tail stays in memory.

    A pipe and not the file itself, because nothing stops a program that writes to a file without end; and
    it is read to the end beyond the limit, because a full pipe would block the program.
    """

    def __init__(self, path: Path) -> None:
        self.tail = b""
        self.file = open(path, "wb", buffering=0)  # noqa: SIM115 (closed in `close`)
        self._seen = self._written = 0
        self._full = False

    def attach(self, pipe: IO[bytes], selector: selectors.BaseSelector) -> None:
        self._pipe, self._selector = pipe, selector
        os.set_blocking(pipe.fileno(), False)
        selector.register(pipe, selectors.EVENT_READ, self.read)

    def read(self) -> bool:
        """Take what is there; False if there was nothing."""
        try:
            data = os.read(self._pipe.fileno(), TAIL)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(self._pipe)
            return False
        self._seen += len(data)
        self.tail = (self.tail + data)[-TAIL:]
        if not self._full:
            try:
                self._written += self.file.write(data[: OUTPUT_LIMIT - self._written]) or 0
            except OSError:  # the disk is full: the evaluation can do without this file
                self._full = True
            self._full |= self._written < self._seen
        return True

    def close(self) -> None:
        with suppress(KeyError):
            self._selector.unregister(self._pipe)
        self._pipe.close()
        rest = self.tail[-(self._seen - self._written) :] if self._full else b""
        if rest:
            note = f"\n[{self._seen - self._written - len(rest)} bytes left out here]\n"
            with suppress(OSError):
                self.file.write(note.encode() + rest)
        self.file.close()

    def drain(self) -> None:
        """Take what is left once the program is gone: at most what a pipe holds, others may go on writing."""
        for _ in range(32):
            if self._pipe.fileno() not in self._selector.get_map() or not self.read():
                return


class Program:
    """A running program and its process group."""

    def __init__(
        self,
        argv: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        timeout: float | None,
        selector: selectors.BaseSelector,
    ) -> None:
        """Raises OSError if it cannot be started. Its standard input is the file PARAMS of `directory`."""
        self.directory = directory
        self._selector = selector
        self._outputs: list[_Output] = []
        try:
            self._outputs += [_Output(directory / STDOUT)]
            self._outputs += [_Output(directory / STDERR)]
            with open(directory / PARAMS, "rb") as stdin:
                self._process = subprocess.Popen(
                    argv,
                    bufsize=0,
                    cwd=directory,
                    env=environment,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except BaseException:
            for output in self._outputs:
                output.file.close()
            raise
        self.pid = self._process.pid
        self._stop_at = math.inf if timeout is None else time.monotonic() + timeout
        self._kill_at = math.inf
        self._timed_out = False
        self._stolen = False
        for output, pipe in zip(self._outputs, (self._process.stdout, self._process.stderr), strict=True):
            assert pipe is not None
            output.attach(pipe, selector)
        # Only a wake-up: whether it has ended is asked by waitid, so that systems without it just poll.
        self._pidfd = -1
        with suppress(AttributeError, OSError):
            pidfd = os.pidfd_open(self.pid)
            selector.register(pidfd, selectors.EVENT_READ, bool)
            self._pidfd = pidfd

    @property
    def due(self) -> float:
        """When to look at it again at the latest, in time.monotonic()."""
        polled = math.inf if self._pidfd >= 0 else time.monotonic() + POLL
        return min(self._stop_at, self._kill_at, polled)

    def has_ended(self) -> bool:
        """Ended, but not reaped: while its number is taken, its group can be killed without a mistake."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            self._stolen = True
            return True

    def enforce(self, now: float) -> None:
        """Stop it if its time is over, kill it if it was stopped and did not end."""
        if now >= self._kill_at:
            self._signal(signal.SIGKILL)
            self._kill_at = math.inf
        elif now >= self._stop_at:
            self._timed_out = True
            self.stop()

    def stop(self) -> None:
        """Ask it to end; `enforce` will see to it."""
        self._signal(signal.SIGTERM)
        self._stop_at, self._kill_at = math.inf, min(self._kill_at, time.monotonic() + GRACE)

    def finish(self, guard: Guard) -> Ending:
        """Kill what is left of it, and tell how it ended."""
        if not self._stolen:
            self._signal(signal.SIGKILL)
        for output in self._outputs:
            output.drain()
        guard.forget(self.pid)
        code = self._process.wait()
        for output in self._outputs:
            output.close()
        if self._pidfd >= 0:
            with suppress(KeyError):
                self._selector.unregister(self._pidfd)
            os.close(self._pidfd)
        stdout, stderr = (output.tail.decode(errors="replace") for output in self._outputs)
        return Ending(None if self._stolen else code, self._timed_out, stdout, stderr)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class Guard:
    """A process that kills the programs when this process is gone."""

    _process: subprocess.Popen[bytes] | None = None

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
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
        for _ in range(20):
            if not sweep(self.token):
                return
            time.sleep(0.005)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # a guard that is gone or stopped must not stop the run
                self._process.stdin.write(line.encode())


def sweep(token: str) -> bool:
    """Kill every process that has the token in its environment; True if there was one."""
    found = False
    mark = f"{TOKEN}={token}".encode()
    own = os.geteuid()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        with suppress(OSError):  # it ended, or is not ours
            if os.stat(f"/proc/{name}").st_uid == own:
                with open(f"/proc/{name}/environ", "rb", buffering=0) as environ:
                    if mark in environ.read():
                        found = True
                        os.kill(int(name), signal.SIGKILL)
    return found


def _guard(driver: int, token: str) -> None:
    """The guard's life: note the groups that run, wait for the driver's end, kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
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
    for _ in range(100):
        quiet = 0 if sweep(token) else quiet + 1
        if quiet == 3:
            return
        time.sleep(0.02)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2])
