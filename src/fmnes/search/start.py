"""How a search begins: the arguments that its first generation depends on, checked."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import check_population_size, check_sigma0, check_x0, one_population_size
from fmnes.bounds import BOUNDS_AS, Bounds, check_inside, read_bounds, start_from
from fmnes.errors import UsageError
from fmnes.result import Vector
from fmnes.search.box import Box, limited_steps
from fmnes.search.saved import Saved, plain
from fmnes.strategies import METHODS, Resampling, Strategy, is_known, resolve
from fmnes.strategies.checks import check_choice


@dataclass(frozen=True, eq=False)
class Start:
    x0: Vector
    steps: NDArray[Any]
    """sigma0 as it was given: a number, or one for each coordinate."""
    strategy: Strategy
    max_redraws: int | None
    """Of `Resampling`; None: failed points are not redrawn."""
    population_size: int
    bounds: Bounds | None
    """One lower and one upper bound for each coordinate."""
    bounds_as: str
    """ "map": every point is mapped inside; "failure": one outside has failed."""
    sigma: float
    """The step size: `steps`, or their geometric mean; no longer than the bounds allow."""
    scale: Vector | None
    """What each coordinate is multiplied with, if `steps` are several."""

    @classmethod
    def of(
        cls,
        x0: ArrayLike | None,
        sigma0: ArrayLike | None,
        method: str | Strategy | Resampling,
        population_size: int | None,
        bounds: Any,
        bounds_as: str,
    ) -> Start:
        check_choice("bounds_as", bounds_as, BOUNDS_AS)
        given = None if x0 is None else check_x0(x0)
        read = read_bounds(bounds, None if given is None else len(given))
        x0, sigma0 = start_from(read, given, sigma0)
        strategy, max_redraws = resolve(method)
        wanted = one_population_size(population_size, strategy.population_size)
        size = check_population_size(wanted, len(x0), strategy.mirrored)
        sigma, scale = check_sigma0(sigma0, x0)
        if read is not None:
            check_inside(x0, read)
            if bounds_as == "map":
                sigma, scale = check_sigma0(limited_steps(sigma0, read), x0)
        return cls(x0, np.array(sigma0), strategy, max_redraws, size, read, bounds_as, sigma, scale)

    @property
    def draws(self) -> int:
        """Rows of z that a generation takes."""
        return self.population_size // 2 if self.strategy.mirrored else self.population_size

    @property
    def box(self) -> Box | None:
        """What maps the search's points inside the bounds; None if there is nothing to map."""
        if self.bounds is None or self.bounds_as != "map":
            return None
        return Box.of(self.bounds, self.steps)

    def arguments(self) -> dict[str, Any]:
        """Those that make this start again."""
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
        }

    def doubled(self) -> Start:
        """The same with twice the population."""
        strategy = self.strategy
        if strategy.population_size is not None:
            strategy = replace(strategy, population_size=None)  # type: ignore[type-var]
        return replace(self, strategy=strategy, population_size=2 * self.population_size)

    def dump(self) -> Saved:
        if not is_known(self.strategy):
            raise UsageError(
                f"method: found {self.strategy!r}, a strategy of your own, which no file could bring back; "
                f"wanted one of ours ({', '.join(METHODS)}), or keep the optimizer in memory"
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
        return metadata, arrays

    @classmethod
    def restore(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Start:
        """Through the ordinary checks, which hold for a file too."""
        shape = {"B0": arrays["B0"]} if "B0" in arrays else {}
        method: Any = METHODS[metadata["method"]](**metadata["settings"], **shape)
        if metadata["max_redraws"] is not None:
            method = Resampling(method, metadata["max_redraws"])
        bounds = Bounds(arrays["lower"], arrays["upper"]) if "lower" in arrays else None
        # Up to 0.2 all bounds failed.
        bounds_as = metadata.get("bounds_as", "map" if bounds is None else "failure")
        size = metadata["population_size"]
        return cls.of(arrays["x0"], arrays["sigma0"], method, size, bounds, bounds_as)
