"""Is the distribution on a ridge? Its two longest axes differ by more than a threshold (paper section IV-C).

Only two singular values are wanted, and the rows of A say nearly what they are: as of the last refresh they
were the axes, longest first. So A is looked at within the span of its first few rows, by the Rayleigh–Ritz
method: a subspace that every refresh sets anew, and that has to be good for a few generations only. Two rows
would not do: of two axes of about the same length, the longer may lie between rows.
"""

from __future__ import annotations

import math
from functools import cache

from fmnes.backends import NUMPY, Array, Backend

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
    # Not for powers that may overflow, nor for an s that is no small number, or one that rounding hides.
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
