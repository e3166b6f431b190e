"""The shape matrix: low-rank exponentials, its update, its axes, and the ridge test."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import NUMPY, Array, Backend

# Exponentials that differ from the identity in few directions only, in O(d n²) instead of O(d³).
#
# With the draws as the rows of Z (n, d), weights u (n,), U = diag(u), K = Z Zᵀ and φ₁(X) = Σ X^j/(j+1)!:
#
#     exp(c · Zᵀ U Z) = I + Zᵀ M Z,   M = c · φ₁(c · U K) · U   (n, n), symmetric.
#
# It follows from (Zᵀ U Z)^{j+1} = Zᵀ (U K)^j U Z, term by term in the exponential's series. The inverse has
# −c
# in place of c. A rank-one exponent c · v vᵀ is the case n = 1 and has a closed form.


#: The series is summed in blocks of this many pairs of terms: X^{2j} and X^{2j+1}.
PAIRS = 3
#: It is cut where the next terms are below rounding, at the latest after this many blocks: good to 1e-11 for
#: ‖c U K‖ = 10. Learning rates keep it near 0.2, and two blocks are enough.
MAX_BLOCKS = 7


class Exponential(NamedTuple):
    """exp(±c · Zᵀ U Z) = I + basisᵀ · core · basis."""

    basis: Array
    """(r, d) with r = min(n, d)."""
    gram: Array
    """basis · basisᵀ. (r, r)"""
    core: Array
    inverse_core: Array


def exponential(z: Array, u: Array, c: Array, backend: Backend) -> Exponential:
    """z: (n, d); u: (n,); c: a scalar."""
    xp = backend.xp
    n, d = z.shape
    if n > d:  # The draws span the whole space: decompose the d × d exponent itself.
        values, vectors = backend.eigh(z.T.dot(u[:, None] * z))
        eye = xp.eye(d, dtype=z.dtype)
        return Exponential(
            eye,
            eye,
            (vectors * xp.expm1(c * values)).dot(vectors.T),
            (vectors * xp.expm1(-c * values)).dot(vectors.T),
        )
    gram = z.dot(z.T)
    cu = c * u
    x = cu[:, None] * gram
    # φ₁(±X) = even ± odd, both polynomials in S = X²: Σ_b S^{3b} · (a combination of I, S and S²), the blocks
    # all at once as [even; odd] (2n, n), and then their sum by Horner's rule.
    square = x.dot(x)
    fourth = square.dot(square)
    powers = xp.concatenate((xp.asarray(_identity(n), dtype=z.dtype), square, fourth)).reshape(PAIRS, n * n)
    blocks = xp.asarray(_coefficients(), dtype=z.dtype).dot(powers).reshape(MAX_BLOCKS, 2 * n, n)
    last = backend.search(_block_limits(), xp.sqrt(xp.vdot(square, square)))
    sixth = square.dot(fourth)
    both = backend.repeat(last - 1, 0, lambda b, total: total.dot(sixth) + blocks[b], blocks[last])
    even, odd = both[:n] * cu, x.dot(both[n:]) * cu
    return Exponential(z, gram, odd + even, odd - even)


def rank_one_factor(c: float, v2: Array, backend: Backend) -> Array:
    """b with exp(c · v vᵀ) = I + b · v vᵀ, where v2 = |v|²; 0 for v = 0."""
    return backend.xp.expm1(c * v2) / (v2 + (v2 == 0))


@cache
def _block_limits() -> list[float]:
    """‖X²‖ above which block b + 1 is needed: its first pair of terms reaches 1e-17."""
    return [(1e-17 * math.factorial(2 * j + 1)) ** (1 / j) for j in range(PAIRS, PAIRS * MAX_BLOCKS, PAIRS)]


@cache
def _coefficients() -> NDArray[np.float64]:
    """1/(2j+1)! and 1/(2j+2)!: two rows, for even and odd, of three j for each block. (2 · MAX_BLOCKS, 3)"""
    j = range(PAIRS * MAX_BLOCKS)
    even = np.reshape([1 / math.factorial(2 * i + 1) for i in j], (MAX_BLOCKS, 1, PAIRS))
    odd = np.reshape([1 / math.factorial(2 * i + 2) for i in j], (MAX_BLOCKS, 1, PAIRS))
    return np.concatenate((even, odd), axis=1).reshape(2 * MAX_BLOCKS, PAIRS)


@cache
def _identity(n: int) -> NDArray[np.float64]:
    return np.eye(n)


# A shape A and its inverse through one generation: A ← scale · A · exp(η_B/2 · G_B) · exp(c₁/2 · R_B).
#
# Both exponentials, less their traces, are the identity plus a few directions (steps/shape.py). So is their
# product, and A gains a product of two thin matrices. The scale, a number per row, takes the traces and the
# expansion.


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


# The axes of the distribution: keeping F's columns the eigenvectors of B Bᵀ, where B = F A.
#
# Then the rows of A are orthogonal. Generation by generation they lose that, a little. Setting it right anew
# takes a singular value decomposition, `decomposed`. But rows that are orthogonal but for a little need only
# to be turned a little, `turned`, for which one linear system is solved; and what that leaves, the next one
# finds.
#
# B itself stays as it is, and so do the points.


class Axes(NamedTuple):
    F: Array
    """(d, d)"""
    A: Array
    """(d, d)"""
    A_inverse: Array | None
    """(d, d)"""
    p_c: Array
    """A vector in F's frame. (d,)"""


def decomposed(axes: Axes, backend: Backend) -> Axes:
    """The rows of A orthogonal, longest first."""
    xp = backend.xp
    # From B itself, not from B Bᵀ, which would lose half of the digits; and not F ← F U, which would drift.
    F, lengths, Vt = backend.svd(axes.F.dot(axes.A))
    lengths = xp.maximum(lengths, lengths[0] * (len(lengths) * xp.finfo(lengths.dtype).eps))
    return Axes(
        F=F,
        A=lengths[:, None] * Vt,
        A_inverse=None if axes.A_inverse is None else Vt.T / lengths,
        p_c=F.T.dot(axes.F.dot(axes.p_c)),
    )


def turned(axes: Axes, backend: Backend) -> Axes:
    """The same to first order, by a rotation."""
    U = _rotation(axes.A, backend)
    return Axes(
        F=axes.F.dot(U),
        A=U.T.dot(axes.A),
        A_inverse=None if axes.A_inverse is None else axes.A_inverse.dot(U),
        p_c=axes.p_c.dot(U),
    )


def _rotation(A: Array, backend: Backend) -> Array:
    """U, orthogonal, with Uᵀ (A Aᵀ) U closer to diagonal, longest axis first. (d, d)

    With g the diagonal of A Aᵀ and S skew, U = I + S + … leaves (A Aᵀ)_ij − S_ij (g_j − g_i) off it, to first
    order; so S_ij = (A Aᵀ)_ij/(g_j − g_i). For two axes of about the same length that would be a large angle,
    found from little, and such axes are left alone: with θ the angle that would part these two alone, which
    has tan 2θ = 2 (A Aᵀ)_ij/(g_j − g_i), S_ij is not θ but ¼ sin 4θ.

    (A Aᵀ)_ij is good to the last digits of |A_i| |A_j|, so short axes are not lost beside long ones.
    """
    xp = backend.xp
    gram = A.dot(A.T)
    g = gram.diagonal()
    gap = g - g[:, None]
    size = gap * gap + 4 * gram * gram
    half = 0.5 * gram * gap / (size + (size == 0))
    eye = xp.eye(len(g), dtype=g.dtype)
    U = backend.solve(eye - half, eye + half)  # Cayley's transform: orthogonal for any skew matrix
    return U[:, (-g).argsort(stable=True)]


# Is the distribution on a ridge? Its two longest axes differ by more than a threshold (paper section
# IV-C).
#
# Only two singular values are wanted, and the rows of A say nearly what they are: as of the last refresh
# they were the axes, longest first. So A is looked at within the span of its first few rows, by the
# Rayleigh–Ritz method: a subspace that every refresh sets again and that is used for a few generations only.
# Two rows would not do: of two axes of about the same length, the longer may lie between rows.


#: Rows that are looked at.
LEADING = 8
#: With more rows, a 128th power of their Gram matrix might overflow.
MOST_ROWS = 100


def on_ridge(rows: Array, threshold: Array, backend: Backend) -> Array:
    """σ₁/σ₂ > threshold for these rows of A (k, d), and so for A, if the others are orthogonal to them."""
    gram = rows.dot(rows.T)  # squares, but the two largest eigenvalues lose no digits
    if backend is NUMPY and gram.itemsize == 8:  # float64, whose rounding it counts on
        surely = _surely_on_ridge(gram, threshold)
        if surely is not None:
            return surely
    values = backend.eigenvalues_psd(gram)
    return values[-1] > threshold**2 * values[-2]


def _surely_on_ridge(gram: Array, threshold: float) -> bool | None:
    """The answer from a few products, sooner than by a decomposition; None if too close to call.

    With x_i = (σ_i/σ₁)^p, p a large power of two, and s = Σx_i over i > 1, traces of powers of the Gram
    matrix give 2 s ≈ 1 − Σσ_i^{2p}/(Σσ_i^p)². If even s is below the x₂ that is asked for, so is x₂; if s is
    above k − 1 times that, x₂ is not. In between lie one or two hundredths of the ratio.
    """
    squarings = _squarings(threshold)
    asked = threshold ** -(4 << squarings)
    # Not for powers that may overflow, nor if s is large or hidden by rounding.
    if len(gram) > MOST_ROWS or not 1e-13 < asked < 0.01:
        return None
    power = gram / gram[0, 0]
    for _ in range(squarings):
        power = power.dot(power)
    once, twice = power.ravel(), power.dot(power).ravel()
    trace = once.dot(once)
    s = 0.5 - 0.5 * twice.dot(twice) / (trace * trace)
    if s < 0.98 * asked:
        return True
    if s > 1.01 * len(gram) * asked:
        return False
    return None


@cache
def _squarings(threshold: float) -> int:
    """At most 5, and no more than leave the x₂ asked for, threshold^{−p}, well above rounding beside 1."""
    return min(5, max(0, int(math.log2(math.log(1e12) / math.log(threshold))) - 2))
