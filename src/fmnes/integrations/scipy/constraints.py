"""SciPy's constraints as limits on outputs, which the objective reports beside its value.

With keep_feasible=True they are failures instead: where one does not hold, the objective is not called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint

from fmnes.arguments import floats, shown
from fmnes.constraints import Constraint as Limit
from fmnes.errors import ArgumentError
from fmnes.result import Vector

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


def _same(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x
