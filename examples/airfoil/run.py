"""The wing section of least drag with XFOIL, from Python.

    python -m examples.airfoil.run [--evaluations 500] [--seed 0] [--out DIR]

The same search as `fmnes minimize examples/airfoil/problem.toml`. With --out, DIR/airfoil.svg is the picture
and DIR/airfoil.run what `fmnes show` reads.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import fmnes
from examples import make_folder

if TYPE_CHECKING:
    from fmnes.cli.problem_file import ProblemFile

#: Evaluations at reduced size.
QUICK = 30


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m examples.airfoil.run", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--evaluations", type=int, help="(as in problem.toml)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--out", type=Path, help="a directory for airfoil.svg and airfoil.run")
    given = parser.parse_args(arguments)
    check_installed(picture=given.out is not None)
    make_folder(given.out)
    if given.out and (given.out / "airfoil.run").exists():
        raise SystemExit(f"airfoil: found an earlier run in {given.out}; remove it, or choose another --out")

    problem = read()
    result = search(problem, given.evaluations, given.seed, given.out and given.out / "airfoil.run")
    table = result.evaluations
    assert table is not None and result.x is not None  # the start has a value
    print(f"drag {1e4 * table.value[0]:.1f} → {1e4 * result.fun:.1f} counts (10⁻⁴), with")
    print("  " + ", ".join(f"{name} = {value:.4f}" for name, value in result.x.items()))
    share = result.n_infeasible / result.nfev
    print(f"{result.nfev} evaluations, {result.n_infeasible} of them failed ({share:.0%})")
    for failure in result.failures:
        print(f"{failure.count:6d} × {failure.reason}")
    if given.out:
        from examples.airfoil.picture import draw

        picture = given.out / "airfoil.svg"
        picture.write_text(fmnes.plots.as_svg(draw(start(problem), result)) + "\n", encoding="utf-8")
        print(f"the picture is {picture}, the run {given.out / 'airfoil.run'}")


def check_installed(*, picture: bool) -> None:
    """Ends here with the line that installs it if something is not."""
    if shutil.which("xfoil") is None:
        raise SystemExit("airfoil: found no xfoil, wanted it on the PATH: apt-get install xfoil")
    if not find_spec("typer"):
        raise SystemExit('airfoil: problem files need pip install "fmnes[cli]"')
    if picture and not find_spec("matplotlib"):
        raise SystemExit('airfoil: the picture needs pip install "fmnes[plot]"')


def read() -> ProblemFile:
    """The problem file, with the Python that we run on: `python3` may be another, or a slow wrapper of it."""
    from fmnes.cli.problem_file import read_problem

    problem = read_problem(Path(__file__).with_name("problem.toml"))
    return replace(
        problem, command=replace(problem.command, argv=(sys.executable, *problem.command.argv[1:]))
    )


def start(problem: ProblemFile) -> dict[str, float]:
    return {name: parameter.start for name, parameter in problem.space.parameters.items()}


def search(
    problem: ProblemFile, evaluations: int | None = None, seed: int = 0, run_dir: Path | None = None
) -> fmnes.Result:
    budget = {} if evaluations is None else {"max_evaluations": evaluations}
    options = {**problem.run, **budget, "rng": seed, "run_dir": run_dir}
    return fmnes.minimize(
        problem.command, problem.space.parameters, keep_evaluations=True, progress=True, **options
    )


if __name__ == "__main__":
    main()
