"""The searches of a study: the ledger of its trials, and the searches replayed from it.

Each trial that evaluates a point of the sampler carries a tag; nothing else is stored:

    search   the arguments and the space of the search, as a digest
    point    search, generation, slot and redraw: the name of the point
    used     which trials each complete generation was made of, with the first trial after it
    seed     of the search, with its first trial
    start    the trial that it starts from, if a better start was enqueued

A trial is read repeatedly until it has finished.

A *batch* is the points that the optimizer asks for at once (a generation, or its redraws). It is complete
when each point has a finished trial. The trials used are then recorded with the next trial, because a point
may have several: two processes took it at the same time, or a lost one came back. Every later reader of the
study thus replays the same search.

There may be several searches. The first with a free point is served first; if all points of its batch are
being evaluated, the next search gets the trial; if it has ended, it gets no further trials. As in
`minimize(restarts=)` each has twice the population of the one before.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from optuna.logging import get_logger
from optuna.trial import FrozenTrial, TrialState

from fmnes.arguments import is_number
from fmnes.integrations.optuna.ranges import PointMatch, Ranges, Spaces, is_inside, match_point, values_of
from fmnes.search.counting import name_of
from fmnes.search.optimizer import Optimizer

# -- The ledger of a study: which trial has which point, and its outcome.

TAG = "fmnes:tag"
#: Marks a trial that ended by itself. A failed trial without it was ended from outside: its process died, and
#: the value of the point is unknown.
ENDED = "fmnes:ended"
_NAME = re.compile(r"(\d{1,9}-){3}\d{1,9}", re.ASCII)
CONSTRAINTS = "constraints"
_UNFINISHED = (TrialState.RUNNING, TrialState.WAITING)

#: One generation of one search: digest, search, batch.
Batch = tuple[str, int, int]


class SearchOrigin(NamedTuple):
    """The start of a search, as recorded in its first trial."""

    number: int
    seed: int
    start: int | None


class Used(NamedTuple):
    """Which trials a generation is made of, in the order of its points, and the trial that says so."""

    number: int
    trials: tuple[int, ...]


class Entry:
    """A trial with a point of the sampler."""

    def __init__(self, trial: FrozenTrial) -> None:
        self.trial = trial
        self.judged: tuple[Any, Any] = (None, None)
        """The values it was compared with, and what came of that."""

    @property
    def lost(self) -> bool:
        return self.trial.state is TrialState.FAIL and not self.trial.system_attrs.get(ENDED)

    @property
    def ended(self) -> bool:
        return self.trial.state not in _UNFINISHED and not self.lost

    @property
    def value(self) -> float:
        """NaN: the point failed."""
        trial = self.trial
        if trial.state is not TrialState.COMPLETE or trial.value is None:
            return math.nan
        return trial.value

    def running_for(self, now: datetime) -> float:
        """Seconds; 0 if it waits, or is finished."""
        began = self.trial.datetime_start
        if self.trial.state is not TrialState.RUNNING or began is None:
            return 0.0
        return (now.astimezone(began.tzinfo).replace(tzinfo=began.tzinfo) - began).total_seconds()


class Ledger:
    def __init__(self) -> None:
        self.spaces = Spaces()
        self.entries: dict[int, Entry] = {}
        """By the trial's number."""
        self.points: dict[int, str] = {}
        """The names of their points."""
        self.holders: defaultdict[str, list[int]] = defaultdict(list)
        """The trials that have a point, by digest and point."""
        self.founding: dict[str, SearchOrigin] = {}
        self.used: dict[Batch, list[Used]] = {}
        """What trials say of it, by their numbers: the first is believed."""
        self.news: list[Batch] = []
        """Every batch that a trial has mentioned."""
        self.longest = 0.0
        """Seconds of the longest complete trial; those that fail may do so at once."""
        self.constraints: tuple[str, ...] = ()
        """The names of all constraints that trials have reported, sorted."""
        self.enqueued: list[FrozenTrial] = []
        """Complete trials with fixed values."""
        self._seen = 0
        self._last = -1
        self._unfinished: list[int] = []
        self._untagged: dict[int, None] = {}

    def read(self, trials: Sequence[FrozenTrial]) -> bool:
        """Take in what is new. False: these are not the trials that were read before."""
        n = self._seen
        if n and (len(trials) < n or trials[n - 1].number != self._last):
            return False
        positions = [*self._unfinished, *range(n, len(trials))]
        self._unfinished = []
        for i in positions:
            self._take_in(i, trials[i])
        if trials:
            self._seen, self._last = len(trials), trials[-1].number
        return True

    def _take_in(self, position: int, trial: FrozenTrial) -> None:
        tag = trial.system_attrs.get(TAG)
        if isinstance(tag, dict):
            self.note(trial, tag)
        if trial.state in _UNFINISHED:
            self._unfinished.append(position)
            if trial.number not in self.entries:
                self._untagged[trial.number] = None
            return
        self._untagged.pop(trial.number, None)
        self.spaces.add(trial)
        entry = self.entries.get(trial.number)
        if entry is None:
            if trial.state is TrialState.COMPLETE and trial.system_attrs.get("fixed_params"):
                self.enqueued.append(trial)
        elif trial.state is TrialState.COMPLETE:
            if trial.duration is not None:
                self.longest = max(self.longest, trial.duration.total_seconds())
            reported = constraints_of(trial)
            if not reported.keys() <= set(self.constraints):
                self.constraints = tuple(sorted({*self.constraints, *reported}))

    def note(self, trial: FrozenTrial, tag: dict[str, Any]) -> None:
        """Take in a tag that was read or written; ignore one of another form."""
        number = trial.number
        if number in self.entries:
            self.entries[number].trial = trial
            return
        search, point = tag.get("search"), tag.get("point")
        if not isinstance(search, str) or not isinstance(point, str) or not _NAME.fullmatch(point):
            return
        self.entries[number], self.points[number] = Entry(trial), point
        self.holders[search + point].append(number)
        self._untagged.pop(number, None)
        seed, start = _whole(tag.get("seed")), _whole(tag.get("start"))
        if seed is not None and not (search in self.founding and self.founding[search].number < number):
            self.founding[search] = SearchOrigin(number, seed, start)
        said = tag.get("used")
        for found in said if isinstance(said, (list, tuple)) else ():
            self._note_used(search, number, found)

    def _note_used(self, search: str, number: int, said: Any) -> None:
        try:
            k, b, trials = said
            batch, used = (search, int(k), int(b)), Used(number, tuple(map(int, trials)))
        except (TypeError, ValueError):
            return
        self.used[batch] = sorted([*self.used.get(batch, ()), used])
        self.news.append(batch)

    def best_enqueued(self, ranges: Ranges, sign: float) -> int | None:
        """Number of the best enqueued trial with values for all of these, or None."""
        found = [t for t in self.enqueued if is_inside(ranges, t.system_attrs["fixed_params"])]
        within = [t for t in found if not any(value > 0 for value in constraints_of(t).values())]
        best = min(within or found, key=lambda t: (sign * (t.value or 0.0), t.number), default=None)
        return None if best is None or not math.isfinite(best.value or 0.0) else best.number

    def params_of(self, number: int | None) -> dict[str, Any]:
        return next((t.params for t in self.enqueued if t.number == number), {})

    def before(self, number: int) -> int:
        """Trials under way with lower numbers that have no point yet: they may be about to take one."""
        return sum(other < number for other in self._untagged)


def constraints_of(trial: FrozenTrial) -> dict[str, float]:
    """The values of its constraints, violated where they are positive.

    Optuna 4 keeps a list of them, whose names are "0", "1", …; 5 keeps each by its name too.
    """
    found: dict[str, float] = {}
    for key, said in trial.system_attrs.items():
        if not key.startswith(CONSTRAINTS):
            continue
        name = key.removeprefix(CONSTRAINTS).removeprefix(":")
        numbered = {str(i): value for i, value in enumerate(said)} if isinstance(said, (list, tuple)) else {}
        for own, value in (numbered or {name: said}).items():
            if own and is_number(value):
                found[own] = float(value)
    return found


def _whole(found: Any) -> int | None:
    """Written as text where it may be large: databases keep JSON."""
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 1000:
        return int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


# -- Searches stored in the trials of a study: replayed from the ledger, and updated with new trials.

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
        self, digest: str, ranges: Ranges, sign: float, make: Callable[[int, tuple[str, ...]], Optimizer]
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
