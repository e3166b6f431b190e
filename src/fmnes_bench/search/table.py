"""Runs of the search benchmark: one run, their storage and their summary."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fmnes
from fmnes_bench.search import peers, suite
from fmnes_bench.search.peers import Objective
from fmnes_bench.search.suite import GROUP_OF, GROUPS
from fmnes_bench.trials import Store, open_folder, read_lines, versions

# -- One run of a method on a problem. Its key determines it.

#: "evaluations": run to the target. "success": run as a user does, without a target, and check `success`.
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
        ending = peers.contestant(method)(method, made, objective, number, to_target)
        gap = math.inf if ending.x is None else made.gap_at(ending.x)
    evaluations = objective.first if to_target and objective.met else objective.evaluations
    return Trial(
        Key(what, problem, d, method, seed), objective.first, evaluations, gap, ending.said, ending.stop
    )


# -- The folder of the benchmark: configuration.json, and one CSV file for each of WHAT.

HEADER = "problem,d,method,seed,first,evaluations,gap,said,stop"
CONFIGURATION = {"format": "fmnes-search", "version": 1}


def open_store(folder: Path, what: str) -> Store[Key, Trial]:
    """All trials of the folder; new ones are those of `what`."""
    open_folder(folder, CONFIGURATION, fmnes=fmnes.__version__, **versions("cma", "PyNomadBBO"))
    path = folder / f"{what}.csv"
    return Store(path, HEADER, read=lambda: read_trials(folder), key=lambda trial: trial.key, line=line)


def read_trials(folder: Path) -> list[Trial]:
    return [
        trial for what in WHAT for trial in read_lines(folder / f"{what}.csv", HEADER, partial(_trial, what))
    ]


def _trial(what: str, fields: list[str]) -> Trial:
    problem, d, method, seed, first, evaluations, gap, said, stop = fields
    key = Key(what, problem, int(d), method, int(seed))
    return Trial(key, int(first), int(evaluations), float(gap), said == "1", stop)


def line(t: Trial) -> str:
    # Three digits: the gap is judged by its magnitude, and the file is short enough to keep.
    key = ",".join(map(str, t.key[1:]))
    return f"{key},{t.first},{t.evaluations},{t.gap:.3g},{int(t.said)},{t.stop}"


# -- From runs to numbers: evaluations per solved run, ratios to the references, wrong successes.


#: A ratio beyond is as good as any other.
CLIP = 50.0
#: What a method is measured against: the better of these in each cell.
REFERENCES = {"box": ("cma",)}
DEFAULT_REFERENCES = ("cma-es", "fm-nes")


class Cell(NamedTuple):
    """Runs of one method on one problem."""

    runs: int
    solved: int
    mean: float
    """All evaluations over solved runs; +inf where none is solved."""
    error: float
    """Its standard error; NaN of fewer than two runs, or where none is solved."""


Cells = dict[tuple[str, int, str], Cell]
"""By problem, d and method."""


def summarise(trials: Iterable[Trial]) -> Cells:
    found: dict[tuple[str, int, str], list[Trial]] = {}
    for t in trials:
        found.setdefault((t.key.problem, t.key.d, t.key.method), []).append(t)
    return {key: _cell([(t.evaluations, t.solved) for t in runs]) for key, runs in found.items()}


def _cell(runs: Sequence[tuple[int, bool]]) -> Cell:
    n, solved = len(runs), sum(ok for _, ok in runs)
    if not solved:
        return Cell(n, 0, math.inf, math.nan)
    mean = sum(evaluations for evaluations, _ in runs) / solved
    if n < 2:
        return Cell(n, solved, mean, math.nan)
    # Of a ratio of two sums, by the delta method; where all are solved it is that of the mean.
    residuals = sum((evaluations - mean * ok) ** 2 for evaluations, ok in runs)
    return Cell(n, solved, mean, math.sqrt(residuals / (n * (n - 1))) / (solved / n))


def ratio(cells: Cells, problem: str, d: int, method: str) -> float:
    """To the better reference, within [1/50, 50]; NaN where there is nothing to compare.

    A method that solves what no reference solves has 1/50, and 1 if it does not either.
    """
    references = REFERENCES.get(GROUP_OF[problem], DEFAULT_REFERENCES)
    means = [cells[problem, d, name].mean for name in references if (problem, d, name) in cells]
    if not means or (problem, d, method) not in cells:
        return math.nan
    own, best = cells[problem, d, method].mean, min(means)
    if math.isinf(own) and math.isinf(best):
        return 1.0
    return min(max(own / best, 1 / CLIP), CLIP)


class Summary(NamedTuple):
    """One method at one d, over the problems of a group."""

    cells: int
    geometric_mean: float
    """Of the ratios."""
    worst: str
    """The problem of the largest ratio."""
    worst_ratio: float
    runs: int
    solved: int
    least: str
    """The problem with the smallest solved share."""
    least_share: float


def summary(cells: Cells, group: str, d: int, method: str) -> Summary | None:
    """None where no reference has run."""
    ratios = {name: ratio(cells, name, d, method) for name in GROUPS[group]}
    ratios = {name: r for name, r in ratios.items() if not math.isnan(r)}
    if not ratios:
        return None
    own = {name: cells[name, d, method] for name in ratios}
    worst = max(ratios, key=lambda name: ratios[name])
    least = min(own, key=lambda name: own[name].solved / own[name].runs)
    return Summary(
        len(ratios),
        math.exp(sum(map(math.log, ratios.values())) / len(ratios)),
        worst,
        ratios[worst],
        sum(cell.runs for cell in own.values()),
        sum(cell.solved for cell in own.values()),
        least,
        own[least].solved / own[least].runs,
    )


class Beside(NamedTuple):
    """The evaluations of one method over those of another, over the problems of a group."""

    cells: int
    ratio: float
    """The geometric mean; a cell is within [1/50, 50], and 50 or 1/50 where only one of the two solves it."""
    error: float
    """Its standard error, over the cells that both solve and that are not at a limit."""


def beside(cells: Cells, group: str, d: int, method: str, other: str) -> Beside | None:
    """None where the two have no problem in common."""
    logs, variance = [], 0.0
    for problem in GROUPS[group]:
        one, two = cells.get((problem, d, method)), cells.get((problem, d, other))
        if one is None or two is None:
            continue
        if math.isinf(one.mean) and math.isinf(two.mean):
            logs.append(0.0)
            continue
        quotient = one.mean / two.mean
        logs.append(math.log(min(max(quotient, 1 / CLIP), CLIP)))
        if 1 / CLIP < quotient < CLIP:
            variance += (one.error / one.mean) ** 2 + (two.error / two.mean) ** 2
    if not logs:
        return None
    mean = math.exp(sum(logs) / len(logs))
    return Beside(len(logs), mean, mean * math.sqrt(variance) / len(logs))


class Honesty(NamedTuple):
    """How often a method reports success in runs without a target, and how often it is right."""

    runs: int
    near: int
    """Runs that end within 1 % of the way from the start to the minimum."""
    wrong: int
    """Runs that say success and are not near."""
    said: int
    """Runs that say success and are near."""
    inexact: int
    """Runs that say success with more than a millionth of that way left, the wrong ones included."""
    evaluations: float
    """Per run."""


def honesty(trials: Sequence[Trial], start_gaps: dict[tuple[str, int, int], float]) -> Honesty:
    """start_gaps: how far above the minimum the start is, by problem, d and seed."""
    left = [t.gap / start_gaps[t.key.problem, t.key.d, t.key.seed] for t in trials]
    left_where_said = [share for t, share in zip(trials, left, strict=True) if t.said]
    return Honesty(
        len(trials),
        sum(share <= 0.01 for share in left),
        sum(share > 0.01 for share in left_where_said),
        sum(share <= 0.01 for share in left_where_said),
        sum(share > 1e-6 for share in left_where_said),
        sum(t.evaluations for t in trials) / len(trials),
    )
