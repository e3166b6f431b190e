"""The state of FM-NES, and what is done to it as a whole: its first shape, the reset, the refresh.

Letters and line numbers are those of fm_nes.py.
"""

from __future__ import annotations

from typing import NamedTuple

from fmnes.backends import Array, Backend
from fmnes.steps.axes import Axes, decomposed, turned


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
