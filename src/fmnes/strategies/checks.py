"""Checks of settings that several strategies share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import is_number, shown
from fmnes.errors import ArgumentError, nearest


def check_choice(argument: str, found: object, wanted: Sequence[str]) -> None:
    if not isinstance(found, str) or found not in wanted:
        listed = ", ".join(repr(w) for w in wanted)
        hint = nearest(found, wanted) if isinstance(found, str) else ""
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted one of {listed}{hint}")


def check_positive_int(argument: str, found: Any) -> int | None:
    """None is fine: it means that we choose."""
    if found is None:
        return None
    if not is_number(found, whole=True) or found < 1:
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a whole number of at least 1, or None")
    return int(found)


def settle_positive_ints(settings: Any, *names: str) -> None:
    """Of frozen settings: 8.0 becomes 8."""
    for name in names:
        object.__setattr__(settings, name, check_positive_int(name, getattr(settings, name)))


def own_matrix(argument: str, found: ArrayLike) -> NDArray[np.float64]:
    """A read-only copy: settings do not change with what the caller does to his own matrix later."""
    try:
        matrix = np.array(found, dtype=float, order="C")
    except Exception:  # an object of the user's own may raise anything
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a matrix of numbers") from None
    matrix.setflags(write=False)
    return matrix


def check_shape_matrix(
    argument: str, matrix: NDArray[np.float64], d: int
) -> tuple[NDArray[np.float64], float]:
    """The matrix with determinant ±1, and the factor |det|^(1/d) that was taken out of it."""
    if matrix.shape != (d, d):
        raise ArgumentError(f"{argument}: found shape {matrix.shape}, wanted {(d, d)}")
    if not np.isfinite(matrix).all():
        raise ArgumentError(f"{argument}: found NaN or infinite entries, wanted a finite matrix")
    if (largest := np.abs(matrix).max()) > 1e300:
        raise ArgumentError(f"{argument}: found an entry of {largest:g}, wanted smaller ones")
    sign, log_det = np.linalg.slogdet(matrix)
    if sign == 0 or np.linalg.cond(matrix) > 1e14:
        raise ArgumentError(f"{argument}: found a singular matrix, wanted an invertible one")
    scale = math.exp(log_det / d)
    return matrix / scale, scale
