"""Rows of the evaluation log, and read-only queries; every row is verified by its checksum."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import RunError
from fmnes.outcome import EvaluationId, Outcome, Outputs, dump, load, read_json
from fmnes.result import Vector

# -- One row of the evaluation log: its columns, encoding and checksums.

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


# -- Columns

#: The type of a column of outputs; "mixed" if the values are not all of one type.
Kind = Literal["flag", "whole", "number", "text", "mixed"]


class Batch(NamedTuple):
    """Evaluations in the search's numbers, in the order of their keys."""

    keys: NDArray[np.int64]
    """restart, generation, slot, redraw, attempt. (n, 5)"""
    statuses: list[str]
    values: NDArray[np.float64]
    """+inf, or the number that the objective returned, if it failed. (n,)"""
    reasons: list[str]
    faults: list[str]
    details: list[str]
    started: NDArray[np.float64]
    seconds: NDArray[np.float64]
    x: NDArray[np.float64] | None
    """(n, d); None if points are too long to be stored."""
    outputs: list[Outputs | None]


def decode_batch(rows: Sequence[tuple[Any, ...]], more: Mapping[tuple[int, ...], Outputs | None]) -> Batch:
    """Decode rows (COLUMNS and x). Raises RunError if one of them is damaged."""
    for row in rows:
        check(row[:-1], row[-1])
    columns = list(zip(*rows, strict=True))
    same: dict[str, str] = {}  # most texts repeat: keep one copy of each
    statuses, reasons, faults, details = (
        [same.setdefault(text, text) for text in columns[i]] for i in (5, 7, 8, 9)
    )
    return Batch(
        np.array(columns[:5], dtype=np.int64).T,
        statuses,
        np.frombuffer(b"".join(columns[6]), dtype="<f8").astype(np.float64),
        reasons,
        faults,
        details,
        np.array(columns[11]),
        np.array(columns[12]),
        _points(rows),
        [more.get(row[:5]) for row in rows] if more else [None] * len(rows),
    )


def _points(rows: Sequence[tuple[Any, ...]]) -> NDArray[np.float64] | None:
    stored = [row[-1] for row in rows]
    if stored[0] is None and not any(stored):
        return None
    for row in rows:
        if row[-1] is None or len(row[-1]) != len(stored[0]):
            raise RunError(f"found points of different lengths ({EvaluationId(*row[:5])})")
    return np.frombuffer(b"".join(stored), dtype="<f8").astype(np.float64).reshape(len(rows), -1)


class Tally:
    """The names and types of the outputs of several evaluations, in order of first appearance."""

    def __init__(self) -> None:
        self.rows = 0
        self._seen: dict[str, dict[type, int]] = {}

    @classmethod
    def of(cls, outputs: Iterable[Outputs | None]) -> Tally:
        tally = cls()
        for found in outputs:
            tally.rows += 1
            tally.add(found)
        return tally

    def add(self, outputs: Outputs | None) -> None:
        for name, value in (outputs or {}).items():
            counts = self._seen.setdefault(name, {})
            counts[type(value)] = counts.get(type(value), 0) + 1

    def kinds(self) -> dict[str, Kind]:
        """The type of each output. Integers with gaps become floats, as a gap is NaN."""
        return {name: self._kind(counts) for name, counts in self._seen.items()}

    def _kind(self, counts: dict[type, int]) -> Kind:
        types = set(counts) - {type(None)}
        everywhere = type(None) not in counts and sum(counts.values()) == self.rows
        if types == {int} and everywhere:
            return "whole"
        if types <= {int, float}:
            return "number"
        if types == {bool} and everywhere:
            return "flag"
        return "text" if types == {str} else "mixed"


# -- Queries

# Text sorts after numbers in SQLite, and blobs after text.
_WHOLE = "f >= x'' AND length(f) = 8 AND started < '' AND duration < ''"
_GLANCE = f"""SELECT count(*), {", ".join(f"count(*) FILTER (WHERE status = '{s}')" for s in STATUSES)},
  min(started), max(started + duration), count(*) FILTER (WHERE NOT ({_WHOLE})),
  group_concat(hex(f), '') FILTER (WHERE status = 'value')
FROM evaluations"""
_REASONS = """SELECT status, reason, count(*) AS n FROM evaluations WHERE status <> 'value'
GROUP BY status, reason ORDER BY n DESC, min(started)"""

# The first evaluation of each reason, by its key as text of fixed length, which sorts as numbers do.
_FIRSTS = """SELECT count(*) AS n, min(printf('%019d %019d %019d %019d %019d',
  restart, generation + 1, slot, redraw, attempt)) AS first
FROM evaluations WHERE status <> 'value' GROUP BY status, reason ORDER BY n DESC, first"""

_BACKWARDS = ", ".join(f"{name} DESC" for name in KEY.split(", "))
#: Rows per batch.
BATCH = 10_000
_Key = tuple[int, ...]


class Summary(NamedTuple):
    """Counts of the log, and the best evaluation."""

    evaluations: int  # lost attempts included
    statuses: dict[str, int]
    reasons: dict[str, dict[str, int]]
    """{"infeasible": {reason: count}, "lost": {reason: count}}, most frequent first."""
    started: float | None
    """Start of the first evaluation, in seconds since the epoch; None if there is none."""
    ended: float | None
    best: Logged | None
    """The lowest value; the first by key if there are several."""

    @property
    def failed(self) -> int:
        return self.statuses.get("infeasible", 0)


class LogReader:
    """Queries of an open log. Subclasses open `_db`."""

    path: Path
    _db: sqlite3.Connection

    def find(self, restart: int, generation: int, outputs: bool = False) -> dict[EvaluationId, list[Known]]:
        """The evaluations of one generation: the attempts at each point, in order. outputs: with these."""
        found: dict[EvaluationId, list[Known]] = {}
        where = "WHERE restart = ? AND generation = ?"
        for row in self._select(where, (int(restart), int(generation)), outputs=outputs):
            tries = found.setdefault(row.key.point, [])
            tries.append(Known(row.key.attempt, row.outcome, row.x_hash))
        return found

    def last_generation(self) -> tuple[int, int] | None:
        """Restart and generation of the last evaluation by key; None if there is none."""
        with self._reading():
            query = f"SELECT restart, generation FROM evaluations ORDER BY {_BACKWARDS} LIMIT 1"
            row = self._db.execute(query).fetchone()
            return None if row is None else (int(row[0]), int(row[1]))

    def since(self, restart: int, generation: int, outputs: bool = False) -> Iterator[Logged]:
        """The evaluations of a search from this generation on, by key. outputs: with these."""
        where = "WHERE restart = ? AND generation >= ?"
        return self._select(where, (int(restart), int(generation)), x="x", outputs=outputs)

    def rows(self, outputs: bool = False) -> Iterator[Logged]:
        """All evaluations, by key. outputs: with these."""
        return self._select("", (), x="x", outputs=outputs)

    def count(self) -> int:
        with self._reading():
            (rows,) = self._db.execute("SELECT count(*) FROM evaluations").fetchone()
            return int(rows)

    def position(self, key: _Key) -> int:
        """The position of an evaluation by key, counted from 1; lost ones do not count."""
        where = f"WHERE status <> 'lost' AND ({KEY}) <= (?, ?, ?, ?, ?)"
        with self._reading():
            (rows,) = self._db.execute(f"SELECT count(*) FROM evaluations {where}", tuple(key)).fetchone()
            return int(rows)

    def infeasible(self, before: tuple[int, int] | None = None) -> Iterator[Logged]:
        """The failed evaluations by key: all, or those before a (restart, generation)."""
        where = "WHERE status <> 'value' AND (restart, generation) < (?, ?)"  # keeps damaged statuses
        rows = self._select(where, before or (2**62, 0), x="x")
        return (row for row in rows if row.outcome.status == "infeasible")

    def firsts(self) -> list[tuple[int, Logged]]:
        """The number of failed or lost evaluations for each reason, with the first of them."""
        with self._reading(), self._one_moment():
            found = []
            for count, first in self._db.execute(_FIRSTS).fetchall():
                restart, generation, *rest = map(int, first.split())
                query = f"SELECT {COLUMNS}, x FROM evaluations WHERE ({KEY}) = (?, ?, ?, ?, ?)"
                row = self._db.execute(query, (restart, generation - 1, *rest)).fetchone()
                found.append((int(count), decode(row)))
            return found

    def summary(self) -> Summary:
        """Count the evaluations in SQLite; only the best row is decoded and verified.

        A damaged row may therefore be miscounted; `batches` detects it.
        """
        with self._reading(), self._one_moment():
            rows, *counts, started, ended, damaged, values = self._db.execute(_GLANCE).fetchone()
            statuses = {status: count for status, count in zip(STATUSES, counts, strict=True) if count}
            if damaged or rows != sum(counts):
                raise RunError("found a damaged row (of another type or status than an evaluation has)")
            reasons: dict[str, dict[str, int]] = {"infeasible": {}, "lost": {}}
            for status, reason, count in self._db.execute(_REASONS):
                reasons[status][str(reason)] = count
            best = self._best(np.frombuffer(bytes.fromhex(values or ""), dtype="<f8"))
            return Summary(rows, statuses, reasons, started, ended, best)

    def _best(self, values: Vector) -> Logged | None:
        numbers = values[~np.isnan(values)]
        if not len(numbers):
            return None
        # 0.0 and -0.0 are equal but differ in their bytes.
        lowest = {value.tobytes() for value in numbers[numbers == numbers.min()]}
        where = f"WHERE status = 'value' AND f IN ({', '.join('?' * len(lowest))})"
        query = f"SELECT {COLUMNS}, x FROM evaluations {where} ORDER BY {KEY} LIMIT 1"
        return decode(self._db.execute(query, tuple(lowest)).fetchone())

    def batches(self, size: int | None = None) -> Iterator[Batch]:
        """Yield all evaluations by key, `size` at a time; every row is verified.

        Nothing is locked between batches, so a slow reader does not block the writer. Rows written meanwhile
        are included if their key comes later.
        """
        after: tuple[int, ...] = (-(2**63),) * 5
        while True:
            where = f"WHERE ({KEY}) > (?, ?, ?, ?, ?) ORDER BY {KEY} LIMIT {int(size or BATCH)}"
            with self._reading():
                with self._one_moment():
                    rows = self._db.execute(f"SELECT {COLUMNS}, x FROM evaluations {where}", after).fetchall()
                    more = self._more(after, rows[-1][:5]) if rows else {}
                if not rows:
                    return
                batch = decode_batch(rows, more)
            yield batch
            after = rows[-1][:5]

    def _more(self, after: tuple[int, ...], last: tuple[int, ...]) -> dict[tuple[int, ...], Outputs | None]:
        """The outputs of the rows after one key and up to another."""
        if self._version() == 1:
            return {}
        where = f"WHERE ({KEY}) > (?, ?, ?, ?, ?) AND ({KEY}) <= (?, ?, ?, ?, ?)"
        found = self._db.execute(f"SELECT {KEY}, data, checksum FROM more {where}", (*after, *last))
        return {row[:5]: decode_more(row) for row in found}

    def tally(self) -> Tally:
        """The names and types of all outputs; immediate if the log has none."""
        tally = Tally()
        with self._reading(), self._one_moment():
            if self._version() > 1:
                for row in self._db.execute(f"SELECT {KEY}, data, checksum FROM more ORDER BY {KEY}"):
                    tally.add(decode_more(row))
            (tally.rows,) = self._db.execute("SELECT count(*) FROM evaluations").fetchone()
        return tally

    def _select(
        self, where: str, parameters: _Key, x: str = "NULL", outputs: bool = False
    ) -> Iterator[Logged]:
        query = f"SELECT {COLUMNS}, {x} FROM evaluations {where} ORDER BY {KEY}"
        more: dict[tuple[int, ...], Outputs | None] = {}
        with self._reading():
            if outputs and self._version() > 1:
                found = self._db.execute(f"SELECT {KEY}, data, checksum FROM more {where}", parameters)
                more = {row[:5]: decode_more(row) for row in found}
            for row in self._db.execute(query, parameters):
                logged = decode(row)
                if more:
                    logged = logged._replace(outcome=replace(logged.outcome, outputs=more.get(row[:5])))
                yield logged

    def _version(self) -> int:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        return int(version)

    @contextlib.contextmanager
    def _one_moment(self) -> Iterator[None]:
        """Run the queries of a block on one consistent state of the log."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except RunError as error:
            raise RunError(f"{self.path}: {error}") from None
        except Exception as error:  # on a damaged file SQLite may raise nearly anything
            found = f"{type(error).__name__}: {error}"
            raise RunError(f"{self.path}: cannot be used as an evaluation log ({found})") from None
