"""The end of a generation: what a search learns from its values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmnes.search import response
from fmnes.search.constrained import Constrained
from fmnes.search.explorer import Begin, Explorer
from fmnes.search.generation import Generation, feasible_values
from fmnes.search.modelled import model_minimum_under_limits, ranked_slots
from fmnes.search.noise_watch import fits_response
from fmnes.search.screen import Source
from fmnes.search.stopping import new_recent
from fmnes.surrogate.limited import LimitedSurrogate

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

Floats = NDArray[np.float64]


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
