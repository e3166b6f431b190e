"""How a search advances: what a generation evaluates, what the search learns from it, restarts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes.bounds import first_step
from fmnes.result import StopReason, Vector, X, Xs
from fmnes.search import response
from fmnes.search.categories import make_distribution
from fmnes.search.checkpoint import limits_of
from fmnes.search.constrained import Constrained
from fmnes.search.explorer import Begin, Explorer
from fmnes.search.generation import Generation, Repeat, Screened, Source, feasible_values, poll_only, screen
from fmnes.search.grid import Poll, next_poll
from fmnes.search.modelled import (
    drop_models,
    model_minimum_under_limits,
    proposed_generation,
    ranked_slots,
    screened_generation,
)
from fmnes.search.noise_watch import fits_response
from fmnes.search.stopping import Gains, new_recent, settled_at
from fmnes.surrogate.limited import LimitedSurrogate

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

Floats = NDArray[np.float64]

# -- What the next generation evaluates
#
# Its points are draws of the distribution. Other points may take their place (neighbours of the best point,
# points all over the box, proposals of the models), or join them (a projected point). Models may select the
# draws that are evaluated.


def sample(search: Optimizer) -> Generation:
    """Begin the next generation."""
    if search._start.grid is not None and (poll := _next_poll(search)):
        return _evaluate_poll(search, poll)
    if search._surrogate is not None and search.exploring is None:
        if search.noise is not None and (repeat := search.noise.next_alone(search)):
            return _evaluate_again(search, repeat)
        if search.noise is not None and search.noise.hides_order:
            drop_models(search, search._surrogate)
            return sample(search)
        proposed = proposed_generation(search, search._surrogate)
        if proposed is not None:
            search._current = proposed
            return proposed
    z, x, inside = search._distribution.draw(search._distribution.draws)
    constrained = search._constrained
    if search.exploring is not None:
        x = search._distribution.nearest(search.exploring.next_points(search.rng, x))
        if len(x) < len(z) * (2 if search.strategy.mirrored else 1):
            return _evaluate_only(search, z, x)
        inside = None
    elif search._surrogate is not None and (
        waiting := screened_generation(search, search._surrogate, z, x, inside)
    ):
        search._current = waiting
        return waiting
    if constrained is not None and constrained.pending is not None and search.exploring is None:
        x = np.concatenate([x, constrained.pending.x[None]])
        inside = None if inside is None else np.append(inside, True)
    screened = _screen(search, x, inside)
    repeat = None
    if search.noise is not None and search.exploring is None:
        evaluated = None if screened is None else screened.source == Source.EVALUATED
        repeat = search.noise.next_repeat(search, x, evaluated)
    if repeat is not None:
        x = np.concatenate([x, repeat.x[None]])
        screened = None if screened is None else screened.with_evaluated()
    search._current = current = Generation.of(z, x, screened, search._n_outputs)
    current.repeat = repeat
    if search._start.max_redraws is not None and screened is not None:
        redraw(search, current, np.flatnonzero(screened.failed))
    return current


def _screen(
    search: Optimizer, x: Floats, inside: NDArray[np.bool_] | None, current: Generation | None = None
) -> Screened | None:
    """Decide which of these points are evaluated beside the open ones of the current generation."""
    if not search._start.repeats:
        return screen(x, inside, None, n_outputs=search._n_outputs)
    pending = () if current is None else current.x[current.open]
    screened = screen(x, inside, search._archive, pending, search._n_outputs)
    search.n_repeated += 0 if screened is None else screened.n_known
    return screened


def redraw(search: Optimizer, current: Generation, slots: NDArray[np.intp]) -> None:
    """Resample: each failed slot gets a new draw, in slot order."""
    while slots.size:
        z, x, inside = search._distribution.draw(len(slots))
        screened = _screen(search, x, inside, current)
        current.redraw(slots, z, x, screened)
        slots = slots[:0] if screened is None else slots[screened.failed]
        if search._start.max_redraws is None or current.redraws.sum() >= search._start.max_redraws:
            return


def _next_poll(search: Optimizer) -> Poll | None:
    """Return the points to evaluate before the search may stop; None: nothing."""
    stop = settled_at(search, search._view())
    return next_poll(search, stop.reason) if stop else None


def _evaluate_poll(search: Optimizer, poll: Poll) -> Generation:
    """Begin a generation of these points."""
    z = np.zeros((search._distribution.draws, search._distribution.width))
    current = _evaluate_only(search, z, poll.points)
    current.poll = poll.polled
    return current


def _evaluate_again(search: Optimizer, repeat: Repeat) -> Generation:
    """Begin a generation of this point alone."""
    z = np.zeros((1, search._distribution.width))
    search._current = current = Generation.of(z, repeat.x[None].copy(), None, search._n_outputs)
    current.repeat, current.only_repeat = repeat, True
    return current


def _evaluate_only(search: Optimizer, z: Floats, points: Floats) -> Generation:
    """Begin a generation that evaluates these points, at most λ, and leaves the other slots unused."""
    size = search._distribution.population_size
    x = np.resize(points, (size, len(search.x0)))
    search._current = current = Generation.of(z, x, poll_only(len(points), size), search._n_outputs)
    return current


# -- The end of a generation: what a search learns from its values


def end_generation(
    search: Optimizer, current: Generation, feasible: list[float], values: Floats | None = None
) -> None:
    """End the generation. values: what ranks the points, if not their own values."""
    if search.noise is not None:
        search.noise.compare(search, current)
        if search._surrogate is not None and not current.only_repeat:
            evaluated = current.source == Source.EVALUATED
            search.noise.record_points(current.x[evaluated], current.f[evaluated])
    if current.only_repeat:
        pass
    elif current.poll is not None:
        _take_poll(search, current, current.poll)
    elif current.proposed:
        assert search._surrogate is not None
        search._surrogate.observe()
        if search._constrained is not None:
            assert isinstance(search._surrogate, LimitedSurrogate) and current.outputs is not None
            search._constrained.note(current.f, current.outputs, search._surrogate.multipliers)
    elif search.exploring is not None:
        search._recent.unevaluated = 0 if current.evaluated else search._recent.unevaluated + 1
        search._feasible_share = len(feasible) / len(current.f)
    else:
        _update(search, current, feasible, values)
    if search._explorer is not None:
        _explore(search, search._explorer, current)
    search.generation += 1
    search._current = search._asked = None
    if search._start.repeats:
        search._archive.forget_oldest()


def _update(search: Optimizer, current: Generation, feasible: list[float], values: Floats | None) -> None:
    """Update the distribution by the ranked draws, and note how the generation went."""
    before = search.sigma
    z, x, f = current.z, current.x[: current.size], current.f[: current.size]
    if current.repeat is not None:
        feasible = feasible_values(f)
    if search._constrained is not None:
        z, f = current.z, _merits(search, search._constrained, current)
        feasible = feasible_values(f)
    if search._surrogate is not None and search._constrained is None and values is not None:
        z, f = ranked_slots(search, search._surrogate, current, values)
    # Updates from failures alone would contract the search to the start, which fails too.
    lost = search.start_failed or (search._explorer is not None and search._explorer.needs_success)
    slowly = False
    if not (lost and search._best.x is None):
        slowly = search.noise is not None and search._surrogate is None and search.noise.slows_down
        search._distribution.update(z, f, x[: len(f)], slowly)
    if search.noise is not None:
        search.noise.add(current.f[: current.size])
        if fits_response(search):
            search.noise.record_points(x, current.f[: current.size])
        if slowly and fits_response(search):
            response.step(search.noise.record, search._distribution)
    if search._constrained is not None:
        search._constrained.adapt(search._distribution)
        if isinstance(search._surrogate, LimitedSurrogate):
            found = model_minimum_under_limits(search, search._surrogate, search._constrained)
            search._constrained.pending = found or search._constrained.pending
    # On a grid σ may shrink without limit while the margin keeps the steps.
    shrinkage = 0.0 if search._start.repeats else math.log(before) - math.log(search.sigma)
    # Points that the models rank count as the evaluations that they stand for.
    n_feasible = len(feasible) + int(
        np.count_nonzero(np.isfinite(f[current.source[: len(f)] == Source.PREDICTED]))
    )
    size = len(f) if search._constrained is not None else current.size
    search._recent.add(feasible, current.evaluated > 0, size, shrinkage, n_feasible)
    search._feasible_share = n_feasible / size
    if search.gains is not None:
        shape = search._distribution.shape
        search.gains.add(x, current.f[: current.size], float(shape.sigma) * float(shape.axis_lengths.max()))


def _merits(search: Optimizer, constrained: Constrained, current: Generation) -> Floats:
    """Return what ranks the draws of a generation under limits, (λ,); a projected point has no draw."""
    assert current.outputs is not None
    mirrored = search.strategy.mirrored and search.overlap_scheduler is None
    size = len(current.z) * (2 if mirrored else 1)
    return constrained.rank(current.x, current.f, current.outputs, size, mirrored)


def _explore(search: Optimizer, explorer: Explorer, current: Generation) -> None:
    """Note a generation; begin the search when it is known where."""
    evaluated = current.source == Source.EVALUATED
    was_lost = not explorer.succeeded
    explorer.add(current.x[evaluated], current.f[evaluated])
    if not explorer.succeeded:
        explorer.exploring = explorer.exploring or explorer.first
    elif explorer.exploring and current.poll is None:
        used = current.source != Source.UNUSED
        begin_at(
            search, explorer.begin_at_success() if was_lost else explorer.take(current.f[used], search.rng)
        )
    if explorer.succeeded and not explorer.restarts:
        search._explorer = None


def begin_at(search: Optimizer, begin: Begin | None) -> None:
    """Begin the search after an exploration; None: the exploration goes on."""
    if begin is not None:
        search._distribution.begin_at(begin.x, begin.share)
        search._recent = new_recent(search._start, search.population_size)
        search.start_failed = False


def _take_poll(search: Optimizer, current: Generation, polled: int) -> None:
    """Restart the distribution at a better neighbour, or note that there is none."""
    if search._best.evaluation > search.evaluations - current.evaluated:
        assert search._best.x is not None
        search._distribution.begin_again(search._best.x)
        search._recent = new_recent(search._start, search.population_size)
    else:
        search._polled = polled


# -- How a search begins: all over a box, or as a restart
#
# A restart has the random generator and the archive of the search before.


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
