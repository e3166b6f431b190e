"""Singular values and vectors by rotations of rows, for many small matrices at once (one-sided Jacobi).

A step of the method takes all rows in pairs and turns each pair until it is orthogonal; the pairs of one
step have no row in common, so they are turned together. d − 1 steps, a sweep, let every row meet every other,
as in a round-robin tournament. After a few sweeps all rows are orthogonal: J · A = diag(s) · Vᵀ with J
orthogonal.

Every step is a few sums and products over whole arrays, so a `vmap` over matrices keeps a GPU busy, where its
library would decompose them one by one. Small singular values come out with full relative precision.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from fmnes.backends import Array

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
    if r % 2:  # a row of zeros: whoever meets it has a rest
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
