"""What a strategy is: pure functions over a state, with frozen settings.

    state = strategy.init(x0, sigma0, z0)      z0 (d,): one draw, for strategies with a random start
    x     = strategy.sample(state, z)          z (draws, d) standard normal; x (λ, d)
    state = strategy.update(state, z, f)       f (λ,) in the order of x; not finite means failed
    shape = strategy.shape(state)              what an observer may see

Draws come in as arguments, so a strategy holds no random generator and the same source serves NumPy and JAX.
A state is a NamedTuple of arrays with no λ in any shape: λ may change from one generation to the next.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from fmnes.backends import NUMPY, Array, Backend


class Shape(NamedTuple):
    """The search distribution N(mean, sigma² · C) as an observer sees it."""

    mean: Array
    sigma: Array
    axis_lengths: Array
    """Standard deviations along the axes of C; exact right after a refresh, close to it otherwise. (d,)"""
    phase: str


class Strategy(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def population_size(self) -> int | None: ...
    @property
    def mirrored(self) -> bool:
        """True if every draw is used as z and −z, so that λ is even and takes λ/2 draws."""
        ...

    @property
    def matrices(self) -> int:
        """How many d × d matrices it holds at once, at most: what limits d."""
        ...

    def init(self, x0: Array, sigma0: Array, z0: Array, backend: Backend = NUMPY) -> Any: ...
    def sample(self, state: Any, z: Array, backend: Backend = NUMPY) -> Array: ...
    def update(self, state: Any, z: Array, f: Array, backend: Backend = NUMPY) -> Any: ...
    def shape(self, state: Any, backend: Backend = NUMPY) -> Shape: ...
    def covariance(self, state: Any, backend: Backend = NUMPY) -> Array:
        """sigma² · C, (d, d)."""
        ...


def stays_finite(state: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """True if no array of a state holds NaN or infinity. What is unchanged since `before` is not read."""
    # A sum of squares is finite only if each term is, and it is the fastest pass over an array. It overflows
    # for entries beyond 1e154; only then each entry is looked at.
    total = 0.0
    for leaf, old in zip(state, before, strict=True):
        if leaf is not old:
            flat = leaf.ravel() if leaf.ndim > 1 else leaf
            total += flat.dot(flat) if leaf.ndim else leaf
    if math.isfinite(total):
        return True
    return all(np.isfinite(leaf).all() for leaf in state if leaf is not None)
