"""Points that fill the unit cube evenly, in any number of dimensions.

The Halton sequence with a random permutation of each digit (Owen 2017, "A randomized Halton algorithm in R").
It needs no tables, each coordinate of the first n points is stratified for every n, and points can be added
later. The permutations remove the correlations that the plain sequence has from about 6 dimensions on.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fmnes.surrogate.kernels import Floats, inverse_cdf

#: Digits are drawn until they are below this.
_RESOLUTION = 2.0**-40


def points(n: int, d: int, seed: int, skip: int = 0) -> Floats:
    """Return points skip to skip + n of the sequence of this seed.

    Parameters
    ----------
    n, d : int
        Number of points and of dimensions.
    seed : int
        Seed of the permutations; at least 0.
    skip : int
        How many points of the sequence to leave out.

    Returns
    -------
    (n, d) array
        In (0, 1).
    """
    index = np.arange(skip, skip + n)
    x = np.empty((n, d))
    for j, (base, digits) in enumerate(_permutations(d, seed)):
        rest, unit, value = index, 1.0, np.zeros(n)
        for permutation in digits:
            rest, digit = np.divmod(rest, base)
            unit /= base
            value += unit * permutation[digit]
        x[:, j] = value + 0.5 * unit  # the middle of the last cell, so never 0
    return x


def normal_points(n: int, d: int, seed: int, skip: int = 0) -> Floats:
    """Return n points of the d-dimensional standard normal distribution, the first ones left out. (n, d)"""
    return inverse_cdf(points(n, d, seed, skip))


@lru_cache(maxsize=16)
def _permutations(d: int, seed: int) -> list[tuple[int, list[np.ndarray]]]:
    """For each coordinate its base and the permutation of each digit."""
    rng = np.random.default_rng([seed, d])
    table = []
    for base in _primes(d):
        count = int(np.ceil(-np.log(_RESOLUTION) / np.log(base)))
        table.append((base, [rng.permutation(base) for _ in range(count)]))
    return table


def _primes(count: int) -> list[int]:
    """The first prime numbers."""
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % p for p in found):
            found.append(candidate)
        candidate += 1
    return found
