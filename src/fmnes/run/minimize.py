"""The easy call: check the arguments, choose who evaluates, run the loop.

Everything it does, a user can do by hand with `Optimizer.ask` and `tell`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from fmnes.arguments import check_callback, check_flag, check_path, suggest_options
from fmnes.errors import ArgumentError
from fmnes.evaluation.objective import Objective, describe_objective
from fmnes.evaluation.programs.command import Command
from fmnes.parameters import Parameter
from fmnes.result import Named, Result, Vector, View, X
from fmnes.run.loop import check_origin
from fmnes.run.session import run_session
from fmnes.run.settings import (
    RunConfig,
    Settings,
    batch_size,
    describe_search,
    evaluations_with_models,
    population_for,
    versions,
    worker_count,
)
from fmnes.run.snapshots import RunState
from fmnes.run.state import StartPoint
from fmnes.run.warm_start import parameters_of, warm_start_arguments
from fmnes.search.advance import explore_box
from fmnes.search.modelled import use_surrogate
from fmnes.search.optimizer import Optimizer
from fmnes.space import unpack
from fmnes.storage.directory import RunDirectory
from fmnes.strategies import DEFAULT_METHOD, Resampling, Strategy, is_known

if TYPE_CHECKING:
    from typing import Unpack

    from fmnes.run.options import (
        ArrayObjective,
        NamedObjective,
        Returned,
        RunOptions,
        VectorizedNamedObjective,
        VectorizedObjective,
    )


@overload  # named parameters
def minimize(
    fun: VectorizedNamedObjective,
    x0: Mapping[str, Parameter],
    sigma0: None = None,
    *,
    vectorized: Literal[True],
    warm_start: Result[Any] | str | os.PathLike[str] | None = None,
    callback: Callable[[View[Named]], Any] | None = None,
    **options: Unpack[RunOptions],
) -> Result[Named]: ...
@overload
def minimize(
    fun: NamedObjective,
    x0: Mapping[str, Parameter],
    sigma0: None = None,
    *,
    vectorized: bool = False,
    warm_start: Result[Any] | str | os.PathLike[str] | None = None,
    callback: Callable[[View[Named]], Any] | None = None,
    **options: Unpack[RunOptions],
) -> Result[Named]: ...
@overload  # arrays
def minimize(
    fun: VectorizedObjective,
    x0: ArrayLike | None = None,
    sigma0: ArrayLike | None = None,
    *,
    vectorized: Literal[True],
    bounds: Any = None,
    integers: Any = None,
    warm_start: Result[Vector] | None = None,
    callback: Callable[[View[Vector]], Any] | None = None,
    **options: Unpack[RunOptions],
) -> Result[Vector]: ...
@overload
def minimize(
    fun: ArrayObjective,
    x0: ArrayLike | None = None,
    sigma0: ArrayLike | None = None,
    *,
    vectorized: bool = False,
    bounds: Any = None,
    integers: Any = None,
    warm_start: Result[Vector] | None = None,
    callback: Callable[[View[Vector]], Any] | None = None,
    **options: Unpack[RunOptions],
) -> Result[Vector]: ...
@overload  # of the kind that an earlier run had
def minimize(
    fun: Callable[[Any], Returned],
    x0: ArrayLike | None = None,
    sigma0: ArrayLike | None = None,
    *,
    vectorized: bool = False,
    bounds: Any = None,
    integers: Any = None,
    warm_start: Result[X] | str | os.PathLike[str],
    callback: Callable[[View[X]], Any] | None = None,
    **options: Unpack[RunOptions],
) -> Result[X]: ...
@suggest_options
def minimize(
    fun: Callable[[Any], Any],
    x0: ArrayLike | Mapping[str, Parameter] | None = None,
    sigma0: ArrayLike | None = None,
    *,
    method: str | Strategy | Resampling = DEFAULT_METHOD,
    population_size: int | Literal["workers"] | None = None,
    bounds: Any = None,
    bounds_as: Literal["map", "failure"] = "map",
    integers: Any = None,
    target: float | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    xtol: float | None = 1e-8,
    ftol: float | None = 1e-8,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    executor: Any = None,
    vectorized: bool = False,
    timeout: float | None = None,
    retries: int = 2,
    on_error: Literal["infeasible", "raise"] = "infeasible",
    restarts: int | Literal["bipop"] = 0,
    restart_from: Literal["start", "best", "uniform"] | None = None,
    second_look: bool = True,
    evaluate_start: bool = True,
    known: Any = (),
    covariance: ArrayLike | None = None,
    warm_start: Result | str | os.PathLike[str] | None = None,
    constraints: Any = None,
    overlap: float = 0.0,
    surrogate: Literal["auto"] | bool = "auto",
    noise: Literal["auto"] | bool = "auto",
    keep_evaluations: bool = False,
    run_dir: str | os.PathLike[str] | None = None,
    callback: Callable[[View], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Minimise `fun`, whose evaluation may fail.

    An evaluation fails if it returns NaN, ±inf or None, or raises an exception. A failed point is ranked last
    and the search continues. To give a reason, raise `fmnes.Infeasible("why")`. If the machine failed rather
    than the point, raise `fmnes.Lost("why")`: the point is evaluated again and never counts as failed.

    Parameters
    ----------
    fun : callable or Command
        The objective. It takes a point (d,) and returns a number, or a number and a dict of further outputs.
        With `vectorized`, it takes (n, d) and returns (n,). An external program is a `fmnes.Command`.
    x0 : array_like or dict of str to Real, Integer or Categorical, optional
        Where to start, (d,): the first point that is evaluated, and the mean of the first generation. With
        finite `bounds` the default is their centre; if it fails, "afm-nes" looks for a point that works all
        over the box, and starts there. With named parameters, {"width": fmnes.Real(0.1, 10)},
        `fun` receives a dict of values, {"width": 1.0}, in the user's units (with `vectorized`, each value is
        an array), `result.x` is such a dict, and `sigma0`, `bounds` and `integers` are part of the
        parameters.
    sigma0 : float or array_like, optional
        The first step size, about the distance to the optimum: a number, or one per coordinate. With finite
        `bounds` the default is a quarter of the width in each coordinate, and less in more than ten
        dimensions.
    method : str or Strategy or Resampling, optional
        "afm-nes", "fm-nes", "dx-nes-ic", "xnes", "cma-es", "cr-fm-nes", or settings such as
        `fmnes.AFMNES(...)`.
    population_size : int or "workers", optional
        Points in the first generation; about 4 + 3 ln d by default. "afm-nes" draws more where points fail,
        up to four times as many or `AFMNES(max_population_size=...)`. "workers": the number of workers if
        that is larger than the default, and at most 50 d.
    bounds : sequence or Bounds, optional
        A pair (lower, upper) for each coordinate as in SciPy, one pair of numbers for all of them, SciPy's
        Bounds, or `fmnes.Bounds(lower, upper)` of numbers or vectors; None or inf for no bound. Every point
        that is evaluated or returned is inside.
    bounds_as : {"map", "failure"}, optional
        "map" bends the search smoothly at the bounds, so that no point is outside. "failure" treats a point
        outside as failed, without evaluating it.
    integers : bool or float or sequence, optional
        For each coordinate True for whole numbers, or the width of its steps (0.25: quarters, counted from
        the lower bound or else from 0), and False, 0 or None for any real number; or one of these for all. If
        every coordinate is discrete, no point is evaluated twice.
    target : float, optional
        Stop as soon as a value is at most this.
    max_evaluations : int, optional
        Budget of evaluations. A generation that the budget cuts short makes no update.
    max_seconds : float, optional
        Budget of time.
    xtol : float or None, optional
        Stop when steps are below `xtol` × `sigma0`; None switches the test off.
    ftol : float or None, optional
        Stop when the values of many generations agree to `ftol` of their magnitude; None switches the test
        off.
    rng : int or numpy.random.Generator, optional
        A seed, a Generator, or None for a fresh seed, which `result.seed` reports.
    workers : int, optional
        Number of worker processes (-1: one per core). A crash, a hang or a kill costs one evaluation only.
        The results are those of `workers=1`.
    executor : Executor or FileQueue, optional
        Evaluate through any `concurrent.futures.Executor` instead, or through an adapter for a cluster such
        as `fmnes.integrations.dask.executor(client)`.
    vectorized : bool, optional
        `fun` takes all points of a generation at once; what it raises is raised.
    timeout : float, optional
        Seconds after which an evaluation is killed, with every process it has started, and has failed.
    retries : int, optional
        How often a lost evaluation is repeated before the run stops with LOST.
    on_error : {"infeasible", "raise"}, optional
        "infeasible" treats an exception as a failed evaluation; "raise" passes it on. In both cases a first
        generation in which every evaluation raises the same exception stops the run: that is a bug.
    restarts : int or "bipop", optional
        Further searches, each with twice the population, when one ends without reaching the target. "bipop"
        mixes in small populations with shorter steps (Hansen 2009) until the budget ends, or 9 doublings.
    restart_from : {"start", "best", "uniform"}, optional
        Where restarts begin: at x0, at the best point so far, or anywhere inside finite bounds. By default at
        x0; with "afm-nes" and finite `bounds`, in basins that no search was in, or at x0 with twice the
        population, and a search ends where it cannot gain any more.
    second_look : bool, optional
        If a search converges (without a target) where points fail, search again from its best point, with
        longer steps and four times the population, before success is reported.
    evaluate_start : bool, optional
        Evaluate x0 first; False saves this evaluation.
    known : sequence of pairs, optional
        Pairs (x, value) from before: they are remembered, and the best one is kept, at no cost. The value is
        None or NaN for a point that fails.
    covariance : array_like, optional
        Covariance (d, d) of the first points instead of the identity; `sigma0`, if given too, replaces its
        scale. Not for "cma-es" and "cr-fm-nes".
    warm_start : Result or path, optional
        A result or a run directory to start from: its best point, and its shape with longer steps. x0, sigma0
        and covariance given here take precedence; of named parameters only the bounds do. Its values are not
        taken over: see `known`.
    constraints : dict or sequence, optional
        Limits on what `fun` reports beside its value: {"stress": (None, 250.0), "mass": (2.5, None)}, a pair
        (lower, upper) or a `fmnes.Constraint` for each output. `fun` then returns its value with a dict of
        outputs, `(value, {"stress": 212.0, "mass": 3.1})`. Equal limits are an equality. Or a list of limits,
        and `fun` returns `(value, [g1, g2])`. A missing output, or one that is NaN, is a failed evaluation.
    overlap : float, optional
        With `workers`: the share of a generation, from 0 to 1, that may be handed out early to workers that
        would wait for its slowest evaluation; these points belong to the next generation. If evaluation times
        differ, this saves half of the time or more, but the run cannot be repeated exactly.
    surrogate : {"auto", True, False}, optional
        Save evaluations with models of the values and of the failures: the models propose the first points,
        and later decide which points of a generation are evaluated. "auto": for "afm-nes" in at most 40
        dimensions with a budget of at most 200 evaluations per dimension, or with a `Command`; with
        `constraints`, also in the first 50 evaluations per dimension of any budget, in at most 20 dimensions.
        The models propose as many points at a time as there are workers.
    noise : {"auto", True, False}, optional
        Whether values at the same point may differ. "auto": "afm-nes" evaluates its best point again after
        10, 20, 40, … generations. When a value differs, every fifth generation evaluates one point twice,
        the search takes smaller steps where noise hides the differences, follows a function fitted to the
        last points, and at the end evaluates the point with the best estimated mean several times: see
        `fmnes.result.Noise`. True samples from the start; False takes values as exact. Not with
        `constraints`, `overlap` and published methods, and not if every coordinate is discrete.
    keep_evaluations : bool, optional
        Keep every evaluation in `result.evaluations`, a table; `to_pandas()` makes a DataFrame of it.
    run_dir : path, optional
        A new directory that stores every evaluation and the state; `fmnes.resume` continues from it.
    callback : callable, optional
        Called with a `View` after every generation; return True or raise StopIteration to stop.
    progress : bool, optional
        Show a progress line on stderr.

    Returns
    -------
    Result
        The best point found, why the run ended, and why evaluations failed. `x` is an array, or a dict with
        named parameters.

    Raises
    ------
    ArgumentError
        An argument is wrong; nothing was evaluated.
    ObjectiveError
        The objective looks broken: every evaluation of the first generation raised the same exception, or a
        vectorised objective returned values of the wrong shape.
    RunError
        `run_dir` cannot be used.

    Examples
    --------
    >>> import math
    >>> import fmnes
    >>> def simulate(x):
    ...     return x[0] + x[1] - math.log(x[0] * x[1])  # ValueError for a negative product
    >>> result = fmnes.minimize(simulate, x0=[3.0, 2.0], sigma0=0.5, rng=1)
    >>> result.x.round(3)
    array([1., 1.])

    With named parameters:

    >>> space = {"width": fmnes.Real(0.1, 10, log=True), "layers": fmnes.Integer(1, 12)}
    >>> def cost(p):
    ...     return (p["width"] - 2) ** 2 + p["layers"]
    >>> result = fmnes.minimize(cost, space, target=1.001, rng=1)
    >>> result.x["layers"], result.success
    (1, True)
    """
    if callable(x0) and not callable(fun):
        raise ArgumentError("fun: found a point before the function, wanted minimize(fun, x0, sigma0)")
    check_callback(callback)
    check_flag("progress", progress)
    check_flag("keep_evaluations", keep_evaluations)
    if run_dir is not None:
        check_path("run_dir", run_dir)
    settings = Settings(
        max_evaluations=max_evaluations,
        max_seconds=max_seconds,
        workers=workers,
        vectorized=vectorized,
        timeout=timeout,
        retries=retries,
        on_error=on_error,
        restarts=restarts,
        target=target,
        restart_from=restart_from,
        second_look=second_look,
        evaluate_start=evaluate_start,
    )
    if x0 is None and warm_start is not None:
        x0 = parameters_of(warm_start)
    space, start = unpack(x0, sigma0, bounds=bounds, integers=integers, covariance=covariance, known=known)
    started = warm_start is not None or (x0 is not None if space is None else space.has_start)
    if warm_start is not None:
        start |= warm_start_arguments(warm_start, start, method, space)
    if isinstance(population_size, str) and population_size == "workers":
        usual = Optimizer(**start, method=method, bounds_as=bounds_as, rng=0)
        crew = worker_count(settings.workers, executor, settings.vectorized)
        population_size = population_for(crew, len(usual.x0), usual.population_size)
    opt = Optimizer(
        **start,
        method=method,
        population_size=population_size,
        bounds_as=bounds_as,
        rng=rng,
        target=target,
        max_evaluations=max_evaluations,
        xtol=xtol,
        ftol=ftol,
        overlap=overlap,
        constraints=constraints,
        noise=noise,
    )
    plain = bool(opt.overlap) or population_size is not None or bounds_as != "map"
    until = evaluations_with_models(surrogate, settings, opt, program=isinstance(fun, Command), plain=plain)
    if until != 0:
        use_surrogate(opt, batch_size(settings, executor), until)
    explore_box(opt, not started, bool(settings.restarts) and settings.restart_from is None)
    check_origin(opt, settings.restart_from)
    _check_can_be_kept(opt, run_dir)
    # Made first: whatever is wrong with the objective is said before a directory is made.
    objective = Objective(fun, len(opt.x0), space, settings.vectorized, opt.limits)
    evaluator = settings.evaluator(objective, executor, run_dir, opt.overlap)
    state = RunState(opt, start=StartPoint(open=settings.evaluate_start))
    config = RunConfig(settings, describe_objective(fun), describe_search(opt), versions(), space, opt.limits)
    kept_as = config.coordinates(len(opt.x0)) if keep_evaluations else None
    try:
        directory = None if run_dir is None else RunDirectory.create(run_dir, config.as_json())
    except BaseException:
        evaluator.close()
        raise
    with directory or nullcontext():
        return run_session(
            state,
            settings,
            evaluator,
            directory=directory,
            space=space,
            callback=callback,
            progress=progress,
            kept_as=kept_as,
        )


def _check_can_be_kept(opt: Optimizer, run_dir: Any) -> None:
    if run_dir is not None and not is_known(opt.strategy):
        raise ArgumentError(
            f"method: found {opt.strategy!r}, which is not registered, together with run_dir: such a run "
            f"could not be resumed; call fmnes.strategies.register with its class, or pass no run_dir"
        )
