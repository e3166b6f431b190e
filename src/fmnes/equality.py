"""Equality of what holds arrays, which Python cannot compare as one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np


class EqualByValue:
    """Equal where the type and all fields are, those with `compare=False` aside; it has no hash.

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
    """By value, at any depth. NaN, which stands for "nothing", is the same as NaN."""
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
