"""Consecutive evaluations that failed in one and the same way, and whether the objective stopped working.

Points fail, and a search may come to a region where all of them do. So consecutive failures are suspicious
only if they are faults (an exception, an exit code, an answer that cannot be read) with the same words from
the same place, and the run had not met these before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fmnes.errors import ObjectiveError
from fmnes.outcome import WRONG_TYPE, Outcome
from fmnes.search.saved import count

#: Exceptions that are about the code and its installation, never about a point.
NEVER_A_POINT = (
    "NameError",
    "ImportError",
    "ModuleNotFoundError",
    "SyntaxError",
    "IndentationError",
    "TabError",
)
#: How faults begin that all points in a region may have, or of which there is a warning.
_POINTWISE = ("timeout", "SIG", "signal ", WRONG_TYPE)
#: What is enough of those, and of any fault that all evaluations since a resume had: one generation, between
#: these numbers of evaluations.
FEWEST, MOST = 5, 20
#: Of all other faults: two generations, and at least this number of evaluations.
LONG = 20


class StoppedWorking(ObjectiveError):
    """Each of the last evaluations broke in one and the same way, and those before did not."""

    def __init__(self, last: Outcome, length: int) -> None:
        self.reason = last.reason
        self.what = (
            "the objective seems to have stopped working: evaluations succeeded before, and each of the last "
            f"{length} failed in one and the same way, which is new in this run: {last.reason}"
        )
        super().__init__(
            f"{self.what}. These failures do not count: resume the run when the cause is mended, and the "
            "points are evaluated again. If these points are bad, say so (raise fmnes.Infeasible; a program "
            f"prints FAIL and a reason).\n\n{last.detail}".rstrip()
        )


@dataclass
class Streak:
    """The last evaluations of a run, as far as they have the same fault. Lost ones do not count."""

    reason: str = ""
    place: str = ""
    length: int = 0
    is_new: bool = False
    """The run had not met this reason before."""

    @classmethod
    def begin(cls, outcome: Outcome, is_new: bool) -> Streak:
        return cls(outcome.reason, _place(outcome), 1, is_new)

    def goes_on(self, outcome: Outcome) -> bool:
        return self.length > 0 and outcome.reason == self.reason and _place(outcome) == self.place

    def dump(self) -> list[Any]:
        return [self.reason, self.place, self.length, self.is_new]

    @classmethod
    def restore(cls, saved: list[Any]) -> Streak:
        reason, place, length, is_new = saved
        if type(is_new) is not bool:
            raise ValueError(f"a streak that is {is_new!r}")
        return cls(str(reason), str(place), count(length), is_new)


def can_be_suspicious(outcome: Outcome) -> bool:
    """Timeouts, crashes and what the objective itself calls infeasible never are."""
    fault = outcome.fault
    return outcome.status == "infeasible" and fault != "" and not fault.startswith(_POINTWISE)


def is_never_a_point(outcome: Outcome) -> bool:
    """Also of a program in Python, whose error output is the detail."""
    if outcome.fault in NEVER_A_POINT:
        return True
    starts = tuple(f"{name}: " for name in NEVER_A_POINT)
    return outcome.fault.startswith("exit ") and any(
        line.startswith(starts) for line in outcome.detail.splitlines()
    )


def _place(outcome: Outcome) -> str:
    """Where it was raised: the last line of the traceback that names a file."""
    lines = [line.strip() for line in outcome.detail.splitlines() if line.startswith('  File "')]
    return lines[-1] if lines else ""
