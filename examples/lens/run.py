"""Design a lens of three glasses, one lens at a time.

    python -m examples.lens.run [--evaluations 5000] [--seed 0] [--out DIR]

With --out, DIR/lens.svg is the picture of docs/lens.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import fmnes
from examples import make_folder
from fmnes_bench import lens

QUICK = 60


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--evaluations", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder for the picture")
    given = parser.parse_args(arguments)
    if given.out and not find_spec("matplotlib"):
        raise SystemExit('matplotlib is not installed: pip install "fmnes[plot]"')
    make_folder(given.out)

    problem = lens.triplet()
    # One at a time, so that each failure has its reason; `vectorized=True` is ten times as fast.
    result = fmnes.minimize(
        problem.fun, problem.parameters, max_evaluations=given.evaluations, rng=given.seed
    )
    before, after = problem.lens(problem.start), problem.lens(result.x)
    print(f"RMS spot {before.spot:.4g} µm → {after.spot:.4g} µm, with")
    print(after)
    share = result.n_infeasible / result.nfev
    print(f"{result.nfev} evaluations, {result.n_infeasible} of them failed ({share:.0%}), most of them:")
    for failure in result.failures[:3]:
        print(f"{failure.count:6d} × {failure.reason}")
    if given.out:
        picture = given.out / "lens.svg"
        picture.write_text(fmnes.plots.as_svg(lens.draw(before, after)) + "\n", encoding="utf-8")
        print(f"the picture is {picture}")


if __name__ == "__main__":
    main()
