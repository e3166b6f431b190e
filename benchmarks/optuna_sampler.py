"""The sampler for Optuna beside Optuna's own CMA-ES: what it finds where trials fail, and what it costs.

    python -m benchmarks.optuna_sampler [--seeds 5] [--trials 1000 10000] [--out docs/benchmarks/optuna.md]

The sphere in five dimensions, in the box [-6, 10], which works where no coordinate is negative: its optimum
lies in the corner of what works. A point that does not work raises, and Optuna makes a failed trial of it.
Both have ten points a generation. The cost is this process's CPU time for a study in memory, by the number of
trials; they take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna

from fmnes.integrations.optuna import FMNESSampler

D = 5
POPULATION = 10
SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "FMNESSampler": lambda seed: FMNESSampler(seed=seed, population_size=POPULATION),
    "CmaEsSampler": lambda seed: optuna.samplers.CmaEsSampler(seed=seed, popsize=POPULATION),
    "RandomSampler": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


def corner(trial: optuna.Trial) -> float:
    x = [trial.suggest_float(f"x{i}", -6, 10) for i in range(D)]
    if min(x) < 0:
        raise ValueError("does not work here")
    return sum(value * value for value in x)


def sphere(trial: optuna.Trial) -> float:
    """Nothing fails, so that both have the same trials to look at."""
    return sum(trial.suggest_float(f"x{i}", -6, 10) ** 2 for i in range(D))


def run(
    sampler: optuna.samplers.BaseSampler, objective: Callable[[optuna.Trial], float], n: int
) -> optuna.Study:
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=n, catch=(ValueError,))
    return study


def search(name: str, n: int, seeds: int) -> str:
    best, failed = [], []
    for seed in range(1, seeds + 1):
        study = run(SAMPLERS[name](seed), corner, n)
        complete = [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]
        best.append(min(trial.value or 0.0 for trial in complete))
        failed.append(1 - len(complete) / n)
    spread = f"{min(best):.1e} … {max(best):.1e}"
    return f"| `{name}` | {statistics.median(best):.1e} | {spread} | {statistics.median(failed):.0%} |"


def cost(sizes: list[int]) -> dict[tuple[str, int], float]:
    """Milliseconds a trial, by sampler and size; both take turns, of three tries at 1,000 the quickest."""
    found: dict[tuple[str, int], float] = {}
    for n in sizes:
        for _ in range(3 if n <= 1000 else 1):
            for name in SAMPLERS:
                began = time.process_time()
                run(SAMPLERS[name](1), sphere, n)
                spent = (time.process_time() - began) / n * 1e3
                found[name, n] = min(spent, found.get((name, n), spent))
    return found


def report(seeds: int, sizes: list[int]) -> str:
    lines = [
        "# The sampler for Optuna beside Optuna's own",
        "",
        f"`python -m benchmarks.optuna_sampler`, Optuna {optuna.__version__}. The docstring of that file "
        "describes the measurement.",
        "",
        f"Best value after 1,000 trials, {seeds} seeds; an infeasible point is a failed trial:",
        "",
        "| sampler | median best | best … worst | failed trials |",
        "|---|---|---|---|",
        *[search(name, 1000, seeds) for name in SAMPLERS],
        "",
        "Milliseconds a trial, all of Optuna's own work included, where nothing fails:",
        "",
        "| sampler |" + "".join(f" {n:,} trials |" for n in sizes),
        "|---|" + "---|" * len(sizes),
    ]
    found = cost(sizes)
    lines += [f"| `{name}` |" + "".join(f" {found[name, n]:.2f} |" for n in sizes) for name in SAMPLERS]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="The sampler for Optuna beside Optuna's own.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--trials", type=int, nargs="+", default=[1000, 10_000], help="sizes whose cost is measured"
    )
    parser.add_argument("--out", type=Path, help="write the tables there")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    text = report(arguments.seeds, arguments.trials)
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
