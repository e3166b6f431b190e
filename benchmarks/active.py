"""Where FM-NES is weak: few parameters, and the optimum on the edge of what can be evaluated.

    python -m benchmarks.active --out docs/benchmarks/active.md

Evaluations to 1e-6 above the optimum of shifted-sphere-active, whose objective still wants to cross the edge
there, FM-NES beside CMA-ES with the same λ and the same seeds.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from fmnes import minimize, problems


def evaluations(method: str, d: int, active: int, trials: int) -> tuple[float, float, int]:
    """Mean over the successful trials, its standard error, successes."""
    problem = problems.get("shifted-sphere-active", d=d, active=active)
    counts = []
    for seed in range(trials):
        result = minimize(
            problem.fun,
            problem.x0,
            problem.sigma0,
            method=method,
            rng=seed,
            vectorized=True,
            target=1e-6,
            max_evaluations=1_000_000,
            xtol=1e-15,
            evaluate_start=False,
        )
        counts += [result.nfev] if result.success else []
    if len(counts) < 2:
        return math.nan, math.nan, len(counts)
    return float(np.mean(counts)), float(np.std(counts, ddof=1) / math.sqrt(len(counts))), len(counts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 3, 5, 10, 20])
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    lines = [
        f"Evaluations ± standard error, {chosen.trials} trials",
        "",
        "| d | active constraints | fm-nes | solved | cma-es | solved | fm-nes / cma-es |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines), flush=True)
    for d in chosen.dimensions:
        for active in sorted({1, max(1, d // 2), d}):
            cells = [evaluations(method, d, active, chosen.trials) for method in ("fm-nes", "cma-es")]
            shown = " | ".join(f"{mean:.0f} ± {error:.0f} | {solved}" for mean, error, solved in cells)
            lines.append(f"| {d} | {active} | {shown} | {cells[0][0] / cells[1][0]:.1f} |")
            print(lines[-1], flush=True)
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
