"""The sampling distribution in the user's units, its initial covariance, and its random numbers."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import shown
from fmnes.bounds import contain
from fmnes.errors import ArgumentError, SnapshotError
from fmnes.result import Vector, View
from fmnes.search.box import LONGEST_STEP
from fmnes.search.grid import Grid, margin, marginal_deviations
from fmnes.search.noise import Rates, dump_rates, first_rates, restore_rates, slow_step
from fmnes.search.start import Start
from fmnes.search.stopping import ill_conditioned
from fmnes.storage.snapshot import Saved, count, finite, plain, restore_rng
from fmnes.strategies import Resampling, Shape, Strategy, resolve
from fmnes.strategies.base import implements, rank, stays_finite

# -- initial covariance ------------------------------------------------------------------------------------

#: Smallest ratio of eigenvalues: below it the short axes have no correct digits.
MIN_RATIO = 1e-14


def takes_covariance(method: str | Strategy | Resampling) -> bool:
    """Does the method accept an initial covariance?"""
    return "B0" in (field.name for field in _fields(resolve(method)[0]))


def shaped_by(
    covariance: ArrayLike, sigma0: ArrayLike | None, x0: ArrayLike | None, method: str | Strategy | Resampling
) -> tuple[Any, Strategy | Resampling]:
    """Return sigma0 and the method for first points from N(x0, covariance).

    If the user gives sigma0, the covariance is scaled to determinant 1.
    """
    strategy, max_redraws = resolve(method)
    if not takes_covariance(method):
        raise ArgumentError(
            f"covariance: found it together with {strategy.name!r}, which always starts round; wanted "
            "another method, or one sigma0 for each coordinate"
        )
    shaped: Any = strategy
    if shaped.B0 is not None:
        raise ArgumentError("covariance: found it together with B0 in the method's settings; wanted one")
    if sigma0 is not None and np.ndim(sigma0) > 0:
        raise ArgumentError(
            "sigma0: found one for each coordinate together with covariance, which says that already; "
            "wanted one number, or none"
        )
    B = _root(covariance, None if x0 is None else np.size(x0))
    scale = math.exp(float(np.linalg.slogdet(B)[1]) / len(B))
    shaped = dataclasses.replace(shaped, B0=B / scale)
    method = shaped if max_redraws is None else Resampling(shaped, max_redraws)
    return scale if sigma0 is None else sigma0, method


def _root(covariance: ArrayLike, d: int | None) -> NDArray[np.float64]:
    """Return B with B Bᵀ = covariance."""
    try:
        C = np.array(covariance, dtype=np.float64)
    except Exception:  # conversion of an arbitrary object may raise anything
        raise ArgumentError(f"covariance: found {shown(covariance)}, wanted a matrix of numbers") from None
    if C.ndim != 2 or C.shape != (size := (len(C) if d is None else d), size):
        wanted = "a square matrix" if d is None else str((d, d))
        raise ArgumentError(f"covariance: found shape {C.shape}, wanted {wanted}")
    if not np.isfinite(C).all():
        raise ArgumentError("covariance: found NaN or infinite entries, wanted finite ones")
    if not np.allclose(C, C.T, rtol=1e-8, atol=1e-8 * np.abs(C).max()):
        raise ArgumentError("covariance: found a matrix that is not symmetric, wanted a covariance")
    eigenvalues, axes = np.linalg.eigh((C + C.T) / 2)
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    if not low > MIN_RATIO * high:
        raise ArgumentError(
            f"covariance: found eigenvalues from {low:.3g} to {high:.3g}, wanted positive ones that differ "
            f"by less than {1 / MIN_RATIO:.0e}"
        )
    root: NDArray[np.float64] = axes * np.sqrt(eigenvalues)
    return root


def _fields(strategy: Strategy) -> tuple[Any, ...]:
    return dataclasses.fields(strategy) if dataclasses.is_dataclass(strategy) else ()


# -- distribution ------------------------------------------------------------------------------------------

Floats = NDArray[np.float64]

#: Step size after a restart at a better neighbour, relative to the initial one.
BEGIN_AGAIN_STEP = 0.1


class Distribution:
    """The strategy's state, the units of its coordinates, and the random generator."""

    def __init__(self, start: Start, rng: np.random.Generator) -> None:
        self.start = start
        self.rng = rng
        self.faults = 0
        """Updates that gave a state that is not finite and was discarded."""
        self.box = start.box
        self.state: Any
        self.rates: Rates | None = None
        """Learning rates, as far as noise has slowed the search down; None: it has not."""
        self._longest = math.inf if self.box is None else self.box.longest_step(start.scale)
        self.scale = start.scale
        """Factor of the strategy's coordinates; updates change it for discrete ones."""
        self.deviations: Vector | None = None
        """Standard deviations of the strategy's coordinates, unscaled; None if all are real. (d,)"""
        self._begin(start.x0, 1.0)

    def _first_state(self, x0: Vector, sigma: float) -> Any:
        start = self.start
        z0 = self.rng.standard_normal(len(x0))
        y0 = x0 if self.box is None else self.box.start(x0)
        mean = y0 if start.scale is None else y0 / start.scale
        return start.strategy.init(mean, np.float64(sigma), z0)

    def begin_at(self, x: Vector, share: float) -> None:
        """Restart at this point with this share of the initial step size."""
        self._begin(x, share)

    def _begin(self, x: Vector, share: float) -> None:
        start, grid = self.start, self.start.grid
        self.rates = None
        self.state = self._first_state(x, share * start.sigma)
        self.scale = start.scale
        if grid is not None:
            self.scale = np.ones(len(x)) if start.scale is None else start.scale
            self.deviations = marginal_deviations(start.strategy, self.state)
            with np.errstate(all="ignore"):
                self._keep_margin(grid, self.state, self.state, start.population_size)

    def begin_again(self, x: Vector) -> None:
        """Restart at this point with shorter steps, of one grid step for discrete coordinates."""
        start, grid = self.start, self.start.grid
        assert grid is not None
        state = self._first_state(x, BEGIN_AGAIN_STEP * start.sigma)
        first = np.ones(len(x)) if start.scale is None else start.scale
        deviations = marginal_deviations(start.strategy, state)
        scale = first.copy()
        scale[grid.where] = np.minimum(scale[grid.where], grid.width / deviations[grid.where])
        state = state._replace(mean=state.mean * (first / scale))
        self.scale, self.deviations = scale, deviations
        with np.errstate(all="ignore"):
            self._keep_margin(grid, state, state, start.population_size)

    @property
    def population_size(self) -> int:
        """λ of the next generation."""
        return int(self.start.strategy.next_population_size(self.state, self.start.population_size))

    @property
    def draws(self) -> int:
        """Rows of z in the next generation."""
        size = self.population_size
        return size // 2 if self.start.strategy.mirrored else size

    @property
    def width(self) -> int:
        """Columns of z."""
        return len(self.state.mean)

    def draw(self, n: int) -> tuple[Floats, Floats, NDArray[np.bool_] | None]:
        """Draw n rows of z; return z, the points, and which are inside the bounds (None: all)."""
        z = self.rng.standard_normal((n, len(self.state.mean)))
        return z, *self.seen(self._points(z))

    def seen(self, y: Floats) -> tuple[Floats, NDArray[np.bool_] | None]:
        """Map points of the search to the user's, and mark those inside the bounds (None: all)."""
        x = self._on_grid(y if self.box is None else self.box.onto(y))
        if self.box is None and self.start.bounds is not None:
            return x, contain(self.start.bounds, x)
        # Only overflow is left; a finite sum of squares excludes it for all points.
        if math.isfinite(np.vdot(y, y)):
            return x, None
        return x, np.asarray(np.isfinite(y).all(axis=1))

    def draw_rows(self, n: int) -> Floats:
        """Draw n rows of z, one per point, both rows of a mirrored pair."""
        d = len(self.state.mean)
        if not self.start.strategy.mirrored:
            return self.rng.standard_normal((n, d))
        z = self.rng.standard_normal((-(-n // 2), d))
        return np.stack([z, -z], axis=1).reshape(-1, d)[:n]

    def points(self, rows: Floats) -> Floats:
        """Return the search's point of each draw. (n, d)"""
        return self._points(rows[0::2])[: len(rows)] if self.start.strategy.mirrored else self._points(rows)

    def rows_to_points(self, rows: Floats) -> Floats:
        """Return the search's point of each row, which need not be one of a mirrored pair. (n, d)"""
        y = self._points(rows)
        return y[0::2] if self.start.strategy.mirrored else y

    def coordinates(self, y: Floats) -> Floats:
        """Return the draws that give these points from the current distribution. (n, d)"""
        with np.errstate(all="ignore"):  # points far away
            own: Any = y if self.scale is None else y / self.scale
            z: Floats = self.start.strategy.coordinates(self.state, own)
        return z

    def coordinates_of(self, x: Floats) -> Floats:
        """Return the draws of the user's points, as if no bound bent the search. (n, d)"""
        mean = self.as_point(self.state.mean)
        scale: Any = 1.0 if self.scale is None else self.scale
        with np.errstate(all="ignore"):  # points far away
            state = self.state._replace(mean=mean / scale)
            z: Floats = self.start.strategy.coordinates(state, x / scale)
        return z

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """The lower and the upper bounds of the user's coordinates, infinite where there is none. (d,)"""
        bounds, d = self.start.bounds, len(self.start.x0)
        return (np.full(d, -np.inf), np.full(d, np.inf)) if bounds is None else (bounds.lower, bounds.upper)

    def axes(self) -> tuple[Vector, Floats]:
        """The mean (d,) and S (d, d) with which mean + S z is the user's point of a draw z.

        As if no bound bent the search: the inverse of `coordinates_of`.
        """
        d = len(self.start.x0)
        unit = np.eye(d)
        with np.errstate(all="ignore"):
            rows = self.start.strategy.sample(self.state._replace(mean=np.zeros(d)), unit)
            rows = rows[0::2] if self.start.strategy.mirrored else rows
            S: Floats = (rows if self.scale is None else rows * self.scale).T
        return self.as_point(self.state.mean), S

    def move_mean(self, x: Vector) -> None:
        """Move the mean to the user's point x (d,), except in coordinates that are mirrored at a bound."""
        y = x
        if self.box is not None:
            with np.errstate(all="ignore"):
                before = self._in_user_units(self.state.mean)
                low = self.box.lower - (self.box.first - self.box.lower)
                high = self.box.upper + (self.box.upper - self.box.last)
                inside = np.clip(x, self.box.lower, self.box.upper)
                mirrored = (before < low) | (before > high)
                y = np.where(mirrored, before, self.box.start(inside))
        mean = y if self.scale is None else y / self.scale
        if np.isfinite(mean).all():
            self.state = self.state._replace(mean=mean)

    def change_shape(self, factor: Floats) -> None:
        """Multiply the shape by this factor with determinant 1, in the coordinates of the draws. (d, d)"""
        strategy, state = self.start.strategy, self.state
        with np.errstate(all="ignore"):
            changed = strategy.with_shape(
                state, state.mean, float(state.sigma), strategy.shape_matrix(state) @ factor
            )
        if stays_finite(changed, state):
            self.state = changed

    def begin_with_axes(self, x: Vector, axes: Floats) -> None:
        """Continue from this point with these axes, (d, d): the points are x + axes · z."""
        start: Any = self.start
        scale = 1.0 if start.scale is None else start.scale[:, None]
        B = axes / scale
        sigma = math.exp(float(np.linalg.slogdet(B)[1]) / len(x))
        strategy = dataclasses.replace(start.strategy, B0=B / sigma)
        y = x if self.box is None else self.box.start(x)
        mean = y if start.scale is None else y / start.scale
        # The strategy itself stays as it is: B0 is part of the first state only.
        self.state = strategy.init(mean, np.float64(sigma), self.rng.standard_normal(len(x)))
        if start.grid is not None:
            self.scale = np.ones(len(x)) if start.scale is None else start.scale
            self.deviations = marginal_deviations(start.strategy, self.state)
            with np.errstate(all="ignore"):
                self._keep_margin(start.grid, self.state, self.state, start.population_size)

    def _points(self, z: Floats) -> Floats:
        """Sample points in the user's units, before the map into the bounds."""
        scale = self.scale
        if scale is None and self.state.sigma < 1e100:
            return self.start.strategy.sample(self.state, z)  # type: ignore[no-any-return]
        with np.errstate(all="ignore"):  # huge steps may overflow
            x: Floats = self.start.strategy.sample(self.state, z)
            return x if scale is None else x * scale

    def update(self, z: Floats, f: Floats, x: Floats, slowly: bool = False) -> None:
        """Make the update of a generation: its draws, values and points.

        slowly: by the share of the step that the signal-to-noise ratio allows.
        """
        self._update(z, len(f), *rank(self.start.strategy, z, f), slowly)

    def _update(self, z: Floats, population_size: int, order: Any, n_feasible: Any, slowly: bool) -> None:
        with np.errstate(all="ignore"):
            strategy = self.start.strategy
            state = strategy.update(self.state, z, order, n_feasible)
            good = stays_finite(state, self.state) and state.sigma > 0
            if good and slowly:
                rates = self.rates or first_rates(len(state.mean))
                state, self.rates = slow_step(strategy, self.state, state, rates)
                good = stays_finite(state, self.state) and state.sigma > 0
            if good and self.start.grid is not None:
                good = self._keep_margin(self.start.grid, self.state, state, population_size)
            elif good:
                self.state = state if self._longest == math.inf else self._limited(state)
            self.faults += not good

    def _keep_margin(self, grid: Grid, before: Any, state: Any, population_size: int) -> bool:
        """Set a new state with the margin correction; return False if it is not finite."""
        assert self.scale is not None
        where = grid.where
        deviations = marginal_deviations(self.start.strategy, state)
        # Beyond the end of a grid values are constant, so the search would continue with growing steps:
        # steps are limited to the grid, and those of real coordinates to the box.
        scale = np.minimum(self.scale, self._widest(grid) / deviations)
        mean = state.mean * self.scale
        # As in the paper, the mean moves as without the margin's stretching, which would make it drift.
        unstretched = np.minimum(self.scale, 1.0 if self.start.scale is None else self.start.scale)
        mean[where] = (before.mean * self.scale + (state.mean - before.mean) * unstretched)[where]
        alpha = 1 / (self.all_coordinates * population_size)
        corrected = margin(grid, mean[where], (deviations * scale)[where], alpha)
        if corrected is not None:
            mean[where], scale[where] = corrected[0], corrected[1] / deviations[where]
        kept = scale == self.scale
        kept[where] = False
        means = np.where(kept, state.mean, mean / scale)
        if not (np.isfinite(means).all() and np.isfinite(scale).all() and (scale > 0).all()):
            return False
        self.state, self.scale, self.deviations = state._replace(mean=means), scale, deviations
        return True

    @property
    def all_coordinates(self) -> int:
        """The number of a point's coordinates, categories included: d of the margin."""
        return len(self.start.x0)

    def _widest(self, grid: Grid) -> Vector:
        """Return the longest step of each coordinate. (d,)"""
        box = self.box
        widest = np.full(grid.d, np.inf) if box is None else LONGEST_STEP * (box.upper - box.lower)
        widest[grid.where] = LONGEST_STEP * (grid.upper - grid.lower)
        return widest

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
        scale = self.scale
        if scale is not None:
            covariance = covariance * np.outer(scale, scale)
        if self.box is None:
            return covariance
        return self.box.covariance(self._in_user_units(self.state.mean), covariance)

    @property
    def shape(self) -> Shape:
        """Shape of the distribution in the strategy's units."""
        return self.start.strategy.shape(self.state)

    def as_point(self, mean: Any) -> Vector:
        """Return a mean of the strategy in the user's coordinates."""
        y = self._in_user_units(mean)
        # The mean stays beyond a mirror or some periods away: to shift it back would only change the
        # rounding, and to mirror it the whole state would have to be mirrored.
        x = y if self.box is None else self.box.onto(y)
        return x if self.start.grid is None else self.start.grid.inside(x)

    @property
    def own_units(self) -> bool:
        """Do the strategy's coordinates differ from the user's?"""
        return self.scale is not None or self.box is not None

    def _in_user_units(self, mean: Any) -> Vector:
        units: Vector = np.asarray(mean) * (1.0 if self.scale is None else self.scale)
        return units

    def nearest(self, x: Floats) -> Floats:
        """Round the discrete coordinates of points to the grid. (…, d)"""
        return self._on_grid(x)

    def _on_grid(self, x: Floats) -> Floats:
        if self.start.grid is None:
            return x
        with np.errstate(all="ignore"):  # huge steps may overflow
            return self.start.grid.nearest(x)

    def real_part(self, view: View) -> View:
        """Return a view of the real coordinates alone, in the strategy's units.

        Discrete ones keep their width while real ones converge, which is not ill-conditioned.
        """
        assert self.start.grid is not None and self.deviations is not None
        real = self.start.grid.real
        lengths = self.deviations[real]
        if ill_conditioned(view) and not implements(self.start.strategy, "deviations"):
            # The deviations alone do not show whether the real coordinates are ill-conditioned.
            covariance = self.start.strategy.covariance(self.state)[np.ix_(real, real)]
            lengths = np.sqrt(np.maximum(np.linalg.eigvalsh(covariance), 0.0))
        return replace(view, mean=self.state.mean[real], axis_lengths=lengths / self.state.sigma)

    def dump(self) -> Saved:
        metadata = {"rng": plain(self.rng.bit_generator.state), "numerical_faults": self.faults}
        arrays = {f"state.{k}": v for k, v in self.state._asdict().items() if v is not None}
        if self.start.grid is not None and self.scale is not None:
            arrays["scale"] = self.scale
        return metadata, arrays if self.rates is None else arrays | dump_rates(self.rates)

    def restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore into a new distribution, whose arrays give the shapes and types."""
        fields = {}
        d = len(self.state.mean)
        for name, template in self.state._asdict().items():
            if template is not None:
                kind = np.asarray(template).dtype.kind
                value = finite(arrays[f"state.{name}"], np.shape(template), kinds=kind)
                fields[name] = value if value.ndim else value[()]
            elif f"state.{name}" in arrays:  # a first shape, set by `begin_with_axes`
                fields[name] = finite(arrays[f"state.{name}"], (d, d))
        state = self.state._replace(**fields)
        if not state.sigma > 0:
            raise SnapshotError(f"sigma {state.sigma}, wanted a positive number")
        self.state = state
        if self.start.grid is not None:
            self.scale = finite(arrays["scale"], np.shape(state.mean))
            if not (self.scale > 0).all():
                raise SnapshotError(f"scale {self.scale.min()}, wanted positive numbers")
            self.deviations = marginal_deviations(self.start.strategy, state)
        self.rates = restore_rates(arrays, d)
        self.rng = restore_rng(metadata["rng"])
        self.faults = count(metadata["numerical_faults"])
