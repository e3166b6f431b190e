"""An amplifier that uses little power, with ngspice: python -m examples.op_amp.run [--out DIR]

Twice: with both edges of the pulse tested, and with only the rising one, to see what a search makes of that.
The problem is in `problem.toml` and `follower.cir.in`; this file calls it, says what came of it and draws it.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fmnes
from examples.op_amp import steps

#: Evaluations of each run at reduced size.
QUICK = 60
FALLING = "the falling edge does not settle"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m examples.op_amp.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--evaluations", type=int, help="of each of the two runs (as in problem.toml)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--out", type=Path, help="a directory for op_amp.svg and op_amp.run")
    given = parser.parse_args(arguments)
    kept = None if given.out is None else given.out / "op_amp.run"
    read_problem = _needs(kept)

    problem = read_problem(Path(__file__).with_name("problem.toml"))
    options = {**problem.run, "rng": given.seed, "keep_evaluations": True}
    if given.evaluations is not None:
        options["max_evaluations"] = given.evaluations
    both = problem.command
    rising_only = replace(both, fail_if=[text for text in both.fail_if if text != FALLING])

    start = {name: parameter.start for name, parameter in problem.space.parameters.items()}
    before = simulated(both, start)
    print(f"start: {both(start):.3f} mW; {steps.words(before)}")
    found = []
    for what, command, folder in (("both edges", both, kept), ("only the rising edge", rising_only, None)):
        result = fmnes.minimize(command, problem.space.parameters, run_dir=folder, **options)
        if result.x is None:
            raise SystemExit(
                f"{what} tested: none of {result.nfev} circuits works; wanted more --evaluations"
            )
        after = simulated(rising_only, result.x)
        found.append((result, after))
        print(f"{what} tested: {result.fun:.3f} mW; {steps.words(after)}")
        print(f"  {result.nfev} evaluations, {result.n_infeasible} of them failed")
        for failure in result.failures:
            print(f"  {failure.count} × {failure.reason}")
    if given.out is not None:
        (result, after), (untested, exploited) = found
        figure = steps.draw(before, after, exploited, result, untested)
        picture = given.out / "op_amp.svg"
        picture.write_text(fmnes.plots.as_svg(figure) + "\n", encoding="utf-8")
        print(f"picture: {picture}\nthe run with both edges: {kept}")


def simulated(command: fmnes.Command, x: dict[str, float]) -> steps.Step:
    """What goes into a circuit and what comes out of it, from the file that the netlist writes."""
    with tempfile.TemporaryDirectory() as folder:
        replace(command, keep="all", directory=folder)(x)
        (file,) = Path(folder).rglob("step.txt")
        return steps.read(file)


def _needs(kept: Path | None) -> Any:
    """What reads problem files. Whatever is missing ends it here, before anything runs."""
    if shutil.which("ngspice") is None:
        raise SystemExit("op_amp: found no ngspice, wanted it on the PATH:  apt-get install ngspice")
    try:
        from fmnes.cli.problem_file import read_problem

        if kept is not None:
            from fmnes.plots.drawing import need_matplotlib

            need_matplotlib()
            kept.parent.mkdir(parents=True, exist_ok=True)
    except ModuleNotFoundError as error:
        raise SystemExit(f'op_amp: found no {error.name}, wanted it:  pip install "fmnes[cli]"') from None
    except fmnes.MissingExtra as error:
        raise SystemExit(f"op_amp: {error}") from None
    if kept is not None and kept.exists():
        raise SystemExit(f"op_amp: found an earlier run in {kept}; remove it, or choose another --out")
    return read_problem


if __name__ == "__main__":
    main()
