"""Exponentials that differ from the identity in few directions only, in O(d n²) instead of O(d³).

With the draws as the rows of Z (n, d), weights u (n,), U = diag(u), K = Z Zᵀ and φ₁(X) = Σ X^j/(j+1)!:

    exp(c · Zᵀ U Z) = I + Zᵀ M Z,   M = c · φ₁(c · U K) · U   (n, n), symmetric.

It follows from (Zᵀ U Z)^{j+1} = Zᵀ (U K)^j U Z, term by term in the exponential's series. The inverse has −c
in place of c. A rank-one exponent c · v vᵀ is the case n = 1 and has a closed form.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import Array, Backend

#: The series is cut where the next terms are below rounding, at the latest after this many pairs of terms:
#: good to 1e-11 for ‖c U K‖ = 10. Learning rates keep it near 0.2.
MAX_PAIRS = 20


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
        values, vectors = backend.eigh(z.T @ (u[:, None] * z))
        eye = xp.eye(d, dtype=z.dtype)
        return Exponential(
            eye,
            eye,
            (vectors * xp.expm1(c * values)) @ vectors.T,
            (vectors * xp.expm1(-c * values)) @ vectors.T,
        )
    gram = z @ z.T
    cu = c * u
    x = cu[:, None] * gram
    # φ₁(±X) = even ± odd, both polynomials in X², summed together by Horner's rule as [even; odd] (2n, n).
    square = x @ x
    pairs = backend.search(_pair_limits(), xp.sqrt(xp.vdot(square, square)))
    identities = xp.asarray(_scaled_identities(n), dtype=z.dtype)
    both = backend.repeat(pairs - 1, 0, lambda j, total: total @ square + identities[j], identities[pairs])
    even, odd = both[:n] * cu, (x @ both[n:]) * cu
    return Exponential(z, gram, odd + even, odd - even)


def rank_one_factor(c: float, v2: Array, xp: Any) -> Array:
    """b with exp(c · v vᵀ) = I + b · v vᵀ, where v2 = |v|²; 0 for v = 0."""
    return xp.expm1(c * v2) / (v2 + (v2 == 0))


@cache
def _pair_limits() -> list[float]:
    """‖X²‖ up to which the series may stop after pair j: the first pair left out is below 1e-17."""
    return [(1e-17 * math.factorial(2 * j + 3)) ** (1 / (j + 1)) for j in range(MAX_PAIRS)]


@cache
def _scaled_identities(n: int) -> NDArray[np.float64]:
    """[I/(2j+1)!; I/(2j+2)!] for j = 0, 1, …: the coefficients of even and odd. (MAX_PAIRS + 1, 2n, n)"""
    eye = np.eye(n)
    return np.stack(
        [
            np.concatenate((eye / math.factorial(2 * j + 1), eye / math.factorial(2 * j + 2)))
            for j in range(MAX_PAIRS + 1)
        ]
    )
