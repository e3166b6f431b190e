"""Points with names, for those who tell values one by one, in any order, perhaps from another process."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple

import numpy as np

from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes.result import Vector, X


class Point(NamedTuple, Generic[X]):
    """A point that needs a value, and the id by which the value is reported.

    Attributes
    ----------
    id : str
        Letters, digits and hyphens; different for every evaluation.
    x : ndarray or dict
        The point, read-only: (d,), or {name: value}.
    """

    id: str
    x: X
    """Read-only. (d,); of named parameters {name: value}."""


class Name(NamedTuple):
    """What an id says. No two evaluations of a search share one, nor do those of its restarts."""

    restart: int
    generation: int
    slot: int
    redraw: int
    mark: str
    """Of the point's digits, so that an answer to another search is not taken for one to this."""

    @property
    def id(self) -> str:
        """Letters and digits only: it goes through JSON, and is a file's name if somebody needs one."""
        return "-".join(map(str, self))


_ID = re.compile(r"(\d{1,18})-(\d{1,18})-(\d{1,18})-(\d{1,18})-([0-9a-f]{8})", re.ASCII)


def name_of(id: Any) -> Name:
    found = _ID.fullmatch(id) if isinstance(id, str) else None
    if isinstance(id, Point):
        raise ArgumentError("tell: found a point with its value, wanted its id: tell(point.id, value)")
    if isinstance(id, (np.ndarray, Sequence, Mapping)) and not isinstance(id, (str, bytes)):
        raise ArgumentError(
            "tell: found two arguments, and the first is not an id; tell takes the values only, in the order "
            "of ask(): tell(values). For a point of ask(n) it is tell(id, value)"
        )
    if found is None:
        raise ArgumentError(f"tell: found the id {shown(id)}, wanted one that ask(n) gave")
    restart, generation, slot, redraw, mark = found.groups()
    return Name(int(restart), int(generation), int(slot), int(redraw), mark)


def mark_of(x: Vector) -> str:
    return f"{zlib.crc32(x.astype('<f8').tobytes()):08x}"
