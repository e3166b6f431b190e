"""The search benchmark: the methods, one run of one, the storage of runs and their summary."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fmnes
from fmnes.errors import MissingExtra, not_among
from fmnes.strategies import METHODS
from fmnes.strategies.fm_nes import DEPARTURES
from fmnes_bench import peers
from fmnes_bench.search import suite
from fmnes_bench.search.suite import GROUP_OF, GROUPS, Array, Problem
from fmnes_bench.trials import Store, open_folder, read_lines, versions

# -- The objective of a search: counts evaluations and records the first one within the gap.


class Objective:
    """Takes points (n, d), returns values (n,)."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._problem = problem
        self._rng = rng
        self.target = problem.minimum + problem.gap
        self.evaluations = 0
        self.first = 0
        """The first evaluation within the gap, counted from 1; 0 while there is none."""

    @property
    def met(self) -> bool:
        return self.first > 0

    def __call__(self, x: Array) -> Array:
        problem = self._problem
        with np.errstate(all="ignore"):
            values = problem.told(x, self._rng) if problem.told else problem.fun(x)
        hits = np.flatnonzero(values <= self.target)
        if hits.size and not self.met and not problem.at_mean:
            self.first = self.evaluations + int(hits[0]) + 1
        self.evaluations += len(x)
        return values

    def judge(self, mean: Array) -> bool:
        """For noisy problems: whether the mean is within the gap by now."""
        problem = self._problem
        if problem.at_mean and not self.met and problem.gap_at(mean) <= problem.gap:
            self.first = self.evaluations
        return problem.at_mean and self.met

    def judge_view(self, view: Any) -> bool:
        """The same, as a callback of `minimize`."""
        return self.judge(view.mean)


# -- The methods: those of fmnes through `minimize`, and the peers as their documentation shows.
#
# Each is a function of (problem, objective, seed, to_target) that calls the objective with batches (n, d) and
# uses its own default λ. With `to_target` it runs until the target or the limits of floating point; without,
# until its own default tolerances.

#: Adaptive FM-NES with one of its departures from the paper taken back: afm-nes/selection.
WITHOUT = "afm-nes/"
#: Suffix of a method without the second look: converged is success.
ONCE = "-once"
#: NOMAD fits models to its points, which takes far longer: few parameters, so many evaluations × d, and a
#: time that only a run which hangs needs.
NOMAD_DIMENSION, NOMAD_EVALUATIONS, NOMAD_SECONDS = 10, 500, 1800


class RunEnd(NamedTuple):
    x: Array | None
    """The answer: the best point, or the mean if values are noisy."""
    said: bool
    """Whether the method reports success."""
    stop: str


def settle(method: str) -> Any:
    """The `method=` of `minimize`: a name, or the settings for `afm-nes/...`."""
    if method.startswith(WITHOUT):
        settings: dict[str, Any] = {method.removeprefix(WITHOUT): "published"}
        return fmnes.AFMNES(**settings)
    return method


def ours(method: str, problem: Problem, objective: Objective, seed: int, to_target: bool) -> RunEnd:
    options: dict[str, Any] = {"method": settle(method.removesuffix(ONCE)), "rng": seed}
    options |= {"vectorized": True, "max_evaluations": problem.budget}
    if problem.bounds is not None:
        options["bounds"] = fmnes.Bounds(*problem.bounds)
    if to_target:
        target = None if problem.at_mean else objective.target
        options |= {"target": target, "xtol": 1e-15, "ftol": None, "callback": objective.judge_view}
        options |= {"evaluate_start": False}
    if to_target or method.endswith(ONCE):
        options |= {"second_look": False}
    result = fmnes.minimize(objective, problem.x0, problem.sigma0, **options)
    assert result.stop_reason is not None
    x = result.x_mean if problem.at_mean else result.x
    return RunEnd(x, result.success, result.stop_reason.name)


#: Reasons of `cma` that mean it has converged.
CONVERGED = ("tolx", "tolfun", "tolfunhist", "tolfunrel")


def cma(method: str, problem: Problem, objective: Objective, seed: int, to_target: bool) -> RunEnd:
    """`cma`, with its transformation for bounds."""

    def ended(strategy: Any) -> bool:
        if to_target and problem.at_mean and objective.evaluations:
            objective.judge(np.asarray(strategy.result.xfavorite))
        return to_target and objective.met

    strategy = peers.cma(
        objective, start_of(problem), problem.budget, seed, ended=ended, tolerances=not to_target
    )
    reasons = strategy.stop()
    best = strategy.result.xfavorite if problem.at_mean else strategy.result.xbest
    best = None if best is None else np.asarray(best)
    if to_target and objective.met:
        return RunEnd(best, True, "TARGET")
    said = any(reason in CONVERGED for reason in reasons)
    return RunEnd(best, said, "+".join(sorted(reasons)))


def nomad(method: str, problem: Problem, objective: Objective, seed: int, to_target: bool) -> RunEnd:
    """NOMAD 4, with fewer evaluations."""

    def stop() -> bool:
        return to_target and objective.met

    budget = min(NOMAD_EVALUATIONS * problem.d, problem.budget)
    settings = [f"MAX_TIME {NOMAD_SECONDS}"]
    found = peers.nomad(objective, start_of(problem), budget, seed, settings=settings, stop=stop)
    x = found["x_best_feas"]
    best = np.array(x[0]) if x else None
    if stop():
        return RunEnd(best, True, "TARGET")
    said = "Mesh minimum precision" in found["stop_reason"]
    spent = "MAX_EVALUATIONS" if found["run_flag"] in (0, -2) else "MAX_SECONDS"
    return RunEnd(best, said, "XTOL" if said else spent)


def start_of(problem: Problem) -> peers.Start:
    """What the peers know of a problem."""
    d = problem.d
    lower, upper = (np.full(d, -np.inf), np.full(d, np.inf)) if problem.bounds is None else problem.bounds
    sigma0 = np.broadcast_to(problem.sigma0, d).astype(float)
    integers = np.zeros(d, dtype=bool)
    return peers.Start(problem.x0, sigma0, lower, upper, problem.bounds is not None, integers)


Contestant = Callable[[str, Problem, Objective, int, bool], RunEnd]
PEERS: dict[str, Contestant] = {"cma": cma, "nomad": nomad}
DEFAULT = ("afm-nes", "fm-nes", "cma-es", "cma")


def contestant(method: str) -> Contestant:
    return PEERS.get(method, ours)


def takes_part(method: str, d: int) -> bool:
    return method != "nomad" or d <= NOMAD_DIMENSION


def check_method(method: str) -> None:
    known = [*METHODS, *PEERS, *(WITHOUT + name for name in DEPARTURES)]
    if method.removesuffix(ONCE) not in known:
        raise not_among("methods", method, known, "some of")
    if not is_installed(method):
        raise MissingExtra(f"the peer {method!r}", "bench")


def is_installed(method: str) -> bool:
    return method not in PEERS or peers.is_installed(method)


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
        ending = contestant(method)(method, made, objective, number, to_target)
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
