"""The distribution of points with categories: numbers from a strategy, choices beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.result import Vector
from fmnes.search.categories import Categories
from fmnes.search.distribution import BEGIN_AGAIN_STEP, Distribution
from fmnes.search.ranking import rank
from fmnes.search.start import Start
from fmnes.storage.snapshot import Saved

Floats = NDArray[np.float64]


def make_distribution(start: Start, rng: np.random.Generator, share: float = 1.0) -> Distribution:
    """share: the step size as a share of the first search's."""
    return Distribution(start, rng) if start.choices is None else MixedDistribution(start, rng, share)


class MixedDistribution(Distribution):
    """A distribution of the numbers, in their own coordinates, and of the choices.

    Points have all coordinates; the strategy's state and the draws z have those of the numbers only.
    """

    def __init__(self, start: Start, rng: np.random.Generator, share: float = 1.0) -> None:
        assert start.choices is not None and start.grid is not None
        self._whole = start
        self._numbers = start.numeric
        self._where = np.flatnonzero(start.choices)
        self.categories = Categories(start.choices[self._where], len(start.grid.where))
        super().__init__(start.numbers, rng)
        self.categories.begin(self._parts(start.x0)[1], share)

    def _parts(self, x: Vector) -> tuple[Vector, NDArray[np.int64]]:
        """The numbers and the choices of a point; without any number the strategy's one coordinate."""
        numbers = x[self._numbers] if self._numbers.size else self.start.x0
        return numbers, np.rint(x[self._where]).astype(np.int64)

    def _point(self, numbers: Floats, choices: NDArray[Any]) -> Floats:
        """Points of their numbers and choices. (…, d)"""
        x = np.empty((*numbers.shape[:-1], len(self._whole.x0)))
        x[..., self._numbers] = numbers[..., : self._numbers.size]
        x[..., self._where] = choices
        return x

    def begin_at(self, x: Vector, share: float) -> None:
        numbers, chosen = self._parts(x)
        self.categories.begin(chosen, share)
        self._begin(numbers, share)

    def begin_again(self, x: Vector) -> None:
        if self.start.grid is None:
            return self.begin_at(x, BEGIN_AGAIN_STEP)
        numbers, chosen = self._parts(x)
        self.categories.begin(chosen, BEGIN_AGAIN_STEP)
        super().begin_again(numbers)

    @property
    def all_coordinates(self) -> int:
        return len(self._whole.x0)

    @property
    def own_units(self) -> bool:
        return True

    def draw(self, n: int) -> tuple[Floats, Floats, NDArray[np.bool_] | None]:
        z, x, inside = super().draw(n)
        return z, self._point(x, self.categories.draw(self.rng, len(x))), inside

    def nearest(self, x: Floats) -> Floats:
        assert self._whole.grid is not None
        return self._whole.grid.nearest(x)

    def as_point(self, mean: Any) -> Vector:
        """The point of a mean and of the likeliest choices."""
        return self._point(super().as_point(mean), self.categories.likeliest)

    def update(self, z: Floats, f: Floats, x: Floats, slowly: bool = False) -> None:
        order, n_feasible = rank(self.start.strategy, z, f)
        if self._numbers.size:
            self._update(z, len(f), order, n_feasible, slowly)
        self.categories.update(x[order][:, self._where], int(n_feasible))

    def dump(self) -> Saved:
        metadata, arrays = super().dump()
        return metadata, arrays | self.categories.dump()

    def restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super().restore(metadata, arrays)
        self.categories.restore(arrays)
