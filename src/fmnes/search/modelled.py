"""Where the models of `fmnes.surrogate` take part in a search.

They propose the first points, and later say which points of a generation are evaluated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import check_count
from fmnes.errors import ArgumentError
from fmnes.result import Stop, StopReason
from fmnes.search.constrained import Constrained, Projected
from fmnes.search.generation import Generation, Screened, Source
from fmnes.search.response import Record
from fmnes.search.start import Start
from fmnes.strategies import DEFAULT_METHOD
from fmnes.surrogate import screening
from fmnes.surrogate.limited import SAME as SAME_POINT
from fmnes.surrogate.limited import LimitedSurrogate
from fmnes.surrogate.phases import LOCAL, SearchRange, Surrogate
from fmnes.surrogate.trust_region import edge_points, nearest

if TYPE_CHECKING:
    from fmnes.constraints import Limits
    from fmnes.search.optimizer import Optimizer

Floats = NDArray[np.float64]

#: Without bounds, the range of a coordinate is this many initial step sizes wide.
RANGE_STEPS = 5.0
#: … and at most this wide, so that no difference overflows.
LONGEST_WIDTH = 1e307
#: A minimum of the model is not evaluated if a point this close, in draws, was evaluated already.
SAME = 1e-4


def check_surrogate(start: Start, overlap: float) -> None:
    """Raises ArgumentError if a search that begins like this cannot have a model."""
    if start.strategy.name != DEFAULT_METHOD:
        raise ArgumentError(
            f'surrogate: found True with the method {start.strategy.name!r}, wanted "afm-nes": the published '
            "methods stay as they are"
        )
    if start.bounds is not None and start.bounds_as == "failure":
        raise ArgumentError(
            'surrogate: found True with bounds_as="failure", wanted bounds_as="map" (the default)'
        )
    if start.choices is not None:
        raise ArgumentError(
            "surrogate: found True together with categories: the models have no distance between choices; "
            'wanted "auto", which leaves them off, or False'
        )
    if overlap:
        raise ArgumentError("surrogate: found True together with overlap, wanted one of the two")


def use_surrogate(search: Optimizer, batch_size: int = 1, until: int | None = None) -> None:
    """Save evaluations with models from now on, as the argument `surrogate` does.

    until: under limits, the evaluations in which they take part; None: all. Only before the first point is
    asked for. Raises ArgumentError if the method or an option excludes it.
    """
    check_surrogate(search._start, search.overlap)
    batch = check_count("batch_size", batch_size, 1)
    search._surrogate = made = make_surrogate(
        search._start, search.rng, batch, search._anywhere, search.limits
    )
    if isinstance(made, LimitedSurrogate):
        made.until = until
    for x, value in search._archive.items():
        known = search._constrained is not None and math.isfinite(value)
        search._surrogate.add(x, value, outputs=search._archive.outputs(x) if known else None)


def make_surrogate(
    start: Start, rng: np.random.Generator, batch: int, anywhere: bool, limits: Limits | None = None
) -> Surrogate:
    """The models of a new search. anywhere: no start was given."""
    d = len(start.x0)
    steps = np.broadcast_to(np.asarray(start.steps, dtype=float), (d,))
    lower, upper = np.full(d, -np.inf), np.full(d, np.inf)
    if start.bounds is not None:
        lower, upper = start.bounds.lower, start.bounds.upper
    with np.errstate(over="ignore", invalid="ignore"):
        whole = upper - lower
        finite = np.isfinite(whole)
        width = np.where(finite, whole, np.minimum(RANGE_STEPS * steps, LONGEST_WIDTH))
        # Two bounds whose distance overflows are as good as none.
        too_wide = np.isfinite(lower) & np.isfinite(upper) & ~finite
        origin = np.where(np.isfinite(lower) & ~too_wide, lower, start.x0)
        low, high = (lower - origin) / width, (upper - origin) / width
    units = SearchRange(
        origin,
        width,
        low,
        high,
        (start.x0 - origin) / width,
        np.minimum(steps / width, 1.0),
        anywhere and bool(finite.all()),
    )
    seed = int(rng.integers(2**63))
    return Surrogate(units, seed, batch) if limits is None else LimitedSurrogate(units, seed, batch, limits)


def proposed_generation(search: Optimizer, surrogate: Surrogate) -> Generation | None:
    """A generation of points that the models propose; None: the distribution draws."""
    before = surrogate.phase
    points = surrogate.propose(_snap(search, surrogate))
    if points is not None:
        x = search._distribution.nearest(_inside(search, points))
        current = Generation.of(np.zeros((len(x), x.shape[1])), x, None, search._n_outputs)
        current.proposed = True
        return current
    if before != LOCAL and (begun := surrogate.hand_over()) is not None:
        search._distribution.begin_with_axes(*begun)
        surrogate.first_step = search.sigma * float(search._distribution.shape.axis_lengths.max())
    return None


def drop_models(search: Optimizer, surrogate: Surrogate) -> None:
    """Continue with the distribution alone and its response surface: noise hides what the models order."""
    assert search.noise is not None
    if surrogate.phase != LOCAL and (begun := surrogate.hand_over()) is not None:
        search._distribution.begin_with_axes(*begun)
    search.noise.record = Record()
    search.noise.record.add(surrogate.points(surrogate.data.u), surrogate.data.y)
    search._surrogate = None


def model_minimum_under_limits(
    search: Optimizer, surrogate: LimitedSurrogate, constrained: Constrained
) -> Projected | None:
    """The point that is evaluated beside the next generation; None: it was evaluated, or models are over."""
    if surrogate.is_over:
        return None
    distribution = search._distribution
    mean, axes = distribution.axes()
    low, high = distribution.bounds
    up, down = np.isfinite(high), np.isfinite(low)
    walls = np.concatenate([axes[up], -axes[down]]), np.concatenate([(mean - high)[up], (low - mean)[down]])
    z = distribution.coordinates_of(surrogate.points(surrogate.data.u))
    found = surrogate.minimum_near_best(z, walls, constrained.margins)
    if found is None:
        return None
    x = distribution.nearest(_inside(search, mean + axes @ found[0]))
    if not np.isfinite(x).all() or surrogate.data.near(surrogate.units(x), SAME_POINT):
        return None
    return Projected(x, *found[1:])


def exhausted(search: Optimizer, surrogate: Surrogate) -> Stop | None:
    """The distribution gains nothing more where it is, and the run has restarts."""
    step = search.sigma * float(search._distribution.shape.axis_lengths.max())
    if not surrogate.is_exhausted(step / surrogate.first_step):
        return None
    n = len(surrogate.data) - surrogate.handed_over
    return Stop(StopReason.STALLED, f"{n} evaluations with models, and the last of them gained nothing")


def screened_generation(
    search: Optimizer, surrogate: Surrogate, z: Floats, x: Floats, inside: NDArray[np.bool_] | None
) -> Generation | None:
    """A generation whose points wait for the models; None: all are evaluated."""
    if search._start.repeats or inside is not None or search._constrained is not None:
        return None
    model = _fit(search, surrogate, 0)
    if model is None and len(surrogate.data) < screening.LEAST_SUCCESSES:
        return None
    source = np.full(len(x), Source.WAITING, dtype=np.int8)
    if model is not None and (found := _model_minimum(search, surrogate, model, z)) is not None:
        point, row = found
        # Its draw takes part in the update, so every slot needs a row.
        z = np.concatenate([_rows(search, z), row[None]])
        x = np.concatenate([x, point[None]])
        source = np.append(source, np.int8(Source.EVALUATED))
    current = Generation.of(z, x, Screened(source, np.full(len(x), np.nan)))
    if current.complete:
        _open_best(search, surrogate, model, current)
    return current


def next_round(search: Optimizer, surrogate: Surrogate, current: Generation) -> Floats | None:
    """After all open slots have their values: open more slots, or return the values that rank all. (λ,)"""
    done = current.source == Source.EVALUATED
    model = _fit(search, surrogate, int(np.count_nonzero(done)))
    if not len(current.waiting):
        return current.f
    if model is None or not model.trusted or not np.isfinite(current.f[done]).any():
        _open_best(search, surrogate, model, current)
        return None
    current.predict_rest()
    z = search._distribution.coordinates_of(current.x)
    return screening.completed(model, z, current.f, done)


def ranked_slots(
    search: Optimizer, surrogate: Surrogate, current: Generation, values: Floats
) -> tuple[Floats, Floats]:
    """The draws and values of the update: without the minimum of the model if it would mislead the steps.

    Beside an edge it would pull the distribution onto the edge.
    """
    size = search._distribution.population_size
    if len(values) == size:
        return current.z, values
    has_edge = _edge_near(search, surrogate)
    if has_edge or not np.isfinite(values[size]) or search._start.grid is not None:
        return current.z[:size], values[:size]
    return current.z, values


def _edge_near(search: Optimizer, surrogate: Surrogate) -> bool:
    """Whether one of the points around the distribution failed."""
    z = search._distribution.coordinates_of(surrogate.points(surrogate.data.u))
    squared = np.einsum("ij,ij->i", z, z)
    near = nearest(squared, np.arange(len(squared)), edge_points(z.shape[1]))
    return bool(np.isnan(surrogate.data.y[near]).any())


def _fit(search: Optimizer, surrogate: Surrogate, evaluated: int) -> screening.Model | None:
    data = surrogate.data
    if len(data) < screening.LEAST_SUCCESSES:
        return None
    distribution = search._distribution
    z = distribution.coordinates_of(surrogate.points(data.u))
    kept = np.isfinite(z).all(axis=1) & (np.abs(z) < 1e100).all(axis=1)
    return screening.fit(z[kept], data.y[kept], data.drawn[kept], evaluated, distribution.population_size)


def _open_best(
    search: Optimizer, surrogate: Surrogate, model: screening.Model | None, current: Generation
) -> None:
    """Open the slots that are predicted best: as many again as half of those evaluated, in whole batches."""
    waiting = current.waiting
    n = max(1, math.ceil(current.evaluated / 2))
    n = min(len(waiting), -(-n // surrogate.batch) * surrogate.batch)
    if model is not None:
        scores = screening.score(model, search._distribution.coordinates_of(current.x[waiting]))
        waiting = waiting[np.argsort(scores, kind="stable")]
    current.open_more(np.sort(waiting[:n]))


def _model_minimum(
    search: Optimizer, surrogate: Surrogate, model: screening.Model, z: Floats
) -> tuple[Floats, Floats] | None:
    """The point within reach with the best prediction, and its draw; None: it was evaluated."""
    distribution = search._distribution
    d = z.shape[1]
    radius = math.sqrt(d) + 2 * d / (d + 2)

    def to_model(rows: Floats) -> Floats:
        return distribution.coordinates_of(distribution.seen(distribution.rows_to_points(rows))[0])

    known = distribution.coordinates_of(surrogate.points(surrogate.data.u))
    squared = np.einsum("ij,ij->i", known, known)
    worked = np.flatnonzero(np.isfinite(surrogate.data.y) & (squared <= radius * radius))
    near = known[nearest(squared, worked, 20)]
    first = np.concatenate([_rows(search, z), near])
    row = screening.minimise(model, first, radius, surrogate.rng(0), to_model)
    point = distribution.seen(distribution.rows_to_points(row[None]))[0][0]
    distance = known - distribution.coordinates_of(point[None])
    if not np.isfinite(point).all() or np.einsum("ij,ij->i", distance, distance).min() <= SAME**2 * d:
        return None
    return point, row


def _rows(search: Optimizer, z: Floats) -> Floats:
    """One row of draws per point."""
    if not search.strategy.mirrored:
        return z
    rows: Floats = np.stack([z, -z], axis=1).reshape(-1, z.shape[1])
    return rows


def _snap(search: Optimizer, surrogate: Surrogate) -> Any:
    if search._start.grid is None:
        return None
    return lambda u: surrogate.units(search._distribution.nearest(_inside(search, surrogate.points(u))))


def _inside(search: Optimizer, x: Floats) -> Floats:
    """Rounding must not lead out of the bounds."""
    bounds = search.bounds
    return x if bounds is None else np.clip(x, bounds.lower, bounds.upper)
