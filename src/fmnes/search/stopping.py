"""Stopping criteria.

Each criterion is a function of a view and of the last generations. All tolerances are relative: steps to the
initial step size, values to their magnitude. Failed values never enter a difference (inf − inf).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import SnapshotError
from fmnes.result import Best, Stop, StopReason, Vector, View
from fmnes.search.explorer import MAX_FAILED, Explorer
from fmnes.search.grid import all_known, next_poll, number_of_points
from fmnes.search.modelled import exhausted
from fmnes.storage.snapshot import Saved, count, finite, shaped

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer
    from fmnes.search.start import Start


#: Largest condition number of the covariance for float64.
MAX_CONDITION = 1e14
#: A run whose step size has grown by this factor diverges.
MAX_STEP_GROWTH = 1e20
#: Smallest step whose square is still a normal float64.
MIN_STEP = 1e-150

#: Points fail in the region of a search if more than this share of its last generations failed.
FAILING_SHARE = 0.05

#: How much each feasible value but the first of a generation (no selection among one) supports shorter
#: steps, as a logarithm times d. Ordinary searches need a third of this or less.
SUPPORT = 0.33
#: Steps that are shorter than supported by more than this, as a logarithm, have shrunk by chance.
MAX_UNSUPPORTED = 3.0

#: A search of a run with restarts in a box has stalled after this number of generations, and this multiple of
#: d/λ more, without a gain, …
STALL, STALL_PER_DIMENSION = 40, 60
#: … unless its longest step is below this share of that at the last gain.
STALL_STEP = 0.3
#: A gain is more than this share of the value.
GAIN = 1e-9
#: A restart in a box is hopeless from this generation on if the best value of the run is farther away than
#: this multiple of what it gains in that number of generations, and of the spread of its values.
HOPELESS_GENERATIONS, HOPELESS_GAINS = 5, 3.0
#: Most generations of a search after noise was seen, without any limit.
MAX_NOISY_GENERATIONS = 50_000
#: Smallest tolerances of a restart in a box: the budget is for other basins.
RESTART_TOLERANCE = 1e-9


@dataclass
class Recent:
    """Results of the last generations."""

    window: int
    """Generations without change that mean convergence: 10 + 30 d/λ, as usual for CMA-ES."""
    bests: deque[float] = field(default_factory=deque)
    """Best value of each of the last `window` generations; +inf if all points failed."""
    failed: deque[float] = field(default_factory=deque)
    """Share of failed points in each of those generations."""
    flat: int = 0
    """Consecutive generations whose feasible values were all equal."""
    infeasible: int = 0
    """Consecutive generations without a feasible value."""
    unevaluated: int = 0
    """Consecutive generations without an evaluation (all points known or outside)."""
    d: int = 1
    """Coordinates."""
    unsupported: float = 0.0
    """Shrinkage of the steps beyond what the feasible values support, as a logarithm."""

    @classmethod
    def for_problem(cls, d: int, population_size: int, discrete: bool = False) -> Recent:
        """discrete: all coordinates are discrete, and only values show convergence."""
        window = 10 + -(-30 * d // population_size)
        if discrete:
            # The margin draws each of up to 2d neighbours once in 2d generations, on average. After this
            # window one of them is still untried in one of 20 runs.
            window = max(window, math.ceil(2 * d * math.log(40 * d)))
        window = min(window, 2000)
        return cls(window, deque(maxlen=window), deque(maxlen=window), d=d)

    @property
    def patience(self) -> int:
        """Consecutive generations without a feasible value, or without an evaluation, that end a run."""
        return max(50, self.window)

    @property
    def failing(self) -> bool:
        """Did more than FAILING_SHARE of the last generations fail?"""
        return sum(self.failed) > FAILING_SHARE * len(self.failed)

    @property
    def supported(self) -> bool:
        """Did enough evaluations succeed while the steps became shorter?"""
        return self.unsupported <= MAX_UNSUPPORTED

    def add(
        self,
        feasible: list[float],
        evaluated: bool,
        size: int,
        shrinkage: float = 0.0,
        n_feasible: int | None = None,
    ) -> None:
        """Add a complete generation: its feasible values, whether a point was evaluated, and its λ.

        shrinkage: how much its update shortened the steps, as a logarithm. n_feasible: feasible points, if
        some are not evaluated.
        """
        n_feasible = len(feasible) if n_feasible is None else n_feasible
        support = SUPPORT * max(0, n_feasible - 1) / self.d
        self.unsupported = max(0.0, self.unsupported + shrinkage - support)
        self.failed.append(1.0 - n_feasible / size)
        low = min(feasible, default=np.inf)
        self.bests.append(low)
        self.flat = self.flat + 1 if len(feasible) > 1 and low == max(feasible) else 0
        self.infeasible = 0 if feasible else self.infeasible + 1
        self.unevaluated = 0 if evaluated else self.unevaluated + 1

    def dump(self) -> Saved:
        counts = [self.flat, self.infeasible, self.unevaluated]
        return {"recent": counts, "unsupported": self.unsupported}, {
            "recent_bests": np.asarray(self.bests, dtype=float),
            "recent_failed": np.asarray(self.failed, dtype=float),
        }

    def restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore into a new object, which has its window."""
        bests = arrays["recent_bests"]
        if np.isnan(shaped(bests, (min(bests.size, self.window),))).any():
            raise SnapshotError("NaN among the recent values")
        self.bests = deque(bests.tolist(), maxlen=self.window)
        failed = finite(arrays["recent_failed"], bests.shape)
        self.failed = deque(failed.tolist(), maxlen=self.window)
        self.flat, self.infeasible, self.unevaluated = map(count, metadata["recent"])
        self.unsupported = float(metadata.get("unsupported", 0.0))
        if not 0 <= self.unsupported < math.inf:
            raise SnapshotError(f"unsupported {self.unsupported}, wanted a finite number from 0 on")


def new_recent(start: Start, population_size: int) -> Recent:
    """Return the record of a search that begins like this; its steps are those of the numbers."""
    d = len(start.x0) if start.repeats else len(start.numeric)
    return Recent.for_problem(d, population_size, start.repeats)


@dataclass
class Gains:
    """The gains of one search of a run with restarts in a box."""

    d: int
    restart: bool
    """Whether it is a restart."""
    before: float
    """The best value of the run before it."""
    generation: int = 0
    """Its generations so far."""
    x: Vector | None = None
    """Its best point, …"""
    best: float = np.inf
    """… the value there, …"""
    gained_at: int = 0
    """… the generation of the last gain, …"""
    step: float = np.inf
    """… and its longest step then."""
    size: int = 1
    """λ of the last generation."""
    spread: float = np.nan
    """Median minus minimum of the last generation."""
    bests: list[float] = field(default_factory=list)
    """The best values after each of the last HOPELESS_GENERATIONS generations."""

    def add(self, x: NDArray[np.float64], f: NDArray[np.float64], longest: float) -> None:
        """Add a generation of these points; longest: the longest step after it."""
        self.generation += 1
        self.size = len(f)
        succeeded = f[np.isfinite(f)]
        self.spread = float(np.median(succeeded) - succeeded.min()) if len(succeeded) > 1 else np.nan
        if len(succeeded) and succeeded.min() < self.best:
            i = int(np.nanargmin(f))
            if not self.best - f[i] <= GAIN * abs(f[i]):
                self.gained_at, self.step = self.generation, longest
            self.x, self.best = x[i].copy(), float(f[i])
        self.bests = [*self.bests, self.best][-HOPELESS_GENERATIONS:]

    def dump(self) -> Saved:
        counts = [self.restart, self.generation, self.gained_at, self.size]
        numbers = [self.before, self.best, self.step, self.spread, *self.bests]
        arrays = {"gains.numbers": np.array(numbers)}
        return {"gains": counts}, arrays if self.x is None else {**arrays, "gains.x": self.x}

    @classmethod
    def restored(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]], d: int) -> Gains:
        restart, *counts = metadata["gains"]
        if type(restart) is not bool:
            raise SnapshotError(f"gains of a restart {restart!r}")
        numbers = arrays["gains.numbers"]
        before, best, step, spread, *bests = shaped(numbers, (numbers.size,)).tolist()
        x = finite(arrays["gains.x"], (d,)) if "gains.x" in arrays else None
        generation, gained_at, size = map(count, counts)
        return cls(d, restart, before, generation, x, best, gained_at, step, size, spread, bests)


def stalled(gains: Gains, longest: float) -> Stop | None:
    """No gain for many generations while the steps stay long; longest: the longest step now."""
    without = gains.generation - gains.gained_at
    if without <= STALL + STALL_PER_DIMENSION * gains.d / gains.size or longest < STALL_STEP * gains.step:
        return None
    return Stop(StopReason.STALLED, f"{without} generations without a gain over {gains.best:.6g}")


def hopeless(gains: Gains) -> Stop | None:
    """A restart neither gains enough nor has values different enough to reach the best of the run."""
    if not gains.restart or gains.generation <= HOPELESS_GENERATIONS or not math.isfinite(gains.before):
        return None
    reach = max(gains.spread, gains.bests[0] - gains.best) if math.isfinite(gains.bests[0]) else np.inf
    if math.isnan(gains.spread) or not gains.best - HOPELESS_GAINS * reach > gains.before:
        return None
    return Stop(StopReason.HOPELESS, f"{gains.best:.6g}, and {gains.before:.6g} before")


def target_reached(best: Best, target: float | None) -> Stop | None:
    if target is None or not best.fun <= target:
        return None
    return Stop(StopReason.TARGET, f"{best.fun:.6g} <= {target:.6g} at evaluation {best.evaluation}")


def target_stop(search: Optimizer, best: Best) -> Stop | None:
    """Is the target reached: by one value, or by the average of the last generations where they are noisy?"""
    if search.noise is None or not search.noise.seen or search.target is None:
        return target_reached(best, search.target)
    recent = search.noise.course.recent
    if not recent.mean + recent.error <= search.target:
        return None
    return Stop(
        StopReason.TARGET, f"{recent.mean:.6g} ± {recent.error:.2g} <= {search.target:.6g} on average"
    )


def budget_spent(evaluations: int, max_evaluations: int | None) -> Stop | None:
    if max_evaluations is None or evaluations < max_evaluations:
        return None
    return Stop(StopReason.MAX_EVALUATIONS, f"{evaluations} of {max_evaluations}")


def nothing_feasible(recent: Recent) -> Stop | None:
    if recent.unevaluated >= recent.patience:
        return Stop(
            StopReason.NO_FEASIBLE,
            f"{recent.unevaluated} generations in a row lay outside the bounds, or are known to fail",
        )
    if recent.infeasible >= recent.patience:
        return Stop(
            StopReason.NO_FEASIBLE, f"every evaluation of {recent.infeasible} generations in a row failed"
        )
    return None


def nothing_found(search: Optimizer, explorer: Explorer) -> Stop | None:
    """The exploration of a box has not found a point that works, and no budget ends it."""
    points = explorer.evaluated
    if explorer.succeeded:
        return None
    if search._recent.unevaluated >= search._recent.patience:
        return Stop(StopReason.NO_FEASIBLE, "all points of the box that it tries are known to fail")
    if search.max_evaluations is not None or search.timed or points < MAX_FAILED:
        return None
    return Stop(
        StopReason.NO_FEASIBLE,
        f"each of {points} points all over the box failed; pass x0= where an evaluation succeeds, narrower "
        "bounds, or max_evaluations= for a longer look",
    )


def nothing_new(recent: Recent) -> Stop | None:
    """All points of many generations are known, and not all fail."""
    if recent.unevaluated < recent.patience or recent.infeasible >= recent.patience:
        return None
    return Stop(StopReason.REPEATED, f"no new one in {recent.unevaluated} generations")


def flat(recent: Recent) -> Stop | None:
    if recent.flat < recent.window:
        return None
    return Stop(
        StopReason.FLAT, f"each of {recent.flat} generations had one value only, {recent.bests[-1]:.6g}"
    )


def values_settled(recent: Recent, ftol: float | None) -> Stop | None:
    """The best values of a window agree within `ftol` of their magnitude."""
    if ftol is None or len(recent.bests) < recent.window:
        return None
    low, high = min(recent.bests), max(recent.bests)
    # Halves, so that two huge values of opposite sign cannot overflow in their difference.
    if not np.isfinite(high) or not (high / 2 - low / 2) <= ftol * (max(abs(low), abs(high)) / 2):
        return None
    return Stop(
        StopReason.FTOL, f"best values of {recent.window} generations within {low:.9g} and {high:.9g}"
    )


def steps_vanished(view: View, sigma0: float, xtol: float | None) -> Stop | None:
    """The longest step is below `xtol` times the initial one, or below the resolution of x."""
    longest = view.sigma * float(view.axis_lengths.max())
    if xtol is not None and longest < xtol * sigma0:
        return Stop(StopReason.XTOL, f"longest step {longest:.3g} < {xtol:.3g} × sigma0 {sigma0:.3g}")
    resolution = float(np.spacing(np.abs(view.mean).min()))
    if longest < resolution:
        return Stop(StopReason.XTOL, f"longest step {longest:.3g} < resolution of x {resolution:.3g}")
    return None


def ill_conditioned(view: View) -> Stop | None:
    shortest = float(view.axis_lengths.min())
    ratio = float(view.axis_lengths.max()) / shortest if shortest > 0 else np.inf
    if ratio * ratio < MAX_CONDITION:
        return None
    return Stop(StopReason.ILL_CONDITIONED, f"condition {ratio * ratio:.3g} >= {MAX_CONDITION:.0e}")


def step_size_out_of_range(view: View, sigma0: float) -> Stop | None:
    longest = view.sigma * float(view.axis_lengths.max())
    if longest > MAX_STEP_GROWTH * sigma0:
        return Stop(StopReason.SIGMA_OVERFLOW, f"longest step {longest:.3g} > 1e20 × sigma0 {sigma0:.3g}")
    if longest < MIN_STEP:
        return Stop(StopReason.SIGMA_UNDERFLOW, f"longest step {longest:.3g} < {MIN_STEP:.0e}")
    return None


def search_ended(
    view: View,
    recent: Recent,
    sigma0: float,
    *,
    xtol: float | None,
    ftol: float | None,
    steps: View | None = None,
) -> Stop | None:
    """Return the first criterion that holds, without the user's limits.

    steps: the view of the coordinates whose steps can vanish, if not all.
    """
    return (
        nothing_new(recent)
        or nothing_feasible(recent)
        or flat(recent)
        or values_settled(recent, ftol)
        or steps_vanished(steps or view, sigma0, xtol)
        or ill_conditioned(steps or view)
        or step_size_out_of_range(view, sigma0)
    )


def stop_at(search: Optimizer, view: View) -> Stop | None:
    """Return why a search stops, or None, given its current view."""
    stop = limit_reached(search) or settled_at(search, view)
    return stop if stop and next_poll(search, stop.reason) is None else None


def settled_at(search: Optimizer, view: View) -> Stop | None:
    """Return why a search has ended by itself, before polling."""
    if search._start.repeats and all_known(search):
        found = np.isfinite(search._best.fun)
        reason = StopReason.REPEATED if found else StopReason.NO_FEASIBLE
        return Stop(reason, f"all {number_of_points(search._start.grid):.0f} points of the space")
    if search.exploring is not None:
        return nothing_found(search, search.exploring)
    if search._distribution.own_units:  # mean and steps in the same units
        view = replace(view, mean=search._distribution.state.mean)
    xtol = None if search._start.repeats else search.xtol  # the steps of a grid never vanish
    ftol, gains = search.ftol, search.gains
    if gains is not None and gains.restart:
        xtol = None if xtol is None else max(xtol, RESTART_TOLERANCE)
        ftol = None if ftol is None else max(ftol, RESTART_TOLERANCE)
    steps = _in_real_coordinates(search, view)
    stop = search_ended(view, search._recent, search._start.sigma, xtol=xtol, ftol=ftol, steps=steps)
    if stop is None:
        stop = noise_hides(search)
    if gains is not None and stop is None:
        stop = stalled(gains, view.sigma * float(view.axis_lengths.max())) or hopeless(gains)
        if stop is None and search._surrogate is not None:
            stop = exhausted(search, search._surrogate)
    return stop


def noise_hides(search: Optimizer) -> Stop | None:
    """Without any limit, a noisy search ends where its values no longer fall by more than their error."""
    noise = search.noise
    if noise is None or not noise.seen or search.timed:
        return None
    if search.max_evaluations is not None or search.target is not None:
        return None
    if noise.course.ended or noise.course.generations >= MAX_NOISY_GENERATIONS:
        return Stop(StopReason.NOISE, f"values at the same point differ by {noise.deviation:.2g}")
    return None


def limit_reached(search: Optimizer) -> Stop | None:
    """Check the criteria that need no view, after every `tell`."""
    stop = target_stop(search, search._best) or budget_spent(search.evaluations, search.max_evaluations)
    if stop:
        return stop
    faults = search._distribution.faults
    if faults:
        return Stop(StopReason.NUMERICAL, f"{faults} times by generation {search.generation}")
    if search._start.max_redraws is not None and search._current is not None:
        redraws = int(search._current.redraws.sum())
        if redraws >= search._start.max_redraws:
            return Stop(StopReason.NO_FEASIBLE, f"{redraws} failed redraws in one generation")
    return None


def steps_below(search: Optimizer, factor: float, view: View) -> Stop | None:
    """Are the steps below this multiple of sigma0? On a grid they never are."""
    if search._start.repeats:
        return None
    if search._distribution.own_units:
        view = replace(view, mean=search._distribution.state.mean)
    return steps_vanished(_in_real_coordinates(search, view), search._start.sigma, factor)


def fails_at(search: Optimizer, stop: Stop) -> bool:
    """Do points fail in the region where the search ended?

    An ill-conditioned distribution lies along a failing region without points in it, so all evaluations are
    counted there. Under limits it lies along them.
    """
    many = search.n_infeasible > FAILING_SHARE * search.evaluations or search.limits is not None
    return search._recent.failing or (many and stop.reason is StopReason.ILL_CONDITIONED)


def redraws_failed(search: Optimizer) -> bool:
    """Does a failed point get a new draw (`fmnes.Resampling`)?"""
    return search._start.max_redraws is not None


def _in_real_coordinates(search: Optimizer, view: View) -> View:
    """Return the view without discrete coordinates, if only some are discrete."""
    mixed = search._distribution.start.grid is not None and not search._start.repeats
    return search._distribution.real_part(view) if mixed else view
