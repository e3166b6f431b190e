"""FM-NES: its constants, its state, and the update of its shape."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.backends import NUMPY, Array, Backend
from fmnes.steps.adaptation import MOVEMENT, Rates, expected_norm, learning_rates
from fmnes.steps.sampling import RankWeights, distance_alphas, rank_weights
from fmnes.steps.shape import (
    LEADING,
    Axes,
    Factor,
    decomposed,
    inverse_times,
    on_ridge,
    times,
    turned,
    with_rank_one,
)

# Constants of FM-NES.
#
# The paper's tables come out with these; where it prints another value, that one can be chosen.


#: Up to this dimension a decomposition costs no more than what would replace it.
SMALL = 24


class Selected(NamedTuple):
    """Constants that depend on the number of selected points."""

    weights: RankWeights
    c_sigma: Array
    c_c: Array
    c_1: Array
    c_step: Array
    """Rate of the path for the step size, as in CMA-ES."""
    damping: Array
    """Damping of the step size, as in CMA-ES."""


class Constants(NamedTuple):
    """All that depends on d and λ alone."""

    selected: Selected
    """With the best half of all points."""
    alphas: NDArray[np.float64]
    rates: Rates
    expected_norm: float
    refresh: int
    decompose: int
    """Refreshes per decomposition."""


@lru_cache(maxsize=64)
def constants(
    d: int, population_size: int, path_rate: str = "tables", alpha: str = "tables", for_every_d: bool = False
) -> Constants:
    rates = learning_rates(d, population_size, for_every_d)
    return Constants(
        selected=selected(d, population_size, population_size, path_rate, for_every_d),
        alphas=distance_alphas(d, population_size, public=alpha == "public"),
        rates=rates,
        expected_norm=expected_norm(d),
        # 1/η_B generations are what the shape takes to become another one; in a fifth of that its axes turn
        # but a little. In low dimension that is long, and a refresh cheap, so it is never more than d.
        refresh=max(1, min(d, round(1 / (5 * rates.shape[MOVEMENT, -1])))),
        # 4 at d = 40, 2 at d = 100, 1 from 107 on: in higher dimension there are more axes of about the same
        # length, which a turn leaves alone, and being late with them costs evaluations.
        decompose=1 if d <= SMALL else max(1, round(160 / d)),
    )


@lru_cache(maxsize=256)
def selected(d: int, population_size: int, parents_of: int, path_rate: str, for_every_d: bool) -> Selected:
    """Constants for the best half of this number of points."""
    return selected_by(rank_weights(population_size, parents_of), d, path_rate, for_every_d, NUMPY)


def selected_by(
    weights: RankWeights, d: int, path_rate: str, for_every_d: bool, backend: Backend
) -> Selected:
    mu = weights.mu_eff
    c_step = (mu + 2) / (d + mu + 5)
    excess = ((mu - 1) / (d + 1)) ** 0.5 - 1
    return Selected(
        weights=weights,
        # The paper prints c_σ without √d; its tables come out with it, as in the original DX-NES.
        c_sigma=c_step if path_rate == "printed" else c_step / math.sqrt(d),
        c_c=(4 + mu / d) / (d + 4 + 2 * mu / d),
        # Below d ≈ 10, where η_B is far faster than published, the rank-one update has less left to do.
        c_1=2 / ((d + (4 if for_every_d else 1.3)) ** 2 + mu),
        c_step=c_step,
        damping=1 + 2 * backend.larger(excess, 0.0) + c_step,
    )


# The state of FM-NES: its first shape, the reset, the refresh.
#
# Letters and line numbers are those of fm_nes.py.


class FMNESState(NamedTuple):
    """What FM-NES knows of its search: points are x = m ± σ B z, and the shape is B = F A."""

    generation: Array
    """Complete generations: when the axes are to be set right."""
    mean: Array
    """m, where the points are centred. (d,)"""
    sigma: Array
    """σ, the step size."""
    F: Array
    """The frame: eigenvectors of B Bᵀ as of the last refresh, in columns. (d, d)"""
    A: Array
    """The shape in that frame, F⁻¹ B; its rows are the axes. det A = ±1. (d, d)"""
    A_inverse: Array | None
    """Its inverse; None where the rank-one update is never made. (d, d)"""
    p_sigma: Array
    """The path of the mean in the draws' coordinates: how long it is decides the phase. (d,)"""
    p_c: Array
    """The path of the mean, over σ, for the rank-one update; in F's frame. (d,)"""
    gamma: Array
    """γ, by how much axes along which the search moves are expanded."""
    unconstrained: Array
    """h_unconst: no evaluation has failed so far."""
    F0: Array | None
    """F of the first shape, B⁽⁰⁾, for the reset; None for the identity. (d, d)"""
    A0: Array | None
    """A of the first shape; None for the identity. (d, d)"""
    share: Array | None = None
    """Smoothed share of points that succeed; None where nothing depends on it."""
    p_step: Array | None = None
    """The path that the step size follows; None where it follows none. (d,)"""


def unchanged(state: FMNESState) -> FMNESState:
    return state


def with_first_shape(state: FMNESState, backend: Backend) -> FMNESState:
    """B = B⁽⁰⁾: at the start, and at the reset."""
    xp = backend.xp
    d = len(state.mean)
    eye = xp.eye(d, dtype=state.mean.dtype)
    F, A = (eye, eye) if state.A0 is None else (state.F0, state.A0)
    return state._replace(
        F=F,
        A=A,
        # A⁽⁰⁾ = D Vᵀ, so its inverse V D⁻¹ is its transpose over the squared row lengths.
        A_inverse=None if state.A_inverse is None else A.T / xp.vecdot(A, A),
    )


def meet_first_failure(state: FMNESState, reset: bool, backend: Backend) -> FMNESState:
    """Lines 9 and 10. Without the reset (Method B) only h_unconst changes."""
    state = state._replace(unconstrained=state.unconstrained & False)
    if not reset:
        return state
    zero = backend.xp.zeros_like(state.mean)
    state = state._replace(p_sigma=zero, p_c=zero, gamma=backend.xp.ones_like(state.gamma))
    return with_first_shape(state if state.p_step is None else state._replace(p_step=zero), backend)


def refresh(state: FMNESState, every: int, decompose: int, backend: Backend) -> FMNESState:
    """Turn F's columns into the eigenvectors of B Bᵀ again (line 21)."""
    axes = Axes(state.F, state.A, state.A_inverse, state.p_c)
    always = every == 1 or decompose == 1
    F, A, A_inverse, p_c = backend.cond(
        always or state.generation % (decompose * every) == 0,
        lambda: decomposed(axes, backend),
        lambda: turned(axes, backend),
    )
    return state._replace(F=F, A=A, A_inverse=A_inverse, p_c=p_c)


# FM-NES's shape at the end of a generation: lines 30 and 32–35 of its Algorithm 2.
#
# Letters and line numbers are those of fm_nes.py.


class Growth(NamedTuple):
    """The shape from before this generation, and by what it grows."""

    A: Array
    """(d, d)"""
    A_inverse: Array
    """(d, d); None where the rank-one update is never made."""
    factor: Factor
    """exp(η_B/2 · G_B), less its trace."""
    row_scale: Array
    """That trace, and the expansion. (d,)"""
    p_c: Array
    """(d,), in F's frame"""
    c_1: Array


def new_shape(
    growth: Growth, rank_one: str, unconstrained: Array, threshold: float, whole: bool, backend: Backend
) -> tuple[Array, Array | None]:
    """A and A⁻¹. whole: the ridge test looks at all rows of A."""
    if growth.A_inverse is None:  # rank_one == "never"
        return times(growth.A, growth.factor, growth.row_scale), None
    if rank_one == "always":
        return _lengthened(growth, backend)
    return backend.cond(  # type: ignore[no-any-return]
        unconstrained,
        lambda: _lengthened(growth, backend),
        lambda: _lengthened_on_ridges(growth, threshold, whole, backend),
    )


def _lengthened(growth: Growth, backend: Backend) -> tuple[Array, Array]:
    """With the rank-one update, lines 33–35."""
    A, A_inverse, factor, row_scale, p_c, c_1 = growth
    v = A_inverse.dot(p_c)  # B⁻¹ p_c ~ N(0, I), with the B from before this generation's update
    longer, scale = with_rank_one(factor, v, p_c, A_inverse, c_1, backend)
    return times(A, longer, scale * row_scale), inverse_times(A_inverse, longer, scale * row_scale)


def _lengthened_on_ridges(
    growth: Growth, threshold: float, whole: bool, backend: Backend
) -> tuple[Array, Array]:
    """The same, but only on a ridge: line 32 tests the shape that line 30 makes."""
    A, _, factor, row_scale, _, _ = growth
    if whole:
        tested = new = times(A, factor, row_scale)
    else:  # of that shape a few rows are enough
        first = slice(0, LEADING)
        tested, new = times(A[first], factor._replace(gain=factor.gain[first]), row_scale[first]), None
    return backend.cond(  # type: ignore[no-any-return]
        on_ridge(tested, threshold, backend),
        lambda: _lengthened(growth, backend),
        lambda: _as_it_grew(growth, new),
    )


def _as_it_grew(growth: Growth, new: Array | None) -> tuple[Array, Array]:
    """Without the rank-one update, line 30. new: the new A, if it is there already."""
    A, A_inverse, factor, row_scale, _, _ = growth
    new = times(A, factor, row_scale) if new is None else new
    return new, inverse_times(A_inverse, factor, row_scale)
