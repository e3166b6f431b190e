"""A whole run as one compiled loop: sample, evaluate, update, check the stopping criteria.

Several runs go in lockstep: one loop and one generation number for all, each generation a `vmap` over runs. A
run that has ended keeps its state; the loop ends with the last one.

Where λ changes, shapes cannot: a generation is evaluated in groups of λ₀ points, as many as it takes, into
arrays with room for the largest λ. The update is compiled twice, for λ₀ points and for the whole room; as
long as all runs have λ₀ points the first one is taken, so where nothing fails nothing more is computed.
(One more in between made compiling a fifth longer and runs no faster.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from fmnes.backends import Array, Backend, jax_backend
from fmnes.integrations.jax.arguments import check_objective
from fmnes.integrations.jax.devices import along_coordinates, boundary, hold, over_runs
from fmnes.integrations.jax.draws import normal
from fmnes.result import StopReason
from fmnes.search.stopping import MAX_CONDITION, MAX_STEP_GROWTH, MIN_STEP, Recent
from fmnes.strategies import Shape, Strategy
from fmnes.strategies.base import rank

# -- What a run counts, and when it ends: the criteria of search/stopping.py as one expression.

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


# -- The loop

#: The name of the `vmap` axis over runs.
RUNS = "runs"
#: Fields of a strategy's state that all runs of a batch have in common.
SHARED = ("generation",)
#: Products of float32 matrices with all their digits; a GPU would keep ten bits of them by default.
EXACT = partial(jax.default_matmul_precision, "highest")
#: Draws of generation g come from fold_in(key, g), where λ changes those of its k-th group of λ₀ points from
#: fold_in(fold_in(key, k), g); the one for a random start from here.
START = 2**32 - 1


@dataclass(frozen=True)
class Plan:
    """What a loop is compiled for, besides shapes and dtypes."""

    fun: Callable[[Array], Array]
    strategy: Strategy
    population_size: int
    """λ; where it changes, the first one, λ₀."""
    lockstep: bool
    draws_at_once: int | None
    most: int | None = None
    """The largest λ; None where it does not change."""
    devices: tuple[Any, ...] = ()
    """Several of them share the runs, or the coordinates of one run (devices.py)."""

    @property
    def draws(self) -> int:
        return self.population_size // self.per_draw

    @property
    def per_draw(self) -> int:
        return 2 if self.strategy.mirrored else 1

    @property
    def split(self) -> NamedSharding | None:
        """How the coordinates of one run are split."""
        return None if self.lockstep or len(self.devices) < 2 else along_coordinates(self.devices)

    @property
    def groups(self) -> int:
        """So many groups of λ₀ points hold the largest λ."""
        return 1 if self.most is None else -(-self.most // self.population_size)


class Inputs(NamedTuple):
    """What each run has for itself; in lockstep every field has the runs as its first axis."""

    key: Array
    x0: Array
    """(d,)"""
    sigma0: Array
    target: Array
    """−inf: none."""
    settings: dict[str, Array]
    """Settings of the strategy that differ between runs."""


def compiled(plan: Plan, d: int, dtype: str) -> Callable[[Inputs, Limits], tuple[Array, Progress]]:
    """(inputs, limits) -> (mean of the last good state, progress); the objective is checked before."""
    try:
        hash(plan.fun)
    except TypeError:  # nothing to know it by the next time
        return _compiled.__wrapped__(plan, d, dtype)
    return _compiled(plan, d, dtype)


@lru_cache(maxsize=64)
def _compiled(plan: Plan, d: int, dtype: str) -> Callable[[Inputs, Limits], tuple[Array, Progress]]:
    check_objective(plan.fun, d, dtype)
    loop: Callable[[Inputs, Limits], Any] = partial(_lockstep if plan.lockstep else _single, plan)
    if plan.lockstep and len(plan.devices) > 1:
        loop = over_runs(loop, plan.devices)
    loop = jax.jit(loop)
    return loop


def shared_axes(state: Any) -> Any:
    """The `vmap` axes of a strategy's state: None for what all runs share, 0 for the rest."""
    return type(state)(*(None if name in SHARED else 0 for name in state._fields))


def _single(plan: Plan, inputs: Inputs, limits: Limits) -> tuple[Array, Progress]:
    backend = jax_backend()

    def generation(carry: Any) -> Any:
        index, state, progress = carry
        return index + 1, *_generation(plan, backend, limits, index, inputs, state, progress)

    carry = jnp.asarray(0), *_start(plan, backend, inputs)
    _, state, progress = lax.while_loop(lambda carry: carry[2].code == RUNNING, generation, carry)
    if plan.split is None:
        return state.mean, progress
    leaving = boundary(plan.split, len(inputs.x0))
    return hold(state.mean, leaving), progress._replace(x=hold(progress.x, leaving))


def _lockstep(plan: Plan, inputs: Inputs, limits: Limits) -> tuple[Array, Progress]:
    backend = jax_backend(RUNS)
    one = jax.eval_shape(lambda: _start(plan, jax_backend(), jax.tree.map(lambda leaf: leaf[0], inputs)))
    axes = shared_axes(one[0])
    start = jax.vmap(partial(_start, plan, backend), axis_name=RUNS, out_axes=(axes, 0))
    step = jax.vmap(
        partial(_generation_or_rest, partial(_generation, plan, backend, limits)),
        axis_name=RUNS,
        in_axes=(None, 0, axes, 0),
        out_axes=(axes, 0),
    )

    def generation(carry: Any) -> Any:
        index, state, progress = carry
        return index + 1, *step(index, inputs, state, progress)

    carry = jnp.asarray(0), *start(inputs)
    _, state, progress = lax.while_loop(lambda carry: (carry[2].code == RUNNING).any(), generation, carry)
    return state.mean, progress


# One run.


def _start(plan: Plan, backend: Backend, inputs: Inputs) -> tuple[Any, Progress]:
    x0 = inputs.x0
    z0 = jax.random.normal(jax.random.fold_in(inputs.key, START), x0.shape, x0.dtype)
    with EXACT():
        state = plan.strategy.init(x0, inputs.sigma0, z0, backend)
    progress = Progress.start(x0, plan.population_size, fixed=plan.most is None)
    if plan.split is None:
        return strongly_typed(state), progress
    return hold(strongly_typed(state), plan.split), progress._replace(x=hold(progress.x, plan.split))


def _generation(
    plan: Plan, backend: Backend, limits: Limits, index: Array, inputs: Inputs, state: Any, progress: Progress
) -> tuple[Any, Progress]:
    """The state after this generation and what was counted.

    An update that is not to be made, of a generation that was cut or to a state that is not good, ends the
    run. Of its state only the mean is read then, so only the mean is put back.
    """
    strategy = _with_settings(plan.strategy, inputs.settings)
    d, dtype = state.mean.shape[0], state.mean.dtype
    if plan.most is None:
        z = normal(jax.random.fold_in(inputs.key, index), (plan.draws, d), dtype, plan.split)
        f, point = _evaluate(plan, backend, strategy, state, z)
        update = partial(_update, backend, strategy, state, z, f)
    else:
        needed = _groups_needed(plan, progress)
        z, f, point = _evaluate_groups(plan, backend, strategy, index, inputs, state, progress, needed)
        update = partial(_update_in_room, plan, backend, strategy, state, z, f, progress, needed)
    progress, complete = count(progress, index, f, point, inputs.target, limits.max_evaluations)
    with EXACT():
        new = update()
        shape = strategy.shape(new, backend)
        code = stop_code(progress, shape, inputs.sigma0, inputs.target, limits)
        if plan.most is not None:
            lam = strategy.next_population_size(new, plan.population_size, backend)
            progress = progress._replace(population_size=lam)
    mean = jnp.where(complete & is_good(shape), new.mean, state.mean)
    return new._replace(mean=mean), progress._replace(code=code)


def _generation_or_rest(
    generation: Callable[..., tuple[Any, Progress]],
    index: Array,
    inputs: Inputs,
    state: Any,
    progress: Progress,
) -> tuple[Any, Progress]:
    """The same, but a run that has ended stays as it is."""
    new_state, new_progress = generation(index, inputs, state, progress)

    def keep(new: Array, old: Array) -> Array:
        return new if new is old else jnp.where(progress.code == RUNNING, new, old)

    kept = {
        name: jax.tree.map(keep, getattr(new_state, name), getattr(state, name))
        for name in state._fields
        if name not in SHARED
    }
    return new_state._replace(**kept), jax.tree.map(keep, new_progress, progress)


def _evaluate(
    plan: Plan, backend: Backend, strategy: Strategy, state: Any, z: Array
) -> tuple[Array, Callable[[Array], Array]]:
    """The values (λ,), and the i-th point as a function of i."""
    f, x = _values(plan, backend, strategy, state, z)
    return f, _point(plan, backend, strategy, state, z, x)


def _values(
    plan: Plan, backend: Backend, strategy: Strategy, state: Any, z: Array
) -> tuple[Array, Array | None]:
    """The values, and the points; None where not all of them are there at once."""
    sample = partial(_sample, backend, strategy, state)
    values = jax.vmap(lambda x: plan.fun(x))  # its products with the precision that the user has set
    if plan.draws_at_once is None:
        x = sample(z)
        return values(x).astype(z.dtype), x
    groups = z.reshape(-1, plan.draws_at_once, z.shape[1])
    return lax.map(lambda some: values(sample(some)), groups).reshape(-1).astype(z.dtype), None


def _point(
    plan: Plan, backend: Backend, strategy: Strategy, state: Any, z: Array, x: Array | None
) -> Callable[[Array], Array]:
    """The i-th point as a function of i; drawn again where the points were not kept."""
    if x is not None:
        return lambda i: x[i]
    sample = partial(_sample, backend, strategy, state)
    return lambda i: sample(lax.dynamic_slice_in_dim(z, i // plan.per_draw, 1))[i % plan.per_draw]


def _sample(backend: Backend, strategy: Strategy, state: Any, z: Array) -> Array:
    with EXACT():
        return strategy.sample(state, z, backend)


# A population size that changes.


def _groups_needed(plan: Plan, progress: Progress) -> Array:
    """How many groups of λ₀ points the generation has; in lockstep the largest one."""
    lam = jnp.where(progress.code == RUNNING, progress.population_size, plan.population_size)
    needed = -(-lam // plan.population_size)
    return lax.pmax(needed, RUNS) if plan.lockstep else needed


def _evaluate_groups(
    plan: Plan,
    backend: Backend,
    strategy: Strategy,
    index: Array,
    inputs: Inputs,
    state: Any,
    progress: Progress,
    needed: Array,
) -> tuple[Array, Array, Callable[[Array], Array]]:
    """The draws, the values, and the i-th point as a function of i. There is room for the largest λ."""
    d, dtype = state.mean.shape[0], state.mean.dtype

    def evaluate(group: Array, room: Any) -> Any:
        z = normal(jax.random.fold_in(jax.random.fold_in(inputs.key, group), index), (plan.draws, d), dtype)
        f, x = _values(plan, backend, strategy, state, z)
        return jax.tree.map(lambda all_, some: _put(all_, some, group), room, (z, f, x))

    z = jnp.zeros((plan.groups * plan.draws, d), dtype)
    f = jnp.zeros(len(z) * plan.per_draw, dtype)
    x = None if plan.draws_at_once else jnp.zeros((len(f), d), dtype)
    z, f, x = lax.fori_loop(0, needed, evaluate, (z, f, x))
    f = jnp.where(jnp.arange(len(f)) < progress.population_size, f, jnp.inf)
    return z, f, _point(plan, backend, strategy, state, z, x)


def _put(room: Array, some: Array, group: Array) -> Array:
    return lax.dynamic_update_slice_in_dim(room, some, group * len(some), 0)


def _update(backend: Backend, strategy: Any, state: Any, z: Array, f: Array, *population_size: Array) -> Any:
    order, n_feasible = rank(strategy, z, f, backend, *population_size)
    return strategy.update(state, z, order, n_feasible, backend, *population_size)


def _update_in_room(
    plan: Plan,
    backend: Backend,
    strategy: Any,
    state: Any,
    z: Array,
    f: Array,
    progress: Progress,
    needed: Array,
) -> Any:
    return lax.cond(
        needed > 1,
        lambda: _update(backend, strategy, state, z, f, progress.population_size),
        lambda: _update(backend, strategy, state, z[: plan.draws], f[: plan.population_size]),
    )


# Helpers.


def strongly_typed(state: Any) -> Any:
    """Python's own numbers leave "weak" types behind, with which the next call would be traced again."""
    return jax.tree.map(lambda leaf: lax.convert_element_type(leaf, leaf.dtype), state)


def _with_settings(strategy: Strategy, settings: dict[str, Array]) -> Strategy:
    """The strategy with some settings traced. They were checked before tracing."""
    if not settings:
        return strategy
    changed = copy.copy(strategy)
    for name, value in settings.items():
        object.__setattr__(changed, name, value)
    return changed
