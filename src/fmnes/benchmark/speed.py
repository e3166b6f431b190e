"""Overhead per evaluation: what an optimizer costs besides the objective.

Contestants take turns in short rounds within one run, so that a busy moment of the machine hits all of them,
and each one's fastest round counts. A round of FM-NES covers three refresh periods at least, from one
decomposition to the next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fmnes.arguments import check_population_size
from fmnes.benchmark.contestants import Contestant, Maker, Points
from fmnes.strategies import METHODS
from fmnes.strategies.fm_nes_constants import constants


class Timing(NamedTuple):
    name: str
    d: int
    population_size: int
    """Of the first generation."""
    failing: float
    """Share of evaluations that fail."""
    microseconds: float
    """Per evaluation."""


def default_population_size(d: int) -> int:
    return check_population_size(None, d, mirrored=True)


def one_round(
    contestant: Contestant, d: int, failing: float, generations: int, rng: np.random.Generator
) -> tuple[float, int]:
    """Seconds spent in ask and tell, and for how many evaluations: where points fail, λ may grow."""
    scale = np.geomspace(1, 1000, d) if d > 1 else np.ones(1)
    spent, evaluations = 0.0, 0
    for _ in range(generations):
        started = time.perf_counter()
        x = contestant.ask()
        spent += time.perf_counter() - started
        f: Points = np.square(np.asarray(x) * (scale if np.shape(x)[1] == d else 1.0)).sum(axis=1)
        if np.shape(x)[1] != d:
            f = rng.random(len(f))  # the contestant does not show its points; any values will do
        if failing:
            f = np.where(rng.random(len(f)) < failing, np.inf, f)
        started = time.perf_counter()
        contestant.tell(x, f)
        spent += time.perf_counter() - started
        evaluations += len(f)
    return spent, evaluations


def compare(
    makers: dict[str, Maker],
    d: int,
    population_size: int,
    *,
    failing: float = 0.0,
    generations: int | None = None,
    rounds: int = 5,
    seconds: float = 20.0,
) -> Iterable[Timing]:
    """Every contestant at one dimension. Stops adding rounds when `seconds` are over."""
    contestants = {name: make(d, population_size) for name, make in makers.items()}
    best: dict[str, float] = {}
    rng = np.random.default_rng(0)
    # Our own round spans three refresh periods; a slow peer gets fewer generations.
    k = constants(d, population_size, "tables", "tables")
    wanted = generations or max(300, 3 * k.decompose * k.refresh + 3)
    counts: dict[str, int] = {}
    for name, contestant in contestants.items():
        pace = one_round(contestant, d, failing, 2, rng)[0] / 2
        ours = name in METHODS
        counts[name] = (
            wanted if ours else max(2, min(wanted, int(seconds / (2 * len(contestants)) / max(pace, 1e-9))))
        )
    deadline = time.monotonic() + seconds
    for round_number in range(rounds):
        if round_number and time.monotonic() > deadline:
            break
        for name, contestant in contestants.items():
            spent, evaluations = one_round(contestant, d, failing, counts[name], rng)
            best[name] = min(best.get(name, math.inf), spent / evaluations)
    for name, spent in best.items():
        yield Timing(name, d, population_size, failing, 1e6 * spent)
