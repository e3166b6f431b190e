"""Points that were lost to the machine: how often each was, when it is tried again, and when no more."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fmnes.outcome import Outcome
from fmnes.result import Stop, StopReason
from fmnes.run import telling

#: The name of an evaluation: generation, slot, redraw.
Name = tuple[int, int, int]


class Losses:
    """Of the present search."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self.tries: dict[Name, int] = {}
        """How often each open point was lost, before a resume too: the number of its next try."""
        self._lost: dict[Name, int] = {}
        """The same since this process began: what `retries` limits."""
        self._waits: list[tuple[float, Name]] = []
        """Points that wait for their next try, and until when (time.monotonic())."""

    def clear(self) -> None:
        self.tries.clear()
        self._lost.clear()
        self._waits.clear()

    def tally(self, names: Sequence[Name], outcomes: Sequence[Outcome | None]) -> tuple[int, Stop | None]:
        """How often the unluckiest of these points was lost; and, if that is too often, why to stop."""
        worst, reason = 0, ""
        for name, outcome in zip(names, outcomes, strict=True):
            if outcome is None:
                continue
            if outcome.status != "lost":
                self.tries.pop(name, None)
                self._lost.pop(name, None)
                continue
            self.tries[name] = self.tries.get(name, 0) + 1
            if not outcome.remembered:
                self._lost[name] = self._lost.get(name, 0) + 1
                worst, reason = max(worst, self._lost[name]), outcome.reason
                telling.lost(name, self._lost[name], self._retries, reason)
        if worst <= self._retries:
            return worst, None
        return worst, Stop(StopReason.LOST, f"{worst} tries of one point, the last: {reason}")

    def wait(self, name: Name, tries: int) -> None:
        """The point is not tried again at once."""
        self._waits.append((time.monotonic() + patience(tries), name))

    def take_due(self) -> list[Name]:
        """Those that have waited long enough."""
        now = time.monotonic()
        due = [wait for wait in self._waits if wait[0] <= now]
        for wait in due:
            self._waits.remove(wait)
        return [name for _, name in due]

    def seconds_to_next(self) -> float:
        """Until the first of those that wait is due; 0 if none waits."""
        return max(0.0, min(self._waits)[0] - time.monotonic()) if self._waits else 0.0


def patience(tries: int) -> float:
    """Seconds until the next try: what failed may need a moment to recover."""
    return float(min(0.1 * 2.0 ** min(tries - 1, 10), 10.0))
