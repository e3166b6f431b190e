"""From values to ranks, failed evaluations included. All sorts are stable, so ties stand in index order.

A value is feasible if and only if it is finite. Nothing else in an update looks at f: strategies see ranks
and the number of feasible points, so no overflow, NaN or scale of f can reach them.
"""

from __future__ import annotations

from typing import Any

from fmnes.backends import Array, Backend


def ranks_by_value(f: Array, xp: Any) -> tuple[Array, Array]:
    """Rank of every point, 0 the best, and the number of feasible points. f: (λ,).

    Failed points come last, in the order of sampling, as in the paper's xNES and CMA-ES.
    """
    feasible = xp.isfinite(f)
    order = xp.where(feasible, f, xp.inf).argsort(stable=True)
    return order.argsort(), xp.count_nonzero(feasible)


def ranks_by_value_then_distance(f: Array, pair_norm2: Array, backend: Backend) -> tuple[Array, Array]:
    """The same with failed points ordered by ‖z‖, the closest to the mean first (paper eq. 3).

    f: (λ,); pair_norm2: ‖z‖² of each mirrored pair (λ/2,), taken once per pair so that the two halves of
    a failed pair tie exactly.
    """
    xp = backend.xp
    feasible = xp.isfinite(f)
    count = xp.count_nonzero(feasible)

    def with_failed() -> Array:
        # Sorted by the last key first: f (failed ones at +inf), then ‖z‖² among failed ones, then index.
        distance2 = pair_norm2[:, None] * ~feasible.reshape(-1, 2)
        return xp.lexsort((distance2.reshape(-1), xp.where(feasible, f, xp.inf)))

    order = backend.cond(count == len(f), lambda: f.argsort(stable=True), with_failed)
    return order.argsort(), count
