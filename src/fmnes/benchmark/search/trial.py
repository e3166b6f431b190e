"""One run: a method on a problem, and what came of it. Its key is all that is needed to repeat it."""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

import numpy as np

from fmnes.benchmark.search import contestants, suite
from fmnes.benchmark.search.objective import Objective

#: "evaluations": on to the target. "success": as a user calls it, without a target; is what it says true?
WHAT = ("evaluations", "success")


class Key(NamedTuple):
    what: str
    problem: str
    d: int
    method: str
    seed: int


class Trial(NamedTuple):
    key: Key
    first: int
    """The first evaluation within the problem's gap; 0 if there was none."""
    evaluations: int
    """All of them; up to the first one where the target was given."""
    gap: float
    """How far above the minimum the answer is; +inf if there is none."""
    said: bool
    """The method claims success."""
    stop: str

    @property
    def solved(self) -> bool:
        return self.first > 0


def seed_for(problem: str, d: int, seed: int) -> int:
    """The same for all methods, so that variants of a method meet the same draws."""
    return zlib.crc32(f"{problem} {d} {seed}".encode())


def run_trial(what: str, problem: str, d: int, method: str, seed: int) -> Trial:
    made = suite.get(problem, d, seed)
    number = seed_for(problem, d, seed)
    objective = Objective(made, np.random.default_rng([number, 1]))
    to_target = what == "evaluations"
    with np.errstate(all="ignore"):
        ending = contestants.contestant(method)(method, made, objective, number, to_target)
        gap = math.inf if ending.x is None else made.gap_at(ending.x)
    evaluations = objective.first if to_target and objective.met else objective.evaluations
    return Trial(
        Key(what, problem, d, method, seed), objective.first, evaluations, gap, ending.said, ending.stop
    )
