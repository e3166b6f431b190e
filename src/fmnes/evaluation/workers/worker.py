"""The driver's side of one worker: its states, its two sockets and how it ended."""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from fmnes.arguments import is_number
from fmnes.evaluation import supervision
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.supervision import outcome_of_death
from fmnes.evaluation.workers import guard
from fmnes.evaluation.workers.messages import LENGTH, LONGEST_ANSWER, READY, frame
from fmnes.outcome import DETAIL_LIMIT, Outcome, read_json

#: Seconds to wait for a killed worker.
_END_SECONDS = 0.9
#: The same if only the guard's report can decide whose fault its end was.
_REPORT_SECONDS = 5.0
#: Seconds to wait for a stopped guard after SIGCONT.
_URGE_SECONDS = 0.5
#: Guards that still run because their evaluators cannot be killed; kept to be reaped.
_silent: list[subprocess.Popen[bytes]] = []


class State(Enum):
    STARTING = "loading the objective"
    IDLE = "waiting for a point"
    EVALUATING = "working on a point"
    LEAVING = "its channel is closed: it has ended, or ends by itself"
    KILLING = "its guard was asked to kill it"
    GONE = "its guard has reported, or is not waited for any longer"


#: Allowed transitions.
_NEXT: dict[State, tuple[State, ...]] = {
    State.STARTING: (State.IDLE, State.LEAVING, State.KILLING, State.GONE),
    State.IDLE: (State.EVALUATING, State.LEAVING, State.KILLING, State.GONE),
    State.EVALUATING: (State.IDLE, State.LEAVING, State.KILLING, State.GONE),
    State.LEAVING: (State.KILLING, State.GONE),
    State.KILLING: (State.GONE,),
    State.GONE: (),
}


class WorkerExit(NamedTuple):
    """How a worker ended."""

    outcome: Outcome
    """The outcome of its task."""
    time: float = math.inf
    output: Sequence[tuple[float, str]] = ()
    """The tail of its output with times."""

    def printed(self, since: float) -> str:
        return "".join(text for when, text in self.output if when >= since)[-DETAIL_LIMIT:]


class Worker:
    """One worker process. Nothing blocks: the pool waits for the two sockets and until `expires`."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        awake: supervision.AwakeClock,
        first_message: bytes,
        *,
        environment: Mapping[str, str],
        directory: str,
        patience: float,
    ) -> None:
        """Start the process; raises OSError if that fails."""
        with ExitStack() as opened:
            self._channel, their_channel = map(opened.enter_context, socket.socketpair())
            self._control, their_control = map(opened.enter_context, socket.socketpair())
            self._guard = subprocess.Popen(
                [sys.executable, "-P", os.path.abspath(guard.__file__), str(os.getpid())],
                stdin=their_channel.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=their_control.fileno(),
                start_new_session=True,
                env=environment,
                cwd=directory,
            )
            opened.pop_all()
        their_channel.close()
        their_control.close()
        self.state = State.STARTING
        self.task: Task | None = None
        """Its current or last task."""
        self.started = math.inf
        """When it got its task."""
        self.expires = awake.now() + patience
        """When the time limit of its state ends, on the pool's clock."""
        self._killed_for: Outcome | None = None
        """The outcome of its task if it has to be killed."""
        self._alive_when_killed = False
        self._pid = 0
        """Pid of the evaluator; 0 while it starts."""
        self._suspended = self._may_be_suspended = 0.0
        """Seconds for which it alone was suspended during its task, and their limit."""
        self._inbox = bytearray()
        self._outbox = memoryview(first_message)
        self._report = bytearray()
        self._awake = awake
        self._selector = selector
        self._channel.setblocking(False)
        selector.register(self._channel, selectors.EVENT_READ, (self, "channel"))
        selector.register(self._control, selectors.EVENT_READ, (self, "control"))
        self.push()

    def _become(self, state: State) -> None:
        assert state in _NEXT[self.state], f"from {self.state} to {state}"
        self.state = state

    def note_ready(self, answer: bytes) -> None:
        """Record that the objective is loaded. Raises ValueError for an invalid message."""
        self._pid = int(answer.removeprefix(READY))
        self._become(State.IDLE)
        self.expires = math.inf

    def assign(self, task: Task, timeout: float) -> None:
        self.task = task
        self._become(State.EVALUATING)
        self.started = time.monotonic()
        self.expires = self._awake.now() + timeout
        self._suspended, self._may_be_suspended = 0.0, supervision.SUSPENDED_TIMES * timeout
        self._outbox = memoryview(frame(task.x.astype(np.float64).tobytes()))
        self.push()

    def note_answer(self) -> None:
        self._become(State.IDLE)
        self.task, self.expires = None, math.inf

    def push(self) -> None:
        """Send what the channel accepts, and the rest when it is writable again."""
        try:
            sent = self._channel.send(self._outbox)
        except BlockingIOError:
            sent = 0
        except OSError:  # it died before it got this task
            self.started = math.inf
            return self.close_channel()
        self._outbox = self._outbox[sent:]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if len(self._outbox) else 0)
        if self._selector.get_key(self._channel).events != events:
            self._selector.modify(self._channel, events, (self, "channel"))

    def read(self) -> bytes | None:
        """Return an answer once it is complete. Raises ValueError for an invalid length."""
        try:
            data = self._channel.recv(1 << 16)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self.close_channel()
            return None
        self._inbox += data
        if len(self._inbox) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._inbox)
        if length > LONGEST_ANSWER:
            raise ValueError("too long for an answer")
        if len(self._inbox) < LENGTH.size + length:
            return None
        message = bytes(self._inbox[LENGTH.size : LENGTH.size + length])
        del self._inbox[: LENGTH.size + length]
        return message

    def read_guard(self) -> bool:
        """Read from the guard; whether it has closed its socket, which is its last action."""
        data = b""
        with suppress(OSError):
            data = self._control.recv(1 << 16)
        self._report += data
        return not data

    def pause(self, seconds: float) -> None:
        """Extend the time limit by `seconds` if the worker is suspended."""
        if self.state is not State.EVALUATING or self.expires == math.inf:
            return
        if self._suspended < self._may_be_suspended and supervision.is_suspended(self._pid):
            self._suspended += seconds
            self.expires = max(self.expires + seconds, self._awake.now() + supervision.TICK)

    def close_channel(self) -> None:
        """Close the channel; an idle evaluator exits then."""
        self.expires = self._awake.now() + _END_SECONDS  # first, as Ctrl-C may interrupt between the lines
        self._become(State.LEAVING)
        self._forget(self._channel)

    def kill(self, outcome: Outcome | None = None, *, show_stack: bool = False) -> None:
        """Let the guard kill it; `outcome` is that of its task, and later answers are ignored.

        If it has closed its channel it may have died already, which only the guard's report shows.
        """
        self._killed_for = outcome
        self._alive_when_killed = self.state is not State.LEAVING
        wants_report = self.task is not None and not self._alive_when_killed
        self.expires = self._awake.now() + (_REPORT_SECONDS if wants_report else _END_SECONDS)
        self._become(State.KILLING)
        self._forget(self._channel)
        with suppress(OSError):
            self._control.sendall(guard.SHOW_STACK if show_stack else b"")
            self._control.shutdown(socket.SHUT_WR)

    def leave(self, *, guard_is_gone: bool) -> WorkerExit:
        """Release it. If SIGKILL has not ended the evaluator by now, its guard continues to try."""
        self._become(State.GONE)
        self._forget(self._channel)
        self._forget(self._control)
        if not guard_is_gone:
            self._urge_guard()
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(5.0 if guard_is_gone else 0.0)
        _silent.append(self._guard)
        _silent[:] = [guard for guard in _silent if guard.poll() is None]
        return self._exit()

    def _urge_guard(self) -> None:
        """Continue a silent guard that may be stopped; kill it if that fails."""
        self._guard.send_signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(_URGE_SECONDS)
        if self._guard.poll() is None and supervision.is_suspended(self._guard.pid):
            if self._pid:  # the guard has not reaped it, so the pid is still valid
                with suppress(OSError):
                    os.killpg(self._pid, signal.SIGKILL)
            self._guard.kill()
            self._guard.wait()

    def _exit(self) -> WorkerExit:
        """Derive how it ended from the guard's report."""
        report = _read_report(bytes(self._report))
        if report is None:
            # The guard failed and wrote why, or it was killed, or it is still silent.
            if self._alive_when_killed and self._killed_for:
                return WorkerExit(self._killed_for)
            words = self._report.decode(errors="replace").strip()
            return WorkerExit(replace(outcome_of_death(None), detail=words[-DETAIL_LIMIT:]))
        decided = self._killed_for if report["killed"] else None
        outcome = decided or outcome_of_death(report["status"], stopping=report["killed"])
        return WorkerExit(outcome, report["time"], report["output"])

    def _forget(self, connection: socket.socket) -> None:
        if connection.fileno() >= 0:
            self._selector.unregister(connection)
            connection.close()


def _read_report(data: bytes) -> dict[str, Any] | None:
    """Parse the last line of a guard's report; None for anything that `guard.py` does not write."""
    try:
        report = read_json(data.rpartition(b"\n")[2])
    except ValueError:
        return None
    if not isinstance(report, dict) or set(report) != {"status", "killed", "time", "output"}:
        return None
    output = report["output"]
    valid = type(report["status"]) is int and type(report["killed"]) is bool and is_number(report["time"])
    valid = valid and isinstance(output, list) and all(map(_is_piece, output))
    return report if valid else None


def _is_piece(found: Any) -> bool:
    """Whether it is a time and a text."""
    return isinstance(found, list) and len(found) == 2 and is_number(found[0]) and isinstance(found[1], str)
