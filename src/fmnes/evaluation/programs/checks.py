"""Checks of the settings of a program: strings, exit codes, sizes, environment, TOML text."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from fmnes._files import open_regular
from fmnes.arguments import check_path, is_number, shown
from fmnes.errors import ArgumentError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_BYTES = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?I?B?)", re.ASCII | re.IGNORECASE)
#: No program starts with less.
_LEAST_BYTES = 2**20


def check_strings(argument: str, found: Any) -> tuple[str, ...]:
    if isinstance(found, (str, bytes)):
        text = str(found)
        wanted = f"{text.split()} (there is no shell to split it)" if argument == "argv" else f"[{text!r}]"
        raise ArgumentError(f"{argument}: found one string, wanted a list such as {wanted}")
    try:
        strings = tuple(os.fspath(element) for element in found)
    except Exception:  # a class of the user may raise anything
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a list of strings") from None
    for element in strings:
        if not isinstance(element, str) or "\0" in element or (not element and argument != "argv"):
            raise ArgumentError(f"{argument}: found {shown(element)}, wanted text")
    return strings


def read_plain(path: str, limit: int) -> tuple[bytes, int]:
    """Read a file up to one byte beyond the limit, and its permissions; raises OSError."""
    with open_regular(path) as file:
        return file.read(limit + 1), os.fstat(file.fileno()).st_mode


def check_codes(argument: str, found: Any, *, signals: bool = False) -> tuple[int, ...]:
    """Check exit codes; with `signals`, also negative signal numbers."""
    try:
        codes = tuple(found)
    except Exception:
        codes = (None,)
    least = -64 if signals else 0
    if any(type(code) is not int or not least <= code <= 255 for code in codes):
        also = ", or from -1 to -64 for signals" if signals else ""
        raise ArgumentError(
            f"{argument}: found {shown(found)}, wanted a list of exit codes from 0 to 255{also}"
        )
    return codes


def check_bytes(argument: str, found: Any) -> int | None:
    """Check a number of bytes, or a text such as "2 GB"."""
    if found is None:
        return None
    match = _BYTES.fullmatch(found.strip()) if isinstance(found, str) else None
    size = float(found) if is_number(found) else 0.0
    if match and match[2].upper() in _UNITS:
        size = float(match[1]) * _UNITS[match[2].upper()]
    if not _LEAST_BYTES <= size < 2**62:
        raise ArgumentError(
            f"{argument}: found {shown(found)}, wanted a number of bytes, or such as '2 GB' or '500 MB'"
        )
    return int(size)


# -- Text of a problem file


#: Largest problem file in bytes; one with a hundred thousand parameters is smaller.
MAX_BYTES = 8 * 2**20
#: Most dots in a line outside of strings and comments: parsing a key with many parts would exhaust memory.
MAX_DOTS = 50
_STRING_OR_COMMENT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*")
#: The form of `tomllib`'s messages.
_ERROR = re.compile(r"(.+) \(at line (\d+), column \d+\)", re.S)
_TWICE = re.compile(r"Cannot declare \('parameters', (.+)\) twice", re.S)


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a problem file; only plain files up to MAX_BYTES are accepted."""
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
    """Parse TOML; errors name the line."""
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


# -- The environment of a program


#: One thread for each program: several programs with a thread per core each would be many times slower.
#: ngspice only respects OMP_THREAD_LIMIT.
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def variables(ours: Mapping[str, str], theirs: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return the environment of a program: that of this process, one thread, and the user's settings."""
    said = {**ours, **(theirs or {})}
    joined = {**dict.fromkeys(ONE_THREAD, "1"), **said}
    if "OMP_THREAD_LIMIT" not in said:  # do not limit a user's own OMP_NUM_THREADS
        threads = joined["OMP_NUM_THREADS"] or ""
        joined["OMP_THREAD_LIMIT"] = threads if threads.isdecimal() else None
    return {name: value for name, value in joined.items() if value is not None}


def check_environment(found: Any) -> dict[str, str | None]:
    """Check an environment; None removes a variable. Raises ArgumentError."""
    try:
        environment = {} if found is None else dict(found)
    except Exception:  # a class of the user may raise anything
        raise ArgumentError(f"environment: found {shown(found)}, wanted a dictionary") from None
    for name, value in environment.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ArgumentError(f"environment: found {shown(name)}, wanted a name without '='")
        if value is not None and (not isinstance(value, str) or "\0" in value):
            # Not the value itself, which may be a secret.
            raise ArgumentError(
                f"environment: found {name} of type {type(value).__name__}, wanted text such as '4'"
            )
    return environment


def environment_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the program's environment in the tables of a problem file."""
    program = data.get("program", {})
    found = program.get("environment", {}) if isinstance(program, Mapping) else {}
    if not isinstance(found, Mapping):
        raise ArgumentError(f"environment: found {shown(found)}, wanted a table such as {{ NAME = '4' }}")
    return {name: value for name, value in check_environment(found).items() if value is not None}


def read_environment(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the program's environment from a problem file: a run directory keeps only the names.

    Raises ArgumentError if the file is missing or invalid.
    """
    name = check_path("problem_file", path)
    if not os.path.exists(name):
        raise ArgumentError(
            f"{name}: found no problem file, wanted it for the program's environment, which a run directory "
            "does not keep"
        )
    data = parse(read_text(name), name)
    try:
        return environment_of(data)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from None
