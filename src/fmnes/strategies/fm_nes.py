"""FM-NES, and adaptive FM-NES, DX-NES-IC and the paper's Methods A, B and C as settings of it.

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
few directions (steps/shape.py), so a generation costs O(d² λ). Every `refresh` generations the axes are
turned again or, less often, decomposed again (steps/shape.py), O(d³). `refresh=1` decomposes
in every generation and is the paper's algorithm to the letter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fmnes._equality import EqualByContent
from fmnes.arguments import check_number, shown, suggest_options
from fmnes.backends import NUMPY, Array, Backend
from fmnes.errors import ArgumentError
from fmnes.steps.adaptation import (
    MAX_GROWTH,
    MOVEMENT,
    axis_factors,
    expansion_rate,
    expected_norm,
    follow,
    follow_share,
    parents_of,
    phase_name,
    phase_of,
    population_growth,
    trust_in_path,
)
from fmnes.steps.sampling import (
    distance_alpha,
    distance_weights,
    mirrored_points,
    pair_differences,
    pair_sums,
    weights_of_half,
)
from fmnes.steps.shape import Factor, axis_growth, exponential
from fmnes.strategies.base import (
    Shape,
    Strategy,
    check_choice,
    check_shape_matrix,
    own_matrix,
    settle_positive_ints,
)
from fmnes.strategies.fm_nes_state import (
    SMALL,
    FMNESState,
    Growth,
    Selected,
    constants,
    meet_first_failure,
    new_shape,
    refresh,
    selected,
    selected_by,
    unchanged,
    with_first_shape,
)

#: Settings in which adaptive FM-NES departs from the paper.
DEPARTURES: dict[str, Any] = {
    "shape_rate": "xnes",
    "selection": "successes",
    "step_size": "path",
    "population": "adaptive",
}


@dataclass(frozen=True, eq=False)
class FMNES(EqualByContent, Strategy):
    """Settings of FM-NES (Nomura & Ono 2021), and of methods derived from it.

    With "published" settings throughout, which are the defaults, this is the paper's algorithm; `AFMNES` has
    the others. docs/algorithm.md describes both.

    Parameters
    ----------
    population_size : int, optional
        Points in a generation, of the first one with `population="adaptive"`; about 4 + 3 ln d by default.
    rank_one : {"on-ridge", "always", "never"}, optional
        "on-ridge" makes the rank-one update until an evaluation fails and, after that, on ridges only (the
        paper's FM-NES); "always" is Method A (and C); "never" is DX-NES-IC.
    reset : bool, optional
        Reset the learned shape at the first failed evaluation; False is Method B (and C).
    ridge_threshold : float, optional
        The paper's β.
    refresh : int, optional
        Generations between corrections of the axes; None chooses from d and λ, 1 is the literal algorithm.
    path_rate : {"tables", "printed"}, optional
        c_σ with which the paper's tables come out, or as the paper prints it.
    alpha : {"tables", "public"}, optional
        α of the distance weights with which the paper's tables come out, or that of public code.
    B0 : array_like, optional
        Initial shape (d, d), the identity by default; points start as N(x0, sigma0² B0 B0ᵀ).
    shape_rate : {"published", "xnes"}, optional
        "xnes" uses the learning rate of xNES for the shape, in every dimension, with a rank-one rate that
        fits.
    selection : {"published", "successes"}, optional
        "successes" selects the best half of the points that succeed, instead of the best half of all points.
    step_size : {"published", "path"}, optional
        With "path", the evolution path of CMA-ES also adjusts the step size while points fail.
    population : {"published", "adaptive"}, optional
        "adaptive" draws more points where points fail and the shape has to be learned.
    max_population_size : int, optional
        Upper limit of λ.

    Raises
    ------
    ArgumentError
        A setting has a value that it cannot have.

    Examples
    --------
    >>> import fmnes
    >>> fmnes.FMNES(refresh=1).name
    'fm-nes'
    >>> result = fmnes.minimize(
    ...     lambda x: float(x @ x), [3.0, 2.0], 0.5, method=fmnes.FMNES(refresh=1), rng=1, target=1e-6
    ... )
    >>> result.success
    True
    """

    mirrored = True
    failed_order = "distance"
    matrices = 9  # F, A, A⁻¹, their successors, and what a refresh needs
    population_size: int | None = None
    rank_one: Literal["on-ridge", "always", "never"] = "on-ridge"
    reset: bool = True
    ridge_threshold: float = 1.2
    refresh: int | None = None
    path_rate: Literal["tables", "printed"] = "tables"
    alpha: Literal["tables", "public"] = "tables"
    B0: ArrayLike | None = field(default=None, repr=False)
    shape_rate: Literal["published", "xnes"] = "published"
    selection: Literal["published", "successes"] = "published"
    step_size: Literal["published", "path"] = "published"
    population: Literal["published", "adaptive"] = "published"
    max_population_size: int | None = None

    def __post_init__(self) -> None:
        settle_positive_ints(self, "population_size", "max_population_size", "refresh")
        if self.max_population_size is not None and self.max_population_size < max(
            self.population_size or 4, 4
        ):
            raise ArgumentError(
                f"max_population_size: found {self.max_population_size}, wanted at least "
                f"{max(self.population_size or 4, 4)}, the population to begin with"
            )
        for name, other in DEPARTURES.items():
            check_choice(name, getattr(self, name), ("published", other))
        check_choice("rank_one", self.rank_one, ("on-ridge", "always", "never"))
        check_choice("path_rate", self.path_rate, ("tables", "printed"))
        check_choice("alpha", self.alpha, ("tables", "public"))
        check_number("ridge_threshold", self.ridge_threshold, above=1, optional=False)
        if not isinstance(self.reset, bool):
            raise ArgumentError(f"reset: found {shown(self.reset)}, wanted True or False")
        if self.B0 is not None:
            object.__setattr__(self, "B0", own_matrix("B0", self.B0))

    @property
    def name(self) -> str:
        """The method's name: "fm-nes", "dx-nes-ic" or "afm-nes", by its settings."""
        if any(getattr(self, name) != "published" for name in DEPARTURES):
            return "afm-nes"
        return "dx-nes-ic" if self.rank_one == "never" and not self.reset else "fm-nes"

    def init(self, x0: Array, sigma0: Array, z0: Array, backend: Backend = NUMPY) -> FMNESState:
        """Return the first state; see `Strategy.init`."""
        xp = backend.xp
        d = len(x0)
        eye = xp.eye(d, dtype=x0.dtype)
        F0 = A0 = None
        if self.B0 is not None:
            B0, scale = check_shape_matrix("B0", np.asarray(self.B0), d)
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
            unconstrained=xp.asarray(True)[()],  # a number, not an array, with NumPy
            F0=F0,
            A0=A0,
            share=xp.ones_like(sigma0) if self.population != "published" or self._by_path else None,
            p_step=xp.zeros_like(x0) if self._by_path else None,
        )
        return with_first_shape(state, backend)

    @property
    def _by_path(self) -> bool:
        return self.step_size == "path"

    @property
    def _for_every_d(self) -> bool:
        return self.shape_rate == "xnes"

    @property
    def adapts_population_size(self) -> bool:
        """True with `population="adaptive"`."""
        return self.population == "adaptive"

    def default_population_size(self, d: int) -> int | None:
        """Return λ₀: 4 + 3 ln d made even, upwards as in the paper, downwards with an adaptive population.

        See `Strategy.default_population_size`.
        """
        if self.population == "published":
            return None
        usual = 4 + int(3 * math.log(d))
        return usual - usual % 2

    def next_population_size(self, state: FMNESState, first: int, backend: Backend = NUMPY) -> Array:
        """Return λ of the next generation; see `Strategy.next_population_size`."""
        most = self.largest_population_size(first)
        if self.population == "published" or (backend is NUMPY and state.share == 1):
            return min(first, most)
        lengths2 = backend.xp.vecdot(state.A, state.A)
        ratio = backend.xp.sqrt(lengths2.max() / lengths2.min())
        pairs = backend.xp.floor(0.5 * first * population_growth(state.share, ratio, backend) + 0.5)
        return 2 * backend.xp.minimum(pairs, most // 2).astype(int)

    def largest_population_size(self, first: int) -> int:
        """Return the largest λ that a run can have; see `Strategy.largest_population_size`."""
        growth = 1 if self.population == "published" else MAX_GROWTH
        most = min(growth * first, self.max_population_size or growth * first)
        return most - most % 2

    def sample(self, state: FMNESState, z: Array, backend: Backend = NUMPY) -> Array:
        """Return the points of these draws, a draw's two side by side (lines 3–6); see `Strategy.sample`."""
        steps = z.dot(state.A.T).dot(state.F.T)  # rows B z ~ N(0, B Bᵀ)
        return mirrored_points(state.mean, state.sigma, steps, backend)

    def coordinates(self, state: FMNESState, x: Array) -> Array:
        """Return the draws z of given points: x = m + σ B z; see `Strategy.coordinates`."""
        steps = ((x - state.mean) / state.sigma).dot(state.F)
        if state.A_inverse is not None:
            return steps.dot(state.A_inverse.T)
        return np.linalg.solve(state.A, steps.T).T

    def shape_matrix(self, state: FMNESState) -> Array:
        """Return B = F A; see `Strategy.shape_matrix`."""
        return state.F.dot(state.A)

    def with_shape(self, state: FMNESState, mean: Array, sigma: float, B: Array) -> FMNESState:
        """Return the state with another distribution; see `Strategy.with_shape`.

        The paths stay as they are in space.
        """
        F, lengths, Vt = np.linalg.svd(B)
        return state._replace(
            mean=mean,
            sigma=np.float64(sigma),
            F=F,
            A=lengths[:, None] * Vt,
            A_inverse=None if state.A_inverse is None else Vt.T / lengths,
            p_c=F.T.dot(state.F.dot(state.p_c)),
        )

    def with_refresh(self, d: int, population_size: int) -> FMNES:
        """Return the same settings with `refresh` fixed to that of this λ, whatever λ becomes.

        See `Strategy.with_refresh`.
        """
        k = constants(d, population_size, self.path_rate, self.alpha, self.shape_rate == "xnes")
        return replace(self, refresh=self.refresh or k.refresh)

    def update(
        self,
        state: FMNESState,
        z: Array,
        order: Array,
        n_feasible: Array,
        backend: Backend = NUMPY,
        population_size: Array | None = None,
    ) -> FMNESState:
        """Return the next state (lines 7–36); see `Strategy.update`.

        In compiled code shapes are fixed, but λ is not: z and order may have room for more than λ points.
        What follows the first λ/2 draws and the first λ entries of order is ignored.

        Parameters
        ----------
        state : FMNESState
            The state.
        z : ndarray
            The draws as given to `sample`, (λ/2, d); or a draw for each point, (λ, d).
        order : ndarray
            The slots from best to worst, (λ,); failed points last, nearest to the mean first.
        n_feasible : int
            Number of points that did not fail.
        backend : Backend, optional
            NumPy or JAX.
        population_size : ndarray, optional
            λ, if z and order have room for more.

        Returns
        -------
        FMNESState
            The next state.
        """
        xp = backend.xp
        n, d = z.shape
        room = len(order)
        lam: Array = room
        if population_size is not None:
            lam = population_size.astype(z.dtype)
            there = xp.arange(n) < population_size // 2
            z = xp.where(there[:, None], z, 0.0)
        k = backend.arrays(constants(d, room, self.path_rate, self.alpha, self._for_every_d), z.dtype)

        norm2 = xp.vecdot(z, z)
        ranks = backend.inverse(order)  # line 7
        selected = self._selected(k.selected, n_feasible, d, lam, room, z.dtype, backend)
        mu_eff = selected.weights.mu_eff
        first_failure = state.unconstrained & (n_feasible < lam)
        state = backend.cond(  # lines 8–11
            first_failure, lambda s: meet_first_failure(s, self.reset, backend), unchanged, state
        )

        by_rank = selected.weights.centred[ranks]
        drift = pair_differences(by_rank, n).dot(z)
        p_sigma = follow(state.p_sigma, drift, selected.c_sigma, mu_eff)  # line 12
        phase = phase_of(xp.sqrt(p_sigma.dot(p_sigma)), k.expected_norm, backend)
        moving = phase == MOVEMENT

        if population_size is None:
            alpha = k.alphas[n_feasible]
        else:
            alpha = distance_alpha(n_feasible.astype(z.dtype), d, lam, self.alpha == "public", backend)

        def by_distance() -> tuple[Array, Array]:
            weights = distance_weights(selected.weights, ranks, norm2, alpha, k.expected_norm, backend, lam)
            return weights, pair_differences(weights, n).dot(z)

        weights, G_delta = backend.choose(moving, by_distance, lambda: (by_rank, drift))  # lines 13, 15
        eta_sigma = k.rates.sigma[phase, n_feasible]  # line 14
        eta_B = k.rates.shape[phase, n_feasible]

        pair_weights = pair_sums(weights, n)
        G_sigma = pair_weights.dot(norm2) / d  # line 16; the weights sum to zero, so −I drops out
        step = state.A.dot(G_delta)  # B G_δ in F's frame
        mean = state.mean + state.sigma * state.F.dot(step)  # line 17, η_m = 1
        log_sigma_change = 0.5 * eta_sigma * G_sigma  # line 18
        share, p_step = state.share, state.p_step
        if share is not None:
            # λ as a number whose quotients have the dtype of the search
            share = follow_share(share, n_feasible, z.dtype.type(lam) if population_size is None else lam)
        if p_step is not None:
            p_step = follow(p_step, drift, selected.c_step, mu_eff)
            length = xp.sqrt(p_step.dot(p_step)) / k.expected_norm
            by_path = selected.c_step / selected.damping * (length - 1)
            log_sigma_change += trust_in_path(share) * (by_path - log_sigma_change)
        p_c = follow(state.p_c, step, selected.c_c, mu_eff)  # line 20
        generation = state.generation + 1
        if d == 1:  # a shape of determinant 1 in one dimension is 1
            return state._replace(
                generation=generation,
                mean=mean,
                sigma=state.sigma * xp.exp(log_sigma_change),
                p_sigma=p_sigma,
                p_c=p_c,
                share=share,
                p_step=p_step,
            )

        # Line 19, less the trace of G_B, which is G_σ and goes with the scale of the rows.
        change = exponential(z, pair_weights, 0.5 * eta_B, backend)
        log_trace = -0.5 * eta_B * G_sigma
        y = state.A.dot(change.basis.T)
        inverse_gain = None
        if state.A_inverse is not None:
            inverse_gain = change.inverse_core.dot(change.basis.dot(state.A_inverse))
        factor = Factor(change.basis, y.dot(change.core), inverse_gain)
        tau = axis_growth(state.A, y, factor.gain, change.gram, log_trace, backend)  # lines 21–24
        gamma = expansion_rate(state.gamma, tau, d, lam, backend)  # lines 25, 26
        Q, log_det_Q = axis_factors(gamma, tau, moving, backend)  # lines 27–31
        row_scale = Q * xp.exp(log_trace - log_det_Q)
        growth = Growth(state.A, state.A_inverse, factor, row_scale, p_c, selected.c_1)
        whole = self.refresh == 1 or d <= SMALL
        A, A_inverse = new_shape(  # lines 30, 32–35
            growth, self.rank_one, state.unconstrained, self.ridge_threshold, whole, backend
        )
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
            F0=state.F0,
            A0=state.A0,
            share=share,
            p_step=p_step,
        )
        every = self.refresh or k.refresh
        return backend.cond(  # type: ignore[no-any-return]
            generation % every == 0, lambda s: refresh(s, every, k.decompose, backend), unchanged, state
        )

    def shape(self, state: FMNESState, backend: Backend = NUMPY) -> Shape:
        """Return the search distribution; see `Strategy.shape`."""
        xp = backend.xp
        d = len(state.mean)
        phase = phase_name(xp.sqrt(state.p_sigma.dot(state.p_sigma)), expected_norm(d), backend)
        return Shape(state.mean, state.sigma, xp.sqrt(xp.vecdot(state.A, state.A)), phase)

    def covariance(self, state: FMNESState, backend: Backend = NUMPY) -> Array:
        """Return the covariance of the points; see `Strategy.covariance`."""
        B = state.sigma * state.F.dot(state.A)
        return B.dot(B.T)

    def _selected(
        self,
        all_succeed: Selected,
        feasible: Array,
        d: int,
        lam: Array,
        room: int,
        dtype: Any,
        backend: Backend,
    ) -> Selected:
        """Weights and their rates for this number of feasible points; for up to `room` points."""
        published = self.selection == "published"
        if published and isinstance(lam, int):
            return all_succeed
        size = lam if published else parents_of(feasible, d, lam, backend)
        if backend is NUMPY:
            return backend.arrays(selected(d, lam, int(size), self.path_rate, self._for_every_d), dtype)  # type: ignore[no-any-return]
        weights = weights_of_half(backend.xp.log(size / 2 + 1).astype(dtype), room, backend, lam)
        return selected_by(weights, d, self.path_rate, self._for_every_d, backend)


FMNES.__init__ = suggest_options(FMNES.__init__)  # type: ignore[method-assign]


@suggest_options
def AFMNES(
    *,
    population_size: int | None = None,
    rank_one: Literal["on-ridge", "always", "never"] = "on-ridge",
    reset: bool = True,
    ridge_threshold: float = 1.2,
    refresh: int | None = None,
    path_rate: Literal["tables", "printed"] = "tables",
    alpha: Literal["tables", "public"] = "tables",
    B0: ArrayLike | None = None,
    shape_rate: Literal["published", "xnes"] = "xnes",
    selection: Literal["published", "successes"] = "successes",
    step_size: Literal["published", "path"] = "path",
    population: Literal["published", "adaptive"] = "adaptive",
    max_population_size: int | None = None,
) -> FMNES:
    """Settings of adaptive FM-NES, the default method: FM-NES with four changes for simulations that fail.

    Parameters
    ----------
    population_size : int, optional
        λ₀, points in the first generation; about 4 + 3 ln d by default.
    rank_one : {"on-ridge", "always", "never"}, optional
        As in `FMNES`.
    reset : bool, optional
        As in `FMNES`.
    ridge_threshold : float, optional
        As in `FMNES`.
    refresh : int, optional
        As in `FMNES`.
    path_rate : {"tables", "printed"}, optional
        As in `FMNES`.
    alpha : {"tables", "public"}, optional
        As in `FMNES`.
    B0 : array_like, optional
        As in `FMNES`.
    shape_rate : {"published", "xnes"}, optional
        As in `FMNES`.
    selection : {"published", "successes"}, optional
        As in `FMNES`.
    step_size : {"published", "path"}, optional
        As in `FMNES`.
    population : {"published", "adaptive"}, optional
        As in `FMNES`.
    max_population_size : int, optional
        As in `FMNES`; four times the first λ by default.

    Returns
    -------
    FMNES
        The settings.

    Raises
    ------
    ArgumentError
        A setting is unknown, or has a value that it cannot have.

    Examples
    --------
    >>> import fmnes
    >>> fmnes.AFMNES(max_population_size=20).name
    'afm-nes'
    >>> fmnes.AFMNES(population="published").population
    'published'
    """
    return FMNES(**locals())  # exactly the parameters


@suggest_options
def DXNESIC(
    *,
    population_size: int | None = None,
    rank_one: Literal["on-ridge", "always", "never"] = "never",
    reset: bool = False,
    ridge_threshold: float = 1.2,
    refresh: int | None = None,
    path_rate: Literal["tables", "printed"] = "tables",
    alpha: Literal["tables", "public"] = "tables",
    B0: ArrayLike | None = None,
    shape_rate: Literal["published", "xnes"] = "published",
    selection: Literal["published", "successes"] = "published",
    step_size: Literal["published", "path"] = "published",
    population: Literal["published", "adaptive"] = "published",
    max_population_size: int | None = None,
) -> FMNES:
    """Settings of DX-NES-IC: FM-NES without the rank-one update and without the reset.

    Parameters
    ----------
    population_size : int, optional
        Points in a generation; about 4 + 3 ln d by default.
    rank_one : {"on-ridge", "always", "never"}, optional
        As in `FMNES`.
    reset : bool, optional
        As in `FMNES`.
    ridge_threshold : float, optional
        As in `FMNES`.
    refresh : int, optional
        As in `FMNES`.
    path_rate : {"tables", "printed"}, optional
        As in `FMNES`.
    alpha : {"tables", "public"}, optional
        As in `FMNES`.
    B0 : array_like, optional
        As in `FMNES`.
    shape_rate : {"published", "xnes"}, optional
        As in `FMNES`.
    selection : {"published", "successes"}, optional
        As in `FMNES`.
    step_size : {"published", "path"}, optional
        As in `FMNES`.
    population : {"published", "adaptive"}, optional
        As in `FMNES`.
    max_population_size : int, optional
        As in `FMNES`.

    Returns
    -------
    FMNES
        The settings.

    Raises
    ------
    ArgumentError
        A setting is unknown, or has a value that it cannot have.

    Examples
    --------
    >>> import fmnes
    >>> fmnes.DXNESIC() == fmnes.FMNES(rank_one="never", reset=False)
    True
    """
    return FMNES(**locals())  # exactly the parameters
