"""What it takes to evaluate the points of a run: by generations (waves.py) or ahead of them (flow.py)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fmnes.evaluation.evaluator import Evaluator
from fmnes.outcome import Outcome
from fmnes.result import Stop, StopReason
from fmnes.run.doubts import Doubts
from fmnes.run.interrupts import Wishes
from fmnes.run.losses import Losses, Name
from fmnes.run.snapshots import RunState


@dataclass
class Work:
    state: RunState
    evaluator: Evaluator
    losses: Losses
    doubts: Doubts
    deadline: float | None = None
    """In time.monotonic()."""
    wishes: Wishes | None = None
    answered: list[tuple[Name, Outcome, NDArray[np.float64]]] = field(default_factory=list)
    """What was answered and counted, and where, since failures were noted last."""
    first: list[Outcome | None] = field(default_factory=list)
    """Where points are handed out ahead: what came of the first generation."""

    def note_failures(self) -> None:
        """Generation by generation, slot by slot: the same whatever order results came in."""
        for _, outcome, point in sorted(self.answered, key=lambda answer: answer[0]):
            self.state.failures.add(outcome, point)
        self.answered.clear()

    def check_wishes(self) -> None:
        """Raises KeyboardInterrupt if somebody wants the run to stop."""
        if self.wishes:
            self.wishes.check()

    def out_of_time(self) -> Stop | None:
        if self.deadline is None or time.monotonic() < self.deadline:
            return None
        return Stop(StopReason.MAX_SECONDS, f"at evaluation {self.state.evaluations}")

    def interrupted(self) -> Stop:
        return Stop(StopReason.INTERRUPTED, f"at evaluation {self.state.evaluations}")

    def pause(self, seconds: float) -> None:
        """Not beyond the deadline."""
        left = seconds if self.deadline is None else self.deadline - time.monotonic()
        time.sleep(max(0.0, min(seconds, left)))
