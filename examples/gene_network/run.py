"""The network of five genes behind ten time courses: python -m examples.gene_network.run [--out DIR]

The problem is `fmnes_bench.gene_network`; this file searches, says what came of it and draws it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fmnes
from examples import make_folder
from examples.gene_network.recovered import NEAR, compare, sensitivities
from fmnes_bench import gene_network

#: Evaluations at reduced size.
QUICK = 60
#: Generations in which a search still finds out where integrations fail.
EARLY = 20


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m examples.gene_network.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--evaluations", type=int, default=5000, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--first-step", type=float, help="as a part of each range (as fmnes has it)")
    parser.add_argument("--out", type=Path, help="a directory for gene_network.svg")
    given = parser.parse_args(arguments)
    problem = _problem(draws=given.out is not None)
    make_folder(given.out)

    begun = problem.fun(problem.start)
    print(f"start, genes that do not act on each other: concentrations off by {begun:.1%}")
    began = time.process_time()
    result = fmnes.minimize(
        problem.fun,
        with_step(problem.parameters, given.first_step),
        max_evaluations=given.evaluations,
        rng=given.seed,
        keep_evaluations=True,
    )
    each = 1000 * (time.process_time() - began) / result.nfev
    print(f"found: off by {result.fun:.2%} after {result.nfev:,} evaluations of {each:.1f} ms")
    print(f"failed: {result.n_infeasible:,}, {_early(result):.0%} of the first {EARLY} generations")
    for reason, count in _kinds(result).most_common():
        print(f"  {count:,} × {reason}")
    _say_what_is_recovered(problem, result)
    if given.out is not None:
        figure = gene_network.draw(problem, problem.start, result.x, result=result)
        picture = given.out / "gene_network.svg"
        picture.write_text(fmnes.plots.as_svg(figure) + "\n", encoding="utf-8")
        print(f"picture: {picture}")


def _problem(draws: bool) -> gene_network.GeneNetworkProblem:
    """Whatever is missing ends it here, before anything runs."""
    try:
        if draws:
            fmnes.plots.drawing.need_matplotlib()
        return gene_network.problem()
    except fmnes.MissingExtra as error:
        raise SystemExit(f"gene_network: {error}") from None


def with_step(parameters: Mapping[str, Any], part: float | None) -> dict[str, Any]:
    """On a log scale the range and the step are factors."""
    if part is None:
        return dict(parameters)
    if not part > 0:
        raise SystemExit(f"--first-step: found {part:g}, wanted a part of each range, such as 0.25")
    return {
        name: replace(p, sigma=(p.upper / p.lower) ** part if p.log else part * (p.upper - p.lower))
        for name, p in parameters.items()
    }


def _early(result: fmnes.Result) -> float:
    table = result.evaluations
    assert table is not None
    early = (table.generation >= 0) & (table.generation < EARLY)  # before them comes the start itself
    return float(np.isnan(table.value[early]).mean())


def _kinds(result: fmnes.Result) -> Counter[str]:
    """How often each kind of failure was, whichever the gene."""
    kinds: Counter[str] = Counter()
    for failure in result.failures:
        reason = failure.reason
        kinds[f"a concentration {reason.split(' ', 1)[1]}" if reason[0] == "X" else reason] += failure.count
    return kinds


def _say_what_is_recovered(problem: gene_network.GeneNetworkProblem, result: fmnes.Result) -> None:
    found = compare(problem, result.x)
    print(f"kinetic orders within {NEAR} of the truth: {found.orders} of 50, {found.start} at the start;")
    print(f"  of the 13 that are not 0: {found.acting}, the sign is right in {found.signs}")
    print(f"  of the 37 that are 0: {found.idle}")
    print(f"rate constants: wrong by a factor of {found.rate_factor:.1f}, median of 10")
    along = sensitivities(problem)
    print(
        "what the data can tell: over a quarter of the ranges "
        f"{(along > 0.1).sum()} of 60 directions change the concentrations by more than 10 %, "
        f"{(along < 0.01).sum()} by less than 1 %, the flattest by {100 * along[-1]:.1g} %"
    )


if __name__ == "__main__":
    main()
