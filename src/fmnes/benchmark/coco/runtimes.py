"""What is measured: when each of 51 targets was first reached, and the area under the curve that gives.

A target is a distance to the optimal value, f − f_opt ≤ 10^2 … 10^-8, five to a decade. A run is the list of
the evaluations at which they were reached, the easiest first; a failed evaluation counts like any other.
The runtime curve is the share of pairs of problem and target that were reached within so many evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TARGETS: tuple[float, ...] = tuple(10 ** (2 - i / 5) for i in range(51))


class Finished(Exception):
    """The last target is reached, or the budget spent: whoever is searching has to stop, all in one way."""


class Recorder:
    """The objective as every method sees it: a number, or NaN where the evaluation failed."""

    def __init__(
        self, fun: Callable[[NDArray[np.float64]], float], optimum: float, max_evaluations: int
    ) -> None:
        self._fun = fun
        self._optimum = optimum
        self._left = max_evaluations
        self.evaluations = 0
        self.failed = 0
        self.best = np.inf
        """The least f − f_opt so far."""
        self.hits: list[int] = []
        """The evaluation at which each target was first reached; the targets that were not are left out."""

    @property
    def finished(self) -> bool:
        return self._left <= 0 or len(self.hits) == len(TARGETS)

    def __call__(self, x: Any) -> float:
        if self.finished:
            raise Finished
        self._left -= 1
        self.evaluations += 1
        value = self._fun(np.asarray(x, dtype=float))
        if not np.isfinite(value):
            self.failed += 1
            return np.nan
        if value - self._optimum < self.best:
            self.best = value - self._optimum
            while len(self.hits) < len(TARGETS) and self.best <= TARGETS[len(self.hits)]:
                self.hits.append(self.evaluations)
        return value


def area(hits: Sequence[int], d: int, budget: int) -> float:
    """The area under the runtime curve of one run, between 0 (no target reached) and 1 (all at once).

    The axis is the logarithm of evaluations per dimension, from 1 to `budget`. A target that was reached at
    evaluation t fills what is right of it, 1 − ln(t/d) / ln(budget), where t < d counts as d; one that was
    not reached within the budget fills nothing.
    """
    t = np.asarray(hits, dtype=float) / d
    return float(np.clip(1 - np.log(t) / np.log(budget), 0, 1).sum() / len(TARGETS))
