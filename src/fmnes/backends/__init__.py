"""The few things NumPy and JAX do differently, behind one small object.

A strategy is written once, against `backend.xp` (the array namespace) and the control flow below. It never
edits an argument in place, and it never asks Python about a value that depends on data.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fmnes.errors import MissingExtra

#: An array of the backend in use.
Array = Any


@dataclass(frozen=True)
class Backend:
    name: str
    xp: Any
    """The array namespace: numpy or jax.numpy."""
    arrays: Callable[[Any, Any], Any]
    """arrays(constants, dtype): a (nested) tuple with its NumPy arrays as arrays of this backend."""
    cond: Callable[..., Any]
    """cond(predicate, if_true, if_false, *operands): calls one of the two functions."""
    choose: Callable[..., Any]
    """The same for branches so cheap that a GPU computes both sooner than it decides."""
    repeat: Callable[..., Any]
    """repeat(first, last, body, carry): carry = body(i, carry) for i = first, first - 1, …, last."""
    larger: Callable[[Array, Any], Array]
    """The larger of two numbers; NaN if the first one is."""
    search: Callable[[Any, Array], Array]
    """search(table, value): how many entries of the ascending, short table are at most value."""
    order: Callable[..., Array]
    """order(first, second, …): the indices sorted by the first key, then the next, then the index."""
    inverse: Callable[[Array], Array]
    """inverse(order): the inverse permutation, which is the rank of each entry."""
    sums_over_rows: Callable[..., Any]
    """The sums over the first axis of several arrays of one shape, together."""
    solve: Callable[[Array, Array], Array]
    """solve(a, b): a⁻¹ b; NaN, not an exception, where there is none."""
    svd: Callable[[Array], tuple[Array, Array, Array]]
    """U, singular values (descending), Vᵀ; NaN, not an exception, where it does not converge."""
    eigh: Callable[[Array], tuple[Array, Array]]
    """Eigenvalues (ascending), eigenvectors; NaN, not an exception, where it does not converge."""
    eigh_psd: Callable[[Array], tuple[Array, Array]]
    """The same where no eigenvalue is negative."""
    eigenvalues_psd: Callable[[Array], Array]
    """Its values alone."""

    def __repr__(self) -> str:  # a default of many functions, which `help` shows
        return self.name.upper()


def _numpy_arrays(constants: Any, dtype: Any) -> Any:
    if dtype == np.float64:  # as they are
        return constants
    if isinstance(constants, tuple):  # of named fields
        return type(constants)(*(_numpy_arrays(field, dtype) for field in constants))
    return constants.astype(dtype) if isinstance(constants, np.ndarray) else constants


def _numpy_cond(
    predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any
) -> Any:
    return if_true(*operands) if predicate else if_false(*operands)


def _numpy_repeat(first: int, last: int, body: Callable[[int, Any], Any], carry: Any) -> Any:
    for i in range(int(first), last - 1, -1):
        carry = body(i, carry)
    return carry


def _numpy_larger(a: Any, b: Any) -> Any:
    return type(a)(b) if a < b else a  # of two numbers Python finds it sooner than NumPy


def _numpy_order(*keys: Array) -> Array:
    return keys[0].argsort(stable=True) if len(keys) == 1 else np.lexsort(keys[::-1])


def _numpy_solve(a: Array, b: Array) -> Array:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)


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


def _numpy_eigenvalues(a: Array) -> Array:
    try:
        return np.linalg.eigvalsh(a)
    except np.linalg.LinAlgError:
        return np.full(len(a), np.nan)


NUMPY = Backend(
    name="numpy",
    xp=np,
    arrays=_numpy_arrays,
    cond=_numpy_cond,
    choose=_numpy_cond,
    repeat=_numpy_repeat,
    larger=_numpy_larger,
    search=bisect.bisect_right,
    order=_numpy_order,
    inverse=lambda order: order.argsort(stable=True),
    sums_over_rows=lambda *arrays: tuple(array.sum(axis=0) for array in arrays),
    solve=_numpy_solve,
    svd=_numpy_svd,
    eigh=_numpy_eigh,
    eigh_psd=_numpy_eigh,
    eigenvalues_psd=_numpy_eigenvalues,
)


def jax_backend(
    axis: str | None = None, decompositions: Literal["library", "rotations"] | None = None
) -> Backend:
    """The same for JAX, made on first use, so that nothing else imports JAX.

    axis: the name of the `vmap` axis along which runs go in lockstep; a branch that none of them takes is
        then skipped. None: one run, or a `vmap` that has no name.
    decompositions: "library" calls LAPACK on a CPU and cuSOLVER on a GPU, which takes the matrices of a batch
        one by one; "rotations" (backends/jax.py) treats the whole batch in every step. None: the
        library on a CPU, rotations elsewhere.
    """
    try:
        from fmnes.backends.jax import make
    except ImportError as error:
        raise MissingExtra("the JAX backend", "jax") from error
    return make(axis, decompositions)
