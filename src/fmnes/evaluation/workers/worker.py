"""One worker, from both ends: `Worker` in the driver, `serve` in the process that evaluates.

Every message on the channel between them is its length, then its bytes. The driver sends the function and
then points (float64 bytes); each is answered. Answers are plain data, a number or a few strings: an object of
the user's might not survive the way, or break its receiver. (Before all that goes sys.path, as a line for
`guard.py`, which starts `serve`.)
"""

from __future__ import annotations

import json
import math
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any, NamedTuple

import numpy as np

from fmnes.evaluation.workers import guard
from fmnes.outcome import (
    DETAIL_LIMIT,
    Outcome,
    call,
    from_exception,
    from_number,
    infeasible,
    lost,
)
from fmnes.result import Vector

_LENGTH = struct.Struct("<Q")
_FLOAT = struct.Struct("<d")
#: The first byte of an answer.
READY, BROKEN, VALUE, FAILED = b"r", b"b", b"v", b"f"
_LONGEST_ANSWER = 1 << 20

#: Signals that no computation raises: somebody ended the process, and the point is not to blame.
_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: A killed worker is gone in milliseconds, unless the system cannot kill it.
_END_SECONDS = 0.9


def frame(message: bytes) -> bytes:
    return _LENGTH.pack(len(message)) + message


class Ending(NamedTuple):
    """How a worker ended, in the words of its guard."""

    outcome: Outcome
    """Of the task it was working on."""
    time: float = math.inf
    output: Sequence[tuple[float, str]] = ()
    """The tail of what it has printed, and when."""

    def printed(self, since: float) -> str:
        return "".join(text for when, text in self.output if when >= since)[-DETAIL_LIMIT:]


class Worker:
    """The driver's end. Nothing here blocks: the pool waits, on the two sockets and until `expires`."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        greeting: bytes,
        *,
        environment: Mapping[str, str],
        directory: str,
        patience: float,
    ) -> None:
        """Raises OSError if the process cannot be started."""
        with ExitStack() as opened:
            self._channel, their_channel = map(opened.enter_context, socket.socketpair())
            self._lifeline, their_lifeline = map(opened.enter_context, socket.socketpair())
            self._process = subprocess.Popen(
                [sys.executable, "-P", os.path.abspath(guard.__file__), str(os.getpid())],
                stdin=their_channel.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=their_lifeline.fileno(),
                start_new_session=True,
                env=environment,
                cwd=directory,
            )
            opened.pop_all()
        their_channel.close()
        their_lifeline.close()
        self.ready = False
        """It has loaded the objective."""
        self.position: int | None = None
        """The task it works on."""
        self.started = math.inf
        self.expires = time.monotonic() + patience
        """When our patience with what it is doing now (starting, evaluating, ending) is over."""
        self.verdict: Outcome | None = None
        """What its task comes to, where that is decided before its end."""
        self.ending = False
        """Its guard was told to kill it."""
        self._inbox = bytearray()
        self._outbox = memoryview(greeting)
        self._last_words = bytearray()
        self._gone = False
        self._selector = selector
        self._channel.setblocking(False)
        selector.register(self._channel, selectors.EVENT_READ, (self, "channel"))
        selector.register(self._lifeline, selectors.EVENT_READ, (self, "lifeline"))
        self.push()

    @property
    def connected(self) -> bool:
        return self._channel.fileno() >= 0

    @property
    def idle(self) -> bool:
        return self.ready and self.position is None and self.connected

    def give(self, position: int, x: Vector, timeout: float) -> None:
        self.position = position
        self.started = time.monotonic()
        self.expires = self.started + timeout
        self._outbox = memoryview(frame(x.astype(np.float64).tobytes()))
        self.push()

    def push(self) -> None:
        """Send what the channel takes; the rest goes when it can take more."""
        try:
            sent = self._channel.send(self._outbox)
        except BlockingIOError:
            sent = 0
        except OSError:  # it died before this, so this task is innocent
            self.started = math.inf
            return self.hang_up()
        self._outbox = self._outbox[sent:]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if len(self._outbox) else 0)
        if self._selector.get_key(self._channel).events != events:
            self._selector.modify(self._channel, events, (self, "channel"))

    def hear(self) -> bytes | None:
        """An answer, if a whole one has come. Raises ValueError for what cannot be one."""
        try:
            data = self._channel.recv(1 << 16)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self.hang_up()
        self._inbox += data
        if len(self._inbox) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._inbox)
        if length > _LONGEST_ANSWER:
            raise ValueError("too long for an answer")
        if len(self._inbox) < _LENGTH.size + length:
            return None
        message = bytes(self._inbox[_LENGTH.size : _LENGTH.size + length])
        del self._inbox[: _LENGTH.size + length]
        return message

    def hear_guard(self) -> bool:
        """Whether that was the last of it: the guard goes when all is over."""
        data = b""
        with suppress(OSError):
            data = self._lifeline.recv(1 << 16)
        self._last_words += data
        self._gone = not data
        return self._gone

    def hang_up(self) -> None:
        """Close the channel, upon which an idle evaluator ends by itself."""
        if self.connected:
            self._selector.unregister(self._channel)
            self._channel.close()
        self.expires = time.monotonic() + _END_SECONDS

    def end(self, *, show_stack: bool = False) -> None:
        """Have the guard kill it; late answers are not heard any more."""
        self.hang_up()
        self.ending = True
        with suppress(OSError):
            self._lifeline.sendall(guard.SHOW_STACK if show_stack else b"")
            self._lifeline.shutdown(socket.SHUT_WR)

    def leave(self) -> Ending:
        """Forget it. If not even SIGKILL has ended it by now, its guard will see to the rest."""
        self.hang_up()
        self._selector.unregister(self._lifeline)
        self._lifeline.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0 if self._gone else 0.0)
        try:
            report = json.loads(self._last_words.rpartition(b"\n")[2])
            return Ending(_from_status(report["status"]), report["time"], report["output"])
        except ValueError:  # the guard itself has failed, and told why, or it was killed
            words = self._last_words.decode(errors="replace").strip() or "its guard was killed"
            return Ending(lost(words.splitlines()[-1], detail=words))


def _from_status(status: int) -> Outcome:
    if status >= 0:
        return infeasible(f"exited with code {status}", fault=f"exit {status}")
    try:
        name = signal.Signals(-status).name
    except ValueError:  # the real-time signals have no names
        name = f"signal {-status}"
    if -status in _FROM_OUTSIDE:
        return lost(f"ended from outside ({name})")
    if -status == signal.SIGKILL:
        return infeasible(f"killed ({name}), maybe out of memory", fault=name)
    return infeasible(f"died: {name}", fault=name)


def decode(answer: bytes) -> Outcome:
    """Raises ValueError or TypeError for what `_encode` cannot have written."""
    kind, rest = answer[:1], answer[1:]
    if kind == VALUE and len(rest) == _FLOAT.size:
        return from_number(_FLOAT.unpack(rest)[0])
    if kind == FAILED:
        status, reason, fault, detail = map(str, json.loads(rest))
        if status == "infeasible":
            return infeasible(reason, fault=fault, detail=detail)
        if status == "lost":
            return lost(reason, detail=detail)
    raise ValueError("not an answer")


def _encode(outcome: Outcome) -> bytes:
    if outcome.status == "value":
        return VALUE + _FLOAT.pack(outcome.value)
    words = (outcome.status, outcome.reason, outcome.fault, outcome.detail)
    return FAILED + json.dumps([_clean(str(word)[:DETAIL_LIMIT]) for word in words]).encode()


def _clean(text: str) -> str:
    """Without lone surrogates, which no file or database takes."""
    return text.encode(errors="replace").decode()


def serve(channel: socket.socket, stream: IO[bytes]) -> None:
    """In the evaluator: answer point after point until the driver closes the channel."""
    with suppress(EOFError, BrokenPipeError):
        function = _receive(stream)
        try:
            fun = pickle.loads(function)  # from our own driver, over a socket that nobody else has
        except BaseException:
            return channel.sendall(frame(BROKEN + _clean(traceback.format_exc()).encode()))
        channel.sendall(frame(READY))
        me = os.getpid()
        while True:
            x = np.frombuffer(_receive(stream)).copy()  # a copy: the objective may write to it
            answer = _encode(_outcome(fun, x))
            if os.getpid() != me:  # the objective has forked, and both of us have returned
                os._exit(0)
            with suppress(Exception):  # sys.stdout may be anything by now
                sys.stdout.flush()
            channel.sendall(frame(answer))


def _outcome(fun: Callable[[Any], Any], x: Vector) -> Outcome:
    try:
        return call(fun, x)
    except BaseException as error:  # KeyboardInterrupt, the user's own, or one raised in telling an error
        with suppress(BaseException):
            return from_exception(error)
        name = type(error).__name__
        return infeasible(name, fault=name)


def _receive(stream: IO[bytes]) -> bytes:
    (length,) = _LENGTH.unpack(_read(stream, _LENGTH.size))
    return _read(stream, length)


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
