"""Checks of user arguments, done before any evaluation is spent."""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Container, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.errors import ArgumentError, nearest, warn
from fmnes.result import Vector

#: The kinds of random generators that can be saved and loaded.
BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
#: Steps as short as this leave no room to shrink before their squares underflow.
MIN_SIGMA0 = 1e-130
#: Whole numbers beyond this are not meant; they would not fit into files and arrays either.
MAX_WHOLE = 2**63 - 1
_LARGEST = sys.float_info.max
_LARGEST_LOG = math.log(_LARGEST)


def shown(found: Any) -> str:
    """What was found, for a message: short, whatever it is, even if it cannot be printed."""
    if isinstance(found, int) and found.bit_length() > 500:
        return f"a whole number of about {int(found.bit_length() * 0.30103) + 1} digits"
    try:
        text = repr(found)
    except Exception:  # of the user's own class, or a list with a number of too many digits
        return f"something of type {type(found).__name__}"
    return text if len(text) <= 300 else f"{text[:200]}...{text[-50:]}"


def check_x0(x0: ArrayLike) -> Vector:
    array = floats("x0", x0, "a vector of finite numbers")
    if array.ndim == 0:
        array = array.reshape(1)
    if array.ndim != 1 or array.size == 0:
        raise ArgumentError(f"x0: found shape {array.shape}, wanted a vector of at least one coordinate")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ArgumentError(f"x0: found {array[bad[0]]} at coordinate {bad[0]}, wanted finite numbers")
    return array


def check_sigma0(sigma0: ArrayLike, x0: Vector) -> tuple[float, Vector | None]:
    """The step size, and the scale of each coordinate if `sigma0` gave one each (geometric mean 1)."""
    array = floats("sigma0", sigma0, "a positive number, or one per coordinate")
    if array.ndim > 1 or (array.ndim == 1 and array.shape != x0.shape):
        raise ArgumentError(
            f"sigma0: found shape {array.shape}, wanted one number or shape {x0.shape} as x0 has"
        )
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        raise ArgumentError(f"sigma0: found {array.flat[bad[0]]}, wanted a positive finite number")
    if array.min() < MIN_SIGMA0:
        raise ArgumentError(
            f"sigma0: found {array.min():g}, wanted at least {MIN_SIGMA0:g}; scale the problem"
        )
    with np.errstate(over="ignore"):
        stuck = np.flatnonzero(x0 + array == x0)
    if stuck.size:
        i = int(stuck[0])
        raise ArgumentError(
            f"sigma0: found {np.broadcast_to(array, x0.shape)[i]:g}, too small to change coordinate {i} of "
            f"x0 ({x0[i]:g}); wanted about the distance to the optimum"
        )
    if array.ndim == 0:
        return float(array), None
    sigma = math.exp(min(float(np.log(array).mean()), _LARGEST_LOG))
    scale = array / sigma
    with np.errstate(over="ignore"):
        beyond = np.flatnonzero(~np.isfinite(x0 / scale))
    if beyond.size:
        i = int(beyond[0])
        raise ArgumentError(
            f"sigma0: found {array[i]:g} at coordinate {i}, where x0 is {x0[i]:g} and other steps are far "
            "longer: too much for floating point; wanted steps of more equal length"
        )
    return sigma, scale


def check_population_size(population_size: Any, d: int, mirrored: bool) -> int:
    if population_size is None:
        default = 4 + int(3 * math.log(d))
        return default + default % 2
    size = _size(population_size)
    if mirrored and (size < 4 or size % 2):
        raise ArgumentError(
            f"population_size: found {shown(population_size)}, wanted an even number of at least 4 "
            "(points come in mirrored pairs)"
        )
    if size < 2:
        raise ArgumentError(f"population_size: found {shown(population_size)}, wanted at least 2")
    return size


def one_population_size(given: Any, in_settings: Any) -> Any:
    """Of `population_size=` and the method's settings, whichever there is; they must not differ."""
    for size in (given, in_settings):  # before they are compared: arrays are not equal or unequal
        if size is not None:
            _size(size)
    if given is not None and in_settings is not None and given != in_settings:
        raise ArgumentError(
            f"population_size: found {shown(given)} here and {shown(in_settings)} in the method's settings; "
            "wanted one of them"
        )
    return in_settings if given is None else given


def _size(found: Any) -> int:
    size = as_whole(found)
    if size is None:
        raise ArgumentError(f"population_size: found {shown(found)}, wanted a whole number")
    return size


def check_memory(matrices: int, d: int, method: str, population_size: int) -> None:
    """Refuse what cannot fit into this machine, and advise where it will be slow and large."""
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this system
        there = MAX_WHOLE
    # The points, a copy to hand out, and what Python needs for each.
    points = population_size * (16 * d + 100)
    if points > there:
        raise ArgumentError(
            f"population_size: found {shown(population_size)}, whose points need about {_gigabytes(points)}, "
            f"of {_gigabytes(there)} here; wanted fewer"
        )
    needed = 8 * matrices * d * d
    size = f"{_gigabytes(needed)} for its matrices, of {_gigabytes(there)} here"
    advice = f"{method} at d = {d} needs about {size}"
    if needed > there:
        raise ArgumentError(f"method: found {advice}; wanted one that fits, such as 'cr-fm-nes'")
    if needed > there / 4:
        warn(f"{advice}; 'cr-fm-nes' needs a few vectors only")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size < 1e300 else "endless GB"


def check_rng(rng: Any) -> tuple[np.random.Generator, int | None]:
    """A generator of our own, and the seed that makes it again (None if the caller passed a generator)."""
    if isinstance(rng, np.random.Generator):
        return _child(rng), None
    if rng is None:
        entropy = np.random.SeedSequence().entropy
        assert isinstance(entropy, int)
        return np.random.default_rng(entropy), entropy
    if isinstance(rng, bool) or not isinstance(rng, (int, np.integer)) or not 0 <= rng < 2**4096:
        raise ArgumentError(f"rng: found {shown(rng)}, wanted a whole number >= 0, a numpy Generator or None")
    return np.random.default_rng(int(rng)), int(rng)


def _child(rng: np.random.Generator) -> np.random.Generator:
    """An independent generator, so that a run does not depend on other users of the caller's.

    Seeded with 256 bits drawn from it. `rng.spawn` uses the seed instead of the state, and a generator that
    was jumped or set to a state has an unknown seed.
    """
    words = rng.integers(0, 2**32, size=8, dtype=np.uint32)
    kind = type(rng.bit_generator)
    if kind not in (getattr(np.random, name) for name in BIT_GENERATORS):
        kind = np.random.PCG64  # of those that can be saved
    return np.random.Generator(kind(np.random.SeedSequence(words.tolist())))


def check_number(
    argument: str, found: Any, *, above: float = -math.inf, whole: bool = False, optional: bool = True
) -> Any:
    """A finite number above `above`, or None where that is allowed."""
    if found is None and optional:
        return None
    if is_number(found, whole=whole) and found > above:
        return int(found) if whole else float(found)
    wanted = ("a whole number" if whole else "a number") + (f" above {above:g}" if above > -math.inf else "")
    if (number := as_whole(found)) is not None and abs(number) > (MAX_WHOLE if whole else _LARGEST):
        wanted += f" and below {'2**63' if whole else '1.8e308'}"
    wanted += " or None" if optional else ""
    raise ArgumentError(f"{argument}: found {shown(found)}, wanted {wanted}{number_in_quotes(found)}")


def number_in_quotes(found: Any) -> str:
    """`; write 0.1 without quotes` for a number that is given as a string, or nothing."""
    try:
        is_meant = isinstance(found, str) and math.isfinite(float(found))
    except ValueError:
        return ""
    return f"; write {found.strip()} without quotes" if is_meant else ""


def is_number(found: Any, *, whole: bool = False) -> bool:
    """A finite number that a float can hold, or a whole one of at most 64 bits; True and False are none.

    1e4 is a whole number too; the caller converts it.
    """
    if isinstance(found, bool) or not isinstance(found, (int, float, np.integer, np.floating)):
        return False
    if whole:
        number = as_whole(found)
        return number is not None and abs(number) <= MAX_WHOLE
    try:
        return math.isfinite(float(found))
    except OverflowError:  # an integer beyond float64
        return False


def as_whole(found: Any) -> int | None:
    """A whole number, of whatever type and size it is, as an int; None for anything else."""
    if isinstance(found, (int, np.integer)) and not isinstance(found, bool):
        return int(found)
    if isinstance(found, (float, np.floating)) and found.is_integer():
        return int(found)
    return None


def check_count(argument: str, found: Any, least: int, otherwise: str = "") -> int:
    """A whole number; `otherwise` says what else may be given, which the caller has looked for."""
    if not is_number(found, whole=True) or found < least:
        raise ArgumentError(
            f"{argument}: found {shown(found)}, wanted a whole number of at least {least}{otherwise}"
            f"{number_in_quotes(found)}"
        )
    return int(found)


def check_flag(argument: str, found: Any) -> None:
    """True or False; 0 and 1 pass for them."""
    if not isinstance(found, (int, np.integer, np.bool_)) or found not in (0, 1):
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted True or False")


def check_path(argument: str, found: Any) -> str:
    """A path that the system can be asked about; whether anything is there does not matter here."""
    try:
        path = os.fspath(found)
        if isinstance(path, str) and path and b"\0" not in os.fsencode(path):
            return path
    except Exception:  # not a path, or one that cannot be written in the system's encoding
        pass
    raise ArgumentError(f"{argument}: found {shown(found)}, wanted a path")


class Default:
    """A default that differs from every value; `help` shows its word."""

    def __init__(self, word: str) -> None:
        self._word = word

    def __repr__(self) -> str:
        return f"<{self._word}>"


P = ParamSpec("P")
R = TypeVar("R")


def suggest_options(function: Callable[P, R]) -> Callable[P, R]:
    """Turn an unknown option into an ArgumentError with its name here, or the nearest name."""
    parameters = inspect.signature(function).parameters
    known = [name for name, p in parameters.items() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                called = type(args[0]).__name__ if function.__name__ == "__init__" else function.__qualname__
                listed = ", ".join(name for name in known if name not in ("self", "_"))
                wanted = option_alias(name, known) or f"one of {listed}{nearest(name, known)}"
                raise ArgumentError(f"{called}: found the option {name!r}, wanted {wanted}")
        return function(*args, **kwargs)

    return checked


def check_callable(fun: Any, wanted: str = "a function of one point, or a Command") -> None:
    """Raises ArgumentError for an objective that cannot be called."""
    if callable(fun):
        return
    called = fun is None or is_number(fun) or isinstance(fun, np.ndarray)
    hint = "; pass the function itself, such as f, not its result f(x)" if called else ""
    raise ArgumentError(f"fun: found {shown(fun)}, wanted {wanted}{hint}")


def check_one_argument(fun: Callable[..., Any], d: int, names: Sequence[str] | None) -> None:
    """Raises ArgumentError for a function that cannot be called with one point.

    names: of the parameters, if the point is a dict.
    """
    try:
        signature = inspect.signature(fun)
    except Exception:  # of a class of the user's own, or written in C: the first call will tell
        return
    try:
        signature.bind(None)
        return
    except TypeError:
        pass
    needed = [
        name for name, p in signature.parameters.items() if p.default is p.empty and p.kind not in _VARIADIC
    ]
    if not needed:
        raise ArgumentError("fun: found a function without arguments, wanted a function of one point")
    if names is not None and set(needed) <= set(names):
        hint = "pass lambda p: fun(**p)"
    elif names is None and len(needed) == d:
        hint = "pass lambda x: fun(*x)"
    else:
        hint = f"pass lambda x: fun(x, {', '.join(f'{name}=...' for name in needed[1:])})"
    point = "a dict" if names is not None else "an array"
    listed = ", ".join(needed) if len(needed) <= 5 else f"{', '.join(needed[:4])}, ..."
    raise ArgumentError(
        f"fun: found a function of {len(needed)} arguments ({listed}), wanted a function of one point, "
        f"which is {point}; {hint}"
    )


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_callback(callback: Any) -> None:
    if callback is not None and not callable(callback):
        raise ArgumentError(f"callback: found {shown(callback)}, wanted a function of one View, or None")


def floats(argument: str, found: Any, wanted: str) -> NDArray[np.float64]:
    """A float64 copy; what is not made of real numbers is refused (NumPy itself would take "1" or 1 + 0j)."""
    try:
        array = np.asarray(found)
        if array.dtype.kind not in "fiu":
            raise TypeError
        return array.astype(np.float64)
    except Exception:  # an object of the user's own may raise anything
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted {wanted}") from None


# -- Option names of other libraries, and what to write here instead.


#: (our option, other names, what to write); for functions that have the option.
_HABITS = (
    ("sigma", ("step",), "sigma= (how far to look at first) or multiple_of= (the width of its steps)"),
    ("lower", ("low", "lb", "min"), "lower="),
    ("upper", ("high", "ub", "max"), "upper="),
    ("log", ("scale", "log_scale", "logarithmic"), "log=True for a log scale"),
    # Of an Integer: a Real has both.
    ("lower", ("log",), "fmnes.Real(1, 12, log=True), which the simulation rounds"),
    ("lower", ("multiple_of",), "fmnes.Real(0, 12, multiple_of=2)"),
    (
        "names",
        ("scales",),
        "names= alone: a scale is the parameter's, such as {'k': fmnes.Real(0.1, 10, log=True)}",
    ),
    ("rng", ("seed", "random_state", "random_seed"), "rng= (a seed, or a NumPy Generator)"),
    (
        "max_evaluations",
        ("maxfev", "maxfun", "maxfevals", "max_nfev", "max_evals", "budget", "n_calls", "n_trials"),
        "max_evaluations=",
    ),
    (
        "max_evaluations",
        ("maxiter", "max_iter", "maxit", "niter", "n_iter", "iterations", "max_iterations", "generations"),
        "max_evaluations= (it counts evaluations; a generation has population_size of them)",
    ),
    ("max_seconds", ("maxtime", "max_time", "time_limit"), "max_seconds="),
    ("target", ("ftarget", "f_target", "f_min", "stopval"), "target="),
    ("xtol", ("tol", "xatol", "tolx"), "xtol= (of the steps) or ftol= (of the values)"),
    ("ftol", ("fatol", "tolfun"), "ftol="),
    ("population_size", ("popsize", "pop_size", "lam", "lambda_"), "population_size="),
    ("sigma0", ("sigma", "step", "stepsize", "step_size", "std"), "sigma0= (how far to look at first)"),
    ("x0", ("mean", "start", "initial", "guess"), "x0="),
    (
        "x0",
        ("space", "search_space", "parameters", "params", "dimensions"),
        "them in the place of x0, such as {'width': fmnes.Real(0.1, 10)}",
    ),
    ("integers", ("integrality",), "integers="),
    ("overlap", ("ahead",), "overlap="),
    ("workers", ("n_jobs", "processes", "num_workers", "max_workers"), "workers= (-1: one for each core)"),
    (
        "progress",
        ("verbose", "disp", "display", "verbosity"),
        "progress=True; the logger 'fmnes' of Python's logging says more",
    ),
    ("method", ("algorithm", "strategy", "optimizer", "solver"), "method="),
    (
        "method",
        ("options",),
        "each by itself, such as max_evaluations=1000, or a method's own as method=fmnes.CMAES(...)",
    ),
    (
        "fun",
        ("args", "kwargs", "fargs"),
        "a function of x alone: lambda x: fun(x, a, b), or functools.partial(fun, b=...)",
    ),
    (
        "constraints",
        ("constraint", "nonlinear_constraint", "limits"),
        "constraints= (limits on outputs, such as {'stress': (None, 250.0)})",
    ),
    ("fun", ("jac", "hess", "hessp", "gradient"), "fun alone: no derivatives are used"),
    ("fun", ("maximize", "direction"), "fun to return what is to be minimised, such as -value"),
)


def option_alias(name: str, known: Container[str]) -> str:
    """What to write for an option that is not among the known ones; empty if there is no hint."""
    for ours, others, wanted in _HABITS:
        if name in others and ours in known:
            return wanted
    return ""


def check_choice(argument: str, found: object, wanted: Sequence[str]) -> None:
    if not isinstance(found, str) or found not in wanted:
        listed = ", ".join(repr(w) for w in wanted)
        hint = nearest(found, wanted) if isinstance(found, str) else ""
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted one of {listed}{hint}")
