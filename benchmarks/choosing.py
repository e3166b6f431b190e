"""What σ₀ and λ do to a search: the default method, ten parameters, a few kinds of problems.

    python -m benchmarks.choosing [--seeds 12] [--out docs/benchmarks/choosing.md]

σ₀ is given as a multiple of the distance from the start to the optimum, for each coordinate; λ as a multiple
of the default. Evaluations are all that were spent, those of runs that did not arrive too, for each that did.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fmnes

D = 10
SIGMAS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
SIZES = (1, 2, 4, 8)
BUDGET = 100_000
#: How near the value has to come, and where there is noise the value of the mean.
GAP, NOISY_GAP = 1e-8, 1.0

HEADING = """# The effect of σ₀ and λ

`python -m benchmarks.choosing --seeds {seeds}`: the default method, d = {d}. Mean number of evaluations
until the value is {gap:g} above the minimum, over the runs that reached it, ± standard error, and the
number of these runs if not all. At most {budget:,} evaluations a run.

- *ill-conditioned*: a rotated ellipsoid, axes 1 to 1000; *curved*: Rosenbrock's valley; *edge*: a sphere
  whose optimum lies on the boundary of the failing region, in half of the coordinates.
- *many valleys*: Rastrigin's function, from anywhere in [−4, 4]^d.
- *noise*: the ellipsoid with noise of standard deviation 1 in each value, until the mean is within
  {noisy_gap:g} of the minimum.
"""


class Start(NamedTuple):
    fun: Callable[[Any], Any]
    """Of a point (d,), or of many (n, d)."""
    x0: Any
    optimum: Any
    minimum: float


def rastrigin(x: Any) -> Any:
    return 10 * x.shape[-1] + np.sum(x * x - 10 * np.cos(2 * np.pi * x), axis=-1)


def start_of(problem: str, seed: int) -> Start:
    if problem == "many valleys":
        return Start(rastrigin, np.random.default_rng(seed).uniform(-4, 4, D), np.zeros(D), 0.0)
    names = {
        "ill-conditioned": ("rotated-ellipsoid", {"rotation_seed": seed}),
        "noise": ("rotated-ellipsoid", {"rotation_seed": seed}),
        "curved": ("rosenbrock", {}),
        "edge": ("shifted-sphere-active", {"active": D // 2}),
    }
    name, options = names[problem]
    found = fmnes.problems.get(name, d=D, **options)
    return Start(found.fun, found.x0, found.optimum, found.minimum)


def trial(problem: str, sigma: float, size: float, restarts: Any, seed: int) -> tuple[int, bool]:
    """Evaluations spent, and whether it arrived."""
    start = start_of(problem, seed)
    distance = float(np.linalg.norm(start.x0 - start.optimum)) / np.sqrt(D)
    population_size = None if size == 1 else int(size * fmnes.AFMNES().default_population_size(D))
    if problem == "noise":
        return noisy_trial(start, sigma * distance, population_size, seed)
    result = fmnes.minimize(
        start.fun,
        start.x0,
        sigma * distance,
        population_size=population_size,
        rng=seed,
        vectorized=True,
        target=start.minimum + GAP,
        max_evaluations=BUDGET,
        restarts=restarts,
    )
    return result.nfev, result.success


def noisy_trial(start: Start, sigma0: float, population_size: int | None, seed: int) -> tuple[int, bool]:
    """Noise of standard deviation 1 in each value; it has arrived when its mean has, without noise."""
    noise = np.random.default_rng([seed, 1])
    opt = fmnes.Optimizer(start.x0, sigma0, population_size=population_size, rng=seed, xtol=None, ftol=None)
    while opt.evaluations < BUDGET // 5:
        X = opt.ask()
        opt.tell(start.fun(X) + noise.standard_normal(len(X)))
        if start.fun(opt.mean) <= start.minimum + NOISY_GAP:
            return opt.evaluations, True
    return opt.evaluations, False


def cell(runs: list[tuple[int, bool]]) -> str:
    solved = sum(arrived for _, arrived in runs)
    if not solved:
        return f"0 of {len(runs)}"
    spent = sum(evaluations for evaluations, _ in runs) / solved
    if solved < len(runs):
        return f"{spent:.0f}, {solved} of {len(runs)}"
    error = statistics.stdev(evaluations for evaluations, _ in runs) / np.sqrt(solved)
    return f"{spent:.0f} ± {error:.0f}"


def table(first: str, columns: dict[str, tuple[float, float, Any]], rows: list[str], seeds: int) -> list[str]:
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    with ProcessPoolExecutor() as pool:
        for problem in rows:
            cells = [
                cell(list(pool.map(partial(trial, problem, *column), range(seeds))))
                for column in columns.values()
            ]
            lines.append(f"| {problem} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return [f"## {first}", "", *lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    sigmas = {f"{factor:g} ×": (factor, 1, 0) for factor in SIGMAS}
    sizes: dict[str, tuple[float, float, Any]] = {f"{size} ×": (1.0, size, 0) for size in SIZES}
    lines = [
        HEADING.format(seeds=chosen.seeds, gap=GAP, noisy_gap=NOISY_GAP, budget=BUDGET, d=D),
        *table(
            "σ₀, as a multiple of the distance to the optimum for each coordinate",
            sigmas,
            ["ill-conditioned", "curved", "edge", "many valleys"],
            chosen.seeds,
        ),
        *table(
            "λ, as a multiple of the default",
            {**sizes, '1 ×, `restarts="bipop"`': (1.0, 1, "bipop")},
            ["ill-conditioned", "curved", "edge", "many valleys"],
            chosen.seeds,
        ),
        *table("λ with noise", sizes, ["noise"], chosen.seeds),
    ]
    if chosen.out:
        chosen.out.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
