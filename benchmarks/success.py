"""Is success true? Runs to their own end, and whether their claims are correct.

    nice python -m benchmarks.success [--few] [--runs 30] [--workers 2] [--folder F] [--out FILE] [--page]

--few: with budgets of 200 d evaluations and at most MOST_FEW dimensions, where the default uses models. Each
finished run is a line of F/trials.csv, and an interrupted benchmark continues where it stopped.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fmnes
from fmnes_bench.trials import Lines, open_folder, read_lines, run_all

#: Seeds from here on; the rules were made with seeds below 1,000, and with four runs from 8,000,000 on.
FIRST_SEED = 9_000_000
BUDGET = 20_000
#: With --few: the first seed, evaluations per dimension, and the most dimensions.
FIRST_SEED_FEW, BUDGET_FEW, MOST_FEW = 8_000_000, 200, 5
HEADER = "group,d,variant,seed,success,correct,global,evaluations,reason"


class Problem(NamedTuple):
    fun: Callable[[np.ndarray], float]
    """NaN where it fails."""
    arguments: dict[str, Any]
    correct: Callable[[np.ndarray, float], bool]
    """Is this point with this value an answer: the optimum, or a local one where there are several?"""
    optimal: Callable[[float], bool] | None = None
    """Is this value that of the best optimum? None: there is only one."""


class Trial(NamedTuple):
    group: str
    d: int
    variant: str
    seed: int
    success: bool
    correct: bool
    best: bool
    evaluations: int
    reason: str

    @property
    def key(self) -> tuple[str, int, str, int]:
        return self[:4]


def near(start: float, least: float = 0.0, share: float = 1e-3) -> Callable[[Any, float], bool]:
    return lambda x, f: f - least <= share * (start - least)


def _grid(f: Callable[[np.ndarray], float], lower: int, upper: int) -> Callable[[np.ndarray, float], bool]:
    """No point one step away in one coordinate is better."""

    def correct(x: np.ndarray, value: float) -> bool:
        moves = [x + step * row for row in np.eye(len(x)) for step in (-1, 1)]
        return all(f(y) >= value for y in moves if y.min() >= lower and y.max() <= upper)

    return correct


def integers(d: int, variant: str, rng: np.random.Generator) -> Problem:
    upper = int(variant)
    best = np.where(rng.random(d) < 0.5, 1 + rng.integers(0, 11, d), upper - rng.integers(0, 11, d))
    arguments = {"bounds": [(1, upper)] * d, "integers": True}
    return Problem(lambda x: float(np.square(x - best).sum()), arguments, lambda x, f: f == 0)


def correlated(d: int, variant: str, rng: np.random.Generator) -> Problem:
    upper = int(variant)
    best = rng.integers(1, upper + 1, d)
    rows = rng.standard_normal((d, d))
    matrix = rows @ rows.T + np.eye(d)

    def fun(x: np.ndarray) -> float:
        return float((x - best) @ matrix @ (x - best))

    arguments = {"bounds": [(1, upper)] * d, "integers": True}
    return Problem(fun, arguments, _grid(fun, 1, upper), lambda f: f == 0)


def mixed(d: int, variant: str, rng: np.random.Generator) -> Problem:
    upper, whole = int(variant), np.arange(d) % 2 == 0
    ends = np.where(rng.random(d) < 0.5, 1 + rng.integers(0, 11, d), upper - rng.integers(0, 11, d))
    best = np.where(whole, ends, 1 + (upper - 1) * rng.random(d))
    arguments = {"bounds": [(1, upper)] * d, "integers": whole}
    return Problem(
        lambda x: float(np.square(x - best).sum()),
        arguments,
        lambda x, f: bool((x[whole] == best[whole]).all()) and f <= 1e-6,
    )


def random_failures(d: int, variant: str, rng: np.random.Generator) -> Problem:
    share, chance = float(variant), rng.spawn(1)[0]
    return Problem(
        lambda x: np.nan if chance.random() < share else float(x @ x),
        {"x0": np.full(d, 2.0), "sigma0": 1.0},
        near(4.0 * d),
    )


def basins(d: int, variant: str, rng: np.random.Generator) -> Problem:
    x0 = rng.uniform(-4, 4, d)
    arguments = {"x0": x0, "sigma0": 1.0}
    if variant == "two":
        centres = np.array([np.full(d, -2.0), np.full(d, 2.0)])

        def two(x: np.ndarray) -> float:
            return float((np.square(x - centres).sum(axis=1) + np.arange(2.0)).min())

        return Problem(
            two,
            arguments,
            lambda x, f: bool((np.square(x - centres).sum(axis=1) < 1e-6).any()),
            lambda f: f < 0.5,
        )

    def rastrigin(x: np.ndarray) -> float:
        return float((x * x + 10 * (1 - np.cos(2 * np.pi * x))).sum())

    def flat(x: np.ndarray, f: float) -> bool:
        slope = 2 * x + 20 * np.pi * np.sin(2 * np.pi * x)
        return bool(np.abs(slope).max() < 1e-2 and (np.cos(2 * np.pi * x) > 0).all())

    return Problem(rastrigin, arguments, flat, lambda f: f < 0.5)


def failing_start(d: int, variant: str, rng: np.random.Generator) -> Problem:
    x0 = np.zeros(d)
    x0[0] = -float(variant)
    return Problem(
        lambda x: float(x @ x) if x[0] > 0.5 else np.nan,
        {"x0": x0, "sigma0": 2.5, "bounds": [(-5, 5)] * d},
        near(25.0, 0.25),
    )


def plateaus(d: int, variant: str, rng: np.random.Generator) -> Problem:
    width = float(variant)
    return Problem(
        lambda x: float(np.floor(x @ x / width) * width),
        {"x0": rng.uniform(-3, 3, d), "sigma0": 1.0},
        lambda x, f: f == 0,
    )


def scales(d: int, variant: str, rng: np.random.Generator) -> Problem:
    what, size = variant.split("=")
    weights, k = 10.0 ** (3 * np.arange(d) / max(1, d - 1)), float(size)
    value, unit = (k, 1.0) if what == "f" else (1.0, k)
    x0 = unit * rng.uniform(1, 3, d)
    return Problem(
        lambda x: float(value * (weights @ np.square(x / unit))),
        {"x0": x0, "sigma0": unit},
        near(float(value * (weights @ np.square(x0 / unit))), share=1e-6),
    )


def smooth(d: int, variant: str, rng: np.random.Generator) -> Problem:
    x0 = rng.uniform(1, 3, d)
    if variant == "rosenbrock":

        def fun(x: np.ndarray) -> float:
            return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())

        x0 = rng.uniform(-0.5, 0.5, d)
        # In four dimensions and more it has a second minimum, near (-1, 1, …, 1).
        return Problem(
            fun,
            {"x0": x0, "sigma0": 0.5},
            lambda x, f: f < 1e-6 or (x[0] < 0 and 3.5 < f < 4),
            lambda f: f < 1,
        )
    weights = 10.0 ** (6 * np.arange(d) / max(1, d - 1)) if variant == "ellipsoid" else np.ones(d)

    def quadratic(x: np.ndarray) -> float:
        return float(weights @ np.square(x))

    return Problem(quadratic, {"x0": x0, "sigma0": 1.0}, near(quadratic(x0), share=1e-6))


def constrained(d: int, variant: str, rng: np.random.Generator) -> Problem:
    active = 1 if variant == "1" else d
    centre = np.where(np.arange(d) < active, -1.0, 0.0)
    x0 = rng.uniform(1, 3, d)

    def fun(x: np.ndarray) -> float:
        return float(np.square(x - centre).sum()) if (x[:active] >= 0).all() else np.nan

    return Problem(fun, {"x0": x0, "sigma0": 1.0}, near(fun(x0), float(active)))


#: Each kind of problem: what makes it, its dimensions and its variants.
GROUPS: dict[str, tuple[Callable[[int, str, np.random.Generator], Problem], Sequence[int], Sequence[str]]] = {
    "integers": (integers, (1, 2, 3, 5, 10, 20), ("12", "100", "10000")),
    "correlated integers": (correlated, (2, 3, 5), ("100",)),
    "mixed": (mixed, (2, 4, 10, 20), ("12", "10000")),
    "random failures": (random_failures, (1, 2, 3, 5, 10), ("0.5", "0.9", "0.95", "0.99")),
    "several basins": (basins, (1, 2, 5, 10), ("two", "rastrigin")),
    "failing start": (failing_start, (2, 5, 10, 20), ("1.5", "3.5")),
    "plateaus": (plateaus, (1, 2, 5), ("0.01", "1")),
    "scales": (scales, (1, 3, 10), ("f=1e12", "f=1e-12", "x=1e12", "x=1e-12")),
    "smooth": (smooth, (1, 2, 5, 10, 20), ("sphere", "ellipsoid", "rosenbrock")),
    "constraints": (constrained, (1, 2, 5, 10, 20), ("1", "all")),
}
TITLE = {
    "integers": "quadratic, optimum up to 10 steps inside the bounds of 1 to 12, 100 or 10,000",
    "correlated integers": "rotated quadratic of 1 to 100",
    "mixed": "the first, with every second parameter real",
    "random failures": "sphere of which 50, 90, 95 or 99 % of the evaluations fail at random",
    "several basins": "two spheres, and Rastrigin",
    "failing start": "sphere in a box, of which the start and half of the box fail",
    "plateaus": "sphere rounded down to multiples of 0.01 or 1",
    "scales": "ellipsoid; values or parameters times 1e12 or 1e-12",
    "smooth": "sphere, ellipsoid of condition 1e6, Rosenbrock",
    "constraints": "sphere whose optimum is cut off by 1 or d failing half-spaces",
}


def wanted(runs: int, most: int, first_seed: int) -> list[tuple[str, int, str, int]]:
    keys = [
        (group, d, variant)
        for group, (_, dimensions, variants) in GROUPS.items()
        for d in dimensions
        for variant in variants
        if d <= most and not (variant == "rosenbrock" and d == 1)
    ]
    return [(*key, first_seed + 1000 * i + run) for run in range(runs) for i, key in enumerate(keys)]


def run_few(group: str, d: int, variant: str, seed: int) -> Trial:
    return run(group, d, variant, seed, BUDGET_FEW * d)


def run(group: str, d: int, variant: str, seed: int, budget: int = BUDGET) -> Trial:
    problem = GROUPS[group][0](d, variant, np.random.default_rng(seed))
    result = fmnes.minimize(problem.fun, rng=seed, max_evaluations=budget, **problem.arguments)
    correct = result.x is not None and bool(problem.correct(np.asarray(result.x), result.fun))
    best = correct and (problem.optimal is None or problem.optimal(result.fun))
    reason = result.stop_reason.name if result.stop_reason else ""
    return Trial(group, d, variant, seed, result.success, correct, best, result.nfev, reason)


def line(trial: Trial) -> str:
    return ",".join(str(int(field)) if isinstance(field, bool) else str(field) for field in trial)


def parse(fields: list[str]) -> Trial:
    group, d, variant, seed, success, correct, best, evaluations, reason = fields
    flags = [flag == "1" for flag in (success, correct, best)]
    return Trial(group, int(d), variant, int(seed), *flags, int(evaluations), reason)


def page(trials: Sequence[Trial], few: bool) -> str:
    seeds = [trial.seed for trial in trials]
    each = Counter(trial.key[:3] for trial in trials).most_common(1)[0][1]
    title, option, budget = "Is success true?", "", f"{BUDGET:,} evaluations"
    if few:
        title = "Is success true with few evaluations?"
        option, budget = " --few", f"{BUDGET_FEW} evaluations per dimension, so that it uses models"
    text = f"""# {title}

Made by `python -m benchmarks.success{option} --runs {each}`: the default method, without a target, with
default tolerances, at most {budget}; {len(trials):,} runs on seeds from {min(seeds):,} to {max(seeds):,},
none of which was used to design the rules.

- *Correct*: at most a thousandth of the distance from the value at the start to the minimum is left (a
  millionth on smooth problems and other scales; the optimum itself on integers and on plateaus). With
  several basins, and on correlated integers, a local optimum is correct (no point one step away is
  better), because one search finds one; the next column gives the number of global ones.
- *Wrong success*: `success` is reported for an answer that is not correct.
- *Correct and converged* excludes runs that the budget ended before they converged.

"""
    head = (
        "problems",
        "d",
        "runs",
        "correct",
        "global",
        "wrong successes",
        "correct and converged",
        "reported as success",
    )
    rows = [head, ("---",) * len(head)]
    for group in [*GROUPS, "all"]:
        own = [t for t in trials if group in (t.group, "all")]
        if own:
            rows.append((_name(group), *_counts(own)))
    text += "\n".join("| " + " | ".join(row) + " |" for row in rows)
    text += "\n\n## Random failures by share\n\n"
    rows = [("share", *head[1:]), ("---",) * len(head)]
    for share in GROUPS["random failures"][2]:
        own = [t for t in trials if t.group == "random failures" and t.variant == share]
        if own:
            rows.append((f"{float(share):.0%}", *_counts(own)))
    return text + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _name(group: str) -> str:
    return f"{group}: {TITLE[group]}" if group in TITLE else group


def _counts(trials: Sequence[Trial]) -> tuple[str, ...]:
    correct = [t for t in trials if t.correct]
    converged = [t for t in correct if t.reason != "MAX_EVALUATIONS"]
    dimensions = sorted({t.d for t in trials})
    counts = (len(trials), len(correct), sum(t.best for t in correct))
    wrong = sum(t.success and not t.correct for t in trials)
    return (
        str(dimensions[0]) if len(dimensions) == 1 else f"{dimensions[0]} to {dimensions[-1]}",
        *map(str, (*counts, wrong, len(converged))),
        f"{sum(t.success for t in converged) / len(converged):.1%}" if converged else "",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", action="store_true", help="budgets with which the default uses models")
    parser.add_argument("--runs", type=int, default=30, help="of each problem")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--folder", type=Path, help="of the runs, by default in docs/benchmarks")
    parser.add_argument("--out", type=Path, help="the page, by default beside the folder")
    parser.add_argument("--page", action="store_true", help="only write the page of the runs made so far")
    options = parser.parse_args()
    name = "success-few" if options.few else "success"
    folder = options.folder or Path("docs/benchmarks") / name
    out = options.out or folder.with_suffix(".md")
    first_seed = FIRST_SEED_FEW if options.few else FIRST_SEED
    settings = {"first_seed": first_seed, "budget": BUDGET_FEW if options.few else BUDGET}
    open_folder(folder, settings, fmnes=fmnes.__version__)
    path = folder / "trials.csv"
    done = {trial.key: trial for trial in read_lines(path, HEADER, parse)}
    if options.page:
        out.write_text(
            page(sorted(done.values(), key=lambda trial: trial.key), options.few), encoding="utf-8"
        )
        return
    lines = Lines(path, HEADER)
    trials = run_all(
        run_few if options.few else run,
        wanted(options.runs, MOST_FEW if options.few else 20, first_seed),
        done,
        work=lambda key: 1.0,  # so that an unfinished table has about as many runs of each problem
        keep=lambda trial: lines.add(line(trial)),
        workers=options.workers,
    )
    path.write_text("\n".join([HEADER, *map(line, trials)]) + "\n", encoding="utf-8")  # in order
    out.write_text(page(trials, options.few), encoding="utf-8")


if __name__ == "__main__":
    main()
