"""What an external program answers: a number, or that it failed, in a file or on its last line."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import stat
from pathlib import Path

from fmnes.evaluation.programs.process import RESULTS, TAIL
from fmnes.outcome import Outcome, infeasible

# Fortran writes 1.5D+03.
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[ed][+-]?\d+)?|nan|inf(?:inity)?)", re.ASCII | re.I)
_FAIL = re.compile(r"fail(?:[\s:]+(.*))?", re.I | re.S)


def read_results(directory: Path) -> str | None:
    """The end of the results file; empty if it is not a plain file, None if there is none."""
    try:
        # A link may lead anywhere and a pipe would block.
        fd = os.open(directory / RESULTS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return ""
        return os.pread(fd, TAIL, max(0, status.st_size - TAIL)).decode(errors="replace")
    finally:
        os.close(fd)


def read_answer(text: str) -> float | Outcome | None:
    """What a program says: a number, or that it failed; None if it makes no sense."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text.lower().replace("d", "e"))
    failed = _FAIL.fullmatch(text)
    if failed:
        return infeasible(printable(" ".join((failed[1] or "").split()))[:300] or "reported FAIL")
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
        fail, number = found.get("fail"), found.get("f", found.get("value", ""))
        if fail not in (None, False):
            return read_answer(f"FAIL {fail}" if isinstance(fail, str) else "FAIL")
        return float(number) if type(number) in (int, float) else math.nan if number is None else None
    except (ValueError, OverflowError, RecursionError):
        return None


def printable(text: str, allowed: str = "") -> str:
    """Without what a terminal might take for commands."""
    return "".join(c if c.isprintable() or c in allowed else "?" for c in text)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
