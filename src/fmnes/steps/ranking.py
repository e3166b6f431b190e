"""From values to ranks, failed evaluations included. Ties stand in index order.

A value is feasible if and only if it is finite. Nothing else in an update looks at f: strategies see ranks
and the number of feasible points, so no overflow, NaN or scale of f can reach them.
"""

from __future__ import annotations

from fmnes.backends import Array, Backend


def ranks_by_value(f: Array, backend: Backend) -> tuple[Array, Array]:
    """Rank of every point, 0 the best, and the number of feasible points. f: (λ,).

    Failed points come last, in the order of sampling, as in the paper's xNES and CMA-ES.
    """
    xp = backend.xp
    feasible = xp.isfinite(f)
    return backend.ranks(xp.where(feasible, f, xp.inf)), xp.count_nonzero(feasible)


def ranks_by_value_then_distance(f: Array, pair_norm2: Array, backend: Backend) -> tuple[Array, Array]:
    """The same with failed points ordered by ‖z‖, the closest to the mean first (paper eq. 3).

    f: (λ,); pair_norm2: ‖z‖² of each mirrored pair (λ/2,), taken once per pair so that the two halves of
    a failed pair tie exactly; or of each point (λ,).
    """
    xp = backend.xp
    feasible = xp.isfinite(f)
    count = xp.count_nonzero(feasible)

    def with_failed() -> Array:
        # By f, failed ones at +inf, then by ‖z‖² among failed ones, then by index.
        distance2 = xp.where(feasible, 0.0, pair_norm2.repeat(len(f) // len(pair_norm2)))
        return backend.ranks(xp.where(feasible, f, xp.inf), distance2)

    return backend.choose(count == len(f), lambda: backend.ranks(f), with_failed), count
