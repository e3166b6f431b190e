"""The language of arguments and input files: {name} and {name:format} stand for the values of a point.

In an argument all other braces are written twice. An input file has braces of its own, as JSON, gmsh and
ngspice do: there only {identifier} and {identifier:format} are placeholders, {{identifier}} stands for
{identifier} itself, {{{identifier}}} for a value in braces, and all other braces for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from fmnes.arguments import shown
from fmnes.errors import ArgumentError, nearest

_IN_ARGUMENT = re.compile(r"\{\{|\}\}|\{(?P<hole>[^{}]*)\}|[{}]")
_FORM = r"[^\W\d]\w*(?::[^{}\r\n]*)?"
_IN_FILE = re.compile(
    rf"(?P<brace>\{{\{{)?\{{(?P<hole>{_FORM})\}}(?(brace)\}}\}})|\{{(?P<own>\{{{_FORM}\}})\}}"
)
#: Digits of a format's width: a page has fewer columns, and all memory would go for more.
_WIDE = re.compile(r"\d{4}")


class Hole(NamedTuple):
    text: str
    """What stands between the braces."""
    line: int


class Template(NamedTuple):
    """A text with holes, parsed once."""

    where: str
    """For messages: "argv", or the name of the file."""
    pieces: tuple[str | Hole, ...]
    is_file: bool = False

    def fill(self, known: Mapping[str, Any]) -> str:
        """The text for these values, put in literally; numbers keep all their digits unless told."""
        return "".join(p if isinstance(p, str) else _value(self, p, known) for p in self.pieces)

    def names(self, known: Mapping[str, Any]) -> set[str]:
        """Those that its placeholders stand for."""
        return {_split(piece.text, known)[0] for piece in self.pieces if isinstance(piece, Hole)}


class SomeNumber:
    """Stands for a value of which nobody knows yet whether it is whole: what fits either is accepted."""

    def __repr__(self) -> str:
        return "a number"

    def __format__(self, form: str) -> str:
        try:
            return format(1.5, form)
        except ValueError:
            return format(1, form)


def parse_argument(text: str) -> Template:
    def pieces() -> Iterator[str | Hole]:
        end = 0
        for match in _IN_ARGUMENT.finditer(text):
            yield text[end : match.start()]
            end = match.end()
            if match[0] in ("{{", "}}"):
                yield match[0][0]
            elif match["hole"] is None:
                raise ArgumentError(f"argv: found a lonely {match[0]!r} in {text!r}, wanted it doubled")
            else:
                yield Hole(match["hole"], 1)
        yield text[end:]

    return Template("argv", _joined(pieces()))


def parse_file(text: str, where: str) -> Template:
    def pieces() -> Iterator[str | Hole]:
        end, line = 0, 1
        for match in _IN_FILE.finditer(text):
            line += text.count("\n", end, match.start())
            yield text[end : match.start()]
            end = match.end()
            if match["own"] is not None:
                yield match["own"]
            else:
                brace = match["brace"] is not None
                yield "{" * brace
                yield Hole(match["hole"], line)
                yield "}" * brace
        yield text[end:]

    return Template(where, _joined(pieces()), is_file=True)


def _joined(pieces: Iterator[str | Hole]) -> tuple[str | Hole, ...]:
    return tuple(piece for piece in pieces if piece)


def _split(text: str, known: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the format; a name may have a colon itself."""
    name, _, form = (text, "", "") if text in known else text.partition(":")
    return name, form


def _value(template: Template, hole: Hole, known: Mapping[str, Any]) -> str:
    name, form = _split(hole.text, known)
    where = f"{template.where}, line {hole.line}" if template.is_file else template.where
    if name not in known:
        raise ArgumentError(f"{where}: {_unknown(name, hole, known, template.is_file)}")
    value = known[name]
    if not form:
        return value if isinstance(value, str) else repr(value)
    try:
        if _WIDE.search(form):
            raise ValueError("it is wider than 999 characters")
        return format(value, form)
    except (ValueError, OverflowError) as error:
        good = ">20" if isinstance(value, str) else "5d" if isinstance(value, int) else "12.5e"
        raise ArgumentError(
            f"{where}: found {{{hole.text}}}, whose format does not fit {shown(value)} ({error}); wanted "
            f"such as {{{name}:{good}}}"
        ) from None


def _unknown(name: str, hole: Hole, known: Mapping[str, Any], is_file: bool) -> str:
    numbers = sum(re.fullmatch(r"x\d+", other) is not None for other in known)
    if numbers and re.fullmatch(r"x\d{1,9}", name):
        return f"found {{{hole.text}}}, but points have {numbers} coordinates, from x0 on"
    hint = nearest(name, islice(known, 1000))
    found = f"found the unknown placeholder {{{hole.text}}}{hint}"
    if is_file:
        return f"{found} (if it is the file's own, write {{{{{hole.text}}}}})"
    return f"{found} (for a brace itself, write it twice)"
