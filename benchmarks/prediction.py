"""How often is what `fmnes.explain` says of the expected optimum true?

    nice python -m benchmarks.prediction [--instances 5 6 7] [--dimensions 2 5] [--budgets 20 50] [--out FILE]

Each run of a shared problem of `fmnes bench few` ends with its budget; then the objective is evaluated at the
point that is predicted. The rule was made with instances 0 to 4.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fmnes
from fmnes_bench.few import problems


class Row(NamedTuple):
    problem: str
    d: int
    per_dimension: int
    surrogate: bool
    predicted: bool
    announced: bool = False
    """A better point is."""
    within: bool = False
    """The value at the point is within one standard error of the prediction."""
    better: bool = False
    """It is better than the best value of the run."""
    failed: bool = False


def row(problem: str, d: int, instance: int, per_dimension: int, surrogate: bool) -> Row:
    fun, x0, lower, upper = problems.make(problem, d, instance)
    result = fmnes.minimize(
        fun,
        x0,
        problems.SIGMA0,
        bounds=list(zip(lower.tolist(), upper.tolist(), strict=True)),
        max_evaluations=per_dimension * d,
        surrogate=surrogate,
        rng=1000 + instance,
        keep_evaluations=True,
    )
    found = fmnes.explain(result).predicted
    if found is None:
        return Row(problem, d, per_dimension, surrogate, False)
    true = fun(np.array(list(found.parameters.values())))
    return Row(
        problem,
        d,
        per_dimension,
        surrogate,
        True,
        found.better,
        abs(true - found.value) <= found.error,
        true < found.best,
        math.isnan(true),
    )


def line(name: str, rows: Sequence[Row]) -> str:
    predicted = [one for one in rows if one.predicted]
    announced = [one for one in predicted if one.announced]
    quiet = [one for one in predicted if not one.announced]

    def share(found: Sequence[Row], field: str) -> str:
        count = sum(getattr(one, field) for one in found)
        return f"{count} ({count / len(found):.0%})" if found else ""

    cells = [
        name,
        str(len(rows)),
        str(len(predicted)),
        share(predicted, "within"),
        share(predicted, "failed"),
        str(len(announced)),
        share(announced, "better"),
        share(announced, "within"),
        share(announced, "failed"),
        share(quiet, "within"),
    ]
    return "| " + " | ".join(cells) + " |"


def page(rows: Sequence[Row], instances: Sequence[int]) -> str:
    head = [
        "",
        "runs",
        "predicted",
        "within ±",
        "fails",
        "better point announced",
        "is better",
        "within ±",
        "fails",
        "none announced: within ±",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head), line("all", rows)]
    for surrogate in (True, False):
        own = [one for one in rows if one.surrogate == surrogate]
        lines.append(line("with models" if surrogate else "without models", own))
    for d, per in sorted({(one.d, one.per_dimension) for one in rows}):
        for surrogate in (True, False):
            own = [one for one in rows if one[1:4] == (d, per, surrogate)]
            title = f"{d} parameters, {per * d} evaluations, {'with' if surrogate else 'without'} models"
            lines.append(line(title, own))
    for problem in problems.FORMULAS:
        lines.append(line(problem, [one for one in rows if one.problem == problem]))
    return f"""# Is the expected optimum true?

Made by `python -m benchmarks.prediction`: {len(rows)} runs of the twelve [shared
problems](few.md#shared-problems) of few evaluations, instances {", ".join(map(str, instances))}, with and
without models in the run (`surrogate=`). The rule was made with instances 0 to 4. After each run the
objective is evaluated at the point that `fmnes.explain(...).predicted` has.

- *Within ±*: the value there differs from the predicted one by at most its standard error; a failure is
  not within it.
- *Better point announced*: the predicted value is better than the best one by more than its error.
- *Is better*: the value there is better than the best one of the run.

{chr(10).join(lines)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--instances", type=int, nargs="+", default=[5, 6, 7])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 5])
    parser.add_argument("--budgets", type=int, nargs="+", default=[20, 50], help="evaluations per dimension")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/prediction.md"))
    given = parser.parse_args()
    rows = [
        row(problem, d, instance, per_dimension, surrogate)
        for d in given.dimensions
        for problem in problems.FORMULAS
        for instance in given.instances
        for per_dimension in given.budgets
        for surrogate in (True, False)
    ]
    given.out.write_text(page(rows, given.instances), encoding="utf-8")


if __name__ == "__main__":
    main()
