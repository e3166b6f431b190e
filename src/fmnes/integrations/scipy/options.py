"""SciPy's words for our options, what is not among them, and where a search of SciPy's users begins."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fmnes.arguments import MIN_SIGMA0, option_alias, shown
from fmnes.bounds import Bounds, first_step, read_bounds
from fmnes.errors import ArgumentError, nearest
from fmnes.integrations.scipy.objective import MapLike
from fmnes.result import Vector
from fmnes.run.minimize import minimize

#: What goes on to `fmnes.minimize` as it is.
OPTIONS = frozenset(inspect.signature(minimize).parameters) - {"fun", "x0", "bounds", "callback"}
#: Our option for each of SciPy's. (`maxiter` and `tol` are more than a name.)
_CALLED = {
    "maxfev": "max_evaluations",
    "maxfun": "max_evaluations",
    "seed": "rng",
    "disp": "progress",
    "integrality": "integers",
}


def read_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Options by our names; and unknown ones, each with a hint."""
    known: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name, value in options.items():
        ours = _CALLED.get(name, name)
        if ours not in OPTIONS:
            unknown[name] = _meant(name)
        elif ours in known:
            raise ArgumentError(f"{name}: found together with another name of it; wanted one of them")
        else:
            known[ours] = _FORMS.get(ours, lambda found: found)(value)
    workers = known.get("workers", 1)
    if callable(workers):
        if known.get("executor") is not None:
            raise ArgumentError("executor: found together with workers; wanted one of them")
        known |= {"workers": 1, "executor": MapLike(workers)}
    return known, unknown


def _meant(name: str) -> str:
    if wanted := option_alias(name, OPTIONS):
        return f" (wanted {wanted})"
    guess = nearest(name, [*OPTIONS, *_CALLED, "maxiter", "tol"]).removeprefix("; ")
    return f" ({guess})" if guess else ""


def _limit(found: Any) -> Any:
    """No limit is None or, in SciPy, inf."""
    return None if isinstance(found, float) and found == np.inf else found


def _generator(found: Any) -> Any:
    """All that SciPy takes for a source of randomness."""
    if isinstance(found, np.random.RandomState):
        return np.random.default_rng(found.randint(0, 2**32, size=8, dtype=np.uint32))
    if isinstance(found, (np.random.SeedSequence, np.random.BitGenerator)):
        return np.random.default_rng(found)
    return found


_FORMS: dict[str, Callable[[Any], Any]] = {"max_evaluations": _limit, "rng": _generator, "progress": bool}


def read_box(bounds: Any, d: int | None) -> Bounds | None:
    """Bounds in SciPy's forms: a sequence is always of pairs, and the two of a pair may be equal."""
    if isinstance(bounds, (list, tuple)):
        bounds = [tuple(pair) if isinstance(pair, np.ndarray) and pair.ndim else pair for pair in bounds]
    return read_bounds(bounds, d, may_be_equal=True)


def first_steps(x: Vector, bounds: Bounds | None) -> Vector:
    """Initial steps: `bounds.first_step` between two bounds; otherwise |x| / 2, and 1 where x is 0."""
    steps = np.where(np.abs(x) / 2 >= MIN_SIGMA0, np.abs(x) / 2, 1.0)
    if bounds is None:
        return steps
    between = first_step(bounds.lower, bounds.upper, len(x))
    return np.where(np.isfinite(between), between, steps)


def warn(message: str, category: type[Warning]) -> None:
    """At the user's own line, which is beyond SciPy's as well as ours."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in ("fmnes", "scipy"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def even_size(popsize: Any, d: int) -> int:
    """The population of differential_evolution: `popsize` points per coordinate."""
    if isinstance(popsize, bool) or not isinstance(popsize, (int, float, np.number)) or not 0 < popsize < 1e9:
        raise ArgumentError(
            f"popsize: found {shown(popsize)}, wanted how many times as many points as there are coordinates"
        )
    size = max(4, int(np.ceil(popsize * d)))
    return size + size % 2
