"""Ranking of a generation, failed points included. Strategies see the order only, never the values."""

from __future__ import annotations

from fmnes.backends import NUMPY, Array, Backend
from fmnes.steps.sampling import dot
from fmnes.strategies.base import Strategy


def rank(
    strategy: Strategy, z: Array, f: Array, backend: Backend = NUMPY, population_size: Array | None = None
) -> tuple[Array, Array]:
    """The slots from best to worst (λ,), and the number of feasible points.

    A value is feasible if it is finite. Failed points come last, in the order that the strategy asks for;
    ties keep the order of the slots.

    z: the draws, one for each point or for each mirrored pair; f: (λ,). population_size: λ, if z and f have
    room for more. The unused slots come last.
    """
    xp = backend.xp
    feasible = xp.isfinite(f)
    if population_size is not None:
        used = xp.arange(len(f)) < population_size
        feasible = feasible & used
    n_feasible = xp.count_nonzero(feasible)

    def failed_last() -> Array:
        value = xp.where(feasible, f, xp.inf)
        if strategy.failed_order == "index":
            return backend.order(value)
        # Once per pair, so that the two halves of a failed pair tie exactly.
        distance2 = dot(z, z, backend).repeat(len(f) // len(z))
        if population_size is not None:
            distance2 = xp.where(used, distance2, xp.inf)
        return backend.order(value, xp.where(feasible, 0.0, distance2))

    return backend.choose(n_feasible == len(f), lambda: backend.order(f), failed_last), n_feasible
