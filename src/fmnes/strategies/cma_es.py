"""CMA-ES with the parameters of today (2016, active) and with those the FM-NES paper compares with (2006).

N. Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772 (2016); equation numbers are its own.
The 2006 set is that of the earlier tutorial and of its C implementation: positive weights only.

    m, σ       mean and step size
    C          covariance, C = B D² Bᵀ (B orthogonal, D diagonal); points are x = m + σ B D z
    p_σ, p_c   evolution paths
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import suggest_options
from fmnes.backends import NUMPY, Array, Backend
from fmnes.steps.adaptation import expected_norm, follow
from fmnes.strategies.base import Shape, Strategy, check_choice, settle_positive_ints


class CMAESState(NamedTuple):
    """What CMA-ES knows of its search: points are x = m + σ B D z."""

    generation: Array
    """Complete generations: when C is to be decomposed again."""
    mean: Array
    """m, where the points are centred. (d,)"""
    sigma: Array
    """σ, the step size."""
    C: Array
    """The covariance of the points, over σ². (d, d)"""
    B: Array
    """Eigenvectors of C as of the last refresh, in columns. (d, d)"""
    D: Array
    """Square roots of its eigenvalues. (d,)"""
    p_sigma: Array
    """The path of the mean, its steps made round by C^(−½): how long it is says whether σ grows. (d,)"""
    p_c: Array
    """The path of the mean as it is, for the rank-one update of C. (d,)"""


class Constants(NamedTuple):
    """All that depends on d and λ alone."""

    weights: NDArray[np.float64]
    """Best first; the positive ones sum to 1. (λ,)"""
    mu_eff: float
    c_sigma: float
    d_sigma: float
    c_c: float
    c_1: float
    c_mu: float
    refresh: int


@cache
def constants(d: int, population_size: int, parameters: str, refresh: int | None = None) -> Constants:
    i = np.arange(1, population_size + 1)
    if parameters == "2006":
        mu = population_size // 2
        weights = np.where(i <= mu, math.log(mu + 1) - np.log(i), 0.0)
        weights /= weights.sum()
        mu_eff = float(1 / (weights.dot(weights)))
        c_sigma = (mu_eff + 2) / (d + mu_eff + 3)
        c_c = 4 / (d + 4)
        c_cov = 2 / (mu_eff * (d + math.sqrt(2)) ** 2)
        c_cov += (1 - 1 / mu_eff) * min(1.0, (2 * mu_eff - 1) / ((d + 2) ** 2 + mu_eff))
        c_1, c_mu = c_cov / mu_eff, c_cov * (1 - 1 / mu_eff)
    else:
        raw = math.log((population_size + 1) / 2) - np.log(i)  # (49)
        positive, negative = np.maximum(raw, 0), np.minimum(raw, 0)
        mu_eff = float(positive.sum() ** 2 / (positive.dot(positive)))
        mu_eff_negative = float(negative.sum() ** 2 / max(negative.dot(negative), 1e-300))
        c_sigma = (mu_eff + 2) / (d + mu_eff + 5)  # (55)
        c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)  # (56)
        c_1 = 2 / ((d + 1.3) ** 2 + mu_eff)  # (57)
        c_mu = min(1 - c_1, 2 * (mu_eff - 2 + 1 / mu_eff) / ((d + 2) ** 2 + mu_eff))  # (58)
        limit = 1 + 2 * mu_eff_negative / (mu_eff + 2)  # (51)
        if c_mu > 0:  # it is 0 for one parent, and then the weights of C do not matter
            # (50), (52). What C loses is measured by its last decomposition, so the last bound, which keeps C
            # positive, is shared by all the generations until the next one.
            every = refresh or default_refresh(d, c_1, c_mu)
            limit = min(limit, 1 + c_1 / c_mu, (1 - c_1 - c_mu) / (d * c_mu * every))
        weights = positive / positive.sum() + limit * negative / max(-negative.sum(), 1e-300)  # (53)
    d_sigma = 1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (d + 1)) - 1) + c_sigma
    every = refresh or default_refresh(d, c_1, c_mu)
    return Constants(weights, mu_eff, c_sigma, d_sigma, c_c, c_1, c_mu, every)


def default_refresh(d: int, c_1: float, c_mu: float) -> int:
    """As often as C changes noticeably (the tutorial, appendix B.2)."""
    return max(1, int(1 / (10 * d * (c_1 + c_mu))))


@dataclass(frozen=True)
class CMAES(Strategy):
    """Settings of CMA-ES (Hansen 2016).

    Parameters
    ----------
    population_size : int, optional
        Points in a generation; about 4 + 3 ln d by default.
    parameters : {"2016", "2006"}, optional
        "2016" has active (negative) weights; with "2006" the tables of the FM-NES paper were made.
    refresh : int, optional
        Generations between decompositions of C; None chooses from d and λ.

    Raises
    ------
    ArgumentError
        A setting has a value that it cannot have.

    Examples
    --------
    >>> import fmnes
    >>> fmnes.CMAES(parameters="2006")
    CMAES(population_size=None, parameters='2006', refresh=None)
    """

    name = "cma-es"
    matrices = 7  # C, B, their successors, and what a refresh needs
    population_size: int | None = None
    parameters: Literal["2016", "2006"] = "2016"
    refresh: int | None = None

    def __post_init__(self) -> None:
        check_choice("parameters", self.parameters, ("2016", "2006"))
        settle_positive_ints(self, "refresh")

    def init(self, x0: Array, sigma0: Array, z0: Array, backend: Backend = NUMPY) -> CMAESState:
        """Return the first state; see `Strategy.init`."""
        xp = backend.xp
        eye, zero = xp.eye(len(x0), dtype=x0.dtype), xp.zeros_like(x0)
        return CMAESState(xp.asarray(0), x0, sigma0, eye, eye, xp.ones_like(x0), zero, zero)

    def sample(self, state: CMAESState, z: Array, backend: Backend = NUMPY) -> Array:
        """Return the points of these draws; see `Strategy.sample`."""
        y = (z * state.D).dot(state.B.T)  # (39) N(0, C)
        return state.mean + state.sigma * y  # (40) N(m, σ² C)

    def coordinates(self, state: CMAESState, x: Array) -> Array:
        """Return the draws z of given points: x = m + σ B D z; see `Strategy.coordinates`."""
        return ((x - state.mean) / state.sigma).dot(state.B) / state.D

    def update(
        self, state: CMAESState, z: Array, order: Array, n_feasible: Array, backend: Backend = NUMPY
    ) -> CMAESState:
        """Return the next state; see `Strategy.update`."""
        xp = backend.xp
        n, d = z.shape
        k = constants(d, n, self.parameters, self.refresh)
        weights = xp.asarray(k.weights, dtype=z.dtype)[backend.inverse(order)]
        selected = xp.maximum(weights, 0.0)
        generation = state.generation + 1

        z_w = selected.dot(z)
        y_w = state.B.dot(state.D * z_w)
        mean = state.mean + state.sigma * y_w  # (42), c_m = 1
        p_sigma = follow(state.p_sigma, state.B.dot(z_w), k.c_sigma, k.mu_eff)  # (43): C^(-1/2) y_w = B z_w
        length = xp.sqrt(xp.vecdot(p_sigma, p_sigma)) / expected_norm(d)
        # (44); at most a factor e in one generation, as in the C implementation
        sigma = state.sigma * xp.exp(xp.minimum(1.0, k.c_sigma / k.d_sigma * (length - 1)))

        stalled = length >= (1.4 + 2 / (d + 1)) * xp.sqrt(1 - (1 - k.c_sigma) ** (2 * generation))
        p_c = follow(state.p_c, xp.where(stalled, 0.0, 1.0) * y_w, k.c_c, k.mu_eff)  # (45)
        # (46): a negative weight is scaled to a step of typical length, |C^(-1/2) y|² = |z|²
        norm2 = xp.vecdot(z, z)
        scaled = xp.where(weights < 0, weights * d / xp.maximum(norm2, 1e-300), weights)
        y = (z * state.D).dot(state.B.T)
        # (47): the decay of C, plus what p_c lacks while it is stalled
        decay = 1 - k.c_1 - k.c_mu * float(k.weights.sum())
        decay = decay + xp.where(stalled, k.c_1 * k.c_c * (2 - k.c_c), 0.0)
        C = y.T.dot((k.c_mu * scaled)[:, None] * y)
        C += (k.c_1 * p_c)[:, None] * p_c
        C += decay * state.C
        state = CMAESState(generation, mean, sigma, C, state.B, state.D, p_sigma, p_c)
        state = backend.cond(generation % k.refresh == 0, lambda s: _refresh(s, backend), lambda s: s, state)
        return state

    def shape(self, state: CMAESState, backend: Backend = NUMPY) -> Shape:
        """Return the search distribution; see `Strategy.shape`."""
        return Shape(state.mean, state.sigma, state.D, "")

    def covariance(self, state: CMAESState, backend: Backend = NUMPY) -> Array:
        """Return the covariance of the points; see `Strategy.covariance`."""
        # Of the points it samples: C itself is ahead of its decomposition between refreshes.
        root = state.sigma * (state.B * state.D)
        return root.dot(root.T)


CMAES.__init__ = suggest_options(CMAES.__init__)  # type: ignore[method-assign]


def _refresh(state: CMAESState, backend: Backend) -> CMAESState:
    xp = backend.xp
    d = len(state.mean)
    C = 0.5 * (state.C + state.C.T)
    values, B = backend.eigh_psd(C)
    # Rounding can push a tiny eigenvalue below zero; the floor is relative, so scale does not matter.
    D = xp.sqrt(xp.maximum(values, values[-1] * (d * xp.finfo(values.dtype).eps)))
    return state._replace(C=C, B=B, D=D)
