"""Does the lazy refresh change the search? Evaluations to target with the default `refresh` and with 1.

    python -m benchmarks.same_search --trials 30 [--method afm-nes fm-nes dx-nes-ic cma-es] [--out FILE]

The paper's eight problems, each also rotated, because axes that are never refreshed would pass for good ones
on a problem that is parallel to them. `refresh=1` decomposes in every generation, as the paper does. Trials
are independent, with seeds of their own; a ratio below 1 means that the default needs fewer evaluations.
xNES and CR-FM-NES have no `refresh`: they take no axes of an earlier generation.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fmnes import AFMNES, CMAES, DXNESIC, FMNES, Optimizer, problems
from fmnes.search.stopping import limit_reached

PAPER = (
    "sphere",
    "ellipsoid",
    "rosenbrock",
    "cigar",
    "ic-sphere",
    "ic-ellipsoid",
    "ic-rosenbrock",
    "ic-cigar",
)
METHODS: dict[str, Any] = {"afm-nes": AFMNES, "fm-nes": FMNES, "dx-nes-ic": DXNESIC, "cma-es": CMAES}
#: λ at which every problem is solved, as a factor of √d: 40 at d = 40, as in the paper's harder cells.
POPULATION_FACTOR = 6.4


class Case(NamedTuple):
    method: str
    problem: str
    d: int
    population_size: int
    refresh: int | None
    seed: int


def population_size(d: int) -> int:
    return 2 * round(POPULATION_FACTOR * math.sqrt(d) / 2)


def evaluations(case: Case) -> float:
    """Until the first value below 1e-10; NaN for a run that ends elsewhere."""
    problem = problems.get(case.problem, d=case.d)
    opt = Optimizer(
        problem.x0,
        problem.sigma0,
        method=METHODS[case.method](refresh=case.refresh),
        population_size=case.population_size,
        rng=case.seed + (case.d << 32) + ((case.refresh or 0) << 64),
        target=1e-10,
        max_evaluations=5_000_000,
    )
    while limit_reached(opt) is None:
        opt.tell(problem.fun(opt.ask()))
    return opt.evaluations if opt.best.fun <= 1e-10 else math.nan


def summary(counts: list[float]) -> tuple[float, float, int]:
    """Mean, its standard error, successes."""
    solved = np.array([count for count in counts if count == count])
    if len(solved) < 2:
        return math.nan, math.nan, len(solved)
    return float(solved.mean()), float(solved.std(ddof=1) / math.sqrt(len(solved))), len(solved)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[10, 40, 100])
    parser.add_argument(
        "--problems", nargs="+", default=[r + name for name in PAPER for r in ("", "rotated-")]
    )
    parser.add_argument("--population-size", type=int, help=f"{POPULATION_FACTOR} √d by default")
    parser.add_argument("--method", nargs="+", choices=sorted(METHODS), default=["fm-nes"])
    parser.add_argument("--refresh", type=int, nargs="+", help="instead of the default")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    lazy = chosen.refresh or [None]
    lines = [
        f"{chosen.trials} trials a cell, thousands of evaluations ± standard error",
        "",
        "| method | d | λ | problem | refresh | evaluations | solved | refresh=1 | solved | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines), flush=True)
    with ProcessPoolExecutor(chosen.workers) as pool:
        for d, name, method in itertools.product(chosen.dimensions, chosen.problems, chosen.method):
            size = chosen.population_size or population_size(d)
            results = {}
            for refresh in [*lazy, 1]:
                cases = [Case(method, name, d, size, refresh, seed) for seed in range(chosen.trials)]
                results[refresh] = summary(list(pool.map(evaluations, cases)))
            one, one_error, one_solved = results[1]
            for refresh in lazy:
                mean, error, solved = results[refresh]
                ratio = mean / one
                ratio_error = ratio * math.hypot(error / mean, one_error / one)
                line = (
                    f"| {method} | {d} | {size} | {name} | {refresh or 'default'} "
                    f"| {mean / 1e3:.2f} ± {error / 1e3:.2f} | {solved} "
                    f"| {one / 1e3:.2f} ± {one_error / 1e3:.2f} | {one_solved} "
                    f"| {ratio:.3f} ± {ratio_error:.3f} |"
                )
                lines.append(line)
                print(line, flush=True)
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
