"""A task and an answer as JSON. Numbers are exact: points as the hexadecimal bytes of their float64.

Read from a directory, so nothing of it is trusted: whatever we would not have written is a ValueError.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from fmnes.evaluation.deaths import FROM_OUTSIDE
from fmnes.evaluation.queue.names import Key
from fmnes.outcome import DETAIL_LIMIT, Outcome, infeasible, lost
from fmnes.outputs import dump, load
from fmnes.result import Vector

#: Bytes of an answer: its words and outputs are limited where they are made.
MAX_ANSWER = 1 << 20
_OUTSIDE = {number.name for number in FROM_OUTSIDE}


def max_task(d: int) -> int:
    """Bytes of a task of so many coordinates."""
    return 16 * d + 1000


def dump_task(job: str, key: Key, x: Vector) -> bytes:
    return json.dumps({"job": job, "key": key, "x": _bytes(x).hex()}).encode()


def load_task(data: bytes, key: Key, d: int) -> tuple[str, Vector]:
    """The job it belongs to, and the point. (d,)"""
    task = _table(data)
    if task.get("key") != list(key):
        raise ValueError("a task of another name")
    x = np.frombuffer(bytes.fromhex(str(task.get("x"))), dtype="<f8").astype(np.float64)
    if len(x) != d or not np.isfinite(x).all():
        raise ValueError(f"no point of {d} finite coordinates")
    return str(task.get("job")), x


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
    answer = _table(data)
    if answer.get("job") != job or answer.get("key") != list(key) or answer.get("point") != digest(x):
        raise ValueError("an answer to another question")
    reason, fault, detail = (str(answer.get(word, "")) for word in ("reason", "fault", "detail"))
    outcome = None
    if answer.get("status") == "value":
        value = float.fromhex(str(answer.get("value")))
        outcome = Outcome("value", value) if math.isfinite(value) else None
    elif answer.get("status") == "infeasible":
        outcome = infeasible(reason, fault=fault, detail=detail)
    elif answer.get("status") == "lost":  # the mark of a death from outside stays: see `deaths.Retried`
        outcome = replace(lost(reason, detail=detail), fault=fault if fault in _OUTSIDE else "")
    if outcome is None:
        raise ValueError("no outcome")
    outputs = answer.get("outputs")
    return replace(
        outcome,
        seconds=_seconds(answer.get("seconds")),
        outputs=None if outputs is None else load(outputs),
    )


def digest(x: Vector) -> str:
    return hashlib.sha256(_bytes(x)).hexdigest()


def _bytes(x: Vector) -> bytes:
    return np.ascontiguousarray(x, dtype="<f8").tobytes()


def _table(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("no table")
    return found


def _seconds(found: Any) -> float:
    number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return float(found) if number and 0 <= found < 1e18 else math.nan


def _cut(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()[:DETAIL_LIMIT]
