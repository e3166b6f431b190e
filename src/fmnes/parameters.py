"""Parameters in the user's words: a range, a start, a scale, choices. `space.py` makes numbers of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np

from fmnes.arguments import MAX_WHOLE, check_flag, is_number, number_in_quotes, shown, suggest_options
from fmnes.errors import ArgumentError, nearest

#: What a table of a problem file, or of a run directory, may say of a parameter.
KEYS = ("lower", "upper", "start", "sigma", "log", "multiple_of", "integer", "choices")
#: Most choices of a category: each is tried before a search ends.
MAX_CHOICES = 1000


class Parameter:
    """A `Real`, an `Integer` or a `Categorical`."""

    lower: float | None
    upper: float | None
    start: float | None
    sigma: float | None

    def __repr__(self) -> str:
        """What was said of it, as it may be said again."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        ends = [repr(said.pop(name)) for name in ("lower", "upper")]
        while ends and ends[-1] == "None":
            ends.pop()
        more = [f"{name}={value!r}" for name, value in said.items() if value not in (None, False)]
        return f"{type(self).__name__}({', '.join([*ends, *more])})"


@dataclass(frozen=True, repr=False)
class Real(Parameter):
    """A parameter that takes real numbers, in the user's units.

    Parameters
    ----------
    lower : float, optional
        Lower bound, which may be reached; None for none.
    upper : float, optional
        Upper bound, which may be reached; None for none.
    start : float, optional
        Where to begin; by default the middle (on a log scale the geometric mean).
    sigma : float, optional
        First step size, about the distance to the best value; on a log scale a factor above 1. By default a
        quarter of the range, less if there are more than ten parameters.
    log : bool, optional
        Search on a log scale, for values that are positive and may vary by a factor of ten or more.
    multiple_of : float, optional
        Use only multiples of this number, such as 0.25.

    Raises
    ------
    ArgumentError
        The numbers do not fit together, or `start` and `sigma` are missing without finite bounds.

    Examples
    --------
    >>> import fmnes
    >>> fmnes.Real(0.1, 10, log=True)  # start and sigma follow from the bounds
    Real(0.1, 10.0, log=True)
    >>> fmnes.Real(start=3.0, sigma=0.5)  # no bounds
    Real(start=3.0, sigma=0.5)
    >>> fmnes.Real(lower=0, start=1.0, sigma=0.2)  # one bound
    Real(0.0, start=1.0, sigma=0.2)
    """

    lower: float | None = None
    upper: float | None = None
    _: KW_ONLY
    start: float | None = None
    sigma: float | None = None
    log: bool = False
    multiple_of: float | None = None

    def __post_init__(self) -> None:
        check_flag("Real (log)", self.log)
        object.__setattr__(self, "log", bool(self.log))
        _settle(self)
        if self.multiple_of is None:
            return
        if self.log:
            raise ArgumentError(
                f"Real: found log=True together with multiple_of={self.multiple_of!r}; wanted one of them"
            )
        if not self.multiple_of > 0:
            raise ArgumentError(f"Real: found multiple_of={self.multiple_of!r}, wanted a positive number")
        _check_on_grid(self, self.multiple_of)


@dataclass(frozen=True, repr=False)
class Integer(Parameter):
    """A parameter that takes whole numbers.

    Parameters
    ----------
    lower : int, optional
        Lower bound, which may be reached; None for none.
    upper : int, optional
        Upper bound, which may be reached; None for none.
    start : int, optional
        Where to begin; by default the middle.
    sigma : float, optional
        First step size; by default as in `fmnes.Real`.

    Raises
    ------
    ArgumentError
        The numbers are not whole, or do not fit together.

    Examples
    --------
    >>> import fmnes
    >>> fmnes.Integer(1, 12, start=4)
    Integer(1, 12, start=4)
    """

    lower: int | None = None
    upper: int | None = None
    _: KW_ONLY
    start: int | None = None
    sigma: float | None = None

    def __post_init__(self) -> None:
        _settle(self)
        for name in ("lower", "upper", "start"):
            number = getattr(self, name)
            if number is None:
                continue
            if name != "start" and number != int(number):  # of a start the grid says which are near
                raise ArgumentError(f"Integer: found {name}={number!r}, wanted a whole number")
            if abs(float(number)) > MAX_WHOLE:  # the nearest float is what is searched, and kept as 64 bits
                raise ArgumentError(f"Integer: found {name}={shown(number)}, wanted -2**63 to 2**63")
        _check_on_grid(self, 1)


class Choices(int):
    """The number of choices of a category: the entry of `integers` for a coordinate that numbers them.

    The coordinate takes 0, 1, … and its bounds are −1/2 and n − 1/2, so that rounding gives each choice the
    same share.
    """


@dataclass(frozen=True, repr=False, eq=False)
class Categorical(Parameter):
    """A parameter that takes one of several choices without an order, such as a material or a solver.

    Parameters
    ----------
    choices : sequence of str, int, float, bool or None
        The choices, from 2 to 1,000 different ones. Objects such as functions are looked up by name:
        `{"rk4": rk4, "euler": euler}[p["solver"]]`.
    start : str, int, float or bool, optional
        The choice of the first point that is evaluated, by default the first one. All choices are equally
        likely in the generation after it.

    Raises
    ------
    ArgumentError
        There are fewer than two choices, or too many, or two are equal, or `start` is not one of them.

    Examples
    --------
    >>> import fmnes
    >>> space = {"material": fmnes.Categorical(["steel", "aluminium"]), "width": fmnes.Real(1, 10)}
    >>> def mass(p):
    ...     density, least = {"steel": (7.8, 2), "aluminium": (2.7, 3)}[p["material"]]
    ...     return density * p["width"] if p["width"] > least else None
    >>> result = fmnes.minimize(mass, space, rng=1)
    >>> result.x["material"], round(result.fun, 6)
    ('aluminium', 8.1)
    """

    choices: tuple[Any, ...]
    _: KW_ONLY
    start: Any = None

    lower = upper = sigma = None

    def __init__(self, choices: Iterable[Any], *, start: Any = None) -> None:
        object.__setattr__(self, "choices", _read_choices(choices))
        object.__setattr__(self, "start", None if start is None else self.choices[self.index(start, "start")])

    def index(self, choice: Any, name: str = "choice") -> int:
        """Return the position of a choice.

        Parameters
        ----------
        choice : str, int, float, bool or None
            One of the choices.
        name : str, optional
            What the message calls it.

        Returns
        -------
        int
            From 0 on.

        Raises
        ------
        ArgumentError
            It is none of the choices; 1 is neither "1" nor True.
        """
        keys = [_key(one) for one in self.choices]
        if _is_choice(choice) and _key(choice) in keys:
            return keys.index(_key(choice))
        listed = ", ".join(map(repr, self.choices[:10])) + (", ..." if len(self.choices) > 10 else "")
        alike = [one for one in self.choices if str(one) == str(choice)]
        hint = f"; did you mean {alike[0]!r}?" if alike else nearest(str(choice), map(str, self.choices))
        raise ArgumentError(f"Categorical: found {name}={shown(choice)}, wanted one of {listed}{hint}")

    def __repr__(self) -> str:
        more = "" if self.start is None else f", start={self.start!r}"
        return f"Categorical({list(self.choices)!r}{more})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Categorical):
            return NotImplemented
        return [*map(_key, self.choices), _key(self.start)] == [*map(_key, other.choices), _key(other.start)]

    def __hash__(self) -> int:
        return hash((*map(_key, self.choices), _key(self.start)))


def _is_choice(found: Any) -> bool:
    number = isinstance(found, (int, float, np.number)) and bool(np.isfinite(found))
    return found is None or isinstance(found, (str, bool, np.bool_)) or number


def _key(choice: Any) -> tuple[str, Any]:
    """Equal for equal choices: 1 and 1.0 are one choice, 1, True and "1" are three."""
    if isinstance(choice, (bool, np.bool_)):
        return "flag", bool(choice)
    return ("text" if isinstance(choice, str) else "number" if choice is not None else "none"), choice


def positions(p: Categorical, choices: Iterable[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The positions of many choices; NaN for what is none. (n,)"""
    known = {_key(one): float(i) for i, one in enumerate(p.choices)}
    return np.array([known.get(_key(one), math.nan) for one in choices], dtype=np.float64)


def _read_choices(found: Any) -> tuple[Any, ...]:
    wanted = "a list of at least two different ones, such as ['steel', 'aluminium']"
    try:
        if isinstance(found, (str, bytes, Mapping, set, frozenset)):
            raise TypeError
        choices = tuple(one.item() if isinstance(one, np.generic) else one for one in found)
    except Exception:  # what iteration raises is up to the object
        hint = "; a set has no order of its own: sort it" if isinstance(found, (set, frozenset)) else ""
        raise ArgumentError(f"Categorical: found choices={shown(found)}, wanted {wanted}{hint}") from None
    if len(choices) < 2:
        what = f"one choice, {shown(choices[0])}" if choices else "no choices"
        fixed = "; what is fixed is no parameter: leave it out" if choices else ""
        raise ArgumentError(f"Categorical: found {what}, wanted {wanted}{fixed}")
    if len(choices) > MAX_CHOICES:
        raise ArgumentError(
            f"Categorical: found {len(choices)} choices, wanted at most {MAX_CHOICES}, as each has to be "
            "tried; search for the numbers that describe them (a density, a stiffness) as fmnes.Real, or for "
            f"the position in an ordered list as fmnes.Integer(0, {len(choices) - 1})"
        )
    seen: set[Any] = set()
    for one in choices:
        if not _is_choice(one):
            raise ArgumentError(
                f"Categorical: found the choice {shown(one)}, wanted text, finite numbers, True, False or "
                "None; give objects names, and look them up: {'rk4': rk4}[p['solver']]"
            )
        if _key(one) in seen:
            raise ArgumentError(f"Categorical: found the choice {shown(one)} twice, wanted different ones")
        seen.add(_key(one))
    return choices


# A decorator of the class would hide its signature from `help` and from type checkers.
for _class in (Real, Integer, Categorical):
    _class.__init__ = suggest_options(_class.__init__)  # type: ignore[method-assign]


def _settle(p: Parameter) -> None:
    """Numbers as Python's own, infinite bounds as none; raises ArgumentError for what cannot be meant."""
    kind = type(p).__name__
    for field in fields(p):  # type: ignore[arg-type]
        found = getattr(p, field.name)
        if found is None or field.name == "log":
            continue
        if isinstance(found, float) and found == {"lower": -math.inf, "upper": math.inf}.get(field.name):
            object.__setattr__(p, field.name, None)
            continue
        if not is_number(found):
            hint = number_in_quotes(found)
            if not hint and isinstance(found, (str, list, tuple, set)) and field.name == "lower":
                hint = f"; {CATEGORIES}"
            raise ArgumentError(f"{kind}: found {field.name}={shown(found)}, wanted a number{hint}")
        number = float(found)
        if isinstance(p, Integer) and field.name != "sigma" and number == int(number):
            number = int(found)
        object.__setattr__(p, field.name, number)
    _check_range(p, kind)


def _check_range(p: Parameter, kind: str) -> None:
    log = is_log(p)
    lower, upper, start, sigma = p.lower, p.upper, p.start, p.sigma
    if log:
        for name, value in (("lower", lower), ("upper", upper), ("start", start)):
            if value is not None and not value > 0:
                raise ArgumentError(
                    f"{kind}: found {name}={value!r} on a log scale, which has no place for it; wanted a "
                    "positive number, or log=False"
                )
    if lower is not None and upper is not None and not lower < upper:
        how = "equal" if lower == upper else "crossed"
        raise ArgumentError(
            f"{kind}: found lower={lower!r} and upper={upper!r} ({how}), wanted lower < upper"
            + ("; what is fixed is no parameter: leave it out" if lower == upper else "")
        )
    if start is not None and not (-math.inf if lower is None else lower) <= start <= (
        math.inf if upper is None else upper
    ):
        raise ArgumentError(
            f"{kind}: found start={start!r} outside of its bounds {_interval(p)}, wanted it inside"
        )
    if sigma is not None and not sigma > (1 if log else 0):
        wanted = "a factor above 1 (log scale)" if log else "a positive number"
        raise ArgumentError(f"{kind}: found sigma={sigma!r}, wanted {wanted}")
    if sigma is not None and start is not None and not log and start + sigma == start:
        raise ArgumentError(
            f"{kind}: found sigma={sigma!r}, too small to change start={start!r}; wanted about the distance "
            "to the best value"
        )
    if lower is None or upper is None:
        missing = [name for name in ("start", "sigma") if getattr(p, name) is None]
        if missing:
            raise ArgumentError(
                f"{kind}: found {_interval(p)} and no {' and no '.join(missing)}; wanted start= and sigma=, "
                "or lower and upper, from which they follow"
            )


def _interval(p: Parameter) -> str:
    if p.lower is None and p.upper is None:
        return "no bounds"
    return f"[{'-inf' if p.lower is None else p.lower}, {'inf' if p.upper is None else p.upper}]"


def _check_on_grid(p: Parameter, width: float) -> None:
    kind = type(p).__name__
    grid = "whole numbers" if isinstance(p, Integer) else f"multiples of {width!r}"
    first, last = grid_bounds(p)
    if first is not None and last is not None and not first < last:
        raise ArgumentError(
            f"{kind}: found bounds {_interval(p)}, which hold fewer than two {grid}; wanted a wider range"
        )
    if p.start is not None and Fraction(str(p.start)) % Fraction(str(width)):
        below = Fraction(str(p.start)) // Fraction(str(width)) * Fraction(str(width))
        near = f"{float(below):g} or {float(below + Fraction(str(width))):g}"
        raise ArgumentError(f"{kind}: found start={p.start!r}, wanted one of its {grid}, such as {near}")


def is_log(p: Parameter) -> bool:
    return isinstance(p, Real) and p.log


def width_of(p: Parameter) -> float:
    """From one value to the next; 0 where any real number will do."""
    return 1.0 if isinstance(p, Integer) else getattr(p, "multiple_of", None) or 0.0


def grid_bounds(p: Parameter) -> tuple[float | None, float | None]:
    """The bounds of a parameter; of a discrete one its first and last value.

    As decimal fractions: 0.3 is a multiple of 0.1, which it is not in binary.
    """
    width = width_of(p)
    if not width:
        return p.lower, p.upper
    step = Fraction(str(width))
    first = None if p.lower is None else float(-(-Fraction(str(p.lower)) // step) * step)
    last = None if p.upper is None else float(Fraction(str(p.upper)) // step * step)
    return first, last


#: What to write for choices.
CATEGORIES = (
    "choices without an order are written as fmnes.Categorical(['steel', 'aluminium']), and the position in "
    "an ordered list as fmnes.Integer(0, n - 1)"
)

#: What to write for a key that other programs have.
_HINTS = {
    **dict.fromkeys(("values", "categories"), "write choices = [...] for choices without an order"),
    "step": "write sigma (the first step size) or multiple_of (the distance between allowed values)",
    "scale": "write log = true for a log scale",
}


def read_parameter(name: str, table: Mapping[str, Any]) -> Parameter:
    """The parameter that a table of a problem file, or of a run directory, describes."""
    data = dict(table)
    for key in data:
        if key not in KEYS:
            hint = f"; {_HINTS[key]}" if key in _HINTS else nearest(key, KEYS)
            raise ArgumentError(f"{name}: found the key {key!r}, wanted one of {', '.join(KEYS)}{hint}")
    if "choices" in data:
        if others := [key for key in data if key not in ("choices", "start")]:
            raise ArgumentError(f"{name}: found choices and {others[0]} together, wanted one of them")
        try:
            return Categorical(data["choices"], start=data.get("start"))
        except ArgumentError as error:
            raise ArgumentError(f"{name}: {error}") from None
    integer = data.pop("integer", False)
    if not isinstance(integer, bool):
        raise ArgumentError(f"{name}: found integer = {shown(integer)}, wanted true or false")
    if integer:
        if data.pop("log", False):
            raise ArgumentError(
                f"{name}: found integer and log together; wanted one of them (a log parameter may be rounded "
                "in the program)"
            )
        if data.pop("multiple_of", None) is not None:
            raise ArgumentError(f"{name}: found integer and multiple_of together, wanted one of them")
    try:
        return Integer(**data) if integer else Real(**data)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from None


def table_of(p: Parameter) -> dict[str, Any]:
    """What `read_parameter` makes the parameter of again; JSON data."""
    if isinstance(p, Categorical):
        start = {} if p.start is None else {"start": p.start}
        return {"choices": list(p.choices), **start}
    table = {field.name: getattr(p, field.name) for field in fields(p)}  # type: ignore[arg-type]
    said = {key: value for key, value in table.items() if value is not None and value is not False}
    return {**said, "integer": True} if isinstance(p, Integer) else said
