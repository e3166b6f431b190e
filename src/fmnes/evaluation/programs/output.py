"""Text that a program has left, read with care: in files that may be anything, of any size."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from fmnes.outcome import Outcome, lost

# Fortran writes 1.5D+03, and 1.5-103 where the exponent has three digits.
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[ed][+-]?\d+)?|nan|inf(?:inity)?)|([+-]?\d*\.\d+)([+-]\d{3})",
    re.ASCII | re.IGNORECASE,
)


class Text(NamedTuple):
    text: str
    cut: bool = False
    """Its beginning is missing."""

    @property
    def whole_lines(self) -> str:
        """Without a first line whose beginning is missing."""
        return self.text.partition("\n")[2] if self.cut else self.text

    @property
    def last_line(self) -> str:
        """The last line that is not blank, for a message."""
        lines = self.text.rstrip().splitlines()
        return printable(lines[-1].strip()[:200]) if lines else ""


def read_tail(directory: Path, name: str, limit: int) -> Text | str | Outcome | None:
    """The last `limit` bytes of a file; or what is wrong with it; None if there is none."""
    try:
        # A link may lead anywhere and a pipe would block.
        fd = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
            return f"{name} is no plain file"
        if error.errno == errno.EACCES:
            return f"{name} may not be read"
        return lost(f"could not read {name}: {error.strerror}")
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return f"{name} is no plain file"
        data = os.pread(fd, limit, max(0, status.st_size - limit))
        return Text(data.decode(errors="replace"), status.st_size > limit)
    except OSError as error:
        return lost(f"could not read {name}: {error.strerror}")
    finally:
        os.close(fd)


def read_number(text: str) -> float | None:
    """The number that a text is, NaN and infinity included; None if it is something else."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    return float(f"{match[1]}e{match[2]}" if match[1] else match[0].lower().replace("d", "e"))


def printable(text: str, allowed: str = "") -> str:
    """Without what a terminal might take for commands."""
    return "".join(c if c.isprintable() or c in allowed else "?" for c in text)
