"""A program that crashes, hangs and prints no number: python -m examples.crashing_program.run [--out DIR]

Compiles `simulate.c` beside a copy of `problem.toml`, and searches; with --out it also draws a map of what
happens where.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import fmnes
from examples import make_folder
from examples.crashing_program import happened

if TYPE_CHECKING:
    from fmnes.cli.problem_file import ProblemFile

#: Evaluations at reduced size.
QUICK = 20
HERE = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m examples.crashing_program.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--evaluations", type=int, help="(as in problem.toml)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument(
        "--out",
        type=Path,
        help="a directory for crashing_program.svg, crashing_program.run and the program",
    )
    given = parser.parse_args(arguments)
    kept = None if given.out is None else given.out / "crashing_program.run"
    check_installed(picture=kept is not None)
    make_folder(given.out)
    if kept is not None and kept.exists():
        raise SystemExit(
            f"crashing_program: found an earlier run in {kept}; remove it, or choose another --out"
        )
    from fmnes.cli.problem_file import read_problem

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if kept is None else given.out / "crashing_program"
        build(folder)
        problem = read_problem(folder / "problem.toml")
        middles = search(problem, given.evaluations, given.seed, kept)
        if kept is not None:
            quick = given.evaluations is not None and given.evaluations <= QUICK
            everywhere = happened.try_all(problem, 8 if quick else 32)
            for what, share in happened.shares(everywhere).items():
                print(f"of the map: {share:.0%} {what}")
            figure = happened.draw(everywhere, fmnes.read_run(kept).evaluations, middles)
            picture = given.out / "crashing_program.svg"
            picture.write_text(fmnes.plots.as_svg(figure) + "\n", encoding="utf-8")
            print(f"the picture is {picture}, the run {kept}")


def search(
    problem: ProblemFile, evaluations: int | None, seed: int, run_dir: Path | None
) -> list[dict[str, float]]:
    """Says what it found; returns the start and the middle of each generation."""
    start = {name: parameter.start for name, parameter in problem.space.parameters.items()}
    middles = [start]

    def follow(view: fmnes.View) -> None:
        middles.append(view.mean)

    command = problem.command if run_dir else replace(problem.command, keep="none")
    budget = {} if evaluations is None else {"max_evaluations": evaluations}
    options = {**problem.run, **budget, "rng": seed, "run_dir": run_dir, "callback": follow, "progress": True}
    print(f"start: {_words(start)}, cost {command(start):.3f}")
    result = fmnes.minimize(command, problem.space.parameters, **options)
    print(f"found: {_words(result.x)}, cost {result.fun:.3f}")
    share = result.n_infeasible / result.nfev
    print(f"{result.nfev} evaluations, {result.n_infeasible} of them failed ({share:.0%})")
    for failure in result.failures:
        print(f"{failure.count:6d} × {failure.reason}")
    return middles


def build(folder: Path) -> None:
    """The program and the problem file in a folder, ready to run."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "problem.toml", folder)
    command = [compiler(), "-O2", "-o", str(folder / "simulate"), str(HERE / "simulate.c"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"crashing_program: {command[0]} cannot compile simulate.c:\n{done.stderr[-2000:]}")


def _words(x: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in x.items())


def compiler() -> str:
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    raise SystemExit("crashing_program: found no C compiler, wanted cc: apt-get install gcc libc6-dev")


def check_installed(*, picture: bool) -> None:
    """Ends here with the line that installs it if something is not."""
    compiler()
    if not find_spec("typer"):
        raise SystemExit('crashing_program: problem files need pip install "fmnes[cli]"')
    if picture and not find_spec("matplotlib"):
        raise SystemExit('crashing_program: the picture needs pip install "fmnes[plot]"')


if __name__ == "__main__":
    main()
