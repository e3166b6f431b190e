"""The ledger of a study: which trial has which point, and its outcome.

Each trial that evaluates a point of the sampler carries a tag; nothing else is stored:

    search   the arguments and the space of the search, as a digest
    point    search, generation, slot and redraw: the point's name
    used     which trials each complete generation was made of, with the first trial after it
    seed     of the search, with its first trial
    start    the trial that it starts from, if a better start was enqueued

A trial is read repeatedly until it has finished.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from optuna.trial import FrozenTrial, TrialState

from fmnes.arguments import is_number
from fmnes.integrations.optuna.ranges import Ranges, Spaces, is_inside

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
