"""Tasks that are not all known when a batch begins: whoever evaluates them asks for more when it has room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes.evaluation.evaluator import Task


class Supply(Sequence[Task]):
    """A batch that grows: `draw` gives its next task, or None if there is none at the moment.

    An evaluator that knows it (`takes_ahead`) ends a batch when it has nothing under way and gets nothing.
    """

    def __init__(self, draw: Callable[[], Task | None]) -> None:
        self._draw = draw
        self._count = 0
        self._tasks: dict[int, Task] = {}
        """Those that are not done with; the others would fill the memory of a long run."""

    def grow(self) -> int | None:
        """The position of the next task."""
        task = self._draw()
        if task is None:
            return None
        self._tasks[self._count] = task
        self._count += 1
        return self._count - 1

    def pop(self, position: int) -> Task:
        """A task that is done with."""
        return self._tasks.pop(position)

    def left(self) -> list[Task]:
        """Those that are not done with."""
        return list(self._tasks.values())

    @overload
    def __getitem__(self, position: int) -> Task: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Task]: ...
    def __getitem__(self, position: Any) -> Any:
        if position not in self._tasks:
            raise IndexError(position)
        return self._tasks[position]

    def __len__(self) -> int:
        """How many there have been so far."""
        return self._count


def further(tasks: Sequence[Task], room: float) -> list[int]:
    """The positions of up to so many tasks that come to the batch now; none, if it was all there at once."""
    found: list[int] = []
    if isinstance(tasks, Supply):
        while len(found) < room and (position := tasks.grow()) is not None:
            found.append(position)
    return found


def check_takes_ahead(evaluator: Any, ahead: float) -> None:
    """Closes the evaluator if it does not."""
    if ahead and not getattr(evaluator, "takes_ahead", False):
        evaluator.close()
        raise ArgumentError(
            f"ahead: found {shown(ahead)} where all points of a generation are evaluated together; wanted 0, "
            "or workers="
        )
