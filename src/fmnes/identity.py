"""The identity of an evaluation, as the optimizer, the evaluators, the log and the run name it."""

from __future__ import annotations

from typing import NamedTuple

#: The generation number of the evaluation of the start point.
START = -1


class EvaluationId(NamedTuple):
    """One attempt to evaluate one point. The order of ids is the order of the rows in the log."""

    restart: int
    generation: int
    """Generation of the distribution that the point was drawn from; `START` for the start."""
    slot: int
    redraw: int = 0
    attempt: int = 0

    @property
    def point(self) -> EvaluationId:
        """The id of the first attempt: equal for all attempts."""
        return self._replace(attempt=0) if self.attempt else self
