"""SciPy's constraints as failures: where an inequality does not hold, the objective is not called.

An equality cannot be honoured so, as no point that is drawn at random meets one; it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint

from fmnes.arguments import floats, shown
from fmnes.errors import ArgumentError
from fmnes.result import Vector

WANTED = "a dict with type 'ineq' and fun, or SciPy's NonlinearConstraint, LinearConstraint or Bounds"


@dataclass(frozen=True, eq=False)
class Constraint:
    """lower <= fun(x, *args) <= upper, each of shape (m,) or (1,)."""

    number: int
    """Its place among the user's, from 0."""
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    lower: Vector
    upper: Vector

    def holds(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """At x (N,), or at each column of (N, S): (1,) or (S,). What is NaN does not hold."""
        values = np.asarray(self.fun(x.copy(), *self.args), dtype=float)
        values = values.reshape(-1, x.shape[1] if x.ndim > 1 else 1)
        inside = (values >= self.lower[:, None]) & (values <= self.upper[:, None])
        return np.asarray(inside.all(axis=0))

    @property
    def reason(self) -> str:
        return f"constraint {self.number} is violated"


def read_constraints(constraints: Any) -> list[Constraint]:
    """All of them, in the forms that SciPy takes."""
    if constraints is None:
        return []
    if isinstance(constraints, (Mapping, NonlinearConstraint, LinearConstraint, Bounds)):
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
    elif isinstance(found, Bounds):
        fun = _same
    else:
        raise ArgumentError(f"constraints: found {shown(found)} at {number}, wanted {WANTED}")
    lower, upper = (
        np.atleast_1d(floats(f"constraints ({number})", side, "numbers as its lb and ub"))
        for side in (found.lb, found.ub)
    )
    if (lower == upper).any():
        raise _equality(number)
    if not (lower < upper).all():
        raise ArgumentError(f"constraints: found lb above ub, or NaN, at {number}; wanted lb < ub")
    return Constraint(number, fun, (), lower, upper)


def _from_dict(number: int, found: Mapping[str, Any]) -> Constraint:
    kind, fun, args = found.get("type"), found.get("fun"), found.get("args", ())
    if str(kind).lower() == "eq":
        raise _equality(number)
    if str(kind).lower() != "ineq" or not callable(fun):
        raise ArgumentError(f"constraints: found {shown(dict(found))} at {number}, wanted {WANTED}")
    args = args if isinstance(args, tuple) else (args,)
    return Constraint(number, fun, args, np.zeros(1), np.full(1, np.inf))


def _equality(number: int) -> ArgumentError:
    return ArgumentError(
        f"constraints: found an equality at {number}, which points that are drawn at random never meet; "
        "wanted inequalities: compute one variable from the others inside fun, or leave some room around it"
    )


class _Linear:
    """A x, dense or sparse."""

    def __init__(self, A: Any) -> None:
        self._A = A

    def __call__(self, x: NDArray[np.float64]) -> Any:
        return self._A @ x


def _same(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x
