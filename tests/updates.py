"""One update from the values of a generation, as a search makes it."""

from __future__ import annotations

from typing import Any

from fmnes.backends import NUMPY, Backend
from fmnes.strategies.base import rank


def after_update(
    strategy: Any, state: Any, z: Any, f: Any, backend: Backend = NUMPY, *population_size: Any
) -> Any:
    order, n_feasible = rank(strategy, z, f, backend, *population_size)
    return strategy.update(state, z, order, n_feasible, backend, *population_size)
