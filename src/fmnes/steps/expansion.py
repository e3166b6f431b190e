"""Emphasised expansion (paper step 10): axes that are growing while the distribution moves grow faster."""

from __future__ import annotations

from fmnes.backends import Array, Backend

#: Second moment changes below this are rounding noise: with no feasible point the rate is 0 and τ should be.
TAU_NOISE = 1e-9


def expansion_rate(gamma: Array, tau: Array, d: int, population_size: Array, backend: Backend) -> Array:
    """γ ← max((1 − c_γ) γ + c_γ √(1 + d_γ max τ), 1). tau: relative growth of each axis (d,), d > 1."""
    c_gamma = 1 / (3 * (d - 1))
    smaller = min if isinstance(population_size, int) else backend.xp.minimum
    d_gamma = smaller(1.0, d / population_size)
    grown = backend.xp.sqrt(1 + d_gamma * tau.max())
    return backend.larger((1 - c_gamma) * gamma + c_gamma * grown, 1.0)


def axis_factors(gamma: Array, tau: Array, moving: Array, backend: Backend) -> tuple[Array, Array]:
    """The eigenvalues of Q on the current axes (d,), and ln det(Q)/d; all 1 and 0 unless moving."""
    xp = backend.xp

    def expanding() -> tuple[Array, Array]:
        growing = tau > TAU_NOISE
        return xp.where(growing, gamma, 1.0), xp.log(gamma) * xp.count_nonzero(growing) / len(tau)

    return backend.choose(moving, expanding, lambda: (xp.ones(len(tau), tau.dtype), 0 * gamma))  # type: ignore[no-any-return]
