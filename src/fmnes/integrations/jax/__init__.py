"""The strategies for JAX: ask and tell as pure functions, and whole runs, or batches of runs, compiled.

    from fmnes.integrations import jax as fj

    state = fj.init(key, x0, sigma0)            a pytree; method and population size are static in it
    x, z = fj.ask(key, state)                   x (λ, d): evaluate these; z: the draws behind them
    state = fj.tell(state, z, f)                f (λ,); NaN or inf: that point failed

    result = fj.run(fun, x0, sigma0, key=key, max_evaluations=100_000, batch=1000)

Adaptive FM-NES, the default, wants more points where points fail; `run` gives them, and for ask and tell
`next_population_size(state)` says how many.

`fun` is written in JAX and takes one point (d,). A point that cannot be evaluated is NaN or inf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from fmnes.arguments import check_number, check_population_size
from fmnes.backends import Array, jax_backend
from fmnes.errors import ArgumentError, MissingExtra
from fmnes.result import StopReason
from fmnes.strategies import DEFAULT_METHOD, Resampling, Strategy, resolve
from fmnes.strategies.base import rank

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise MissingExtra("fmnes.integrations.jax", "jax") from error

from fmnes.integrations.jax import arguments
from fmnes.integrations.jax.devices import choose_devices, laid_out, on_devices, rows, settle, split_of
from fmnes.integrations.jax.draws import normal
from fmnes.integrations.jax.loop import (
    EXACT,
    REASONS,
    Inputs,
    Limits,
    Plan,
    compiled,
    shared_axes,
    strongly_typed,
)


@dataclass(frozen=True)
class State:
    """A search in progress. A pytree: `jit`, `vmap`, `scan` and `while_loop` take it as it is.

    Attributes
    ----------
    search : Any
        The strategy's own state, a NamedTuple of arrays.
    method : Strategy
        The settings; static.
    population_size : int
        λ, or the first λ; static.
    split : Any
        How vectors (d,) are split over devices, as x0 was: a `NamedSharding`.

    Examples
    --------
    >>> import jax
    >>> from fmnes.integrations import jax as fj
    >>> state = fj.init(jax.random.key(1), jax.numpy.ones(3), 0.5, population_size=8)
    >>> state.mean.shape, float(state.sigma), state.population_size
    ((3,), 0.5, 8)
    """

    search: Any
    method: Strategy
    population_size: int
    split: Any = None

    @property
    def mean(self) -> Array:
        """The mean of the search distribution, (d,)."""
        return self.search.mean

    @property
    def sigma(self) -> Array:
        """The step size."""
        return self.search.sigma


jax.tree_util.register_dataclass(
    State, data_fields=["search"], meta_fields=["method", "population_size", "split"]
)


class Runs(NamedTuple):
    """What `run` returns: scalars and a vector, or with `batch` arrays with one entry, or row, per run.

    Attributes
    ----------
    x : ndarray
        Best feasible point; NaN if there was none. (d,)
    fun : ndarray
        Its value; +inf if there was none.
    nfev : ndarray
        Evaluations, failed ones included, up to and including the first that reached the target.
    stop_reason : ndarray
        Why it ended, as a number: `stop_reason(result.stop_reason)` returns the `fmnes.StopReason`.
    nit : ndarray
        Complete generations; one that the target or the budget cuts short does not count and makes no
        update.
    n_infeasible : ndarray
        Evaluations that failed.
    x_mean : ndarray
        Mean of the search distribution after the last update whose result was finite. (d,)

    Examples
    --------
    >>> import jax
    >>> from fmnes.integrations import jax as fj
    >>> key = jax.random.key(1)
    >>> runs = fj.run(lambda x: (x**2).sum(), jax.numpy.ones(2), 0.5, key=key, max_evaluations=200, batch=3)
    >>> runs.x.shape, runs.fun.shape
    ((3, 2), (3,))
    """

    x: Array
    fun: Array
    nfev: Array
    stop_reason: Array
    nit: Array
    n_infeasible: Array
    x_mean: Array


def init(
    key: Array,
    x0: Array,
    sigma0: Array | None = None,
    *,
    method: str | Strategy = DEFAULT_METHOD,
    population_size: int | None = None,
) -> State:
    """Return the state to start from.

    Parameters
    ----------
    key : jax.Array
        A `jax.random.key`.
    x0 : array_like
        Where to start, (d,), in the search's dtype.
    sigma0 : float
        The first step size. It is required.
    method : str or Strategy, optional
        "afm-nes", "fm-nes", "xnes", "cma-es", … or settings such as `fmnes.FMNES(...)`.
    population_size : int, optional
        λ, or the first λ.

    Returns
    -------
    State
        A pytree; method and population size are static in it.

    Raises
    ------
    ArgumentError
        An argument is wrong.

    Examples
    --------
    >>> import jax
    >>> from fmnes.integrations import jax as fj
    >>> state = fj.init(jax.random.key(1), jax.numpy.ones(3), 0.5)
    >>> state.mean.shape
    (3,)
    """
    strategy = _strategy(method)
    x0, sigma0 = arguments.check_start(x0, sigma0)
    arguments.check_key(key)
    lam = _population_size(strategy, population_size, x0.shape[0])
    if split := split_of(x0):
        x0 = jax.device_put(x0, split)
    z0 = laid_out(jax.random.normal, split)(key, x0.shape, x0.dtype)
    with EXACT():
        search = strategy.init(x0, sigma0, z0, jax_backend())
    search = strongly_typed(search)
    return State(search if split is None else settle(search, split), strategy, lam, split)


def ask(key: Array, state: State, population_size: int | None = None) -> tuple[Array, Array]:
    """Return points to evaluate, and the draws that `tell` takes.

    Parameters
    ----------
    key : jax.Array
        A `jax.random.key`.
    state : State
        The state.
    population_size : int, optional
        λ, by default `state.population_size`; it may differ from call to call (`next_population_size`).

    Returns
    -------
    tuple of jax.Array and jax.Array
        The points (λ, d), and the draws.

    Raises
    ------
    ArgumentError
        λ is too small, or odd for a method with mirrored pairs.

    Examples
    --------
    >>> import jax
    >>> from fmnes.integrations import jax as fj
    >>> state = fj.init(jax.random.key(1), jax.numpy.ones(3), 0.5, population_size=8)
    >>> x, z = fj.ask(jax.random.key(2), state)
    >>> x.shape
    (8, 3)
    """
    asked = state.population_size if population_size is None else population_size
    lam = check_population_size(asked, state.mean.shape[0], state.method.mirrored)
    draws = lam // 2 if state.method.mirrored else lam
    draw = normal
    if state.split is not None:
        draw = laid_out(partial(normal, split=state.split), rows(state.split))
    z = draw(key, (draws, state.mean.shape[0]), state.mean.dtype)
    with EXACT():
        return state.method.sample(state.search, z, jax_backend()), z


def next_population_size(state: State) -> Array:
    """Return the λ that the method would choose for the next generation.

    Each λ is compiled separately; to have few of them, round it up to a multiple of `state.population_size`.

    Parameters
    ----------
    state : State
        The state.

    Returns
    -------
    jax.Array
        A whole number, traced if the state is; `state.population_size` if the method does not change it.

    Examples
    --------
    >>> import jax
    >>> from fmnes.integrations import jax as fj
    >>> state = fj.init(jax.random.key(1), jax.numpy.ones(3), 0.5, population_size=8)
    >>> int(fj.next_population_size(state))
    8
    """
    size = state.method.next_population_size(state.search, state.population_size, jax_backend())
    return jnp.asarray(size)


def tell(state: State, z: Array, f: Array) -> State:
    """Return the state after one generation.

    Parameters
    ----------
    state : State
        The state.
    z : array_like
        The draws as `ask` returned them.
    f : array_like
        Values of the points in order, (λ,); NaN or inf for a point that failed.

    Returns
    -------
    State
        The next state.

    Raises
    ------
    ArgumentError
        The shapes do not fit.

    Examples
    --------
    >>> import jax
    >>> from fmnes.integrations import jax as fj
    >>> state = fj.init(jax.random.key(1), jax.numpy.ones(3), 0.5)
    >>> x, z = fj.ask(jax.random.key(2), state)
    >>> state = fj.tell(state, z, (x**2).sum(axis=1))
    """
    z, f = jnp.asarray(z, state.mean.dtype), jnp.asarray(f, state.mean.dtype)
    arguments.check_told(z, f, state.mean.shape[0], state.method.mirrored)
    with EXACT():
        backend = jax_backend()
        search = state.method.update(state.search, z, *rank(state.method, z, f, backend), backend)
    return replace(state, search=search)


def batch_axes(state: State) -> State:
    """Return `in_axes` and `out_axes` for a `vmap` over states with a common generation number.

    Decompositions are made once in several generations. With one number for the whole batch that stays a
    branch; with a number for each run `vmap` would compute one in every generation and discard most of them.

    Parameters
    ----------
    state : State
        The state.

    Returns
    -------
    State
        A state of axes.

    Examples
    --------
    >>> import jax
    >>> from fmnes.integrations import jax as fj
    >>> state = fj.init(jax.random.key(1), jax.numpy.ones(3), 0.5)
    >>> fj.batch_axes(state).search.mean
    0
    """
    return replace(state, search=shared_axes(state.search))


def run(
    fun: Callable[[Array], Array],
    x0: Array,
    sigma0: Array | None = None,
    *,
    key: Array,
    max_evaluations: int,
    method: str | Strategy = DEFAULT_METHOD,
    population_size: int | None = None,
    target: Any = None,
    batch: int | None = None,
    xtol: float | None = 1e-8,
    ftol: float | None = 1e-8,
    vary: Mapping[str, Any] | None = None,
    draws_at_once: int | None = None,
    devices: Any = None,
) -> Runs:
    """Minimise `fun` in one compiled loop; with `batch`, that many runs together.

    The same call again, with another key, start, target or budget, is not compiled again.

    Parameters
    ----------
    fun : callable
        Written in JAX; takes a point (d,) and returns a number. NaN and inf mean that the point failed.
    x0 : array_like
        Where to start, (d,), float32 or float64; or a start for each run, (batch, d).
    sigma0 : float or array_like
        The first step size; or one for each run, (batch,). It is required.
    key : jax.Array
        A `jax.random.key`. Run i of a batch has `jax.random.split(key, batch)[i]`.
    max_evaluations : int
        The budget of each run.
    method : str or Strategy, optional
        "afm-nes", "fm-nes", "xnes", "cma-es", … or settings such as `fmnes.FMNES(...)`.
    population_size : int, optional
        Points in a generation, of the first one if the method changes it; by default 4 + floor(3 ln d),
        rounded up to even; down to even if it changes.
    target : float or array_like, optional
        Stop as soon as a value is at most this; or one for each run, (batch,).
    batch : int, optional
        Number of runs. They share each generation and end one by one; the loop ends with the last.
    xtol : float or None, optional
        As in `fmnes.minimize`.
    ftol : float or None, optional
        As in `fmnes.minimize`; it is never below two units of rounding.
    vary : dict of str to array_like, optional
        Numeric settings of the method that differ between runs, such as
        {"ridge_threshold": jnp.linspace(1.1, 1.5, batch)}.
    draws_at_once : int, optional
        Evaluate the points of this number of draws at a time, for points that do not fit in memory.
    devices : int or sequence of jax.Device, optional
        How many, or which, such as `jax.devices()[:2]`. With `batch` they share the runs, and None means all
        that this process has. Otherwise they share the coordinates of one run of "cr-fm-nes", and None means
        the one on which x0 is, or those over which x0 is split.

    Returns
    -------
    Runs
        The best points, their values, and why the runs ended.

    Raises
    ------
    ArgumentError
        An argument is wrong.

    Examples
    --------
    >>> import jax
    >>> from fmnes.integrations import jax as fj
    >>> x0 = jax.numpy.ones(3)
    >>> result = fj.run(lambda x: (x**2).sum(), x0, 0.5, key=jax.random.key(1), max_evaluations=2000)
    >>> bool(result.fun < 1e-6)
    True
    """
    strategy = _strategy(method)
    batch = check_number("batch", batch, above=0, whole=True)
    x0, sigma0 = arguments.check_start(x0, sigma0, batch)
    d = x0.shape[-1]
    strategy, lam, most = _settled(strategy, _population_size(strategy, population_size, d), d)
    arguments.check_key(key)
    draws_at_once = arguments.check_chunk(draws_at_once, lam // 2 if strategy.mirrored else lam)
    targets = arguments.check_target(target, x0.dtype, batch)
    limits = Limits(
        max_evaluations=arguments.check_budget(max_evaluations),
        xtol=jnp.asarray(check_number("xtol", xtol, above=0) or 0.0, x0.dtype),
        ftol=arguments.check_ftol(ftol, x0.dtype),
    )
    settings = arguments.check_varied(strategy, vary, x0.dtype, batch)
    plan = Plan(
        fun=fun,
        strategy=strategy,
        population_size=lam,
        lockstep=batch is not None,
        draws_at_once=draws_at_once,
        most=most,
        devices=choose_devices(devices, x0, key, strategy, batch),
    )
    loop = compiled(plan, d, str(x0.dtype))
    if batch is not None:
        key = jax.random.split(key, batch)
    inputs = Inputs(key, x0, sigma0, targets, settings)
    if plan.devices:
        mean, progress = on_devices(loop, inputs, limits, plan.devices, batch)
    else:
        mean, progress = loop(inputs, limits)
    return Runs(
        x=progress.x,
        fun=progress.fun,
        nfev=progress.nfev,
        stop_reason=progress.code,
        nit=progress.nit,
        n_infeasible=progress.n_infeasible,
        x_mean=mean,
    )


def stop_reason(code: Any) -> Any:
    """Return the `fmnes.StopReason` of a number in `Runs.stop_reason`.

    Parameters
    ----------
    code : int or array_like
        The number, or an array of them.

    Returns
    -------
    StopReason or list of StopReason
        The reason; for an array a list.

    Raises
    ------
    IndexError
        There is no reason of this number.

    Examples
    --------
    >>> from fmnes.integrations import jax as fj
    >>> fj.stop_reason(0).name
    'TARGET'
    """
    codes = jnp.asarray(code)
    if codes.ndim == 0:
        return REASONS[int(codes)]
    reasons: list[StopReason] = [REASONS[i] for i in codes.tolist()]
    return reasons


def _strategy(method: Any) -> Strategy:
    if isinstance(method, Resampling):
        raise ArgumentError(
            "method: found Resampling, whose number of draws is not known in advance and so cannot be "
            "compiled; wanted a method without it, or fmnes.minimize"
        )
    return resolve(method)[0]


def _settled(strategy: Strategy, first: int, d: int) -> tuple[Strategy, int, int | None]:
    """The strategy, λ or the first one, and the largest one if it changes.

    Where it changes the `refresh` is that of the first: the runs of a batch share the generations in which
    axes are decomposed, and each is to be the run that it would be alone.
    """
    most = strategy.largest_population_size(first)
    if most <= first:
        return strategy, most, None
    return strategy.with_refresh(d, first), first, most


def _population_size(strategy: Strategy, asked: int | None, d: int) -> int:
    wanted = strategy.population_size
    if None not in (wanted, asked) and wanted != asked:
        raise ArgumentError(
            f"population_size: found {asked} here and {wanted} in the method's settings; wanted one of them"
        )
    wanted = wanted if asked is None else asked
    if wanted is None:
        wanted = strategy.default_population_size(d)
    return check_population_size(wanted, d, strategy.mirrored)
