"""Running an external program: one process with its group and its two outputs.

Nothing a program starts may survive it. Three nets, because each has holes:

- every program leads its own session, and its process group is killed when it ends or is stopped;
- every program carries a token in its environment: what left the group is found by it (`guard.sweep`);
- the guard, a small process of its own, does both when this process dies, even by kill -9.
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

#: Bytes of each output that go to disk; of what follows only the last TAIL bytes are kept.
OUTPUT_LIMIT = 10_000_000
TAIL = 65_536
#: Seconds between the polite signal and the deadly one.
GRACE = 0.5
#: Seconds between two looks at a program's state on a system without pidfd.
POLL = 0.01

PARAMS, RESULTS = "params.json", "results.txt"
STDIN, STDOUT, STDERR = "stdin.txt", "stdout.txt", "stderr.txt"


class ExitReport(NamedTuple):
    """How a program ended."""

    code: int | None
    """As subprocess has it: negative for a signal. None: somebody else in this process took it."""
    timed_out: bool
    stdout: str
    stderr: str
    """The tails of its outputs."""
    cut: bool
    """`stdout` is not all it has printed."""
    whole: str | None = None
    """All it has printed on stdout, if that was asked for and is on disk."""
    said: str | None = None
    """The first of the texts to look for that it has printed, on stdout or stderr."""


class _Output:
    """One output, read without ever blocking: the head goes to a file, the tail stays in memory.

    A pipe and not the file itself, because nothing stops a program that writes to a file without end; and
    it is read to the end beyond the limit, because a full pipe would block the program.
    """

    def __init__(self, path: Path, texts: Sequence[str]) -> None:
        self.tail = b""
        self.found: set[str] = set()
        """Those of the texts that were printed."""
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
        """Take what is there; False if there was nothing."""
        try:
            data = os.read(self._pipe.fileno(), TAIL)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(self._pipe)
            return False
        self.seen += len(data)
        if self._texts:  # a text may begin in the piece before
            piece = self.tail[-self._overlap :] * bool(self._overlap) + data
            self.found |= {text for text, wanted in self._texts.items() if wanted in piece}
        self.tail = (self.tail + data)[-TAIL:]
        if not self._full:
            try:
                self._written += self.file.write(data[: OUTPUT_LIMIT - self._written]) or 0
            except OSError:  # the disk is full: the evaluation can do without this file
                self._full = True
            self._full |= self._written < self.seen
        return True

    def whole(self) -> str | None:
        """All that was printed; None if it is more than what goes to disk, or not there any more."""
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
        """Take what is left once the program is gone: at most what a pipe holds, others may go on writing."""
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
        """Raises OSError if it cannot be started.

        stdin: the file of `directory` that is its standard input. texts: what to look for in its outputs.
        memory_limit: bytes of address space for each of its processes; on Linux.
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
        """Seconds, while we are not: one that stops itself for good hangs like any other."""
        self._stop_at = math.inf if timeout is None else self._looked + timeout
        self._kill_at = math.inf
        self._timed_out = False
        self._stolen = False
        for output, pipe in zip(self._outputs, (self._process.stdout, self._process.stderr), strict=True):
            assert pipe is not None
            output.attach(pipe, selector)
        # Only a wake-up: whether it has ended is asked of the system, so that those without it just poll.
        self._pidfd = -1
        if sys.platform == "linux":
            with suppress(AttributeError, OSError):  # a Python or a Linux that has none
                pidfd = os.pidfd_open(self.pid)
                selector.register(pidfd, selectors.EVENT_READ, bool)
                self._pidfd = pidfd

    @property
    def stops_at(self) -> float:
        """When its timeout is over, by the clock."""
        return self._stop_at

    def due(self, now: float) -> float:
        """When to look at it again at the latest. All times are those of the clock."""
        look = now + (POLL if self._pidfd < 0 else TICK if self._stop_at < math.inf else math.inf)
        return min(self._stop_at, self._kill_at, look)

    def has_ended(self) -> bool:
        """Ended, but not reaped: while its number is taken, its group can be killed without a mistake.

        Without `os.waitid` (macOS before Python 3.13) it is reaped here, and its group killed in the same
        breath: the system gives the number to nobody else while one of the group lives.
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
        """Stop it if its time is over, kill it if it was stopped and did not end."""
        if now >= self._kill_at:
            self._signal(signal.SIGKILL)
            self._kill_at = math.inf
        elif now >= min(self._stop_at, self._looked + TICK) and self._stop_at < math.inf:
            suspended = _stands_still(self.pid)
            if (suspended or self._suspended) and self._may_be_suspended > 0:  # it has not run all the time
                self._stop_at += now - self._looked
                self._may_be_suspended -= now - self._looked
            self._looked, self._suspended = now, suspended
            if now >= self._stop_at:
                self._timed_out = True
                self.stop(now)

    def stop(self, now: float) -> None:
        """Ask it to end; `enforce` will see to it."""
        self._signal(signal.SIGTERM)
        self._stop_at, self._kill_at = math.inf, min(self._kill_at, now + GRACE)

    def finish(self, guard: Guard, *, whole: bool = False) -> ExitReport:
        """Kill what is left of it, and tell how it ended; with all of its stdout if asked."""
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
        """From outside, a moment after its start: what runs between fork and exec must not be Python.

        What it has taken in that moment is not taken back, but counts: whatever is beyond the limit fails at
        its next request. A child that it should have started before has the limit of this process only.
        """
        import resource  # there is none on Windows

        if sys.platform != "linux":
            raise AssertionError("Command.check refuses memory_limit elsewhere")
        try:
            hard = resource.prlimit(self.pid, resource.RLIMIT_AS)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.prlimit(self.pid, resource.RLIMIT_AS, (limit, limit))
        except ProcessLookupError:  # it has ended already
            pass
        except OSError:  # it runs as somebody else
            self._signal(signal.SIGKILL)
            self._process.communicate()
            for output in self._outputs:
                output.file.close()
            raise

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _stands_still(pid: int) -> bool:
    """Whether a program is suspended, also in the middle of starting another one.

    Then the child is stopped before its exec, and the parent waits for it in vfork: the system calls it "D".
    """
    if is_suspended(pid):
        return True
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        if file.read().rpartition(b")")[2].split()[0] == b"D":
            with open(f"/proc/{pid}/task/{pid}/children") as children:
                return any(is_suspended(int(child)) for child in children.read().split())
    return False
