"""The natural gradient for the covariance σ² D (I + v vᵀ) D, from VD-CMA.

Y. Akimoto, A. Auger and N. Hansen, "Comparison-Based Natural Gradient Optimization in High Dimension", 2014.

    v̄, q, g    v/|v|, v̄∗v̄ and 1 + |v|²; `∗` is the product by coordinates
    z, a       a sample N(0, I), and v̄·z; z_⊥ = z − a v̄
    y, u       the same sample as N(0, I + v vᵀ): y = z + (√g − 1) a v̄, and u = v̄·y = √g a
    s, t       its gradient: D ← D + D∗s, v ← v + t/|v|
    α          VD-CMA's factor ≤ 1 that keeps the Fisher matrix positive definite
    b, H       abbreviations of the papers: H = 2 − (b + 2α²) q

The papers write, of each y,

    t  = u y − ½ (u² + g) v̄
    s₂ = y∗y − (|v|²/g) u v̄∗y − 1 − (α/g) ((2 + |v|²) v̄∗t − |v|² (v̄·t) q)
    s  = s₂/H − b/(1 + b q·(q/H)) (q·(s₂/H)) q/H
    t  ← t − α ((2 + |v|²) v̄∗s − (q·s) v̄)

whose terms grow with |v|² and cancel. In terms of z most of them are gone:

    t  = √g a z_⊥ + ½ g (a² − 1) v̄
    s₂ = z∗z − 1 − α (a² − 1) q + C a v̄∗z_⊥,    C = ((√g − 1)² − α (1 + g))/√g

All of it is linear in a z_⊥, z∗z − 1 and a² − 1. So it is computed once for all samples, from the sums of
these with each sample's coefficient.
"""

from __future__ import annotations

from typing import NamedTuple

from fmnes.backends import Array, Backend
from fmnes.steps.sampling import dot, largest

#: Divisions by |v| take at least this: v = 0 then stays 0, and D goes on alone.
MIN_LENGTH = 1e-4


class Lengths(NamedTuple):
    length: Array
    """|v| to divide by."""
    root: Array
    """√g"""
    kappa: Array
    """√g − 1"""


def lengths(v: Array, backend: Backend) -> Lengths:
    xp = backend.xp
    length2 = dot(v, v, backend)
    root = xp.sqrt(1 + length2)
    return Lengths(xp.maximum(xp.sqrt(length2), MIN_LENGTH), root, length2 / (1 + root))


class Gradient(NamedTuple):
    """s and t in two steps, because two sums over all coordinates have to be complete before the second."""

    root: Array
    """√g"""
    alpha: Array
    b: Array
    C: Array
    H_q: Array
    """b + 2α²"""

    def begin(self, v_bar: Array, P: Array, Q: Array, N: Array) -> tuple[Array, Array]:
        """s₂/H and the first t, from P = Σ a z_⊥, Q = Σ (z∗z − 1) and N = Σ (a² − 1)."""
        s_2 = Q + v_bar * (self.C * P - (self.alpha * N) * v_bar)
        t = self.root * P + (0.5 * self.root**2 * N) * v_bar
        return s_2 / self.H(v_bar * v_bar), t

    def projections(self, v_bar: Array, s: Array, backend: Backend) -> tuple[Array, Array]:
        """q·(q/H) and q·(s₂/H)."""
        q = v_bar * v_bar
        return dot(q, q / self.H(q), backend), dot(q, s, backend)

    def finish(
        self, v_bar: Array, s: Array, t: Array, qq: Array, qs: Array, backend: Backend
    ) -> tuple[Array, Array]:
        """s and t, from s₂/H, the first t and the projections."""
        q = v_bar * v_bar
        # q·s: multiply the formula for s by q. The bound is for rounding: with v on an axis and |v| > 10⁸ the
        # denominator, 4/√g in truth, may come out as 0.
        qs = qs / backend.xp.maximum(1 + self.b * qq, 1 / self.root)
        s = s - (self.b * qs) * (q / self.H(q))
        return s, t - self.alpha * v_bar * ((1 + self.root**2) * s - qs)

    def H(self, q: Array) -> Array:
        return 2 - self.H_q * q


def gradient_at(v: Array, length: Array, root: Array, backend: Backend) -> Gradient:
    """What the gradient needs of v as a whole; α, b and C without differences of large numbers."""
    xp = backend.xp
    # The largest q of a unit vector is at least 1/d; the bound is for v = 0.
    max_q = xp.maximum((largest(v, backend) / length) ** 2, 1 / len(v))
    # α = min(1, √(|v|⁴ + (2g − √g)/max q)/(2 + |v|²)) becomes √(1 − g r/(1 + g)²), and then b + 2α² is 4 − r.
    r = xp.maximum(4 - (2 - 1 / root) / max_q, 0.0)
    g = root**2
    alpha = xp.sqrt(1 - g * r / (1 + g) ** 2)
    return Gradient(
        root=root,
        alpha=alpha,
        b=4 - r - 2 * alpha**2,
        C=root * r / ((1 + g) * (1 + alpha)) - 2,
        H_q=4 - r,
    )
