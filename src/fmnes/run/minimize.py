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

from fmnes.arguments import check_callback, check_flag, check_path, names_options
from fmnes.errors import ArgumentError
from fmnes.evaluation.ahead import check_takes_ahead
from fmnes.parameters import Parameter
from fmnes.result import Named, Result, Vector, View, X
from fmnes.run.crew import count_crew, population_for
from fmnes.run.searches import StartPoint
from fmnes.run.session import run_session
from fmnes.run.settings import Settings, describe_objective, describe_search, versions
from fmnes.run.snapshots import RunState
from fmnes.run.warm import parameters_of, warmed
from fmnes.run.words import words_of
from fmnes.search.optimizer import Optimizer
from fmnes.space import Space, unpack
from fmnes.storage.directory import RunDirectory
from fmnes.strategies import DEFAULT_METHOD, METHODS, Resampling, Strategy, is_known

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
@names_options
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
    xtol: float | None = 1e-12,
    ftol: float | None = 1e-12,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    executor: Any = None,
    vectorized: bool = False,
    timeout: float | None = None,
    retries: int = 2,
    on_error: Literal["infeasible", "raise"] = "infeasible",
    restarts: int | Literal["bipop"] = 0,
    restart_from: Literal["start", "best", "uniform"] = "start",
    second_look: bool = True,
    evaluate_start: bool = True,
    known: Any = (),
    covariance: ArrayLike | None = None,
    warm_start: Result | str | os.PathLike[str] | None = None,
    ahead: float = 0.0,
    keep_evaluations: bool = False,
    run_dir: str | os.PathLike[str] | None = None,
    callback: Callable[[View], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Minimise `fun`, whose evaluation may fail.

    A failed evaluation is one that returns NaN, ±inf or None, or raises: the point is ranked last and the
    search goes on. Raise `fmnes.Infeasible("why")` to give a reason, and `fmnes.Lost("why")` when the machine
    failed rather than the point: that point is tried again and never punished.

    Args:
        fun: takes a point (d,) and returns a number, or is a `fmnes.Command`. With `vectorized`, takes (n, d)
            and returns (n,).
        x0: where to start, (d,): it is evaluated first, and is the mean of the first points. With finite
            bounds it may be left out: their centre. Or named parameters, {"width": fmnes.Real(0.1, 10)}:
            then `fun` is called with a dict of that kind, {"width": 1.0}, in the user's units (with
            `vectorized`, each value is an array), sigma0, bounds and integers are said by them, and
            `result.x` is such a dict.
        sigma0: how far to look at first, about the distance to the optimum: a number, or one per coordinate.
            With finite bounds it may be left out: a quarter of the width in each coordinate, and
            less in more than ten dimensions.
        method: "afm-nes", "fm-nes", "dx-nes-ic", "xnes", "cma-es", "cr-fm-nes", or settings such as
            `fmnes.AFMNES(...)`.
        population_size: points of the first generation; by default about 4 + 3 ln d. "afm-nes" draws more
            where points fail, up to four times as many or `AFMNES(max_population_size=...)`. "workers": as
            many as there are workers, if those are more than by default, and at most 50 d.
        bounds: a pair (lower, upper) for each coordinate as in SciPy, one pair of numbers for all of them,
            SciPy's Bounds, or `fmnes.Bounds(lower, upper)` of numbers or vectors; None or inf for no bound.
            Every point that is evaluated or returned is inside.
        bounds_as: "map" bends the search smoothly at the bounds, so that nothing fails there; "failure" takes
            a point outside for a failed one, at no cost.
        integers: for each coordinate True for whole numbers, or the width of its steps (0.25: quarters,
            counted from the lower bound or else from 0), and False, 0 or None for any real number; or one of
            these for all. Where every coordinate is discrete, no point is evaluated twice.
        target: stop as soon as a value is at most this.
        max_evaluations, max_seconds: budgets. A generation that the budget cuts makes no update.
        xtol, ftol: stop when steps are below xtol × sigma0, or when the values of many generations agree to
            ftol of their magnitude; None switches a test off.
        rng: a seed, a NumPy Generator, or None for a fresh seed (`result.seed` tells which).
        workers: evaluate in so many processes of ours (-1: one per core). A crash, a hang or a kill costs one
            evaluation and nothing else; the results are those of workers=1.
        executor: evaluate through any `concurrent.futures.Executor` instead, or by an adapter for a cluster
            such as `fmnes.integrations.dask.executor(client)`.
        vectorized: `fun` takes all points of a generation at once; what it raises is raised.
        timeout: seconds after which an evaluation is killed, with everything it has started, and has failed.
        retries: how often a lost evaluation is tried again before the run stops with LOST.
        on_error: "infeasible" takes an exception for a failed evaluation; "raise" lets it through. Either way
            a first generation that raises one and the same exception throughout stops: that is a bug.
        restarts: further searches, each with twice the population, when one ends without the target; "bipop"
            mixes in small ones with shorter steps (Hansen 2009) until the budget ends, or 9 doublings.
        restart_from: where they start: at x0, at the best point so far, or anywhere inside finite bounds.
        second_look: a search that converges (without a target) where points fail is looked at again, from its
            best point with longer steps and four times the population, before it is called a success.
        evaluate_start: evaluate x0 before all else; False saves the one evaluation.
        known: [(x, value), ...] from before: remembered, and the best of them kept, at no evaluation. None or
            NaN for a point that fails.
        covariance: of the first points, (d, d), instead of a round cloud; sigma0, if given too, replaces its
            scale. Not for "cma-es" and "cr-fm-nes".
        warm_start: a `Result` or a run directory to begin from: its best point, and its shape with wider
            steps. x0, sigma0 and covariance given here win; of named parameters only the bounds do. Its
            values are not taken over: see `known`.
        ahead: with `workers`, up to this share of a generation, from 0 to 1, is handed out beyond it to those
            who would have to wait for its slowest evaluation, and belongs to the next one. Where evaluations
            take different times that saves half of the time or more; but the run is not the same run again.
        keep_evaluations: leave every evaluation in `result.evaluations`, a table; `to_pandas()` makes a
            DataFrame of it.
        run_dir: a new directory that keeps every evaluation and the state; `fmnes.resume` goes on from it.
        callback: called with a `View` after every generation; return True or raise StopIteration to stop.
        progress: show a progress line on stderr.
    """
    if callable(x0) and not callable(fun):
        raise ArgumentError("fun: found a point before the function, wanted minimize(fun, x0, sigma0)")
    check_callback(callback)
    check_flag("vectorized", vectorized)
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
    if warm_start is not None:
        start |= warmed(warm_start, start, method, space)
    if isinstance(population_size, str) and population_size == "workers":
        usual = Optimizer(**start, method=method, bounds_as=bounds_as, rng=0)
        crew = count_crew(settings.workers, executor, vectorized)
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
        ahead=ahead,
    )
    _check_together(opt, restart_from, run_dir)
    # Made first: whatever is wrong with the objective is said before a directory is made.
    evaluator = settings.evaluator(fun, executor, len(opt.x0), run_dir, space)
    check_takes_ahead(evaluator, opt.ahead)
    state = RunState(opt, start=StartPoint(open=bool(evaluate_start)))
    config = _describe_run(fun, settings, opt, space)
    kept_as = words_of(config, len(opt.x0)) if keep_evaluations else None
    try:
        directory = None if run_dir is None else RunDirectory.create(run_dir, config)
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


def _check_together(opt: Optimizer, restart_from: str, run_dir: Any) -> None:
    """What is wrong only beside another argument."""
    if restart_from == "uniform" and not opt.has_finite_bounds:
        raise ArgumentError(
            "restart_from: found 'uniform' and not all bounds finite; wanted finite bounds, or 'start'"
        )
    if run_dir is not None and not is_known(opt.strategy):
        raise ArgumentError(
            f"method: found {opt.strategy!r}, a strategy of your own, together with run_dir: such a run can "
            f"never be resumed; wanted one of {', '.join(METHODS)}, or no run_dir"
        )


def _describe_run(fun: Any, settings: Settings, opt: Optimizer, space: Space | None) -> dict[str, Any]:
    """What its directory remembers of it."""
    config: dict[str, Any] = {
        "settings": settings.as_json(),
        "objective": describe_objective(fun),
        "search": describe_search(opt),
        "versions": versions(),
    }
    if space is not None:
        config["parameters"] = space.as_json()
    return config
