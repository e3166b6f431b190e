"""Many evaluations by columns, and which outputs stand beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import RunError
from fmnes.outputs import Outputs
from fmnes.storage.rows import Key, check

#: What a column of outputs is made of: "mixed" is everything that is not all of one kind.
Kind = Literal["flag", "whole", "number", "text", "mixed"]


class Batch(NamedTuple):
    """Evaluations in the search's numbers, in the order of their keys."""

    keys: NDArray[np.int64]
    """restart, generation, slot, redraw, attempt. (n, 5)"""
    statuses: list[str]
    values: NDArray[np.float64]
    """+inf, or what the objective said, where there is no value. (n,)"""
    reasons: list[str]
    faults: list[str]
    details: list[str]
    started: NDArray[np.float64]
    seconds: NDArray[np.float64]
    x: NDArray[np.float64] | None
    """(n, d); None where points are too long to be kept."""
    outputs: list[Outputs | None]


def decode_batch(rows: Sequence[tuple[Any, ...]], more: Mapping[tuple[int, ...], Outputs | None]) -> Batch:
    """Of rows of the log, COLUMNS and x; raises RunError if one of them is damaged."""
    for row in rows:
        check(row[:-1], row[-1])
    columns = list(zip(*rows, strict=True))
    same: dict[str, str] = {}  # most texts are the same ones: kept once
    statuses, reasons, faults, details = (
        [same.setdefault(text, text) for text in columns[i]] for i in (5, 7, 8, 9)
    )
    return Batch(
        np.array(columns[:5], dtype=np.int64).T,
        statuses,
        np.frombuffer(b"".join(columns[6]), dtype="<f8").astype(np.float64),
        reasons,
        faults,
        details,
        np.array(columns[11]),
        np.array(columns[12]),
        _points(rows),
        [more.get(row[:5]) for row in rows] if more else [None] * len(rows),
    )


def _points(rows: Sequence[tuple[Any, ...]]) -> NDArray[np.float64] | None:
    stored = [row[-1] for row in rows]
    if stored[0] is None and not any(stored):
        return None
    for row in rows:
        if row[-1] is None or len(row[-1]) != len(stored[0]):
            raise RunError(f"found points of different lengths ({Key(*row[:5])})")
    return np.frombuffer(b"".join(stored), dtype="<f8").astype(np.float64).reshape(len(rows), -1)


class Tally:
    """Which outputs many evaluations have, in the order in which they first come, and of which kinds."""

    def __init__(self) -> None:
        self.rows = 0
        self._seen: dict[str, dict[type, int]] = {}

    @classmethod
    def of(cls, outputs: Iterable[Outputs | None]) -> Tally:
        tally = cls()
        for found in outputs:
            tally.rows += 1
            tally.add(found)
        return tally

    def add(self, outputs: Outputs | None) -> None:
        for name, value in (outputs or {}).items():
            counts = self._seen.setdefault(name, {})
            counts[type(value)] = counts.get(type(value), 0) + 1

    def kinds(self) -> dict[str, Kind]:
        """A kind for each name. Whole numbers that are not everywhere are numbers, as a gap is a NaN."""
        return {name: self._kind(counts) for name, counts in self._seen.items()}

    def _kind(self, counts: dict[type, int]) -> Kind:
        types = set(counts) - {type(None)}
        everywhere = type(None) not in counts and sum(counts.values()) == self.rows
        if types == {int} and everywhere:
            return "whole"
        if types <= {int, float}:
            return "number"
        if types == {bool} and everywhere:
            return "flag"
        return "text" if types == {str} else "mixed"
