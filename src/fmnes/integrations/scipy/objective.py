"""The user's function as SciPy calls it, as the function of one point that is minimised here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import check_callable
from fmnes.bounds import Bounds
from fmnes.errors import ArgumentError, Infeasible
from fmnes.evaluation.programs.command import Command
from fmnes.integrations.scipy.constraints import Constraint
from fmnes.result import Vector


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
        mask = bounds.lower < bounds.upper
        if not mask.any():
            raise ArgumentError("bounds: found lower = upper everywhere, wanted a coordinate that may change")
        return cls(mask, x)

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
    """fun(x, *args) where the constraints hold; a class and no closure, so that any pool can send it."""

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
        for constraint in self._constraints:
            if not constraint.holds(x).all():
                raise Infeasible(constraint.reason)
        return self._fun(x, *self._args)


class Vectorized(Objective):
    """The same of many points at once: (n, k) here, and (N, n), as SciPy has it, there."""

    def __call__(self, x: NDArray[np.float64]) -> Any:
        columns = self._free.whole(x).T
        inside = np.ones(len(x), dtype=bool)
        for constraint in self._constraints:
            inside &= constraint.holds(columns)
        if not inside.any():
            return np.full(len(x), np.nan)
        returned = np.asarray(self._fun(columns[:, inside], *self._args))
        if inside.all():  # whatever it is: its type and shape are looked at later
            return returned.reshape(-1) if returned.size == len(x) else returned
        values = np.full(len(x), np.nan)
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
