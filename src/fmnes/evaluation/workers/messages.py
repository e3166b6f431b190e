"""The channel between the driver and a worker: its messages, and `serve`, the worker's side of it."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import pickle
import socket
import struct
import sys
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fmnes.errors import ArgumentError, UsageError
from fmnes.outcome import (
    DETAIL_LIMIT,
    Outcome,
    Outputs,
    call,
    dump,
    from_exception,
    infeasible,
    load,
    read_json,
    read_outcome,
)

if TYPE_CHECKING:
    from fmnes.result import Vector

# -- Messages
#
# A message is its length and its bytes. The driver first sends sys.path as a line for `guard.py`, then the
# function, then points (float64 bytes), and receives an answer to each. Answers are plain data: a number or a
# few strings, and further outputs as JSON. An object of the user might not be picklable.


LENGTH = struct.Struct("<Q")
_FLOAT = struct.Struct("<d")
#: The first byte of the first answer: the function is loaded (with the pid), or not (with the reason).
READY, BROKEN = b"r", b"b"
#: The first byte of an outcome. NO_FILES: a failure in a process without free file descriptors.
VALUE, FAILED, NO_FILES = b"v", b"f", b"n"
LONGEST_ANSWER = 1 << 20


def frame(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


def receive(stream: IO[bytes]) -> bytes:
    """Read the next message. Raises EOFError at the end."""
    (length,) = LENGTH.unpack(_read(stream, LENGTH.size))
    return _read(stream, length)


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def encode(outcome: Outcome, *, no_files: bool = False) -> bytes:
    outputs = dump(outcome.outputs).encode() if outcome.outputs else b""
    if outcome.status == "value":
        return VALUE + _FLOAT.pack(outcome.value) + outputs
    words = (outcome.status, outcome.reason, outcome.fault, outcome.detail)
    kind = NO_FILES if no_files else FAILED
    plain = json.dumps([clean(str(word)[:DETAIL_LIMIT]) for word in words]).encode()
    return kind + plain + (b"\n" + outputs if outputs else b"")


def decode(answer: bytes, seconds: float) -> Outcome:
    """Parse an outcome that took `seconds`. Raises ValueError for what `encode` never writes."""
    kind, rest = answer[:1], answer[1:]
    if kind == VALUE and len(rest) >= _FLOAT.size:
        (value,) = _FLOAT.unpack(rest[: _FLOAT.size])
        outputs = _outputs(rest[_FLOAT.size :])
        return read_outcome("value", value, "", "", "", seconds, outputs)
    if kind in (FAILED, NO_FILES):
        plain, _, more = rest.partition(b"\n")  # the JSON contains no line break
        words = read_json(plain)
        if isinstance(words, list) and len(words) == 4 and words[0] != "value":
            status, reason, fault, detail = words
            # A lost evaluation has no fault here: only the driver knows what ended it.
            fault = "" if status == "lost" else fault
            return read_outcome(status, math.inf, reason, fault, detail, seconds, _outputs(more))
    raise ValueError("not an answer")


def _outputs(text: bytes) -> Outputs | None:
    return load(read_json(text)) if text else None


def clean(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    return text.encode(errors="replace").decode()


# -- Sending the objective


def ship(fun: Callable[[Any], Any]) -> bytes:
    """Pickle the function for child processes; definitions of the script itself are sent by value."""
    if not callable(fun):
        raise ArgumentError(f"fun: found {fun!r}, wanted a function of one point")
    _refuse_while_importing()
    import cloudpickle  # only needed for workers

    main = sys.modules.get("__main__")
    names: dict[str, Any] = {}

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        """Records functions and classes of the script."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
                name: str = obj.__name__
                if getattr(main, name, None) is obj:
                    names[name] = obj
            return super().reducer_override(obj)

    buffer = io.BytesIO()
    try:
        # The order matters: `names` is complete after `fun` is pickled.
        Pickler(buffer).dump((fun, names, _whereabouts(main)))
    except Exception as error:
        raise ArgumentError(
            f"fun: found {fun!r}, which cannot be sent to a worker process ({error}); "
            "wanted one without files, locks and the like"
        ) from error
    return buffer.getvalue()


def unpack(function: bytes) -> Callable[[Any], Any]:
    """Unpickle the function in the evaluator, with a `__main__` that has the names of its script.

    An objective may itself use multiprocessing, which sends the script's functions by name: they must be
    found in `__main__`, here and in forks. A spawned process imports the script by its path.
    """
    # From our own driver, over a private socket.
    fun, names, (path, module) = pickle.loads(function)
    main = types.ModuleType("__main__")
    vars(main).update(names)
    if names:
        if path:
            main.__file__ = path
        main.__spec__ = ModuleSpec(module, None) if module else None
    sys.modules["__main__"] = main
    return fun  # type: ignore[no-any-return]


def _whereabouts(main: types.ModuleType | None) -> tuple[str, str]:
    """Return what multiprocessing needs: the path of the script and, after `python -m`, its name."""
    path = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    return os.path.abspath(path) if path else "", spec.name if spec else ""


def _refuse_while_importing() -> None:
    """Refuse to start workers while a child process imports the script: they would multiply without end."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "workers: found in a process of multiprocessing that is only importing the script; "
            'put the call under `if __name__ == "__main__":`'
        )


# -- The evaluator's side of a worker: evaluates points until the driver closes the channel.


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
