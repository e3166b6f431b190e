"""A running external program: its process group, its outputs and its time limit.

Nothing that a program starts may survive it. No single measure is sufficient, so there are three:

- every program leads its own session, and its process group is killed when it ends or is stopped;
- a token in its environment finds processes that left the group (`guard.sweep`);
- the guard, a separate process, does both when this process dies, even by kill -9.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from fmnes.evaluation.programs.guard import Guard
from fmnes.evaluation.supervision import SUSPENDED_TIMES, TICK, AwakeClock, is_suspended, reap

#: Bytes of each output that are written to disk; after that, only the last TAIL bytes are kept.
OUTPUT_LIMIT = 10_000_000
TAIL = 65_536
#: Seconds between SIGTERM and SIGKILL.
GRACE = 0.5
#: Polling interval in seconds on a system without pidfd.
POLL = 0.01

PARAMS, RESULTS = "params.json", "results.txt"
STDIN, STDOUT, STDERR = "stdin.txt", "stdout.txt", "stderr.txt"


class ExitReport(NamedTuple):
    """How a program ended."""

    code: int | None
    """As in subprocess: negative for a signal. None: other code in this process reaped it."""
    timed_out: bool
    stdout: str
    stderr: str
    """The tails of its outputs."""
    cut: bool
    """The beginning of `stdout` is missing."""
    whole: str | None = None
    """All of stdout, if requested and on disk."""
    said: str | None = None
    """The first of the `texts` that was printed on stdout or stderr."""


class _Output:
    """One output, read without blocking: the head goes to a file, the tail stays in memory.

    A pipe limits what goes to disk, which a file cannot. It is read beyond the limit, too, because a full
    pipe would block the program.
    """

    def __init__(self, path: Path, texts: Sequence[str]) -> None:
        self.tail = b""
        self.found: set[str] = set()
        """The texts that were printed."""
        self._texts = {text: text.encode() for text in texts}
        self._overlap = max([len(text) for text in self._texts.values()], default=1) - 1
        self.file = open(path, "w+b", buffering=0)  # noqa: SIM115 (closed in `close`)
        self.seen = self._written = 0
        self._full = False

    def attach(self, pipe: IO[bytes], selector: selectors.BaseSelector) -> None:
        self._pipe, self._selector = pipe, selector
        os.set_blocking(pipe.fileno(), False)
        selector.register(pipe, selectors.EVENT_READ, self.read)

    def read(self) -> bool:
        """Read available data; False if there is none."""
        try:
            data = os.read(self._pipe.fileno(), TAIL)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(self._pipe)
            return False
        self.seen += len(data)
        if self._texts:  # a text may begin in the previous piece
            piece = self.tail[-self._overlap :] * bool(self._overlap) + data
            self.found |= {text for text, wanted in self._texts.items() if wanted in piece}
        self.tail = (self.tail + data)[-TAIL:]
        if not self._full:
            try:
                self._written += self.file.write(data[: OUTPUT_LIMIT - self._written]) or 0
            except OSError:  # the disk is full, but the evaluation does not need this file
                self._full = True
            self._full |= self._written < self.seen
        return True

    def whole(self) -> str | None:
        """Return all that was printed; None if it exceeds the limit or is no longer there."""
        data = self.tail
        if self.seen > len(data):
            with suppress(OSError):
                data = os.pread(self.file.fileno(), self.seen + 1, 0) if not self._full else b""
        return data.decode(errors="replace") if len(data) == self.seen else None

    def close(self) -> None:
        with suppress(KeyError):
            self._selector.unregister(self._pipe)
        self._pipe.close()
        rest = self.tail[-(self.seen - self._written) :] if self._full else b""
        if rest:
            note = f"\n[{self.seen - self._written - len(rest)} bytes left out here]\n"
            with suppress(OSError):
                self.file.write(note.encode() + rest)
        self.file.close()

    def drain(self) -> None:
        """Read the rest after the program's end, at most what a pipe holds: others may still write."""
        for _ in range(32):
            if self._pipe.fileno() not in self._selector.get_map() or not self.read():
                return


class ProgramProcess:
    """A running program and its process group."""

    def __init__(
        self,
        argv: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        timeout: float | None,
        selector: selectors.BaseSelector,
        clock: AwakeClock,
        *,
        stdin: str,
        texts: Sequence[str],
        memory_limit: int | None,
    ) -> None:
        """Start the program. Raises OSError if that fails.

        stdin: a file in `directory`. texts: to look for in the outputs. memory_limit: bytes of address space
        of each process; on Linux.
        """
        self.directory = directory
        self._texts = texts
        self._selector = selector
        self._outputs: list[_Output] = []
        try:
            self._outputs += [_Output(directory / STDOUT, texts)]
            self._outputs += [_Output(directory / STDERR, texts)]
            with open(directory / stdin, "rb") as file:
                self._process = subprocess.Popen(
                    argv,
                    bufsize=0,
                    cwd=directory,
                    env=environment,
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except BaseException:
            for output in self._outputs:
                output.file.close()
            raise
        self.pid = self._process.pid
        if memory_limit is not None:
            self._limit_memory(memory_limit)
        self.began = time.monotonic()
        self._looked = clock.now()
        self._suspended = False
        self._may_be_suspended = SUSPENDED_TIMES * (timeout or 0.0)
        """Seconds for which it alone may be suspended before its timeout goes on."""
        self._stop_at = math.inf if timeout is None else self._looked + timeout
        self._kill_at = math.inf
        self._timed_out = False
        self._stolen = False
        for output, pipe in zip(self._outputs, (self._process.stdout, self._process.stderr), strict=True):
            assert pipe is not None
            output.attach(pipe, selector)
        # The pidfd only wakes the selector; `has_ended` asks the system, so that other systems can poll.
        self._pidfd = -1
        if sys.platform == "linux":
            with suppress(AttributeError, OSError):  # a Python or a Linux that has none
                pidfd = os.pidfd_open(self.pid)
                selector.register(pidfd, selectors.EVENT_READ, bool)
                self._pidfd = pidfd

    @property
    def stops_at(self) -> float:
        """When the timeout expires, on the clock."""
        return self._stop_at

    def due(self, now: float) -> float:
        """Return the latest time for the next check, on the clock."""
        look = now + (POLL if self._pidfd < 0 else TICK if self._stop_at < math.inf else math.inf)
        return min(self._stop_at, self._kill_at, look)

    def has_ended(self) -> bool:
        """Whether it has ended. It is not reaped: while its pid is in use, its group can be killed safely.

        Without `os.waitid` (macOS before Python 3.13) it is reaped here and its group killed at once: the
        system does not reuse the number while a member of the group lives.
        """
        try:
            if hasattr(os, "waitid"):
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if self._process.returncode is None and (code := reap(self.pid)) is not None:
                self._signal(signal.SIGKILL)
                self._process.returncode = code
        except ChildProcessError:
            self._stolen = True
            return True
        return self._process.returncode is not None

    def enforce(self, now: float) -> None:
        """Stop it after its timeout, and kill it if it does not end then."""
        if now >= self._kill_at:
            self._signal(signal.SIGKILL)
            self._kill_at = math.inf
        elif now >= min(self._stop_at, self._looked + TICK) and self._stop_at < math.inf:
            suspended = _is_suspended(self.pid)
            if (suspended or self._suspended) and self._may_be_suspended > 0:
                self._stop_at += now - self._looked
                self._may_be_suspended -= now - self._looked
            self._looked, self._suspended = now, suspended
            if now >= self._stop_at:
                self._timed_out = True
                self.stop(now)

    def stop(self, now: float) -> None:
        """Send SIGTERM; `enforce` sends SIGKILL later."""
        self._signal(signal.SIGTERM)
        self._stop_at, self._kill_at = math.inf, min(self._kill_at, now + GRACE)

    def finish(self, guard: Guard, *, whole: bool = False) -> ExitReport:
        """Kill the rest of its group and return how it ended; `whole`: with all of stdout."""
        if not self._stolen and self._process.returncode is None:
            self._signal(signal.SIGKILL)
        for output in self._outputs:
            output.drain()
        guard.forget(self.pid)
        code = self._process.wait()
        printed = self._outputs[0].whole() if whole else None
        for output in self._outputs:
            output.close()
        if self._pidfd >= 0:
            with suppress(KeyError):
                self._selector.unregister(self._pidfd)
            os.close(self._pidfd)
        stdout, stderr = (output.tail.decode(errors="replace") for output in self._outputs)
        cut = self._outputs[0].seen > TAIL
        found = self._outputs[0].found | self._outputs[1].found
        said = next((text for text in self._texts if text in found), None)
        return ExitReport(None if self._stolen else code, self._timed_out, stdout, stderr, cut, printed, said)

    def _limit_memory(self, limit: int) -> None:
        """Limit the memory from outside, just after the start: no Python may run between fork and exec.

        Memory that it has already allocated counts: beyond the limit its next request fails. A child that it
        started before is not limited.
        """
        import resource  # not on Windows

        if sys.platform != "linux":
            raise AssertionError("Command.check refuses memory_limit elsewhere")
        try:
            hard = resource.prlimit(self.pid, resource.RLIMIT_AS)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.prlimit(self.pid, resource.RLIMIT_AS, (limit, limit))
        except ProcessLookupError:  # it has ended already
            pass
        except OSError:  # it runs as another user
            self._signal(signal.SIGKILL)
            self._process.communicate()
            for output in self._outputs:
                output.file.close()
            raise

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _is_suspended(pid: int) -> bool:
    """Whether a program is suspended, also while it starts another one.

    Then the child is stopped before its exec, and the parent waits in vfork with state "D".
    """
    if is_suspended(pid):
        return True
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        if file.read().rpartition(b")")[2].split()[0] == b"D":
            with open(f"/proc/{pid}/task/{pid}/children") as children:
                return any(is_suspended(int(child)) for child in children.read().split())
    return False
