"""Searches stored in the trials of a study: replayed from the ledger, and updated with new trials.

A *batch* is the points that the optimizer asks for at once (a generation, or its redraws). It is complete
when each point has a finished trial. The trials used are then recorded with the next trial, because a point
may have several: two processes took it at the same time, or a lost one came back. Every later reader of the
study thus replays the same search.

There may be several searches. The first with a free point is served first; if all points of its batch are
being evaluated, the next search gets the trial; if it has ended, it gets no further trials. As in
`minimize(restarts=)` each has twice the population of the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from optuna.logging import get_logger

from fmnes.integrations.optuna.ranges import PointMatch, Ranges, match_point, values_of
from fmnes.integrations.optuna.trials import Entry, Ledger, Used, constraints_of
from fmnes.search.optimizer import Optimizer
from fmnes.search.points import name_of

#: Optuna's users hear what Optuna says, unless they have silenced it.
logger = get_logger("optuna.fmnes")

_ALL = 10**9
#: Among the trials of a generation: no trial at all, the point was given up.
_GIVEN_UP = -1
#: Populations are doubled at most so often.
MAX_DOUBLINGS = 9
#: A point that was lost so often is worth a warning: it may be what kills its process.
MANY_LOSSES = 3


class Point(NamedTuple):
    name: str
    """Search, generation, slot and redraw."""
    id: str
    """As the optimizer knows it."""
    values: dict[str, Any]


class Patience(NamedTuple):
    """When a trial counts as lost; by the study's clock."""

    now: datetime
    stale_after: float | None
    """Seconds that a trial may run; None: as long as it likes."""
    max_losses: int | None
    """A point that was lost so often has failed; None: never."""

    def is_lost(self, entry: Entry) -> bool:
        if entry.lost:
            return True
        return self.stale_after is not None and entry.running_for(self.now) > self.stale_after

    def gives_up(self, losses: int) -> bool:
        return self.max_losses is not None and losses >= self.max_losses


class Search:
    """One of the searches of a study."""

    def __init__(self, k: int, optimizer: Optimizer, digest: str, ranges: Ranges, sign: float) -> None:
        self._k, self._digest, self._ranges, self._sign = k, digest, ranges, sign
        self.optimizer = optimizer
        self._constraints = () if optimizer.limits is None else optimizer.limits.names
        self._history: list[Used] = []
        self._news = 0
        self.batch: list[Point] = []
        """The points that are asked for now; none if the search has ended."""
        self._ask()

    def _ask(self) -> None:
        self.batch = []
        if self._history and self.optimizer.stop_reason is not None:
            return
        for id, x in self.optimizer.ask(_ALL):
            _, generation, slot, redraw, _ = name_of(id).evaluation
            name = f"{self._k}-{generation}-{slot}-{redraw}"
            self.batch.append(Point(name, id, values_of(self._ranges, x)))

    def still_fits(self, ledger: Ledger) -> bool:
        """False: another process has gone on otherwise, at the same time, and is believed.

        Or a trial has reported constraints that were not known: the points so far are the same with them.
        """
        if self._constraints != ledger.constraints:
            return False
        news, self._news = ledger.news[self._news :], len(ledger.news)
        for digest, k, b in news:
            if (digest, k) == (self._digest, self._k) and b < len(self._history):
                mine, first = self._history[b], ledger.used[digest, k, b][0]
                if first.number < mine.number and first.trials != mine.trials:
                    return False
        return True

    def go_on(self, ledger: Ledger, patience: Patience, number: int) -> list[Any]:
        """As far as the trials go, by the trial of this number; returns what is to be written down of it."""
        written = []
        while self.batch:
            b = len(self._history)
            said = ledger.used.get((self._digest, self._k, b), ())
            used = next((found for found in said if self._is_answered_by(found.trials, ledger)), None)
            if used is None:
                trials = self._answers(ledger, patience)
                if trials is None:
                    break
                used = Used(number, trials)
                written.append([self._k, b, list(trials)])
            for point, trial in zip(self.batch, used.trials, strict=True):
                self.optimizer.tell(point.id, self._value(point, trial, ledger))
            self._history.append(used)
            self._ask()
        return written

    def free(self, ledger: Ledger, patience: Patience) -> list[Point]:
        """The points without an evaluation, finished or running; lost ones come last."""
        losses = [(self._losses(point, ledger, patience), point) for point in self.batch]
        free = [(n, point) for n, point in losses if n is not None and not patience.gives_up(n)]
        free.sort(key=lambda pair: pair[0])
        if free and free[0][0] >= MANY_LOSSES:
            n, point = free[0]
            logger.warning(
                f"The point {point.values} was lost {n} times: its process died, or ran for too long "
                "(stale_after). If the point itself is what kills it: max_losses= counts it as failed."
            )
        return [point for _, point in free]

    def _losses(self, point: Point, ledger: Ledger, patience: Patience) -> int | None:
        """How often a point was lost; None if a trial has it."""
        entries = self._entries(point, ledger)
        return len(entries) if all(patience.is_lost(entry) for _, entry in entries) else None

    def _entries(self, point: Point, ledger: Ledger) -> list[tuple[int, Entry]]:
        """The trials that have this point, and not another under its name."""
        numbers = ledger.holders.get(self._digest + point.name, ())
        found = [(number, ledger.entries[number]) for number in numbers]
        return [(number, entry) for number, entry in found if self._has(entry, point)]

    def _has(self, entry: Entry, point: Point) -> bool:
        return not entry.ended or self._kinship(entry, point) is not PointMatch.OTHER

    def _kinship(self, entry: Entry, point: Point) -> Any:
        if entry.judged[0] is not point.values:
            entry.judged = point.values, match_point(self._ranges, point.values, entry.trial)
        return entry.judged[1]

    def _value(self, point: Point, trial: int, ledger: Ledger) -> Any:
        """The value for the optimizer, with the constraints if there are some; None: failed."""
        if trial == _GIVEN_UP or self._kinship(ledger.entries[trial], point) is PointMatch.OUTSIDE:
            return None
        value = self._sign * ledger.entries[trial].value
        return (value, constraints_of(ledger.entries[trial].trial)) if self._constraints else value

    def _answers(self, ledger: Ledger, patience: Patience) -> tuple[int, ...] | None:
        """For each point the first trial that ended; None if one has none."""
        answers = []
        for point in self.batch:
            answer = self._answer(point, ledger, patience)
            if answer is None:
                return None
            answers.append(answer)
        return tuple(answers)

    def _answer(self, point: Point, ledger: Ledger, patience: Patience) -> int | None:
        entries = self._entries(point, ledger)
        ended = [number for number, entry in entries if entry.ended]
        if ended:
            return min(ended)
        lost = self._losses(point, ledger, patience)
        return _GIVEN_UP if lost is not None and patience.gives_up(lost) else None

    def _is_answered_by(self, trials: tuple[int, ...], ledger: Ledger) -> bool:
        """Is what a trial says of this batch about these very points?"""
        if len(trials) != len(self.batch):
            return False
        for point, trial in zip(self.batch, trials, strict=True):
            entries = dict(self._entries(point, ledger))
            if trial != _GIVEN_UP and not (trial in entries and entries[trial].ended):
                return False
        return True


class Searches:
    """All searches of one kind in a study, made again from its trials whenever these say something else."""

    def __init__(
        self,
        digest: str,
        ranges: Ranges,
        sign: float,
        make: Callable[[int, tuple[str, ...]], Optimizer],
    ) -> None:
        """make: the k-th optimizer, with limits on the constraints of these names."""
        self._digest, self._ranges, self._sign, self._make = digest, ranges, sign, make
        self._searches: list[Search] = []
        self.unwritten: list[Any] = []
        """Search, batch and trials of generations without a tag; cleared when they are written."""

    def next_point(self, ledger: Ledger, patience: Patience, number: int) -> Point:
        """A point for the trial of this number."""
        for k in count():
            free = self._followed(k, ledger, patience, number).free(ledger, patience)
            if free:
                # Others that look at this very moment see the same points free: each takes another.
                return free[ledger.before(number) % len(free)]
        raise AssertionError("unreachable: a fresh search has free points")

    def values(self, name: str | None, ledger: Ledger, patience: Patience, number: int) -> dict[str, Any]:
        """Of the point of this name; if it is none of now, of where its search is."""
        k = 0 if name is None else int(name.partition("-")[0])
        for i in range(min(k, len(self._searches)) + 1):
            search = self._followed(i, ledger, patience, number)
        there = (point.values for point in search.batch if point.name == name)
        return next(there, None) or values_of(self._ranges, search.optimizer.mean)

    def _followed(self, k: int, ledger: Ledger, patience: Patience, number: int) -> Search:
        """The k-th search, as far as the trials go."""
        if k == len(self._searches) or not self._searches[k].still_fits(ledger):
            search = Search(k, self._make(k, ledger.constraints), self._digest, self._ranges, self._sign)
            self._searches[k : k + 1] = [search]
            self.unwritten = [said for said in self.unwritten if said[0] != k]
        self.unwritten += self._searches[k].go_on(ledger, patience, number)
        return self._searches[k]


def seed_of(seed: int, k: int) -> int:
    """Of the k-th search."""
    if k == 0:
        return seed
    words = np.random.SeedSequence([seed, k]).generate_state(4)
    return int.from_bytes(words.tobytes(), "little")
