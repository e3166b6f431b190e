"""Evaluations to the target on the paper's problems, d = 40, against the figures of the paper's tables.

Two seeds, or one where they hardly differ, so four standard errors of the difference; the full tables are the
reproduction's job.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest

from fmnes import CMAES, DXNESIC, FMNES, XNES, Optimizer, problems
from fmnes.search.stopping import limit_reached
from fmnes.strategies import Strategy

TRIALS = 2
PAPER_TRIALS = 50


class Cell(NamedTuple):
    method: Strategy
    problem: str
    population_size: int
    mean: float
    sd: float
    trials: int = TRIALS


CELLS = {
    "FM-NES sphere": Cell(FMNES(), "sphere", 8, 4820, 184),
    "FM-NES cigar": Cell(FMNES(), "cigar", 8, 13000, 359),
    "FM-NES ic-sphere": Cell(FMNES(), "ic-sphere", 12, 19300, 1170),
    "FM-NES ellipsoid": Cell(FMNES(), "ellipsoid", 16, 36100, 1070),
    "FM-NES ic-rosenbrock": Cell(FMNES(), "ic-rosenbrock", 20, 69900, 1480, 1),
    "DX-NES-IC cigar": Cell(DXNESIC(), "cigar", 20, 23100, 924),
    "DX-NES-IC ic-sphere": Cell(DXNESIC(), "ic-sphere", 12, 19600, 1380),
    "Method A": Cell(FMNES(rank_one="always"), "ic-sphere", 16, 23200, 1340),
    "Method B": Cell(FMNES(reset=False), "ic-sphere", 12, 21400, 1630),
    "Method C": Cell(FMNES(rank_one="always", reset=False), "ic-sphere", 16, 24300, 1430),
    "CMA-ES 2006 sphere": Cell(CMAES(parameters="2006"), "sphere", 8, 5880, 164),
    "CMA-ES 2006 ic-sphere": Cell(CMAES(parameters="2006"), "ic-sphere", 36, 35900, 1210),
    "xNES sphere": Cell(XNES(), "sphere", 8, 122000, 750, 1),
}


def evaluations(cell: Cell, trial: int) -> int:
    problem = problems.get(cell.problem, d=40)
    opt = Optimizer(
        problem.x0,
        problem.sigma0,
        method=cell.method,
        population_size=cell.population_size,
        target=1e-10,
        max_evaluations=1_000_000,
        rng=trial,
    )
    while limit_reached(opt) is None:
        opt.tell(problem.fun(opt.ask()))
    assert opt.best.fun <= 1e-10
    return opt.evaluations


@pytest.mark.parametrize("name", CELLS)
def test_evaluations_to_target(name: str) -> None:
    cell = CELLS[name]
    found = np.array([evaluations(cell, trial) for trial in range(cell.trials)])
    error = cell.sd * math.sqrt(1 / cell.trials + 1 / PAPER_TRIALS)
    assert abs(found.mean() - cell.mean) < 4 * error, (
        f"{found.mean():.0f}, paper {cell.mean:.0f} ± {error:.0f}"
    )


def test_the_printed_path_rate_is_slower() -> None:
    """Correction 1: with c_σ as printed the Ellipsoid takes about 40k, not the 36k of the paper's table."""
    printed = Cell(FMNES(path_rate="printed"), "ellipsoid", 16, 40400, 1100)
    found = np.mean([evaluations(printed, trial) for trial in range(TRIALS)])
    assert 38_500 < found < 42_500
