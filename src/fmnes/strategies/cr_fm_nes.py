"""CR-FM-NES: FM-NES for high dimension, O(d λ) a generation in time and memory.

The natural gradient for the covariance σ² D (I + v vᵀ) D, from VD-CMA.

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

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import is_number, shown, suggest_options
from fmnes.backends import NUMPY, Array, Backend
from fmnes.errors import ArgumentError
from fmnes.steps.adaptation import MOVEMENT, expected_norm, follow, learning_rates, phase_name, phase_of
from fmnes.steps.sampling import (
    RankWeights,
    by_columns,
    distance_alphas,
    distance_weights,
    dot,
    draw_sums,
    largest,
    mirrored_points_by_columns,
    pair_differences,
    pair_sums,
    rank_weights,
    weighted_sum,
)
from fmnes.strategies.base import Shape, Strategy

# -- The natural gradient of v and D

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
        root=root, alpha=alpha, b=4 - r - 2 * alpha**2, C=root * r / ((1 + g) * (1 + alpha)) - 2, H_q=4 - r
    )


# -- Constants of CR-FM-NES


class Constants(NamedTuple):
    """All that depends on d and λ alone; tables by the number of feasible points, λ_F = 0 … λ."""

    weights: RankWeights
    alphas: NDArray[np.float64]
    """(λ + 1,)"""
    eta_sigma: NDArray[np.float64]
    """By phase and λ_F. (3, λ + 1)"""
    eta_B: NDArray[np.float64]
    """(λ + 1,)"""
    c_1: NDArray[np.float64]
    """(λ + 1,)"""
    expected_norm: float
    c_sigma: float
    c_c: float


@cache
def constants(d: int, population_size: int) -> Constants:
    weights = rank_weights(population_size)
    mu = weights.mu_eff
    feasible: Any = np.arange(population_size + 1)
    share = feasible / population_size
    return Constants(
        weights=weights,
        # Unlike in FM-NES: λ under the first root, c_σ without √d, η_B the same in every phase, λ_F in c₁.
        alphas=distance_alphas(d, population_size, public=True),
        eta_sigma=learning_rates(d, population_size).sigma,
        eta_B=np.tanh((np.minimum(0.02 * feasible, 3 * math.log(d)) + 5) / (0.23 * d + 25)),
        c_1=2 / ((d + 1.3) ** 2 + mu) * max(0, d - 5) / 6 * share,
        expected_norm=expected_norm(d),
        c_sigma=(mu + 2) / (d + mu + 5),
        c_c=(4 + mu / d) / (d + 4 + 2 * mu / d),
    )


# CR-FM-NES: FM-NES for high dimension, O(d λ) a generation in time and in memory.
#
# M. Nomura and I. Ono, "Fast Moving Natural Evolution Strategy for High-Dimensional Problems", 2022.
#
#     m, σ       mean and step size; points are x = m ± σ D∗y; `∗` is the product by coordinates
#     D, v       the covariance is σ² D (I + v vᵀ) D; D is diagonal, kept as a vector; det D · √(1 + |v|²) =
# 1
#     v̄, g       v/|v| and 1 + |v|²
#     y          (I + v vᵀ)^½ z = z + κ a v̄, with a = v̄·z and κ = √g − 1
#     p_σ, p_c   evolution paths
#     z_c, a_c   p_c as a sample, p_c = D∗(z_c + κ a_c v̄)
#     s, t       natural gradient: D ← D + D∗s, v ← v + t/|v| (strategies/cr_fm_nes.py)
#
# The paper computes s and t of each of λ + 1 samples, z_1 … z_λ with coefficients η_B w_i and z_c with c₁.
# They are linear in z∗z, a z and a², which the two halves of a mirrored pair share, so here they are
# computed once, for the sums. With S_k and W_k the difference and the sum of a pair's weights, all that the
# update needs of the draws is then ΣS_k z_k, ΣW_k a_k z_k and ΣW_k z_k∗z_k. The draws are read three times:
# for |z_k|² and a_k, which the ranks need; for p_σ, which the weights need; and for these sums. Only the
# points have λ rows.


#: The least 1 + s without `max_change`, so that D stays positive.
MIN_FACTOR = 0.1


class CRFMNESState(NamedTuple):
    """What CR-FM-NES knows of its search: the covariance is σ² D (I + v vᵀ) D, held as two vectors."""

    mean: Array
    """m, where the points are centred. (d,)"""
    sigma: Array
    """σ, the step size."""
    D: Array
    """The coordinates' own scales, the diagonal of D. (d,)"""
    v: Array
    """The direction outside the coordinate axes, in units of D. (d,)"""
    p_sigma: Array
    """The path of the mean in the draws' coordinates: how long it is decides the phase. (d,)"""
    p_c: Array
    """The path of the mean, over σ, for the rank-one update. (d,)"""


class Weighted(NamedTuple):
    """The draws with their weights, as far as it takes no d numbers: what their sums need."""

    S: Array
    """Differences of the pairs' weights. (n,)"""
    W: Array
    """Sums of the pairs' weights, times η_B: the samples' coefficients in s and t. (n,)"""
    Wa: Array
    """W_k a_k (n,)"""
    Sa: Array
    """ΣS_k a_k"""
    Waa: Array
    """ΣW_k a_k²"""
    a_c: Array
    """v̄·z_c, of the new p_c"""
    c_1: Array


@dataclass(frozen=True)
class CRFMNES(Strategy):
    """Settings of CR-FM-NES (Nomura & Ono 2022), for many coordinates: O(d λ) per generation.

    Parameters
    ----------
    population_size : int, optional
        Points in a generation; about 4 + 3 ln d by default.
    max_change : float or None, optional
        Upper limit for the change of v, and of any coordinate of D, in one generation, relative to its value;
        both steps are shortened alike. VD-CMA uses 0.7. The paper has no such limit (None), and then v and D
        diverge on ridges that are not parallel to an axis.

    Raises
    ------
    ArgumentError
        `max_change` is not between 0 and 1.

    Examples
    --------
    >>> import fmnes
    >>> fmnes.CRFMNES(max_change=0.5)
    CRFMNES(population_size=None, max_change=0.5)
    """

    name = "cr-fm-nes"
    mirrored = True
    failed_order = "distance"
    matrices = 0  # D and v are vectors
    population_size: int | None = None
    max_change: float | None = 0.7

    def __post_init__(self) -> None:
        if self.max_change is not None and not (is_number(self.max_change) and 0 < self.max_change < 1):
            raise ArgumentError(
                f"max_change: found {shown(self.max_change)}, wanted a number between 0 and 1, or None"
            )

    def init(self, x0: Array, sigma0: Array, z0: Array, backend: Backend = NUMPY) -> CRFMNESState:
        """Return the first state; see `Strategy.init`."""
        xp = backend.xp
        return CRFMNESState(
            mean=x0,
            sigma=xp.asarray(sigma0, dtype=x0.dtype)[()],
            D=xp.ones_like(x0),
            v=xp.asarray(z0, dtype=x0.dtype) / math.sqrt(len(x0)),  # ~ N(0, I/d)
            p_sigma=xp.zeros_like(x0),
            p_c=xp.zeros_like(x0),
        )

    def sample(self, state: CRFMNESState, z: Array, backend: Backend = NUMPY) -> Array:
        """Return the points of these draws; see `Strategy.sample`."""
        length, _, kappa = lengths(state.v, backend)
        along_v = (kappa * dot(z, state.v, backend) / length**2)[:, None]  # y = z + κ a v̄

        def steps(z: Array, D: Array, v: Array) -> Array:
            scale = state.sigma * D
            return scale * z + along_v * (scale * v)  # rows σ D∗y ~ N(0, σ² D (I + v vᵀ) D)

        return mirrored_points_by_columns(steps, state.mean, z, state.D, state.v, backend=backend)

    def coordinates(self, state: CRFMNESState, x: Array) -> Array:
        """Return the draws z of the points; see `Strategy.coordinates`. y = z + κ a v̄, so a = v̄·y/(1 + κ)."""
        length, _, kappa = lengths(state.v, NUMPY)
        y = (x - state.mean) / (state.sigma * state.D)
        v_bar = state.v / length
        along_v = kappa / (1 + kappa) * y.dot(v_bar)
        return y - along_v[:, None] * v_bar

    def update(
        self, state: CRFMNESState, z: Array, order: Array, n_feasible: Array, backend: Backend = NUMPY
    ) -> CRFMNESState:
        """Return the next state; see `Strategy.update`."""
        xp = backend.xp
        n, d = z.shape
        k = backend.arrays(constants(d, len(order)), state.mean.dtype)
        at = lengths(state.v, backend)

        # The draws for the first time: inner products. norm2 ~ χ²(d)
        products = partial(_products, backend=backend)
        _, (norm2, vz, vp) = by_columns(
            products, z, state.v, state.D, state.p_c, backend=backend
        )  # norm2 ~ χ²(d)
        a = vz / at.length  # v̄·z ~ N(0, 1)
        a_c = vp / (at.length * at.root)  # v̄·z_c ~ N(0, 1), of the p_c so far

        # The second time: the path, hence the phase, hence the weights. |p_σ| would also follow from the
        # products of the draws with each other, but those cost more than reading z once more.
        ranks = backend.inverse(order)
        by_rank = k.weights.centred[ranks]
        path = partial(_path, S=pair_differences(by_rank, n), k=k, backend=backend)
        (p_sigma,), (path_norm2,) = by_columns(path, z, state.p_sigma, backend=backend)
        phase = phase_of(xp.sqrt(path_norm2), k.expected_norm, backend)
        weights = backend.choose(
            phase == MOVEMENT,
            lambda: distance_weights(k.weights, ranks, norm2, k.alphas[n_feasible], k.expected_norm, backend),
            lambda: by_rank,
        )
        G_sigma = dot(pair_sums(weights, n), norm2 - d, backend) / d  # Σ w (|z|² − d)/d, of mean 0

        # The third time: the sums, hence where the mean goes, and the gradient.
        weighted = _weighted(weights, a, a_c, n_feasible, k, backend)
        gradient = gradient_at(state.v, at.length, at.root, backend)
        move = partial(
            _move, weighted=weighted, gradient=gradient, at=at, sigma=state.sigma, k=k, backend=backend
        )
        (mean, p_c, s, t), (qq, qs) = by_columns(
            move, z, state.mean, state.D, state.v, state.p_c, backend=backend
        )

        # The draws are done with. How far D and v would go, how far they may, and there they go.
        finish = partial(_finish, gradient=gradient, length=at.length, qq=qq, qs=qs, backend=backend)
        (s, t), (t_norm2,) = by_columns(finish, state.v, s, t, backend=backend)
        apply = partial(
            _apply, rate=self._rate(s, t_norm2, at.length, backend), length=at.length, backend=backend
        )
        (D, v), (log_D, length2) = by_columns(apply, state.D, state.v, s, t, backend=backend)
        D *= xp.exp(-(log_D + 0.5 * xp.log1p(length2)) / d)  # by logarithms: det D itself would overflow
        return CRFMNESState(
            mean=mean,
            sigma=state.sigma * xp.exp(0.5 * k.eta_sigma[phase, n_feasible] * G_sigma),
            D=D,
            v=v,
            p_sigma=p_sigma,
            p_c=p_c,
        )

    def _rate(self, s: Array, t_norm2: Array, length: Array, backend: Backend) -> Array:
        """The share of the steps in D and v that `max_change` leaves: 1 where they keep to it."""
        if self.max_change is None:
            return 1.0
        xp = backend.xp
        change = xp.maximum(largest(s, backend), xp.sqrt(t_norm2) / length**2)
        return self.max_change / xp.maximum(change, self.max_change)

    def shape(self, state: CRFMNESState, backend: Backend = NUMPY) -> Shape:
        """Return the search distribution; see `Strategy.shape`."""
        xp = backend.xp
        d = len(state.mean)
        path_norm = xp.sqrt(dot(state.p_sigma, state.p_sigma, backend))
        phase = phase_name(path_norm, expected_norm(d), backend)
        return Shape(state.mean, state.sigma, _spread(state, backend), phase)

    def deviations(self, state: CRFMNESState, backend: Backend = NUMPY) -> Array:
        """Return the standard deviations of the coordinates, the roots of the diagonal of `covariance`.

        See `Strategy.deviations`.
        """
        return state.sigma * _spread(state, backend)

    def covariance(self, state: CRFMNESState, backend: Backend = NUMPY) -> Array:
        """Return the covariance of the points; see `Strategy.covariance`."""
        D = state.sigma * state.D
        Dv = D * state.v
        return backend.xp.diag(D * D) + Dv[:, None] * Dv


# The parts of an update that read arrays of d columns: each returns columns, and sums over them (by_columns).


def _products(z: Array, v: Array, D: Array, p_c: Array, *, backend: Backend) -> tuple[Any, Any]:
    """|z_k|² and v·z_k of each draw, and v·(p_c/D), which is |v| √g a_c."""
    return (), (dot(z, z, backend), dot(z, v, backend), dot(v, p_c / D, backend))


def _path(z: Array, p_sigma: Array, *, S: Array, k: Constants, backend: Backend) -> tuple[Any, Any]:
    """p_σ ~ N(0, I), and |p_σ|²."""
    p_sigma = follow(p_sigma, weighted_sum(S, z, backend), k.c_sigma, k.weights.mu_eff)
    return (p_sigma,), (dot(p_sigma, p_sigma, backend),)


def _weighted(
    weights: Array, a: Array, a_c: Array, feasible: Array, k: Constants, backend: Backend
) -> Weighted:
    """weights: (λ,); a: v̄·z_k (n,); a_c: v̄·z_c of the p_c so far."""
    n = len(a)
    S = pair_differences(weights, n)
    W = k.eta_B[feasible] * pair_sums(weights, n)
    Sa = dot(S, a, backend)
    return Weighted(
        S=S,
        W=W,
        Wa=W * a,
        Sa=Sa,
        Waa=dot(W, a * a, backend),
        a_c=follow(a_c, Sa, k.c_c, k.weights.mu_eff),  # ~ N(0, 1): the path p_c takes, seen along v̄
        c_1=k.c_1[feasible],
    )


def _move(
    z: Array,
    mean: Array,
    D: Array,
    v: Array,
    p_c: Array,
    *,
    weighted: Weighted,
    gradient: Gradient,
    at: Lengths,
    sigma: Array,
    k: Constants,
    backend: Backend,
) -> tuple[Any, Any]:
    """The new mean and p_c, and the gradient's beginning: s₂/H and the first t."""
    S, W, Wa, Sa, Waa, a_c, c_1 = weighted
    v_bar = v / at.length
    Sz, Waz, Wzz = draw_sums(S, Wa, W, z, backend)
    step = D * (Sz + (at.kappa * Sa) * v_bar)  # Σ w (x − m)/σ ~ N(0, D (I + v vᵀ) D/μ_eff)
    p_c = follow(p_c, step, k.c_c, k.weights.mu_eff)  # ~ N(0, D (I + v vᵀ) D)
    z_c = p_c / D - (at.kappa * a_c) * v_bar  # ~ N(0, I)
    # The samples' sums and z_c's share: of a z_⊥, of z∗z − 1, of a² − 1. Each has mean 0.
    P = Waz + (c_1 * a_c) * z_c - (Waa + c_1 * a_c * a_c) * v_bar
    Q = Wzz + c_1 * (z_c * z_c - 1)
    N = Waa + c_1 * (a_c * a_c - 1)
    s, t = gradient.begin(v_bar, P, Q, N)
    return (mean + sigma * step, p_c, s, t), gradient.projections(v_bar, s, backend)


def _finish(
    v: Array, s: Array, t: Array, *, gradient: Gradient, length: Array, qq: Array, qs: Array, backend: Backend
) -> tuple[Any, Any]:
    """s and t, and |t|². qq, qs: the gradient's projections."""
    s, t = gradient.finish(v / length, s, t, qq, qs, backend)
    return (s, t), (dot(t, t, backend),)


def _apply(
    D: Array, v: Array, s: Array, t: Array, *, rate: Array, length: Array, backend: Backend
) -> tuple[Any, Any]:
    """D and v after this share of their steps, and ln det D and |v|², by which det D is set right."""
    xp = backend.xp
    D = D * xp.maximum(1 + rate * s, MIN_FACTOR)
    v = v + (rate / length) * t
    return (D, v), (xp.log(D).sum(), dot(v, v, backend))


def _spread(state: CRFMNESState, backend: Backend) -> Array:
    """The coordinates' standard deviations over σ."""
    (spread,), _ = by_columns(
        lambda D, v: ((D * backend.xp.sqrt(1 + v * v),), ()), state.D, state.v, backend=backend
    )
    return spread


CRFMNES.__init__ = suggest_options(CRFMNES.__init__)  # type: ignore[method-assign]
