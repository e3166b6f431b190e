"""The methods compared by the search benchmark, ours and the peers'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fmnes
from fmnes.errors import ArgumentError, MissingExtra, nearest
from fmnes.strategies import METHODS
from fmnes.strategies.fm_nes import DEPARTURES
from fmnes_bench import peers
from fmnes_bench.search.suite import Array, Problem

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
DEFAULT = tuple(name for name in ("afm-nes", "fm-nes", "cma-es", "cma") if name in METHODS or name in PEERS)


def contestant(method: str) -> Contestant:
    return PEERS.get(method, ours)


def takes_part(method: str, d: int) -> bool:
    return method != "nomad" or d <= NOMAD_DIMENSION


def check_method(method: str) -> None:
    known = [*METHODS, *PEERS, *(WITHOUT + name for name in DEPARTURES)]
    if method.removesuffix(ONCE) not in known:
        raise ArgumentError(
            f"methods: found {method!r}, wanted some of {', '.join(known)}{nearest(method, known)}"
        )
    if not is_installed(method):
        raise MissingExtra(f"the peer {method!r}", "bench")


def is_installed(method: str) -> bool:
    return method not in PEERS or peers.is_installed(method)
