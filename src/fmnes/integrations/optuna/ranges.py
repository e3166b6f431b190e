"""Optuna's distributions as parameters, and the search space of a study."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from fmnes.arguments import is_number, shown
from fmnes.errors import ArgumentError
from fmnes.parameters import MAX_CHOICES, Categorical, Integer, Parameter, Real

# -- Conversion between Optuna's distributions and fmnes parameters, and of their values.
#
# A step becomes an `Integer` that counts steps, so that values lie on the user's grid; an integer on a log
# scale becomes a `Real` that is rounded; a category becomes a `Categorical` of positions.


Ranges = dict[str, BaseDistribution]

#: Ranges narrower than this part of their ends have too few numbers in them to be searched.
_FINEST = 1e-12
#: How far a value may be from the one that was handed out, as a part of its size and of the range. Other
#: machines round differently, and some databases do too.
_SAME = 1e-9


def is_searched(distribution: BaseDistribution) -> bool:
    """Numbers and choices with something to choose from; all else is the independent sampler's."""
    if isinstance(distribution, CategoricalDistribution):
        choices = distribution.choices
        plain = all(choice is None or isinstance(choice, (str, int, float)) for choice in choices)
        return plain and 2 <= len(choices) <= MAX_CHOICES
    if not isinstance(distribution, (FloatDistribution, IntDistribution)) or distribution.single():
        return False
    low, high = float(distribution.low), float(distribution.high)
    if distribution.log:
        low, high = math.log(low), math.log(high)
    width = high / 2 - low / 2  # halves: the whole may be too large for floating point
    return math.isfinite(width) and width > _FINEST * max(abs(low), abs(high))


def parameters_of(
    ranges: Mapping[str, BaseDistribution], starts: Mapping[str, Any], shares: Mapping[str, float]
) -> dict[str, Parameter]:
    """As our search has them, with a start where there is one, and a first step that is a share of the range
    (of its logarithm on a log scale)."""
    parameters: dict[str, Parameter] = {}
    for name, distribution in ranges.items():
        start = starts.get(name)
        if isinstance(distribution, CategoricalDistribution):
            first = _position(distribution, start) if name in starts else None
            if name in starts and first is None:
                raise ArgumentError(f"x0: found {name} = {shown(start)}, wanted a choice of {distribution}")
            parameters[name] = Categorical(range(len(distribution.choices)), start=first)
            continue
        if start is not None and not (is_number(start) and distribution.low <= start <= distribution.high):  # type: ignore[attr-defined]
            raise ArgumentError(f"x0: found {name} = {shown(start)}, wanted a number inside {distribution}")
        parameters[name] = _parameter(distribution, start, shares.get(name))
    return parameters


def _parameter(distribution: Any, start: float | None, share: float | None) -> Parameter:
    low, high = distribution.low, distribution.high
    if distribution.log:
        if isinstance(distribution, IntDistribution):
            low, high = low - 0.5, high + 0.5
        sigma = None if share is None else math.exp(share * (math.log(high) - math.log(low)))
        return Real(low, high, start=start, sigma=sigma, log=True)
    if _counts_steps(distribution):
        low, high = 0, round((high - low) / distribution.step)
        start = None if start is None else (start - distribution.low) / distribution.step
    sigma = None if share is None else share * high - share * low
    if isinstance(distribution, IntDistribution) or _counts_steps(distribution):
        return Integer(low, high, start=None if start is None else round(start), sigma=sigma)
    return Real(low, high, start=start, sigma=sigma)


def _position(distribution: CategoricalDistribution, choice: Any) -> int | None:
    """The position of a choice; None: it is none of them."""
    try:
        return int(distribution.to_internal_repr(choice))
    except ValueError:
        return None


def _counts_steps(distribution: Any) -> bool:
    return distribution.step is not None and not (
        isinstance(distribution, IntDistribution) and distribution.step == 1
    )


def values_of(ranges: Mapping[str, BaseDistribution], point: Mapping[str, Any]) -> dict[str, Any]:
    """A point of our search as Optuna's users see it: on their grid, and inside to the last bit."""
    return {name: _value(distribution, point[name]) for name, distribution in ranges.items()}


def _value(distribution: Any, found: Any) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[found]
    low, high = distribution.low, distribution.high
    if isinstance(distribution, IntDistribution):
        value = low + int(found) * distribution.step if _counts_steps(distribution) else round(found)
    elif distribution.step is not None:
        # As decimal numbers: users expect 0.1 + 2 · 0.1 to be 0.3.
        value = float(Decimal(str(low)) + int(found) * Decimal(str(distribution.step)))
    else:
        value = found
    return min(max(value, low), high)


class PointMatch(Enum):
    """What a trial has to do with a point."""

    SAME = "it evaluated the point"
    OUTSIDE = "it could not: the point lies outside of the trial's own ranges"
    OTHER = "it evaluated another one"


def match_point(
    ranges: Mapping[str, BaseDistribution], values: Mapping[str, Any], trial: FrozenTrial
) -> PointMatch:
    """A trial that failed early may lack some of the values."""
    kin = PointMatch.SAME
    for name, distribution in ranges.items():
        found, wanted = trial.params.get(name), values[name]
        if isinstance(distribution, CategoricalDistribution):
            if name in trial.params and _position(distribution, found) != _position(distribution, wanted):
                given = trial.distributions[name]
                if not isinstance(given, CategoricalDistribution) or _position(given, wanted) is not None:
                    return PointMatch.OTHER
                kin = PointMatch.OUTSIDE
            continue
        if found is None or found == wanted:
            continue
        low, high = distribution.low, distribution.high  # type: ignore[attr-defined]
        spare = _SAME * (high - low) if math.isfinite(high - low) else 0.0
        if is_number(found) and math.isclose(found, wanted, rel_tol=_SAME, abs_tol=spare):
            continue
        own: Any = trial.distributions[name]
        if not hasattr(own, "low") or own.low <= wanted <= own.high:
            return PointMatch.OTHER
        kin = PointMatch.OUTSIDE
    return kin


def start_near(
    trials: Iterable[FrozenTrial], ranges: Mapping[str, BaseDistribution], sign: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """A start, and the first steps as shares of the ranges, from trials of another study: its best point, and
    how far the best tenth of its points lay from that."""
    found = [t for t in trials if t.state is TrialState.COMPLETE and is_inside(ranges, t.params)]
    found = [t for t in found if t.value is not None and math.isfinite(t.value)]
    if not found:
        raise ArgumentError(
            "source_trials: found none that is complete and inside the search space, wanted at least one"
        )
    found.sort(key=lambda trial: (sign * (trial.value or 0.0), trial.number))
    best = found[: max(len(ranges) + 2, math.ceil(len(found) / 10))]
    starts = {name: best[0].params[name] for name in ranges}
    shares = {}
    for name, distribution in ranges.items():
        if isinstance(distribution, CategoricalDistribution):
            continue
        places = [_place(distribution, t.params[name]) for t in best]
        spread = math.sqrt(sum((place - places[0]) ** 2 for place in places) / len(places))
        shares[name] = min(max(spread, _LEAST_SHARE), _MOST_SHARE)
    return starts, shares


#: The first steps of a warm start, as parts of the range.
_LEAST_SHARE, _MOST_SHARE = 0.01, 0.25


def is_inside(ranges: Mapping[str, BaseDistribution], params: Mapping[str, Any]) -> bool:
    """Has it a value for each of these, in its range?"""
    return all(
        name in params and _contains(distribution, params[name]) for name, distribution in ranges.items()
    )


def _contains(distribution: Any, value: Any) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return _position(distribution, value) is not None
    return is_number(value) and bool(distribution.low <= value <= distribution.high)


def _place(distribution: Any, value: float) -> float:
    """Where in the range, from 0 to 1."""
    scale = math.log if distribution.log else float
    low, high = scale(distribution.low), scale(distribution.high)
    return (scale(value) / 2 - low / 2) / (high / 2 - low / 2)


# -- The search space of a study: the parameters that all complete trials share, with the same range.
#
# Two differences from Optuna's intersection: a study without complete trials has a space as soon as one trial
# has failed, and a range that the user changed comes back with its new ends.


#: A changed range is searched after this many complete trials with it; a range that changes more often
#: depends on other parameters.
SETTLED = 10


class Spaces:
    """Takes in finished trials in any order; the space depends on which there are, not on their order."""

    def __init__(self) -> None:
        self._complete = 0
        self._having: Counter[str] = Counter()
        """How many of the complete trials asked for each name."""
        self._ranges: Ranges = {}
        """The first range that was seen of each name."""
        self._changing: set[str] = set()
        self._latest: list[tuple[int, Ranges]] = []
        """The last complete trials by their numbers, and their ranges."""
        self._failed: tuple[int, int, Ranges] = (0, 0, {})
        """Of the trial that asked for most among those that did not complete."""
        self._space: Ranges | None = None

    def add(self, trial: FrozenTrial) -> None:
        if trial.state is not TrialState.COMPLETE:
            found = (len(trial.distributions), -trial.number, trial.distributions)
            if not self._complete and found[:2] > self._failed[:2]:
                self._failed, self._space = found, None
            return
        self._complete += 1
        bisect.insort(self._latest, (trial.number, trial.distributions), key=lambda pair: pair[0])
        del self._latest[:-SETTLED]
        for name, distribution in trial.distributions.items():
            self._having[name] += 1
            first = self._ranges.setdefault(name, distribution)
            if first is not distribution and first != distribution:
                self._changing.add(name)
        common = {name for name, n in self._having.items() if n == self._complete}
        if self._complete == 1 or self._changing or self._space is None or not common >= set(self._space):
            self._space = None

    @property
    def space(self) -> Ranges:
        """Sorted by name."""
        if self._space is None:
            space = self._failed[2] if not self._complete else self._common()
            self._space = {name: space[name] for name in sorted(space) if is_searched(space[name])}
        return self._space

    def _common(self) -> Ranges:
        common: dict[str, Any] = {
            name: self._latest[-1][1][name] for name, n in self._having.items() if n == self._complete
        }
        return {name: found for name, found in common.items() if self._is_settled(name, found)}

    def _is_settled(self, name: str, found: Any) -> bool:
        return name not in self._changing or all(ranges[name] == found for _, ranges in self._latest)
