"""The evaluator of a queue: hand out, wait, take in. Who works on the points is not its business."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fmnes.evaluation.evaluator import Outcomes, Task
from fmnes.evaluation.queue.board import Board
from fmnes.evaluation.queue.pauses import Pauses
from fmnes.storage.lock import RunLock


class QueueEvaluator:
    def __init__(self, board: Board, lock: RunLock) -> None:
        self._board = board
        self._lock = lock
        self._closed = False

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Outcomes:
        board = self._board
        positions = {task.key: position for position, task in enumerate(tasks)}
        pauses = Pauses()
        try:
            for task in tasks:
                board.submit(task.key, task.x)
            while positions:
                found = [(key, outcome) for key, outcome in board.poll() if key in positions]
                for key, outcome in found:
                    yield positions.pop(key), outcome
                    board.forget(key)
                if not positions or self._closed or (deadline is not None and time.monotonic() >= deadline):
                    return
                if found:
                    pauses.happened(len(found))
                left = pauses.next()
                time.sleep(left if deadline is None else max(0.0, min(left, deadline - time.monotonic())))
        finally:
            board.withdraw(task.key for task in tasks)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._board.close()
            self._lock.release()
