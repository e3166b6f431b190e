"""The best value so far against the evaluations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmnes.reading.data import Floats, RunData


def improvements(value: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Which evaluations (from 1) were the best so far, and their values. value: (n,), NaN where it failed."""
    best = np.minimum.accumulate(np.where(np.isnan(value), np.inf, value))
    better = np.flatnonzero(best < np.concatenate(([np.inf], best[:-1])))
    return better + 1, best[better]


def course(given: RunData) -> tuple[Floats, Floats, int]:
    """Where the best value changed, the best from there on, and how many evaluations there were.

    Of a result without evaluations it is known at the end of each generation only.
    """
    if given.table is not None:
        which, best = improvements(given.table.value)
        return which.astype(np.float64), best, given.evaluations
    generation, best = improvements(given.history["best"])
    at = given.history["evaluations"][generation - 1].astype(np.float64)
    if given.fun < best.min(initial=np.inf):  # found in a generation that was not completed
        at, best = np.append(at, float(given.evaluations)), np.append(best, given.fun)
    return at, best, given.evaluations
