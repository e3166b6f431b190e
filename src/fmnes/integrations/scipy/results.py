"""What SciPy's users are told: their callback, in its two forms, and the OptimizeResult."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from fmnes.arguments import check_callback, check_count
from fmnes.integrations.scipy.objective import Free
from fmnes.result import Result, StopReason, View

#: Of runs that are no success. 1, 2 and 99 are SciPy's own.
_MAXITER = 2
_STATUS = {
    StopReason.MAX_EVALUATIONS: 1,
    StopReason.MAX_SECONDS: 3,
    StopReason.NO_FEASIBLE: 4,
    StopReason.LOST: 5,
    StopReason.CALLBACK: 99,
}
_ANY_OTHER = 6


class Watcher:
    """Called after each generation: tells the user's callback, and counts up to `maxiter`."""

    def __init__(self, callback: Any, maxiter: Any, free: Free, *, with_convergence: bool = False) -> None:
        check_callback(callback)
        self._callback = None if callback is None else _called(callback, with_convergence)
        unlimited = maxiter is None or (isinstance(maxiter, float) and maxiter == np.inf)
        self._maxiter = None if unlimited else check_count("maxiter", maxiter, 1)
        self._free = free
        self._generations = 0
        self.has_counted_out = False
        """Whether `maxiter` ended the run."""

    def __call__(self, view: View) -> bool:
        self._generations += 1
        if self._callback is not None and self._callback(self._seen(view)):
            return True
        self.has_counted_out = self._generations == self._maxiter
        return self.has_counted_out

    def _seen(self, view: View) -> OptimizeResult:
        best = view.best.x
        return OptimizeResult(
            x=self._free.x.copy() if best is None else self._free.whole(best),
            fun=view.best.fun,
            nit=self._generations,
            nfev=view.evaluations,
            nfail=view.n_infeasible,
            x_mean=self._free.whole(view.mean),
        )


def _called(callback: Callable[..., Any], with_convergence: bool) -> Callable[[OptimizeResult], bool]:
    """The callback as a function of one result, in the form that its parameters show."""
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # some built-in functions have none
        return lambda seen: callback(seen.x) is True
    if set(signature.parameters) == {"intermediate_result"}:
        return lambda seen: _is_true(callback(intermediate_result=seen), with_convergence)
    if with_convergence and _takes_two(signature):
        # How far differential evolution has converged is nobody's number here.
        return lambda seen: _is_true(callback(seen.x, np.nan), True)
    return lambda seen: _is_true(callback(seen.x), with_convergence)


def _takes_two(signature: inspect.Signature) -> bool:
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def _is_true(answer: Any, anything: bool) -> bool:
    """differential_evolution ends at anything that is true; what `minimize` calls may return anything."""
    return bool(answer) if anything else isinstance(answer, (bool, np.bool_)) and bool(answer)


def optimize_result(result: Result, watcher: Watcher, free: Free) -> OptimizeResult:
    """Where no evaluation succeeded, x is the start and fun is inf: SciPy's users go on from x."""
    success = bool(result.success and np.isfinite(result.fun))
    reason, message = result.stop_reason, result.message
    assert reason is not None, "a run has ended"
    status = 0 if success else _STATUS.get(reason, _ANY_OTHER)
    if reason is StopReason.CALLBACK and watcher.has_counted_out:
        status, message = _MAXITER, f"the maximum number of iterations was reached ({result.nit})"
    more = {} if result.evaluations is None else {"evaluations": result.evaluations}
    return OptimizeResult(
        x=free.x.copy() if result.x is None else free.whole(result.x),
        fun=float(result.fun),
        success=success,
        status=status,
        message=message,
        nfev=result.nfev,
        nit=result.nit,
        nfail=result.n_infeasible,
        x_mean=free.whole(result.x_mean),
        failures=[replace(failure, x=free.whole(failure.x)) for failure in result.failures],
        stop_reason=reason,
        seed=result.seed,
        sigma0=result.sigma0,
        history=result.history,
        **more,
    )
