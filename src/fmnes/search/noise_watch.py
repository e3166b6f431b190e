"""Noise in a search: how it is detected, how large it is, and when the search takes smaller steps for it.

The best point is evaluated again after 10, 20, 40, … generations. When its value differs, every fifth
generation evaluates one of its points twice. The difference, relative to the spread of the values of that
generation, is the level of the noise; above LEVEL the learning rates follow the signal-to-noise ratio
(`noise.py`), and the search follows a response surface (`response.py`). With models the last point is
evaluated again instead, and above LEVEL the models step aside. Which points are evaluated again depends on
counters only: the random numbers of the search stay the same.
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
from fmnes.search.generation import BEST, LAST, Generation, Repeat
from fmnes.search.response import MAX_DIMENSION, Record
from fmnes.storage.snapshot import Saved, count, shaped
from fmnes.strategies import DEFAULT_METHOD

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

Floats = NDArray[np.float64]

#: The best point is evaluated again after this number of generations, and after each doubling of it, …
FIRST_CHECK = 10
#: … with models, which evaluate few points at a time, after this number of evaluations.
FIRST_CHECK_WITH_MODELS = 50
#: With models, where noise was seen or is expected: the last point is evaluated again after this number of
#: evaluations, …
FIRST_ALONE = 10
#: … until there are this number of differences, after this number of further ones, and then after this one.
LEAST_DIFFERENCES, SOON_WITH_MODELS, EVERY_WITH_MODELS = 3, 3, 10
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
#: Averages are kept in fewer blocks than this, of a length that doubles when they are full. An even number.
BLOCKS = 64
#: Fewer generations do not show that nothing is gained any more.
LEAST_GENERATIONS = 128
#: Generations whose values are averaged for an estimate of the present value.
RECENT = 10
#: The averages of two quarters differ if by more than this multiple of the standard error.
ERRORS = 1.0
#: Golden ratio: its multiples, modulo 1, fall evenly into all slots of a generation.
_GOLDEN = (math.sqrt(5.0) - 1) / 2


class Mean(NamedTuple):
    """An average of values, and its standard error."""

    mean: float
    error: float


@dataclass
class Course:
    """Averages of the values of the generations of a search, and whether they still fall.

    Single values say nothing where noise hides the differences; averages over many generations do.
    """

    first: float = math.inf
    """The average of the first generation."""
    length: int = 1
    """Generations in a block."""
    blocks: list[float] = field(default_factory=list)
    """Their averages, since noise was seen."""
    last_block: list[float] = field(default_factory=list)
    """The averages of the generations of an incomplete block."""
    last: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """The average and the number of values of the last generations."""

    def add(self, average: float, n: int, noisy: bool) -> None:
        """Add the average of n values of a generation. noisy: noise was seen."""
        if not math.isfinite(average):
            return
        if math.isinf(self.first):
            self.first = average
        self.last.append((average, n))
        if not noisy:
            return
        self.last_block.append(average)
        if len(self.last_block) < self.length:
            return
        self.blocks.append(math.fsum(a / self.length for a in self.last_block))
        self.last_block = []
        if len(self.blocks) == BLOCKS:
            self.blocks = [a / 2 + b / 2 for a, b in zip(self.blocks[::2], self.blocks[1::2], strict=True)]
            self.length *= 2

    @property
    def generations(self) -> int:
        """Generations since noise was seen."""
        return self.length * len(self.blocks) + len(self.last_block)

    @property
    def recent(self) -> Mean:
        """The average of the last generations; NaN before the first."""
        if not self.last:
            return Mean(math.nan, math.nan)
        averages = np.array([average for average, _ in self.last])
        with np.errstate(all="ignore"):  # values near the largest number
            error = float(averages.std(ddof=1)) / math.sqrt(len(averages)) if len(averages) > 1 else math.nan
            return Mean(float(averages.mean()), error)

    @property
    def settled(self) -> bool:
        """Whether the last quarter is not lower than the quarter before by more than its error."""
        quarter = len(self.blocks) // 4
        if self.generations < LEAST_GENERATIONS or quarter < 4:
            return False
        last = np.array(self.blocks[len(self.blocks) - 3 * quarter :])
        second, third, fourth = last.reshape(3, quarter)
        return _difference(third, fourth) <= ERRORS and _difference(second, third) <= 2 * ERRORS

    @property
    def ended(self) -> bool:
        """Whether it has settled at a doubling of its length: without a limit the search stops there."""
        return len(self.blocks) == BLOCKS // 2 and not self.last_block and self.length > 2 and self.settled

    @property
    def counts(self) -> list[int]:
        return [self.length, len(self.blocks), len(self.last_block), *(n for _, n in self.last)]

    @property
    def numbers(self) -> Floats:
        return np.array([self.first, *self.blocks, *self.last_block, *(a for a, _ in self.last)], dtype=float)

    @classmethod
    def restore(cls, counts: list[Any], numbers: NDArray[Any]) -> Course:
        length, n_blocks, n_last, *sizes = map(count, counts)
        first, *rest = shaped(numbers, (1 + n_blocks + n_last + len(sizes),)).tolist()
        if not all(map(math.isfinite, rest)) or math.isnan(first):
            raise SnapshotError("averages that are not finite")
        if not (length >= 1 and n_last < length and n_blocks < BLOCKS and len(sizes) <= RECENT):
            raise SnapshotError(f"a course of {n_blocks} blocks of {length}")
        averages = rest[n_blocks + n_last :]
        last = deque(zip(averages, sizes, strict=True), maxlen=RECENT)
        return cls(first, length, rest[:n_blocks], rest[n_blocks : n_blocks + n_last], last)


def _difference(before: Floats, after: Floats) -> float:
    """How much lower the average is afterwards, as a multiple of the standard error."""
    with np.errstate(all="ignore"):  # values near the largest number
        fall = float(before.mean() - after.mean())
        error = math.sqrt(float(before.var(ddof=1) + after.var(ddof=1)) / len(before))
    if not math.isfinite(fall):
        return math.inf
    return fall / error if error > 0 else (math.inf if fall > 0 else 0.0)


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
    next_alone_at: int = FIRST_ALONE
    """Evaluations after which a search with models evaluates its last point again, if it samples."""
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
    record: Record = field(default_factory=Record)
    """The last points of the present search, since noise was seen or is expected."""

    @property
    def slows_down(self) -> bool:
        """Is the noise large enough for smaller learning rates?"""
        return self.seen and self.level > LEVEL

    @property
    def hides_order(self) -> bool:
        """Is the noise certainly too large for models that order single values?"""
        return self.slows_down and len(self.differences) >= LEAST_DIFFERENCES

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
        self.course, self.record = Course(), Record()

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
        if self.sampled:
            last = self.record.table[-1] if self.record.n else np.array([math.nan])
            due = search.evaluations >= self.next_alone_at and math.isfinite(last[-1])
            return Repeat(LAST, float(last[-1]), last[:-1]) if due else None
        if search.evaluations < self.next_check * FIRST_CHECK_WITH_MODELS // FIRST_CHECK:
            return None
        return self._best_again(search)

    def _best_again(self, search: Optimizer) -> Repeat | None:
        best = search._best
        if best.x is None or not best.evaluation:  # a known value may come from another machine
            return None
        return Repeat(BEST, best.fun, best.x)

    def compare(self, search: Optimizer, current: Generation) -> None:
        """Take the two values of a point that a complete generation evaluated again."""
        repeat = current.repeat
        if repeat is None:
            return
        values = current.f[: current.size]
        pair = Pair(repeat.value if repeat.slot < 0 else float(values[repeat.slot]), float(current.f[-1]))
        self.compared += 1
        if repeat.slot == BEST:
            self.next_check *= 2
        if repeat.slot == LAST:
            few = len(self.differences) < LEAST_DIFFERENCES
            self.next_alone_at = search.evaluations + (SOON_WITH_MODELS if few else EVERY_WITH_MODELS)
        if not (math.isfinite(pair.first) and math.isfinite(pair.again)):
            return
        difference = pair.first / 2 - pair.again / 2
        differs = 2 * abs(difference) > ROUNDING * max(abs(pair.first), abs(pair.again))
        if differs and not self.seen:
            self.seen, self.found, self.found_at = True, pair, search.evaluations
            self.sampled = True
        difference = min(max(2 * difference, -LARGEST), LARGEST)
        if repeat.slot == BEST:  # the luckiest value: its difference is larger than others
            return
        self.differences.append(difference if differs else 0.0)
        if repeat.slot == LAST:
            d = current.x.shape[1]
            typical = math.fsum(abs(each) / len(self.differences) for each in self.differences)
            self.level = _share(typical, self.record.table[-(2 * d + 10) :, -1])
            return
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

    def record_points(self, x: Floats, values: Floats) -> None:
        """Keep points and their values, if noise was seen or is expected."""
        if self.seen or self.sampled:
            self.record.add(x, values)

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
        counts, table = self.record.dump()
        metadata = {
            "seen": self.seen,
            "sampled": self.sampled,
            "counts": [self.generations, self.next_check, self.next_alone_at, self.compared, self.found_at],
            "course": self.course.counts,
            "record": counts,
        }
        found = (math.nan, math.nan) if self.found is None else self.found
        arrays = {
            "noise.numbers": np.array([self.level, *found]),
            "noise.differences": np.array(self.differences, dtype=float),
            "noise.course": self.course.numbers,
            "noise.record": table,
        }
        return {"noise": metadata}, arrays

    @classmethod
    def restore(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> NoiseWatch:
        saved = metadata["noise"]
        if type(saved["seen"]) is not bool or type(saved["sampled"]) is not bool:
            raise SnapshotError(f"noise that is {saved['seen']!r} and {saved['sampled']!r}")
        generations, next_check, next_alone_at, compared, found_at = map(count, saved["counts"])
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
            next_alone_at=next_alone_at,
            compared=compared,
            level=level,
            found=Pair(first, again) if saved["seen"] else None,
            found_at=found_at,
            differences=deque(differences.tolist(), maxlen=DIFFERENCES),
            course=Course.restore(saved["course"], arrays["noise.course"]),
            record=Record.restore(saved["record"], arrays["noise.record"]),
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


def noisy(search: Optimizer) -> bool:
    """Whether values at the same point differ."""
    return search.noise is not None and search.noise.seen


def fits_response(search: Optimizer) -> bool:
    """Whether a search fits a response surface to its points: all coordinates are real, and few."""
    start = search._start
    few = len(start.x0) <= MAX_DIMENSION
    return few and start.grid is None and start.choices is None and search._surrogate is None
