"""An objective of named parameters, as whoever evaluates it calls it: with the search's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.space import Space


class Named:
    """Calls `fun` with {name: value} in the user's units; with many points (n, d), each value is (n,)."""

    def __init__(self, fun: Callable[[Any], Any], space: Space) -> None:
        self._fun, self._space = fun, space

    def __call__(self, x: NDArray[np.float64]) -> Any:
        return self._fun(self._space.named(x) if x.ndim == 1 else self._space.columns(x))

    def __repr__(self) -> str:
        return repr(self._fun)
