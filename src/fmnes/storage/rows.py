"""One row of the evaluation log: its columns, encoding and checksums.

Outputs are in a second table, which a log has only if there are any.
"""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from fmnes.errors import RunError
from fmnes.identity import EvaluationId
from fmnes.outcome import Outcome, Outputs, dump, load, read_json
from fmnes.result import Vector

#: Of longer points only the hash is stored: they follow from the snapshot and would fill the disk.
MAX_STORED_DIMENSION = 10_000

# f is a blob because SQLite has no NaN and no -0.0.
SCHEMA = """CREATE TABLE evaluations (
  restart INTEGER NOT NULL, generation INTEGER NOT NULL, slot INTEGER NOT NULL,
  redraw INTEGER NOT NULL, attempt INTEGER NOT NULL,
  status TEXT NOT NULL, f BLOB NOT NULL,
  reason TEXT NOT NULL, fault TEXT NOT NULL, detail TEXT NOT NULL, worker TEXT NOT NULL,
  started REAL NOT NULL, duration REAL NOT NULL, x_hash INTEGER NOT NULL, checksum INTEGER NOT NULL, x BLOB,
  PRIMARY KEY (restart, generation, slot, redraw, attempt)
) WITHOUT ROWID"""
KEY = "restart, generation, slot, redraw, attempt"
COLUMNS = f"{KEY}, status, f, reason, fault, detail, worker, started, duration, x_hash, checksum"
#: For the column `worker`, which is unused and kept for compatibility.
NO_WORKER = ""
STATUSES = ("value", "infeasible", "lost")
TYPES = (int, int, int, int, int, str, bytes, str, str, str, str, float, float, int, int)
_NUMBERS = struct.Struct("<5q8sddq5I")
INSERT = f"INSERT INTO evaluations ({COLUMNS}, x) VALUES ({', '.join('?' * (len(TYPES) + 1))})"

# data: JSON, {"outputs": {...}}; other keys are reserved for later versions and ignored.
MORE_SCHEMA = """CREATE TABLE more (
  restart INTEGER NOT NULL, generation INTEGER NOT NULL, slot INTEGER NOT NULL,
  redraw INTEGER NOT NULL, attempt INTEGER NOT NULL,
  data TEXT NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (restart, generation, slot, redraw, attempt)
) WITHOUT ROWID"""
MORE_TYPES = (int, int, int, int, int, str, int)
INSERT_MORE = f"INSERT INTO more ({KEY}, data, checksum) VALUES ({', '.join('?' * len(MORE_TYPES))})"


class Known(NamedTuple):
    """One attempt at a point, as a resumed run needs it."""

    attempt: int
    outcome: Outcome
    x_hash: int


class Logged(NamedTuple):
    """One finished evaluation, as read."""

    key: EvaluationId
    outcome: Outcome
    started: float  # seconds since the epoch
    duration: float  # seconds
    x_hash: int
    x: Vector | None  # None if it was not queried, or is too long to be stored


def x_hash(x: Vector) -> int:
    """A 64-bit hash of a point, to check that a replayed point is the one that was evaluated."""
    return _hash(np.asarray(x, dtype="<f8").tobytes())


def _hash(stored: bytes) -> int:
    return int.from_bytes(blake2b(stored, digest_size=8).digest(), "little", signed=True)


def encode(
    key: tuple[int, ...], outcome: Outcome, x: Vector, started: float, duration: float
) -> tuple[Any, ...]:
    stored = np.asarray(x, dtype="<f8").tobytes() if np.size(x) <= MAX_STORED_DIMENSION else None
    return _encode(key, outcome, x_hash(x), stored, started, duration)


def encode_after(row: Logged, outcome: Outcome, started: float) -> tuple[Any, ...]:
    """A further row of the same point, with duration 0."""
    stored = None if row.x is None else row.x.astype("<f8").tobytes()
    key = row.key._replace(attempt=row.key.attempt + 1)
    return _encode(key, outcome, row.x_hash, stored, started, 0.0)


def _encode(
    key: tuple[int, ...], outcome: Outcome, hashed: int, stored: bytes | None, started: float, duration: float
) -> tuple[Any, ...]:
    words = (outcome.reason, outcome.fault, outcome.detail, NO_WORKER)
    # Lone surrogates (from undecodable program output) cannot be stored.
    texts = [text.encode("utf-8", "backslashreplace").decode() for text in words]
    f = struct.pack("<d", outcome.value)
    times = (float(started), float(duration) + 0.0)  # no -0.0
    row = (*map(int, key), outcome.status, f, *texts, *times, hashed)
    return *row, _checksum(row), stored


def encode_more(key: tuple[int, ...], outcome: Outcome) -> tuple[Any, ...] | None:
    """The row of the second table; None without outputs."""
    if not outcome.outputs:
        return None
    numbers, data = tuple(map(int, key)), f'{{"outputs":{dump(outcome.outputs)}}}'
    return *numbers, data, _more_checksum(numbers, data)


def _checksum(row: tuple[Any, ...]) -> int:
    """The checksum of all columns but the point, which has its hash."""
    *key, status, f, reason, fault, detail, worker, started, duration, x_hash = row
    texts = [text.encode() for text in (status, reason, fault, detail, worker)]
    numbers = _NUMBERS.pack(*key, f, started, duration, x_hash, *map(len, texts))
    return zlib.crc32(b"".join([numbers, *texts]))


def _more_checksum(key: tuple[int, ...], data: str) -> int:
    return zlib.crc32(struct.pack("<5q", *key) + data.encode())


def check(row: tuple[Any, ...], stored: bytes | None) -> None:
    """Raises RunError unless `encode` wrote this row and point. row: COLUMNS."""
    whole = tuple(map(type, row)) == TYPES and len(row[6]) == 8 and row[-1] == _checksum(row[:-1])
    if not whole or row[5] not in STATUSES:
        raise RunError(f"found a damaged row ({EvaluationId(*row[:5])})")
    if stored is not None and (type(stored) is not bytes or _hash(stored) != row[-2] or len(stored) % 8):
        raise RunError(f"found a damaged point ({EvaluationId(*row[:5])})")


def decode(row: tuple[Any, ...]) -> Logged:
    """Decode and verify a row of COLUMNS and x."""
    *fields, stored = row
    check(tuple(fields), stored)
    status, f, reason, fault, detail, _, started, duration, hashed, _ = fields[5:]
    point = None if stored is None else np.frombuffer(stored, dtype="<f8").astype(np.float64)
    outcome = Outcome(status, struct.unpack("<d", f)[0], reason, fault, detail)
    return Logged(EvaluationId(*fields[:5]), outcome, started, duration, hashed, point)


def decode_more(row: tuple[Any, ...]) -> Outputs | None:
    """Decode and verify a row of the second table."""
    *key, data, checksum = row
    if tuple(map(type, row)) == MORE_TYPES and checksum == _more_checksum(tuple(key), data):
        try:
            return load(read_json(data).get("outputs", {}))
        except (ValueError, AttributeError):
            pass
    raise RunError(f"found damaged outputs ({EvaluationId(*key)})")
