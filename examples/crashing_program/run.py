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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fmnes
from examples.crashing_program import happened

#: Evaluations at reduced size.
QUICK = 40
HERE = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m examples.crashing_program.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--evaluations", type=int, help="(as in problem.toml)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument(
        "--out", type=Path, help="a directory for crashing_program.svg, crashing_program.run and the program"
    )
    given = parser.parse_args(arguments)
    kept = None if given.out is None else given.out / "crashing_program.run"
    read_problem = _needs(kept)
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory()) if given.out is None else None
        folder = Path(temporary) if temporary else given.out / "crashing_program"
        build(folder)
        problem = read_problem(folder / "problem.toml")
        options = {**problem.run, "rng": given.seed}
        if given.evaluations is not None:
            options["max_evaluations"] = given.evaluations
        start = {name: parameter.start for name, parameter in problem.space.parameters.items()}
        print(f"start: {_words(start)}, cost {problem.command(start):.3f}")
        middles = [start]

        def follow(view: fmnes.View) -> None:
            middles.append(view.mean)

        result = fmnes.minimize(
            problem.command, problem.space.parameters, run_dir=kept, callback=follow, **options
        )
        print(f"found: {_words(result.x)}, cost {result.fun:.3f}")
        print(f"{result.nfev} evaluations, {result.n_infeasible} of them failed")
        for failure in result.failures:
            print(f"  {failure.count} × {failure.reason}")
        if given.out is None:
            return
        everywhere = happened.try_all(problem, 8 if given.evaluations and given.evaluations <= QUICK else 32)
    for kind, share in happened.shares(everywhere).items():
        print(f"of the map: {share:.0%} {kind}")
    figure = happened.draw(everywhere, fmnes.read_run(kept).evaluations, middles)
    picture = given.out / "crashing_program.svg"
    picture.write_text(fmnes.plots.as_svg(figure) + "\n", encoding="utf-8")
    print(f"picture: {picture}\nthe run: {kept}")


def build(folder: Path) -> None:
    """The program and the problem file in a folder, ready to run."""
    compiler = _compiler()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "problem.toml", folder)
    command = [compiler, "-O2", "-o", str(folder / "simulate"), str(HERE / "simulate.c"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"crashing_program: {compiler} cannot compile simulate.c:\n{done.stderr[-2000:]}")


def _words(x: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in x.items())


def _compiler() -> str:
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    raise SystemExit("crashing_program: found no C compiler, wanted cc:  apt-get install gcc libc6-dev")


def _needs(kept: Path | None) -> Any:
    """What reads problem files. Whatever is missing ends it here, before anything runs."""
    _compiler()
    try:
        from fmnes.cli.problem_file import read_problem

        if kept is not None:
            from fmnes.plots.drawing import need_matplotlib

            need_matplotlib()
            kept.parent.mkdir(parents=True, exist_ok=True)
    except ModuleNotFoundError as error:
        raise SystemExit(f'crashing_program: found no {error.name}:  pip install "fmnes[cli]"') from None
    except fmnes.MissingExtra as error:
        raise SystemExit(f"crashing_program: {error}") from None
    if kept is not None and kept.exists():
        raise SystemExit(
            f"crashing_program: found an earlier run in {kept}; remove it, or choose another --out"
        )
    return read_problem


if __name__ == "__main__":
    main()
