"""The evaluation log: one row in SQLite for each evaluation, on disk before it counts."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from fmnes._files import atomic_write, is_regular, on_network, open_regular
from fmnes.errors import RunError
from fmnes.outcome import Outcome
from fmnes.result import Vector
from fmnes.storage.log_reader import (
    INSERT,
    INSERT_MORE,
    MORE_SCHEMA,
    SCHEMA,
    Logged,
    LogReader,
    encode,
    encode_after,
    encode_more,
)

# -- Detecting a write-ahead log with a torn last record, which SQLite drops silently
#
# It consists of a header and whole frames, each a frame header and one page of the database
# (https://www.sqlite.org/fileformat2.html#walformat).

_HEADER, _FRAME_HEADER = 32, 24


def torn(log: Path) -> bool:
    """Whether the last record was cut off. Call it before SQLite opens `log` and repairs it."""
    wal = log.with_name(f"{log.name}-wal")
    try:
        size = wal.stat().st_size
        with open(log, "rb") as file:
            page = int.from_bytes(file.read(18)[16:18], "big")
    except OSError:
        return False
    page = 65536 if page == 1 else page
    return size > 0 and page >= 512 and (size < _HEADER or (size - _HEADER) % (_FRAME_HEADER + page) > 0)


# -- The log
#
# One process writes; others may read at the same time. If the process is killed, no row is lost that `record`
# has written; after a power cut at most the last rows are lost, and none while rows come slowly.
# Nothing read is trusted: the schema must match, each row has a checksum, and any damage is a RunError. Only
# an unfinished last write is dropped silently by SQLite.
#
# A log begins as version 1. The first row with outputs makes it version 2, in the same transaction.

APPLICATION_ID = 0x464D4E53  # "FMNS"
#: Without and with the table of further outputs.
VERSIONS = {
    1: [("table", "evaluations", SCHEMA)],
    2: [("table", "evaluations", SCHEMA), ("table", "more", MORE_SCHEMA)],
}
#: Mean seconds between rows above which each row is synced (a sync takes about 3 ms).
SLOW_SECONDS = 0.1

_Key = tuple[int, ...]


class EvaluationLog(LogReader):
    """The log at `path`, created if it does not exist. `read_only` works while another process writes.

    check_pages: False skips SQLite's integrity check, where this process has just made it.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, read_only: bool = False, check_pages: bool = True
    ) -> None:
        self.path = Path(path)
        self.safe_mode = on_network(self.path)
        """Use the slower journal that works on network file systems, and sync each row."""
        self._read_only = read_only
        self._check_pages = check_pages
        self._first, self._last, self._rows = math.inf, -math.inf, 0
        """Start of the first evaluation written here, end of the last one, and the number of rows."""
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
                self._open("rw")  # a killed writer left a transaction to roll back

    def record(self, key: _Key, outcome: Outcome, x: Vector, started: float, duration: float) -> None:
        """Write one finished evaluation: stored when this returns, absent after a RunError."""
        row = encode(key, outcome, x, started, duration)
        more = encode_more(key, outcome)
        with self._writing():
            self._adapt(1, started, started + duration)
            if more is None:
                self._db.execute(INSERT, row)
            else:
                self._insert([row], [more])

    def record_many(self, rows: Iterable[tuple[_Key, Outcome, Vector, float, float]]) -> None:
        """Write several, each the arguments of `record`: all of them or, after a RunError, none."""
        rows = list(rows)
        encoded = [encode(*row) for row in rows]
        more = [found for key, outcome, *_ in rows if (found := encode_more(key, outcome))]
        with self._writing():
            if rows:
                ends = [started + duration for *_, started, duration in rows]
                self._adapt(len(rows), min(row[3] for row in rows), max(ends))
            self._insert(encoded, more)

    def supersede(self, rows: Iterable[tuple[Logged, Outcome]]) -> None:
        """Write a further row with a new outcome after each of these: all of them or none."""
        now = time.time()
        encoded = [encode_after(row, outcome, now) for row, outcome in rows]
        with self._writing():
            self._insert(encoded, [])

    def _insert(self, rows: list[tuple[Any, ...]], more: list[tuple[Any, ...]]) -> None:
        """Insert the rows in one transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        if more and self._version() == 1:
            self._db.execute(MORE_SCHEMA)
            self._db.execute("PRAGMA user_version=2")
        self._db.executemany(INSERT, rows)
        if more:
            self._db.executemany(INSERT_MORE, more)
        self._db.execute("COMMIT")

    def _adapt(self, rows: int, began: float, ended: float) -> None:
        """Sync each row only while rows come slowly: with many workers the syncs would dominate."""
        if self.safe_mode:
            return
        was_slow = self._last - self._first > SLOW_SECONDS * self._rows
        self._first, self._last = min(self._first, began), max(self._last, ended)
        self._rows += rows
        is_slow = self._last - self._first > SLOW_SECONDS * self._rows
        if is_slow != was_slow:
            self._db.execute(f"PRAGMA synchronous={'FULL' if is_slow else 'NORMAL'}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # Ctrl-C too: an open transaction would take in the next rows
            with contextlib.suppress(sqlite3.Error):
                self._db.rollback()
            if isinstance(error, sqlite3.Error):
                raise RunError(f"{self.path}: an evaluation could not be written ({error})") from error
            raise

    def _open(self, mode: Literal["ro", "rw"]) -> None:
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        # Autocommit: each insert is its own transaction. The timeout is for readers in safe mode.
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)
        try:
            self._check()
            if not self._read_only:
                self._prepare_writing()
        except BaseException:
            self._db.close()
            raise

    def _prepare_writing(self) -> None:
        # If WAL is not possible, SQLite keeps DELETE and returns that.
        wanted = "DELETE" if self.safe_mode else "WAL"
        self.safe_mode = self._db.execute(f"PRAGMA journal_mode={wanted}").fetchone()[0] != "wal"
        self._db.execute(f"PRAGMA synchronous={'FULL' if self.safe_mode else 'NORMAL'}")
        self._db.execute("PRAGMA wal_autocheckpoint=4000")  # pages: a checkpoint syncs twice, so seldom
        self._db.execute("SELECT 1 FROM evaluations LIMIT 1")  # creates the side files, which readers need

    def _check(self) -> None:
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", f"query_only={self._read_only:d}"):
            self._db.execute(f"PRAGMA {pragma}")
        with self._one_moment():
            (found,) = self._db.execute("PRAGMA application_id").fetchone()
            if found != APPLICATION_ID:
                raise RunError(
                    f"found the database of another program (id {found}), wanted an evaluation log"
                )
            version = self._version()
            if version not in VERSIONS:
                raise RunError(
                    f"found version {version}, wanted {max(VERSIONS)}: a newer fmnes wrote it; upgrade"
                )
            # Exactly: a foreign trigger or view would run with our queries.
            schema = self._db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
            if schema != VERSIONS[version]:
                raise RunError("found other tables or columns than an evaluation log has")
            if not self._check_pages:
                return
            # Reads the whole file: about 0.3 s for a million evaluations.
            (found,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise RunError(f"found a damaged evaluation log ({' '.join(str(found).split())})")

    def close(self) -> None:
        """Close the log and merge the side files into it, unless a reader prevents that. Safe to call twice.

        In a forked child it does nothing: the connection is the parent's.
        """
        if os.getpid() != self._process:
            return
        with contextlib.suppress(sqlite3.Error):
            if not self._read_only:
                self._db.executescript("PRAGMA busy_timeout=0; PRAGMA journal_mode=DELETE")
        self._db.close()


def side_files(path: Path) -> list[Path]:
    """The log and the further files that SQLite may create."""
    return [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))]


def is_log(path: Path) -> bool:
    """Whether the header of a file is that of an evaluation log."""
    try:
        with open_regular(path) as file:
            header = file.read(100)
    except OSError:
        return False
    # https://www.sqlite.org/fileformat2.html#the_database_header
    return header[:16] == b"SQLite format 3\0" and header[68:72] == APPLICATION_ID.to_bytes(4, "big")


def _create(path: Path) -> None:
    """Create an empty log atomically."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1; {SCHEMA}")
        empty = db.serialize()
    with atomic_write(path) as file:
        file.write(empty)
