"""Warm starts: the start, step size and covariance from an earlier run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import check_path, shown
from fmnes.errors import ArgumentError, FmnesError, RunError
from fmnes.parameters import Parameter, is_log
from fmnes.result import Result, Vector
from fmnes.run.settings import RunConfig
from fmnes.run.snapshots import RunState
from fmnes.search.distribution import takes_covariance
from fmnes.space import Space
from fmnes.storage.directory import RunDirectory
from fmnes.storage.snapshot import finite
from fmnes.strategies import Resampling, Strategy

#: The first steps are twice the last ones, and at least this share of the first ones: how far a search has
#: shrunk does not say how far away the new optimum is.
LEAST_STEP = 0.1
#: Axes shorter than this share of the longest one are lengthened to it: at an edge of the feasible region a
#: search ends flat, and that edge may lie elsewhere now.
SHORTEST_AXIS = 1e-4


def warm_start_arguments(
    warm_start: Any, start: dict[str, Any], method: str | Strategy | Resampling, space: Space | None
) -> dict[str, Any]:
    """x0, sigma0 and covariance to begin with, in the search's numbers; those that are given stay.

    Named parameters have a start of their own, always: there the earlier run wins.
    """
    if space is not None and space.has_categories:
        raise ArgumentError(
            "warm_start: found it together with categories; wanted none: give start= with each parameter, "
            "and the earlier evaluations as known="
        )
    before = _ending(warm_start)
    _check_same(before.space, space)
    x = before.x
    if space is not None:
        start = {**start, "x0": None, "sigma0": None}
        bounds = start["bounds"]
        if bounds is not None:  # they may have been drawn closer since
            x = np.clip(x, bounds.lower, bounds.upper)
    x0, sigma0, covariance = _chosen(x, before, start["x0"], start["sigma0"], start["covariance"], method)
    return {"x0": x0, "sigma0": sigma0, "covariance": covariance}


def parameters_of(warm_start: Any) -> Mapping[str, Parameter] | None:
    """The named parameters of the earlier run; None with arrays."""
    if isinstance(warm_start, Result):
        return warm_start.parameters
    space = _ending(warm_start).space
    return None if space is None else space.parameters


def _check_same(before: Space | None, now: Space | None) -> None:
    """Raises ArgumentError unless the numbers of both mean the same."""
    if before is None and now is None:
        return
    described = [_described(space) for space in (before, now)]
    if described[0] != described[1]:
        raise ArgumentError(
            f"warm_start: found a run of {described[0]}, wanted one of {described[1]} as here"
        )


def _described(space: Space | None) -> str:
    if space is None:
        return "arrays"
    scales = [f"{n} (log)" if is_log(p) else n for n, p in space.parameters.items()]
    return f"the parameters {', '.join(scales)}"


def _chosen(
    x: Vector,
    before: _EndState,
    x0: ArrayLike | None,
    sigma0: ArrayLike | None,
    covariance: ArrayLike | None,
    method: str | Strategy | Resampling,
) -> tuple[ArrayLike, ArrayLike | None, ArrayLike | None]:
    if x0 is None:
        x0 = x
    elif np.size(x0) != len(x):
        raise ArgumentError(f"x0: found {np.size(x0)} coordinates, wanted {len(x)} as warm_start has")
    if covariance is not None:
        return x0, sigma0, covariance
    if before.covariance is None:  # too large to be kept
        return x0, LEAST_STEP * before.sigma0 if sigma0 is None else sigma0, None
    if sigma0 is not None and np.ndim(sigma0) > 0:  # one for each coordinate says it all
        return x0, sigma0, None
    shape, last_step = _shape(before.covariance)
    step = max(2.0 * last_step, LEAST_STEP * before.sigma0) if sigma0 is None else sigma0
    if takes_covariance(method):
        return x0, step, shape
    return x0, np.asarray(step) * np.sqrt(np.diag(shape)), None


def _shape(covariance: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The covariance with determinant 1, and the step size that was taken out of it."""
    eigenvalues, axes = np.linalg.eigh(covariance)
    eigenvalues = np.maximum(eigenvalues, SHORTEST_AXIS**2 * eigenvalues[-1])
    log_scale = float(np.log(eigenvalues).mean())
    return (axes * np.exp(np.log(eigenvalues) - log_scale)) @ axes.T, float(np.exp(log_scale / 2))


class _EndState(NamedTuple):
    """The end of the earlier run, in the search's numbers."""

    x: Vector
    """The best point; or the mean, if there is none."""
    covariance: NDArray[np.float64] | None
    sigma0: float
    space: Space | None


def _ending(found: Any) -> _EndState:
    if isinstance(found, Result):
        x = found.x_mean if found.x is None else found.x
        if found.parameters is None:
            return _EndState(x, found.covariance, found.sigma0, None)
        named = Space(found.parameters)
        return _EndState(named.numbers(x), found.covariance, found.sigma0, named)
    if not isinstance(found, (str, os.PathLike)):
        raise ArgumentError(f"warm_start: found {shown(found)}, wanted a Result or a run directory")
    path = check_path("warm_start", found)
    try:
        with RunDirectory.open(path, read_only=True) as directory:
            saved, result = directory.read_snapshot(), directory.result
            best = directory.log.summary().best
            space = RunConfig.read(directory.path, directory.config).space
        if saved is None:
            raise RunError(f"{path}: found nothing evaluated in it, wanted a run to begin from")
        state = RunState.restore(*saved)
        last = state.opt.result()
        covariance = last.covariance
        if result is not None and result.get("covariance") is not None:  # it has ended since that snapshot
            covariance = finite(np.array(result["covariance"], dtype=float), (len(last.x_mean),) * 2)
    except (FmnesError, TypeError, ValueError) as error:
        raise ArgumentError(f"warm_start: {error}") from None
    if state.opt.limits is not None:  # the lowest value of the log may violate one
        best_x = state.totals.best_with(state.opt).x
    else:
        best_x = None if best is None else best.x
    x = last.x_mean if best_x is None else best_x
    return _EndState(x, covariance, state.searches.first.sigma, space)
