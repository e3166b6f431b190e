"""xNES: exponential natural evolution strategies, as the FM-NES paper compares with.

T. Glasmachers et al., "Exponential Natural Evolution Strategies", 2010.

    m, σ, B    points are x = m + σ B z, det B = 1
    m ← m + σ B G_δ,   σ ← σ exp(η/2 · G_σ),   B ← B exp(η/2 · G_B)
    with G_δ = Σ w z,  G_M = Σ w (z zᵀ − I),  G_σ = tr(G_M)/d,  G_B = G_M − G_σ I
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fmnes._equality import EqualByContent
from fmnes.arguments import suggest_options
from fmnes.backends import NUMPY, Array, Backend
from fmnes.steps.sampling import rank_weights
from fmnes.steps.shape import exponential
from fmnes.strategies.base import Shape, Strategy, check_shape_matrix, own_matrix


class XNESState(NamedTuple):
    """What xNES knows of its search: points are x = m + σ B z."""

    mean: Array
    """m, where the points are centred. (d,)"""
    sigma: Array
    """σ, the step size."""
    B: Array
    """The shape, with determinant 1. (d, d)"""


def learning_rate(d: int) -> float:
    """η_σ = η_B."""
    return 0.6 * (3 + math.log(d)) / (d * math.sqrt(d))


@dataclass(frozen=True, eq=False)
class XNES(EqualByContent, Strategy):
    """Settings of xNES (Glasmachers et al. 2010).

    Parameters
    ----------
    population_size : int, optional
        Points in a generation; about 4 + 3 ln d by default.
    B0 : array_like, optional
        Initial shape (d, d), the identity by default; points start as N(x0, sigma0² B0 B0ᵀ).

    Raises
    ------
    ArgumentError
        B0 is not a matrix of full rank.

    Examples
    --------
    >>> import fmnes
    >>> fmnes.XNES(population_size=10)
    XNES(population_size=10)
    """

    name = "xnes"
    matrices = 4  # B, its successor, and the steps in between
    population_size: int | None = None
    B0: ArrayLike | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.B0 is not None:
            object.__setattr__(self, "B0", own_matrix("B0", self.B0))

    def init(self, x0: Array, sigma0: Array, z0: Array, backend: Backend = NUMPY) -> XNESState:
        """Return the first state; see `Strategy.init`."""
        xp = backend.xp
        if self.B0 is None:
            return XNESState(x0, sigma0, xp.eye(len(x0), dtype=x0.dtype))
        B0, scale = check_shape_matrix("B0", np.asarray(self.B0), len(x0))
        return XNESState(x0, sigma0 * scale, xp.asarray(B0, dtype=x0.dtype))

    def sample(self, state: XNESState, z: Array, backend: Backend = NUMPY) -> Array:
        """Return the points of these draws; see `Strategy.sample`."""
        return state.mean + state.sigma * (z.dot(state.B.T))

    def coordinates(self, state: XNESState, x: Array) -> Array:
        """Return the draws z of given points: x = m + σ B z; see `Strategy.coordinates`."""
        return np.linalg.solve(state.B, ((x - state.mean) / state.sigma).T).T

    def update(
        self, state: XNESState, z: Array, order: Array, n_feasible: Array, backend: Backend = NUMPY
    ) -> XNESState:
        """Return the next state; see `Strategy.update`."""
        xp = backend.xp
        n, d = z.shape
        eta = learning_rate(d)
        weights = xp.asarray(rank_weights(n).centred, dtype=z.dtype)[backend.inverse(order)]
        G_delta = weights.dot(z)
        G_sigma = weights.dot(xp.vecdot(z, z)) / d  # the weights sum to zero, so −I drops out
        mean = state.mean + state.sigma * (state.B.dot(G_delta))
        sigma = state.sigma * xp.exp(0.5 * eta * G_sigma)
        if d == 1:  # a shape of determinant 1 in one dimension is 1
            return XNESState(mean, sigma, state.B)
        growth = exponential(z, weights, 0.5 * eta, backend)
        B = state.B.dot(growth.basis.T).dot(growth.core).dot(growth.basis)
        B += state.B
        B *= xp.exp(-0.5 * eta * G_sigma)
        return XNESState(mean, sigma, B)

    def shape(self, state: XNESState, backend: Backend = NUMPY) -> Shape:
        """Return the search distribution; see `Strategy.shape`."""
        return Shape(state.mean, state.sigma, backend.svd(state.B)[1], "")

    def covariance(self, state: XNESState, backend: Backend = NUMPY) -> Array:
        """Return the covariance of the points; see `Strategy.covariance`."""
        B: Any = state.sigma * state.B
        return B.dot(B.T)


XNES.__init__ = suggest_options(XNES.__init__)  # type: ignore[method-assign]
