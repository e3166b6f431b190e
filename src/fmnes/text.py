"""Words that are not ours, as plain text.

Reasons, names, messages and paths come from programs, problem files and run directories, some of them made
elsewhere. Shown as they are, a control sequence among them would be obeyed by the terminal.
"""

from __future__ import annotations

import unicodedata

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
