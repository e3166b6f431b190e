"""The pictures of docs/plots.md.

    python -m benchmarks.gallery [--out docs/plots]

The same versions of fmnes, NumPy and matplotlib give the same files.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import fmnes

SPACE = {
    "thickness": fmnes.Real(0.1, 10, log=True),
    "angle": fmnes.Real(start=2.8, sigma=0.4),
    "layers": fmnes.Integer(1, 12),
}


def panel(p: dict[str, Any]) -> float:
    """A sandwich panel: its weight, and what keeps it from being computed."""
    if p["thickness"] * p["layers"] < 2:
        raise fmnes.Infeasible("the panel buckles")
    if p["angle"] > 2.9 or p["angle"] < 1.95:
        raise fmnes.Infeasible("the mesh is degenerate")
    if p["layers"] > 5 and p["thickness"] < 0.6:
        raise fmnes.Infeasible("the solver did not converge")
    return p["thickness"] * p["layers"] + (p["angle"] - 2) ** 2 + 0.01 * p["layers"]


def pictures() -> dict[str, Any]:
    """{name: figure}"""
    result = fmnes.minimize(panel, SPACE, rng=3, max_evaluations=115, keep_evaluations=True)
    problem = fmnes.problems.get("ic-rosenbrock", d=10)
    several = {
        method: fmnes.minimize(
            problem.fun, problem.x0, problem.sigma0, method=method, rng=1, max_evaluations=4000
        )
        for method in ("afm-nes", "fm-nes", "cma-es")
    }
    return {
        "convergence": fmnes.plots.convergence(result),
        "distribution": fmnes.plots.distribution(result),
        "failure_map": fmnes.plots.failure_map(result),
        "failures": fmnes.plots.failures(result),
        "parameters": fmnes.plots.parameters(result),
        "slices": fmnes.plots.slices(result),
        "compare": fmnes.plots.compare(several),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/plots"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures().items():
        (out / f"{name}.svg").write_text(fmnes.plots.as_svg(figure) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
