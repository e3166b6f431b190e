"""The paper's experiments: methods, problems and population sizes, and one trial of each."""

from __future__ import annotations

import tomllib
import zlib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from fmnes import problems
from fmnes.errors import ArgumentError, nearest
from fmnes.problems import Problem
from fmnes.search.optimizer import Optimizer
from fmnes.search.ranking import rank
from fmnes.search.stopping import limit_reached
from fmnes.strategies import CMAES, DXNESIC, FMNES, XNES, Resampling, Strategy

# -- Cells: a method on a problem with a population size. The published numbers are in published.toml.


DIMENSION = 40
TARGET = 1e-10
MAX_EVALUATIONS = 1_000_000
PAPER_TRIALS = 50

METHODS: dict[str, Strategy | Resampling] = {
    "FM-NES": FMNES(),
    "DX-NES-IC": DXNESIC(),
    "xNES": XNES(),
    "xNES/R": Resampling(XNES()),
    "CMA-ES": CMAES(parameters="2006"),
    "CMA-ES/R": Resampling(CMAES(parameters="2006")),
    "Method A": FMNES(rank_one="always"),
    "Method B": FMNES(reset=False),
    "Method C": FMNES(rank_one="always", reset=False),
    "FM-NES (printed c_sigma)": FMNES(path_rate="printed"),
    "DX-NES-IC (printed c_sigma)": DXNESIC(path_rate="printed"),
    "FM-NES (public alpha)": FMNES(alpha="public"),
    "DX-NES-IC (public alpha)": DXNESIC(alpha="public"),
    "CMA-ES (2016)": CMAES(parameters="2016"),
}
SWEEP_METHODS = ("FM-NES", "DX-NES-IC", "xNES", "CMA-ES", "xNES/R", "CMA-ES/R")
SWEEP_SIZES = (4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 60, 80)
SWEEP_MORE = {"CMA-ES": (15,), "CMA-ES/R": (2, 3, 15)}


class Cell(NamedTuple):
    method: str
    problem: str
    population_size: int


class Published(NamedTuple):
    cell: Cell
    table: str
    """table-2, table-3, table-4, or corrections"""
    successes: int
    mean: float | None
    sd: float | None
    note: str = ""


def problem_of(cell: Cell) -> Problem:
    if cell.problem == "cigar (100)":
        return problems.get("cigar", d=DIMENSION, coefficient=100)
    return problems.get(cell.problem, d=DIMENSION)


@cache
def published() -> tuple[Published, ...]:
    text = files("fmnes_bench.reproduction").joinpath("published.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    rows = [_published(row, row["table"], "") for row in data["cell"]]
    rows += [_published(row, "corrections", f"{row['number']}. {row['what']}") for row in data["correction"]]
    return tuple(rows)


def _published(row: dict[str, Any], table: str, note: str) -> Published:
    cell = Cell(row["method"], row["problem"], row["population_size"])
    return Published(cell, table, row["successes"], row.get("mean"), row.get("sd"), note)


def sweep_cells() -> list[Cell]:
    """The paper's preliminary experiment: every method and problem with every population size."""
    cells = []
    for method in SWEEP_METHODS:
        for row in published():
            if row.cell.method == method and row.table in ("table-2", "table-3"):
                sizes = sorted({*SWEEP_SIZES, *SWEEP_MORE.get(method, ())})
                cells += [Cell(method, row.cell.problem, size) for size in sizes]
    return cells


def check_method(method: str | None) -> None:
    if method is not None and method not in METHODS:
        listed = ", ".join(METHODS)
        by_lower = {name.lower(): name for name in METHODS}
        hint = nearest(method, by_lower)
        raise ArgumentError(f"method: found {method!r}, wanted one of {listed}{hint}")


# -- One trial: evaluations until the first value below the target, as the paper counts them.
#
# The random numbers of a trial depend on its cell and number only, so that each can be repeated alone.


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
    """Draw until λ points are feasible; every draw is an evaluation.

    This is `fmnes.Resampling` in blocks, because nearly all of a million points fail with some methods of the
    paper. Draws beyond the last one needed are neither counted nor used.
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
        z, f = np.concatenate(kept_z), np.concatenate(kept_f)
        state = strategy.update(state, z, *rank(strategy, z, f))
