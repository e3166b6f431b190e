"""Is the distribution on a ridge? The ratio of its two longest axes (paper section IV-C).

Only two singular values are wanted, and the rows of A say nearly what they are: as of the last refresh they
were the axes, longest first. So A is looked at within the span of its first few rows, by the Rayleigh–Ritz
method: a subspace that every refresh sets anew, and that has to be good for a few generations only. Two rows
would not do: of two axes of about the same length, the longer may lie between rows.
"""

from __future__ import annotations

from fmnes.backends import Array, Backend

#: Rows that are looked at.
LEADING = 8


def axis_ratio(rows: Array, backend: Backend) -> Array:
    """σ₁/σ₂ of these rows of A (k, d), and so of A, if the others are orthogonal to them."""
    values = backend.eigenvalues_psd(rows.dot(rows.T))  # squares, but the two largest lose no digits
    return backend.xp.sqrt(values[-1] / values[-2])
