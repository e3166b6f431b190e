"""Results of the reproduction: their storage and their summary."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fmnes_bench.reproduction.cells import (
    DIMENSION,
    MAX_EVALUATIONS,
    PAPER_TRIALS,
    TARGET,
    Cell,
    Published,
    Trial,
)
from fmnes_bench.trials import Store, open_folder, read_lines

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
