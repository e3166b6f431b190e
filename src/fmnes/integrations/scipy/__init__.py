"""Our methods where SciPy's users are: a method of `scipy.optimize.minimize`, and a neighbour of
`differential_evolution`.

    from scipy.optimize import minimize
    from fmnes.integrations.scipy import evolution_strategy, fmnes

    minimize(fun, x0, method=fmnes, bounds=bounds, options={"sigma0": 0.5})
    evolution_strategy(fun, bounds, workers=4)

Both return SciPy's OptimizeResult, in which an evaluation that failed is counted and explained.
"""

from __future__ import annotations

import inspect
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fmnes.errors import MissingExtra

try:
    from scipy.optimize import OptimizeResult, OptimizeWarning
except ImportError as error:
    raise MissingExtra("fmnes.integrations.scipy", "scipy") from error

from fmnes.arguments import (
    MIN_SIGMA0,
    check_callback,
    check_count,
    check_flag,
    check_number,
    check_x0,
    option_alias,
    shown,
)
from fmnes.bounds import Bounds, check_inside, first_step, read_bounds, start_from
from fmnes.constraints import ConstraintResult
from fmnes.errors import ArgumentError, nearest
from fmnes.integrations.scipy.objective import (
    Free,
    MapLike,
    make_objective,
    read_constraints,
    without_gradient,
)
from fmnes.outcome import from_return
from fmnes.result import Result, StopReason, Vector, View
from fmnes.run.minimize import minimize

__all__ = ["evolution_strategy", "fmnes"]


# -- SciPy's words for our options, what is not among them, and where a search of SciPy's users begins.

#: What goes on to `fmnes.minimize` as it is.
OPTIONS = frozenset(inspect.signature(minimize).parameters) - {"fun", "x0", "bounds", "callback"}
#: Our option for each of SciPy's. (`maxiter` and `tol` are more than a name.)
_CALLED = {
    "maxfev": "max_evaluations",
    "maxfun": "max_evaluations",
    "seed": "rng",
    "disp": "progress",
    "integrality": "integers",
}


def read_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Options by our names; and unknown ones, each with a hint."""
    known: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name, value in options.items():
        ours = _CALLED.get(name, name)
        if ours not in OPTIONS:
            unknown[name] = _meant(name)
        elif ours in known:
            raise ArgumentError(f"{name}: found together with another name of it; wanted one of them")
        else:
            known[ours] = _FORMS.get(ours, lambda found: found)(value)
    workers = known.get("workers", 1)
    if callable(workers):
        if known.get("executor") is not None:
            raise ArgumentError("executor: found together with workers; wanted one of them")
        known |= {"workers": 1, "executor": MapLike(workers)}
    return known, unknown


def _meant(name: str) -> str:
    if wanted := option_alias(name, OPTIONS):
        return f" (wanted {wanted})"
    guess = nearest(name, [*OPTIONS, *_CALLED, "maxiter", "tol"]).removeprefix("; ")
    return f" ({guess})" if guess else ""


def _limit(found: Any) -> Any:
    """No limit is None or, in SciPy, inf."""
    return None if isinstance(found, float) and found == np.inf else found


def _generator(found: Any) -> Any:
    """All that SciPy takes for a source of randomness."""
    if isinstance(found, np.random.RandomState):
        return np.random.default_rng(found.randint(0, 2**32, size=8, dtype=np.uint32))
    if isinstance(found, (np.random.SeedSequence, np.random.BitGenerator)):
        return np.random.default_rng(found)
    return found


_FORMS: dict[str, Callable[[Any], Any]] = {"max_evaluations": _limit, "rng": _generator, "progress": bool}


def read_box(bounds: Any, d: int | None) -> Bounds | None:
    """Bounds in SciPy's forms: a sequence is always of pairs, and the two of a pair may be equal."""
    if isinstance(bounds, (list, tuple)):
        bounds = [tuple(pair) if isinstance(pair, np.ndarray) and pair.ndim else pair for pair in bounds]
    return read_bounds(bounds, d, may_be_equal=True)


def first_steps(x: Vector, bounds: Bounds | None) -> Vector:
    """Initial steps: `bounds.first_step` between two bounds; otherwise |x| / 2, and 1 where x is 0."""
    steps = np.where(np.abs(x) / 2 >= MIN_SIGMA0, np.abs(x) / 2, 1.0)
    if bounds is None:
        return steps
    between = first_step(bounds.lower, bounds.upper, len(x))
    return np.where(np.isfinite(between), between, steps)


def warn(message: str, category: type[Warning]) -> None:
    """At the user's own line, which is beyond SciPy's as well as ours."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in ("fmnes", "scipy"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def even_size(popsize: Any, d: int) -> int:
    """The population of differential_evolution: `popsize` points per coordinate."""
    if isinstance(popsize, bool) or not isinstance(popsize, (int, float, np.number)) or not 0 < popsize < 1e9:
        raise ArgumentError(
            f"popsize: found {shown(popsize)}, wanted how many times as many points as there are coordinates"
        )
    size = max(4, int(np.ceil(popsize * d)))
    return size + size % 2


# -- SciPy's two forms of a callback, and the OptimizeResult.


#: Status of unsuccessful runs. 1, 2 and 99 are SciPy's own.
_MAXITER = 2
_STATUS = {
    StopReason.MAX_EVALUATIONS: 1,
    StopReason.MAX_SECONDS: 3,
    StopReason.NO_FEASIBLE: 4,
    StopReason.LOST: 5,
    StopReason.CALLBACK: 99,
}
_ANY_OTHER = 6


def _violation(found: ConstraintResult) -> float:
    """How far an output is beyond its limits, tolerance included."""
    above = -np.inf if found.upper is None else found.value - found.upper
    below = -np.inf if found.lower is None else found.lower - found.value
    return float(max(above, below, 0.0))


class Watcher:
    """Called after each generation: tells the user's callback, and counts up to `maxiter`."""

    def __init__(self, callback: Any, maxiter: Any, free: Free, *, with_convergence: bool = False) -> None:
        check_callback(callback)
        self._callback = None if callback is None else _called(callback, with_convergence)
        unlimited = maxiter is None or (isinstance(maxiter, float) and maxiter == np.inf)
        if isinstance(maxiter, (float, np.floating)) and np.isfinite(maxiter):
            maxiter = math.ceil(maxiter)  # SciPy compares with it: 100.1 gives 101 iterations
        self._maxiter = None if unlimited else check_count("maxiter", maxiter, 1)
        self._free = free
        self._generations = 0
        self.has_counted_out = False
        """Whether `maxiter` ended the run."""
        self.has_raised = False
        """Whether the callback ended it by StopIteration."""

    def __call__(self, view: View) -> bool:
        self._generations += 1
        try:
            if self._callback is not None and self._callback(self._seen(view)):
                return True
        except StopIteration:
            self.has_raised = True
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
            n_failed=view.n_infeasible,
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
        # The convergence of differential evolution has no equivalent here.
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
    elif reason is StopReason.CALLBACK and watcher.has_raised:
        message = "`callback` raised `StopIteration`."  # SciPy's own words
    more: dict[str, Any] = {} if result.evaluations is None else {"evaluations": result.evaluations}
    if result.constraints is not None:
        more["constraints"] = result.constraints
        more["constr_violation"] = more["maxcv"] = max(map(_violation, result.constraints.values()))
    return OptimizeResult(
        x=free.x.copy() if result.x is None else free.whole(result.x),
        fun=float(result.fun),
        success=success,
        status=status,
        message=message,
        nfev=result.nfev,
        nit=result.nit,
        nfail=result.n_infeasible,
        n_failed=result.n_infeasible,
        x_mean=free.whole(result.x_mean),
        failures=[replace(failure, x=free.whole(failure.x)) for failure in result.failures],
        stop_reason=reason,
        seed=result.seed,
        sigma0=result.sigma0,
        history=result.history,
        **more,
    )


# -- The two calls: a method of `scipy.optimize.minimize`, and a neighbour of `differential_evolution`.


#: Options of differential_evolution that mean nothing here, and the values of them that ask for nothing.
_OF_ANOTHER_METHOD: dict[str, tuple[Any, ...]] = {
    "strategy": (),
    "mutation": (),
    "recombination": (),
    "init": (),
    "polish": (False, None),
    "atol": (0,),
    "updating": ("immediate", "deferred"),
}


def fmnes(
    fun: Callable[..., Any],
    x0: ArrayLike,
    args: Any = (),
    *,
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    tol: float | None = None,
    maxiter: int | None = None,
    sigma0: ArrayLike | None = None,
    **options: Any,
) -> OptimizeResult:
    """A method of `scipy.optimize.minimize` for functions whose evaluation may fail.

    An evaluation fails if `fun` returns NaN, ±inf or None, or raises: its point is ranked last and the search
    continues. No derivatives are used.

    Parameters
    ----------
    fun : callable
        fun(x, *args) -> number.
    x0 : array_like
        Where to start, (d,).
    args : tuple, optional
        Further arguments of fun.
    jac : optional
        Not used; a warning says so.
    hess : optional
        Not used; a warning says so.
    hessp : optional
        Not used; a warning says so.
    bounds : sequence or Bounds, optional
        In all forms of SciPy; a start outside is moved inside, with a warning.
    constraints : constraint or sequence of these, optional
        Inequalities and equalities, in all forms of SciPy; their values guide the search. fun is called where
        one is violated too, unless it has keep_feasible=True: such a point has failed.
    callback : callable, optional
        callback(xk) or callback(intermediate_result=...); StopIteration ends the search.
    tol : float, optional
        Tolerance of the steps (xtol) and of the values (ftol).
    maxiter : int, optional
        Upper limit for the number of generations.
    sigma0 : float or array_like, optional
        First step size, about the distance to the optimum. By default a quarter of the width between two
        bounds, less in more than ten dimensions, otherwise half of |x0|, 1 where it is 0.
    **options
        All options of `fmnes.minimize` (method, population_size, target, timeout, run_dir, ...), and: maxfev,
        an upper limit for the number of evaluations; rng or seed, an int, a Generator or a RandomState;
        workers, a number of processes (-1: one per core) or a map-like callable; vectorized, fun takes points
        (N, S) and returns (S,), as in `differential_evolution`; disp, show a progress line.

    Returns
    -------
    scipy.optimize.OptimizeResult
        SciPy's fields and: n_failed (evaluations that failed; also nfail), failures (why), x_mean,
        stop_reason, seed, sigma0, history. If no evaluation succeeded, x is the start, fun is inf and success
        False.

    Raises
    ------
    ArgumentError
        An argument is wrong.

    Examples
    --------
    >>> from scipy.optimize import minimize
    >>> from fmnes.integrations.scipy import fmnes
    >>> result = minimize(lambda x: x @ x, [3.0, 2.0], method=fmnes, options={"sigma0": 0.5, "rng": 1})
    >>> result.success, result.nfail
    (True, 0)
    """
    for given, name in ((jac, "gradient information (jac)"), (hess, "Hessian information (hess)")):
        if given is not None and given is not False:
            warn(f"Method fmnes does not use {name}.", RuntimeWarning)
    if hessp is not None:
        warn("Method fmnes does not use Hessian-vector product information (hessp).", RuntimeWarning)
    known, unknown = read_options(options)
    if unknown:
        listed = ", ".join(f"{name}{meant}" for name, meant in unknown.items())
        warn(f"Unknown solver options: {listed}", OptimizeWarning)
    if tol is not None:
        tol = check_number("tol", tol, above=-1e-300) or None  # 0 is off
        known = {"xtol": tol, "ftol": tol} | known
    x = check_x0(x0)
    box = read_box(bounds, len(x))
    if box is not None and (inside := np.clip(x, box.lower, box.upper)).tolist() != x.tolist():
        warn("Initial guess is not within the specified bounds; it is moved inside.", OptimizeWarning)
        x = inside
    fun = without_gradient(fun, jac)
    free = Free.of(x, box)
    result = _search(fun, args, constraints, box, free, Watcher(callback, maxiter, free), sigma0, known)
    if result.stop_reason is StopReason.INTERRUPTED and known.get("run_dir") is None:
        # As in all of SciPy's methods: Ctrl-C ends the basinhopping around it, too.
        raise KeyboardInterrupt
    return result


def evolution_strategy(
    func: Callable[..., Any],
    bounds: Any,
    args: Any = (),
    *,
    maxiter: int | None = None,
    popsize: float | None = None,
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    constraints: Any = (),
    x0: ArrayLike | None = None,
    sigma0: ArrayLike | None = None,
    **options: Any,
) -> OptimizeResult:
    """Minimise within bounds: a replacement for `differential_evolution` if evaluations may fail.

    Parameters
    ----------
    func : callable
        func(x, *args) -> number. NaN, ±inf, None or an exception: the evaluation has failed. With
        vectorized=True it takes (N, S) and returns (S,).
    bounds : sequence or Bounds
        Pairs, or SciPy's Bounds. If the two are equal, the coordinate is fixed.
    args : tuple, optional
        Further arguments of func.
    maxiter : int, optional
        Upper limit for the number of generations; by default the search ends when it has converged.
    popsize : float, optional
        Points in a generation, in multiples of the number of coordinates. The default is smaller than that of
        `differential_evolution`: see population_size of `fmnes.minimize`.
    tol : float, optional
        Tolerance of the values (ftol).
    callback : callable, optional
        callback(intermediate_result=...) or callback(xk, convergence), where convergence is NaN; a true value
        or StopIteration ends the search.
    constraints : constraint or sequence of these, optional
        As in `fmnes` of this module.
    x0 : array_like, optional
        Where to start; by default the centre of the bounds.
    sigma0 : float or array_like, optional
        First step size; by default a quarter of the width between the bounds (less in more than ten
        dimensions).
    **options
        Options of `differential_evolution` that apply here (rng or seed, workers, vectorized, integrality,
        disp; the others are ignored with a warning), maxfev, and all options of `fmnes.minimize`.

    Returns
    -------
    scipy.optimize.OptimizeResult
        As returned by `fmnes` of this module.

    Raises
    ------
    ArgumentError
        An argument is wrong, or an option is unknown.

    Examples
    --------
    >>> from fmnes.integrations.scipy import evolution_strategy
    >>> result = evolution_strategy(lambda x: x @ x, [(-1, 10), (-1, 1)], rng=1)
    >>> result.success
    True
    """
    for name, harmless in _OF_ANOTHER_METHOD.items():
        if name in options and not _is_one_of(options.pop(name), harmless):
            warn(
                f"evolution_strategy: {name} is differential_evolution's own, and is ignored", OptimizeWarning
            )
    known, unknown = read_options(options)
    for name, meant in unknown.items():
        raise ArgumentError(f"evolution_strategy: found the option {name!r}, which is unknown{meant}")
    if tol is not None:
        known = {"ftol": check_number("tol", tol, above=-1e-300) or None} | known
    given = None if x0 is None else check_x0(x0)
    box = read_box(bounds, None if given is None else len(given))
    x, _ = start_from(box, given, 1.0)
    if box is not None:
        check_inside(x, box)
    free = Free.of(x, box)
    if popsize is not None:
        if known.get("population_size") is not None:
            raise ArgumentError("popsize: found together with population_size; wanted one of them")
        known["population_size"] = even_size(popsize, int(free.mask.sum()))
    watcher = Watcher(callback, maxiter, free, with_convergence=True)
    return _search(func, args, constraints, box, free, watcher, sigma0, known)


def _search(
    fun: Any,
    args: Any,
    constraints: Any,
    box: Bounds | None,
    free: Free,
    watcher: Watcher,
    sigma0: ArrayLike | None,
    options: dict[str, Any],
) -> OptimizeResult:
    """Search over the free coordinates only."""
    vectorized = options.get("vectorized", False)
    check_flag("vectorized", vectorized)
    steps: Vector | ArrayLike = first_steps(free.x, box) if sigma0 is None else sigma0
    options = options | {"integers": free.part(options.get("integers"))}
    if not free.mask.any():
        return _fixed(make_objective(fun, args, read_constraints(constraints), free, False), free)
    read = [constraint.sized(free.x) for constraint in read_constraints(constraints)]
    limits = {name: limit for c in read if not c.keep_feasible for name, limit in c.limits().items()}
    if limits:
        options["constraints"] = limits
    result = minimize(
        make_objective(fun, args, read, free, bool(vectorized)),
        free.x[free.mask],
        free.part(steps),
        bounds=None if box is None else Bounds(box.lower[free.mask], box.upper[free.mask]),
        callback=watcher,
        **options,
    )
    found = optimize_result(result, watcher, free)
    if options.get("progress") and found.status in (_MAXITER, _STATUS[StopReason.MAX_EVALUATIONS]):
        warn(found.message, RuntimeWarning)  # with disp=True, as SciPy's own methods
    return found


def _fixed(objective: Callable[[Vector], Any], free: Free) -> OptimizeResult:
    """One evaluation: all coordinates are fixed by equal bounds."""
    try:
        outcome = from_return(objective(np.empty(0)))
    except Exception:
        outcome = from_return(None)
    succeeded = outcome.status == "value"
    return OptimizeResult(
        x=free.x.copy(),
        fun=outcome.value if succeeded else np.inf,
        success=succeeded,
        status=0 if succeeded else _STATUS[StopReason.NO_FEASIBLE],
        message="All independent variables were fixed by bounds.",
        nfev=1,
        nit=0,
        nfail=int(not succeeded),
        x_mean=free.x.copy(),
        failures=[],
        stop_reason=None,
        n_failed=int(not succeeded),
    )


def _is_one_of(found: Any, values: tuple[Any, ...]) -> bool:
    return any(type(found) in (type(value), int, float) and found == value for value in values)
