"""A start that fails: who finds something that works, and the best of it?

    python -m benchmarks.failing_start [--seeds 40] [--out docs/benchmarks/failing_start.md]

A sphere in a box of [-5, 5]^d, of which nearly half works: there the first coordinate is above 0.5. Every
method begins at the same point, further and further from there, with steps of a quarter of the box.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import fmnes

DIMENSIONS, DISTANCES = (3, 10), (1.5, 2.5, 3.5, 4.5)
EDGE, REACH, STEP = 0.5, 5.0, 2.5
BUDGET = 600  # × d
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cma as package

        options = {"seed": seed + 1, "verbose": -9, "verb_log": 0, "bounds": [-REACH, REACH]}
        strategy = package.CMAEvolutionStrategy(x0, STEP, {**options, "maxfevals": BUDGET * len(x0)})
        while not strategy.stop():
            points = strategy.ask()
            strategy.tell(points, fun(np.array(points)).tolist())


SEARCHES: dict[str, Search] = {
    "`afm-nes`": ours("afm-nes"),
    "the same, `evaluate_start=False`": ours("afm-nes", evaluate_start=False),
    "`fm-nes`": ours("fm-nes"),
    "`cma-es`": ours("cma-es"),
    "`cma`": cma,
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
        f"`python -m benchmarks.failing_start --seeds {seeds} --out docs/benchmarks/failing_start.md`. A",
        "sphere in [-5, 5]^d that fails where x₁ ≤ 0.5, from a start that lies in what fails, so far from",
        f"the edge; first steps of a quarter of the box, at most {BUDGET} d evaluations, a failure told to",
        f"`cma` as +inf. Of {seeds} runs so many found something that works, and so many the best of it",
        f"(within {NEAR:g}).",
        "",
        "| d | from the edge | " + " | ".join(SEARCHES) + " |",
        "|---" * (len(SEARCHES) + 2) + "|",
    ]
    for d in DIMENSIONS:
        for distance in DISTANCES:
            cells = [cell(search, d, distance, seeds) for search in SEARCHES.values()]
            lines.append(f"| {d} | {distance:g} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    lines += [
        "",
        "Failed points say nothing of where to go, and the nearest of them are taken for the best: a search",
        "that learns from them alone looks nearer and nearer to its start. `afm-nes` does not, if the start",
        "itself is known to fail: until something works it looks as far as at first. Where the start is not",
        "evaluated it may be good, and the steps too long. The published methods stay as published.",
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
