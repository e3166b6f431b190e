"""The few things NumPy and JAX do differently, behind one small object.

A strategy is written once, against `backend.xp` (the array namespace) and the control flow below. It never
edits an argument in place, and it never asks Python about a value that depends on data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: An array of whichever backend is in use.
Array = Any


@dataclass(frozen=True)
class Backend:
    name: str
    xp: Any
    """The array namespace: numpy or jax.numpy."""
    cond: Callable[..., Any]
    """cond(predicate, if_true, if_false, *operands): calls one of the two functions."""
    repeat: Callable[..., Any]
    """repeat(first, last, body, carry): carry = body(i, carry) for i = first, first - 1, …, last."""
    svd: Callable[[Array], tuple[Array, Array, Array]]
    """U, singular values (descending), Vᵀ; NaN, not an exception, where it does not converge."""
    eigh: Callable[[Array], tuple[Array, Array]]
    """Eigenvalues (ascending), eigenvectors; NaN, not an exception, where it does not converge."""


def _numpy_cond(
    predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any
) -> Any:
    return if_true(*operands) if predicate else if_false(*operands)


def _numpy_repeat(first: int, last: int, body: Callable[[int, Any], Any], carry: Any) -> Any:
    for i in range(int(first), last - 1, -1):
        carry = body(i, carry)
    return carry


def _numpy_svd(a: Array) -> tuple[Array, Array, Array]:
    try:
        return np.linalg.svd(a)
    except np.linalg.LinAlgError:
        return np.full_like(a, np.nan), np.full(len(a), np.nan), np.full_like(a, np.nan)


def _numpy_eigh(a: Array) -> tuple[Array, Array]:
    try:
        return np.linalg.eigh(a)
    except np.linalg.LinAlgError:
        return np.full(len(a), np.nan), np.full_like(a, np.nan)


NUMPY = Backend("numpy", np, _numpy_cond, _numpy_repeat, _numpy_svd, _numpy_eigh)
