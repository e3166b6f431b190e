"""`fmnes bench`: every table of the benchmark, in one process on one thread."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fmnes.benchmark.contestants import FULL_MATRIX, LINEAR, installed, ours
from fmnes.benchmark.speed import Timing, compare, default_population_size, one_round

FAILING = (0.0, 0.3)
Ratios = dict[str, tuple[str, str, tuple[str, ...]]]
#: The column's name in speed.json and its title: the cost of ours beside that of the best of these.
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
    return subprocess.run(
        [sys.executable, "-m", "fmnes.benchmark.run", *arguments], env=environment
    ).returncode


def floor_seconds(d: int, population_size: int, repeats: int = 20) -> float:
    """What no full matrix can do without: the draws, z ↦ B z, one update of B by λ/2 directions."""
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
    say("| " + " | ".join(map(str, cells)) + " |")


def _head(say: Callable[[str], None], *titles: str) -> None:
    _line(say, *titles)
    _line(say, *("---" for _ in titles))


def main(arguments: list[str]) -> None:
    """`python -m fmnes.benchmark.run FULL LINEAR SECONDS [OUT]`, dimensions separated by commas."""
    full, linear = (tuple(int(d) for d in text.split(",") if d) for text in arguments[:2])
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    versions = ", ".join(f"{name} {version}" for name, version in environment().items())
    say(f"`fmnes bench`: µs per evaluation spent in ask and tell, one thread ({versions}).")
    say("λ is the first one's; where points fail, that of afm-nes, the default, may grow.")
    say("Floor: the draws and the two products no full matrix can do without.\n")
    result = run(full, linear, float(arguments[2]), say)
    if len(arguments) > 3:
        out = Path(arguments[3])
        out.mkdir(parents=True, exist_ok=True)
        (out / "speed.json").write_text(json.dumps(result, indent=1).replace("NaN", "null") + "\n")
        page = ["# What ask and tell cost\n", *lines]
        (out / "speed.md").write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
