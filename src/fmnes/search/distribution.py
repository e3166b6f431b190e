"""The search distribution in the user's units, and the random numbers that are drawn from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import SnapshotError
from fmnes.result import Vector
from fmnes.search.saved import Saved, count, finite, plain, restore_rng
from fmnes.search.start import Start
from fmnes.strategies import Shape
from fmnes.strategies.base import next_population_size, stays_finite

Floats = NDArray[np.float64]


class Distribution:
    def __init__(self, start: Start, rng: np.random.Generator) -> None:
        self.start = start
        self.rng = rng
        self.faults = 0
        """Updates that gave a state which is not finite; the state before was kept."""
        z0 = rng.standard_normal(len(start.x0))
        x0 = start.x0 if start.scale is None else start.x0 / start.scale
        self.state: Any = start.strategy.init(x0, np.float64(start.sigma), z0)

    @property
    def population_size(self) -> int:
        """λ of the next generation."""
        return next_population_size(self.start.strategy, self.state, self.start.population_size)

    @property
    def draws(self) -> int:
        """Rows of z that it takes."""
        return self.population_size // 2 if self.start.strategy.mirrored else self.population_size

    def draw(self, n: int) -> tuple[Floats, Floats, NDArray[np.bool_] | None]:
        """n rows of z, their points, and which of these may be evaluated (None: all)."""
        z = self.rng.standard_normal((n, len(self.state.mean)))
        x = self._points(z)
        bounds = self.start.bounds
        if bounds is not None:
            return z, x, bounds.contain(x)
        # Without bounds only overflow can spoil a point, and a finite sum of squares rules it out for all.
        if math.isfinite(np.vdot(x, x)):
            return z, x, None
        return z, x, np.asarray(np.isfinite(x).all(axis=1))

    def _points(self, z: Floats) -> Floats:
        scale = self.start.scale
        if scale is None and self.state.sigma < 1e100:
            return self.start.strategy.sample(self.state, z)  # type: ignore[no-any-return]
        with np.errstate(all="ignore"):  # huge steps may overflow
            x: Floats = self.start.strategy.sample(self.state, z)
            return x if scale is None else x * scale

    def update(self, z: Floats, f: Floats) -> None:
        with np.errstate(all="ignore"):
            state = self.start.strategy.update(self.state, z, f)
            if stays_finite(state, self.state) and state.sigma > 0:
                self.state = state
            else:
                self.faults += 1

    @property
    def mean(self) -> Vector:
        return self.in_user_units(self.state.mean)

    @property
    def covariance(self) -> Floats:
        covariance: Floats = self.start.strategy.covariance(self.state)
        scale = self.start.scale
        return covariance if scale is None else covariance * np.outer(scale, scale)

    @property
    def shape(self) -> Shape:
        """In the strategy's own units."""
        return self.start.strategy.shape(self.state)

    def in_user_units(self, mean: Any) -> Vector:
        units: Vector = np.asarray(mean) * (1.0 if self.start.scale is None else self.start.scale)
        return units

    def dump(self) -> Saved:
        metadata = {"rng": plain(self.rng.bit_generator.state), "numerical_faults": self.faults}
        return metadata, {f"state.{k}": v for k, v in self.state._asdict().items() if v is not None}

    def restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Into a fresh one; each array must have the shape and type that the fresh one has."""
        fields = {}
        for name, template in self.state._asdict().items():
            if template is not None:
                kind = np.asarray(template).dtype.kind
                value = finite(arrays[f"state.{name}"], np.shape(template), kinds=kind)
                fields[name] = value if value.ndim else value[()]
        state = self.state._replace(**fields)
        if not state.sigma > 0:
            raise SnapshotError(f"sigma {state.sigma}, wanted a positive number")
        self.state = state
        self.rng = restore_rng(metadata["rng"])
        self.faults = count(metadata["numerical_faults"])
