"""FM-NES's shape at the end of a generation: lines 30 and 32–35 of its Algorithm 2.

Letters and line numbers are those of fm_nes.py.
"""

from __future__ import annotations

from typing import NamedTuple

from fmnes.backends import Array, Backend
from fmnes.steps.ridge import LEADING, on_ridge
from fmnes.steps.shape import Factor, inverse_times, times, with_rank_one


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
