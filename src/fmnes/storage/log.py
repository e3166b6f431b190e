"""The evaluation log: one row in SQLite for each finished evaluation, on disk before it is counted.

One process writes, others may read meanwhile. A process killed at any moment loses nothing that `record` has
returned from; nor does a power cut with durability "full", and at most the last rows with "normal".
Read with suspicion: the file must be whole and of our shape, each row carries a checksum, and whatever is
wrong is a RunError. Only SQLite's own unfinished tail (a torn last write) is dropped without one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fmnes.errors import RunError
from fmnes.outcome import Outcome
from fmnes.result import Vector
from fmnes.storage.atomic import atomic_write, on_network
from fmnes.storage.regular import is_regular, open_regular
from fmnes.storage.rows import COLUMNS, INSERT, KEY, SCHEMA, Known, Logged, decode, encode

APPLICATION_ID = 0x464D4E53  # "FMNS"
VERSION = 1
#: Mean seconds an evaluation from which on durability "auto" pays for a sync of each row (about 3 ms).
SLOW_SECONDS = 0.1

_Key = tuple[int, ...]
Durability = Literal["normal", "full", "auto"]


class Summary(NamedTuple):
    """The log at a glance."""

    evaluations: int  # lost attempts included
    statuses: dict[str, int]
    reasons: dict[str, dict[str, int]]
    """For "infeasible" and "lost": how many for each reason, most frequent first."""
    started: float | None
    """When the first evaluation began, in seconds since the epoch; None while there is none."""
    ended: float | None
    best: Logged | None
    """The lowest value; the first in the order of the keys if there are several."""


class EvaluationLog:
    """The log at `path`, created if it is not there; `read_only` may be opened beside the one writer."""

    def __init__(
        self, path: str | os.PathLike[str], durability: Durability = "normal", *, read_only: bool = False
    ) -> None:
        self.path = Path(path)
        self.safe_mode = on_network(self.path)
        """On a network file system: the slower journal that works there, and a sync of each row."""
        self._durability, self._read_only = durability, read_only
        self._seconds, self._rows = 0.0, 0
        self._process = os.getpid()
        with self._reading():
            if not read_only and not self.path.exists():
                _create(self.path)
            for name in side_files(self.path):
                if name.exists() and not is_regular(name):
                    raise RunError(f"found {name.name}, which is not a plain file")
            try:
                self._open("ro" if read_only else "rw")
            except sqlite3.OperationalError as error:
                if not read_only or "readonly" not in str(error):
                    raise
                self._open("rw")  # a writer was killed half-way, and what it began must be undone to be read

    # -- writing ------------------------------------------------------------------------------------------

    def record(
        self, key: _Key, outcome: Outcome, x: Vector, started: float, duration: float, worker: str = ""
    ) -> None:
        """Write one finished evaluation: durable when this returns, not there after a RunError."""
        row = encode(key, outcome, x, started, duration, worker)
        with self._writing():
            self._adapt(1, duration)
            self._db.execute(INSERT, row)

    def record_many(self, rows: Iterable[tuple[_Key, Outcome, Vector, float, float]]) -> None:
        """Write many, each the arguments of `record`: all of them or, after a RunError, none."""
        encoded = [encode(*row) for row in rows]
        with self._writing():
            self._adapt(len(encoded), sum(row[12] for row in encoded))
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(INSERT, encoded)
            self._db.execute("COMMIT")

    def _adapt(self, rows: int, seconds: float) -> None:
        """Durability "auto": sync each row while the evaluations are slow enough not to notice."""
        if self._durability != "auto" or self.safe_mode:
            return
        was_slow = self._seconds > SLOW_SECONDS * self._rows
        self._seconds += seconds
        self._rows += rows
        is_slow = self._seconds > SLOW_SECONDS * self._rows
        if is_slow != was_slow:
            self._db.execute(f"PRAGMA synchronous={'FULL' if is_slow else 'NORMAL'}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # Ctrl-C too: a transaction left open would swallow what comes next
            with contextlib.suppress(sqlite3.Error):
                self._db.rollback()
            if isinstance(error, sqlite3.Error):
                raise RunError(f"{self.path}: an evaluation could not be written ({error})") from error
            raise

    # -- reading ------------------------------------------------------------------------------------------

    def find(self, restart: int, generation: int) -> dict[tuple[int, int], list[Known]]:
        """What is known of one generation: the tries of each (slot, redraw), in order."""
        found: dict[tuple[int, int], list[Known]] = {}
        for row in self._select("WHERE restart = ? AND generation = ?", (int(restart), int(generation))):
            tries = found.setdefault((row.key.slot, row.key.redraw), [])
            tries.append(Known(row.key.attempt, row.outcome, row.x_hash))
        return found

    def count(self) -> int:
        with self._reading():
            (rows,) = self._db.execute("SELECT count(*) FROM evaluations").fetchone()
            return int(rows)

    def infeasible(self, before: tuple[int, int] | None = None) -> Iterator[Logged]:
        """The failed evaluations in the order of their keys: all, or those before a (restart, generation)."""
        where = "WHERE status <> 'value' AND (restart, generation) < (?, ?)"  # a damaged status too
        rows = self._select(where, before or (2**62, 0), x="x")
        return (row for row in rows if row.outcome.status == "infeasible")

    def firsts(self) -> list[tuple[int, Logged]]:
        """Of each reason for a failed or lost evaluation the first one, and how many there are."""
        # SQLite takes the other columns from the row that has the minimum.
        query = f"""SELECT count(*), min(started), {COLUMNS}, x FROM evaluations WHERE status <> 'value'
            GROUP BY status, reason ORDER BY count(*) DESC, min(started)"""
        with self._reading():
            return [(int(row[0]), decode(row[2:])) for row in self._db.execute(query)]

    def summary(self) -> Summary:
        statuses: Counter[str] = Counter()
        reasons: dict[str, Counter[str]] = {"infeasible": Counter(), "lost": Counter()}
        started, ended = np.inf, -np.inf
        best: Logged | None = None
        for row in self._select():
            statuses[row.outcome.status] += 1
            started, ended = min(started, row.started), max(ended, row.started + row.duration)
            if row.outcome.status != "value":
                reasons[row.outcome.status][row.outcome.reason] += 1
            elif best is None or row.outcome.value < best.outcome.value:
                best = row
        if best is not None:
            best = next(self._select(f"WHERE ({KEY}) = (?, ?, ?, ?, ?)", best.key, x="x"), best)
        by_reason = {status: dict(counts.most_common()) for status, counts in reasons.items()}
        first, last = (started, ended) if statuses else (None, None)
        return Summary(statuses.total(), dict(statuses), by_reason, first, last, best)

    def _select(self, where: str = "", parameters: _Key = (), x: str = "NULL") -> Iterator[Logged]:
        query = f"SELECT {COLUMNS}, {x} FROM evaluations {where} ORDER BY {KEY}"
        with self._reading():
            for row in self._db.execute(query, parameters):
                yield decode(row)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except RunError as error:
            raise RunError(f"{self.path}: {error}") from None
        except Exception as error:  # a damaged file makes SQLite and its binding raise nearly anything
            found = f"{type(error).__name__}: {error}"
            raise RunError(f"{self.path}: cannot be used as an evaluation log ({found})") from None

    # -- the file -----------------------------------------------------------------------------------------

    def _open(self, mode: Literal["ro", "rw"]) -> None:
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        # Autocommit: each insert is its own transaction. Waiting is for readers in safe mode.
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)
        try:
            self._check()
            if not self._read_only:
                self._prepare_writing()
        except BaseException:
            self._db.close()
            raise

    def _prepare_writing(self) -> None:
        # Where WAL cannot work SQLite stays with DELETE and says so.
        wanted = "DELETE" if self.safe_mode else "WAL"
        self.safe_mode = self._db.execute(f"PRAGMA journal_mode={wanted}").fetchone()[0] != "wal"
        full = self.safe_mode or self._durability == "full"
        self._db.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
        self._db.execute("PRAGMA wal_autocheckpoint=4000")  # pages: a checkpoint syncs twice, so seldom
        self._db.execute(
            "SELECT 1 FROM evaluations LIMIT 1"
        )  # its side files are there now, also for readers

    def _check(self) -> None:
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", f"query_only={self._read_only:d}"):
            self._db.execute(f"PRAGMA {pragma}")
        (found,) = self._db.execute("PRAGMA application_id").fetchone()
        if found != APPLICATION_ID:
            raise RunError(f"found the database of another program (id {found}), wanted an evaluation log")
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if not 1 <= found <= VERSION:
            raise RunError(f"found version {found}, wanted {VERSION}: a newer fmnes wrote it; upgrade")
        # To the letter: no other columns, and no trigger or view that would run at our queries.
        schema = self._db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        if schema != [("table", "evaluations", SCHEMA)]:
            raise RunError("found other tables or columns than an evaluation log has")
        (found,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise RunError(f"found a damaged evaluation log ({' '.join(str(found).split())})")

    def close(self) -> None:
        """Safe to call twice. Leaves one file that can be read anywhere, unless a reader is in the way.

        In a forked child it does nothing: the connection is the parent's.
        """
        if os.getpid() != self._process:
            return
        with contextlib.suppress(sqlite3.Error):
            if not self._read_only:
                self._db.executescript("PRAGMA busy_timeout=0; PRAGMA journal_mode=DELETE")
        self._db.close()


def side_files(path: Path) -> list[Path]:
    """The log and what SQLite may have beside it."""
    return [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))]


def is_log(path: Path) -> bool:
    """Whether a file is an evaluation log, by the first bytes of it."""
    try:
        with open_regular(path) as file:
            header = file.read(100)
    except OSError:
        return False
    # https://www.sqlite.org/fileformat2.html#the_database_header
    return header[:16] == b"SQLite format 3\0" and header[68:72] == APPLICATION_ID.to_bytes(4, "big")


def _create(path: Path) -> None:
    """An empty log, there as a whole or not at all: whatever else has this name is not ours."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION}; {SCHEMA}")
        empty = db.serialize()
    with atomic_write(path) as file:
        file.write(empty)
