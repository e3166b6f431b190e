"""When an objective looks broken rather than infeasible: what is told to the user at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ObjectiveError, warn
from fmnes.outcome import MINUS_INFINITY, NOTHING, WRONG_TYPE, Outcome, bug_name
from fmnes.run.searches import StartPoint
from fmnes.run.snapshots import RunState
from fmnes.run.streak import (
    FEWEST,
    LONG,
    MOST,
    StoppedWorking,
    Streak,
    can_be_suspicious,
    is_never_a_point,
)

#: Reasons met in this session that are kept; with more of them none is taken for new.
_MAX_MET = 1000


class Doubts:
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

    def examine(self, outcome: Outcome, first: bool) -> None:
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

    def examine_values(self, f: NDArray[np.float64]) -> None:
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


def raise_if_bug(outcomes: Sequence[Outcome | None], start: StartPoint) -> None:
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
