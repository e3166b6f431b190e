"""The evaluator's side of a worker: evaluates points until the driver closes the channel."""

from __future__ import annotations

import errno
import os
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fmnes.evaluation.workers.messages import BROKEN, READY, clean, encode, frame, receive, unpack
from fmnes.outcome import Outcome, call, from_exception, infeasible

if TYPE_CHECKING:
    from fmnes.result import Vector


def serve(channel: socket.socket, stream: IO[bytes]) -> None:
    with suppress(EOFError, BrokenPipeError):
        function, me = receive(stream), os.getpid()
        try:
            fun = unpack(function)
        except BaseException:
            return channel.sendall(frame(BROKEN + clean(traceback.format_exc()).encode()))
        if os.getpid() != me:  # the objective's module forked on import: this is the child
            os._exit(0)
        channel.sendall(frame(READY + str(me).encode()))
        while True:
            x = np.frombuffer(receive(stream)).copy()  # a copy: the objective may write to it
            answer = _answer(fun, x)
            with suppress(Exception):  # the objective may have replaced sys.stdout
                sys.stdout.flush()
            channel.sendall(frame(answer))


def _answer(fun: Callable[[Any], Any], x: Vector) -> bytes:
    raised: list[BaseException] = []

    def recording(x: Vector) -> Any:
        try:
            return fun(x)
        except BaseException as error:
            raised.append(error)
            raise

    outcome = _outcome(recording, x)
    no_files = outcome.status != "value" and (any(map(_is_no_files, raised)) or not _can_open())
    return encode(outcome, no_files=no_files)


def _outcome(fun: Callable[[Any], Any], x: Vector) -> Outcome:
    try:
        return call(fun, x, elsewhere=True)
    except BaseException as error:
        # Also KeyboardInterrupt: Ctrl-C goes to the driver, so the objective raised it.
        with suppress(BaseException):
            return from_exception(error)
        name = type(error).__name__
        return infeasible(name, fault=name)


def _is_no_files(error: BaseException) -> bool:
    """Whether the error, or one of its causes, means that no more files can be opened."""
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, OSError) and one.errno in (errno.EMFILE, errno.ENFILE):
            return True
        if id(one) not in seen:
            seen.add(id(one))
            waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
    return False


def _can_open() -> bool:
    """Whether a file can be opened: the objective may have hidden such an error."""
    try:
        os.close(os.dup(0))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True
