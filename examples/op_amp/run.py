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
from importlib.util import find_spec
from pathlib import Path

import fmnes
from examples import make_folder
from examples.op_amp import steps

HERE = Path(__file__).with_name("problem.toml")
#: Evaluations of each run at reduced size.
QUICK = 30
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
    check_installed(picture=kept is not None)
    make_folder(given.out)
    if kept is not None and kept.exists():
        raise SystemExit(f"op_amp: found an earlier run in {kept}; remove it, or choose another --out")
    from fmnes.cli.problem_file import read_problem

    problem = read_problem(HERE)
    budget = {} if given.evaluations is None else {"max_evaluations": given.evaluations}
    options = {**problem.run, **budget, "rng": given.seed, "keep_evaluations": True, "progress": True}
    both = problem.command if kept else replace(problem.command, keep="none")
    rising_only = replace(both, keep="none", fail_if=[text for text in both.fail_if if text != FALLING])

    start = {name: parameter.start for name, parameter in problem.space.parameters.items()}
    before = simulated(both, start)
    print(f"start: {both(start):.3f} mW; {steps.words(before)}")
    found = []
    for what, command, run_dir in (("both edges", both, kept), ("only the rising edge", rising_only, None)):
        result = fmnes.minimize(command, problem.space.parameters, run_dir=run_dir, **options)
        after = simulated(command, result.x)
        found.append((result, after))
        print(f"{what} tested: {result.fun:.3f} mW; {steps.words(after)}")
        share = result.n_infeasible / result.nfev
        print(f"{result.nfev} evaluations, {result.n_infeasible} of them failed ({share:.0%})")
        for failure in result.failures:
            print(f"{failure.count:6d} × {failure.reason}")
    if kept is not None:
        (result, after), (untested, exploited) = found
        figure = steps.draw(before, after, exploited, result, untested)
        picture = given.out / "op_amp.svg"
        picture.write_text(fmnes.plots.as_svg(figure) + "\n", encoding="utf-8")
        print(f"the picture is {picture}, the run with both edges {kept}")


def simulated(command: fmnes.Command, x: dict[str, float]) -> steps.Step:
    """What goes into a circuit and what comes out of it, from the file that the netlist writes."""
    with tempfile.TemporaryDirectory() as folder:
        replace(command, keep="all", directory=folder)(x)
        (file,) = Path(folder).rglob("step.txt")
        return steps.read(file)


def check_installed(*, picture: bool) -> None:
    """Ends here with the line that installs it if something is not."""
    if shutil.which("ngspice") is None:
        raise SystemExit("op_amp: found no ngspice, wanted it on the PATH: apt-get install ngspice")
    if not find_spec("typer"):
        raise SystemExit('op_amp: problem files need pip install "fmnes[cli]"')
    if picture and not find_spec("matplotlib"):
        raise SystemExit('op_amp: the picture needs pip install "fmnes[plot]"')


if __name__ == "__main__":
    main()
