"""SciPy's methods and ours on two functions that return NaN for part of the space.

    python benchmarks/scipy_failing.py

The table of docs/scipy.md: 5 dimensions, at most 3,000 evaluations, 11 starts. Every method gets the same
start and bounds, and its own defaults; ours a second time with a smaller budget.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize as so

from fmnes.integrations.scipy import fmnes

D, BUDGET, STARTS = 5, 3000, 11
#: About as many evaluations as COBYQA takes; with so few of them ours uses models.
FEW = 330
BOX = [(-4.0, 6.0)] * D
Function = Callable[[np.ndarray], float]


class Over(Exception):
    """The budget is spent."""


def corner(x: np.ndarray) -> float:
    """A sphere whose optimum is in the corner of what can be evaluated."""
    return float(x @ x) if (x >= 0).all() else np.nan


def valley(x: np.ndarray) -> float:
    """Rosenbrock's, whose optimum lies on a slanting border."""
    return float(so.rosen(x)) if x.sum() <= D else np.nan


class Counted:
    """The function, up to the budget; what fails is answered with `failed`."""

    def __init__(self, fun: Function, failed: float) -> None:
        self._fun, self._failed = fun, failed
        self.best, self.n, self.n_failed = np.inf, 0, 0

    def __call__(self, x: np.ndarray) -> float:
        if self.n == BUDGET:
            raise Over
        self.n += 1
        value = self._fun(x)
        if np.isnan(value):
            self.n_failed += 1
            return self._failed
        self.best = min(self.best, value)
        return value


def by(method: Any, **options: Any) -> Callable[[Any, np.ndarray, int], Any]:
    return lambda fun, x0, seed: so.minimize(fun, x0, method=method, bounds=BOX, options=options)


def ours(most: int) -> Callable[[Any, np.ndarray, int], Any]:
    def run(fun: Any, x0: np.ndarray, seed: int) -> Any:
        return so.minimize(fun, x0, method=fmnes, bounds=BOX, options={"rng": seed, "maxfev": most})

    return run


METHODS: dict[str, tuple[Callable[[Any, np.ndarray, int], Any], float]] = {
    "minimize, fmnes": (ours(BUDGET), np.nan),
    f"minimize, fmnes, maxfev={FEW}": (ours(FEW), np.nan),
    "differential_evolution": (
        lambda fun, x0, seed: so.differential_evolution(fun, BOX, x0=x0, rng=seed),
        np.nan,
    ),
    "differential_evolution, inf": (
        lambda fun, x0, seed: so.differential_evolution(fun, BOX, x0=x0, rng=seed),
        np.inf,
    ),
    "minimize, Nelder-Mead": (by("Nelder-Mead", maxfev=BUDGET, maxiter=BUDGET), np.nan),
    "minimize, Powell": (by("Powell"), np.nan),
    "minimize, COBYQA": (by("COBYQA", maxfev=BUDGET, maxiter=BUDGET), np.nan),
}


def one(fun: Function, name: str, seed: int) -> tuple[float, int, float]:
    """The best value seen, the evaluations that it took, and the share of them that failed."""
    run, failed = METHODS[name]
    x0 = np.random.default_rng(seed).uniform(0.1, 0.9, D)
    counted = Counted(fun, failed)
    with contextlib.suppress(Over):
        run(counted, x0, seed)
    return counted.best, counted.n, counted.n_failed / counted.n


def main() -> None:
    warnings.simplefilter("ignore")
    print("| function | method | median best | worst | median evaluations | failed |")
    print("|---|---|---|---|---|---|")
    for fun in (corner, valley):
        for name in METHODS:
            best, n, failed = map(np.array, zip(*(one(fun, name, s) for s in range(STARTS)), strict=True))
            numbers = f"{np.median(best):.1e} | {best.max():.1e} | {np.median(n):.0f} | {failed.mean():.0%}"
            print(f"| {fun.__name__} | {name} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
