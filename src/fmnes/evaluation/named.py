"""An objective of named parameters, as whoever evaluates it calls it: with the search's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.space import Space


class Named:
    """Calls `fun` with {name: value} in the user's units; if it is `vectorized`, with {name: (n,)}."""

    def __init__(self, fun: Callable[[Any], Any], space: Space, vectorized: bool) -> None:
        self._fun = fun
        self._told = space.columns if vectorized else space.named

    def __call__(self, x: NDArray[np.float64]) -> Any:
        return self._fun(self._told(x))

    def __repr__(self) -> str:
        return repr(self._fun)
