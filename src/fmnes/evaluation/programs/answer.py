"""What an external program answers: a number, or that it failed, in a file or on its last line."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from fmnes.evaluation.programs.output import Text, printable, read_number, read_tail
from fmnes.evaluation.programs.process import RESULTS, TAIL, Ending
from fmnes.outcome import Outcome, infeasible

_FAIL = re.compile(r"fail(?:[\s:]+(.*))?", re.I | re.S)

#: A number, an outcome in the program's own words, or nothing that makes sense.
Answer = float | Outcome | None


def find_answer(ending: Ending, directory: Path, in_file: bool) -> tuple[Answer, str]:
    """What a program says in its results file or on its last line; where that is nothing, why."""
    wrote = read_tail(directory, RESULTS, TAIL) if in_file else None
    if wrote is None:
        return last_answer(Text(ending.stdout, ending.cut), "printed no number")
    return file_answer(wrote)


def file_answer(wrote: Text | str | Outcome) -> tuple[Answer, str]:
    """What a file says, as a whole or on its last line; where that is nothing, why."""
    if isinstance(wrote, Outcome):
        return wrote, ""
    if isinstance(wrote, str):
        return None, f"wrote no number; {wrote}"
    answer = None if wrote.cut else read_answer(wrote.text)
    return (answer, "") if answer is not None else last_answer(wrote, "wrote no number")


def last_answer(found: Text, said: str) -> tuple[Answer, str]:
    lines = found.text.rstrip().splitlines()
    if not lines:
        return None, f"{said}; {f'the last {TAIL} bytes are blank' if found.cut else 'nothing at all'}"
    if found.cut and len(lines) == 1:  # its beginning is not here, so the rest is not to be believed
        return None, f"{said}; the last line is longer than {TAIL} bytes"
    return read_answer(lines[-1]), f"{said}; last line: {printable(lines[-1].strip()[:200])!r}"


def read_answer(text: str) -> Answer:
    """What a program says: a number, or that it failed; None if it makes no sense."""
    text = text.strip()
    number = read_number(text)
    if number is not None:
        return number
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
