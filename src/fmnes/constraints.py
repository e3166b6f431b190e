"""Limits on reported outputs: the argument `constraints`, and what an evaluation is worth under it.

An output is a named number that the objective reports beside its value. A limit becomes one or two numbers
g ≤ 0, or one number h = 0 for equal limits; `search/constrained.py` searches with these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes._equality import EqualByValue
from fmnes._text import short
from fmnes.arguments import is_number, number_in_quotes, shown
from fmnes.errors import ArgumentError, nearest
from fmnes.outcome import Outcome, WrongType, infeasible

Floats = NDArray[np.float64]

#: Tolerance of equal limits, as a share of the limit (or by itself, if the limit is 0).
EQUALITY_TOLERANCE = 1e-4
#: More limits than an evaluation can have outputs are not meant.
MAX_CONSTRAINTS = 1000
#: The fault of an evaluation without the output that a limit is on.
NO_OUTPUT = "no such output"
#: Excesses beyond this are as good as it: no square of a step overflows into another one's.
_LARGEST = 1e300
_WANTED = "wanted limits by the name of an output, such as {'stress': (None, 250.0)}"


@dataclass(frozen=True)
class Constraint:
    """Limits on an output that the objective reports beside its value.

    Parameters
    ----------
    lower : float, optional
        The output must be at least this; None: no lower limit.
    upper : float, optional
        The output must be at most this. The same number as `lower` makes it an equality.
    tolerance : float, optional
        By how much a limit may be exceeded, in the unit of the output. By default 0, and for an equality 1e-4
        of the limit (1e-4 if the limit is 0).

    Raises
    ------
    ArgumentError
        A limit is not a number, there is none, or they are crossed.

    Examples
    --------
    >>> import fmnes
    >>> limits = {"stress": fmnes.Constraint(upper=250.0), "angle": fmnes.Constraint(10, 10, tolerance=0.1)}
    >>> def beam(x):
    ...     return x[0] * x[1], {"stress": 1000 / (x[0] * x[1] ** 2), "angle": x[0] + x[1]}
    >>> result = fmnes.minimize(beam, [5.0, 5.0], 1.0, constraints=limits, rng=1)
    >>> result.feasible
    True
    """

    lower: float | None = None
    upper: float | None = None
    tolerance: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _settle(self, "lower", _limit("lower", self.lower, -math.inf))
        _settle(self, "upper", _limit("upper", self.upper, math.inf))
        if self.lower is None and self.upper is None:
            raise ArgumentError("constraint: found no limit, wanted lower=, upper= or both")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ArgumentError(
                f"constraint: found the limits {self.lower:g} and {self.upper:g}, which no output satisfies; "
                "wanted the lower limit first"
            )
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = 0.0
            if self.is_equality:
                tolerance = EQUALITY_TOLERANCE * (abs(self.lower or 0.0) or 1.0)
        elif not is_number(tolerance) or not 0 <= tolerance < math.inf:
            raise ArgumentError(
                f"constraint: found the tolerance {shown(tolerance)}, wanted a number from 0 on"
                f"{number_in_quotes(tolerance)}"
            )
        _settle(self, "tolerance", float(tolerance))

    @property
    def is_equality(self) -> bool:
        """Whether both limits are the same number."""
        return self.lower is not None and self.lower == self.upper


def _settle(constraint: Constraint, name: str, value: Any) -> None:
    object.__setattr__(constraint, name, value)


def _limit(name: str, found: Any, nothing: float) -> float | None:
    """One limit; an infinite one that excludes nothing is none."""
    if found is None or (isinstance(found, (float, np.floating)) and found == nothing):
        return None
    if not is_number(found):
        raise ArgumentError(
            f"constraint: found {name} = {shown(found)}, wanted a number or None{number_in_quotes(found)}"
        )
    return float(found)


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintResult(EqualByValue):
    """An output with limits, at the point that a run returns.

    Attributes
    ----------
    value : float
        The output there.
    lower, upper : float or None
        Its limits.
    tolerance : float
        By how much they may be exceeded.
    satisfied : bool
        Whether the output is within its limits.
    active : bool
        Whether a limit holds the optimum back: without it the search would go on beyond it.
    multiplier : float
        About how much lower `fun` would be for each unit by which the limit is relaxed; 0 if it is not
        active. For an equality: for each unit by which the limit is raised, so it may be negative.

    Examples
    --------
    >>> import fmnes
    >>> def plate(p):
    ...     return p["t"] + p["w"] ** 2, {"stress": 1 / p["t"]}
    >>> space = {"t": fmnes.Real(1, 4), "w": fmnes.Real(-1, 2)}
    >>> result = fmnes.minimize(plate, space, constraints={"stress": (None, 0.5)}, rng=1)
    >>> stress = result.constraints["stress"]
    >>> round(stress.value, 3), stress.satisfied, stress.active
    (0.5, True, True)
    """

    value: float
    lower: float | None
    upper: float | None
    tolerance: float
    satisfied: bool
    active: bool
    multiplier: float

    @property
    def limits(self) -> str:
        """The limits in words."""
        return limits_in_words(self.lower, self.upper)

    def as_json(self) -> dict[str, Any]:
        """Return plain data that `json.dumps` accepts.

        Returns
        -------
        dict
            Each field by name.
        """
        return {name: getattr(self, name) for name in self.__slots__}


def limits_in_words(lower: float | None, upper: float | None) -> str:
    """Such as "at most 250"."""
    if lower is None:
        return f"at most {upper:g}"
    if upper is None:
        return f"at least {lower:g}"
    return f"equal to {upper:g}" if lower == upper else f"from {lower:g} to {upper:g}"


class Limits:
    """The constraints of a search, in the order in which the user gave them.

    Their numbers g are one or two for each constraint: an equality, or its upper and its lower limit.
    `equality` says which of them are equalities, `owner` which constraint each is of, `sign` the sign of the
    output in it.
    """

    def __init__(self, constraints: Mapping[str, Constraint], named: bool = True) -> None:
        self.constraints = dict(constraints)
        self.names = tuple(self.constraints)
        self.named = named
        """Whether the user gave names; else outputs are a list, named here."""
        rows = [
            row for i, c in enumerate(self.constraints.values()) for row in _rows(i, c)
        ]  # owner, sign, limit, tolerance, equality
        owner, sign, limit, tolerance, equality = zip(*rows, strict=True)
        self.owner: NDArray[np.intp] = np.array(owner, dtype=np.intp)
        self.sign: Floats = np.array(sign)
        self.limit: Floats = np.array(limit)
        self.tolerance: Floats = np.array(tolerance)
        self.equality: NDArray[np.bool_] = np.array(equality, dtype=bool)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def size(self) -> int:
        """The number of numbers g."""
        return len(self.owner)

    def excess(self, outputs: Floats) -> Floats:
        """The numbers g of outputs, above 0 where a limit (with its tolerance) is exceeded. (n, k) -> (n, m)

        Of an equality: its difference from the limit, of either sign.
        """
        with np.errstate(all="ignore"):  # huge outputs, and NaN for failed evaluations
            g = self.sign * (outputs[:, self.owner] - self.limit)
            g = np.clip(g, -_LARGEST, _LARGEST)
            return np.where(self.equality, g, g - self.tolerance)

    def violation(self, g: Floats) -> Floats:
        """By how much each is violated, 0 where it is satisfied. (n, m)"""
        with np.errstate(invalid="ignore"):
            beyond = np.where(self.equality, np.maximum(np.abs(g) - self.tolerance, 0.0), np.maximum(g, 0.0))
        return beyond

    def satisfied(self, g: Floats) -> NDArray[np.bool_]:
        """Which points satisfy all; never those of failed evaluations. (n,)"""
        satisfied: NDArray[np.bool_] = np.asarray((self.violation(g) <= 0.0).all(axis=1))
        return satisfied

    def row(self, outcome: Outcome) -> Floats:
        """The outputs of an evaluation, NaN if it has no value. (k,)"""
        if outcome.status != "value":
            return np.full(len(self), np.nan)
        outputs = outcome.outputs or {}
        return np.array([float(outputs[name]) for name in self.names])

    def check(self, outcome: Outcome) -> Outcome:
        """The outcome; a failed one if an output is missing, or is no finite number."""
        if outcome.status != "value":
            return outcome
        outputs = outcome.outputs or {}
        for name in self.names:
            value = outputs.get(name)
            if (type(value) is float or isinstance(value, (int, float))) and math.isfinite(value):
                continue
            reason, fault = _complaint(name, outputs, self.named)
            failed = infeasible(reason, fault=fault)
            return Outcome(
                failed.status, failed.value, failed.reason, failed.fault, "", outcome.seconds,
                outcome.remembered, outcome.outputs,
            )  # fmt: skip
        return outcome

    def name_outputs(self, returned: Any) -> Any:
        """What an objective returned, with names for a list of outputs."""
        if not isinstance(returned, (tuple, list)) or len(returned) != 2:
            return returned
        value, found = returned
        if isinstance(found, Mapping):
            return returned
        if self.named:
            if isinstance(found, (tuple, list, np.ndarray)):
                raise WrongType(
                    f"the objective returned {shown(found)} beside its value; wanted a dict with the names "
                    f"of the constraints, such as {{{short(self.names[0], 60)!r}: 1.0}}"
                )
            return returned
        try:
            outputs = [x.item() if isinstance(x, np.generic) else x for x in np.asarray(found).ravel()]
        except Exception:  # of the user's own class it may be anything
            outputs = []
        if len(outputs) != len(self):
            raise WrongType(
                f"the objective returned {shown(found)} beside its value; wanted {len(self)} outputs, one "
                "for each of the constraints"
            )
        return value, dict(zip(self.names, outputs, strict=True))

    def report(self, outputs: Floats, multipliers: Floats) -> dict[str, ConstraintResult]:
        """The constraints at a point with these outputs (k,); multipliers: (m,)."""
        g = self.excess(outputs[None])
        violated = self.violation(g)[0] > 0
        found = {}
        for i, (name, c) in enumerate(self.constraints.items()):
            mine = np.flatnonzero(self.owner == i)
            cost = multipliers[mine]
            largest = float(cost[np.abs(cost).argmax()])
            found[name] = ConstraintResult(
                float(outputs[i]),
                c.lower,
                c.upper,
                float(c.tolerance or 0.0),
                not bool(violated[mine].any()),
                largest != 0,
                largest,
            )
        return found

    def violated(self, outputs: Mapping[str, Any], n: int) -> NDArray[np.bool_]:
        """Which rows of columns of outputs violate a limit; missing numbers violate none. (n,)"""
        columns = np.full((n, len(self)), np.nan)
        for i, name in enumerate(self.names):
            if name in outputs and np.asarray(outputs[name]).dtype.kind in "fiub":
                columns[:, i] = outputs[name]
        beyond: NDArray[np.bool_] = np.asarray((self.violation(self.excess(columns)) > 0).any(axis=1))
        return beyond

    @classmethod
    def of_results(cls, found: Mapping[str, ConstraintResult] | None) -> Limits | None:
        """The limits in `Result.constraints`."""
        if not found:
            return None
        return cls({name: Constraint(c.lower, c.upper, tolerance=c.tolerance) for name, c in found.items()})

    # -- on disk

    def as_json(self) -> dict[str, Any]:
        """Plain data for `config.json` and snapshots."""
        rows = [[name, c.lower, c.upper, c.tolerance] for name, c in self.constraints.items()]
        return {"named": self.named, "limits": rows}

    @classmethod
    def from_json(cls, data: Any) -> Limits:
        """Raises ArgumentError, or what data of another shape raises."""
        constraints = {
            str(name): Constraint(lower, upper, tolerance=tolerance)
            for name, lower, upper, tolerance in data["limits"]
        }
        if not constraints or len(constraints) != len(data["limits"]) or type(data["named"]) is not bool:
            raise ArgumentError(f"constraints: found {shown(data)}, wanted limits with names")
        return cls(constraints, data["named"])


def _rows(i: int, c: Constraint) -> Iterable[tuple[int, float, float, float, bool]]:
    tolerance = float(c.tolerance or 0.0)
    if c.is_equality:
        yield i, 1.0, float(c.upper or 0.0), tolerance, True
        return
    if c.upper is not None:
        yield i, 1.0, c.upper, tolerance, False
    if c.lower is not None:
        yield i, -1.0, c.lower, tolerance, False


def _complaint(name: str, outputs: Mapping[str, Any], named: bool) -> tuple[str, str]:
    """Why an output is none, and the fault: only a NaN may be the point's own."""
    what = f"the output {short(name, 60)!r}"
    if name not in outputs:
        if not outputs:
            wanted = "return (value, {name: output})" if named else "return (value, [output, ...])"
            return f"{what} is missing: nothing was reported beside the value; {wanted}", NO_OUTPUT
        there = ", ".join(short(other, 60) for other in list(outputs)[:10])
        return f"{what} is missing; reported: {there}{nearest(name, outputs)}", NO_OUTPUT
    value = outputs[name]
    if isinstance(value, float):
        return f"{what} is {'NaN' if math.isnan(value) else value}", ""
    return f"{what} is {shown(value)}, wanted a number", NO_OUTPUT


def read_constraints(found: Any) -> Limits | None:
    """The argument `constraints`, checked; None: there are none. Raises ArgumentError."""
    if found is None or isinstance(found, Limits):
        return found
    if isinstance(found, (Mapping, Sequence)) and not isinstance(found, (str, bytes)):
        named = isinstance(found, Mapping)
        if len(found) > MAX_CONSTRAINTS:
            raise ArgumentError(
                f"constraints: found {len(found)}, wanted at most {MAX_CONSTRAINTS}; report the largest "
                "violation of those that are alike as one output"
            )
        pairs = list(found.items()) if isinstance(found, Mapping) else _numbered(found)
        limits = {_name(name): _constraint(name, limit) for name, limit in pairs}
        return Limits(limits, named) if limits else None
    raise ArgumentError(f"constraints: found {shown(found)}, {_WANTED}")


def _numbered(found: Sequence[Any]) -> list[tuple[str, Any]]:
    if len(found) == 2 and all(limit is None or is_number(limit) for limit in found):
        raise ArgumentError(f"constraints: found the limits {shown(found)} without a name; {_WANTED}")
    return [(f"g{i}", limit) for i, limit in enumerate(found)]


def _name(found: Any) -> str:
    if not isinstance(found, str) or not found.strip():
        raise ArgumentError(f"constraints: found the name {shown(found)}, {_WANTED}")
    return found


def _constraint(name: str, found: Any) -> Constraint:
    if isinstance(found, Constraint):
        return found
    if isinstance(found, (tuple, list)) and len(found) == 2:
        try:
            return Constraint(*found)
        except ArgumentError as error:
            what = str(error).removeprefix("constraint: ")
            raise ArgumentError(f"constraints: {short(name, 60)}: {what}") from None
    raise ArgumentError(
        f"constraints: found {shown(found)} for {short(name, 60)!r}, wanted a pair (lower, upper) such as "
        "(None, 250.0), or fmnes.Constraint(...)"
    )


def read_constraint_results(data: Any) -> dict[str, ConstraintResult] | None:
    """What `ConstraintResult.as_json` wrote, by name. Raises what data of another shape raises."""
    if data is None:
        return None
    found = {}
    for name, fields in dict(data).items():
        lower, upper = (None if fields[key] is None else float(fields[key]) for key in ("lower", "upper"))
        found[str(name)] = ConstraintResult(
            float(fields["value"]),
            lower,
            upper,
            float(fields["tolerance"]),
            bool(fields["satisfied"]),
            bool(fields["active"]),
            float(fields["multiplier"]),
        )
    return found
