"""When an objective looks broken rather than infeasible: what is told to the user at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ObjectiveError, warn
from fmnes.outcome import MINUS_INFINITY, NOTHING, WRONG_TYPE, Outcome
from fmnes.run.searches import StartPoint


class Doubts:
    def __init__(self, raise_errors: bool) -> None:
        self._raise_errors = raise_errors
        self._warned = False

    def examine(self, outcome: Outcome, first: bool) -> None:
        """Raises ObjectiveError, or warns. first: it is the run's first."""
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

    def _warn(self, what: str) -> None:
        """Once in a run."""
        if not self._warned:
            self._warned = True
            warn(f"{what}; taken for a failed evaluation")


def fault_of(outcome: Outcome) -> str:
    """The fault of a failed evaluation. None counts as one here: it is what a function without `return` gives."""
    return NOTHING if outcome.reason == NOTHING else outcome.fault


def raise_if_bug(outcomes: Sequence[Outcome | None], start: StartPoint) -> None:
    """A whole first generation with one and the same fault is a bug, not an infeasible region.

    Unless the start ended otherwise.
    """
    made = [o for o in outcomes if o is not None]
    faults = {fault_of(o) for o in made}
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
