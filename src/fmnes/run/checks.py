"""Checks of outcomes: objectives that look broken, and lost evaluations with their retries."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ObjectiveError, warn
from fmnes.outcome import MINUS_INFINITY, NOTHING, WRONG_TYPE, EvaluationId, Outcome, bug_name
from fmnes.result import Stop, StopReason
from fmnes.run import log_messages
from fmnes.run.snapshots import RunState
from fmnes.run.state import (
    FEWEST,
    LONG,
    MOST,
    StartPoint,
    StoppedWorking,
    Streak,
    can_be_suspicious,
    is_never_a_point,
)

# -- Objectives that look broken

#: Maximum number of reasons that are kept; beyond it no reason counts as new.
_MAX_MET = 1000


class OutcomeChecks:
    def __init__(self, raise_errors: bool, state: RunState) -> None:
        self._raise_errors = raise_errors
        self._state = state
        self._warned = False
        self._succeeded = False
        """Has an evaluation of this session, or one that it remembered, come out with a value?"""
        self._met: set[str] = set()
        """Reasons of streaks that have ended."""
        self._made = self._in_streak = 0
        """Evaluations that were made in this session, and those of them that belong to the streak."""

    def check_outcome(self, outcome: Outcome, first: bool) -> None:
        """Raises ObjectiveError, or warns. first: it is the run's first."""
        self._watch(outcome)
        if outcome.reason == MINUS_INFINITY:
            self._warn(f"the objective {outcome.reason}")
        if not outcome.fault:
            return
        if outcome.fault == WRONG_TYPE and first:
            raise ObjectiveError(outcome.reason)
        if self._raise_errors:
            raise ObjectiveError(f"{outcome.reason}\n\n{outcome.detail}")
        if outcome.fault == WRONG_TYPE:
            self._warn(outcome.reason)

    def check_values(self, f: NDArray[np.float64]) -> None:
        """The same for the values of an objective that takes many points."""
        if np.isneginf(f).any():
            self._warn(f"the objective {MINUS_INFINITY}")

    def _watch(self, outcome: Outcome) -> None:
        """Raises StoppedWorking where evaluations succeeded before and now all break in the same new way."""
        if outcome.status == "lost":
            return
        state, made = self._state, not outcome.remembered
        self._made += made
        self._succeeded |= outcome.status == "value"
        if not can_be_suspicious(outcome):
            self._end_streak()
            return
        if state.streak.goes_on(outcome):
            state.streak.length += 1
        else:
            self._end_streak()
            is_new = outcome.reason not in self._met and len(self._met) < _MAX_MET
            state.streak = Streak.begin(outcome, is_new and not state.failures.has(outcome.reason))
        self._in_streak += made
        if state.streak.is_new and state.streak.length >= self._suspicious_length(outcome):
            raise StoppedWorking(outcome, state.streak.length)

    def _end_streak(self) -> None:
        if self._state.streak.length:
            if len(self._met) < _MAX_MET:
                self._met.add(self._state.streak.reason)
            self._state.streak = Streak()
        self._in_streak = 0

    def _suspicious_length(self, outcome: Outcome) -> float:
        state, opt = self._state, self._state.opt
        one = min(max(opt.population_size, FEWEST), MOST)
        if is_never_a_point(outcome):
            succeeded = self._succeeded or state.evaluations > state.totals.infeasible + opt.n_infeasible
            return one if succeeded else np.inf
        # A search that begins elsewhere may well begin where all points fail.
        if opt.evaluations == opt.n_infeasible:
            return np.inf
        if self._made == self._in_streak >= one:
            return one
        return max(2 * opt.population_size, LONG)

    def _warn(self, what: str) -> None:
        """Once in a run."""
        if not self._warned:
            self._warned = True
            warn(f"{what}; taken for a failed evaluation")


def raise_if_broken(outcomes: Sequence[Outcome | None], start: StartPoint) -> None:
    """A whole first generation with one and the same fault is a bug, not an infeasible region.

    Unless the start ended otherwise.
    """
    made = [o for o in outcomes if o is not None]
    faults = {bug_name(o) for o in made}
    if len(made) < len(outcomes) or len(made) < 2 or len(faults) != 1 or "" in faults:
        return
    if start.made and start.fault not in faults:
        return
    hint = ""
    if NOTHING in faults:
        hint = " Did you forget `return`?"
    elif "'dict'" in made[0].reason:
        hint = " With named parameters the point is a dict: write p['width'], or pass lambda p: fun(**p)."
    raise ObjectiveError(
        f"this looks like a bug in the objective: each of the first {len(made) + start.made} evaluations "
        f"failed: {made[0].reason}. If these points are bad, say so (raise fmnes.Infeasible; a program "
        f"prints FAIL and a reason), or start elsewhere.{hint}\n\n{made[0].detail}".rstrip()
    )


# -- Lost evaluations and their retries


class LostEvaluations:
    """The lost points of the present search."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self.tries: dict[EvaluationId, int] = {}
        """How often each open point was lost, before a resume too: the number of its next try."""
        self._lost: dict[EvaluationId, int] = {}
        """The same since this process began: what `retries` limits."""
        self._waits: list[tuple[float, EvaluationId]] = []
        """Points that wait for their next try, and until when (time.monotonic())."""

    def clear(self) -> None:
        self.tries.clear()
        self._lost.clear()
        self._waits.clear()

    def tally(
        self, names: Sequence[EvaluationId], outcomes: Sequence[Outcome | None]
    ) -> tuple[int, Stop | None]:
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
                log_messages.lost(name, self._lost[name], self._retries, reason)
        if worst <= self._retries:
            return worst, None
        return worst, Stop(StopReason.LOST, f"{worst} tries of one point, the last: {reason}")

    def wait(self, name: EvaluationId, tries: int) -> None:
        """The point is not tried again at once."""
        self._waits.append((time.monotonic() + backoff_seconds(tries), name))

    def take_due(self) -> list[EvaluationId]:
        """Those that have waited long enough."""
        now = time.monotonic()
        due = [wait for wait in self._waits if wait[0] <= now]
        for wait in due:
            self._waits.remove(wait)
        return [name for _, name in due]

    def seconds_to_next(self) -> float:
        """Until the first of those that wait is due; 0 if none waits."""
        return max(0.0, min(self._waits)[0] - time.monotonic()) if self._waits else 0.0


def backoff_seconds(tries: int) -> float:
    """Seconds until the next try: what failed may need a moment to recover."""
    return float(min(0.1 * 2.0 ** min(tries - 1, 10), 10.0))
