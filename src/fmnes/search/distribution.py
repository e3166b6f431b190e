"""The search distribution in the user's units, and the random numbers that are drawn from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.bounds import contain
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
        self.box = start.box
        z0 = rng.standard_normal(len(start.x0))
        y0 = start.x0 if self.box is None else self.box.start(start.x0)
        mean = y0 if start.scale is None else y0 / start.scale
        self.state: Any = start.strategy.init(mean, np.float64(start.sigma), z0)
        self._longest = math.inf if self.box is None else self.box.longest_step(start.scale)

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
        y = self._points(z)
        if self.box is not None:
            x = self.box.onto(y)
        elif self.start.bounds is not None:
            return z, y, contain(self.start.bounds, y)
        else:
            x = y
        # Now only overflow can spoil a point, and a finite sum of squares rules it out for all.
        if math.isfinite(np.vdot(y, y)):
            return z, x, None
        return z, x, np.asarray(np.isfinite(y).all(axis=1))

    def _points(self, z: Floats) -> Floats:
        """In the user's units, wherever the bounds are."""
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
                self.state = state if self._longest == math.inf else self._limited(state)
            else:
                self.faults += 1

    def _limited(self, state: Any) -> Any:
        longest = float(self.start.strategy.shape(state).axis_lengths.max())
        if not state.sigma * longest > self._longest:
            return state
        return state._replace(sigma=np.float64(self._longest / longest))

    @property
    def mean(self) -> Vector:
        return self.as_point(self.state.mean)

    @property
    def covariance(self) -> Floats:
        covariance: Floats = self.start.strategy.covariance(self.state)
        scale = self.start.scale
        if scale is not None:
            covariance = covariance * np.outer(scale, scale)
        if self.box is None:
            return covariance
        return self.box.covariance(self._in_user_units(self.state.mean), covariance)

    @property
    def shape(self) -> Shape:
        """In the strategy's own units."""
        return self.start.strategy.shape(self.state)

    def as_point(self, mean: Any) -> Vector:
        """A mean of the strategy's as the user sees it."""
        y = self._in_user_units(mean)
        # It is left where the search has taken it, beyond a mirror or some periods away: to shift it back
        # would change nothing but the rounding, and to mirror it all of the state had to be mirrored.
        return y if self.box is None else self.box.onto(y)

    @property
    def own_units(self) -> bool:
        """Are the strategy's coordinates others than the user's?"""
        return self.start.scale is not None or self.box is not None

    def _in_user_units(self, mean: Any) -> Vector:
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
