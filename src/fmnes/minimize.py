"""The easy call: check the arguments, run the loop, restart where asked.

Everything it does, a user can do by hand with `Optimizer.ask` and `tell`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fmnes.arguments import check_number
from fmnes.errors import ArgumentError
from fmnes.evaluation.serial import Serial
from fmnes.loop import Loop
from fmnes.optimizer import Optimizer
from fmnes.report.progress import Progress
from fmnes.result import Result, View
from fmnes.strategies import Resampling, Strategy
from fmnes.strategies.checks import check_choice


def minimize(
    fun: Callable[[Any], Any],
    x0: ArrayLike,
    sigma0: ArrayLike,
    *,
    method: str | Strategy | Resampling = "fm-nes",
    population_size: int | None = None,
    bounds: Any = None,
    target: float | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    xtol: float | None = 1e-12,
    ftol: float | None = 1e-12,
    rng: int | np.random.Generator | None = None,
    vectorized: bool = False,
    retries: int = 2,
    on_error: Literal["infeasible", "raise"] = "infeasible",
    restarts: int = 0,
    callback: Callable[[View], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Minimise `fun`, whose evaluation may fail.

    A failed evaluation is one that returns NaN, ±inf or None, or raises: the point is ranked last and the
    search goes on. Raise `fmnes.Infeasible("why")` to give a reason, and `fmnes.Lost("why")` when the machine
    failed rather than the point: that point is tried again and never punished.

    Args:
        fun: takes a point (d,) and returns a number. With `vectorized`, takes (n, d) and returns (n,).
        x0: where to start, (d,). It is the mean of the first points and is not itself evaluated.
        sigma0: how far to look at first, about the distance to the optimum: a number, or one per coordinate.
        method: "fm-nes", "dx-nes-ic", "xnes", "cma-es", or settings such as `fmnes.FMNES(...)`.
        population_size: points per generation; by default 4 + floor(3 ln d), rounded up to even.
        bounds: (lower, upper), numbers or vectors. A point outside counts as failed and is never evaluated.
        target: stop as soon as a value is at most this.
        max_evaluations, max_seconds: budgets. A generation that the budget cuts makes no update.
        xtol, ftol: stop when steps are below xtol × sigma0, or when the values of many generations agree to
            ftol of their magnitude; None switches a test off.
        rng: a seed, a NumPy Generator, or None for a fresh seed (`result.seed` tells which).
        retries: how often a lost evaluation is tried again before the run stops with LOST.
        on_error: "infeasible" takes an exception for a failed evaluation; "raise" lets it through. Either way
            a first generation that raises one and the same exception throughout stops: that is a bug.
        restarts: further runs, each with twice the population, when one ends without the target.
        callback: called with a `View` after every generation; return True or raise StopIteration to stop.
        progress: show a progress line on stderr.
    """
    if not callable(fun):
        raise ArgumentError(f"fun: found {fun!r}, wanted a function of one point")
    check_choice("on_error", on_error, ("infeasible", "raise"))
    max_seconds = check_number("max_seconds", max_seconds, above=0)
    retries = check_number("retries", retries, above=-1, whole=True) or 0
    restarts = check_number("restarts", restarts, above=-1, whole=True) or 0

    def optimizer(population_size: int | None, rng: Any, max_evaluations: int | None) -> Optimizer:
        return Optimizer(
            x0,
            sigma0,
            method=method,
            population_size=population_size,
            bounds=bounds,
            rng=rng,
            target=target,
            max_evaluations=max_evaluations,
            xtol=xtol,
            ftol=ftol,
        )

    opt = optimizer(population_size, rng, max_evaluations)
    seed = opt.seed
    evaluator = Serial(fun, on_error)
    loop = Loop(
        evaluate=(lambda: loop.vectorized_wave(fun)) if vectorized else (lambda: loop.wave(evaluator)),
        opt=opt,
        retries=retries,
        deadline=None if max_seconds is None else time.monotonic() + max_seconds,
        callback=callback,
        progress=Progress() if progress else None,
    )
    try:
        stop = loop.run()
        for _ in range(restarts):
            spent = loop.spent + loop.opt.evaluations
            if not stop.reason.restartable or (max_evaluations is not None and spent >= max_evaluations):
                break
            left = None if max_evaluations is None else max_evaluations - spent
            loop.restart(_doubled(loop.opt, method, optimizer, left))
            stop = loop.run()
    finally:
        evaluator.close()
    return replace(loop.result(stop), seed=seed)


def _doubled(opt: Optimizer, method: Any, make: Callable[..., Optimizer], left: int | None) -> Optimizer:
    """A fresh optimizer with twice the population, going on with the same random numbers."""
    inner = method.strategy if isinstance(method, Resampling) else method
    if not isinstance(inner, str) and inner.population_size is not None:
        raise ArgumentError(
            "restarts: found a population_size in the method's settings, which would stay as it is; "
            "wanted it given to minimize instead"
        )
    return make(2 * opt.population_size, opt._rng, left)
