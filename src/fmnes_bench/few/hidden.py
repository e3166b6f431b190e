"""Problems with hidden constraints from the literature, and boxes with a small working part.

Sources: Gelbart, Snoek & Adams 2014 (arXiv:1403.5607); Müller & Day 2019 (10.1287/ijoc.2018.0864), test
problems 1, 2 and 8, all as Bussemaker et al. 2025 use them (8 has a larger working part than the original).
There is a box and no start. Every optimum is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Boxed(NamedTuple):
    """An objective in a box; `optimum` is the infimum of its values, `at` a point where it is approached."""

    d: int
    value: Callable[[Array], float]
    works: Callable[[Array], bool]
    lower: float
    upper: float
    optimum: float
    at: Array

    def fun(self, x: Array) -> float:
        """The value, NaN where the evaluation fails."""
        inside = (x >= self.lower).all() and (x <= self.upper).all()
        return self.value(x) if inside and self.works(x) else math.nan


def _branin(x: Array) -> float:
    """The Branin function, on the unit square."""
    a, b = 15 * x[0] - 5, 15 * x[1]
    bowl = b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6
    return float(bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10)


def gelbart() -> Boxed:
    """Branin, which fails outside of a disk that holds one of its three minima."""
    at = np.array([(math.pi + 5) / 15, 2.275 / 15])
    return Boxed(2, _branin, lambda x: bool(((x - 0.5) ** 2).sum() <= 0.22), 0.0, 1.0, 10 / (8 * math.pi), at)


def _ackley(x: Array) -> float:
    near = 20 * math.exp(-0.2 * math.sqrt((x**2).mean()))
    return float(20 + math.e - near - math.exp(np.cos(2 * math.pi * x).mean()))


def muller_1() -> Boxed:
    """Ackley's function; failing slabs |x_i| <= 0.2, and several failing regions. 30 % of the box works."""
    at = np.array([-3.0672590717752857, -0.2, -0.2, -0.2, -0.2])

    def works(x: Array) -> bool:
        return bool((np.abs(x) > 0.2).all() and (x * (np.sin(x) + 0.1)).sum() <= 0)

    return Boxed(5, _ackley, works, -10.0, 10.0, 6.015470941299117, at)


def _bird(x: Array) -> float:
    first = math.exp((1 - math.sin(x[0])) ** 2) * math.cos(x[1])
    second = math.exp((1 - math.cos(x[1])) ** 2) * math.sin(x[0])
    return float((x[0] - x[1]) ** 2 + first + second)


def muller_2() -> Boxed:
    """The bird function of two of four parameters, which all decide what fails. 63 % of the box works."""
    at = np.array([4.70104313, 3.15293848, 0.0, 0.0])

    def works(x: Array) -> bool:
        minus, plus = np.sqrt(np.abs(x[0] - x + 1)), np.sqrt(np.abs(x[0] + x + 1))
        terms = x * np.sin(minus) * np.cos(plus) + (x[0] + 1) * np.sin(plus) * np.cos(minus)
        return bool(terms.sum() <= 5)

    return Boxed(4, _bird, works, -3 * math.pi, 3 * math.pi, -106.76453674926479, at)


def muller_8() -> Boxed:
    """Sums of sines with many minima in each of ten parameters. 27 % of the box works."""
    j = np.arange(1, 6)[:, None]

    def value(x: Array) -> float:
        return float((j * np.sin((j + 1) * x) + j).sum())

    def works(x: Array) -> bool:
        return bool((x**4 - 16 * x**2 + 5 * x).sum() <= 1000 * len(x))

    return Boxed(10, value, works, -10.0, 10.0, 10 * 1.1854674995377948, np.full(10, -0.3129087083790149))


def small_part(d: int, edge: float) -> Boxed:
    """A sphere in the unit box, which works only where every parameter is above `edge`."""
    at = np.full(d, edge + 0.1 * (1 - edge))
    return Boxed(
        d, lambda x: float(((x - at) ** 2).sum()), lambda x: bool(x.min() >= edge), 0.0, 1.0, 0.0, at
    )


HIDDEN: dict[str, Callable[[], Boxed]] = {
    "gelbart": gelbart,
    "muller-1": muller_1,
    "muller-2": muller_2,
    "muller-8": muller_8,
}
#: By the share of the box that works.
BOXES: dict[str, Callable[[], Boxed]] = {
    "0.1 %": lambda: small_part(3, 0.9),
    "0.24 %": lambda: small_part(5, 0.7),
    "1.6 %": lambda: small_part(3, 0.75),
}
