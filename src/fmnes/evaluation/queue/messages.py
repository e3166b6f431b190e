"""A task and an answer as JSON. Numbers are exact: points as the hexadecimal bytes of their float64.

Read from a directory, so nothing of it is trusted: whatever we would not have written is a ValueError, and
nothing else is raised.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

from fmnes.evaluation.deaths import FROM_OUTSIDE
from fmnes.evaluation.queue.names import Key
from fmnes.outcome import DETAIL_LIMIT, Outcome, read_outcome
from fmnes.outputs import dump, load, read_json
from fmnes.result import Vector

#: Bytes of an answer: its words and outputs are limited where they are made.
MAX_ANSWER = 1 << 20
_OUTSIDE = {number.name for number in FROM_OUTSIDE}
#: What an answer may leave out, and what that means.
_WORDS: dict[str, Any] = {"reason": "", "fault": "", "detail": "", "seconds": None, "outputs": None}


def max_task(d: int) -> int:
    """Bytes of a task of so many coordinates."""
    return 16 * d + 1000


def dump_task(job: str, key: Key, x: Vector) -> bytes:
    return json.dumps({"job": job, "key": key, "x": _bytes(x).hex()}).encode()


def load_task(data: bytes, key: Key, d: int) -> tuple[str, Vector]:
    """The job it belongs to, and the point. (d,)"""
    task = _table(data, {"job", "key", "x"})
    if not _is_key(task["key"], key):
        raise ValueError("a task of another name")
    job, x = task["job"], task["x"]
    if not isinstance(job, str) or not isinstance(x, str):
        raise ValueError("no text where there should be some")
    point = np.frombuffer(bytes.fromhex(x), dtype="<f8").astype(np.float64)
    if len(point) != d or not np.isfinite(point).all():
        raise ValueError(f"no point of {d} finite coordinates")
    return job, point


def dump_answer(job: str, key: Key, x: Vector, outcome: Outcome) -> bytes:
    answer = {
        "job": job,
        "key": key,
        "point": digest(x),
        "status": outcome.status,
        "value": outcome.value.hex(),
        "reason": _cut(outcome.reason),
        "fault": _cut(outcome.fault),
        "detail": _cut(outcome.detail),
        "seconds": None if math.isnan(outcome.seconds) else outcome.seconds,
        "outputs": None if outcome.outputs is None else json.loads(dump(outcome.outputs)),
    }
    return json.dumps(answer).encode()


def load_answer(data: bytes, job: str, key: Key, x: Vector) -> Outcome:
    """What came of this point. An answer of another job, name or point is none."""
    answer = _WORDS | _table(data, {"job", "key", "point", "status", "value", *_WORDS})
    if answer["job"] != job or not _is_key(answer["key"], key) or answer["point"] != digest(x):
        raise ValueError("an answer to another question")
    status, outputs, seconds = answer["status"], answer["outputs"], answer["seconds"]
    reason, fault, detail = (_word(answer[name]) for name in ("reason", "fault", "detail"))
    if status == "lost":  # the mark of a death from outside stays: see `deaths.Retried`
        fault = fault if fault in _OUTSIDE else ""
    return read_outcome(
        status,
        _value(answer["value"]),
        reason,
        fault,
        detail,
        math.nan if seconds is None else seconds,
        None if outputs is None else load(outputs),
    )


def digest(x: Vector) -> str:
    return hashlib.sha256(_bytes(x)).hexdigest()


def _bytes(x: Vector) -> bytes:
    return np.ascontiguousarray(x, dtype="<f8").tobytes()


def _table(data: bytes, names: set[str]) -> dict[str, Any]:
    """A table of these names. Those that have defaults may be missing."""
    found = read_json(data)
    if not isinstance(found, dict):
        raise ValueError("no table")
    wrong = sorted((names - set(found) - set(_WORDS)) | (set(found) - names))
    if wrong:
        raise ValueError(f"{len(wrong)} fields too many or too few: {wrong[0][:40]!r}")
    return found


def _is_key(found: Any, key: Key) -> bool:
    return isinstance(found, list) and all(type(number) is int for number in found) and found == list(key)


def _value(found: Any) -> float:
    """Exactly what `float.hex` writes: what others take for hexadecimal may be too large for a float."""
    try:
        value = float.fromhex(found)
    except (TypeError, OverflowError):
        raise ValueError("a value that is no number") from None
    if value.hex() != found:
        raise ValueError("a value that is not written as ours")
    return value


def _word(found: Any) -> str:
    if not isinstance(found, str) or len(found) > DETAIL_LIMIT:
        raise ValueError(f"a reason, fault or detail that is no text of at most {DETAIL_LIMIT} characters")
    return found


def _cut(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()[:DETAIL_LIMIT]
