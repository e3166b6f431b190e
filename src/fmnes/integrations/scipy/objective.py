"""SciPy's objectives and map-like workers in the form that fmnes minimises."""

from __future__ import annotations

import functools
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import check_callable, shown
from fmnes.bounds import Bounds
from fmnes.errors import ArgumentError, Infeasible
from fmnes.evaluation.evaluator import Outcomes, TaskSource, take_all
from fmnes.evaluation.programs.command import Command
from fmnes.integrations.scipy.constraints import Constraint
from fmnes.outcome import Outcome, call, lost
from fmnes.result import Vector

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
