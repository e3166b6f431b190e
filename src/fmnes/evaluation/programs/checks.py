"""Checks of a Command's settings, which come from Python or from a problem file."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import Any

from fmnes.arguments import is_number, shown
from fmnes.errors import ArgumentError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_BYTES = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?I?B?)", re.ASCII | re.IGNORECASE)
#: Less than this no program starts with.
_LEAST_BYTES = 2**20


def check_strings(argument: str, found: Any) -> tuple[str, ...]:
    if isinstance(found, (str, bytes)):
        text = str(found)
        wanted = f"{text.split()} (there is no shell to split it)" if argument == "argv" else f"[{text!r}]"
        raise ArgumentError(f"{argument}: found one string, wanted a list such as {wanted}")
    try:
        strings = tuple(os.fspath(element) for element in found)
    except Exception:  # of the user's own class it may be anything
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a list of strings") from None
    for element in strings:
        if not isinstance(element, str) or "\0" in element or (not element and argument != "argv"):
            raise ArgumentError(f"{argument}: found {shown(element)}, wanted text")
    return strings


def read_plain(path: str, limit: int) -> tuple[bytes, int]:
    """A file of the user's, up to one byte beyond the limit, and its permissions; raises OSError."""
    # A pipe would wait for ever; and Windows changes the ends of lines unless told not to.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit + 1), mode
    finally:
        os.close(descriptor)


def check_codes(argument: str, found: Any, *, signals: bool = False) -> tuple[int, ...]:
    """Exit codes; minus the number of a signal where that is allowed."""
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
    """A number of bytes; also as a text with a unit."""
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
