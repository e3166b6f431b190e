"""Messages between the driver and a worker process, and how the objective gets there."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import struct
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import IO, Any

from fmnes.errors import ArgumentError, UsageError
from fmnes.outcome import DETAIL_LIMIT, Outcome, Outputs, dump, load, read_json, read_outcome

# -- What goes over the channel between the driver and an evaluator.
#
# Every message is its length, then its bytes. The driver sends the function and then points (float64
# bytes);
# each is answered. Answers are plain data, a number or a few strings, with further outputs as JSON: an
# object
# of the user's might not survive the way, or break its receiver. Before all that goes sys.path, as a line
# for
# `guard.py`, which starts `serve`.


LENGTH = struct.Struct("<Q")
_FLOAT = struct.Struct("<d")
#: The first byte of the first answer: the function is loaded, and our process number; or it is not, and why.
READY, BROKEN = b"r", b"b"
#: The first byte of an outcome. NO_FILES: a failure in a process that has no file descriptors left.
VALUE, FAILED, NO_FILES = b"v", b"f", b"n"
LONGEST_ANSWER = 1 << 20


def frame(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


def receive(stream: IO[bytes]) -> bytes:
    """The next message. Raises EOFError if there is none."""
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
    """The outcome, which took so long. Raises ValueError for what `encode` never writes."""
    kind, rest = answer[:1], answer[1:]
    if kind == VALUE and len(rest) >= _FLOAT.size:
        (value,) = _FLOAT.unpack(rest[: _FLOAT.size])
        outputs = _outputs(rest[_FLOAT.size :])
        return read_outcome("value", value, "", "", "", seconds, outputs)
    if kind in (FAILED, NO_FILES):
        plain, _, more = rest.partition(b"\n")  # JSON on one line has no other
        words = read_json(plain)
        if isinstance(words, list) and len(words) == 4 and words[0] != "value":
            status, reason, fault, detail = words
            # What a worker loses has no fault: only the driver says who ended it.
            fault = "" if status == "lost" else fault
            return read_outcome(status, math.inf, reason, fault, detail, seconds, _outputs(more))
    raise ValueError("not an answer")


def _outputs(text: bytes) -> Outputs | None:
    return load(read_json(text)) if text else None


def clean(text: str) -> str:
    """Without lone surrogates, which no file or database takes."""
    return text.encode(errors="replace").decode()


# -- How the objective gets into a worker: as bytes, with those names of its script that it comes with.


def ship(fun: Callable[[Any], Any]) -> bytes:
    """The function as bytes for our own children. What is defined in the script itself is sent as it is."""
    if not callable(fun):
        raise ArgumentError(f"fun: found {fun!r}, wanted a function of one point")
    _refuse_while_importing()
    import cloudpickle  # only who uses workers needs it

    main = sys.modules.get("__main__")
    names: dict[str, Any] = {}

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        """Notes the functions and classes of the script that it meets."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
                name: str = obj.__name__
                if getattr(main, name, None) is obj:
                    names[name] = obj
            return super().reducer_override(obj)

    buffer = io.BytesIO()
    try:
        # In this order: `names` is complete when `fun` has been pickled.
        Pickler(buffer).dump((fun, names, _whereabouts(main)))
    except Exception as error:
        raise ArgumentError(
            f"fun: found {fun!r}, which cannot be sent to a worker process ({error}); "
            "wanted one without files, locks and the like"
        ) from error
    return buffer.getvalue()


def unpack(function: bytes) -> Callable[[Any], Any]:
    """In the evaluator: the function, with the names of its script where they were at home.

    An objective may itself use multiprocessing, which sends the functions of the script by their names: they
    must be found in `__main__`, here and in what is forked from here. A process that is started otherwise
    imports the script by its path, as it would from the script itself.
    """
    # From our own driver, over a socket that nobody else has.
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
    """What multiprocessing looks at: the path of the script and, after `python -m`, its name."""
    path = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    return os.path.abspath(path) if path else "", spec.name if spec else ""


def _refuse_while_importing() -> None:
    """What a worker starts may import the script: started there, too, workers would multiply without end."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "workers: found in a process of multiprocessing that is only importing the script; "
            'put the call under `if __name__ == "__main__":`'
        )
