"""Exponentials that differ from the identity in few directions only, in O(d n²) instead of O(d³).

With the draws as the rows of Z (n, d), weights u (n,), U = diag(u), K = Z Zᵀ and φ₁(X) = Σ X^j/(j+1)!:

    exp(c · Zᵀ U Z) = I + Zᵀ M Z,   M = c · φ₁(c · U K) · U   (n, n), symmetric.

It follows from (Zᵀ U Z)^{j+1} = Zᵀ (U K)^j U Z, term by term in the exponential's series. The inverse has −c
in place of c. A rank-one exponent c · v vᵀ is the case n = 1 and has a closed form.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import Array, Backend

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
