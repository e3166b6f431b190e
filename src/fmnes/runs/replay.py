"""An evaluator that remembers: what the log knows is answered from it, the rest is evaluated and logged.

That is all there is to a resume: the optimizer asks for the same points again, and those that were finished
before cost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from fmnes.errors import RunError, StorageError
from fmnes.evaluation.outcome import Outcome
from fmnes.evaluation.serial import Evaluator, Task
from fmnes.runs.log import EvaluationLog, x_hash


class Remembering:
    def __init__(self, evaluator: Evaluator, log: EvaluationLog) -> None:
        self._evaluator = evaluator
        self._log = log

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Iterator[tuple[int, Outcome]]:
        rest: list[tuple[int, Task]] = []
        known = self._log.find(tasks[0].restart, tasks[0].generation) if tasks else {}
        for position, task in enumerate(tasks):
            attempts = known.get((task.slot, task.redraw), [])
            outcome = next((o for _, o, _ in attempts if o.status != "lost"), None)
            if outcome is None:
                # Lost attempts are no answer; their numbers are taken, though.
                after = max((attempt for attempt, _, _ in attempts), default=-1) + 1
                rest.append((position, task._replace(attempt=max(task.attempt, after))))
                continue
            if any(found != x_hash(task.x) for _, _, found in attempts):
                raise RunError(
                    f"{self._log.path}: found another point at generation {task.generation}, slot {task.slot}"
                    ", not the one asked for: the run was made with another version of NumPy or fmnes, or "
                    "on another kind of machine, and cannot go on bit for bit"
                )
            yield position, outcome
        started = time.time()
        clock = time.monotonic()
        for i, outcome in self._evaluator([task for _, task in rest], deadline) if rest else ():
            position, task = rest[i]
            # From the moment the batch was handed out: when one of several workers began is not known here.
            try:
                self._log.record(task.key, outcome, task.x, started, time.monotonic() - clock)
            except RunError as error:
                raise StorageError(str(error)) from error
            yield position, outcome

    def close(self) -> None:
        self._evaluator.close()
