"""One trial: evaluations until the first value below the target, as the paper counts them.

A trial has its own stream of random numbers, named by its cell and number, so that any can be repeated alone.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np

from fmnes.problems import Problem
from fmnes.reproduction.cells import MAX_EVALUATIONS, METHODS, TARGET, Cell, problem_of
from fmnes.search.ending import limit_reached
from fmnes.search.optimizer import Optimizer
from fmnes.strategies import Resampling, Strategy

#: Most points drawn at once while resampling.
BLOCK = 4096


class Trial(NamedTuple):
    cell: Cell
    number: int
    success: bool
    evaluations: int
    """Up to and including the first success; the whole budget without one."""
    best: float


def seed_for(cell: Cell, number: int) -> int:
    """The one that NumPy makes of these four numbers."""
    name = [zlib.crc32(cell.method.encode()), zlib.crc32(cell.problem.encode()), cell.population_size, number]
    return sum(word << 32 * i for i, word in enumerate(name))


def run_trial(cell: Cell, number: int) -> Trial:
    method, problem, seed = METHODS[cell.method], problem_of(cell), seed_for(cell, number)
    with np.errstate(all="ignore"):
        if isinstance(method, Resampling):
            evaluations, best = _resampled(method.strategy, problem, cell.population_size, seed)
        else:
            evaluations, best = _plain(method, problem, cell.population_size, seed)
    return Trial(cell, number, best < TARGET, evaluations, best)


def _plain(method: Strategy, problem: Problem, population_size: int, seed: int) -> tuple[int, float]:
    opt = Optimizer(
        problem.x0,
        problem.sigma0,
        method=method,
        population_size=population_size,
        rng=seed,
        target=TARGET,
        max_evaluations=MAX_EVALUATIONS,
    )
    while limit_reached(opt) is None:
        opt.tell(problem.fun(opt.ask()))
    return opt.evaluations, opt.best.fun


def _resampled(strategy: Strategy, problem: Problem, population_size: int, seed: int) -> tuple[int, float]:
    """Solutions are drawn until λ feasible ones are there; every draw is an evaluation.

    What `fmnes.Resampling` does point by point is done here in blocks, because some methods of the paper draw
    a million points of which nearly all fail. Draws beyond the last one needed are neither counted nor used.
    """
    d, rng = problem.d, np.random.default_rng(seed)
    state = strategy.init(problem.x0, np.float64(problem.sigma0), rng.standard_normal(d))
    evaluations, best, acceptance = 0, np.inf, 1.0
    while True:
        kept_z, kept_f, missing = [], [], population_size
        while missing:
            size = int(min(BLOCK, max(missing, 1.2 * missing / acceptance)))
            z = rng.standard_normal((size, d))
            f = problem.fun(strategy.sample(state, z))
            feasible = np.flatnonzero(np.isfinite(f))
            acceptance = max(0.5 * (acceptance + len(feasible) / size), 1e-4)
            taken = feasible[:missing]
            used = int(taken[-1]) + 1 if len(taken) == missing else size
            used = min(used, MAX_EVALUATIONS - evaluations)
            hits = np.flatnonzero(f[:used] < TARGET)
            if hits.size:
                return evaluations + int(hits[0]) + 1, float(f[hits[0]])
            best = min(best, float(np.min(f[:used], initial=np.inf)))
            evaluations += used
            if evaluations >= MAX_EVALUATIONS:
                return MAX_EVALUATIONS, best
            kept_z.append(z[taken])
            kept_f.append(f[taken])
            missing -= len(taken)
        state = strategy.update(state, np.concatenate(kept_z), np.concatenate(kept_f))
