"""What a compiled run counts, and when it ends: the criteria of search/stopping.py as one expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from fmnes.backends import Array
from fmnes.result import StopReason
from fmnes.search.stopping import MAX_CONDITION, MAX_STEP_GROWTH, MIN_STEP, Recent
from fmnes.strategies import Shape

#: A stop reason's number is its place here.
REASONS = tuple(StopReason)
RUNNING = -1
#: The limits of search/stopping.py for float32: shapes that it can decompose, and steps that it can square.
MAX_CONDITION_SINGLE = 1e10
MIN_STEP_SINGLE = 1e-18


class Limits(NamedTuple):
    """Those that all runs have in common."""

    max_evaluations: Array
    xtol: Array
    """0: off."""
    ftol: Array
    """−1: off."""


class Progress(NamedTuple):
    """What a run knows beside the strategy's state."""

    x: Array
    """Best feasible point; NaN while there is none. (d,)"""
    fun: Array
    """Its value; +inf while there is none."""
    nfev: Array
    nit: Array
    """Complete generations."""
    n_infeasible: Array
    bests: Array
    """Best values of the last generations, a ring. (window,)"""
    flat: Array
    """Generations in a row whose feasible values were all equal."""
    barren: Array
    """Generations in a row without one feasible value."""
    code: Array
    """The stop reason's number, or RUNNING."""
    population_size: Array | None
    """λ of the next generation; None where it never changes."""

    @classmethod
    def start(cls, x0: Array, population_size: int, fixed: bool = True) -> Progress:
        zero = jnp.asarray(0)
        window = Recent.for_problem(x0.shape[0], population_size).window
        return cls(
            x=jnp.full_like(x0, jnp.nan),
            fun=jnp.asarray(jnp.inf, x0.dtype),
            nfev=zero,
            nit=zero,
            n_infeasible=zero,
            bests=jnp.full((window,), jnp.inf, x0.dtype),
            flat=zero,
            barren=zero,
            code=jnp.asarray(RUNNING),
            population_size=None if fixed else jnp.asarray(population_size),
        )


def count(
    progress: Progress,
    index: Array,
    f: Array,
    point: Callable[[Array], Array],
    target: Array,
    max_evaluations: Array,
) -> tuple[Progress, Array]:
    """Take in generation `index`: in the order of sampling, up to the first hit or the end of the budget.

    Returns also whether that was all of it: as in `fmnes.minimize`, a generation that is cut makes no update.
    f: (λ,), or longer where λ may change, and then inf behind λ; point: the i-th point as a function of i.
    """
    room = f.shape[0]
    lam = room if progress.population_size is None else progress.population_size
    feasible = jnp.isfinite(f)
    hit = feasible & (f <= target)
    until_hit = jnp.where(hit.any(), jnp.argmax(hit) + 1, lam)
    counted = jnp.minimum(until_hit, max_evaluations - progress.nfev)
    seen = jnp.arange(room) < counted
    values = jnp.where(seen & feasible, f, jnp.inf)
    i = jnp.argmin(values)
    better = values[i] < progress.fun

    low, high = jnp.where(feasible, f, jnp.inf).min(), jnp.where(feasible, f, -jnp.inf).max()
    n_feasible = feasible.sum()
    complete = counted == lam
    progress = progress._replace(
        x=jnp.where(better, point(i), progress.x),
        fun=jnp.where(better, values[i], progress.fun),
        nfev=progress.nfev + counted,
        nit=progress.nit + complete,
        n_infeasible=progress.n_infeasible + (seen & ~feasible).sum(),
        bests=progress.bests.at[index % progress.bests.shape[0]].set(low),
        flat=jnp.where((n_feasible > 1) & (low == high), progress.flat + 1, 0),
        barren=jnp.where(n_feasible > 0, 0, progress.barren + 1),
    )
    return progress, complete


def is_good(shape: Shape) -> Array:
    """Are the mean, the step size and the axes' lengths finite, and the step size above zero?

    `fmnes.minimize` looks at every array of the state. Here that would be one more trip to memory in each
    generation. What these three do not show (an entry of A⁻¹, or of CMA-ES's C before it is decomposed) they
    show once an update has used it.
    """
    longest = shape.axis_lengths.max()
    finite = jnp.isfinite(shape.sigma) & jnp.isfinite(longest) & jnp.isfinite(shape.axis_lengths.min())
    return finite & (shape.sigma > 0) & jnp.isfinite(_nearest(shape.mean))


def _nearest(mean: Array) -> Array:
    """The coordinate nearest to 0; NaN if one is not finite."""
    return jnp.where(jnp.isfinite(mean), jnp.abs(mean), jnp.nan).min()


def stop_code(progress: Progress, shape: Shape, sigma0: Array, target: Array, limits: Limits) -> Array:
    """The number of the first criterion that is met, or RUNNING; in the order of search/stopping.py."""
    window = progress.bests.shape[0]
    patience = Recent(window).patience
    longest, shortest = shape.axis_lengths.max(), shape.axis_lengths.min()
    step, ratio = shape.sigma * longest, longest / shortest
    nearest = _nearest(shape.mean)
    low, high = progress.bests.min(), progress.bests.max()
    settled = (high / 2 - low / 2) <= limits.ftol * (jnp.maximum(jnp.abs(low), jnp.abs(high)) / 2)
    single = shape.mean.dtype == jnp.float32
    criteria: list[tuple[StopReason, Any]] = [
        (StopReason.TARGET, progress.fun <= target),
        (StopReason.MAX_EVALUATIONS, progress.nfev >= limits.max_evaluations),
        (StopReason.NUMERICAL, ~is_good(shape)),
        (StopReason.NO_FEASIBLE, progress.barren >= patience),
        (StopReason.FLAT, progress.flat >= window),
        (StopReason.FTOL, jnp.isfinite(high) & settled),
        (StopReason.XTOL, step < limits.xtol * sigma0),
        (StopReason.XTOL, step < jnp.nextafter(nearest, jnp.inf) - nearest),
        (StopReason.ILL_CONDITIONED, ratio * ratio >= (MAX_CONDITION_SINGLE if single else MAX_CONDITION)),
        (StopReason.SIGMA_OVERFLOW, step > MAX_STEP_GROWTH * sigma0),
        (StopReason.SIGMA_UNDERFLOW, step < (MIN_STEP_SINGLE if single else MIN_STEP)),
    ]
    numbers = [jnp.asarray(REASONS.index(reason)) for reason, _ in criteria]
    return jnp.select([met for _, met in criteria], numbers, jnp.asarray(RUNNING))
