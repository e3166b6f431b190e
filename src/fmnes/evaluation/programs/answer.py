"""The answer of a program: a number or FAIL, in its output or in a file."""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fmnes._files import open_regular
from fmnes.arguments import check_path, shown
from fmnes.errors import ArgumentError, nearest
from fmnes.evaluation.programs.matching import Match, Search
from fmnes.evaluation.programs.process import RESULTS, TAIL, ExitReport
from fmnes.outcome import Outcome, infeasible, lost

# -- Text of a program's output


# Fortran writes 1.5D+03, and 1.5-103 where the exponent has three digits.
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[ed][+-]?\d+)?|nan|inf(?:inity)?)|([+-]?\d*\.\d+)([+-]\d{3})",
    re.ASCII | re.IGNORECASE,
)


class Text(NamedTuple):
    text: str
    cut: bool = False
    """The beginning is missing."""

    @property
    def whole_lines(self) -> str:
        """The text without an incomplete first line."""
        return self.text.partition("\n")[2] if self.cut else self.text

    @property
    def last_line(self) -> str:
        """The last line that is not blank, for a message."""
        lines = self.text.rstrip().splitlines()
        return printable(lines[-1].strip()[:200]) if lines else ""


def read_tail(directory: Path, name: str, limit: int) -> Text | str | Outcome | None:
    """Return the last `limit` bytes of a file, or the reason why not; None if there is no file."""
    try:
        # A link may lead anywhere.
        with open_regular(directory / name, follow_links=False) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - limit))
            return Text(file.read(limit).decode(errors="replace"), size > limit)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
            return f"{name} is no plain file"
        if error.errno == errno.EACCES:
            return f"{name} may not be read"
        return lost(f"could not read {name}: {error.strerror}")


def read_number(text: str) -> float | None:
    """Parse a number, NaN and infinity included; None for other text."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    return float(f"{match[1]}e{match[2]}" if match[1] else match[0].lower().replace("d", "e"))


def printable(text: str, allowed: str = "") -> str:
    """Replace characters that a terminal might interpret as commands."""
    return "".join(c if c.isprintable() or c in allowed else "?" for c in text)


# -- The default answer: a number or FAIL, in the results file or on the last line


_FAIL = re.compile(r"fail(?:[\s:]+(.*))?", re.I | re.S)

#: A number, a failure that the program reported, or None for an invalid answer.
Answer = float | Outcome | None


def find_answer(ending: ExitReport, directory: Path, in_file: bool) -> tuple[Answer, str]:
    """Return the answer in the results file or on the last line, and the problem if there is none."""
    wrote = read_tail(directory, RESULTS, TAIL) if in_file else None
    if wrote is None:
        return last_answer(Text(ending.stdout, ending.cut), "printed no number")
    return file_answer(wrote)


def file_answer(wrote: Text | str | Outcome) -> tuple[Answer, str]:
    """Return the answer in a file, as a whole or on its last line, and the problem if there is none."""
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
    if found.cut and len(lines) == 1:  # an incomplete line is not reliable
        return None, f"{said}; the last line is longer than {TAIL} bytes"
    return read_answer(lines[-1]), f"{said}; last line: {printable(lines[-1].strip()[:200])!r}"


def read_answer(text: str) -> Answer:
    """Parse an answer: a number or a failure; None if it is neither."""
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


# -- Values at a source: in the output or a file, by a regular expression or a JSON path
#
# {"regex": r"CD =\s*(\S+)"}                      in the output; the last match, its group 1 if it has one
# {"file": "out.txt", "regex": r"mass\s+(\S+)"}   the same in a file of the evaluation's directory
# {"file": "out.json", "json": "drag.total[0]"}   keys and positions
# {"file": "out.txt"}                             its last line


_T = TypeVar("_T")
#: Yields searches, which a `Matcher` makes in another process as they may not end, and is sent their results.
Searches = Generator[Search, Match | str | None, _T]

KEYS = ("file", "regex", "json")
#: Largest file in bytes; only the end of a larger one is searched, and larger JSON is refused.
MAX_FILE = 16 * 2**20
#: Longest text in characters of a further output.
MAX_TEXT = 200
_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(-?\d{1,9})\]")


def check_source(argument: str, found: Any) -> dict[str, str]:
    """Return the source as plain data; raises ArgumentError."""
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


def find_value(
    source: Mapping[str, str], ending: ExitReport, directory: Path
) -> Searches[tuple[Answer, str]]:
    """Return the number at the source, and the problem if there is none."""
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


def find_output(
    source: Mapping[str, str], ending: ExitReport, directory: Path
) -> Searches[float | str | None]:
    """Return a further output: a finite number, text or bool; None if it is not found."""
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
    """No value was found at the source, with the reason."""

    def __init__(self, why: str) -> None:
        self.why = why


def _place(source: Mapping[str, str]) -> str:
    where = source.get("file", "the output")
    if "json" in source:
        return f"{where} at {_quoted(source['json'])}"
    return f"{where} by {_quoted(source['regex'])}" if "regex" in source else where


def _quoted(text: str) -> str:
    """Quote a text without doubling its backslashes."""
    return f"'{printable(text[:MAX_TEXT])}'"


def _find(source: Mapping[str, str], ending: ExitReport, directory: Path) -> Searches[Any]:
    """Return a text, a JSON value, an outcome that the program reported, or _Nothing."""
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
    """Parse a JSON path into keys and positions."""
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
