"""The problem as a search meets it: every evaluation is counted, and the first that is good enough noted."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmnes.benchmark.search.problem import Array, Problem


class Objective:
    """Takes points (n, d), returns values (n,)."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._problem = problem
        self._rng = rng
        self.target = problem.minimum + problem.gap
        self.evaluations = 0
        self.first = 0
        """The first evaluation within the gap, counted from 1; 0 while there is none."""

    @property
    def met(self) -> bool:
        return self.first > 0

    def __call__(self, x: Array) -> Array:
        problem = self._problem
        with np.errstate(all="ignore"):
            values = problem.told(x, self._rng) if problem.told else problem.fun(x)
        hits = np.flatnonzero(values <= self.target)
        if hits.size and not self.met and not problem.at_mean:
            self.first = self.evaluations + int(hits[0]) + 1
        self.evaluations += len(x)
        return values

    def judge(self, mean: Array) -> bool:
        """Where chance decides what is told: is the mean good enough by now?"""
        problem = self._problem
        if problem.at_mean and not self.met and problem.gap_at(mean) <= problem.gap:
            self.first = self.evaluations
        return problem.at_mean and self.met

    def judge_view(self, view: Any) -> bool:
        """The same, as a callback of `minimize`."""
        return self.judge(view.mean)
