"""Plain text: users' text made safe to print, and messages grouped by their wording."""

from __future__ import annotations

import os
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# -- Words that are not ours, as plain text.
#
# Reasons, names, messages and paths come from programs, problem files and run directories, some of them
# made
# elsewhere. Shown as they are, a control sequence among them would be obeyed by the terminal.


#: Joiners: several scripts need them, and they do nothing to a terminal.
_HARMLESS = "\u200c\u200d"


def literal(text: str, lines: bool = False) -> str:
    """The text with everything a terminal might take for a command as an escape, such as \\x1b.

    lines: line ends and tabs stay, for texts that are more than one line.
    """
    return "".join(c if c.isprintable() or (lines and c in "\n\t") else _escape(c) for c in text)


def _escape(c: str) -> str:
    if c in _HARMLESS:
        return c
    if unicodedata.category(c) == "Zs":  # the spaces of other scripts
        return " "
    return c.encode("unicode_escape").decode()


def short(text: str, most: int) -> str:
    """The same in one line of at most so many characters."""
    text = literal(text[: most + 1])
    return text if len(text) <= most else text[: most - 3] + "..."


# -- Reasons that are alike: the same message with other numbers in it.
#
# A simulation that says "residual 0.0123 after 37 steps" fails for another reason each time, and who wants
# to
# know why it fails is told nothing. So where very many reasons differ in their numbers only, they are told
# as
# one. A few are left as they are: there the numbers say which part of a model it was.


#: So many reasons that differ in their numbers only are told apart.
MAX_ALIKE = 20

_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


def kind_of(reason: str) -> str:
    """The reason without its numbers; that of a kind is itself."""
    return _NUMBER.sub("…", reason)


def group_reasons(reasons: Iterable[str]) -> dict[str, str]:
    """As what each reason is told beside these others: itself, or its kind."""
    kinds = {reason: kind_of(reason) for reason in reasons}
    alike = Counter(kinds.values())
    return {reason: kind if alike[kind] > MAX_ALIKE else reason for reason, kind in kinds.items()}


# -- Numbers, times and paths as users read them.


def number(value: Any) -> str:
    """An integer in full, a float with 8 significant digits."""
    return str(value) if isinstance(value, int) else f"{value:.8g}"


def near(path: Path) -> str:
    """The path as typed from the current directory."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def moment(seconds: float) -> str:
    """Local date and time, or "unknown" for a number that is not a time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "unknown"
