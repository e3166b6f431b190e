"""The trials of the paper's experiments: methods and problems, one trial, their storage and their summary."""

from __future__ import annotations

import csv
import math
import tomllib
import zlib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fmnes import problems
from fmnes.errors import ArgumentError, nearest
from fmnes.problems import Problem
from fmnes.search.optimizer import Optimizer
from fmnes.search.stopping import limit_reached
from fmnes.strategies import CMAES, DXNESIC, FMNES, XNES, Resampling, Strategy
from fmnes.strategies.base import rank
from fmnes_bench.trials import Store, open_folder, read_lines

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


# -- Storage: configuration.json and trials.csv with one line per trial.

HEADER = "method,problem,population_size,trial,success,evaluations,best"
CONFIGURATION = {
    "format": "fmnes-reproduction",
    "version": 1,
    "dimension": DIMENSION,
    "target": TARGET,
    "max_evaluations": MAX_EVALUATIONS,
}


def open_store(folder: Path) -> Store[tuple[Cell, int], Trial]:
    open_folder(folder, CONFIGURATION)
    path = folder / "trials.csv"
    return Store(path, HEADER, read=lambda: read_trials(path), key=lambda t: (t.cell, t.number), line=_line)


def read_trials(path: Path) -> list[Trial]:
    return read_lines(path, HEADER, _trial)


def _trial(fields: list[str]) -> Trial:
    method, problem, size, trial, success, evaluations, best = fields
    cell = Cell(method, problem, int(size))
    return Trial(cell, int(trial), success == "1", int(evaluations), float.fromhex(best))


def _line(t: Trial) -> str:
    # Hexadecimal keeps every bit of the value.
    return f"{','.join(map(str, t.cell))},{t.number},{int(t.success)},{t.evaluations},{t.best.hex()}"


# -- Successes, mean and standard deviation, compared with the published ones.


#: The difference of means that is always allowed.
TOLERANCE = 0.03
#: Chance is what makes as large a difference more often than this. Of many trials that is 3 standard errors.
CHANCE = 0.0027
#: With fewer, nothing is marked.
FEWEST = 3


class Summary(NamedTuple):
    trials: int
    successes: int
    mean: float
    """Of the successful trials' evaluations; NaN without any."""
    sd: float


class Row(NamedTuple):
    published: Published
    ours: Summary

    @property
    def ratio(self) -> float:
        return self.ours.mean / self.published.mean if self.published.mean else math.nan

    @property
    def mean_differs(self) -> bool:
        """More than 3 % off, and by more than chance.

        The degrees of freedom are those of the fewer trials. Welch's would be more: of three that happen to
        lie close together it makes nearly fifty, the paper's, and so marks one in fifty for nothing, not one
        in 370.
        """
        ours, theirs = self.ours, self.published
        fewer = min(ours.successes, theirs.successes)
        if fewer < FEWEST or theirs.mean is None or theirs.sd is None or abs(self.ratio - 1) <= TOLERANCE:
            return False
        error = math.hypot(ours.sd / math.sqrt(ours.successes), theirs.sd / math.sqrt(theirs.successes))
        return t_chance(ours.mean - theirs.mean, error, fewer - 1) < CHANCE

    @property
    def success_share_differs(self) -> bool:
        """By more than chance: Fisher's exact test."""
        a, n, b = self.ours.successes, self.ours.trials, self.published.successes
        return n >= FEWEST and share_chance(a, n, b, PAPER_TRIALS) < CHANCE

    @property
    def mark(self) -> str:
        """`*` where the mean is not the paper's, `s` where the share of successes is not."""
        return ("*" if self.mean_differs else "") + ("s" if self.success_share_differs else "")


def t_chance(difference: float, error: float, freedom: float) -> float:
    """How often Student's t, with 2 degrees of freedom or more, is farther from 0 than difference / error."""
    # With t = √freedom cot φ its density is sin^(freedom - 1) φ: smooth, and over a finite range.
    ends = np.array([math.atan2(math.sqrt(freedom) * error, abs(difference)), math.pi / 2])
    angles = np.outer(ends, (np.arange(2000) + 0.5) / 2000)
    beyond, anywhere = ends * np.sum(np.sin(angles) ** (freedom - 1), axis=1)
    return float(beyond / anywhere)


def share_chance(a: int, n: int, b: int, m: int) -> float:
    """How often a of n and b of m, or something less likely, come of one and the same share."""
    ways = [math.comb(n, k) * math.comb(m, a + b - k) for k in range(max(0, a + b - m), min(n, a + b) + 1)]
    here = math.comb(n, a) * math.comb(m, b)
    return sum(way for way in ways if way <= here) / sum(ways)


def summarise(trials: Iterable[Trial]) -> dict[Cell, Summary]:
    by_cell: dict[Cell, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_cell[trial.cell].append(trial)
    summaries = {}
    for cell, runs in by_cell.items():
        won = np.array([t.evaluations for t in runs if t.success], dtype=float)
        mean = float(won.mean()) if won.size else math.nan
        sd = float(won.std(ddof=1)) if won.size > 1 else math.nan
        summaries[cell] = Summary(len(runs), len(won), mean, sd)
    return summaries


def write_results_csv(path: Path, rows: list[Row]) -> None:
    names = ["method", "problem", "population_size", "trials", "successes", "mean", "sd"]
    names += ["paper_successes", "paper_mean", "paper_sd"]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in {row.published.cell: row for row in rows}.values():  # a cell of two tables is written once
            ours, theirs = row.ours, row.published
            numbers = [ours.mean, ours.sd, theirs.successes, theirs.mean, theirs.sd]
            cells = ["" if n is None or math.isnan(n) else f"{n:.6g}" for n in numbers]
            writer.writerow([*theirs.cell, ours.trials, ours.successes, *cells])
