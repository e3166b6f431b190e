"""Noisy objectives: how good is the answer beside others' methods, and is what a result says about it true?

    nice python -m benchmarks.noise [--seeds 5] [--runs 10] [--judged 1000] [--workers 2] [--folder F]
        [--out FILE]

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
from fmnes import Optimizer
from fmnes.run import answering
from fmnes.search.answer import candidates_of, surface_of
from fmnes.search.response import Fit, Surface
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


# -- The problems on which `success` is judged


def power(x: np.ndarray) -> float:
    return float((np.abs(x) ** 4).sum())


def absolute(x: np.ndarray) -> float:
    return float(np.abs(x).sum())


def different_powers(x: np.ndarray) -> float:
    return float((np.abs(x) ** (2 + 4 * np.arange(len(x)) / (len(x) - 1))).sum())


def sharp_ridge(x: np.ndarray) -> float:
    return float(abs(x[0]) + 100 * np.sqrt((x[1:] ** 2).sum()))


def rastrigin(x: np.ndarray) -> float:
    return float((10 + x * x - 10 * np.cos(2 * np.pi * x)).sum())


def plateau(x: np.ndarray) -> float:
    return min(sphere(x), 1.0)


def flat(x: np.ndarray) -> float:
    return 0.0


def straight_valley(x: np.ndarray) -> float:
    return float(1e-4 * x[0] ** 2 + 100 * (x[1:] ** 2).sum())


def flat_valley(x: np.ndarray) -> float:
    return float(1e-2 * x[0] ** 4 + 100 * (x[1:] ** 2).sum())


def curved_valley(x: np.ndarray) -> float:
    return float(1e-2 * (x[0] - 1) ** 2 + 1e4 * ((x[1:] - x[0] ** 2 / 5) ** 2).sum())


def beside_failures(x: np.ndarray) -> float:
    return math.nan if x[0] + x[1] < -0.2 else sphere(x)


def at_failures(x: np.ndarray) -> float:
    return math.nan if x[0] < 1 else sphere(x) - 1


def at_bounds(x: np.ndarray) -> float:
    return sphere(x) - len(x)


def above_zero(x: np.ndarray) -> float:
    return sphere(x) + 1


class Judged(NamedTuple):
    f: Objective
    start: float = 3.0
    sigma0: float = 2.0
    bounds: tuple[float, float] | None = None
    least: float = 0.0
    weight: int = 2
    """How often it is drawn."""


JUDGED = {
    "sphere": Judged(sphere),
    "sphere above 1": Judged(above_zero, least=1.0),
    "ellipsoid": Judged(ellipsoid),
    "cigar": Judged(cigar),
    "Rosenbrock": Judged(rosenbrock, -1.0, 0.5, weight=4),
    "sum of abs(x)": Judged(absolute),
    "sum of x⁴": Judged(power),
    "different powers": Judged(different_powers),
    "sharp ridge": Judged(sharp_ridge),
    "Rastrigin": Judged(rastrigin),
    "plateau": Judged(plateau, 0.5, 0.3),
    "flat": Judged(flat, weight=1),
    "straight valley": Judged(straight_valley, weight=3),
    "flat valley": Judged(flat_valley, weight=3),
    "curved valley": Judged(curved_valley, weight=8),
    "failures beside": Judged(beside_failures),
    "failures at": Judged(at_failures),
    "bounds beside": Judged(sphere, 3.0, 1.0, (-0.1, 5.0)),
    "bounds around": Judged(sphere, 3.0, 1.0, (-5.0, 5.0), weight=1),
    "bounds at": Judged(at_bounds, 3.0, 1.0, (1.0, 5.0)),
}
#: "by 0.1": N(0, 1) times 0.1 (1 + |x1|) is added.
JUDGED_NOISE = {"+ 0.01": 0.35, "+ 1": 0.35, "x 0.3": 0.15, "by 0.1": 0.15}
JUDGED_DIMENSIONS = {2: 0.45, 5: 0.45, 10: 0.1}
JUDGED_BUDGETS = {500: 0.15, 2000: 0.6, 10_000: 0.25}
#: Seeds of the judged runs: the rule was made with others.
FIRST_JUDGED = 70_000
#: The rule that is judged takes the minimum of a fit as certain if each curvature is at least this multiple
#: of its standard error, …
CERTAIN_CURVATURE = 15.0
#: … it is at most this far from the mean in z, and G + L is at most this share of the error of its value, …
NEAR, SMALL_LOSS = 0.5, 0.25
#: … the window has at least this number of points, and this share of all, …
CERTAIN_POINTS, CERTAIN_SHARE = 200, 0.25
#: … and the residuals have no trend: their correlation with time is at most this multiple of its error.
TREND = 3.0


class Trial(NamedTuple):
    part: str
    problem: str
    noise: str
    d: int
    budget: int
    method: str
    seed: int
    value: float
    """Without noise, at the answer; of the judged runs less the minimum."""
    fun: float
    error: float
    """`fun_error`; NaN if there is none."""
    success: bool
    """Of the judged runs: what the rule says."""
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
        if kind == "by":
            return value + (1 + abs(float(x[0]))) * draw
        return value + draw if kind == "+" else value * (1 + draw)

    return evaluate


def run(part: str, problem: str, noise: str, d: int, budget: int, method: str, seed: int) -> Trial:
    if part == "success":
        return run_judged(part, problem, noise, d, budget, method, seed)
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


def run_judged(part: str, problem: str, noise: str, d: int, budget: int, method: str, seed: int) -> Trial:
    f, start, sigma0, bounds, least, _ = JUDGED[problem]
    # More calls than the budget would be a fault: they end the run.
    objective = noisy(f, noise, seed, budget)
    ends: list[End] = []

    def candidates(search: Optimizer) -> list[Any]:
        points = candidates_of(search)
        ends.append(End(search, surface_of(search), points[0]))
        return points

    answering.candidates_of = candidates  # type: ignore[attr-defined]
    try:
        found = fmnes.minimize(
            objective,
            np.full(d, start),
            sigma0,
            rng=seed,
            max_evaluations=budget,
            surrogate=False,
            bounds=bounds,
        )
    finally:
        answering.candidates_of = candidates_of  # type: ignore[attr-defined]
    error = math.nan if found.fun_error is None else found.fun_error
    success = bool(ends) and np.array_equal(found.x, ends[-1].x) and certain(ends[-1], error)
    above = f(found.x) - least
    if success and not above <= FAR * error:  # a local minimum is right
        above -= fmnes.minimize(f, found.x, 1e-3 * sigma0, rng=1, max_evaluations=20_000).fun - least
    reason = found.stop_reason.name if found.stop_reason else ""
    key = (part, problem, noise, d, budget, method, seed)
    return Trial(*key, above, found.fun, error, success, found.nfev, reason)


class End(NamedTuple):
    """What a search knows at its end."""

    search: Optimizer
    surface: Surface | None
    x: np.ndarray
    """Its answer."""


def certain(end: End, error: float) -> bool:
    """Whether the minimum of the fit is certainly one of the function, up to the error of its value."""
    if end.surface is None or end.search.noise is None:
        return False
    fit, minimum = end.surface.fit, end.surface.minimum
    table = end.search.noise.record.table
    n = len(fit.values)
    if n < CERTAIN_POINTS or n < CERTAIN_SHARE * len(table):
        return False
    if not (minimum.gain > 0 and np.linalg.norm(minimum.z) <= NEAR):
        return False
    if not (minimum.gain + minimum.loss) * end.surface.scale <= SMALL_LOSS * error:
        return False
    residuals = np.sqrt(fit.weights) * (fit.values - fit.predicted)
    time = np.arange(n) - (n - 1) / 2
    chance = math.sqrt(float(time @ time) * float(residuals @ residuals) / n)
    if abs(float(time @ residuals)) > TREND * chance:
        return False
    points = table[np.isfinite(table[:, -1])][-n:, :-1]
    ratio, distance = without_penalty(fit, end.search._distribution.coordinates_of(points))
    return ratio >= CERTAIN_CURVATURE and distance <= NEAR


def without_penalty(fit: Fit, z: np.ndarray) -> tuple[float, float]:
    """Of a fit without a penalty: the smallest ratio of a curvature and its error; how far its minimum is."""
    (n, d), i = z.shape, np.triu_indices(z.shape[1])
    halves = np.where(i[0] == i[1], 0.5, 1.0)
    features = np.column_stack([np.ones(n), z, halves * z[:, i[0]] * z[:, i[1]]])
    root = np.sqrt(fit.weights)
    size = np.linalg.norm(features * root[:, None], axis=0)
    inverse = np.linalg.pinv(features * root[:, None] / size) / size[:, None]
    coefficients = inverse @ (root * fit.values)
    squares = float(((root * (fit.values - features @ coefficients)) ** 2).sum())
    covariance = inverse @ inverse.T * (squares / (n - len(coefficients)))
    hessian = np.zeros((d, d))
    hessian[i] = coefficients[d + 1 :]
    hessian = np.triu(hessian) + np.triu(hessian, 1).T
    curvatures, axes = np.linalg.eigh(hessian)
    rows = 2 * halves * axes.T[:, i[0]] * axes.T[:, i[1]]
    errors = np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance[d + 1 :, d + 1 :], rows))
    step = np.linalg.lstsq(hessian, coefficients[1 : d + 1])[0]
    return float((curvatures / np.maximum(errors, 1e-300)).min()), float(np.linalg.norm(step))


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


def judged(trials: list[Trial]) -> list[str]:
    lines = ["| problem | runs | certain | wrong | right, but not certain |", "|---|---|---|---|---|"]
    own = [t for t in trials if t.part == "success"]

    def row(name: str, these: list[Trial]) -> str:
        right = [t.value <= FAR * t.error for t in these]
        claims = [ok for t, ok in zip(these, right, strict=True) if t.success]
        missed = sum(ok and not t.success for t, ok in zip(these, right, strict=True))
        wrong = share(claims.count(False), len(claims))
        return f"| {name} | {len(these)} | {len(claims)} | {wrong} | {missed} |"

    lines += [row(name, [t for t in own if t.problem == name]) for name in JUDGED]
    for noise in JUDGED_NOISE:
        lines.append(row(f"noise {noise}", [t for t in own if t.noise == noise]))
    for d in JUDGED_DIMENSIONS:
        lines.append(row(f"d = {d}", [t for t in own if t.d == d]))
    for budget in JUDGED_BUDGETS:
        lines.append(row(f"{budget:,} evaluations", [t for t in own if t.budget == budget]))
    return [*lines, row("all", own)]


def in_the_valley(trials: list[Trial]) -> str:
    ended = [t for t in trials if (t.part, t.problem, t.reason) == ("success", "curved valley", "NOISE")]
    far = sum(not t.value <= FAR * t.error for t in ended)
    return (
        "The rule is not used: in a long curved valley a quadratic function fits well far from the minimum, "
        "with a minimum of its own. `NOISE` alone says even less there: of the runs that ended with it, "
        f"{share(far, len(ended))} are far."
    )


def vanishing(trials: list[Trial]) -> str:
    """About runs whose noise vanishes at the minimum."""
    settled = [t for t in trials if t.part == "success" and t.reason in ("XTOL", "FTOL")]
    largest = max((t.value for t in settled), default=math.nan)
    count = sum(t.success for t in settled)
    return (
        f"{len(settled)} runs ended because their steps or values had settled, {count} of them with a "
        "certain minimum: noise that is a share of the value vanishes with it where the minimum is 0, "
        "and so does `fun_error`. The largest value without noise at their answers is "
        f"{largest:.1g} above the minimum."
    )


def judged_keys(n: int) -> list[tuple[str, str, str, int, int, str, int]]:
    """Runs whose problem, noise, dimension and budget are drawn; the first ones are those of a smaller n."""
    chance = np.random.default_rng(FIRST_JUDGED)
    weights = {name: problem.weight for name, problem in JUDGED.items()}
    total = sum(weights.values())

    def draw(shares: dict[Any, float]) -> Any:
        values = list(shares)
        return values[int(chance.choice(len(values), p=list(shares.values())))]

    keys = []
    for i in range(n):
        problem = draw({name: weight / total for name, weight in weights.items()})
        noise, d = draw(JUDGED_NOISE), draw(JUDGED_DIMENSIONS)
        budget = draw(JUDGED_BUDGETS)
        keys.append(("success", problem, noise, d, budget, METHODS[0], FIRST_JUDGED + i))
    return keys


def wanted(seeds: int, runs: int, n: int) -> list[tuple[str, str, str, int, int, str, int]]:
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
    return peers + own + judged_keys(n)


def page(trials: list[Trial], seeds: int, runs: int, n: int, used: dict[str, str]) -> str:
    named = ", ".join(f"{name} {version}" for name, version in used.items())
    text = [
        "# Noise",
        "",
        f"`python -m benchmarks.noise --seeds {seeds} --runs {runs} --judged {n}`, with {named}. "
        "The minimum of each function is 0. + 1: a normal random number with standard deviation 1 is added "
        "to each value; x 0.3: each value is multiplied by 1 + 0.3 N(0, 1).",
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
        "",
        "## A rule for success",
        "",
        "With noise a run is no `success` unless it reaches a target. Would this rule be wrong at most once "
        "in a hundred times? It takes a minimum of the fitted function as certain if, without a penalty, "
        f"each curvature is at least {CERTAIN_CURVATURE:g} of its standard errors, the minimum is within "
        f"{NEAR:g} standard deviations of the mean with and without the penalty, the gain over the mean and "
        f"the loss by errors of the fit are at most {SMALL_LOSS:g} `fun_error` together, at least "
        f"{CERTAIN_POINTS} points and {CERTAIN_SHARE:.0%} of all are fitted, and their residuals have no "
        "trend.",
        "",
        f"{n} runs without a target; problem, noise, dimension and budget are drawn, the valleys more often "
        f"than others. Seeds from {FIRST_JUDGED:,}; the rule was made with others. "
        "Wrong: the value without noise at `x` is above the minimum by more than "
        f"{FAR:g} `fun_error`; a local minimum is right. By 0.1: 0.1 (1 + |x1|) N(0, 1) is added.",
        "",
        *judged(trials),
        "",
        in_the_valley(trials),
        "",
        vanishing(trials),
    ]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Noisy objectives, beside cmaes and cma.")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each method and problem")
    parser.add_argument("--runs", type=int, default=10, help="runs of each problem whose answer is judged")
    parser.add_argument("--judged", type=int, default=1000, help="runs on which `success` is judged")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("noise"))
    parser.add_argument("--out", type=Path, help="write the page there")
    arguments = parser.parse_args()
    used = versions("fmnes", "cmaes", "cma")
    open_folder(arguments.folder, {"first_seed": FIRST_SEED}, **used)
    path = arguments.folder / "trials.csv"
    lines = Lines(path, HEADER)
    done = {trial.key: trial for trial in read_lines(path, HEADER, parse)}
    keys = wanted(arguments.seeds, arguments.runs, arguments.judged)
    trials = run_all(
        run,
        keys,
        done,
        work=lambda key: float(key[4]),
        keep=lambda trial: lines.add(line(trial)),
        workers=arguments.workers,
    )
    text = page(trials, arguments.seeds, arguments.runs, arguments.judged, used)
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
