"""What goes over the channel between the driver and an evaluator.

Every message is its length, then its bytes. The driver sends the function and then points (float64 bytes);
each is answered. Answers are plain data, a number or a few strings, with further outputs as JSON: an object
of the user's might not survive the way, or break its receiver. Before all that goes sys.path, as a line for
`guard.py`, which starts `serve`.
"""

from __future__ import annotations

import json
import math
import struct
from typing import IO

from fmnes.outcome import DETAIL_LIMIT, Outcome, read_outcome
from fmnes.outputs import Outputs, dump, load, read_json

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
