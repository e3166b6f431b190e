"""The start of a search: the checked arguments that its first generation depends on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import check_population_size, check_sigma0, check_x0, one_population_size
from fmnes.bounds import BOUNDS_AS, Bounds, check_inside, read_bounds, start_from
from fmnes.errors import ArgumentError, SnapshotError, UsageError
from fmnes.parameters import Choices
from fmnes.result import Vector
from fmnes.search.box import Box, limited_steps
from fmnes.search.grid import Grid, check_deviations, check_integers, choices_of, grid_of
from fmnes.storage.snapshot import Saved, plain, shaped
from fmnes.strategies import DEFAULT_METHOD, METHODS, Resampling, Strategy, is_known, resolve
from fmnes.strategies.base import check_choice


@dataclass(frozen=True, eq=False)
class Start:
    """Checked arguments of a search."""

    x0: Vector
    steps: NDArray[Any]
    """sigma0 as given: a number, or one per coordinate."""
    strategy: Strategy
    max_redraws: int | None
    """Limit of `Resampling`; None: failed points are not redrawn."""
    population_size: int
    bounds: Bounds | None
    """One lower and one upper bound per coordinate."""
    bounds_as: str
    """ "map": every point is mapped inside; "failure": one outside has failed."""
    sigma: float
    """The step size: `steps` or their geometric mean, limited by the bounds."""
    scale: Vector | None
    """Factor of each coordinate, if there are several `steps`."""
    integers: Vector | None
    """Grid width of each coordinate, 0 for a real one; None: all are real."""
    grid: Grid | None
    """The values of the discrete coordinates, categories among them; None: all are real."""
    choices: NDArray[np.int64] | None = None
    """The number of choices of each category, 0 for a number; None: there are no categories."""

    @classmethod
    def of(
        cls,
        x0: ArrayLike | None,
        sigma0: ArrayLike | None,
        method: str | Strategy | Resampling,
        population_size: int | None,
        bounds: Any,
        bounds_as: str,
        integers: Any = None,
    ) -> Start:
        check_choice("bounds_as", bounds_as, BOUNDS_AS)
        given = None if x0 is None else check_x0(x0)
        read = read_bounds(bounds, None if given is None else len(given))
        x0, sigma0 = start_from(read, given, sigma0)
        strategy, max_redraws = resolve(method)
        wanted = one_population_size(population_size, strategy.population_size)
        if wanted is None:
            wanted = strategy.default_population_size(len(x0))
        size = check_population_size(wanted, len(x0), strategy.mirrored)
        widths, choices = check_integers(integers, len(x0)), choices_of(integers, len(x0))
        sigma, scale = check_sigma0(sigma0, x0)
        if read is not None:
            check_inside(x0, read)
            if bounds_as == "map":
                sigma, scale = check_sigma0(limited_steps(sigma0, read), x0)
        grid = None
        if widths is not None:
            check_deviations(strategy)
            open = Bounds(np.full(len(x0), -np.inf), np.full(len(x0), np.inf)) if read is None else read
            grid = grid_of(widths, open.lower, open.upper)
        steps = np.array(sigma0)
        start = cls(x0, steps, strategy, max_redraws, size, read, bounds_as, sigma, scale, widths, grid)
        if choices is None:
            return start
        _check_searches_categories(strategy, max_redraws)
        start = replace(start, choices=choices)
        return replace(start, sigma=start.numbers.sigma)

    @property
    def numeric(self) -> NDArray[np.intp]:
        """The coordinates that are numbers, not categories."""
        return np.flatnonzero(self.choices == 0) if self.choices is not None else np.arange(len(self.x0))

    @property
    def numbers(self) -> Start:
        """The start of the search in the numbers alone.

        Without any number it has one coordinate that nothing depends on, as a strategy needs one.
        """
        if self.choices is None:
            return self
        where = self.numeric
        method: Any = self.strategy
        if not where.size:
            return Start.of([0.0], 1.0, method, self.population_size, None, self.bounds_as)
        bounds = self.bounds
        if bounds is not None:
            lower, upper = bounds.lower[where], bounds.upper[where]
            closed = np.isfinite(lower).any() or np.isfinite(upper).any()
            bounds = Bounds(lower, upper) if closed else None
        steps: Any = self.steps[where] if self.steps.ndim else self.steps
        widths = None if self.integers is None else self.integers[where]
        return Start.of(self.x0[where], steps, method, self.population_size, bounds, self.bounds_as, widths)

    @property
    def box(self) -> Box | None:
        """The map of points into the bounds; None if no map is needed."""
        if self.bounds is None or self.bounds_as != "map":
            return None
        if self.grid is None:
            return Box.of(self.bounds, self.steps)
        # Discrete coordinates are limited by their grid instead.
        lower, upper = self.bounds.lower.copy(), self.bounds.upper.copy()
        lower[self.grid.where], upper[self.grid.where] = -np.inf, np.inf
        return Box.of(Bounds(lower, upper), self.steps)

    @property
    def finite_bounds(self) -> Bounds | None:
        """The bounds if every coordinate has a lower and an upper one."""
        read = self.bounds
        closed = read is not None and np.isfinite(read.lower).all() and np.isfinite(read.upper).all()
        return read if closed else None

    @cached_property
    def repeats(self) -> bool:
        """Is every coordinate discrete, so that points repeat?"""
        return self.grid is not None and self.grid.covers_all

    def arguments(self) -> dict[str, Any]:
        """Return arguments of `Optimizer` that give this start."""
        method: Any = self.strategy
        if self.max_redraws is not None:
            method = Resampling(method, self.max_redraws)
        return {
            "x0": self.x0,
            "sigma0": self.steps,
            "method": method,
            "population_size": self.population_size,
            "bounds": self.bounds,
            "bounds_as": self.bounds_as,
            "integers": self._integers(),
        }

    def _integers(self) -> Any:
        """The argument `integers`, with the categories."""
        if self.choices is None or self.integers is None:
            return self.integers
        pairs = zip(self.integers.tolist(), self.choices.tolist(), strict=True)
        return [Choices(n) if n else width for width, n in pairs]

    def again(self, x0: Vector, sigma0: NDArray[Any], population_size: int) -> dict[str, Any]:
        """Return arguments of `Optimizer` that give this start with these changes."""
        start = self
        if start.strategy.population_size is not None:
            strategy = replace(start.strategy, population_size=None)  # type: ignore[type-var]
            start = replace(start, strategy=strategy)
        changes = {"x0": x0, "sigma0": sigma0, "population_size": population_size}
        return {**start.arguments(), **changes}

    def dump(self) -> Saved:
        if not is_known(self.strategy):
            raise UsageError(
                f"method: found {self.strategy!r}, which is not registered, so that a saved optimizer could "
                "not be loaded; wanted one that was passed to fmnes.strategies.register"
            )
        settings = dataclasses.asdict(self.strategy)  # type: ignore[call-overload]
        B0 = settings.pop("B0", None)
        metadata = {
            "method": self.strategy.name,
            "settings": plain(settings),
            "max_redraws": plain(self.max_redraws),
            "population_size": self.population_size,
            "bounds_as": self.bounds_as,
        }
        arrays = {"x0": self.x0, "sigma0": np.asarray(self.steps, dtype=float)}
        if B0 is not None:
            arrays["B0"] = np.asarray(B0, dtype=float)
        if self.bounds is not None:
            arrays["lower"], arrays["upper"] = self.bounds.lower, self.bounds.upper
        if self.integers is not None:
            arrays["integers"] = self.integers
        if self.choices is not None:
            arrays["choices"] = self.choices
        return metadata, arrays

    @classmethod
    def restore(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Start:
        """Restore with the usual checks of arguments."""
        shape = {"B0": arrays["B0"]} if "B0" in arrays else {}
        if metadata["method"] not in METHODS:
            raise SnapshotError(
                f"method {metadata['method']!r} is not registered: call fmnes.strategies.register with its "
                "class first"
            )
        method: Any = METHODS[metadata["method"]](**metadata["settings"], **shape)
        if metadata["max_redraws"] is not None:
            method = Resampling(method, metadata["max_redraws"])
        bounds = Bounds(arrays["lower"], arrays["upper"]) if "lower" in arrays else None
        size, bounds_as = metadata["population_size"], metadata["bounds_as"]
        integers: Any = arrays.get("integers")
        if "choices" in arrays:
            choices = shaped(arrays["choices"], integers.shape, kinds="i").tolist()
            integers = [Choices(n) if n else width for width, n in zip(integers, choices, strict=True)]
        return cls.of(arrays["x0"], arrays["sigma0"], method, size, bounds, bounds_as, integers)


def _check_searches_categories(strategy: Any, max_redraws: int | None) -> None:
    """Refuse a method that does not search categories."""
    if strategy.name != DEFAULT_METHOD or max_redraws is not None:
        raise ArgumentError(
            f"method: found {strategy.name!r} together with categories, wanted {DEFAULT_METHOD!r} (the "
            "default): the published methods stay as they are"
        )
    if strategy.B0 is not None:
        raise ArgumentError(
            "covariance: found it, or B0, together with categories; wanted neither: give start= and sigma= "
            "with each parameter"
        )
