"""What the next generation of a search evaluates.

Its points are draws of the distribution. Other points may take their place (neighbours of the best point,
points all over the box, proposals of the models), or join them (a projected point). Models may select the
draws that are evaluated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmnes.search.generation import Generation, Repeat
from fmnes.search.modelled import drop_models, proposed_generation, screened_generation
from fmnes.search.polling import Poll, next_poll
from fmnes.search.screen import Screened, Source, poll_only, screen
from fmnes.search.stopping import settled_at

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

Floats = NDArray[np.float64]


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
