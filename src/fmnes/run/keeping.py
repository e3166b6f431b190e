"""An evaluator that keeps in memory what it has made, as the log of a run directory does on disk."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing

import numpy as np

from fmnes.evaluation.evaluator import Evaluator, Outcomes, Task
from fmnes.outcome import Outcome
from fmnes.storage.batch import Batch
from fmnes.storage.rows import MAX_STORED_DIMENSION


class Keeping:
    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._made: list[tuple[Task, Outcome, float, float]] = []

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        began = time.monotonic()
        with closing(self._evaluator(tasks, deadline)) as finished:
            for position, outcome in finished:
                # Whoever makes several at a time has measured them; else we have waited for this one alone.
                seconds = time.monotonic() - began if math.isnan(outcome.seconds) else outcome.seconds
                self._made.append((tasks[position], outcome, time.time() - seconds, seconds))
                yield position, outcome
                began = time.monotonic()

    def batches(self) -> list[Batch]:
        """All of them, in the order of their names."""
        if not self._made:
            return []
        made = sorted(self._made, key=lambda one: one[0].key)
        tasks = [task for task, *_ in made]
        outcomes = [outcome for _, outcome, *_ in made]
        short = len(tasks[0].x) <= MAX_STORED_DIMENSION
        batch = Batch(
            keys=np.array([task.key for task in tasks], dtype=np.int64),
            statuses=[outcome.status for outcome in outcomes],
            values=np.array([outcome.value for outcome in outcomes]),
            reasons=[outcome.reason for outcome in outcomes],
            faults=[outcome.fault for outcome in outcomes],
            details=[outcome.detail for outcome in outcomes],
            started=np.array([started for *_, started, _ in made]),
            seconds=np.array([seconds for *_, seconds in made]),
            x=np.array([task.x for task in tasks]) if short else None,
            outputs=[outcome.outputs for outcome in outcomes],
        )
        return [batch]

    def close(self) -> None:
        self._evaluator.close()
