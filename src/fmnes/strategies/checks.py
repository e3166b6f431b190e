"""Checks of settings that several strategies share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.errors import ArgumentError, nearest


def check_choice(argument: str, found: object, wanted: Sequence[str]) -> None:
    if found not in wanted:
        listed = ", ".join(repr(w) for w in wanted)
        raise ArgumentError(
            f"{argument}: found {found!r}, wanted one of {listed}{nearest(str(found), wanted)}"
        )


def check_positive_int(argument: str, found: Any) -> None:
    """None is fine: it means that we choose."""
    if found is None:
        return
    if isinstance(found, bool) or not isinstance(found, (int, np.integer)) or found < 1:
        raise ArgumentError(f"{argument}: found {found!r}, wanted a whole number of at least 1, or None")


def own_matrix(argument: str, found: ArrayLike) -> NDArray[np.float64]:
    """A read-only copy: settings do not change with what the caller does to his own matrix later."""
    try:
        matrix = np.array(found, dtype=float, order="C")
    except (TypeError, ValueError):
        raise ArgumentError(f"{argument}: found {found!r}, wanted a matrix of numbers") from None
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
    sign, log_det = np.linalg.slogdet(matrix)
    if sign == 0 or np.linalg.cond(matrix) > 1e14:
        raise ArgumentError(f"{argument}: found a singular matrix, wanted an invertible one")
    scale = math.exp(log_det / d)
    return matrix / scale, scale
