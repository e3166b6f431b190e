"""NAME: what it is, in a sentence.

AUTHORS, "TITLE", YEAR.

    m, σ, S    points are x = m + σ S∗z; every letter of the paper that is used below, and its meaning
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fmnes.backends import NUMPY, Array, Backend
from fmnes.strategies.base import Shape, Strategy


class State(NamedTuple):
    """All that the next generation needs, as arrays; nothing that can be computed from the rest, no λ."""

    mean: Array
    """m, where the points are centred. (d,)"""
    sigma: Array
    """σ, the step size: one number."""
    S: Array
    """Whatever else the method learns, with its shape; here scales of the coordinates. (d,)"""


@dataclass(frozen=True)
class Method(Strategy):
    """Its settings, as users give them, and what each of them means."""

    population_size: int | None = None

    @property
    def name(self) -> str:
        return "name"

    @property
    def mirrored(self) -> bool:
        return False  # True: each draw is used as z and as −z; then λ is even, and z has λ/2 rows

    @property
    def matrices(self) -> int:
        return 0  # d × d matrices held at once, at most: what limits d

    def init(self, x0: Array, sigma0: Array, z0: Array, backend: Backend = NUMPY) -> State:
        """x0: (d,); sigma0: a number; z0: (d,), a draw for those that begin at random."""
        raise NotImplementedError

    def sample(self, state: State, z: Array, backend: Backend = NUMPY) -> Array:
        """z: (λ, d) standard normal. Returns the points, (λ, d)."""
        raise NotImplementedError

    def update(
        self, state: State, z: Array, order: Array, n_feasible: Array, backend: Backend = NUMPY
    ) -> State:
        """Return the next state.

        z: the draws given to `sample`. order: (λ,), the indices of the points from best to worst, failed ones
        last. n_feasible: the number of points that did not fail.
        """
        raise NotImplementedError

    def shape(self, state: State, backend: Backend = NUMPY) -> Shape:
        """What an observer sees: mean, σ, axis lengths over σ (d,), phase."""
        raise NotImplementedError

    def covariance(self, state: State, backend: Backend = NUMPY) -> Array:
        """Of the points, (d, d)."""
        raise NotImplementedError
