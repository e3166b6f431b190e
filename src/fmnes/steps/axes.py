"""The axes of the distribution: keeping F's columns the eigenvectors of B Bᵀ, where B = F A.

Then the rows of A are orthogonal. Generation by generation they lose that, a little. Setting it right anew
takes a singular value decomposition, `decomposed`. But rows that are orthogonal but for a little need only to
be turned a little, `turned`, for which one linear system is solved; and what that leaves, the next one finds.

B itself stays as it is, and so do the points.
"""

from __future__ import annotations

from typing import NamedTuple

from fmnes.backends import Array, Backend


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
