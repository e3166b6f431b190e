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

# -- Untrusted text as plain text.
#
# Reasons, names, messages and paths come from programs, problem files and run directories. A terminal would
# execute control sequences in them.


#: Joiners: several scripts need them, and terminals ignore them.
_HARMLESS = "\u200c\u200d"


def literal(text: str, lines: bool = False) -> str:
    """The text with control characters as escapes such as \\x1b.

    lines: keep line ends and tabs.
    """
    return "".join(c if c.isprintable() or (lines and c in "\n\t") else _escape(c) for c in text)


def _escape(c: str) -> str:
    if c in _HARMLESS:
        return c
    if unicodedata.category(c) == "Zs":  # the spaces of other scripts
        return " "
    return c.encode("unicode_escape").decode()


def short(text: str, most: int) -> str:
    """The text in one line of at most `most` characters."""
    text = literal(text[: most + 1])
    return text if len(text) <= most else text[: most - 3] + "..."


# -- Reasons that differ only in their numbers.
#
# "residual 0.0123 after 37 steps" differs at each failure. Many such reasons are grouped as one; a few are
# kept apart, as their numbers may name a part of the model.


#: Up to this many reasons that differ only in their numbers are kept apart.
MAX_ALIKE = 20

_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


def kind_of(reason: str) -> str:
    """The reason with its numbers replaced by an ellipsis."""
    return _NUMBER.sub("…", reason)


def group_reasons(reasons: Iterable[str]) -> dict[str, str]:
    """Map each reason to the text that reports it: itself, or its kind."""
    kinds = {reason: kind_of(reason) for reason in reasons}
    alike = Counter(kinds.values())
    return {reason: kind if alike[kind] > MAX_ALIKE else reason for reason, kind in kinds.items()}


# -- Numbers, times and paths as users read them.


def number(value: Any) -> str:
    """An integer in full, a float with 8 significant digits, a choice as it is."""
    return f"{value:.8g}" if isinstance(value, float) else str(value)


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
