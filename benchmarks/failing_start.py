"""A start that fails: who finds something that works, and the best of it?

    python -m benchmarks.failing_start [--seeds 40] [--out docs/benchmarks/failing_start.md]

A sphere in a box of [-5, 5]^d, of which nearly half works: there the first coordinate is above 0.5. Every
method begins at the same point, further and further from there, with steps of a quarter of the box.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from itertools import chain, count
from pathlib import Path

import numpy as np

import fmnes

DIMENSIONS, DISTANCES = (3, 10), (1.5, 2.5, 3.5, 4.5)
EDGE, REACH, STEP = 0.5, 5.0, 2.5
BUDGET = 600  # × d
RESTARTS = 1000  # more than the budget is enough for
NEAR = 1e-6


class Counted:
    """+inf for what fails."""

    def __init__(self) -> None:
        self.best = np.inf

    def __call__(self, x: np.ndarray) -> np.ndarray:
        f = np.where(x[:, 0] > EDGE, np.square(x).sum(axis=1), np.inf)
        self.best = min(self.best, float(f.min()))
        return f


Search = Callable[[Counted, np.ndarray, int], None]


def ours(method: str, evaluate_start: bool = True) -> Search:
    def search(fun: Counted, x0: np.ndarray, seed: int) -> None:
        fmnes.minimize(
            fun,
            x0,
            STEP,
            bounds=(-REACH, REACH),
            method=method,
            rng=seed,
            vectorized=True,
            evaluate_start=evaluate_start,
            max_evaluations=BUDGET * len(x0),
        )

    return search


def cma(fun: Counted, x0: np.ndarray, seed: int) -> None:
    """`cma.fmin2` with restarts: each from a random point of the box, with twice the population."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cma as package

        rng = np.random.default_rng(seed)
        starts = chain([x0], (rng.uniform(-REACH, REACH, len(x0)) for _ in count()))
        options = {"seed": seed + 1, "verbose": -9, "verb_log": 0, "bounds": [-REACH, REACH]}
        package.fmin2(
            lambda x: float(fun(np.asarray(x)[None])[0]),
            lambda: next(starts),
            STEP,
            {**options, "maxfevals": BUDGET * len(x0)},
            restarts=RESTARTS,
        )


SEARCHES: dict[str, Search] = {
    "`afm-nes`": ours("afm-nes"),
    "the same, `evaluate_start=False`": ours("afm-nes", evaluate_start=False),
    "`fm-nes`": ours("fm-nes"),
    "`cma-es`": ours("cma-es"),
    "`cma`, with restarts": cma,
}


def cell(search: Search, d: int, distance: float, seeds: int) -> str:
    """Runs that found something that works, and those that found the best of it."""
    x0 = np.full(d, 1.0)
    x0[0] = EDGE - distance
    bests = []
    for seed in range(seeds):
        fun = Counted()
        search(fun, x0, seed)
        bests.append(fun.best)
    return f"{np.isfinite(bests).sum()}, {(np.array(bests) < EDGE**2 + NEAR).sum()}"


def page(seeds: int) -> str:
    lines = [
        "# A start that fails",
        "",
        f"`python -m benchmarks.failing_start --seeds {seeds} --out docs/benchmarks/failing_start.md`.",
        "A sphere in [-5, 5]^d that fails if x₁ ≤ 0.5. The start fails too; the table gives its distance",
        f"from the feasible region. The first step size is a quarter of the box; a run may use {BUDGET} d",
        "evaluations. `cma` is called as `cma.fmin2(..., restarts=...)` until the budget is spent: a failure",
        "is +inf, and a restart begins at a random point of the box with twice the population.",
        f"Each cell: of {seeds} runs, those that found a feasible point, and those that found the minimum",
        f"(within {NEAR:g}).",
        "",
        "| d | distance | " + " | ".join(SEARCHES) + " |",
        "|---" * (len(SEARCHES) + 2) + "|",
    ]
    for d in DIMENSIONS:
        for distance in DISTANCES:
            cells = [cell(search, d, distance, seeds) for search in SEARCHES.values()]
            lines.append(f"| {d} | {distance:g} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    lines += [
        "",
        "Failed points give no direction, and their ranking favours the points nearest to the mean: a",
        "search that learns only from them shrinks around its start. `afm-nes` evaluates the start first;",
        "if it fails, the step size does not change until a point succeeds. With `evaluate_start=False` it",
        "cannot know this. `cma` gives up on such a start after a few generations; its restarts begin",
        "elsewhere. The published methods are unchanged.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    found = page(given.seeds)
    if given.out:
        given.out.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
