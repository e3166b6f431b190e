"""SciPy's objectives, constraints and map-like workers in the form that fmnes minimises.

Constraints become limits on outputs, which the objective reports beside its value. With keep_feasible=True
they are failures instead: where one does not hold, the objective is not called.
"""

from __future__ import annotations

import functools
import math
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds as ScipyBounds
from scipy.optimize import LinearConstraint, NonlinearConstraint

from fmnes.arguments import check_callable, floats, shown
from fmnes.bounds import Bounds
from fmnes.constraints import Constraint as Limit
from fmnes.errors import ArgumentError, Infeasible
from fmnes.evaluation.evaluator import Outcomes, TaskSource, take_all
from fmnes.evaluation.programs.command import Command
from fmnes.outcome import Outcome, call, lost
from fmnes.result import Vector

# -- SciPy's constraints as limits on outputs, which the objective reports beside its value.

#: Tolerance of an equality, relative to its limit where that is above 1.
EQUALITY_TOLERANCE = 1e-6
WANTED = "a dict with type 'ineq' or 'eq' and fun, or SciPy's NonlinearConstraint, LinearConstraint or Bounds"


@dataclass(frozen=True, eq=False)
class Constraint:
    """lower <= fun(x, *args) <= upper, each of shape (m,) or (1,)."""

    number: int
    """Its place among the user's, from 0."""
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    lower: Vector
    upper: Vector
    keep_feasible: bool = False
    """The objective is never called where it does not hold."""

    def values(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """At x (N,), or at each column of (N, S): (m, 1) or (m, S)."""
        values = np.asarray(self.fun(x.copy(), *self.args), dtype=float)
        return values.reshape(-1, x.shape[1] if x.ndim > 1 else 1)

    def holds(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """At x (N,), or at each column of (N, S): (1,) or (S,). What is NaN does not hold."""
        values = self.values(x)
        inside = (values >= self.lower[:, None]) & (values <= self.upper[:, None])
        return np.asarray(inside.all(axis=0))

    @property
    def reason(self) -> str:
        return f"constraint {self.number} is violated"

    @property
    def is_equality(self) -> bool:
        return bool((self.lower == self.upper).any())

    def sized(self, x: NDArray[np.float64]) -> Constraint:
        """With limits of shape (m,), for which it is called at the start x."""
        try:
            m = len(self.values(x))
        except Exception:  # of the user's own function, where it cannot be computed
            m = 1
        m = max(m, len(self.lower), len(self.upper))
        lower, upper = np.broadcast_to(self.lower, m), np.broadcast_to(self.upper, m)
        return replace(self, lower=lower, upper=upper)

    def limits(self) -> dict[str, Limit]:
        """The limits on its values, by the names of the outputs; only of a `sized` one."""
        found = {}
        for name, lower, upper in zip(self.names, self.lower.tolist(), self.upper.tolist(), strict=True):
            if lower > -math.inf or upper < math.inf:
                equal = EQUALITY_TOLERANCE * max(1.0, abs(lower)) if lower == upper else None
                found[name] = Limit(lower, upper, tolerance=equal)
        return found

    @property
    def names(self) -> list[str]:
        m = len(self.lower)
        return [f"constraint {self.number}" + (f"[{i}]" if m > 1 else "") for i in range(m)]


def read_constraints(constraints: Any) -> list[Constraint]:
    """All of them, in the forms that SciPy takes."""
    if constraints is None:
        return []
    if isinstance(constraints, (Mapping, NonlinearConstraint, LinearConstraint, ScipyBounds)):
        constraints = [constraints]
    try:
        each = list(constraints)
    except TypeError:
        raise ArgumentError(f"constraints: found {shown(constraints)}, wanted {WANTED}") from None
    return [_read(number, one) for number, one in enumerate(each)]


def _read(number: int, found: Any) -> Constraint:
    if isinstance(found, Mapping):
        return _from_dict(number, found)
    if isinstance(found, NonlinearConstraint) and callable(found.fun):
        fun = found.fun
    elif isinstance(found, LinearConstraint):
        fun = _Linear(found.A)
    elif isinstance(found, ScipyBounds):
        fun = np.asarray  # the point itself
    else:
        raise ArgumentError(f"constraints: found {shown(found)} at {number}, wanted {WANTED}")
    lower, upper = (
        np.atleast_1d(floats(f"constraints ({number})", side, "numbers as its lb and ub"))
        for side in (found.lb, found.ub)
    )
    if not (lower <= upper).all():
        raise ArgumentError(f"constraints: found lb above ub, or NaN, at {number}; wanted lb <= ub")
    keep = bool(np.all(found.keep_feasible))
    made = Constraint(number, fun, (), lower, upper, keep)
    if keep and made.is_equality:
        raise ArgumentError(
            f"constraints: found an equality with keep_feasible=True at {number}, which points that are "
            "drawn at random never meet; wanted keep_feasible=False"
        )
    return made


def _from_dict(number: int, found: Mapping[str, Any]) -> Constraint:
    kind, fun, args = found.get("type"), found.get("fun"), found.get("args", ())
    if str(kind).lower() not in ("ineq", "eq") or not callable(fun):
        raise ArgumentError(f"constraints: found {shown(dict(found))} at {number}, wanted {WANTED}")
    args = args if isinstance(args, tuple) else (args,)
    upper = 0.0 if str(kind).lower() == "eq" else np.inf
    return Constraint(number, fun, args, np.zeros(1), np.full(1, upper))


class _Linear:
    """A x, dense or sparse."""

    def __init__(self, A: Any) -> None:
        self._A = A

    def __call__(self, x: NDArray[np.float64]) -> Any:
        return self._A @ x


# -- SciPy's map-like workers, `workers(func, iterable)`, as an executor.


class MapLike:
    """What `minimize` takes as executor: `pool.map`, `map`, a cluster's map."""

    def __init__(self, workers: Callable[..., Any]) -> None:
        self._workers = workers

    def make_evaluator(self, fun: Any, d: int, *, timeout: float | None, **_: Any) -> MapEvaluator:
        if isinstance(fun, Command):
            raise ArgumentError("fun: found a Command and map-like workers, wanted a number of workers")
        if timeout is not None:
            raise ArgumentError(
                f"timeout: found {timeout!r} and map-like workers, which cannot be made to kill an "
                "evaluation; wanted a number of workers"
            )
        return MapEvaluator(fun, self._workers)


class MapEvaluator:
    """All points in one call of the map. An evaluation that fails does not raise in there, so that the others
    are not lost with it."""

    def __init__(self, fun: Callable[[Any], Any], workers: Callable[..., Any]) -> None:
        self._fun = fun
        self._workers = workers

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        batch = take_all(tasks)
        if not batch:
            return
        done, foreign = 0, False
        try:
            points = [task.x.copy() for task in batch]
            for outcome in self._workers(functools.partial(evaluate, self._fun), points):
                foreign = not isinstance(outcome, Outcome) or done == len(batch)
                if foreign:
                    break
                yield batch[done], outcome
                done += 1
                if deadline is not None and time.monotonic() >= deadline:
                    return
        except Exception as error:  # of the pool, not of the objective
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, pickle.PicklingError) or "pickle" in str(error):
                raise ArgumentError(
                    f"fun: found {shown(self._fun)}, which these workers cannot send ({text}); wanted a "
                    "function defined in a module"
                ) from error
            for task in batch[done:]:
                yield task, lost(f"the workers failed: {text}")
            return
        if foreign or done < len(batch):
            raise ArgumentError(
                f"workers: found {shown(self._workers)}, which gave something else than one result for each "
                f"of {len(batch)} points; wanted what func returns, for each point and in their order"
            )

    def close(self) -> None:
        """The pool stays the caller's."""


def evaluate(fun: Callable[[Any], Any], x: Vector) -> Outcome:
    began = time.monotonic()
    return replace(call(fun, x, elsewhere=True), seconds=time.monotonic() - began)


# -- The user's function as SciPy calls it, as the function of one point that is minimised here.


@dataclass(frozen=True, eq=False)
class Free:
    """The coordinates that there is something to search for: where bounds are equal there is nothing."""

    mask: NDArray[np.bool_]
    """(N,)"""
    x: Vector
    """A whole point, with the values of those that are fixed. (N,)"""

    @classmethod
    def of(cls, x: Vector, bounds: Bounds | None) -> Free:
        if bounds is None:
            return cls(np.ones(len(x), dtype=bool), x)
        return cls(bounds.lower < bounds.upper, x)

    @property
    def all(self) -> bool:
        return bool(self.mask.all())

    def whole(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points with all coordinates, from those that are searched: (k,) or (n, k)."""
        if self.all:
            return part.copy()
        points = np.broadcast_to(self.x, (*part.shape[:-1], len(self.x))).copy()
        points[..., self.mask] = part
        return points

    def part(self, values: Any) -> Any:
        """The searched ones of what has one value for each coordinate; anything else as it is."""
        if values is None or self.all or np.shape(values) != self.mask.shape:
            return values
        return np.asarray(values)[self.mask]


class Objective:
    """fun(x, *args) with the values of the constraints; a class, so that any pool can send it."""

    def __init__(
        self, fun: Callable[..., Any], args: tuple[Any, ...], constraints: Sequence[Constraint], free: Free
    ) -> None:
        self._fun = fun
        self._args = args
        self._constraints = constraints
        self._free = free
        # What a run directory remembers it by.
        self.__module__ = getattr(fun, "__module__", type(fun).__module__)
        self.__qualname__ = getattr(fun, "__qualname__", type(fun).__qualname__)

    def __call__(self, x: NDArray[np.float64]) -> Any:
        x = self._free.whole(x)
        outputs: dict[str, Any] = {}
        for constraint in self._constraints:
            if constraint.keep_feasible:
                if not constraint.holds(x).all():
                    raise Infeasible(constraint.reason)
            else:
                outputs |= dict(zip(constraint.names, constraint.values(x)[:, 0].tolist(), strict=True))
        returned = self._fun(x, *self._args)
        if not outputs:
            return returned
        if isinstance(returned, (tuple, list)) and len(returned) == 2 and isinstance(returned[1], Mapping):
            return returned[0], {**returned[1], **outputs}
        return returned, outputs


class Vectorized(Objective):
    """The same of many points at once: (n, k) here, and (N, n), as SciPy has it, there."""

    def __call__(self, x: NDArray[np.float64]) -> Any:
        columns = self._free.whole(x).T
        inside = np.ones(len(x), dtype=bool)
        outputs: dict[str, Any] = {}
        for constraint in self._constraints:
            if constraint.keep_feasible:
                inside &= constraint.holds(columns)
            else:
                outputs |= dict(zip(constraint.names, constraint.values(columns), strict=True))
        values = self._values(columns, inside)
        return (values, outputs) if outputs else values

    def _values(self, columns: NDArray[np.float64], inside: NDArray[np.bool_]) -> Any:
        if not inside.any():
            return np.full(len(inside), np.nan)
        returned = np.asarray(self._fun(columns[:, inside], *self._args))
        if inside.all():  # whatever it is: its type and shape are looked at later
            return returned.reshape(-1) if returned.size == len(inside) else returned
        values = np.full(len(inside), np.nan)
        values[inside] = returned.reshape(-1)
        return values


def make_objective(
    fun: Any, args: Any, constraints: Sequence[Constraint], free: Free, vectorized: bool
) -> Any:
    args = args if isinstance(args, tuple) else (args,)
    plain = free.all and not args and not constraints and not vectorized
    if isinstance(fun, Command):
        if not plain:
            raise ArgumentError(
                "fun: found a Command together with args, constraints, vectorized or equal bounds; wanted a "
                "Command alone"
            )
        return fun
    check_callable(fun)
    if plain:
        return fun
    return (Vectorized if vectorized else Objective)(fun, args, constraints, free)


def without_gradient(fun: Any, jac: Any) -> Any:
    """With jac=True SciPy hands over an object that keeps the gradient of the function's last call.

    It keeps its last value too, and gives that again for a point whose evaluation had raised: wrong for one
    that is tried again. So the user's own function is called, and its gradient dropped.
    """
    own = getattr(fun, "fun", None)
    kept_by = getattr(jac, "__self__", None)
    return _First(own) if kept_by is not None and kept_by is fun and callable(own) else fun


class _First:
    """Of (value, gradient) the value."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self._fun = fun

    def __call__(self, x: NDArray[np.float64], *args: Any) -> Any:
        returned = self._fun(x, *args)
        return returned[0] if isinstance(returned, (tuple, list)) and len(returned) == 2 else returned
