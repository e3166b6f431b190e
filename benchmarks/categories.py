"""Searches with categories, beside CatCMA with margin of the package `cmaes`.

python -m benchmarks.categories --out docs/benchmarks/categories.md
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fmnes

#: Choices of a category. The first is best, and each other one costs 1.
CHOICES = ["a", "b", "c", "d", "e"]
#: Ranges of the reals and the integers, whose centre is where all methods begin; the optimum is 0.
REALS, WHOLE = (-5.0, 15.0), (-5, 15)
TARGET, BUDGET = 1e-6, 40_000
PROBLEMS = ("sphere", "ellipsoid", "ellipsoid in turn")

Objective = Callable[[np.ndarray[Any, Any], list[str]], float | None]


def objective(name: str, n: int, failing: bool = False) -> Objective:
    """The value at n reals and n integers, (2n,), and n choices. failing: choices d and e always fail.

    The weights of "ellipsoid" rise from 1 to 1e6 over the reals and then the integers; in "ellipsoid in turn"
    they alternate, so that both have all weights.
    """
    weights = np.ones(2 * n) if name == "sphere" else 1e6 ** (np.arange(2 * n) / (2 * n - 1))
    if name == "ellipsoid in turn":
        weights = np.concatenate([weights[0::2], weights[1::2]])

    def value(x: np.ndarray[Any, Any], choices: list[str]) -> float | None:
        if failing and not {"d", "e"}.isdisjoint(choices):
            return None
        return float(weights @ x**2) + sum(choice != "a" for choice in choices)

    return value


def ours(f: Objective, n: int, seed: int) -> int | None:
    """Evaluations to the target; None: not reached."""
    space: dict[str, Any] = {f"x{i}": fmnes.Real(*REALS) for i in range(n)}
    space |= {f"z{i}": fmnes.Integer(*WHOLE) for i in range(n)}
    space |= {f"c{i}": fmnes.Categorical(CHOICES, start="c") for i in range(n)}

    def call(point: dict[str, Any]) -> float | None:
        values = list(point.values())
        return f(np.array(values[: 2 * n], dtype=float), values[2 * n :])

    result = fmnes.minimize(call, space, target=TARGET, max_evaluations=BUDGET, rng=seed, surrogate=False)
    return result.nfev if result.success else None


def theirs(f: Objective, n: int, seed: int) -> int | None:
    from cmaes import CatCMAwM

    search = CatCMAwM(
        x_space=[list(REALS)] * n,
        z_space=[range(WHOLE[0], WHOLE[1] + 1)] * n,
        c_space=[len(CHOICES)] * n,
        seed=seed,
    )
    evaluations = 0
    while evaluations < BUDGET:
        told = []
        for _ in range(search.population_size):
            point = search.ask()
            chosen = [CHOICES[k] for k in point.c.argmax(axis=1)]
            value = f(np.concatenate([point.x, point.z]), chosen)
            evaluations += 1
            if value is not None and value <= TARGET:
                return evaluations
            told.append((point, np.inf if value is None else value))
        search.tell(told)
    return None


METHODS = {"fmnes": ours, "cmaes.CatCMAwM": theirs}


def beside_one_category(n: int, seed: int, fixed: bool) -> int | None:
    """Evaluations with n reals beside one category, or with its best choice fixed. A rotated ellipsoid."""
    axes = np.linalg.qr(np.random.default_rng(7).standard_normal((n, n)))[0]
    weights = 1e3 ** (np.arange(n) / (n - 1))
    space: dict[str, Any] = {f"x{i}": fmnes.Real(-5, 10) for i in range(n)}
    if not fixed:
        space["c"] = fmnes.Categorical(CHOICES, start="c")

    def call(point: dict[str, Any]) -> float:
        choice = point.get("c", "a")
        x = np.array([point[f"x{i}"] for i in range(n)])
        return float(weights @ (axes @ x) ** 2) + 10.0 * CHOICES.index(choice)

    result = fmnes.minimize(call, space, target=TARGET, max_evaluations=BUDGET, rng=seed, surrogate=False)
    return result.nfev if result.success else None


def _cell(found: list[int | None]) -> str:
    solved = [n for n in found if n is not None]
    if not solved:
        return f"0 of {len(found)}"
    least = f"{statistics.median(solved):,.0f} ({min(solved):,} to {max(solved):,})"
    return least if len(solved) == len(found) else f"{least}, {len(solved)} of {len(found)}"


def report(seeds: int, sizes: list[int]) -> str:
    lines = [
        "# Categories",
        "",
        f"`python -m benchmarks.categories`: n reals, n integers and n categories of {len(CHOICES)} choices; "
        f'evaluations to {TARGET:g}, the median of {seeds} seeds (least to most). In "d, e fail" two of '
        "the five choices of each category always fail. The ellipsoids have condition 1e6; in turn: reals "
        "and integers alternate.",
        "",
        "| problem | n |" + "".join(f" `{name}` |" for name in METHODS),
        "|---|---|" + "---|" * len(METHODS),
    ]
    for name in PROBLEMS:
        for failing in (False, True):
            for n in sizes:
                f = objective(name, n, failing)
                cells = [_cell([run(f, n, seed) for seed in range(seeds)]) for run in METHODS.values()]
                lines.append(f"| {name}{', d, e fail' * failing} | {n} | " + " | ".join(cells) + " |")
                print(lines[-1], flush=True)
    lines += [
        "",
        "n reals (a rotated ellipsoid of condition 1,000) beside one category of five choices, and the same "
        "with the best choice fixed:",
        "",
        "| n | with the category | fixed | ratio of the medians |",
        "|---|---|---|---|",
    ]
    for n in sizes:
        both = [[beside_one_category(n, seed, fixed) for seed in range(seeds)] for fixed in (False, True)]
        medians = [statistics.median(BUDGET if k is None else k for k in found) for found in both]
        cells = [*map(_cell, both), f"{medians[0] / medians[1]:.2f}"]
        lines.append(f"| {n} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Searches with categories beside cmaes.CatCMAwM.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--out", type=Path, help="write the tables there")
    arguments = parser.parse_args()
    text = report(arguments.seeds, arguments.sizes)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
