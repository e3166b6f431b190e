"""A program that has ended, while its outputs are searched."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from fmnes.evaluation.clock import TICK
from fmnes.evaluation.deaths import outcome_of_death
from fmnes.evaluation.programs.matching import Match, Matcher, Search
from fmnes.evaluation.programs.sources import Searches
from fmnes.outcome import Outcome, infeasible, lost

#: Seconds for one search: at least, also where the program took nearly all of its timeout, and at most.
LEAST_SECONDS, MOST_SECONDS = 1.0, 60.0
#: Seconds in which the process that searches has to start and read the text: not the evaluation's time.
_START_SECONDS = 300.0


@dataclass
class Searching:
    """One evaluation, from the end of its program to its outcome. Times are those of the runner's clock."""

    directory: Path
    verdict: Searches[Outcome]
    began: float
    """When its program began, by time.monotonic()."""
    stops_at: float
    """When its timeout is over."""
    timeout: float | None
    detail: str
    """What the program has printed, for the outcome of a search that does not end."""
    search: Search = field(init=False)
    matcher: Matcher | None = None
    """The process that searches; None while there is none to be had."""
    outcome: Outcome | None = None
    """Decided without an answer."""
    _expires: float = math.inf
    _began_search: bool = False
    _stopped: bool = False

    def begin(self, now: float) -> None:
        """Its matcher is free: give it the search."""
        assert self.matcher is not None
        self._expires, self._began_search = now + _START_SECONDS, False
        self.matcher.begin(self.search)

    def has_ended(self) -> bool:
        matcher = self.matcher
        over = self._stopped or self.outcome is not None
        return over or (matcher is not None and (matcher.ended or matcher.answered()))

    def due(self, now: float) -> float:
        """When to look at it again at the latest."""
        return now if self.has_ended() else min(self._expires, now + TICK)

    def enforce(self, now: float) -> None:
        """Its time begins when the search does, and ends with the timeout of the evaluation."""
        if self.matcher is None:
            return
        if self.matcher.began and not self._began_search:
            self._began_search = True
            self._expires = min(max(self.stops_at, now + LEAST_SECONDS), now + MOST_SECONDS)
        if now >= self._expires:
            self.outcome = self._timed_out()

    def stop(self, now: float) -> None:
        self._stopped = True

    def answer(self) -> Match | str | Outcome | None:
        """What the search has found, or the outcome where it has not ended by itself."""
        assert self.matcher is not None
        if self.outcome is None and not self.matcher.answered():
            death = outcome_of_death(self.matcher.close())
            words = f"the search for {self.search.words} ended: {death.reason}"
            if death.status == "lost" or not self.matcher.began:
                self.outcome = lost(words)
            else:
                self.outcome = infeasible(words, fault=death.fault, detail=self.detail)
        return self.matcher.answer() if self.outcome is None else self.outcome

    def _timed_out(self) -> Outcome:
        if not self._began_search:
            return lost("the process that searches the output did not start")
        at_most = self.timeout is None or self.timeout > MOST_SECONDS
        limit = f"within {MOST_SECONDS:g} s" if at_most else f"before the timeout of {self.timeout:g} s"
        return infeasible(
            f"the search for {self.search.words} did not end {limit}", fault="timeout", detail=self.detail
        )
