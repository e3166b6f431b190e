"""Was the end of a log cut off, as a power cut may do it? SQLite drops such a record without a word.

A write-ahead log is a header and whole frames, each a frame header and one page of the database
(https://www.sqlite.org/fileformat2.html#walformat).
"""

from __future__ import annotations

from pathlib import Path

_HEADER, _FRAME_HEADER = 32, 24


def torn(log: Path) -> bool:
    """To be asked before SQLite opens `log`, which mends it."""
    wal = log.with_name(f"{log.name}-wal")
    try:
        size = wal.stat().st_size
        with open(log, "rb") as file:
            page = int.from_bytes(file.read(18)[16:18], "big")
    except OSError:
        return False
    page = 65536 if page == 1 else page
    return size > 0 and page >= 512 and (size < _HEADER or (size - _HEADER) % (_FRAME_HEADER + page) > 0)
