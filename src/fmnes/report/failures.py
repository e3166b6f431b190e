"""The failure ledger: which points failed, for which reason, how often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.outcome import Outcome, from_number
from fmnes.result import Failure, Vector

#: Points kept per reason, and reasons kept apart; the rest is counted, so the ledger stays small.
MAX_POINTS = 100
MAX_REASONS = 1000
#: Numbers kept per reason: in high dimension that is one point.
MAX_NUMBERS = 1_000_000
OTHER = "(other reasons)"


@dataclass
class _Entry:
    detail: str
    count: int = 0
    points: list[Vector] = field(default_factory=list)


class Ledger:
    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def add(self, outcome: Outcome, x: Vector) -> None:
        """Note an evaluation if it failed."""
        if outcome.status != "infeasible":
            return
        reason = outcome.reason
        if reason not in self._entries and len(self._entries) >= MAX_REASONS:
            reason = OTHER
        entry = self._entries.setdefault(reason, _Entry(outcome.detail))
        entry.count += 1
        if len(entry.points) < max(1, min(MAX_POINTS, MAX_NUMBERS // max(len(x), 1))):
            entry.points.append(np.array(x))

    def add_values(self, f: NDArray[np.float64], x: NDArray[np.float64]) -> None:
        """Note the failed ones of many values. f: (n,), x: (n, d)."""
        for i in np.flatnonzero(~np.isfinite(f)):
            self.add(from_number(float(f[i])), x[i])

    def dump(self) -> tuple[list[list[Any]], dict[str, NDArray[np.float64]]]:
        """[reason, count, detail] of each entry, and their points by number."""
        entries = list(self._entries.items())
        arrays = {f"ledger.{i}": np.array(e.points) for i, (_, e) in enumerate(entries)}
        return [[reason, e.count, e.detail] for reason, e in entries], arrays

    def restore(self, entries: list[list[Any]], arrays: dict[str, NDArray[Any]]) -> None:
        for i, (reason, count, detail) in enumerate(entries):
            points = np.asarray(arrays[f"ledger.{i}"], dtype=float)
            self._entries[str(reason)] = _Entry(str(detail), int(count), list(points))

    def failures(self) -> list[Failure]:
        """Most frequent first."""
        entries = sorted(self._entries.items(), key=lambda item: -item[1].count)
        return [Failure(reason, e.count, np.array(e.points), e.detail) for reason, e in entries]
