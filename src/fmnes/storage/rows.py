"""One row of the evaluation log: what is in it, and its checksums."""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from fmnes.errors import RunError
from fmnes.outcome import Outcome
from fmnes.result import Vector

#: Longer points are not stored, only their hash: they follow from the snapshot and would fill the disk.
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
TYPES = (int, int, int, int, int, str, bytes, str, str, str, str, float, float, int, int)
INSERT = f"INSERT INTO evaluations ({COLUMNS}, x) VALUES ({', '.join('?' * (len(TYPES) + 1))})"


class Key(NamedTuple):
    """The name of one evaluation."""

    restart: int
    generation: int
    slot: int
    redraw: int = 0
    attempt: int = 0


class Known(NamedTuple):
    """One try of a point, as a resumed run needs it."""

    attempt: int
    outcome: Outcome
    x_hash: int


class Logged(NamedTuple):
    """One finished evaluation, as read."""

    key: Key
    outcome: Outcome
    worker: str
    started: float  # seconds since the epoch
    duration: float  # seconds
    x_hash: int
    x: Vector | None  # None where it was not asked for, or too long to be stored


def x_hash(x: Vector) -> int:
    """64 bits of a point: tells whether a replayed point is the one that was evaluated."""
    digest = blake2b(np.asarray(x, dtype="<f8").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def encode(
    key: tuple[int, ...], outcome: Outcome, x: Vector, started: float, duration: float, worker: str = ""
) -> tuple[Any, ...]:
    words = (outcome.reason, outcome.fault, outcome.detail, worker)
    # Lone surrogates (a program's output that was no text) cannot be stored.
    texts = [text.encode("utf-8", "backslashreplace").decode() for text in words]
    f = struct.pack("<d", outcome.value)
    times = (float(started), float(duration) + 0.0)  # no -0.0
    row = (*map(int, key), outcome.status, f, *texts, *times, x_hash(x))
    stored = np.asarray(x, dtype="<f8").tobytes() if np.size(x) <= MAX_STORED_DIMENSION else None
    return *row, _checksum(row), stored


def _checksum(row: tuple[Any, ...]) -> int:
    """Of all but the point itself, which has its hash."""
    *key, status, f, reason, fault, detail, worker, started, duration, x_hash = row
    texts = [text.encode() for text in (status, reason, fault, detail, worker)]
    numbers = struct.pack("<5q8sddq5I", *key, f, started, duration, x_hash, *map(len, texts))
    return zlib.crc32(b"".join([numbers, *texts]))


def decode(row: tuple[Any, ...]) -> Logged:
    *fields, checksum, x = row
    key = Key(*fields[:5])
    whole = tuple(map(type, row[:-1])) == TYPES and checksum == _checksum(tuple(fields))
    if not whole or fields[5] not in ("value", "infeasible", "lost"):
        raise RunError(f"found a damaged row ({key})")
    status, f, reason, fault, detail, worker, started, duration, hashed = fields[5:]
    point = None if x is None else np.frombuffer(x, dtype="<f8").astype(np.float64)
    if point is not None and x_hash(point) != hashed:
        raise RunError(f"found a damaged point ({key})")
    outcome = Outcome(status, struct.unpack("<d", f)[0], reason, fault, detail)
    return Logged(key, outcome, worker, started, duration, hashed, point)
