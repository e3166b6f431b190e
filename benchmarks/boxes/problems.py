"""Problems in a box without a start: functions of SciPy's global benchmarks, and boxes that mostly fail.

The functions are read from a source checkout of SciPy (`benchmarks/benchmarks/go_benchmark_functions`), which
its package does not contain.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import types
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: The draw of the functions.
SEED = 2026
#: Functions that are measured, and those that are held back.
DRAWN, HELD_BACK = 60, 40
#: A run has solved a problem within this share of max(1, |f*|).
TOLERANCE = 1e-4


class BoxProblem(NamedTuple):
    """A function in a box whose optimum is known."""

    name: str
    fun: Callable[[Vector], float]
    lower: Vector
    upper: Vector
    best: Vector
    """Where the optimum is."""
    optimum: float
    """The value there."""

    def within(self, tolerance: float) -> float:
        """Return the largest value within this share of max(1, |optimum|)."""
        return self.optimum + tolerance * max(1.0, abs(self.optimum))

    @property
    def target(self) -> float:
        """A value that counts as solved."""
        return self.within(TOLERANCE)


@cache
def functions(folder: Path, easy: bool = False) -> list[BoxProblem]:
    """Return the functions of 2 to 6 parameters in the order of the draw: measured, held back, and the rest.

    easy: those instead that 500 random points solve, which are not drawn.
    """
    package = types.ModuleType("go_common")
    package.__path__ = [str(folder.parent)]  # type: ignore[attr-defined]
    common = types.ModuleType("go_common.common")
    common.safe_import = lambda: contextlib.suppress(ImportError)  # type: ignore[attr-defined]
    sys.modules |= {"go_common": package, "go_common.common": common}
    module = importlib.import_module(f"go_common.{folder.name}")
    found = []
    for name, kind in sorted(inspect.getmembers(module, inspect.isclass)):
        if not issubclass(kind, module.Benchmark) or kind is module.Benchmark:
            continue
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found += _read(name, kind, easy)
        except Exception:  # some functions cannot be constructed with the present NumPy
            continue
    order = np.random.default_rng(SEED).permutation(len(found))
    return [found[i] for i in order]


def _read(name: str, kind: Any, easy: bool) -> list[BoxProblem]:
    """The problem in 2 to 6 dimensions, if its optimum is known and its values are deterministic."""
    if kind.change_dimensionality:
        d = int(np.random.default_rng([SEED, *name.encode()]).integers(2, 7))
        with contextlib.suppress(Exception):
            if fits := _checked(name, kind(d), easy):
                return fits
    return _checked(name, kind(), easy)


def _checked(name: str, problem: Any, easy: bool) -> list[BoxProblem]:
    lower, upper = np.array(problem.bounds, dtype=float).T
    best = np.array(problem.global_optimum[0], dtype=float)
    value, fglob = float(problem.fun(best.copy())), float(problem.fglob)
    size = TOLERANCE * max(1.0, abs(fglob))
    fits = 2 <= len(lower) <= 6 and best.shape == lower.shape and abs(value - fglob) < size
    other = 0.9 * best + 0.1 * lower
    fits = fits and problem.fun(other.copy()) == problem.fun(other.copy())
    inside = (best >= lower).all() and (best <= upper).all() and (lower < upper).all()
    if not (fits and inside):
        return []
    points = np.random.default_rng(1).uniform(lower, upper, (500, len(lower)))
    values = [float(np.real(problem.fun(x))) for x in points]
    if not np.isfinite(values).any() or (min(values) <= fglob + size) != easy:
        return []

    def fun(x: Vector) -> float:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return float(np.real(problem.fun(np.array(x))))

    return [BoxProblem(name, fun, lower, upper, best, fglob)]


def moved(problem: BoxProblem) -> BoxProblem:
    """The same function in a box that is shrunk at random around the optimum."""
    rng = np.random.default_rng([SEED, *problem.name.encode()])
    shares = rng.uniform(0.3, 1.0, (2, len(problem.lower)))
    lower = problem.best - shares[0] * (problem.best - problem.lower)
    upper = problem.best + shares[1] * (problem.upper - problem.best)
    return problem._replace(
        lower=lower, upper=np.maximum(upper, lower + 1e-3 * (problem.upper - problem.lower))
    )


def failing(problem: BoxProblem, ball: bool) -> BoxProblem:
    """The same problem with a part that fails, beside the optimum: a half space, or a ball."""
    rng = np.random.default_rng([SEED, ball, *problem.name.encode()])
    width = problem.upper - problem.lower
    direction = rng.standard_normal(len(width))
    direction /= np.linalg.norm(direction)

    def fun(x: Vector) -> float:
        u = (x - problem.best) / width
        fails = np.linalg.norm(u - 0.3 * direction) < 0.25 if ball else u @ direction > 0.05
        return np.nan if fails else problem.fun(x)

    return problem._replace(fun=fun)


def small_part(shape: str, d: int, share: float, seed: int) -> BoxProblem:
    """A sphere in the unit box of which only this share works: a cube, a ball, a corner, a slab or a bar."""
    rng = np.random.default_rng([seed, d, *shape.encode()])
    side = np.full(d, share ** (1 / d))
    if shape == "slab":
        side = np.full(d, 0.9)
        side[rng.integers(d)] = share / 0.9 ** (d - 1)
    elif shape == "bar":
        side = np.full(d, (share / 0.9) ** (1 / max(d - 1, 1)))
        side[rng.integers(d)] = 0.9
    lower = np.zeros(d) if shape == "corner" else rng.random(d) * (1 - side)
    best = lower + side * rng.uniform(0.2, 0.8, d)
    if shape == "ball":  # the cube's volume
        radius = (share * _gamma(d / 2 + 1)) ** (1 / d) / np.sqrt(np.pi)
        centre = radius + rng.random(d) * (1 - 2 * radius)
        best = centre + 0.5 * radius * rng.uniform(-1, 1, d) / np.sqrt(d)

    def fun(x: Vector) -> float:
        if shape == "ball":
            works = np.linalg.norm(x - centre) <= radius
        else:
            works = ((x >= lower) & (x <= lower + side)).all()
        return float(np.sum((x - best) ** 2)) if works else np.nan

    return BoxProblem(f"{shape} {share:g}", fun, np.zeros(d), np.ones(d), best, 0.0)


def _gamma(x: float) -> float:
    from math import gamma

    return gamma(x)
