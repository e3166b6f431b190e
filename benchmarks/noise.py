"""Noisy objectives: how good is the answer beside others' methods, and is what a result says about it true?

    nice python -m benchmarks.noise [--seeds 5] [--runs 20] [--workers 2] [--folder F] [--out FILE]

Each finished run is a line of F/trials.csv, and an interrupted benchmark continues where it stopped. The
rules were made with seeds below 1,000.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fmnes
from fmnes_bench.trials import Lines, open_folder, read_lines, run_all, versions

Objective = Callable[[np.ndarray], float]

#: Seeds from here on.
FIRST_SEED = 9_000_000
#: Far: the value at the answer is above the minimum by more than this multiple of the standard error.
FAR = 3.0
HEADER = "part,problem,noise,d,budget,method,seed,value,fun,error,success,evaluations,reason"


def sphere(x: np.ndarray) -> float:
    return float(x @ x)


def ellipsoid(x: np.ndarray) -> float:
    return float(10 ** (6 * np.arange(len(x)) / (len(x) - 1)) @ x**2)


def rosenbrock(x: np.ndarray) -> float:
    y = x + 1
    return float((100 * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2).sum())


def cigar(x: np.ndarray) -> float:
    return float(x[0] ** 2 + 1e4 * (x[1:] ** 2).sum())


#: name -> the function, whose minimum is 0 at 0, and the coordinates and steps of the start.
PROBLEMS: dict[str, tuple[Objective, float, float]] = {
    "sphere": (sphere, 3.0, 2.0),
    "ellipsoid": (ellipsoid, 3.0, 2.0),
    "rosenbrock": (rosenbrock, -1.0, 0.5),
    "cigar": (cigar, 3.0, 2.0),
}
METHODS = ("fmnes", "fmnes, noise=False", "cmaes, LRA", "cma, NoiseHandler")
#: Problem, noise, dimension, budget. "+ 1": N(0, 1) is added; "x 0.3": times 1 + 0.3 N(0, 1).
QUALITY = [
    *[(name, "+ 1", d, 20_000) for name in ("sphere", "ellipsoid") for d in (5, 10, 20)],
    ("ellipsoid", "x 0.3", 10, 20_000),
    ("rosenbrock", "+ 1", 10, 100_000),
]
#: The same of the runs whose answers are judged.
ANSWERS = [
    (name, noise, d, budget)
    for name in PROBLEMS
    for noise in ("+ 0.01", "+ 1")
    for d in (2, 5, 10)
    for budget in (500, 2000, 10_000)
]


class Trial(NamedTuple):
    part: str
    problem: str
    noise: str
    d: int
    budget: int
    method: str
    seed: int
    value: float
    """Without noise, at the answer."""
    fun: float
    error: float
    """`fun_error`; NaN if there is none."""
    success: bool
    evaluations: int
    reason: str

    @property
    def key(self) -> tuple[str, str, str, int, int, str, int]:
        return self[:7]


class Spent(Exception):
    """The budget of a peer."""


def noisy(f: Objective, noise: str, seed: int, budget: int) -> Callable[[Any], float]:
    kind, size = noise.split()
    chance, left = np.random.default_rng([seed, 77]), [budget]

    def evaluate(x: Any) -> float:
        if not left[0]:
            raise Spent
        left[0] -= 1
        draw = float(size) * chance.standard_normal()
        value = f(np.asarray(x, dtype=float))
        return value + draw if kind == "+" else value * (1 + draw)

    return evaluate


def run(part: str, problem: str, noise: str, d: int, budget: int, method: str, seed: int) -> Trial:
    f, start, sigma0 = PROBLEMS[problem]
    objective, x0 = noisy(f, noise, seed, budget), np.full(d, start)
    key = (part, problem, noise, d, budget, method, seed)
    if method.startswith("fmnes"):
        watch: Any = False if method.endswith("False") else "auto"
        # Models are for expensive objectives: here the distribution draws all points.
        found = fmnes.minimize(
            objective, x0, sigma0, rng=seed, max_evaluations=budget, noise=watch, surrogate=False
        )
        reason = found.stop_reason.name if found.stop_reason else ""
        error = math.nan if found.fun_error is None else found.fun_error
        return Trial(*key, f(found.x), found.fun, error, found.success, found.nfev, reason)
    mean = (
        lra(objective, x0, sigma0, seed)
        if method.startswith("cmaes")
        else handler(objective, x0, sigma0, seed)
    )
    return Trial(*key, f(mean), math.nan, math.nan, False, budget, "")


def lra(objective: Callable[[Any], float], x0: np.ndarray, sigma0: float, seed: int) -> np.ndarray:
    import cmaes

    search = cmaes.CMA(mean=x0, sigma=sigma0, seed=seed, lr_adapt=True)
    try:
        while True:
            points = [search.ask() for _ in range(search.population_size)]
            search.tell([(x, objective(x)) for x in points])
    except Spent:
        return search.mean


def handler(objective: Callable[[Any], float], x0: np.ndarray, sigma0: float, seed: int) -> np.ndarray:
    """As in the documentation of `cma`: more evaluations of each point where their order is unsure."""
    import cma

    options = {"seed": seed + 1, "verbose": -10, "verb_log": 0, "tolfun": 0, "tolx": 0, "tolfunhist": 0}
    options |= {"tolstagnation": 0, "tolflatfitness": 10**9, "maxiter": 10**9}
    search = cma.CMAEvolutionStrategy(x0, sigma0, options)
    noise = cma.NoiseHandler(len(x0), maxevals=[1, 1, 30])
    try:
        while True:
            points, values = search.ask_and_eval(objective, evaluations=noise.evaluations)
            search.tell(points, values)
            search.sigma *= noise(points, values, objective, search.ask)
    except Spent:
        return np.asarray(search.mean)


# -- The tables


def parse(fields: list[str]) -> Trial:
    if len(fields) != len(Trial._fields) or fields[10] not in ("True", "False"):
        raise ValueError(fields)
    part, problem, noise, d, budget, method, seed, value, fun, error, success, evaluations, reason = fields
    name = method.replace(";", ",")
    key = (part, problem, noise, int(d), int(budget), name, int(seed))
    numbers = (float(value), float(fun), float(error))
    return Trial(*key, *numbers, success == "True", int(evaluations), reason)


def line(trial: Trial) -> str:
    return ",".join(str(field).replace(",", ";") for field in trial)


def quality(trials: list[Trial]) -> list[str]:
    lines = [
        "| problem | d | evaluations |" + "".join(f" {name} |" for name in METHODS),
        "|---|---|---|" + "---|" * len(METHODS),
    ]
    for problem, noise, d, budget in QUALITY:
        cells = []
        for method in METHODS:
            same = (problem, noise, d, budget, method)
            values = sorted(t.value for t in trials if t.part == "quality" and t[1:6] == same)
            cells.append(f"{np.median(values):.2g} ({values[0]:.1g} to {values[-1]:.1g})" if values else "")
        lines.append(f"| {problem} {noise} | {d} | {budget:,} | " + " | ".join(cells) + " |")
    return lines


def share(n: int, of: int) -> str:
    """A share with its standard error."""
    if not of:
        return "none"
    p = n / of
    return f"{n} of {of} ({p:.1%} ± {math.sqrt(p * (1 - p) / of):.1%})"


def answers(trials: list[Trial]) -> list[str]:
    lines = ["| noise | evaluations | `NOISE` | far | covers |", "|---|---|---|---|---|"]
    judged = [t for t in trials if t.part == "answers"]
    groups = [(noise, budget) for noise in ("+ 0.01", "+ 1") for budget in (500, 2000, 10_000)]
    for noise, budget in [*groups, ("all", 0)]:
        these = [t for t in judged if noise == "all" or (t.noise, t.budget) == (noise, budget)]
        settled = [t for t in these if t.reason == "NOISE"]
        far = [t for t in settled if not t.value <= FAR * t.error]
        told = [t for t in these if math.isfinite(t.error)]
        covered = [t for t in told if abs(t.fun - t.value) <= t.error]
        limit = f"{budget:,}" if budget else "all"
        lines.append(
            f"| {noise} | {limit} | {len(settled)} of {len(these)} | "
            f"{share(len(far), len(settled))} | {share(len(covered), len(told))} |"
        )
    return lines


def wanted(seeds: int, runs: int) -> list[tuple[str, str, str, int, int, str, int]]:
    peers = [
        ("quality", *case, method, FIRST_SEED + seed)
        for case in QUALITY
        for method in METHODS
        for seed in range(seeds)
    ]
    # Each run has noise of its own, so that the shares are of independent runs.
    own = [
        ("answers", *case, METHODS[0], FIRST_SEED + 1000 * (i + 1) + seed)
        for i, case in enumerate(ANSWERS)
        for seed in range(runs)
    ]
    return peers + own


def page(trials: list[Trial], seeds: int, runs: int, used: dict[str, str]) -> str:
    named = ", ".join(f"{name} {version}" for name, version in used.items())
    text = [
        "# Noise",
        "",
        f"`python -m benchmarks.noise --seeds {seeds} --runs {runs}`, with {named}. The minimum of each "
        "function is 0. + 1: a normal random number with standard deviation 1 is added to each value; x 0.3: "
        "each value is multiplied by 1 + 0.3 N(0, 1).",
        "",
        "## The answer",
        "",
        "The value without noise at the point that each method returns: median (least to most) of "
        f"{seeds} seeds. The last means of `cmaes` with learning-rate adaptation and of `cma` with its noise "
        "handler are compared with `result.x` "
        "of `minimize`. With `noise=False`, `result.x` is the luckiest point.",
        "",
        *quality(trials),
        "",
        "## What the result says",
        "",
        "Sphere, ellipsoid (condition 1e6), Rosenbrock and cigar (1e4) in 2, 5 and 10 dimensions, "
        f"{runs} seeds of each, without a target. `NOISE`: the search ended with this reason, as the average "
        "of its values no longer fell. Far: of those, the value without noise at `x` is above the minimum by "
        f"more than {FAR:g} `fun_error`. Covers: that value is within one `fun_error` of `fun`.",
        "",
        *answers(trials),
    ]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Noisy objectives, beside cmaes and cma.")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each method and problem")
    parser.add_argument("--runs", type=int, default=10, help="runs of each problem whose answer is judged")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("noise"))
    parser.add_argument("--out", type=Path, help="write the page there")
    arguments = parser.parse_args()
    used = versions("fmnes", "cmaes", "cma")
    open_folder(arguments.folder, {"first_seed": FIRST_SEED}, **used)
    path = arguments.folder / "trials.csv"
    lines = Lines(path, HEADER)
    done = {trial.key: trial for trial in read_lines(path, HEADER, parse)}
    keys = wanted(arguments.seeds, arguments.runs)
    trials = run_all(
        run,
        keys,
        done,
        work=lambda key: float(key[4]),
        keep=lambda trial: lines.add(line(trial)),
        workers=arguments.workers,
    )
    text = page(trials, arguments.seeds, arguments.runs, used)
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
