"""How near the default method comes with what `fmnes init` writes: each template, its own budget, 20 seeds.

    python -m benchmarks.templates [--seeds 20] [--template program] [--out docs/benchmarks/templates.md]

Everything as a user has it: the files of the template, real programs, the budget that the files say.
"""

from __future__ import annotations

import argparse
import math
import os
import runpy
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fmnes
from fmnes.cli.problem import template_files
from fmnes.cli.problem_file import read_problem


def lightest_beam() -> float:
    """Mass 2 ρ w h, where 500 / (2e7 √ρ w h³) > 0.02 breaks.

    On that edge w = 1.25e-3 / (√ρ h³), so that the mass is 2.5e-3 √ρ / h²: the least ρ, and h as large as the
    least w allows. Beyond it the mass grows with h again.
    """
    density, width = 100.0, 0.01  # their lower bounds
    height = (1.25e-3 / (math.sqrt(density) * width)) ** (1 / 3)
    return 2.0 * density * width * height


def lightest_tube() -> float:
    """Mass 2π ρ r t L, where F > π³ E r³ t / L² buckles and F / (2π r t) > 0.3 E t / r crumples.

    The second says t ≥ √(F / (0.6 π E)), whatever r is. On the first r = (F L² / (π³ E t))^(1/3), so that the
    mass grows with t^(2/3): the least t. The stress there is 186 MPa, below the strength of 250 MPa.
    """
    load, length, stiffness, density = 50e3, 3.0, 70e9, 2700.0
    wall = math.sqrt(load / (0.6 * math.pi * stiffness))
    radius = (load * length**2 / (math.pi**3 * stiffness * wall)) ** (1 / 3)
    return 2 * math.pi * density * radius * wall * length


def least_loss() -> float:
    """Chebyshev's filter of order 3: 20 dB at twice the edge cost 10 lg(1 + (10² - 1) / T3(2)²) dB before it.

    T3(2) = 26. No polynomial of its degree grows faster outside of where it is bounded, so that no ladder of
    as many parts loses less, nor one that has 20 dB somewhere before.
    """
    return 10 * math.log10(1 + (10**2 - 1) / 26**2)


def least_drag() -> float:
    """`python -m benchmarks.xfoil_grid`; XFOIL prints no more digits."""
    return 0.01540


#: The least value there is, where that is known.
KNOWN: dict[str, Callable[[], float]] = {
    "program": lightest_beam,
    "python": lightest_tube,
    "ngspice": least_loss,
    "xfoil": least_drag,
}


HEAD = ("template", "least", "within 1 %", "median excess", "worst", "evaluations", "failed", "seconds a run")


def write(template: str, folder: Path) -> None:
    for name, text in template_files(template).items():
        (folder / name).write_text(text, encoding="utf-8")


def search(folder: Path, seed: int) -> fmnes.Result:
    """The search that the files of this folder describe."""
    if (folder / "problem.toml").exists():
        problem = read_problem(folder / "problem.toml")
        return fmnes.minimize(problem.command, problem.space.parameters, **{**problem.run, "rng": seed})
    script = runpy.run_path(str(folder / "optimise.py"))
    budget = {"max_evaluations": script["MAX_EVALUATIONS"]}
    return fmnes.minimize(script["simulate"], script["space"], rng=seed, **budget)


def row(template: str, seeds: int) -> str:
    least, began = KNOWN[template](), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        write(template, Path(folder))
        found = [search(Path(folder), seed) for seed in range(seeds)]
    off = sorted(result.fun / least - 1 for result in found)
    failed = sum(result.n_infeasible for result in found) / sum(result.nfev for result in found)
    cells = (
        template,
        f"{least:.6g}",
        f"{sum(gap <= 0.01 for gap in off)} of {seeds}",
        f"{statistics.median(off):.1e}",
        f"{off[-1]:.1e}",
        f"{max(result.nfev for result in found)}",
        f"{failed:.0%}",
        f"{(time.monotonic() - began) / seeds:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--template", choices=[*KNOWN], action="append")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/templates.md"))
    given = parser.parse_args()
    chosen = given.template or KNOWN
    options = "".join(f" --template {template}" for template in given.template or ())
    lines = [
        "# The default method on the templates of `fmnes init`",
        "",
        f"`python -m benchmarks.templates --seeds {given.seeds}{options}` on {os.cpu_count()} cores:",
        "real programs, each with the budget in its file. The minimum is known from a formula, for XFOIL",
        "from a grid (`python -m benchmarks.xfoil_grid`).",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for template in chosen:
        lines.append(row(template, given.seeds))
        print(lines[-1], flush=True)
    given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
