"""Ask and tell. The one mutable object of the core: state, random generator, counters, best so far."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import (
    check_bounds,
    check_memory,
    check_number,
    check_path,
    check_population_size,
    check_rng,
    check_sigma0,
    check_x0,
    names_options,
    one_population_size,
)
from fmnes.errors import UsageError
from fmnes.result import Best, Result, Stop, StopReason, Vector, View
from fmnes.search import checkpoint
from fmnes.search.slots import Generation, read_values
from fmnes.search.stopping import Recent, budget_spent, search_ended, target_reached
from fmnes.strategies import Resampling, Strategy, resolve
from fmnes.strategies.base import stays_finite


class Optimizer:
    """Minimise by asking for points and telling their values.

        opt = fmnes.Optimizer(x0, sigma0, rng=1)
        while opt.stop_reason is None:
            X = opt.ask()
            opt.tell([f(x) for x in X])

    A failed evaluation is told as NaN, inf or None; one that was lost to the machine as `fmnes.LOST`, and its
    point is asked again. The arguments mean what they mean in `fmnes.minimize`.
    """

    @names_options
    def __init__(
        self,
        x0: ArrayLike,
        sigma0: ArrayLike,
        *,
        method: str | Strategy | Resampling = "fm-nes",
        population_size: int | None = None,
        bounds: Any = None,
        rng: int | np.random.Generator | None = None,
        target: float | None = None,
        max_evaluations: int | None = None,
        xtol: float | None = 1e-12,
        ftol: float | None = 1e-12,
    ) -> None:
        x0 = check_x0(x0)
        self.strategy, self._max_redraws = resolve(method)
        wanted = one_population_size(population_size, self.strategy.population_size)
        self.population_size = check_population_size(wanted, len(x0), self.strategy.mirrored)
        check_memory(self.strategy.matrices, len(x0), self.strategy.name, self.population_size)
        self._sigma0, self._scale = check_sigma0(sigma0, x0)
        self._x0, self._steps0 = x0, np.array(sigma0)
        self.bounds = check_bounds(bounds, x0)
        self.target = check_number("target", target)
        self.max_evaluations = check_number("max_evaluations", max_evaluations, above=0, whole=True)
        self.xtol = check_number("xtol", xtol, above=0)
        self.ftol = check_number("ftol", ftol, above=0)
        self._rng, self.seed = check_rng(rng)

        z0 = self._rng.standard_normal(len(x0))
        start = x0 if self._scale is None else x0 / self._scale
        self._state: Any = self.strategy.init(start, np.float64(self._sigma0), z0)
        self.generation = 0
        """Complete generations so far."""
        self.evaluations = 0
        self.n_infeasible = 0
        self.best = Best(None, np.inf, 0)
        self._recent = Recent.for_problem(len(x0), self.population_size)
        self._feasible_share = np.nan
        self._numerical_faults = 0
        self._current: Generation | None = None
        self._asked: NDArray[np.intp] | None = None

    # -- ask and tell -------------------------------------------------------------------------------------

    def ask(self) -> NDArray[np.float64]:
        """The points that still need a value, (n, d) and read-only; n ≤ λ.

        Near the end of `max_evaluations` only as many as the budget allows. No points at all are returned if
        a long row of generations fell outside the bounds entirely; `stop_reason` is NO_FEASIBLE then.
        """
        current = self._current or self._sample()
        while current.complete and self._recent.unevaluated < self._recent.patience:
            self._update(current, [])
            current = self._sample()
        self._asked = current.open_slots()
        if self.max_evaluations is not None:
            left = self.max_evaluations - self.evaluations
            if 0 < left < len(self._asked):
                self._asked = self._asked[:left]
        x = current.points(self._asked)
        x.setflags(write=False)
        return x

    def tell(self, values: Any) -> None:
        """The values of the points that the last `ask` returned, in that order."""
        if self._asked is None or self._current is None:
            raise UsageError("tell: found no open points; wanted ask() first, then one tell() for its points")
        current, slots = self._current, self._asked
        f, lost = read_values(values, len(slots))
        if self.target is not None and (hits := np.flatnonzero((f <= self.target) & np.isfinite(f))).size:
            # Counted in slot order up to the first hit; what else was evaluated beside it changes nothing.
            lost = np.zeros(len(f), dtype=bool) if lost is None else lost
            lost[hits[0] + 1 :] = True
        if lost is not None:
            f, slots = f[~lost], slots[~lost]

        self._asked = None
        feasible = self._record(current.points(slots), f)
        current.fill(slots, f)
        if self._max_redraws is not None and current.complete:
            # Only now, so that the draws do not depend on which evaluations were lost on the way.
            self._redraw(current, np.flatnonzero(~np.isfinite(current.f)))
        if current.complete:
            self._update(current, feasible if len(f) == len(current.f) else _feasible_values(current.f))

    @property
    def resamples(self) -> bool:
        """Does a failed point get a new draw (`fmnes.Resampling`)?"""
        return self._max_redraws is not None

    @property
    def asked(self) -> list[tuple[int, int, int]]:
        """(generation, slot, redraw) of each point of the last `ask`: a name for each evaluation."""
        if self._asked is None or self._current is None:
            return []
        return [(self.generation, int(i), int(self._current.redraws[i])) for i in self._asked]

    def _sample(self) -> Generation:
        draws = self.population_size // 2 if self.strategy.mirrored else self.population_size
        z = self._rng.standard_normal((draws, len(self._state.mean)))
        x = self._points(z)
        inside = self._inside(x)
        self._current = Generation.of(z, x, inside)
        if self._max_redraws is not None and inside is not None:
            self._redraw(self._current, np.flatnonzero(~inside))
        return self._current

    def _points(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._scale is None and self._state.sigma < 1e100:
            return self.strategy.sample(self._state, z)  # type: ignore[no-any-return]
        with np.errstate(all="ignore"):  # huge steps may overflow
            x: NDArray[np.float64] = self.strategy.sample(self._state, z)
            return x if self._scale is None else x * self._scale

    def _inside(self, x: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        """Which points may be evaluated; None: all."""
        if self.bounds is not None:
            return self.bounds.contain(x)
        # Without bounds only overflow can spoil a point, and a finite sum of squares rules it out for all.
        if math.isfinite(np.vdot(x, x)):
            return None
        return np.asarray(np.isfinite(x).all(axis=1))

    def _record(self, x: NDArray[np.float64], f: NDArray[np.float64]) -> list[float]:
        """Take in some evaluations; returns the feasible values among them."""
        feasible = _feasible_values(f)
        if feasible and (low := min(feasible)) < self.best.fun:
            i = int((f == low).argmax())
            point = x[i].copy()
            point.setflags(write=False)
            self.best = Best(point, low, self.evaluations + i + 1)
        self.evaluations += len(f)
        self.n_infeasible += len(f) - len(feasible)
        return feasible

    def _redraw(self, current: Generation, slots: NDArray[np.intp]) -> None:
        """The paper's resampling: each failed slot gets a new draw, in slot order."""
        while slots.size:
            z = self._rng.standard_normal((len(slots), current.z.shape[1]))
            current.redraw(slots, z, self._points(z))
            inside = self._inside(current.x[slots])
            current.reopen(slots if inside is None else slots[inside])
            slots = slots[:0] if inside is None else slots[~inside]
            if self._max_redraws is None or current.redraws.sum() >= self._max_redraws:
                return

    def _update(self, current: Generation, feasible: list[float]) -> None:
        with np.errstate(all="ignore"):
            state = self.strategy.update(self._state, current.z, current.f)
            if stays_finite(state, self._state) and state.sigma > 0:
                self._state = state
            else:
                self._numerical_faults += 1
        self._recent.add(feasible, current.evaluated > 0)
        self._feasible_share = len(feasible) / len(current.f)
        self.generation += 1
        self._current = None

    # -- what it knows ------------------------------------------------------------------------------------

    @property
    def mean(self) -> Vector:
        return self._in_user_units(self._state.mean)

    @property
    def sigma(self) -> float:
        return float(self._state.sigma)

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Of the points it samples, in the user's coordinates. (d, d)"""
        covariance: NDArray[np.float64] = self.strategy.covariance(self._state)
        return covariance if self._scale is None else covariance * np.outer(self._scale, self._scale)

    def view(self) -> View:
        """The search as an observer sees it."""
        shape = self.strategy.shape(self._state)
        return View(
            generation=self.generation,
            evaluations=self.evaluations,
            population_size=self.population_size,
            mean=self._in_user_units(shape.mean),
            sigma=float(shape.sigma),
            axis_lengths=np.array(shape.axis_lengths),
            phase=shape.phase,
            feasible_share=self._feasible_share,
            generation_best=self._recent.bests[-1] if self._recent.bests else np.inf,
            best=self.best,
        )

    @property
    def stop(self) -> Stop | None:
        """Why it is time to stop, with the numbers, or None. Only advice: ask and tell go on working."""
        return self.stop_at(self.view())

    @property
    def stop_reason(self) -> StopReason | None:
        stop = self.stop
        return stop.reason if stop else None

    def stop_at(self, view: View) -> Stop | None:
        """The same for a view that was taken already."""
        if self._scale is not None:  # compare the mean with steps in the same units
            view = replace(view, mean=self._state.mean)
        return self.limit_reached() or search_ended(
            view, self._recent, self._sigma0, xtol=self.xtol, ftol=self.ftol
        )

    def limit_reached(self) -> Stop | None:
        """The criteria that need no view, cheap enough to ask after every `tell`."""
        stop = target_reached(self.best, self.target) or budget_spent(self.evaluations, self.max_evaluations)
        if stop:
            return stop
        if self._numerical_faults:
            return Stop(
                StopReason.NUMERICAL, f"{self._numerical_faults} times by generation {self.generation}"
            )
        if self._max_redraws is not None and self._current is not None:
            redraws = int(self._current.redraws.sum())
            if redraws >= self._max_redraws:
                return Stop(StopReason.NO_FEASIBLE, f"{redraws} failed redraws in one generation")
        return None

    def result(self, stop: Stop | None = None) -> Result:
        """The result so far."""
        stop = stop or self.stop
        reason = stop.reason if stop else None
        settled = reason is not None and reason.converged and np.isfinite(self.best.fun)
        return Result(
            x=None if self.best.x is None else self.best.x.copy(),
            fun=self.best.fun,
            success=bool(reason is StopReason.TARGET or (self.target is None and settled)),
            stop_reason=reason,
            message=stop.message if stop else "still running",
            nfev=self.evaluations,
            nit=self.generation,
            n_infeasible=self.n_infeasible,
            x_mean=self.mean,
            seed=self.seed,
        )

    def doubled(self, max_evaluations: int | None) -> Optimizer:
        """A fresh start with twice the population, going on with the same random numbers."""
        inner = self.strategy
        if inner.population_size is not None:
            inner = replace(inner, population_size=None)  # type: ignore[type-var]
        return Optimizer(
            self._x0,
            self._steps0,
            method=inner if self._max_redraws is None else Resampling(inner, self._max_redraws),  # type: ignore[arg-type]
            population_size=2 * self.population_size,
            bounds=self.bounds,
            rng=self._rng,
            target=self.target,
            max_evaluations=max_evaluations,
            xtol=self.xtol,
            ftol=self.ftol,
        )

    def _in_user_units(self, mean: Any) -> Vector:
        units: Vector = np.asarray(mean) * (1.0 if self._scale is None else self._scale)
        return units

    # -- saving -------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, atomically; an unfinished generation and the random state too."""
        checkpoint.save(self, check_path("path", path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Optimizer:
        """The optimizer that `save` wrote; it goes on as if it had never stopped. Runs no code."""
        return checkpoint.load(cls, check_path("path", path))


def _feasible_values(f: NDArray[np.float64]) -> list[float]:
    """As Python's numbers: of a few of them Python finds the extremes sooner than NumPy."""
    feasible = np.isfinite(f)
    values: list[float] = (f if np.count_nonzero(feasible) == len(f) else f[feasible]).tolist()
    return values
