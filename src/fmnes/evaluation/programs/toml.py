"""The text of a problem file, and its tables. It may be anything: nothing of it is run."""

from __future__ import annotations

import os
import re
import tomllib
from typing import Any

from fmnes.errors import ArgumentError
from fmnes.evaluation.programs.checks import read_plain

#: A problem of a hundred thousand parameters has less.
MAX_BYTES = 8 * 2**20
#: Dots in one line besides strings and comments; a key of very many parts would take all memory to read.
MAX_DOTS = 50
_STRING_OR_COMMENT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*")
#: What `tomllib` says, and where.
_ERROR = re.compile(r"(.+) \(at line (\d+), column \d+\)", re.S)
_TWICE = re.compile(r"Cannot declare \('parameters', (.+)\) twice", re.S)


def read_text(path: str | os.PathLike[str]) -> str:
    """The file's text; what is no plain file, or far too large for a problem file, is not even begun."""
    try:
        data, _ = read_plain(os.fspath(path), MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise ArgumentError(f"{path}: found more than {MAX_BYTES} bytes, wanted a problem file")
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ArgumentError(
            f"{path}: found a byte that is not UTF-8 in line {line}, wanted a text file saved as UTF-8"
        ) from None
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read ({error.strerror}), wanted a problem file") from None


def parse(text: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Its tables; what is no TOML is said with its line."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MAX_DOTS and _STRING_OR_COMMENT.sub("", line).count(".") > MAX_DOTS:
            raise ArgumentError(f"{path}, line {number}: found more than {MAX_DOTS} dots, wanted TOML")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, a number of too many digits, too deeply nested
        said = _ERROR.fullmatch(str(error))
        where, what = (f", line {said[2]}", said[1]) if said else ("", str(error))
        twice = _TWICE.fullmatch(what)
        if twice:
            raise ArgumentError(
                f"{path}{where}: found two parameters of the name {twice[1]}, wanted one name for each"
            ) from None
        if what == "Cannot overwrite a value":
            raise ArgumentError(f"{path}{where}: found a key for the second time, wanted it once") from None
        raise ArgumentError(
            f"{path}{where}: found what is not TOML ({what[:200]}), wanted TOML: key = value, text in "
            "quotes, lists in [ ]"
        ) from None
