"""The figures of docs/lens.md; its picture is made by examples.lens.run.

    python -m benchmarks.lens

Times depend on the machine.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import fmnes
from fmnes_bench import lens

PROBLEMS = {"triplet": lens.triplet, "double_gauss": lens.double_gauss}
GENERATIONS, SEEDS = 20, 10


def share_of_failures(problem: lens.LensProblem, seed: int) -> float:
    """In the first generations of the default method; the start itself is not counted."""
    failed: list[bool] = []

    def fun(columns: Any) -> Any:
        values = problem.fun(columns)
        failed.extend(np.isinf(values).tolist())
        return values

    def enough(view: fmnes.View) -> bool:
        return view.generation >= GENERATIONS

    fmnes.minimize(fun, problem.parameters, vectorized=True, rng=seed, callback=enough)
    return float(np.mean(failed[1:]))


def share_at_random(problem: lens.LensProblem, n: int = 20_000) -> float:
    """Of lenses drawn from the ranges."""
    bounds = np.array([(p.lower, p.upper) for p in problem.parameters.values()])
    points = np.random.default_rng(0).uniform(*bounds.T, (n, len(bounds)))
    return float(np.isinf(problem.fun(points)).mean())


def milliseconds(problem: lens.LensProblem, n: int, times: int = 200) -> float:
    """A lens, of a generation of n: the best of many."""
    points = np.tile(list(problem.known.values()), (n, 1))
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        problem.fun(points)
        taken.append(time.perf_counter() - began)
    return 1000 * min(taken) / n


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    for name, make in PROBLEMS.items():
        problem = make()
        shares = [share_of_failures(problem, seed) for seed in range(SEEDS)]
        n = fmnes.Optimizer(problem.parameters).population_size
        print(
            f"{name}: known design {problem.fun(problem.known):.2f} µm; "
            f"failed at random {share_at_random(problem):.0%}, in the first {GENERATIONS} generations "
            f"{np.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%}, {SEEDS} seeds); "
            f"{milliseconds(problem, n):.3f} ms a lens of a generation of {n}"
        )


if __name__ == "__main__":
    main()
