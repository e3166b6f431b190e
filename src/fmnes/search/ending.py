"""Whether a search is to end, and what it looks like where it ends.

The criteria are in stopping.py; here they are asked of a search, by those who run one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fmnes.result import Stop, StopReason, View
from fmnes.search.polling import all_known, next_poll, number_of_points
from fmnes.search.stopping import (
    FAILING_SHARE,
    budget_spent,
    search_ended,
    steps_vanished,
    target_reached,
)

if TYPE_CHECKING:
    from fmnes.search.search import Search


def stop_at(search: Search, view: View) -> Stop | None:
    """Why it is time to stop, or None, for a view of the search that was taken already."""
    stop = limit_reached(search) or settled_at(search, view)
    return stop if stop and next_poll(search, stop.reason) is None else None


def settled_at(search: Search, view: View) -> Stop | None:
    """The same, whatever is left to evaluate before (polling.py), and without the user's limits."""
    if all_known(search):
        found = np.isfinite(search._best.fun)
        reason = StopReason.REPEATED if found else StopReason.NO_FEASIBLE
        return Stop(reason, f"all {number_of_points(search._start.grid):.0f} points of the space")
    if search._distribution.own_units:  # compare the mean with steps in the same units
        view = replace(view, mean=search._distribution.state.mean)
    xtol = None if search._start.repeats else search.xtol  # the steps of a grid never vanish
    steps = _in_real_coordinates(search, view)
    return search_ended(view, search._recent, search._start.sigma, xtol=xtol, ftol=search.ftol, steps=steps)


def limit_reached(search: Search) -> Stop | None:
    """The criteria that need no view, cheap enough to ask after every `tell`."""
    stop = target_reached(search._best, search.target) or budget_spent(
        search.evaluations, search.max_evaluations
    )
    if stop:
        return stop
    faults = search._distribution.faults
    if faults:
        return Stop(StopReason.NUMERICAL, f"{faults} times by generation {search.generation}")
    if search._start.max_redraws is not None and search._current is not None:
        redraws = int(search._current.redraws.sum())
        if redraws >= search._start.max_redraws:
            return Stop(StopReason.NO_FEASIBLE, f"{redraws} failed redraws in one generation")
    return None


def steps_below(search: Search, factor: float, view: View) -> Stop | None:
    """Have the steps shrunk to this multiple of sigma0? Those of a grid never do."""
    if search._start.repeats:
        return None
    if search._distribution.own_units:
        view = replace(view, mean=search._distribution.state.mean)
    return steps_vanished(_in_real_coordinates(search, view), search._start.sigma, factor)


def fails_at(search: Search, stop: Stop) -> bool:
    """Do points fail where it ended?

    A shape that is too elongated lies flat along what fails: it meets nothing of it any more, so all
    evaluations are counted there.
    """
    many = search.n_infeasible > FAILING_SHARE * search.evaluations
    return search._recent.failing or (many and stop.reason is StopReason.ILL_CONDITIONED)


def redraws_failed(search: Search) -> bool:
    """Does a failed point get a new draw (`fmnes.Resampling`)?"""
    return search._start.max_redraws is not None


def _in_real_coordinates(search: Search, view: View) -> View:
    """Without the discrete ones, if there are others."""
    mixed = search._start.grid is not None and not search._start.repeats
    return search._distribution.real_part(view) if mixed else view
