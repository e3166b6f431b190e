"""Equality of objects that hold NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np


class EqualByValue:
    """Equality by type and by all fields except those with `compare=False`; unhashable.

    For a dataclass with `eq=False`, which would otherwise write its own methods over these.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = [field.name for field in fields(self) if field.compare]  # type: ignore[arg-type]
        return all(same(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


def same(one: Any, two: Any) -> bool:
    """Compare by value at any depth; NaN equals NaN."""
    if one is two:
        return True
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(two, np.ndarray) and _same_arrays(one, two)
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(same(value, two[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)) and type(one) is type(two):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return one == two or (one != one and two != two)
    return bool(one == two)


def _same_arrays(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> bool:
    if one.shape != two.shape:
        return False
    if one.dtype.kind in "fc" and two.dtype.kind in "fc":
        return np.array_equal(one, two, equal_nan=True)
    if "O" in (one.dtype.kind, two.dtype.kind):
        return same(one.tolist(), two.tolist())
    return np.array_equal(one, two)


# -- Equality and hash of settings that contain an array.


class EqualByContent:
    """Equality and hash by all fields; an array by its shape and bytes.

    For a dataclass with `eq=False`, which would otherwise write its own methods over these.
    """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or _values(self, _content) == _values(other, _content)

    def __hash__(self) -> int:
        return hash((type(self), _values(self, _sample)))


def _values(settings: Any, of_array: Any) -> tuple[Any, ...]:
    values = (getattr(settings, field.name) for field in fields(settings))
    return tuple(of_array(value) if isinstance(value, np.ndarray) else value for value in values)


def _content(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return array.shape, array.tobytes()


def _sample(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """The diagonal alone: JAX asks for a hash in every call, and d² numbers are a long read."""
    return array.shape, np.atleast_2d(array).diagonal().tobytes()
