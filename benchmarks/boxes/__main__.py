"""Restarts in a box, and the first point that works: rows in a file, and a table of what was solved.

    python -m benchmarks.boxes FOLDER [--sets original moved failing first] [--methods box cma DE]

FOLDER is `benchmarks/benchmarks/go_benchmark_functions` of a source checkout of SciPy. A row is a line of
JSON in the file --out, written as its run ends; rows that are there are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fmnes

from .problems import DRAWN, HELD_BACK, TOLERANCE, BoxProblem, failing, functions, moved, small_part

BUDGET, BUDGET_FIRST = 5000, 3000
SETS = ("original", "moved", "failing", "first", "held back", "rest", "easy")
SHAPES = ("cube", "ball", "corner", "slab", "bar")
#: A run has solved its problem within the last of these; the others show how much depends on that.
TOLERANCES = (1e-2, 1e-3, TOLERANCE)


class Spent(Exception):
    """The run has solved its problem, or has used its budget."""


class Counted:
    """The function, which ends the run when it is solved or the budget is spent."""

    def __init__(self, problem: BoxProblem, budget: int, first: bool) -> None:
        self.problem, self.budget, self.first = problem, budget, first
        self.evaluations, self.failed, self.best, self.worked = 0, 0, np.inf, 0
        self.within: dict[str, int] = {}
        """The evaluations after which the best value was within each of TOLERANCES."""

    def __call__(self, x: Any) -> float:
        if self.evaluations >= self.budget or self.best <= self.problem.target:
            raise Spent
        self.evaluations += 1
        value = self.problem.fun(np.asarray(x, dtype=float))
        if not np.isfinite(value):
            self.failed += 1
            return np.nan
        self.worked = self.worked or self.evaluations
        self.best = min(self.best, value)
        for tolerance in TOLERANCES:
            if self.best <= self.problem.within(tolerance):
                self.within.setdefault(f"{tolerance:g}", self.evaluations)
        if self.best <= self.problem.target or self.first:
            raise Spent
        return value


def ours(counted: Counted, seed: int, **options: Any) -> None:
    problem = counted.problem
    spent = False

    def fun(x: Any) -> float:  # a run of ours survives what an objective raises
        nonlocal spent
        try:
            return counted(x)
        except Spent:
            spent = True
            return np.nan

    bounds = fmnes.Bounds(problem.lower, problem.upper)
    budget = counted.budget
    while not spent and counted.evaluations < budget:
        fmnes.minimize(
            fun,
            bounds=bounds,
            rng=seed,
            max_evaluations=budget - counted.evaluations,
            callback=lambda _: spent,
            **{"restarts": "bipop", **options},
        )
        seed += 1000


def from_the_centre(counted: Counted, seed: int) -> None:
    """The restarts of version 0.1: all from the centre, with twice the population or shorter steps."""
    problem = counted.problem
    ours(counted, seed, x0=(problem.lower + problem.upper) / 2, restart_from="start")


def from_anywhere(counted: Counted, seed: int) -> None:
    problem = counted.problem
    ours(counted, seed, x0=(problem.lower + problem.upper) / 2, restart_from="uniform")


def cma_bipop(counted: Counted, seed: int) -> None:
    """`cma.fmin2` in the unit box, each restart from a random point."""
    import cma

    problem = counted.problem
    width = problem.upper - problem.lower
    rng = np.random.default_rng(seed)
    options = {"bounds": [0, 1], "seed": seed + 1, "verbose": -9, "maxfevals": counted.budget}
    cma.fmin2(
        lambda u: counted(problem.lower + np.asarray(u) * width),
        lambda: rng.random(len(width)),
        0.25,
        options,
        restarts=9,
        bipop=True,
    )


def differential_evolution(counted: Counted, seed: int) -> None:
    from scipy.optimize import differential_evolution as scipys

    def fun(x: Any) -> float:
        value = counted(x)
        return 1e300 if np.isnan(value) else value

    problem = counted.problem
    bounds = list(zip(problem.lower, problem.upper, strict=True))
    while True:  # it ends with a local search by default: its own tolerance is 1 % of the values
        scipys(fun, bounds, rng=seed, maxiter=10**6)
        seed += 1000


METHODS: dict[str, Callable[[Counted, int], None]] = {
    "box": lambda counted, seed: ours(counted, seed),
    "start": from_the_centre,
    "uniform": from_anywhere,
    "cma": cma_bipop,
    "DE": differential_evolution,
}


def problems(name: str, folder: Path) -> Iterator[BoxProblem]:
    if name == "first":
        for d in (2, 3, 5):
            for shape in SHAPES:
                yield small_part(shape, d, 1e-3, 0)._replace(name=f"{shape}, d = {d}")
        return
    drawn = functions(folder)
    if name == "easy":
        yield from functions(folder, easy=True)
    elif name == "held back":
        yield from drawn[DRAWN : DRAWN + HELD_BACK]
    elif name == "rest":
        yield from drawn[DRAWN + HELD_BACK :]
    elif name == "failing":
        for i, problem in enumerate(drawn[:10]):
            yield failing(problem, ball=i % 2 == 1)
            part = failing(moved(problem), ball=i % 2 == 1)
            yield part._replace(name=f"{problem.name}, moved")
    else:
        yield from (moved(p) if name == "moved" else p for p in drawn[:DRAWN])


def run(problem: BoxProblem, method: str, seed: int, kind: str) -> dict[str, Any]:
    if kind == "first":  # another place for each seed
        shape, _, d = problem.name.partition(", d = ")
        problem = small_part(shape, int(d), 1e-3, seed)._replace(name=problem.name)
    counted = Counted(problem, BUDGET_FIRST if kind == "first" else BUDGET, kind == "first")
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(Spent):
            METHODS[method](counted, seed)
    best = counted.best
    return {
        "set": kind,
        "problem": problem.name,
        "method": method,
        "seed": seed,
        "solved": bool(counted.worked if kind == "first" else best <= problem.target),
        "gap": None if np.isinf(best) else float(best - problem.optimum),
        "evaluations": counted.evaluations,
        "within": counted.within,
        "failed": counted.failed,
        "seconds": round(time.process_time() - began, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS[:4])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/boxes.jsonl"))
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {(row["set"], row["problem"], row["method"], row["seed"]) for row in rows}
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    with given.out.open("a", encoding="utf-8") as file:
        for kind in given.sets:
            for problem in problems(kind, given.folder.resolve()):
                for method in given.methods:
                    for seed in seeds:
                        if (kind, problem.name, method, seed) not in done:
                            row = run(problem, method, seed, kind)
                            rows.append(row)
                            file.write(json.dumps(row) + "\n")
                            file.flush()
    print(table([row for row in rows if row["seed"] in seeds]))


def table(rows: list[dict[str, Any]]) -> str:
    """Runs that came within each tolerance, of each set and method, and the median evaluations of the last.

    ± is the standard error of the number solved, as the functions are a sample.
    """
    within = [f"{tolerance:g}" for tolerance in TOLERANCES]
    lines = [
        f"| set | method | {' | '.join(within[:-1])} | solved | ± | of | median evaluations |",
        "|---|---|" + "---|" * (len(within) + 3),
    ]
    for kind in SETS:
        for method in METHODS:
            own = [row for row in rows if row["set"] == kind and row["method"] == method]
            if own:
                by_problem: dict[str, int] = {}
                for row in own:
                    by_problem[row["problem"]] = by_problem.get(row["problem"], 0) + row["solved"]
                solved = [row["evaluations"] for row in own if row["solved"]]
                counts = [
                    sum(t in row["within"] for row in own) if kind != "first" else "" for t in within[:-1]
                ]
                numbers = list(by_problem.values())
                error = math.sqrt(len(numbers)) * float(np.std(numbers, ddof=1))
                median = f"{np.median(solved):.0f}" if solved else "–"
                cells = [kind, method, *counts, len(solved), f"{error:.1f}", len(own), median]
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
