"""Is the compiled search the search? Evaluations to target of `fj.run`, problem by problem, beside NumPy's.

    python -m benchmarks.compiled_search --dimensions 5 20 40 --out docs/benchmarks/compiled.md
    python -m benchmarks.compiled_search --problems sphere slope --dimensions 5 --seeds 0

The study's problems (fmnes_bench.search), each with the default method of `fj.run`, all runs of a cell in
one batch. Beside it the same with NumPy, one run after another, as many as `--seeds` says. A run is solved
within the problem's gap of the minimum; no tolerance ends it, nothing is restarted.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fmnes
from fmnes.integrations import jax as fj
from fmnes.strategies import DEFAULT_METHOD
from fmnes_bench.search import suite

LIMITS: dict[str, Any] = {"xtol": None, "ftol": None}


class Cell(NamedTuple):
    mean: float
    """Evaluations of the runs that are solved."""
    error: float
    """Its standard error."""
    solved: int
    runs: int
    seconds: float

    def __str__(self) -> str:
        share = "" if self.solved == self.runs else f" ({self.solved} of {self.runs})"
        return f"{self.mean:.0f} ± {self.error:.0f}{share}" if self.runs else ""


def cell(evaluations: Any, solved: Any, seconds: float) -> Cell:
    counts = np.asarray(evaluations, float)[np.asarray(solved, bool)]
    mean = float(counts.mean()) if len(counts) else math.nan
    error = float(counts.std(ddof=1)) / math.sqrt(len(counts)) if len(counts) > 1 else math.nan
    return Cell(mean, error, len(counts), len(evaluations), seconds)


def compiled(problem: Any, runs: int, seed: int, method: str) -> Cell:
    def fun(x: Any) -> Any:
        return problem.fun(x[None])[0]

    target = problem.minimum + problem.gap
    start = time.perf_counter()
    result = fj.run(
        fun,
        jnp.asarray(problem.x0),
        problem.sigma0,
        key=jax.random.key(seed),
        batch=runs,
        method=method,
        target=target,
        max_evaluations=problem.budget,
        **LIMITS,
    )
    solved = np.asarray(result.fun) <= target
    return cell(np.asarray(result.nfev), solved, time.perf_counter() - start)


def by_numpy(problem: Any, seeds: int, method: str) -> Cell:
    target = problem.minimum + problem.gap
    counts, solved = [], []
    start = time.perf_counter()
    for seed in range(seeds):
        options: dict[str, Any] = {"target": target, "max_evaluations": problem.budget, **LIMITS}
        opt = fmnes.Optimizer(problem.x0, problem.sigma0, method=method, rng=seed, **options)
        while opt.stop_reason is None:
            opt.tell(problem.fun(opt.ask()))
        counts.append(opt.evaluations)
        solved.append(opt.best.fun <= target)
    return cell(counts, solved, time.perf_counter() - start)


def line(name: str, d: int, ours: Cell, theirs: Cell) -> str:
    apart = (ours.mean - theirs.mean) / math.hypot(ours.error, theirs.error) if theirs.runs else math.nan
    shown = f"{apart:+.1f}" if math.isfinite(apart) else ""
    return f"| {d} | {name} | {ours} | {theirs} | {shown} | {ours.seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="+", default=list(suite.GROUPS["study"]))
    parser.add_argument("--dimensions", type=int, nargs="+", default=[5, 20, 40])
    parser.add_argument("--runs", type=int, default=32, help="compiled runs of a cell")
    parser.add_argument("--seeds", type=int, default=32, help="NumPy's runs of a cell; 0: none")
    parser.add_argument("--seed", type=int, default=0, help="of the compiled runs")
    parser.add_argument("--method", default=DEFAULT_METHOD)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    lines = [
        f"`{chosen.method}`, float64: evaluations of solved runs ± s.e.; {chosen.runs} compiled runs "
        f"(JAX {jax.__version__} on {device.platform}: {device.device_kind}), {chosen.seeds} with NumPy",
        "",
        "| d | problem | compiled | NumPy | difference in s.e. | seconds, compiling included |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines), flush=True)
    for d, name in itertools.product(chosen.dimensions, chosen.problems):
        problem = suite.get(name, d)
        ours = compiled(problem, chosen.runs, chosen.seed, chosen.method)
        theirs = by_numpy(problem, chosen.seeds, chosen.method)
        lines.append(line(name, d, ours, theirs))
        print(lines[-1], flush=True)
        if chosen.out:
            chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
