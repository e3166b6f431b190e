"""The searches of a run, as far as the next one depends on them; and its start, which comes before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.result import Stop, StopReason, Vector
from fmnes.run.restarts import KINDS, ORIGINS, Plan, Searched
from fmnes.search.optimizer import Optimizer
from fmnes.search.saved import Saved, count, finite
from fmnes.storage.snapshot import Arrays


@dataclass
class StartPoint:
    """The start's own evaluation, before the first search."""

    open: bool = False
    """It is still to be made."""
    made: bool = False
    value: float = np.nan
    fault: str = ""
    """Of its outcome: a first generation with the same one is a bug."""

    def dump(self) -> list[Any]:
        return [self.open, self.made, None if np.isnan(self.value) else self.value, self.fault]

    @classmethod
    def restore(cls, saved: list[Any]) -> StartPoint:
        open, made, value, fault = saved
        if type(open) is not bool or type(made) is not bool:
            raise ValueError(f"a start that is {open!r} and {made!r}")
        return cls(open, made, np.nan if value is None else float(value), str(fault))


class First(NamedTuple):
    """How the first search began: what restarts go back to."""

    x0: Vector
    sigma0: NDArray[Any]
    population_size: int

    @property
    def sigma(self) -> float:
        """One number for the steps: their geometric mean."""
        return float(np.exp(np.log(self.sigma0).mean()))


class LookedAt(NamedTuple):
    """The search that a second look looks at: if nothing better is found, it is the answer."""

    x_mean: Vector
    covariance: NDArray[np.float64] | None

    @classmethod
    def of(cls, opt: Optimizer) -> LookedAt:
        result = opt.result()
        return cls(result.x_mean, result.covariance)


@dataclass
class Searches:
    first: First
    plan: Plan
    """How the present one began."""
    past: list[Searched] = field(default_factory=list)
    """Those before it."""
    looked_at: LookedAt | None = None

    @classmethod
    def of(cls, opt: Optimizer, restarts: int = 0) -> Searches:
        """With nothing known but that each search had twice the points of the one before."""
        size = opt.population_size // 2**restarts
        kinds = ["first", *["large"] * restarts]
        plans = [Plan(kind, size * 2**i) for i, kind in enumerate(kinds)]
        ended = Stop(StopReason.FTOL)
        past = [Searched(plan.kind, plan.population_size, 0, True, False, ended) for plan in plans[:-1]]
        return cls(First(opt.x0, opt.sigma0, size), plans[-1], past)

    def dump(self) -> Saved:
        metadata = {
            "first_population_size": self.first.population_size,
            "plan": list(self.plan),
            "searches": [searched.dump() for searched in self.past],
        }
        arrays = {"first.x0": self.first.x0, "first.sigma0": np.asarray(self.first.sigma0, dtype=float)}
        if self.looked_at is not None:
            arrays["looked_at.x_mean"] = self.looked_at.x_mean
            if self.looked_at.covariance is not None:
                arrays["looked_at.covariance"] = self.looked_at.covariance
        return metadata, arrays

    @classmethod
    def restore(cls, run: dict[str, Any], arrays: Arrays, opt: Optimizer, restarts: int) -> Searches:
        kind, size, step, origin = run["plan"]
        if kind not in KINDS or origin not in ORIGINS or not 0 < step <= 1:
            raise ValueError(f"a search that began as {run['plan']}")
        past = [Searched.restore(saved) for saved in run["searches"]]
        if len(past) != restarts:
            raise ValueError(f"{len(past)} searches before restart {restarts}")
        d = len(opt.x0)
        sigma0 = finite(arrays["first.sigma0"], (d,) if arrays["first.sigma0"].ndim else ())
        if not (sigma0 > 0).all():
            raise ValueError("a first sigma0 that is not positive")
        first = First(finite(arrays["first.x0"], (d,)), sigma0, count(run["first_population_size"]))
        looked_at = None
        if "looked_at.x_mean" in arrays:
            covariance = arrays.get("looked_at.covariance")
            looked_at = LookedAt(
                finite(arrays["looked_at.x_mean"], (d,)),
                None if covariance is None else finite(covariance, (d, d)),
            )
        return cls(first, Plan(kind, count(size), float(step), origin), past, looked_at)
