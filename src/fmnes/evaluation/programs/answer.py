"""What an external program answers: a number, or that it failed, in a file or on its last line."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from pathlib import Path

from fmnes.evaluation.programs.process import RESULTS, TAIL, Ending
from fmnes.outcome import Outcome, infeasible, lost

# Fortran writes 1.5D+03.
_NUMBER = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[ed][+-]?\d+)?|nan|inf(?:inity)?)", re.ASCII | re.I)
_FAIL = re.compile(r"fail(?:[\s:]+(.*))?", re.I | re.S)
_NO_PLAIN_FILE = f"{RESULTS} is no plain file"

#: A number, an outcome in the program's own words, or nothing that makes sense.
Answer = float | Outcome | None


def find_answer(ending: Ending, directory: Path, in_file: bool) -> tuple[Answer, str]:
    """What a program says in its results file or on its last line; where that is nothing, why."""
    text, cut = ending.stdout, ending.cut
    wrote = _read_results(directory) if in_file else None
    if isinstance(wrote, Outcome):
        return wrote, ""
    if isinstance(wrote, str):
        return None, f"wrote no number; {wrote}"
    if wrote is not None:
        text, cut = wrote
        answer = None if cut else read_answer(text)
        if answer is not None:
            return answer, ""
    said = "printed no number" if wrote is None else "wrote no number"
    lines = text.rstrip().splitlines()
    if not lines:
        return None, f"{said}; {f'the last {TAIL} bytes are blank' if cut else 'nothing at all'}"
    if cut and len(lines) == 1:  # its beginning is not here, so the rest is not to be believed
        return None, f"{said}; the last line is longer than {TAIL} bytes"
    return read_answer(lines[-1]), f"{said}; last line: {printable(lines[-1].strip()[:200])!r}"


def _read_results(directory: Path) -> tuple[str, bool] | str | Outcome | None:
    """The end of the results file and whether it was cut; or what is wrong with it; None if there is none."""
    try:
        # A link may lead anywhere and a pipe would block.
        fd = os.open(directory / RESULTS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
            return _NO_PLAIN_FILE
        if error.errno == errno.EACCES:
            return f"{RESULTS} may not be read"
        return lost(f"could not read {RESULTS}: {error.strerror}")
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return _NO_PLAIN_FILE
        data = os.pread(fd, TAIL, max(0, status.st_size - TAIL))
        return data.decode(errors="replace"), status.st_size > TAIL
    except OSError as error:
        return lost(f"could not read {RESULTS}: {error.strerror}")
    finally:
        os.close(fd)


def read_answer(text: str) -> Answer:
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
