"""FM-NES, and DX-NES-IC and the paper's Methods A, B and C as settings of it.

M. Nomura and I. Ono, "Natural Evolution Strategy for Unconstrained and Implicitly Constrained Problems with
Ridge Structure", 2021; line numbers below are those of its Algorithm 2. The constants are those with which
the paper's tables come out.

    m, σ       mean and step size; points are x = m ± σ B z
    B = F A    the normalised shape, det B = 1; F orthogonal, its columns the eigenvectors of B Bᵀ as of the
               last refresh. In F's frame an axis is a row of A, so the expansion step scales rows.
    A⁻¹        kept beside A and updated with it, for B⁻¹ p_c (line 33)
    p_σ, p_c   evolution paths; p_c is held in F's frame
    γ          expansion rate
    h_unconst  true until the first failed evaluation

The paper decomposes B Bᵀ in every generation, O(d³). Here every factor that meets B is the identity plus a
few directions (steps/low_rank.py), so a generation costs O(d² λ), and only a refresh, every `refresh`
generations, pays for a decomposition. `refresh=1` is the paper's algorithm to the letter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import check_number, names_options
from fmnes.backends import NUMPY, Array, Backend
from fmnes.errors import ArgumentError
from fmnes.steps.expansion import axis_factors, expansion_rate
from fmnes.steps.low_rank import Exponential, exponential, rank_one_factor
from fmnes.steps.mirrored import mirrored_points, pair_differences, pair_sums
from fmnes.steps.paths import expected_norm, follow
from fmnes.steps.phases import MOVEMENT, Rates, learning_rates, phase_name, phase_of
from fmnes.steps.ranking import ranks_by_value_then_distance
from fmnes.steps.ridge import axis_ratio, leading_block, start_block
from fmnes.steps.weights import RankWeights, distance_alphas, distance_weights, rank_weights
from fmnes.strategies.base import Shape
from fmnes.strategies.checks import check_choice, check_positive_int, check_shape_matrix

#: Up to this dimension a decomposition costs no more than the iteration that would replace it.
EXACT_RIDGE_UP_TO = 24


class FMNESState(NamedTuple):
    generation: Array
    mean: Array
    """(d,)"""
    sigma: Array
    F: Array
    """(d, d)"""
    A: Array
    """(d, d)"""
    A_inverse: Array | None
    """(d, d); None where the rank-one update is never made."""
    p_sigma: Array
    """(d,)"""
    p_c: Array
    """(d,), in F's frame"""
    gamma: Array
    unconstrained: Array
    """h_unconst"""
    ridge_block: Array | None
    """(d, b), see steps/ridge.py; None where the ridge test is exact or never made."""
    F0: Array | None
    """F and A of B⁽⁰⁾, for the reset; None for the identity. (d, d)"""
    A0: Array | None


class Constants(NamedTuple):
    """All that depends on d and λ alone."""

    weights: RankWeights
    alphas: NDArray[np.float64]
    rates: Rates
    expected_norm: float
    c_sigma: float
    c_c: float
    c_1: float
    refresh: int


@cache
def constants(d: int, population_size: int, path_rate: str, alpha: str) -> Constants:
    weights = rank_weights(population_size)
    mu = weights.mu_eff
    rates = learning_rates(d, population_size)
    c_sigma = (mu + 2) / (d + mu + 5)
    return Constants(
        weights=weights,
        alphas=distance_alphas(d, population_size, public=alpha == "public"),
        rates=rates,
        expected_norm=expected_norm(d),
        # The paper prints c_σ without √d; its tables come out with it, as in the original DX-NES.
        c_sigma=c_sigma if path_rate == "printed" else c_sigma / math.sqrt(d),
        c_c=(4 + mu / d) / (d + 4 + 2 * mu / d),
        c_1=2 / ((d + 1.3) ** 2 + mu),
        # 1/η_B generations are what the shape takes to change noticeably. In low dimension that is long, and
        # a refresh cheap, so it is never left for more than d generations.
        refresh=max(1, min(d, round(1 / rates.shape[MOVEMENT, -1]))),
    )


@dataclass(frozen=True)
class FMNES:
    """Settings of FM-NES; also its strategy functions (see strategies/base.py).

    rank_one: "on-ridge" makes the rank-one update while no evaluation has failed and, after that, on ridges
        only (the paper's FM-NES); "always" is Method A (and C); "never" is DX-NES-IC.
    reset: forget the learned shape at the first failed evaluation; False is Method B (and C).
    ridge_threshold: the paper's β.
    refresh: generations between decompositions; None chooses from d and λ, 1 is the literal algorithm.
    path_rate: the c_σ that the paper's "tables" need, or the one that it "printed".
    alpha: the distance weights' α that the paper's "tables" need, or the one of "public" code.
    B0: initial shape (d, d), the identity by default; points start as N(x0, sigma0² B0 B0ᵀ).
    """

    population_size: int | None = None
    rank_one: Literal["on-ridge", "always", "never"] = "on-ridge"
    reset: bool = True
    ridge_threshold: float = 1.2
    refresh: int | None = None
    path_rate: Literal["tables", "printed"] = "tables"
    alpha: Literal["tables", "public"] = "tables"
    # Not compared: it only matters to `init`, the state carries it on, and settings stay hashable.
    B0: ArrayLike | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_positive_int("population_size", self.population_size)
        check_choice("rank_one", self.rank_one, ("on-ridge", "always", "never"))
        check_choice("path_rate", self.path_rate, ("tables", "printed"))
        check_choice("alpha", self.alpha, ("tables", "public"))
        check_positive_int("refresh", self.refresh)
        if self.ridge_threshold is None:
            raise ArgumentError("ridge_threshold: found None, wanted a number above 1")
        check_number("ridge_threshold", self.ridge_threshold, above=1)
        if not isinstance(self.reset, bool):
            raise ArgumentError(f"reset: found {self.reset!r}, wanted True or False")

    @property
    def name(self) -> str:
        return "dx-nes-ic" if self.rank_one == "never" and not self.reset else "fm-nes"

    @property
    def mirrored(self) -> bool:
        return True

    @property
    def matrices(self) -> int:
        return 9  # F, A, A⁻¹, their successors, and what a refresh needs

    def init(self, x0: Array, sigma0: Array, z0: Array, backend: Backend = NUMPY) -> FMNESState:
        xp = backend.xp
        d = len(x0)
        eye = xp.eye(d, dtype=x0.dtype)
        F0 = A0 = None
        if self.B0 is not None:
            B0, scale = check_shape_matrix("B0", self.B0, d)
            sigma0 = sigma0 * scale
        if self.B0 is not None and d > 1:
            F0, axes, Vt = backend.svd(xp.asarray(B0, dtype=x0.dtype))
            A0 = axes[:, None] * Vt
        state = FMNESState(
            generation=xp.asarray(0),
            mean=x0,
            sigma=sigma0,
            F=eye,
            A=eye,
            A_inverse=None if self.rank_one == "never" else eye,
            p_sigma=xp.zeros_like(x0),
            p_c=xp.zeros_like(x0),
            gamma=xp.ones_like(sigma0),
            unconstrained=xp.asarray(True),
            ridge_block=start_block(d, x0.dtype, xp) if self._estimates_ridge(d) else None,
            F0=F0,
            A0=A0,
        )
        return _first_shape(state, xp)

    def sample(self, state: FMNESState, z: Array, backend: Backend = NUMPY) -> Array:
        """Lines 3–6. z: (λ/2, d). Returns the points, each draw's two beside each other (λ, d)."""
        steps = (z @ state.A.T) @ state.F.T  # rows B z ~ N(0, B Bᵀ)
        return mirrored_points(state.mean, state.sigma, steps)

    def update(self, state: FMNESState, z: Array, f: Array, backend: Backend = NUMPY) -> FMNESState:
        """Lines 7–36. z: (λ/2, d) as given to `sample`; f: (λ,)."""
        xp = backend.xp
        n, d = z.shape
        k = constants(d, 2 * n, self.path_rate, self.alpha)

        norm2 = xp.vecdot(z, z)
        ranks, feasible = ranks_by_value_then_distance(f, norm2, backend)  # line 7
        first_failure = state.unconstrained & (feasible < 2 * n)
        state = backend.cond(  # lines 8–11
            first_failure, lambda s: self._meet_first_failure(s, xp), _unchanged, state
        )

        by_rank = xp.asarray(k.weights.centred, dtype=z.dtype)[ranks]
        p_sigma = follow(state.p_sigma, pair_differences(by_rank) @ z, k.c_sigma, k.weights.mu_eff)  # line 12
        phase = phase_of(xp.sqrt(xp.vecdot(p_sigma, p_sigma)), k.expected_norm)
        moving = phase == MOVEMENT
        weights = backend.choose(  # line 13
            moving,
            lambda: distance_weights(
                xp.asarray(k.weights.raw, dtype=z.dtype)[ranks],
                xp.repeat(xp.sqrt(norm2), 2),
                xp.asarray(k.alphas, dtype=z.dtype)[feasible],
                xp,
            ),
            lambda: by_rank,
        )
        eta_sigma = xp.asarray(k.rates.sigma, dtype=z.dtype)[phase, feasible]  # line 14
        eta_B = xp.asarray(k.rates.shape, dtype=z.dtype)[phase, feasible]

        pair_weights = pair_sums(weights)
        G_delta = pair_differences(weights) @ z  # line 15
        G_sigma = (pair_weights @ norm2) / d  # line 16; the weights sum to zero, so −I drops out
        step = state.A @ G_delta  # B G_δ in F's frame
        mean = state.mean + state.sigma * (state.F @ step)  # line 17, η_m = 1
        log_sigma_change = 0.5 * eta_sigma * G_sigma  # line 18
        p_c = follow(state.p_c, step, k.c_c, k.weights.mu_eff)  # line 20
        generation = state.generation + 1
        if d == 1:  # a shape of determinant 1 in one dimension is 1
            sigma = state.sigma * xp.exp(log_sigma_change)
            return state._replace(generation=generation, mean=mean, sigma=sigma, p_sigma=p_sigma, p_c=p_c)

        growth = exponential(z, pair_weights, 0.5 * eta_B, backend)  # line 19, less its trace
        log_trace = -0.5 * eta_B * G_sigma
        y = state.A @ growth.basis.T
        yM = y @ growth.core
        tau = _axis_growth(state.A, y, yM, growth, log_trace, xp)  # lines 21–24
        gamma = expansion_rate(state.gamma, tau, d, 2 * n, xp)  # lines 25, 26
        Q, log_det_Q = axis_factors(gamma, tau, moving, xp)  # lines 27–31

        on_ridge, ridge_block = self._rank_one_wanted(state, yM, growth, Q, backend)  # line 32
        row_scale = Q * xp.exp(log_trace - log_det_Q)
        A, A_inverse = _new_shape(state, p_c, yM, growth, row_scale, on_ridge, k.c_1, backend)
        state = FMNESState(
            generation=generation,
            mean=mean,
            sigma=state.sigma * xp.exp(log_sigma_change + log_det_Q),
            F=state.F,
            A=A,
            A_inverse=A_inverse,
            p_sigma=p_sigma,
            p_c=p_c,
            gamma=gamma,
            unconstrained=state.unconstrained,
            ridge_block=ridge_block,
            F0=state.F0,
            A0=state.A0,
        )
        every = self.refresh or k.refresh
        state = backend.cond(generation % every == 0, lambda s: _refresh(s, backend), _unchanged, state)
        return state

    def shape(self, state: FMNESState, backend: Backend = NUMPY) -> Shape:
        xp = backend.xp
        d = len(state.mean)
        phase = phase_name(xp.sqrt(xp.vecdot(state.p_sigma, state.p_sigma)), expected_norm(d), backend)
        return Shape(state.mean, state.sigma, xp.sqrt(xp.vecdot(state.A, state.A)), phase)

    def covariance(self, state: FMNESState, backend: Backend = NUMPY) -> Array:
        B = state.sigma * (state.F @ state.A)
        return B @ B.T

    def _estimates_ridge(self, d: int) -> bool:
        return self.rank_one == "on-ridge" and self.refresh != 1 and d > EXACT_RIDGE_UP_TO

    def _meet_first_failure(self, state: FMNESState, xp: Any) -> FMNESState:
        """Lines 9 and 10. Without the reset (Method B) only h_unconst changes."""
        state = state._replace(unconstrained=xp.zeros_like(state.unconstrained))
        if not self.reset:
            return state
        zero = xp.zeros_like(state.mean)
        return _first_shape(state._replace(p_sigma=zero, p_c=zero, gamma=xp.ones_like(state.gamma)), xp)

    def _rank_one_wanted(
        self, state: FMNESState, yM: Array, growth: Exponential, Q: Array, backend: Backend
    ) -> tuple[Array, Array | None]:
        """Line 32, and the next ridge block. The test is on Q B exp(η_B G_B/2), the shape so far."""
        if self.rank_one != "on-ridge":
            return self.rank_one == "always", None
        basis = growth.basis

        def exact() -> tuple[Array, None]:
            A = Q[:, None] * (state.A + yM @ basis)
            values = backend.eigenvalues_psd(A @ A.T)  # squares, but the two largest lose no digits
            return values[-1] > self.ridge_threshold**2 * values[-2], None

        def estimate() -> tuple[Array, Array]:
            def product(w: Array) -> Array:
                return Q[:, None] * (state.A @ w + yM @ (basis @ w))

            def transposed(w: Array) -> Array:
                w = Q[:, None] * w
                return state.A.T @ w + basis.T @ (yM.T @ w)

            ratio, block = axis_ratio(product, transposed, state.ridge_block, backend)
            return ratio > self.ridge_threshold, block

        wanted, block = backend.cond(
            state.unconstrained,
            lambda: (state.unconstrained, state.ridge_block),
            exact if state.ridge_block is None else estimate,
        )
        return wanted, block


FMNES.__init__ = names_options(FMNES.__init__)  # type: ignore[method-assign]


def DXNESIC(**settings: Any) -> FMNES:
    """Settings of DX-NES-IC: FM-NES without the rank-one update and without the reset."""
    return FMNES(**{"rank_one": "never", "reset": False, **settings})


def _unchanged(state: FMNESState) -> FMNESState:
    return state


def _first_shape(state: FMNESState, xp: Any) -> FMNESState:
    """B = B⁽⁰⁾: at the start, and at the reset."""
    d = len(state.mean)
    eye = xp.eye(d, dtype=state.mean.dtype)
    F, A = (eye, eye) if state.A0 is None else (state.F0, state.A0)
    return state._replace(
        F=F,
        A=A,
        # A⁽⁰⁾ = D Vᵀ, so its inverse V D⁻¹ is its transpose over the squared row lengths.
        A_inverse=None if state.A_inverse is None else A.T / xp.vecdot(A, A),
        ridge_block=None if state.ridge_block is None else start_block(d, A.dtype, xp),
    )


def _axis_growth(A: Array, y: Array, yM: Array, growth: Exponential, log_trace: Array, xp: Any) -> Array:
    """τ_i, the relative change of the second moment along axis i (lines 21–24). y = A · basisᵀ. (d,)"""
    # With E = I + basisᵀ M basis, row i of A E has the squared length |A_i|² + (yM)_i · (2 y_i + (yM)_i K):
    # the new lengths follow without the new matrix.
    change = xp.vecdot(yM, 2 * y + yM @ growth.gram)
    return xp.exp(2 * log_trace) * (1 + change / xp.vecdot(A, A)) - 1


def _new_shape(
    state: FMNESState,
    p_c: Array,
    yM: Array,
    growth: Exponential,
    row_scale: Array,
    use_rank_one: Array,
    c_1: float,
    backend: Backend,
) -> tuple[Array, Array | None]:
    """A ← scale · A · exp(…) · exp(c₁/2 · R_B) in one pass, and A⁻¹ likewise (lines 19, 30, 33–35).

    With N = [basis; vᵀ] both factors together are I + Nᵀ · core · N, and A v = p_c.
    """
    xp = backend.xp
    basis, A_inverse = growth.basis, state.A_inverse
    if A_inverse is None:
        A = yM @ basis
        A += state.A
        A *= row_scale[:, None]
        return A, None

    v = backend.cond(  # line 33: B⁻¹ p_c, with the B from before this generation's update
        use_rank_one, lambda: A_inverse @ p_c, lambda: xp.zeros_like(p_c)
    )
    v2 = xp.vecdot(v, v)
    b, b_inverse = rank_one_factor(0.5 * c_1, v2, xp), rank_one_factor(-0.5 * c_1, v2, xp)
    row_scale = row_scale * xp.exp(-0.5 * c_1 * v2 / len(v))  # R_B has no trace (line 34)

    N = xp.concatenate((basis, v[None, :]))
    basis_v = basis @ v
    A = xp.concatenate((yM, (b * (p_c + yM @ basis_v))[:, None]), axis=1) @ N
    A += state.A
    A *= row_scale[:, None]

    NA = N @ A_inverse
    top = growth.inverse_core @ NA[:-1]
    bottom = b_inverse * (NA[-1] + basis_v @ top)
    inverse = N.T @ xp.concatenate((top, bottom[None, :]))
    inverse += A_inverse
    inverse /= row_scale
    return A, inverse


def _refresh(state: FMNESState, backend: Backend) -> FMNESState:
    """Turn F's columns into the eigenvectors of B Bᵀ again (line 21). B itself, and so the points, stay."""
    xp = backend.xp
    d = len(state.mean)
    # From B itself, not from B Bᵀ, which would lose half of the digits; and not F ← F U, which would drift.
    F, axes, Vt = backend.svd(state.F @ state.A)
    axes = xp.maximum(axes, axes[0] * (d * xp.finfo(axes.dtype).eps))
    return state._replace(
        F=F,
        A=axes[:, None] * Vt,
        A_inverse=None if state.A_inverse is None else Vt.T / axes,
        p_c=F.T @ (state.F @ state.p_c),
        ridge_block=None if state.ridge_block is None else leading_block(d, axes.dtype, xp),
    )
