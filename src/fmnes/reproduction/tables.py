"""From trials to the paper's figures: successes, mean and standard deviation, beside the published ones."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fmnes.reproduction.cells import PAPER_TRIALS, Cell, Published
from fmnes.reproduction.trial import Trial

#: The difference that is always allowed, and the one that is allowed in standard errors.
TOLERANCE = 0.03
STANDARD_ERRORS = 3.0


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
    def standard_error(self) -> float:
        """Of the difference of the two means, relative to the published one."""
        if not self.published.mean or not self.published.sd or self.ours.successes < 2:
            return math.nan
        ours = self.ours.sd**2 / self.ours.successes
        theirs = self.published.sd**2 / max(self.published.successes, 1)
        return math.sqrt(ours + theirs) / self.published.mean

    @property
    def success_share_differs(self) -> bool:
        """More than sampling error: two shares over 3 standard errors apart (a single miss never is)."""
        a, n, b = self.ours.successes, self.ours.trials, self.published.successes
        pooled = (a + b) / (n + PAPER_TRIALS)
        error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / PAPER_TRIALS))
        apart = abs(a / n - b / PAPER_TRIALS)
        return apart > 3 * error and apart > 1 / n

    @property
    def agrees(self) -> bool:
        """Within max(3 %, 3 standard errors), and as many successes up to sampling error."""
        if self.success_share_differs:
            return False
        if math.isnan(self.ratio):
            return self.ours.successes == self.published.successes
        allowed = max(TOLERANCE, STANDARD_ERRORS * (0 if math.isnan(se := self.standard_error) else se))
        return abs(self.ratio - 1) <= allowed

    @property
    def mark(self) -> str:
        """`*` where the mean is more than 3 % off, `s` where the share of successes is not the paper's."""
        off = abs(self.ratio - 1) > TOLERANCE
        differs = self.ours.successes * PAPER_TRIALS != self.published.successes * self.ours.trials
        return ("*" if off else "") + ("s" if differs else "")


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
