"""An evaluator that remembers: what the log knows is answered from it, the rest is evaluated and logged.

That is all there is to a resume: the optimizer asks for the same points again, and those that were finished
before cost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from fmnes.errors import RunError, StorageError
from fmnes.evaluation.evaluator import Evaluator, Task
from fmnes.outcome import WRONG_TYPE, Outcome
from fmnes.storage.log import EvaluationLog, x_hash

Known = dict[tuple[int, int], list[tuple[int, Outcome, int]]]


class Remembering:
    def __init__(
        self, evaluator: Evaluator, log: EvaluationLog, *, forget_faults: bool = False, ended: bool = False
    ) -> None:
        """forget_faults: evaluations that ended the run with an error are made again, as it may be mended.
        ended: the run is over and only looked at again; what was lost by then stays lost.
        """
        self._evaluator = evaluator
        self._log = log
        self._forget_faults = forget_faults
        self._ended = ended

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Iterator[tuple[int, Outcome]]:
        rest: list[tuple[int, Task]] = []
        known = self._log.find(tasks[0].restart, tasks[0].generation) if tasks else {}
        forgotten = self._forgotten(tasks, known)
        for position, task in enumerate(tasks):
            attempts = known.get((task.slot, task.redraw), [])
            answers = (o for _, o, _ in reversed(attempts) if o.status != "lost" and o.fault not in forgotten)
            outcome = next(answers, None)
            if outcome is None and attempts and self._ended:
                outcome = attempts[-1][1]
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

    def _forgotten(self, tasks: Sequence[Task], known: Known) -> set[str]:
        """The faults that stopped the run: all of them, or what makes the very first evaluations a bug."""
        faults = {slot: attempts[-1][1].fault for slot, attempts in known.items()}
        found = set(faults.values()) - {""}
        if self._forget_faults:
            return found
        if not tasks or tasks[0].generation > 0:
            return set()
        if len(faults) == len(tasks) and len(set(faults.values())) == 1:
            return found
        return found & {WRONG_TYPE} if faults.get((0, 0)) == WRONG_TYPE else set()

    def close(self) -> None:
        self._evaluator.close()
