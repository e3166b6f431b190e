"""How much the step size grows by itself: its change in a generation under random selection.

    nice python -m benchmarks.drift [--runs 40] [--generations 300]

Every generation is ranked at random, so an unbiased rule leaves the expectation of ln σ as it is. The first
50 generations do not count. Prints the table of `docs/algorithm.md`: means and standard errors over runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from fmnes import Optimizer
from fmnes.strategies import METHODS, Strategy, fm_nes
from fmnes_bench.trials import table

DIMENSIONS = (2, 3, 5, 10)
#: Generations before the first one that counts.
BEFORE = 50


def drift(strategy: Strategy, d: int, runs: int, generations: int) -> tuple[float, float]:
    """The mean change of ln σ in a generation, and its standard error."""
    population = Optimizer(np.zeros(d), 1.0, method=strategy).population_size
    changes = []
    for run in range(runs):
        rng = np.random.default_rng([1, d, run])
        state = strategy.init(np.zeros(d), np.float64(1.0), rng.standard_normal(d))
        first = 0.0
        for generation in range(generations):
            if generation == BEFORE:
                first = float(np.log(state.sigma))
            z = rng.standard_normal((population // 2 if strategy.mirrored else population, d))
            state = strategy.update(state, z, rng.permutation(population), population)
        changes.append((float(np.log(state.sigma)) - first) / (generations - BEFORE))
    return float(np.mean(changes)), float(np.std(changes, ddof=1) / np.sqrt(runs))


def by_rank(weights: Any, ranks: Any, *others: Any) -> Any:
    return weights.centred[ranks]


def no_expansion(gamma: Any, tau: Any, *others: Any) -> Any:
    return np.ones_like(tau), 0.0


@contextmanager
def replaced(**parts: Callable[..., Any]) -> Iterator[None]:
    """Replace parts of the update of FM-NES."""
    with ExitStack() as stack:
        for name, part in parts.items():
            stack.enter_context(patch.object(fm_nes, name, part))
        yield


ROWS: dict[str, tuple[str, dict[str, Callable[..., Any]]]] = {
    **{f"`{name}`": (name, {}) for name in ("afm-nes", "fm-nes", "cr-fm-nes", "xnes", "cma-es")},
    "`afm-nes` without expansion": ("afm-nes", {"axis_factors": no_expansion}),
    "`afm-nes` without distance weights": ("afm-nes", {"distance_weights": by_rank}),
    "`afm-nes` without both": ("afm-nes", {"axis_factors": no_expansion, "distance_weights": by_rank}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--generations", type=int, default=300)
    given = parser.parse_args()
    lines = []
    for title, (name, parts) in ROWS.items():
        with replaced(**parts):
            cells = [drift(METHODS[name](), d, given.runs, given.generations) for d in DIMENSIONS]
        lines.append([title, *(f"{mean:.3f} ± {error:.3f}" for mean, error in cells)])
    print("\n".join(table(["", *(f"d = {d}" for d in DIMENSIONS)], lines)))


if __name__ == "__main__":
    main()
