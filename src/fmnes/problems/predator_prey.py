"""A small simulation that really fails: fit the four rates of a predator–prey model to observed populations.

The integration has a fixed step. For part of the space it blows up, or one species dies out: there is no
error to measure then, as with any simulation that crashes. It is what `fmnes demo` minimises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fmnes.errors import Infeasible

NAMES = ("prey birth", "predation", "predator death", "predator growth")
TRUE_RATES = (1.0, 0.1, 1.5, 0.075)
#: Where a user might start: right in sign, wrong in everything else.
START = np.array([1.6, 0.25, 0.8, 0.2])
SIGMA = np.array([0.6, 0.08, 0.6, 0.08])

_STEP = 0.01
_STEPS = 600
_EXPLODED, _EXTINCT = 1e6, 1.0


def simulate(rates: Sequence[float]) -> list[tuple[float, float]]:
    """Prey and predators over time, by Runge and Kutta's method."""
    birth, predation, death, growth = (float(rate) for rate in rates)
    for name, rate in zip(NAMES, (birth, predation, death, growth), strict=True):
        if rate <= 0:
            raise Infeasible(f"{name} rate is not positive")

    def slope(prey: float, predators: float) -> tuple[float, float]:
        return prey * (birth - predation * predators), predators * (growth * prey - death)

    prey, predators = 10.0, 5.0
    populations = []
    for _ in range(_STEPS):
        a, b = slope(prey, predators)
        c, d = slope(prey + _STEP / 2 * a, predators + _STEP / 2 * b)
        e, f = slope(prey + _STEP / 2 * c, predators + _STEP / 2 * d)
        g, h = slope(prey + _STEP * e, predators + _STEP * f)
        prey += _STEP / 6 * (a + 2 * c + 2 * e + g)
        predators += _STEP / 6 * (b + 2 * d + 2 * f + h)
        # NaN fails both comparisons, so it is caught here as well.
        if not (prey < _EXPLODED and predators < _EXPLODED):
            raise Infeasible("the integration blew up")
        if not (prey > _EXTINCT and predators > _EXTINCT):
            raise Infeasible("a species died out")
        populations.append((prey, predators))
    return populations


_OBSERVED = simulate(TRUE_RATES)


def misfit(rates: Sequence[float]) -> float:
    """Mean squared difference of the logarithms to the observed populations."""
    pairs = zip(simulate(rates), _OBSERVED, strict=True)
    total = sum(
        math.log(prey / seen_prey) ** 2 + math.log(predators / seen_predators) ** 2
        for (prey, predators), (seen_prey, seen_predators) in pairs
    )
    return total / _STEPS
