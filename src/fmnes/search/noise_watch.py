"""Noise in a search: how it is detected, how large it is, and when the search takes smaller steps for it.

The best point is evaluated again after 10, 20, 40, … generations. When its value differs, every fifth
generation evaluates one of its points twice. The difference, relative to the spread of the values of that
generation, is the level of the noise; above LEVEL the learning rates follow the signal-to-noise ratio
(`noise.py`). Which points are evaluated again depends on counters only: the random numbers of the search stay
the same.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import shown
from fmnes.errors import ArgumentError, SnapshotError
from fmnes.result import Noise
from fmnes.search.course import Course
from fmnes.search.generation import Generation, Repeat
from fmnes.search.saved import Saved, count, shaped
from fmnes.strategies import DEFAULT_METHOD

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

Floats = NDArray[np.float64]

#: The best point is evaluated again after this number of generations, and after each doubling of it, …
FIRST_CHECK = 10
#: … with models, which evaluate few points at a time, after this number of evaluations.
FIRST_CHECK_WITH_MODELS = 50
#: Where noise was seen, one generation in this number evaluates one point twice.
EVERY = 5
#: Values that differ by less than this share of them are equal: sums in another order give that much.
ROUNDING = 1e-12
#: Above this share of the spread of a generation's values the noise slows the search down.
LEVEL = 0.3
#: The weight of the newest difference in the level.
WEIGHT = 0.2
#: Differences that the standard deviation is estimated from: it may depend on the point.
DIFFERENCES = 20
#: The search has gained something if its values have fallen by this multiple of the standard deviation.
VISIBLE_GAIN = 5.0
#: Differences are at most this, so that their squares have a sum.
LARGEST = 1e300
#: Golden ratio: its multiples, modulo 1, fall evenly into all slots of a generation.
_GOLDEN = (math.sqrt(5.0) - 1) / 2


class Pair(NamedTuple):
    """Two values at one point."""

    first: float
    again: float


@dataclass
class NoiseWatch:
    """What the searches of a run know about the noise of their objective."""

    seen: bool = False
    """Does a value at the same point differ?"""
    sampled: bool = False
    """Does every fifth generation evaluate a point twice?"""
    generations: int = 0
    """Generations so far, of all searches."""
    next_check: int = FIRST_CHECK
    """Generations, or with models evaluations, after which the best point is evaluated again."""
    compared: int = 0
    """Points evaluated twice."""
    level: float = math.nan
    """Noise as a share of the spread of values, smoothed; NaN before the first comparison in a generation."""
    found: Pair | None = None
    """The first values that differed."""
    found_at: int = 0
    """The number of evaluations then."""
    differences: deque[float] = field(default_factory=lambda: deque(maxlen=DIFFERENCES))
    """The last differences of two values at one point."""
    course: Course = field(default_factory=Course)
    """The averages of the generations of the present search."""

    @property
    def slows_down(self) -> bool:
        """Is the noise large enough for smaller learning rates?"""
        return self.seen and self.level > LEVEL

    @property
    def deviation(self) -> float:
        """The standard deviation of one evaluation; NaN if there is no estimate."""
        differences = list(self.differences)
        if not differences and self.found is not None:
            differences = [min(abs(self.found.first / 2 - self.found.again / 2), LARGEST / 2) * 2]
        return math.hypot(*differences) / math.sqrt(2 * len(differences)) if differences else math.nan

    @property
    def converged(self) -> bool:
        """Has the mean of the values fallen visibly, and does it fall no more than its error?"""
        gained = self.course.first - self.course.recent.mean
        return self.course.settled and gained > VISIBLE_GAIN * self.deviation

    def begin_search(self) -> None:
        """A restart begins: what is known about the noise stays."""
        self.course = Course()

    def next_repeat(self, search: Optimizer, x: Floats, open: NDArray[np.bool_] | None) -> Repeat | None:
        """Return which point is evaluated again beside the points x of a generation; None: none.

        open: which of them are evaluated; None: all.
        """
        if self.sampled:
            slot = int(self.compared * _GOLDEN % 1.0 * len(x))
            due = self.generations % EVERY == 0 and (open is None or bool(open[slot]))
            return Repeat(slot, math.nan, x[slot]) if due else None
        return self._best_again(search) if self.generations >= self.next_check else None

    def next_alone(self, search: Optimizer) -> Repeat | None:
        """Return the point that a search with models evaluates again before its next points; None: none."""
        if self.seen or search.evaluations < self.next_check * FIRST_CHECK_WITH_MODELS // FIRST_CHECK:
            return None
        return self._best_again(search)

    def _best_again(self, search: Optimizer) -> Repeat | None:
        best = search._best
        if best.x is None or not best.evaluation:  # a known value may come from another machine
            return None
        return Repeat(-1, best.fun, best.x)

    def compare(self, search: Optimizer, current: Generation) -> None:
        """Take the two values of a point that a complete generation evaluated again."""
        repeat = current.repeat
        if repeat is None:
            return
        values = current.f[: current.size]
        pair = Pair(repeat.value if repeat.slot < 0 else float(values[repeat.slot]), float(current.f[-1]))
        self.compared += 1
        if repeat.slot < 0:
            self.next_check *= 2
        if not (math.isfinite(pair.first) and math.isfinite(pair.again)):
            return
        difference = pair.first / 2 - pair.again / 2
        differs = 2 * abs(difference) > ROUNDING * max(abs(pair.first), abs(pair.again))
        if differs and not self.seen:
            self.seen, self.found, self.found_at = True, pair, search.evaluations
            self.sampled = self.sampled or not current.only_repeat
        difference = min(max(2 * difference, -LARGEST), LARGEST)
        if repeat.slot < 0:  # the luckiest value: its difference is larger than others
            return
        self.differences.append(difference if differs else 0.0)
        share = _share(abs(difference), values) if differs else 0.0
        self.level = share if math.isnan(self.level) else (1 - WEIGHT) * self.level + WEIGHT * share

    def note_values(self, first: float, again: Floats, evaluations: int) -> None:
        """Take values of a point that had another value before, if one of them differs."""
        finite = again[np.isfinite(again)]
        with np.errstate(over="ignore"):
            other = finite[np.abs(finite - first) > ROUNDING * np.maximum(np.abs(finite), abs(first))]
        self.compared += 1
        if len(other) and not self.seen:
            self.seen, self.found, self.found_at = True, Pair(first, float(other[0])), evaluations

    def add(self, values: Floats) -> None:
        """Add the values of the draws of a complete generation."""
        self.generations += 1
        finite = values[np.isfinite(values)]
        if len(finite):
            with np.errstate(over="ignore"):
                self.course.add(float(finite.mean()), len(finite), self.seen)

    def summary(self) -> Noise | None:
        """The noise as a result has it; None if no value differed."""
        if self.found is None:
            return None
        return Noise(
            standard_deviation=self.deviation,
            level=None if math.isnan(self.level) else self.level,
            compared=self.compared,
            found=(
                f"evaluation {self.found_at} gave {self.found.again:.9g} at a point that had given "
                f"{self.found.first:.9g}"
            ),
        )

    # -- saving

    def dump(self) -> Saved:
        metadata = {
            "seen": self.seen,
            "sampled": self.sampled,
            "counts": [self.generations, self.next_check, self.compared, self.found_at],
            "course": self.course.counts,
        }
        found = (math.nan, math.nan) if self.found is None else self.found
        arrays = {
            "noise.numbers": np.array([self.level, *found]),
            "noise.differences": np.array(self.differences, dtype=float),
            "noise.course": self.course.numbers,
        }
        return {"noise": metadata}, arrays

    @classmethod
    def restore(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> NoiseWatch:
        saved = metadata["noise"]
        if type(saved["seen"]) is not bool or type(saved["sampled"]) is not bool:
            raise SnapshotError(f"noise that is {saved['seen']!r} and {saved['sampled']!r}")
        generations, next_check, compared, found_at = map(count, saved["counts"])
        level, first, again = shaped(arrays["noise.numbers"], (3,)).tolist()
        differences = arrays["noise.differences"]
        if not np.isfinite(shaped(differences, (differences.size,))).all() or next_check < FIRST_CHECK:
            raise SnapshotError("noise without finite differences")
        if saved["seen"] != math.isfinite(first) or math.isfinite(first) != math.isfinite(again):
            raise SnapshotError("noise that was seen without two values")
        return cls(
            seen=saved["seen"],
            sampled=saved["sampled"],
            generations=generations,
            next_check=next_check,
            compared=compared,
            level=level,
            found=Pair(first, again) if saved["seen"] else None,
            found_at=found_at,
            differences=deque(differences.tolist(), maxlen=DIFFERENCES),
            course=Course.restore(saved["course"], arrays["noise.course"]),
        )


def _share(difference: float, values: Floats) -> float:
    """A difference as a share of the interquartile range of values, at most 1."""
    finite = values[np.isfinite(values)]
    if len(finite) < 4:
        return 1.0
    with np.errstate(over="ignore"):
        low, high = 2 * np.percentile(finite / 2, [25, 75])
    width = float(high / 2 - low / 2)
    return min(1.0, difference / 2 / width) if width > 0 else 1.0


# -- The argument `noise`


def make_watch(search: Optimizer, noise: Literal["auto"] | bool) -> NoiseWatch | None:
    """Return the watch of a new search; None: it takes values as exact. Raises ArgumentError."""
    if isinstance(noise, str) and noise == "auto":
        return None if why_not(search) else NoiseWatch()
    if not isinstance(noise, (bool, np.bool_)):
        raise ArgumentError(f'noise: found {shown(noise)}, wanted True, False or "auto"')
    if not noise:
        return None
    if reason := why_not(search):
        raise ArgumentError(f"noise: found True {reason}")
    return NoiseWatch(sampled=True)


def why_not(search: Optimizer) -> str:
    """Return why a search cannot watch the noise, as the end of a message; empty: it can."""
    start = search._start
    if start.strategy.name != DEFAULT_METHOD:
        name = start.strategy.name
        return f'with the method {name!r}, wanted "{DEFAULT_METHOD}": published methods stay as they are'
    if start.repeats:
        return "where every coordinate is discrete, and no point is evaluated twice; wanted False"
    if search.limits is not None:
        return "together with constraints, whose values are taken as exact; wanted False"
    if search.overlap_scheduler is not None:
        return "together with overlap; wanted one of the two"
    return ""


def single_target(search: Optimizer) -> float | None:
    """Return the target that one value reaches; None where the values are noisy, or there is none."""
    return None if search.noise is not None and search.noise.seen else search.target
