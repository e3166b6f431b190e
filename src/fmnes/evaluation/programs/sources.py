"""Where a value stands: in the output or in a file, found by a regular expression or a JSON path.

{"regex": r"CD =\\s*(\\S+)"}                      in the output; the last match, its group 1 if it has one
{"file": "out.txt", "regex": r"mass\\s+(\\S+)"}   the same in a file of the evaluation's directory
{"file": "out.json", "json": "drag.total[0]"}   keys and positions
{"file": "out.txt"}                             its last line
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fmnes.arguments import check_path, shown
from fmnes.errors import ArgumentError, nearest
from fmnes.evaluation.programs.answer import Answer, file_answer
from fmnes.evaluation.programs.matching import Match, Search
from fmnes.evaluation.programs.output import Text, printable, read_number, read_tail
from fmnes.evaluation.programs.process import TAIL, Ending
from fmnes.outcome import Outcome

_T = TypeVar("_T")
#: Asks for searches, which are made elsewhere as they may not end, and is sent what they found: `Matcher`.
Searches = Generator[Search, Match | str | None, _T]

KEYS = ("file", "regex", "json")
#: Bytes of a file: of a larger one the end is searched, and JSON is not begun.
MAX_FILE = 16 * 2**20
#: Characters of a further output that is a text.
MAX_TEXT = 200
_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(-?\d{1,9})\]")


def check_source(argument: str, found: Any) -> dict[str, str]:
    """The source as plain data; raises ArgumentError."""
    example = "wanted such as {'regex': r'CD =\\s*(\\S+)'} or {'file': 'out.txt'}"
    if not isinstance(found, Mapping) or not found:
        raise ArgumentError(f"{argument}: found {shown(found)}, {example}")
    for key, value in found.items():
        if key not in KEYS:
            hint = nearest(str(key), KEYS)
            raise ArgumentError(f"{argument}: found the key {shown(key)}, wanted {', '.join(KEYS)}{hint}")
        if not isinstance(value, (str, os.PathLike)) or not value:
            raise ArgumentError(f"{argument}: found {key} = {shown(value)}, {example}")
    source = {key: check_path(f"{argument}, {key}", value) for key, value in found.items()}
    if "json" in source and ("regex" in source or "file" not in source):
        wrong = "regex and json together" if "regex" in source else "json without file"
        raise ArgumentError(
            f"{argument}: found {wrong}, wanted such as {{'file': 'out.json', 'json': 'drag.total[0]'}} (the "
            "output is the file stdout.txt)"
        )
    if "file" in source:
        parts = Path(source["file"]).parts
        if os.path.isabs(source["file"]) or ".." in parts or not parts:
            raise ArgumentError(
                f"{argument}: found the file {source['file']!r}, wanted one in the evaluation's directory, "
                "such as 'out.txt'"
            )
    if "json" in source:
        _steps(argument, source["json"])
    if "regex" in source:
        try:
            re.compile(source["regex"], re.MULTILINE)
        except (re.error, OverflowError, RecursionError) as error:
            raise ArgumentError(
                f"{argument}: found {shown(source['regex'])}, which is no regular expression: {error}"
            ) from None
    return source


def find_value(source: Mapping[str, str], ending: Ending, directory: Path) -> Searches[tuple[Answer, str]]:
    """The number at the source; where there is none, why, with what was there instead."""
    found = yield from _find(source, ending, directory)
    if isinstance(found, _Nothing):
        return None, found.why
    if isinstance(found, str):
        number = read_number(found)
        place = _place(source)
        return number, f"found no number in {place}: {printable(found.strip()[:MAX_TEXT])!r}"
    if isinstance(found, (Outcome, float)):
        return found, ""
    if isinstance(found, int) and not isinstance(found, bool):
        try:
            return float(found), ""
        except OverflowError:
            return math.inf, ""
    return None, f"found no number in {_place(source)}: {shown(found)[:MAX_TEXT]}"


def find_output(source: Mapping[str, str], ending: Ending, directory: Path) -> Searches[float | str | None]:
    """A further output: a finite number, else a text or a truth value; None if there is none."""
    found = yield from _find(source, ending, directory)
    if isinstance(found, str):
        number = read_number(found)
        found = printable(found.strip()[:MAX_TEXT]) if number is None else number
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    if isinstance(found, int):
        return found if abs(found) < 2**63 else None
    return found if isinstance(found, str) else None


class _Nothing:
    """There is nothing at the source."""

    def __init__(self, why: str) -> None:
        self.why = why


def _place(source: Mapping[str, str]) -> str:
    where = source.get("file", "the output")
    if "json" in source:
        return f"{where} at {_quoted(source['json'])}"
    return f"{where} by {_quoted(source['regex'])}" if "regex" in source else where


def _quoted(text: str) -> str:
    """As the user wrote it: repr would double its backslashes."""
    return f"'{printable(text[:MAX_TEXT])}'"


def _find(source: Mapping[str, str], ending: Ending, directory: Path) -> Searches[Any]:
    """A text or a JSON value; an outcome in the program's own words; or _Nothing."""
    name = source.get("file")
    read: Text | str | Outcome | None
    if name is None:
        read = Text(ending.stdout, ending.cut) if ending.whole is None else Text(ending.whole)
    else:
        read = read_tail(directory, name, MAX_FILE if len(source) > 1 else TAIL)
    if read is None:
        return _Nothing(f"wrote no file {name!r}")
    if isinstance(read, str):
        return _Nothing(read)
    if isinstance(read, Outcome):
        return read
    if "regex" in source:
        return (yield from _by_regex(source, read))
    if "json" in source:
        return _by_path(source, read)
    answer, problem = file_answer(read)
    return _Nothing(f"{name}: {problem}") if answer is None else answer


def _by_regex(source: Mapping[str, str], read: Text) -> Searches[Any]:
    where = source.get("file", "the output")
    words = f"the regular expression {_quoted(source['regex'])}"
    last = yield Search(source["regex"], read.whole_lines, f"{words} in {where}")
    if isinstance(last, str):
        return _Nothing(f"{words} could not be searched for in {where} ({last})")
    if last is None:
        limit = MAX_FILE if "file" in source else TAIL
        part = f"the last {limit} bytes of {where}" if read.cut else where
        line = f"its last line: {read.last_line!r}" if read.last_line else "it is empty"
        return _Nothing(f"{words} found nothing in {part}; {line}")
    found = last.first if last.groups else last.whole
    if found is None:
        there = printable(last.whole.strip()[:MAX_TEXT])
        return _Nothing(f"the group of {words} found nothing in {there!r}")
    return found


def _by_path(source: Mapping[str, str], read: Text) -> Any:
    name, path = source["file"], source["json"]
    if read.cut:
        return _Nothing(f"{name} has more than {MAX_FILE} bytes, too much for JSON")
    try:
        found = json.loads(read.text)
    except (ValueError, RecursionError) as error:
        return _Nothing(f"{name} is no JSON ({str(error)[:100]}); its last line: {read.last_line!r}")
    for step in _steps("value", path):
        try:
            if isinstance(found, (dict, list)) and isinstance(found, list) == isinstance(step, int):
                found = found[step]  # type: ignore[index]
                continue
        except LookupError:
            pass
        return _Nothing(f"{name} has no {path!r}; instead of {step!r} there is {_contents(found)}")
    return found


def _contents(found: Any) -> str:
    if isinstance(found, dict):
        names = ", ".join(printable(str(name))[:40] for name in list(found)[:10])
        return f"{{{names}{', …' * (len(found) > 10)}}}"
    return f"a list of {len(found)}" if isinstance(found, list) else printable(shown(found))[:MAX_TEXT]


def _steps(argument: str, path: str) -> list[str | int]:
    """A JSON path's keys and positions."""
    steps: list[str | int] = []
    end = 0
    while end < len(path):
        match = _STEP.match(path, end)
        if match is None:
            raise ArgumentError(
                f"{argument}: found the JSON path {shown(path)}, unclear from {path[end:][:40]!r} on; wanted "
                "keys and positions such as 'drag.total[0]'"
            )
        steps.append(int(match[2]) if match[2] else match[1])
        end = match.end()
    return steps
