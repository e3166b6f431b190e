"""From runs to numbers: evaluations per solved run, ratios to the references, wrong successes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fmnes.benchmark.search.suite import GROUP_OF, GROUPS
from fmnes.benchmark.search.trial import Trial

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
    """The problem of which the smallest share is solved."""
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
    """What a method says at the end of runs without a target, and what is true."""

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
