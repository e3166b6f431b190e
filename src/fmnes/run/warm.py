"""A warm start: where and how wide to begin, from what an earlier run came to."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import check_path, shown
from fmnes.errors import ArgumentError, RunError, SnapshotError
from fmnes.result import Result, Vector
from fmnes.run.snapshots import RunState
from fmnes.search.covariance import takes_covariance
from fmnes.search.saved import finite
from fmnes.storage.directory import RunDirectory
from fmnes.strategies import Resampling, Strategy

#: The steps to begin with: twice the last ones, and at least this share of the first. How far a search has
#: shrunk says how well it knew its own optimum, and nothing of how far away the new one is.
LEAST_STEP = 0.1
#: Axes shorter than this share of the longest one are lengthened to it: at an edge of the feasible region a
#: search ends flat, and that edge may lie elsewhere now.
SHORTEST_AXIS = 1e-4


def warmed(
    warm_start: Any,
    x0: ArrayLike | None,
    sigma0: ArrayLike | None,
    covariance: ArrayLike | None,
    method: str | Strategy | Resampling,
) -> tuple[ArrayLike, ArrayLike | None, ArrayLike | None]:
    """x0, sigma0 and covariance to begin with; those that are given stay."""
    x, found, first_step = _ending(warm_start)
    if x0 is None:
        x0 = x
    elif np.size(x0) != len(x):
        raise ArgumentError(f"x0: found {np.size(x0)} coordinates, wanted {len(x)} as warm_start has")
    if covariance is not None:
        return x0, sigma0, covariance
    if found is None:  # too large to be kept
        return x0, LEAST_STEP * first_step if sigma0 is None else sigma0, None
    if sigma0 is not None and np.ndim(sigma0) > 0:  # one for each coordinate says it all
        return x0, sigma0, None
    shape, last_step = _shape(found)
    step = max(2.0 * last_step, LEAST_STEP * first_step) if sigma0 is None else sigma0
    if takes_covariance(method):
        return x0, step, shape
    return x0, np.asarray(step) * np.sqrt(np.diag(shape)), None


def _shape(covariance: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The covariance with determinant 1, and the step size that was taken out of it."""
    eigenvalues, axes = np.linalg.eigh(covariance)
    eigenvalues = np.maximum(eigenvalues, SHORTEST_AXIS**2 * eigenvalues[-1])
    log_scale = float(np.log(eigenvalues).mean())
    return (axes * np.exp(np.log(eigenvalues) - log_scale)) @ axes.T, float(np.exp(log_scale / 2))


def _ending(found: Any) -> tuple[Vector, NDArray[np.float64] | None, float]:
    """Best point (or the mean, if there is none), covariance and first step size of what was there before."""
    if isinstance(found, Result):
        return found.x_mean if found.x is None else found.x, found.covariance, found.sigma0
    if not isinstance(found, (str, os.PathLike)):
        raise ArgumentError(f"warm_start: found {shown(found)}, wanted a Result or a run directory")
    path = check_path("warm_start", found)
    try:
        with RunDirectory.open(path, read_only=True) as directory:
            saved, result = directory.read_snapshot(), directory.result
            best = directory.log.summary().best
        if saved is None:
            raise RunError(f"{path}: found nothing evaluated in it, wanted a run to begin from")
        state = RunState.restore(*saved)
        last = state.opt.result()
        covariance = last.covariance
        if result is not None and result.get("covariance") is not None:  # it has ended since that snapshot
            covariance = finite(np.array(result["covariance"], dtype=float), (len(last.x_mean),) * 2)
    except (RunError, SnapshotError, TypeError, ValueError) as error:
        raise ArgumentError(f"warm_start: {error}") from None
    x = last.x_mean if best is None or best.x is None else best.x
    return x, covariance, state.searches.first.sigma
