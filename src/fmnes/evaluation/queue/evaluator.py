"""The evaluator of a queue: hand out, wait, take in. Who works on the points is not its business."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from fmnes.evaluation.ahead import Supply, further
from fmnes.evaluation.evaluator import Outcomes, Task
from fmnes.evaluation.queue.board import Board
from fmnes.evaluation.queue.pauses import Pauses
from fmnes.storage.lock import RunLock


class QueueEvaluator:
    def __init__(self, board: Board, lock: RunLock) -> None:
        self._board = board
        self._lock = lock
        self._closed = False

    takes_ahead = True

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        board = self._board
        positions = {task.key: position for position, task in enumerate(tasks)}
        pauses = Pauses()
        try:
            for task in tasks:
                board.submit(task.key, task.x)
            while True:
                for position in further(tasks, self._room(tasks) - len(positions)):
                    positions[tasks[position].key] = position
                    board.submit(tasks[position].key, tasks[position].x)
                if not positions:
                    return
                found = [(key, outcome) for key, outcome in board.poll() if key in positions]
                for key, outcome in found:
                    yield positions[key], outcome
                    del positions[key]
                    board.forget(key)
                if self._closed or (deadline is not None and time.monotonic() >= deadline):
                    return
                if found:
                    pauses.happened(len(found))
                    if not positions or isinstance(tasks, Supply):
                        continue  # nothing is left to wait for, or there is more to hand out
                left = pauses.next()
                time.sleep(left if deadline is None else max(0.0, min(left, deadline - time.monotonic())))
        finally:
            board.withdraw(list(positions))

    def _room(self, tasks: Sequence[Task]) -> float:
        """How many tasks of a growing batch may be handed out: what waits long was drawn too early."""
        return (self._board.count_workers() or math.inf) if isinstance(tasks, Supply) else 0

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._board.close()
            self._lock.release()
