"""Named parameters: conversion between the user's point (a dict) and the search's point (a vector).

The search uses logarithms for parameters with a log scale; only this module converts them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import is_number, shown
from fmnes.bounds import Bounds, first_step
from fmnes.errors import ArgumentError, nearest
from fmnes.parameters import (
    CATEGORIES,
    Categorical,
    Choices,
    Integer,
    Parameter,
    grid_bounds,
    is_log,
    read_parameter,
    table_of,
    width_of,
)
from fmnes.result import Best, Result, Vector, View

#: A point in the user's words: {name: value}, with whole numbers as int and choices as they were given.
Point = dict[str, Any]
_TINY, _HUGE = sys.float_info.min, sys.float_info.max
_ROUNDING = 8 * sys.float_info.epsilon


class Space:
    """Parameters with their names, in the order the user gave them."""

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = dict(parameters)
        self.names = tuple(self.parameters)
        _check(self.parameters)
        ps = list(self.parameters.values())
        self._whole = [i for i, p in enumerate(ps) if isinstance(p, Integer)]
        self._choices = [(i, p.choices) for i, p in enumerate(ps) if isinstance(p, Categorical)]
        self._logs = [(i, *_log_scale(p)) for i, p in enumerate(ps) if is_log(p)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and list(self.parameters.items()) == list(other.parameters.items())

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """For executors, which send it to other processes."""
        return Space, (self.parameters,)

    # -- to the search ------------------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """x0, sigma0, bounds and integers of the search: the arguments of `Optimizer` for arrays."""
        columns = [_column(p, len(self.names)) for p in self.parameters.values()]
        x0, sigma0, lower, upper, width = (list(column) for column in zip(*columns, strict=True))
        open_ = all(math.isinf(bound) for bound in (*lower, *upper))
        return {
            "x0": x0,
            "sigma0": sigma0,
            "bounds": None if open_ else Bounds(lower, upper),
            "integers": width if any(width) else None,  # with the number of choices of categories
        }

    @property
    def has_categories(self) -> bool:
        return bool(self._choices)

    @property
    def has_start(self) -> bool:
        """Whether a parameter has a start of its own, so that the centre of the ranges is not meant."""
        return any(p.start is not None for p in self.parameters.values())

    def numbers(self, point: Any, argument: str = "x") -> Vector:
        """The search's numbers for a user's point. (d,)"""
        if not isinstance(point, Mapping):
            raise ArgumentError(
                f"{argument}: found {shown(point)}, wanted a dict with {', '.join(self.names)}"
            )
        self._check_names(argument, point)
        numbers = []
        for name, p in self.parameters.items():
            value = point[name]
            if isinstance(p, Categorical):
                try:
                    numbers.append(float(p.index(value, name)))
                except ArgumentError as error:
                    raise ArgumentError(f"{argument}: {str(error).removeprefix('Categorical: ')}") from None
                continue
            if not is_number(value) or (is_log(p) and not value > 0):
                wanted = "a positive number" if is_log(p) else "a number"
                raise ArgumentError(f"{argument}: found {name} = {shown(value)}, wanted {wanted}")
            numbers.append(_inside(p, float(value)))
        return np.array(numbers)

    def _check_names(self, argument: str, point: Mapping[Any, Any]) -> None:
        for name in point:
            if name not in self.parameters:
                raise ArgumentError(
                    f"{argument}: found {shown(name)}, wanted {', '.join(self.names)}"
                    f"{nearest(str(name), self.names)}"
                )
        for name in self.names:
            if name not in point:
                raise ArgumentError(f"{argument}: found no {name}, wanted {', '.join(self.names)}")

    # -- to the user --------------------------------------------------------------------------------------

    def values(self, x: Vector) -> list[Any]:
        """A point's values in the user's units, in order: whole numbers as int, choices as given. x: (d,)"""
        values = self._in_units(x)
        for i in self._whole:
            values[i] = int(values[i])
        for i, choices in self._choices:
            values[i] = choices[int(values[i])]
        return values

    def _in_units(self, x: Vector) -> list[Any]:
        """A point in the user's units; of a choice its position.

        In every evaluation, so it calls nothing but exp.
        """
        values: list[Any] = x.tolist()
        for i, low, high, lower, upper, at_start, start in self._logs:
            number = values[i]
            if low < number < high:
                values[i] = start if number == at_start else exp(number)
            else:
                values[i] = lower if number <= low else upper
        return values

    def named(self, x: Vector) -> Point:
        """The user's point. x: (d,)"""
        return dict(zip(self.names, self.values(x)))  # noqa: B905 (in every evaluation; both have d entries)

    def table(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Many points in the user's units; the same numbers as `values`, to the last bit. (n, d) -> (n, d)

        Of a choice it has the position.
        """
        if not self._logs or not len(x):
            return np.array(x, dtype=np.float64)
        return np.array([self._in_units(row) for row in x], dtype=np.float64)

    def columns(self, x: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Many points by name, whole numbers as int64, choices themselves. x: (n, d); each column: (n,)"""
        table = self.table(x)
        columns: list[NDArray[Any]] = [column.copy() for column in table.T]
        for i in self._whole:
            columns[i] = columns[i].astype(np.int64)
        for i, choices in self._choices:
            columns[i] = _as_array(choices)[columns[i].astype(np.int64)]
        return dict(zip(self.names, columns, strict=True))

    def best(self, best: Best) -> Best:
        return best if best.x is None else best._replace(x=self.named(best.x))

    def view(self, view: View) -> View:
        """A generation in the user's words; `sigma` and `axis_lengths` stay the search's."""
        return replace(view, mean=self.named(view.mean), best=self.best(view.best))

    def result(self, result: Result) -> Result:
        """A result in the user's words; `covariance` and `sigma0` stay the search's, for a warm start."""
        return replace(
            result,
            x=None if result.x is None else self.named(result.x),
            x_mean=self.named(result.x_mean),
            failures=[replace(f, x=self.table(f.x) if len(f.x) else f.x) for f in result.failures],
            parameters=self.parameters,
            best_seen=None if result.best_seen is None else self.best(result.best_seen),
        )

    # -- on disk ------------------------------------------------------------------------------------------

    def as_json(self) -> list[dict[str, Any]]:
        return [{"name": name, **table_of(p)} for name, p in self.parameters.items()]

    @classmethod
    def from_json(cls, data: Any) -> Space:
        """Raises ArgumentError for what `as_json` cannot have written."""
        if not isinstance(data, list) or not all(isinstance(e, dict) and "name" in e for e in data):
            raise ArgumentError(f"parameters: found {shown(data)}, wanted a list of tables with names")
        tables = [(str(entry["name"]), {k: v for k, v in entry.items() if k != "name"}) for entry in data]
        return make_space([(name, read_parameter(name, table)) for name, table in tables])


def make_space(parameters: Sequence[tuple[str, Parameter]]) -> Space:
    """Of pairs, in which a name may stand twice: that is refused."""
    space: dict[str, Parameter] = {}
    for name, p in parameters:
        if name in space:
            raise ArgumentError(f"parameters: found two of the name {name!r}, wanted one name for each")
        space[name] = p
    return Space(space)


def is_space(found: Any) -> bool:
    """Named parameters, or what was meant as some? (No array is a mapping.)"""
    return isinstance(found, (Mapping, Space))


def read_space(found: Any) -> Space:
    """The user's dict, checked."""
    return found if isinstance(found, Space) else Space(found)


def unpack(
    x0: Any, sigma0: Any, *, bounds: Any, integers: Any, covariance: Any, known: Any
) -> tuple[Space | None, dict[str, Any]]:
    """The space, if `x0` is named parameters, and these arguments in the search's numbers."""
    given = {"sigma0": sigma0, "bounds": bounds, "integers": integers}
    if not is_space(x0):
        listed = x0 if isinstance(x0, (list, tuple)) else [x0]
        if any(isinstance(item, Parameter) for item in listed):
            raise ArgumentError(
                f"parameters: found {shown(x0)} without names, wanted such as {{'width': fmnes.Real(0, 1)}}"
            )
        return None, {"x0": x0, **given, "covariance": covariance, "known": known}
    space = read_space(x0)
    for argument, value in given.items():
        if value is not None:
            raise ArgumentError(
                f"{argument}: found together with named parameters; wanted it in them, such as "
                "fmnes.Real(0, 1, start=0.5, sigma=0.1) or fmnes.Integer(1, 12)"
            )
    start = space.start()
    if covariance is not None:  # which says how far to look
        start["sigma0"] = None
    return space, {**start, "covariance": covariance, "known": _numbers_of_known(space, known)}


def _numbers_of_known(space: Space, known: Any) -> Any:
    """Convert the points of `known`; anything but pairs is returned as it is, for the check to refuse."""
    try:
        pairs = [(x, value) for x, value in known]
    except Exception:  # what iteration raises is up to the object
        return known
    return [(space.numbers(x, f"known, point {i}"), value) for i, (x, value) in enumerate(pairs)]


def _check(parameters: Mapping[Any, Any]) -> None:
    if not parameters:
        raise ArgumentError(
            "parameters: found none, wanted at least one, such as {'width': fmnes.Real(0, 1)}"
        )
    for name, p in parameters.items():
        if not isinstance(name, str) or not name.strip() or "\0" in name:
            raise ArgumentError(f"parameters: found the name {shown(name)}, wanted text such as 'width'")
        if isinstance(p, Parameter):
            continue
        hint = ""
        if isinstance(p, (list, set, frozenset, str)) or (isinstance(p, tuple) and not _is_range(p)):
            hint = f"; {CATEGORIES}"
        elif isinstance(p, tuple):
            hint = f": fmnes.Real({p[0]!r}, {p[1]!r})"
        elif is_number(p):
            hint = "; what is fixed is no parameter: leave it out"
        raise ArgumentError(
            f"parameters: found {name} = {shown(p)}, wanted fmnes.Real, fmnes.Integer or fmnes.Categorical"
            f"{hint}"
        )


def _as_array(choices: tuple[Any, ...]) -> NDArray[Any]:
    """The choices, as numbers or flags if all are; of texts and mixtures as objects."""
    kinds = {type(choice) for choice in choices}
    array = np.empty(len(choices), dtype=object)
    array[:] = choices
    return array.astype(kinds.pop()) if kinds in ({bool}, {int}, {float}) else array


def _is_range(found: tuple[Any, ...]) -> bool:
    return len(found) == 2 and all(is_number(end) for end in found)


def _inside(p: Parameter, value: float) -> float:
    """The search's number for a value."""
    return math.log(value) if is_log(p) else value


def _log_scale(p: Parameter) -> tuple[float, float, float, float, float, float]:
    """Between which numbers exp is right, the values below and above, and where the start is.

    The ends and the start come back to the last digit: exp(log(10)) is not 10.
    """
    lower, upper = _TINY if p.lower is None else p.lower, _HUGE if p.upper is None else p.upper
    start = _log_start(p) or lower
    # A few units in the last place inside: beyond these, rounding could lead out of the range.
    low, high = math.log(lower), math.log(upper)
    low, high = low + _ROUNDING * max(1.0, abs(low)), high - _ROUNDING * max(1.0, abs(high))
    return low, high, lower, upper, math.log(start), start


def _log_start(p: Parameter) -> float | None:
    """Roots of the factors, whose product may be too small or too large."""
    if p.start is None and p.lower is not None and p.upper is not None:
        return math.sqrt(p.lower) * math.sqrt(p.upper)
    return p.start


def _column(p: Parameter, d: int) -> tuple[float, float, float, float, float]:
    """Start, sigma, lower, upper and width of the grid (0: none), in the search's numbers; one of d."""
    if isinstance(p, Categorical):
        n = len(p.choices)
        return (0.0 if p.start is None else float(p.index(p.start))), 1.0, -0.5, n - 0.5, Choices(n)
    first, last = grid_bounds(p)
    lower = -math.inf if first is None else _inside(p, first)
    upper = math.inf if last is None else _inside(p, last)
    # Halves first: the sum of two bounds may be too large for floating point.
    middle = _log_start(p) if is_log(p) else p.start
    start = lower / 2 + upper / 2 if middle is None else _inside(p, middle)
    sigma = first_step(lower, upper, d) if p.sigma is None else _inside(p, p.sigma)
    return min(max(start, lower), upper), sigma, lower, upper, width_of(p)
