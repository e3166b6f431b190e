"""What the share of points that succeed says: how far to trust the sample, and how many points to draw.

s   smoothed share of points that succeed; 1 until the first failure
"""

from __future__ import annotations

from fmnes.backends import Array, Backend

#: How much of s is the last generation.
SMOOTHING = 0.1
#: A generation has at most so many times λ₀ points.
MAX_GROWTH = 4
#: The ratio of the longest to the shortest axis, as a logarithm, from which on all of 1/s is taken.
LOG_RATIO = 2.0


def follow_share(share: Array, feasible: Array, population_size: Array) -> Array:
    return share + SMOOTHING * (feasible / population_size - share)


def trust_in_path(share: Array) -> Array:
    """The weight of the path's word on σ beside the sample's: the share of points that fail.

    The sample takes failed points for bad ones, so it shrinks σ wherever points fail; the path sees the mean
    alone, but is noisier. So the sample has as much of a say as it has succeeded.
    """
    return 1 - share


def parents_of(feasible: Array, d: int, population_size: Array, backend: Backend) -> Array:
    """The best half of how many points is selected: of those that succeed, but of d at least.

    To rank failed points among the best half is to follow them. But the mean of few points is a noisy one,
    and with d coordinates there are about d directions to average over. All points where all succeed, and
    where not two do, which is nothing to choose from.
    """
    enough = backend.larger(feasible, d)
    all_of_them = (feasible < 2) | (feasible == population_size) | (enough > population_size)
    return backend.choose(all_of_them, lambda: population_size, lambda: enough)


def population_growth(share: Array, axis_ratio: Array, backend: Backend) -> Array:
    """λ/λ₀: with s⁻¹, λ₀ points of a generation succeed.

    That many are needed for learning a shape, whose changes are noise if they are found from few points; so
    the exponent goes with how far the axes have parted. A round shape needs no more than λ₀.
    """
    xp = backend.xp
    exponent = xp.minimum(1.0, xp.log(axis_ratio) / LOG_RATIO)
    return xp.minimum(float(MAX_GROWTH), xp.exp(-exponent * xp.log(backend.larger(share, 1e-3))))
