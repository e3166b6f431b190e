"""The JAX side of a backend: control flow that is compiled, and decompositions that suit the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fmnes.backends import Array, Backend

#: Largest number of entries that are all compared in one step; for more, a sort is faster.
COMPARE_ALL = 512


def make(axis: str | None, decompositions: str | None) -> Backend:
    return _make(axis, decompositions or ("library" if platform() == "cpu" else "rotations"))


def platform() -> str:
    """Where new arrays go: a machine with a GPU may be configured to use its CPU."""
    device: Any = jax.config.jax_default_device
    return str(getattr(device, "platform", device) or jax.default_backend())


@cache
def _make(axis: str | None, decompositions: str) -> Backend:
    by_rotations = decompositions == "rotations"
    return Backend(
        name="jax",
        xp=jnp,
        arrays=_arrays,
        cond=_cond if axis is None else _lockstep_cond(axis),
        choose=_choose,
        repeat=_repeat,
        larger=jnp.maximum,
        search=_search,
        order=_order,
        inverse=_inverse,
        sums_over_rows=_sums_over_rows,
        solve=jnp.linalg.solve,
        svd=rotation_svd if by_rotations else _svd,
        eigh=_eigh,
        eigh_psd=_rotation_eigh if by_rotations else _eigh,
        eigenvalues_psd=_rotation_eigenvalues if by_rotations else jnp.linalg.eigvalsh,
    )


def _arrays(constants: Any, dtype: Any) -> Any:
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, dtype) if isinstance(leaf, np.ndarray) else leaf, constants
    )


def _cond(predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
    if isinstance(predicate, bool):  # a setting, known while tracing
        return if_true(*operands) if predicate else if_false(*operands)
    return lax.cond(predicate, if_true, if_false, *operands)


def _choose(predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
    # What neither side touches is handed through: a number common to all runs stays common.
    return jax.tree.map(
        lambda yes, no: yes if yes is no else jnp.where(predicate, yes, no),
        if_true(*operands),
        if_false(*operands),
    )


def _lockstep_cond(axis: str) -> Callable[..., Any]:
    """`vmap` turns a branch whose predicate differs between runs into both branches and a choice.

    Asking the whole batch first keeps the branch: where all runs agree only one side is computed.
    """

    def cond(
        predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any
    ) -> Any:
        if isinstance(predicate, bool):
            return if_true(*operands) if predicate else if_false(*operands)

        def both(*operands: Any) -> Any:
            return _choose(predicate, if_true, if_false, *operands)

        as_int = jnp.asarray(predicate, dtype=jnp.int32)
        agreement = lax.pmax(as_int, axis) + lax.pmin(as_int, axis)  # 0: none, 1: some, 2: all
        return lax.switch(agreement, (if_false, both, if_true), *operands)

    return cond


def _repeat(first: Any, last: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    return lax.fori_loop(0, first - last + 1, lambda step, c: body(first - step, c), carry)


def _svd(a: Array) -> tuple[Array, Array, Array]:
    U, values, Vt = jnp.linalg.svd(a)
    return U, values, Vt


def _eigh(a: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(a)
    return values, vectors


def _rotation_eigh(a: Array) -> tuple[Array, Array]:
    """Where no eigenvalue is negative, singular values are eigenvalues."""
    vectors, values, _ = rotation_svd(a)
    return values[::-1], vectors[:, ::-1]


def _rotation_eigenvalues(a: Array) -> Array:
    return rotation_singular_values(a)[::-1]


def _sums_over_rows(*arrays: Array) -> Any:
    """One reduction with several results reads what they share once; several reductions, once each."""
    zeros = tuple(jnp.zeros((), array.dtype) for array in arrays)
    count = len(arrays)

    def add(*both: Any) -> Any:
        (a, b) = both if len(both) == 2 else (both[:count], both[count:])
        return tuple(x + y for x, y in zip(a, b, strict=True))

    return lax.reduce(arrays, zeros, add, (0,))


def _search(table: Sequence[float], value: Array) -> Array:
    """All comparisons at once: a search in steps would be a loop, each step a kernel of its own."""
    at_most = [~(value < jnp.asarray(entry, value.dtype)) for entry in table]  # NaN comes last, as in bisect
    return sum((jnp.asarray(yes, jnp.int32) for yes in at_most), jnp.int32(0))


def _order(*keys: Array) -> Array:
    count = len(keys[0])
    if count > COMPARE_ALL:
        return jnp.lexsort(keys[::-1])
    index = jnp.arange(count)
    before = index < index[:, None]
    for key in reversed(keys):
        mine = key[:, None]
        before = (key < mine) | ((key == mine) & before)
    return _inverse(before.sum(axis=1))


def _inverse(order: Array) -> Array:
    count = len(order)
    if count > COMPARE_ALL:
        return jnp.argsort(order)
    return (order == jnp.arange(count)[:, None]).argmax(axis=1)


# Singular values and vectors by rotations of rows, for many small matrices at once (one-sided Jacobi).
#
# A step of the method takes all rows in pairs and turns each pair until it is orthogonal; the pairs of one
# step have no row in common, so they are turned together. d − 1 steps, a sweep, let every row meet every
# other,
# as in a round-robin tournament. After a few sweeps all rows are orthogonal: J · A = diag(s) · Vᵀ with J
# orthogonal.
#
# Every step is a few sums and products over whole arrays, so a `vmap` over matrices keeps a GPU busy, where
# its library would decompose them one by one. Small singular values come out with full relative precision.


#: More than a shape of float64 takes; what has not converged by then is NaN.
MAX_SWEEPS = 30


def rotation_svd(a: Array) -> tuple[Array, Array, Array]:
    """U, singular values (descending), Vᵀ of a square matrix, (d, d)."""
    d = a.shape[0]
    rows = _orthogonal_rows(jnp.concatenate((a, jnp.eye(d, dtype=a.dtype)), axis=1), d)
    lengths = jnp.sqrt(jnp.vecdot(rows[:, :d], rows[:, :d]))
    order = jnp.argsort(-lengths)
    rows, lengths = rows[order], lengths[order]
    return rows[:, d:].T, lengths, rows[:, :d] / jnp.where(lengths > 0, lengths, 1.0)[:, None]


def rotation_singular_values(a: Array) -> Array:
    """Of a matrix with few columns, (d, b) -> (b,), descending."""
    rows = _orthogonal_rows(a.T, a.shape[0])
    return -jnp.sort(-jnp.sqrt(jnp.vecdot(rows, rows)))


def _orthogonal_rows(rows: Array, length: int) -> Array:
    """Turn the rows (r, c) until their first `length` entries are orthogonal; the other entries go along."""
    r = rows.shape[0]
    if r % 2:  # a row of zeros completes the last pair
        rows = jnp.concatenate((rows, jnp.zeros_like(rows[:1])))
    half = rows.shape[0] // 2
    eps = float(jnp.finfo(rows.dtype).eps)
    tolerance = eps * length**0.5
    # Near the end a sweep squares the cosines: one that met only such small ones leaves none above rounding.
    last = eps**0.5 / 16

    def step(_: Any, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        top, bottom, worst = carry
        a, b = top[:, :length], bottom[:, :length]
        aa, bb, ab = (a * a).sum(1), (b * b).sum(1), (a * b).sum(1)
        size = jnp.sqrt(aa) * jnp.sqrt(bb)
        cosine = jnp.abs(ab) / jnp.where(size > 0, size, 1.0)
        # The smaller angle that makes them orthogonal: tan(2φ) = 2 ab/(aa − bb).
        turning = cosine > tolerance
        zeta = (bb - aa) / jnp.where(turning, 2 * ab, 1.0)
        tangent = jnp.where(zeta >= 0, 1.0, -1.0) / (jnp.abs(zeta) + jnp.sqrt(1 + zeta * zeta))
        tangent = jnp.where(turning, tangent, 0.0)
        c = 1 / jnp.sqrt(1 + tangent * tangent)
        s = c * tangent
        top, bottom = c[:, None] * top - s[:, None] * bottom, s[:, None] * top + c[:, None] * bottom
        # The next pairing: row 0 stays, all others move on by one seat.
        seats = (
            jnp.concatenate((top[:1], bottom[:1], top[1:-1])),
            jnp.concatenate((bottom[1:], top[-1:])),
        )
        return *(seats if half > 1 else (top, bottom)), jnp.maximum(worst, cosine.max())

    def sweep(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        top, bottom, _, count = carry
        top, bottom, worst = lax.fori_loop(0, 2 * half - 1, step, (top, bottom, jnp.zeros((), rows.dtype)))
        return top, bottom, worst, count + 1

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        return (carry[2] > last) & (carry[3] < MAX_SWEEPS)

    start = (rows[:half], rows[half:], jnp.asarray(jnp.inf, rows.dtype), jnp.asarray(0))
    top, bottom, worst, _ = lax.while_loop(unfinished, sweep, start)
    turned = jnp.concatenate((top, bottom))
    if r % 2:
        # After whole sweeps every row sits where it began, the row of zeros at the end.
        turned = turned[:-1]
    return jnp.where(worst <= last, turned, jnp.nan)
