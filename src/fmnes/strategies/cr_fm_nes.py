"""CR-FM-NES: FM-NES for high dimension, O(d λ) a generation in time and in memory.

M. Nomura and I. Ono, "Fast Moving Natural Evolution Strategy for High-Dimensional Problems", 2022.

    m, σ       mean and step size; points are x = m ± σ D∗y; `∗` is the product by coordinates
    D, v       the covariance is σ² D (I + v vᵀ) D; D is diagonal, kept as a vector; det D · √(1 + |v|²) = 1
    v̄, g       v/|v| and 1 + |v|²
    y          (I + v vᵀ)^½ z = z + κ a v̄, with a = v̄·z and κ = √g − 1
    p_σ, p_c   evolution paths
    z_c, a_c   p_c as a sample, p_c = D∗(z_c + κ a_c v̄)
    s, t       natural gradient: D ← D + D∗s, v ← v + t/|v| (steps/vd_gradient.py)

The paper computes s and t of each of λ + 1 samples, z_1 … z_λ with coefficients η_B w_i and z_c with c₁. They
are linear in z∗z, a z and a², which the two halves of a mirrored pair share, so here they are computed once,
for the sums. With S_k and W_k the difference and the sum of a pair's weights, all that the update needs of
the draws is then ΣS_k z_k, ΣW_k a_k z_k and ΣW_k z_k∗z_k. The draws are read three times: for |z_k|² and a_k,
which the ranks need; for p_σ, which the weights need; and for these sums. Only the points have λ rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import is_number, names_options, shown
from fmnes.backends import NUMPY, Array, Backend
from fmnes.errors import ArgumentError
from fmnes.steps.columns import (
    by_columns,
    dot,
    draw_sums,
    largest,
    mirrored_points_by_columns,
    weighted_sum,
)
from fmnes.steps.mirrored import pair_differences, pair_sums
from fmnes.steps.paths import expected_norm, follow
from fmnes.steps.phases import MOVEMENT, learning_rates, phase_name, phase_of
from fmnes.steps.ranking import ranks_by_value_then_distance
from fmnes.steps.vd_gradient import gradient_at, lengths
from fmnes.steps.weights import RankWeights, distance_alphas, distance_weights, rank_weights
from fmnes.strategies.base import Shape

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
    """The one direction that is no coordinate's, in units of D. (d,)"""
    p_sigma: Array
    """The path of the mean in the draws' coordinates: how long it is decides the phase. (d,)"""
    p_c: Array
    """The path of the mean, over σ, for the rank-one update. (d,)"""


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


@dataclass(frozen=True)
class CRFMNES:
    """Settings of CR-FM-NES; also its strategy functions (see strategies/base.py).

    max_change: the most by which v, and any coordinate of D, may change in one generation, relative to what
        it is; both steps are shortened alike to keep to it. VD-CMA has 0.7. The paper has no such limit
        (None), and then v and D explode on ridges that are not parallel to an axis.
    """

    population_size: int | None = None
    max_change: float | None = 0.7

    def __post_init__(self) -> None:
        if self.max_change is not None and not (is_number(self.max_change) and 0 < self.max_change < 1):
            raise ArgumentError(
                f"max_change: found {shown(self.max_change)}, wanted a number between 0 and 1, or None"
            )

    @property
    def name(self) -> str:
        return "cr-fm-nes"

    @property
    def mirrored(self) -> bool:
        return True

    @property
    def matrices(self) -> int:
        return 0  # D and v are vectors

    def init(self, x0: Array, sigma0: Array, z0: Array, backend: Backend = NUMPY) -> CRFMNESState:
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
        """z: (λ/2, d). Returns the points, each draw's two beside each other (λ, d)."""
        xp = backend.xp
        length, _, kappa = lengths(state.v, xp)
        along_v = (kappa * dot(z, state.v, xp) / length**2)[:, None]  # y = z + κ a v̄

        def steps(z: Array, D: Array, v: Array) -> Array:
            scale = state.sigma * D
            return scale * z + along_v * (scale * v)  # rows σ D∗y ~ N(0, σ² D (I + v vᵀ) D)

        return mirrored_points_by_columns(steps, state.mean, z, state.D, state.v, backend=backend)

    def coordinates(self, state: CRFMNESState, x: Array) -> Array:
        """The draws of points that may come from anywhere, (n, d): y = z + κ a v̄, so a = v̄·y/(1 + κ)."""
        length, _, kappa = lengths(state.v, np)
        y = (x - state.mean) / (state.sigma * state.D)
        v_bar = state.v / length
        along_v = kappa / (1 + kappa) * y.dot(v_bar)
        return y - along_v[:, None] * v_bar

    def update(self, state: CRFMNESState, z: Array, f: Array, backend: Backend = NUMPY) -> CRFMNESState:
        """z: (λ/2, d) as given to `sample`, or a draw for each point, (λ, d); f: (λ,)."""
        xp = backend.xp
        n, d = z.shape
        k = backend.arrays(constants(d, len(f)), state.mean.dtype)
        mu_eff = k.weights.mu_eff

        length, root, kappa = lengths(state.v, xp)

        # The draws for the first time: inner products, hence the ranks.
        def products(z: Array, v: Array, D: Array, p_c: Array) -> tuple[Any, Any]:
            return (), (dot(z, z, xp), dot(z, v, xp), dot(v, p_c / D, xp))

        _, (norm2, vz, vp) = by_columns(products, z, state.v, state.D, state.p_c, backend=backend)
        ranks, feasible = ranks_by_value_then_distance(f, norm2, backend)

        # The second time: the path, hence the phase, hence the weights. |p_σ| would also follow from the
        # products of the draws with each other, but those cost more than reading z once more.
        by_rank = k.weights.centred[ranks]
        S_rank = pair_differences(by_rank, n)

        def path(z: Array, p_sigma: Array) -> tuple[Any, Any]:
            p_sigma = follow(p_sigma, weighted_sum(S_rank, z, xp), k.c_sigma, mu_eff)
            return (p_sigma,), (dot(p_sigma, p_sigma, xp),)

        (p_sigma,), (path_norm2,) = by_columns(path, z, state.p_sigma, backend=backend)
        phase = phase_of(xp.sqrt(path_norm2), k.expected_norm, backend)
        weights = backend.choose(
            phase == MOVEMENT,
            lambda: distance_weights(k.weights, ranks, norm2, k.alphas[feasible], k.expected_norm, xp),
            lambda: by_rank,
        )
        eta_sigma = k.eta_sigma[phase, feasible]
        c_1 = k.c_1[feasible]

        # The third time: the sums. W has η_B in it from here on, the coefficient of its samples in s and t.
        a = vz / length
        S = pair_differences(weights, n)
        W = pair_sums(weights, n)
        G_sigma = dot(W, norm2 - d, xp) / d
        W = k.eta_B[feasible] * W
        Wa, Waa, Sa = W * a, dot(W, a * a, xp), dot(S, a, xp)
        a_c = follow(vp / (length * root), Sa, k.c_c, mu_eff)  # v̄·z_c
        N = Waa + c_1 * (a_c * a_c - 1)
        gradient = gradient_at(state.v, length, root, xp)

        def sums(z: Array, mean: Array, D: Array, v: Array, p_c: Array) -> tuple[Any, Any]:
            v_bar = v / length
            Sz, Waz, Wzz = draw_sums(S, Wa, W, z, backend)
            step = D * (Sz + (kappa * Sa) * v_bar)  # Σ w (x − m)/σ
            p_c = follow(p_c, step, k.c_c, mu_eff)
            z_c = p_c / D - (kappa * a_c) * v_bar
            P = Waz + (c_1 * a_c) * z_c - (Waa + c_1 * a_c * a_c) * v_bar
            Q = Wzz + c_1 * (z_c * z_c - 1)
            s, t = gradient.begin(v_bar, P, Q, N)
            return (mean + state.sigma * step, p_c, s, t), gradient.projections(v_bar, s, xp)

        (mean, p_c, s, t), (qq, qs) = by_columns(
            sums, z, state.mean, state.D, state.v, state.p_c, backend=backend
        )

        # The draws are done with. How far D and v would go, and how far they may.
        def finish(v: Array, s: Array, t: Array) -> tuple[Any, Any]:
            s, t = gradient.finish(v / length, s, t, qq, qs, xp)
            return (s, t), (dot(t, t, xp),)

        (s, t), (t_norm2,) = by_columns(finish, state.v, s, t, backend=backend)
        change = xp.maximum(largest(s, xp), xp.sqrt(t_norm2) / length**2)
        rate = 1.0 if self.max_change is None else self.max_change / xp.maximum(change, self.max_change)

        def apply(D: Array, v: Array, s: Array, t: Array) -> tuple[Any, Any]:
            D = D * xp.maximum(1 + rate * s, MIN_FACTOR)
            v = v + (rate / length) * t
            return (D, v), (xp.log(D).sum(), dot(v, v, xp))

        (D, v), (log_D, length2) = by_columns(apply, state.D, state.v, s, t, backend=backend)
        D *= xp.exp(-(log_D + 0.5 * xp.log1p(length2)) / d)  # by logarithms: det D itself would overflow
        return CRFMNESState(
            mean=mean,
            sigma=state.sigma * xp.exp(0.5 * eta_sigma * G_sigma),
            D=D,
            v=v,
            p_sigma=p_sigma,
            p_c=p_c,
        )

    def shape(self, state: CRFMNESState, backend: Backend = NUMPY) -> Shape:
        """Axis lengths are the coordinates' standard deviations over σ; C's own axes would take O(d²)."""
        xp = backend.xp
        d = len(state.mean)
        phase = phase_name(xp.sqrt(dot(state.p_sigma, state.p_sigma, xp)), expected_norm(d), backend)
        return Shape(state.mean, state.sigma, _spread(state, backend), phase)

    def deviations(self, state: CRFMNESState, backend: Backend = NUMPY) -> Array:
        """Of the coordinates: the roots of the covariance's diagonal, without the matrix."""
        return state.sigma * _spread(state, backend)

    def covariance(self, state: CRFMNESState, backend: Backend = NUMPY) -> Array:
        D = state.sigma * state.D
        Dv = D * state.v
        return backend.xp.diag(D * D) + Dv[:, None] * Dv


def _spread(state: CRFMNESState, backend: Backend) -> Array:
    """The coordinates' standard deviations over σ."""
    (spread,), _ = by_columns(
        lambda D, v: ((D * backend.xp.sqrt(1 + v * v),), ()), state.D, state.v, backend=backend
    )
    return spread


CRFMNES.__init__ = names_options(CRFMNES.__init__)  # type: ignore[method-assign]
