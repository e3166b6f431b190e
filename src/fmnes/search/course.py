"""The course of a noisy search: averages of the values of its generations, and whether they still fall.

Single values say nothing where noise hides the differences; averages over many generations do. They are kept
in fewer than BLOCKS blocks of equal length, which doubles when the blocks are full.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import SnapshotError
from fmnes.search.saved import count, shaped

Floats = NDArray[np.float64]

#: Most blocks; an even number.
BLOCKS = 64
#: Fewer generations do not show that nothing is gained any more.
LEAST_GENERATIONS = 128
#: Generations whose values are averaged for an estimate of the present value.
RECENT = 10
#: The averages of two quarters differ if by more than this multiple of the standard error.
ERRORS = 1.0


class Mean(NamedTuple):
    """An average of values, and its standard error."""

    mean: float
    error: float


@dataclass
class Course:
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
