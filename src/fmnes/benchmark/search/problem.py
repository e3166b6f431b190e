"""What a problem of the stand is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Exact = Callable[[Array], Array]
Told = Callable[[Array, np.random.Generator], Array]


def generous(d: int) -> int:
    """Evaluations after which a run is cut: several times what the hardest problems need."""
    return 20_000 * (d + 1)


def where(inside: Any, values: Array) -> Array:
    """The values inside, +inf elsewhere; of NumPy or JAX."""
    chosen: Array = inside.__array_namespace__().where(inside, values, np.inf)
    return chosen


@dataclass(frozen=True, eq=False)
class Problem:
    """Something to minimise, with what there is to find. It is solved within `gap` of the minimum."""

    name: str
    fun: Exact = field(repr=False)
    """Values (n,) of points (n, d), without noise; +inf where the evaluation fails. JAX's arrays do, too."""
    x0: Array = field(repr=False)
    sigma0: float | Array
    optimum: Array = field(repr=False)
    minimum: float = 0.0
    gap: float = 1e-9
    bounds: tuple[Array, Array] | None = field(default=None, repr=False)
    told: Told | None = field(default=None, repr=False)
    """What a search is told in place of `fun`, where chance has a part in it."""
    at_mean: bool = False
    """A told value is no proof: the mean of the search distribution is judged, by `fun`."""
    max_evaluations: int = 0
    """0: as many as is `generous`."""

    @property
    def d(self) -> int:
        return len(self.x0)

    @property
    def budget(self) -> int:
        return self.max_evaluations or generous(self.d)

    def gap_at(self, x: Array) -> float:
        """How far above the minimum the point x (d,) is."""
        return float(self.fun(x[None])[0]) - self.minimum
