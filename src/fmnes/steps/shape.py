"""A shape A and its inverse through one generation: A ← scale · A · exp(η_B/2 · G_B) · exp(c₁/2 · R_B).

Both exponentials, less their traces, are the identity plus a few directions (steps/low_rank.py). So is their
product, and A gains a product of two thin matrices. The scale, a number per row, takes the traces and the
expansion.
"""

from __future__ import annotations

from typing import NamedTuple

from fmnes.backends import Array, Backend
from fmnes.steps.low_rank import rank_one_factor


class Factor(NamedTuple):
    """E = I + basisᵀ · core · basis, and what A and A⁻¹ gain by it."""

    basis: Array
    """(r, d)"""
    gain: Array
    """A · basisᵀ · core: A · E = A + gain · basis. (d, r)"""
    inverse_gain: Array | None
    """inverse_core · basis · A⁻¹: E⁻¹ · A⁻¹ = A⁻¹ + basisᵀ · inverse_gain. (r, d); None without A⁻¹."""


def times(A: Array, factor: Factor, row_scale: Array) -> Array:
    """scale · A · E."""
    new = factor.gain.dot(factor.basis)
    new += A
    new *= row_scale[:, None]
    return new


def inverse_times(A_inverse: Array, factor: Factor, row_scale: Array) -> Array:
    """Its inverse, E⁻¹ · A⁻¹ · scale⁻¹."""
    new = factor.basis.T.dot(factor.inverse_gain)
    new += A_inverse
    new /= row_scale
    return new


def with_rank_one(
    factor: Factor, v: Array, Av: Array, A_inverse: Array, c_1: float, backend: Backend
) -> tuple[Factor, Array]:
    """E · exp(c₁/2 · v vᵀ), and the factor of R_B's trace (lines 33–35). v = B⁻¹ p_c, so A v = p_c."""
    xp = backend.xp
    basis, gain, inverse_gain = factor
    v2 = v.dot(v)
    basis_v = basis.dot(v)
    column = rank_one_factor(0.5 * c_1, v2, backend) * (Av + gain.dot(basis_v))
    row = rank_one_factor(-0.5 * c_1, v2, backend) * (v.dot(A_inverse) + basis_v.dot(inverse_gain))
    rows = xp.concatenate((basis, v[None, :], inverse_gain, row[None, :]))  # two matrices in one call
    longer = Factor(
        rows[: len(basis) + 1], xp.concatenate((gain, column[:, None]), axis=1), rows[len(basis) + 1 :]
    )
    return longer, xp.exp(-0.5 * c_1 * v2 / len(v))


def axis_growth(A: Array, y: Array, gain: Array, gram: Array, log_trace: Array, backend: Backend) -> Array:
    """τ_i, the relative change of the second moment along axis i (lines 21–24). (d,)

    y: A · basisᵀ (d, r); gram: basis · basisᵀ (r, r); log_trace: of the trace's factor.
    """
    xp = backend.xp
    # Row i of A E has the squared length |A_i|² + gain_i · (2 y_i + gain_i K), K the Gram matrix: the new
    # lengths follow without the new matrix.
    change = xp.vecdot(gain, 2 * y + gain.dot(gram))
    return xp.expm1(2 * log_trace) + xp.exp(2 * log_trace) / xp.vecdot(A, A) * change
