"""From one search of a run to the next: when all of them are over, which comes next, and how it begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError
from fmnes.report.history import COLUMNS
from fmnes.result import Stop
from fmnes.run.restarts import Plan, Searched, is_better, next_search
from fmnes.run.searches import LookedAt
from fmnes.run.settings import Settings
from fmnes.run.snapshots import RunState
from fmnes.search.ending import fails_at
from fmnes.search.optimizer import Optimizer
from fmnes.search.stopping import budget_spent, target_reached
from fmnes.strategies.base import adapts_population_size

_GENERATION_BEST = COLUMNS.index("generation_best")


def run_limit_reached(state: RunState, settings: Settings) -> Stop | None:
    """The user's limits, which are on all searches together."""
    best = state.totals.best_with(state.opt)
    return target_reached(best, state.opt.target) or budget_spent(state.evaluations, settings.max_evaluations)


def evaluations_left(state: RunState, settings: Settings) -> int | None:
    return None if settings.max_evaluations is None else settings.max_evaluations - state.evaluations


def plan_next(state: RunState, settings: Settings, stop: Stop, timed: bool) -> Plan | None:
    """The search after the one that ended so; None: the run is over. timed: a deadline ends the run."""
    left = evaluations_left(state, settings)
    if not stop.reason.restartable or (left is not None and left <= 0):
        return None
    return next_search(
        searches_until(state, stop),
        restarts=settings.restarts,
        restart_from=settings.restart_from,
        look=settings.second_look and state.opt.target is None,
        limited=left is not None or timed,
        even=state.opt.strategy.mirrored,
        rng=state.opt.rng,
        adaptive=adapts_population_size(state.opt.strategy),
    )


def searches_until(state: RunState, stop: Stop) -> list[Searched]:
    """All searches; the present one has ended so."""
    plan, opt = state.searches.plan, state.opt
    gained = plan.kind != "look" or has_gained(state)
    return [
        *state.searches.past,
        Searched(
            plan.kind,
            plan.population_size,
            opt.evaluations,
            gained,
            fails_at(opt, stop) or _settled_elsewhere(state),
            stop,
            opt.steps_supported,
        ),
    ]


def has_gained(state: RunState) -> bool:
    """Has the present search found something better than those before?"""
    return is_better(state.opt.best.fun, state.totals.best.fun, _first_value(state))


def _settled_elsewhere(state: RunState) -> bool:
    """Has the present search seen something better than where it ended, as in another basin?"""
    last = min(state.opt.recent_bests, default=np.inf)
    return bool(np.isfinite(last)) and is_better(state.opt.best.fun, last, _first_value(state))


def _first_value(state: RunState) -> float:
    # As plain floats: what is decided from them goes into a snapshot, which takes no bool of NumPy.
    firsts = [state.start.value, *state.history.rows[:1, _GENERATION_BEST].tolist()]
    return max((f for f in firsts if np.isfinite(f)), default=state.totals.best.fun)


def begin_next(state: RunState, settings: Settings, plan: Plan, stop: Stop) -> None:
    """The search that has ended so is over, and the one of the plan begins."""
    opt = state.opt.again(
        _origin(state, plan.origin),
        state.searches.first.sigma0 * plan.step,
        plan.population_size,
        evaluations_left(state, settings),
    )
    searches = state.searches
    searches.past = searches_until(state, stop)
    if plan.kind == "look" and searches.past[-1].gained:
        searches.looked_at = LookedAt.of(state.opt)
    searches.plan = plan
    state.totals.take(state.opt)
    best = state.totals.best
    if best.x is not None:
        opt.note_outside(best.x, best.fun)
    state.opt = opt


def check_origin(opt: Optimizer, restart_from: str) -> None:
    """Raises ArgumentError unless a restart can begin there."""
    if restart_from == "uniform" and not opt.has_finite_bounds:
        raise ArgumentError(
            "restart_from: found 'uniform' and not all bounds finite; wanted finite bounds, or 'start'"
        )


def _origin(state: RunState, origin: str) -> NDArray[np.float64]:
    best = state.totals.best_with(state.opt)
    if origin == "best" and best.x is not None:
        found: NDArray[np.float64] = best.x
        return found
    bounds = state.opt.bounds
    if origin == "uniform" and bounds is not None:
        share = state.opt.rng.random(len(bounds.lower))
        x: NDArray[np.float64] = (1 - share) * bounds.lower + share * bounds.upper
        return x
    return state.searches.first.x0
