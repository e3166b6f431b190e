"""What a search answers: its best point, the constraints there, and whether it is a success."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes.constraints import ConstraintResult
from fmnes.result import Best, Result, Stop, StopReason
from fmnes.search.noise_watch import fits_response, noisy
from fmnes.search.response import Surface, fit_surface

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

Floats = NDArray[np.float64]

#: Most coordinates with which a result has its covariance.
MAX_COVARIANCE = 300
#: A search under limits ended outside of them if its last merits are below its best value by more than these
#: shares of the distance from its first value, and of the value.
LIMIT_GAP, SMALLEST_GAP = 1e-6, 1e-9


def result_of(search: Optimizer, stop: Stop | None) -> Result[Any]:
    """Return the result so far; stop: why the search ends, by default `search.stop`."""
    stop = stop or search.stop
    reason = stop.reason if stop else None
    settled = reason is not None and reason.converged and np.isfinite(search._best.fun)
    settled = settled and search.steps_supported and ends_within_limits(search)
    best, error = estimate(search, search._best)
    result: Result[Any] = Result(
        x=None if best.x is None else best.x.copy(),
        fun=best.fun,
        success=bool(
            (reason is StopReason.TARGET or (search.target is None and settled)) and not noisy(search)
        ),
        stop_reason=reason,
        message=(stop.message if stop else "still running") + violated_in_words(search, search._best),
        constraints=constraints_at(search, search._best),
        nfev=search.evaluations,
        nit=search.generation,
        n_infeasible=search.n_infeasible,
        n_repeated=search.n_repeated,
        x_mean=search._distribution.nearest(search._distribution.mean),
        seed=search.seed,
        covariance=_small_covariance(search),
        sigma0=search._start.sigma,
        **noise_fields(search, search._best, error),
    )
    return result if search.space is None else search.space.result(result)


def answer_of(search: Optimizer, best: Best[Any]) -> Best[Any]:
    """Return the point of a result: the best one, or with limits the least violated if there is none."""
    if best.x is None and search._constrained is not None and search._constrained.best.least_x is not None:
        return Best(search._constrained.best.least_x, search._constrained.best.least_fun, 0)
    return best


def estimate(search: Optimizer, best: Best[Any]) -> tuple[Best[Any], float]:
    """Return the point of a result that was not evaluated again, its estimated value, and the standard error.

    best: the best value. Without noise it is the answer. Where noise hides the differences, the mean of the
    distribution is better than the luckiest point; its value is that of the points around it.
    """
    noise = search.noise
    if noise is None or not noise.seen:
        return answer_of(search, best), math.nan
    recent = noise.course.recent
    if not noise.slows_down or not math.isfinite(recent.error) or search.surrogate:
        return best, noise.deviation
    x = search._distribution.nearest(search._distribution.mean)
    return Best(x, recent.mean, 0), recent.error


def candidates_of(search: Optimizer) -> list[Any]:
    """Return the points that may be the answer of a noisy search, the likelier first.

    They are the minimum of the response surface, or else the mean, and the luckiest point; with models, which
    evaluate few points, in the other order.
    """
    surface = surface_of(search)
    mean = search._distribution.mean if surface is None else inside(search, surface.x)
    best, mean = search._best.x, search._distribution.nearest(mean)
    if best is None or np.array_equal(best, mean):
        return [mean]
    return [best, mean] if search.surrogate else [mean, best]


def surface_of(search: Optimizer) -> Surface | None:
    """Return the response surface of a noisy search; None: it has none."""
    if search.noise is None or not search.noise.seen or not fits_response(search):
        return None
    return fit_surface(search.noise.record, search._distribution)


def inside(search: Optimizer, x: Floats) -> Floats:
    """Return the nearest point within the bounds."""
    low, high = search._distribution.bounds
    return np.clip(x, low, high)


def generation_size(search: Optimizer) -> int:
    """Return the most evaluations of the next generation, with one of a point that it repeats."""
    return search._distribution.population_size + 1


def noise_fields(search: Optimizer, best: Best[Any], error: float) -> dict[str, Any]:
    """Return the fields of a result that say something about noise; best: the luckiest value."""
    if search.noise is None or not search.noise.seen:
        return {}
    return {
        "noise": search.noise.summary(),
        "fun_error": error if math.isfinite(error) else None,
        "best_seen": best if best.x is not None else None,
    }


def constraints_at(search: Optimizer, best: Best[Any]) -> dict[str, ConstraintResult] | None:
    """Return the constraints at the point that `answer_of` returns; None without limits."""
    if search._constrained is None:
        return None
    return search._constrained.report(best.x is not None, search._distribution)


def violated_in_words(search: Optimizer, best: Best[Any]) -> str:
    """Return the end of a message if no point satisfies all limits; else nothing."""
    if best.x is not None or search._constrained is None:
        return ""
    return search._constrained.violated_in_words()


def ends_within_limits(search: Optimizer) -> bool:
    """Whether the search ended where its best point is, and not where it violates a limit."""
    if search._constrained is None:
        return True
    best, last = search._best.fun, min(search.recent_bests, default=np.inf)
    if not np.isfinite(best):
        return False
    gap = max(LIMIT_GAP * abs(search._constrained.first_value - best), SMALLEST_GAP * abs(best))
    return not best - last > gap


def _small_covariance(search: Optimizer) -> Floats | None:
    if len(search._start.x0) > MAX_COVARIANCE:
        return None
    with np.errstate(all="ignore"):  # huge steps overflow
        return search.covariance
