"""How a search begins: all over a box, or as a restart.

A restart has the random generator and the archive of the search before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes.bounds import first_step
from fmnes.result import StopReason, Vector, X, Xs
from fmnes.search.checkpoint import limits_of
from fmnes.search.explorer import Explorer
from fmnes.search.mixed import make_distribution
from fmnes.search.stopping import Gains
from fmnes.search.update import begin_at

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer


def explore_box(search: Optimizer, first: bool = True, restarts: bool = False) -> None:
    """Evaluate points all over the box, not only those of the search distribution.

    Only methods that adapt the population do this; published ones stay as they are. It needs finite
    bounds and excludes overlapping generations and resampling.

    first: until an evaluation succeeds, as no start was given. restarts: before restarts, which then
    begin anywhere in the box; not if all coordinates are discrete.
    """
    fixed = search.overlap_scheduler is not None or search._start.max_redraws is not None
    bounds = None if fixed else search._start.finite_bounds
    first = first and search._best.x is None  # else one of the known points works
    restarts = restarts and not search._start.repeats and search._constrained is None
    search._explorer = None
    if bounds is not None and search.strategy.adapts_population_size and (first or restarts):
        search._explorer = Explorer(bounds, first, restarts)
        search.gains = Gains(len(search.x0), False, np.inf) if restarts else None


def again(
    search: Optimizer[X, Xs],
    x0: Vector,
    sigma0: NDArray[Any],
    population_size: int,
    max_evaluations: int | None,
    share: float = 1.0,
) -> Optimizer[X, Xs]:
    """Return a new search with the same random generator and archive.

    x0 is in internal coordinates. share: its step size as a share of the first search's; with short steps the
    choices of x0 are likely.
    """
    limits = {**limits_of(search), "max_evaluations": max_evaluations}
    limits["overlap"] = search.overlap
    opt = type(search)(
        **search._start.again(x0, sigma0, population_size), **limits, constraints=search.limits, rng=0
    )
    if search._constrained is not None:
        opt._constrained = search._constrained.again(search._distribution)
    opt._distribution = make_distribution(opt._start, search._distribution.rng, share)
    opt._archive = search._archive
    opt.seed, opt.restart, opt.space = None, search.restart + 1, search.space
    opt.start_failed = search.start_failed and np.array_equal(opt.x0, search.x0)
    if search._surrogate is not None:
        search._surrogate.begin_search()
        opt._surrogate = search._surrogate
    opt.timed = search.timed
    if search.noise is not None:
        search.noise.begin_search()
        opt.noise = search.noise
    if search._explorer is not None and search._explorer.restarts:
        search._explorer.exploring, search._explorer.first = False, False
        opt._explorer = search._explorer
    return opt


def again_in_box(
    search: Optimizer[X, Xs],
    reason: StopReason,
    x0: Vector,
    look: bool,
    population_size: int,
    max_evaluations: int | None,
) -> Optimizer[X, Xs]:
    """Return a restart somewhere in the box, after a search that ended for this reason.

    look: evaluate points all over the box first, and start in a basin that no search was in;
    else start at x0.
    """
    bounds, explorer = search._start.finite_bounds, search._explorer
    assert bounds is not None and explorer is not None
    if search.gains is not None and reason is not StopReason.STALLED:
        ended = search.gains.x if reason is StopReason.HOPELESS else search._distribution.mean
        explorer.note_search(ended, search.gains.best)
    steps = first_step(bounds.lower, bounds.upper, len(x0))
    surrogate = search._surrogate
    ended = None if surrogate is None else surrogate.best_point
    around = surrogate is not None and surrogate.has_gained
    opt = again(search, x0, steps, population_size, max_evaluations)
    opt.gains = Gains(len(x0), True, explorer.best)
    if surrogate is not None and ended is not None and around:
        opt._distribution.begin_with_axes(*surrogate.begin_around(ended))
        surrogate.first_step = opt.sigma * float(opt._distribution.shape.axis_lengths.max())
    elif surrogate is not None and ended is not None:
        surrogate.begin_elsewhere(ended)
    elif look:
        begin_at(opt, explorer.look_for_start(opt.rng))
    return opt
