"""`fmnes bench`: time and memory per evaluation beside the peers."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import check_population_size
from fmnes.search.optimizer import Optimizer
from fmnes.strategies import METHODS
from fmnes.strategies.fm_nes_state import constants
from fmnes_bench.trials import table_row

# -- The timed optimizers, those of fmnes and the peers, behind the same two calls.
#
#     ask()        -> points (λ, d)
#     tell(x, f)   -> None
#
# Same d, same λ, same start, one thread. Each adapter does what the peer's documentation shows and nothing
# else; the objective is evaluated outside, between the two calls, and is not timed.


Points = NDArray[np.float64]


class Contestant(NamedTuple):
    ask: Callable[[], Any]
    tell: Callable[[Any, Points], Any]


def ours(method: str, d: int, population_size: int) -> Contestant:
    opt = Optimizer(np.full(d, 3.0), 1.0, method=method, population_size=population_size, rng=1)
    return Contestant(opt.ask, lambda x, f: opt.tell(f))


def cma(d: int, population_size: int) -> Contestant:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that matplotlib is missing
        import cma as package
    options = {"popsize": population_size, "verbose": -9, "seed": 1}
    es = package.CMAEvolutionStrategy(np.full(d, 3.0), 1.0, options)
    return Contestant(es.ask, lambda x, f: es.tell(x, f.tolist()))


def cmaes(d: int, population_size: int) -> Contestant:
    import cmaes as package

    es = package.CMA(np.full(d, 3.0), 1.0, population_size=population_size, seed=1)
    return Contestant(
        lambda: [es.ask() for _ in range(population_size)],
        lambda x, f: es.tell(list(zip(x, f.tolist(), strict=True))),
    )


def fcmaes(d: int, population_size: int) -> Contestant:
    from fcmaes import cmaescpp

    es = cmaescpp.ACMA_C(
        d, None, np.full(d, 3.0), 1.0, popsize=population_size, rg=np.random.Generator(np.random.PCG64(1))
    )
    return Contestant(es.ask, lambda x, f: es.tell(f))


def crfmnes(d: int, population_size: int) -> Contestant:
    """The authors' CR-FM-NES. It calls the objective itself, so its whole step is in `tell`."""
    from crfmnes import CRFMNES

    values: list[float] = []
    es = CRFMNES(
        d,
        lambda x: values.pop(),
        np.full((d, 1), 3.0),
        1.0,
        population_size,
        seed=1,
        use_constraint_violation=False,  # its default looks at every coordinate in a Python loop
    )
    placeholder = np.zeros((population_size, 1))

    def tell(_: Any, f: Points) -> None:
        values.extend(f[::-1].tolist())
        es.one_iteration()

    return Contestant(lambda: placeholder, tell)


Maker = Callable[[int, int], Contestant]
FULL_MATRIX: dict[str, Maker] = {
    "afm-nes": lambda d, lam: ours("afm-nes", d, lam),
    "fm-nes": lambda d, lam: ours("fm-nes", d, lam),
    "cma": cma,
    "cmaes": cmaes,
    "fcmaes": fcmaes,
}
LINEAR: dict[str, Maker] = {"cr-fm-nes": lambda d, lam: ours("cr-fm-nes", d, lam), "crfmnes": crfmnes}


def installed(makers: dict[str, Maker]) -> dict[str, Maker]:
    """Those that work here: a peer, or a library it needs, may be missing."""
    found = {}
    for name, make in makers.items():
        with contextlib.suppress(ImportError):
            make(2, 6)
            found[name] = make
    return found


# -- Overhead per evaluation: what an optimizer costs besides the objective.
#
# Contestants take turns in short rounds, so that a busy moment of the machine affects all of them, and the
# fastest round of each counts. A round of FM-NES covers at least three refresh periods.


class Timing(NamedTuple):
    name: str
    d: int
    population_size: int
    """Of the first generation."""
    failing: float
    """Share of evaluations that fail."""
    microseconds: float
    """Per evaluation."""


def default_population_size(d: int) -> int:
    return check_population_size(None, d, mirrored=True)


def one_round(
    contestant: Contestant, d: int, failing: float, generations: int, rng: np.random.Generator
) -> tuple[float, int]:
    """Seconds spent in ask and tell, and for how many evaluations: where points fail, λ may grow."""
    scale = np.geomspace(1, 1000, d) if d > 1 else np.ones(1)
    spent, evaluations = 0.0, 0
    for _ in range(generations):
        started = time.perf_counter()
        x = contestant.ask()
        spent += time.perf_counter() - started
        f: Points = np.square(np.asarray(x) * (scale if np.shape(x)[1] == d else 1.0)).sum(axis=1)
        if np.shape(x)[1] != d:
            f = rng.random(len(f))  # the contestant does not show its points; any values will do
        if failing:
            f = np.where(rng.random(len(f)) < failing, np.inf, f)
        started = time.perf_counter()
        contestant.tell(x, f)
        spent += time.perf_counter() - started
        evaluations += len(f)
    return spent, evaluations


def compare(
    makers: dict[str, Maker],
    d: int,
    population_size: int,
    *,
    failing: float = 0.0,
    generations: int | None = None,
    rounds: int = 5,
    seconds: float = 20.0,
) -> Iterable[Timing]:
    """Every contestant at one dimension. Stops adding rounds when `seconds` are over."""
    contestants = {name: make(d, population_size) for name, make in makers.items()}
    best: dict[str, float] = {}
    rng = np.random.default_rng(0)
    # Our own round spans three refresh periods; a slow peer gets fewer generations.
    k = constants(d, population_size, "tables", "tables")
    wanted = generations or max(300, 3 * k.decompose * k.refresh + 3)
    counts: dict[str, int] = {}
    for name, contestant in contestants.items():
        pace = one_round(contestant, d, failing, 2, rng)[0] / 2
        ours = name in METHODS
        counts[name] = (
            wanted if ours else max(2, min(wanted, int(seconds / (2 * len(contestants)) / max(pace, 1e-9))))
        )
    deadline = time.monotonic() + seconds
    for round_number in range(rounds):
        if round_number and time.monotonic() > deadline:
            break
        for name, contestant in contestants.items():
            spent, evaluations = one_round(contestant, d, failing, counts[name], rng)
            best[name] = min(best.get(name, math.inf), spent / evaluations)
    for name, spent in best.items():
        yield Timing(name, d, population_size, failing, 1e6 * spent)


# -- `fmnes bench`: every table of the benchmark, in one process on one thread.


FAILING = (0.0, 0.3)
Ratios = dict[str, tuple[str, str, tuple[str, ...]]]
#: By the name in speed.json: the title, the method of fmnes, and the peers; the fastest one counts.
FULL_RATIOS: Ratios = {
    "default_ratio_python": ("afm-nes / best Python", "afm-nes", ("cma", "cmaes")),
    "ratio_python": ("fm-nes / best Python", "fm-nes", ("cma", "cmaes")),
    "ratio_fcmaes": ("fm-nes / fcmaes", "fm-nes", ("fcmaes",)),
}
LINEAR_RATIOS: Ratios = {"ratio": ("ratio", "cr-fm-nes", ("crfmnes",))}
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def in_one_thread(arguments: list[str]) -> int:
    """Run this module in a fresh process whose BLAS has one thread, as the peers are then timed too."""
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    return subprocess.run([sys.executable, "-m", "fmnes_bench.speed", *arguments], env=environment).returncode


def floor_seconds(d: int, population_size: int, repeats: int = 20) -> float:
    """The least cost with a full matrix: the draws, z ↦ B z, one update of B by λ/2 directions."""
    rng = np.random.default_rng(0)
    n = population_size // 2
    B, small = np.eye(d), np.eye(n)
    best = math.inf
    for _ in range(repeats):
        started = time.perf_counter()
        z = rng.standard_normal((n, d))
        y = z @ B.T
        (y.T @ small) @ z
        best = min(best, time.perf_counter() - started)
    return best


def peak_megabytes(method: str, d: int, population_size: int) -> float:
    """Most memory that three generations hold at once, in MB, NumPy's arrays included."""
    tracemalloc.start()
    try:
        contestant = ours(method, d, population_size)
        one_round(contestant, d, 0.0, 3, np.random.default_rng(0))
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def growth(timings: list[Timing], name: str, low: int, high: int, failing: float) -> float:
    """Exponent of the cost per evaluation between two dimensions."""
    at = {t.d: t.microseconds for t in timings if t.name == name and t.failing == failing}
    if low not in at or high not in at:
        return math.nan
    return math.log(at[high] / at[low]) / math.log(high / low)


def environment() -> dict[str, Any]:
    versions = {}
    for package in ("numpy", "cma", "cmaes", "fcmaes", "crfmnes"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {"python": platform.python_version(), "machine": platform.machine(), **versions}


def run(
    full: tuple[int, ...], linear: tuple[int, ...], seconds: float, say: Callable[[str], None] = print
) -> dict[str, Any]:
    timings: list[Timing] = []
    rows: list[dict[str, Any]] = []
    contestants, one_by_one = installed(FULL_MATRIX), installed(LINEAR)
    if missing := [name for name in (*FULL_MATRIX, *LINEAR) if name not in {*contestants, *one_by_one}]:
        say(f'Not installed, so left out: {", ".join(missing)}; pip install "fmnes[bench]" brings them.\n')
    _head(
        say,
        *("d", "λ", "failing", *(f"{n} µs" for n in contestants), "floor µs"),
        *_titles(FULL_RATIOS, contestants),
    )
    for d in full:
        size = default_population_size(d)
        floor = 1e6 * floor_seconds(d, size) / size
        for failing in FAILING:
            found = list(compare(contestants, d, size, failing=failing, seconds=seconds))
            timings += found
            cost = {t.name: t.microseconds for t in found}
            ratios = _ratios(cost, FULL_RATIOS)
            rows.append({"d": d, "lambda": size, "failing": failing, **cost, "floor": floor, **ratios})
            costs = [f"{cost[n]:.4g}" for n in contestants]
            shares = [f"{ratio:.2f}" for ratio in ratios.values()]
            _line(say, d, size, f"{failing:.0%}", *costs, f"{floor:.3g}", *shares)
    say("")
    exponents = {f"{f:.0%}": growth(timings, "fm-nes", 100, 1000, f) for f in FAILING}
    if 100 in full and 1000 in full:
        shown = ", ".join(f"{exponent:.2f} ({f} failing)" for f, exponent in exponents.items())
        say(f"Growth of the cost of FM-NES per evaluation from d = 100 to 1000, exponent: {shown}\n")
    linear_rows: list[dict[str, Any]] = []
    _head(say, "d", "λ", *(f"{n} µs" for n in one_by_one), *_titles(LINEAR_RATIOS, one_by_one))
    for d in linear:
        size = 32
        generations = max(3, 200_000 // d)
        found = list(compare(one_by_one, d, size, generations=generations, rounds=3, seconds=seconds))
        cost = {t.name: t.microseconds for t in found}
        ratios = _ratios(cost, LINEAR_RATIOS)
        linear_rows.append({"d": d, "lambda": size, **cost, **ratios})
        costs = [f"{cost[n]:.4g}" for n in one_by_one]
        _line(say, d, size, *costs, *(f"{ratio:.2f}" for ratio in ratios.values()))
    say("")
    memory = [
        {"method": method, "d": d, "megabytes": peak_megabytes(method, d, default_population_size(d))}
        for method, dimensions in (("fm-nes", full), ("cr-fm-nes", linear))
        for d in dimensions
        if d >= 100
    ]
    _head(say, "method", "d", "peak MB")
    for entry in memory:
        _line(say, entry["method"], entry["d"], f"{entry['megabytes']:.1f}")
    return {
        "environment": environment(),
        "full_matrix": rows,
        "growth_exponent_100_to_1000": exponents,
        "linear": linear_rows,
        "memory": memory,
    }


def _titles(ratios: Ratios, there: Iterable[str]) -> list[str]:
    return [title for title, _, peers in ratios.values() if {*peers} & {*there}]


def _ratios(cost: dict[str, float], ratios: Ratios) -> dict[str, float]:
    """Those for which there is a peer."""
    found = {name: (ours, [cost[n] for n in peers if n in cost]) for name, (_, ours, peers) in ratios.items()}
    return {name: cost[ours] / min(costs) for name, (ours, costs) in found.items() if costs}


def _line(say: Callable[[str], None], *cells: Any) -> None:
    say(table_row(cells))


def _head(say: Callable[[str], None], *titles: str) -> None:
    _line(say, *titles)
    _line(say, *("---" for _ in titles))


def main(arguments: list[str]) -> None:
    """`python -m fmnes_bench.speed FULL LINEAR SECONDS [OUT]`, dimensions separated by commas."""
    full, linear = (tuple(int(d) for d in text.split(",") if d) for text in arguments[:2])
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    versions = ", ".join(f"{name} {version}" for name, version in environment().items())
    say(f"`fmnes bench`: time per evaluation spent in ask and tell, in µs, one thread ({versions}).")
    say("λ is the default of the first method; if points fail, afm-nes (the default) may use a larger one.")
    say("Floor: the draws and the two matrix products that every method with a full matrix needs.\n")
    result = run(full, linear, float(arguments[2]), say)
    if len(arguments) > 3:
        out = Path(arguments[3])
        out.mkdir(parents=True, exist_ok=True)
        (out / "speed.json").write_text(json.dumps(result, indent=1).replace("NaN", "null") + "\n")
        page = ["# The cost of ask and tell\n", *lines]
        (out / "speed.md").write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
