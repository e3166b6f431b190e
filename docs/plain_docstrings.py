"""Docstrings are plain text, to be read in a terminal; Sphinx wants reStructuredText.

Text that is indented behind a sentence is code; `name: what it means` is an entry of a list, whose further
lines are indented; everything else is prose, in which only `code` is markup. The headings, entries and
examples of numpydoc sections are left to `sphinx.ext.napoleon`, which runs after this.
"""

from __future__ import annotations

import re
from typing import Any

#: "x0: where to start", "lower, upper: bounds".
ENTRY = re.compile(r"([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*(?: \(or \w+\))?): (\S.*)")
#: What the lines of a numpydoc section are: `name : type` or a type, each with an indented description.
SECTIONS = ("Parameters", "Returns", "Yields", "Raises", "Attributes")
EXAMPLES = "Examples"


def as_restructured_text(lines: list[str]) -> list[str]:
    """The lines of a docstring as reStructuredText with numpydoc sections."""
    out: list[str] = []
    for block in _blocks(lines):
        if block[0] in SECTIONS and block[1:2] and set(block[1]) == {"-"}:
            out += [*block[:2], *map(_described, block[2:]), ""]
        elif block[0] == EXAMPLES or block[0].startswith(">>>"):
            out += [*block, ""]
        elif block[0].startswith((" ", "===")):
            out += ["::", "", *(f"    {line}" for line in block), ""]
        elif ENTRY.fullmatch(block[0]) and _are_entries(block):
            out += [*_entries(block), ""]
        else:
            out += [*(_prose(line) for line in block), ""]
    return out


def _described(line: str) -> str:
    """A line of a section: its entries stay as they are, their descriptions are prose."""
    if not line.startswith(" "):
        return line
    text = line.lstrip()
    return line[: len(line) - len(text)] + _prose(text)


def _blocks(lines: list[str]) -> list[list[str]]:
    """What empty lines part."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.rstrip())
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _are_entries(block: list[str]) -> bool:
    return all(line.startswith("    ") or ENTRY.fullmatch(line) for line in block)


def _entries(block: list[str]) -> list[str]:
    out: list[str] = []
    for line in block:
        entry = ENTRY.fullmatch(line)
        if entry and not line.startswith(" "):
            names = ", ".join(f"**{name}**" for name in entry[1].split(", "))
            out.append(f"- {names}: {_prose(entry[2])}")
        else:
            out.append(f"  {_prose(line.strip())}")
    return out


def _prose(line: str) -> str:
    """`code` becomes ``code``; stars, bars and the like mean themselves."""
    parts = line.split("`")
    if len(parts) % 2 == 0:  # code over two lines, or a lone backtick
        return re.sub(r"([\\*|_`])", r"\\\1", line)
    return "".join(
        f"``{part}``" if i % 2 else re.sub(r"([\\*|]|_\b)", r"\\\1", part) for i, part in enumerate(parts)
    )


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_restructured_text(lines)


def setup(app: Any) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process, priority=400)  # before napoleon
    return {"parallel_read_safe": True}
