"""What names cost: one search with arrays and with named parameters, d = 10, where the objective is nothing.

    python -m benchmarks.parameters [--out docs/benchmarks/parameters.md]

Each figure is the least of several runs, as everything that disturbs one only makes it longer.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fmnes
from fmnes.parameters import Parameter
from fmnes.space import Space

EVALUATIONS = 5_000
REPEATS = 25
D = 10
KINDS: dict[str, list[Parameter]] = {
    "ten real": [fmnes.Real(0, 1)] * D,
    "ten on a log scale": [fmnes.Real(0.1, 10, log=True)] * D,
    "five real, three log, two integers": [
        *[fmnes.Real(0, 1)] * 5,
        *[fmnes.Real(0.1, 10, log=True)] * 3,
        *[fmnes.Integer(1, 12)] * 2,
    ],
}


def counting() -> Callable[[Any], float]:
    """An objective without structure, so that the search goes on, and of next to no time."""
    number = itertools.count()
    return lambda _: (next(number) * 0.6180339887498949) % 1.0


def seconds(*arguments: Any, **options: Any) -> float:
    began = time.process_time()
    result = fmnes.minimize(
        counting(), *arguments, **options, rng=1, max_evaluations=EVALUATIONS, restarts=50
    )
    assert result.nfev == EVALUATIONS
    return time.process_time() - began


def measure(parameters: list[Parameter]) -> tuple[float, float]:
    """Microseconds an evaluation, with arrays and with names; in turns: both meet one machine."""
    space = Space({f"p{i}": p for i, p in enumerate(parameters)})
    pairs = [(seconds(**space.start()), seconds(space.parameters)) for _ in range(REPEATS)]
    arrays, named = (min(column) / EVALUATIONS * 1e6 for column in zip(*pairs, strict=True))
    return arrays, named


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/parameters.md"))
    arguments = parser.parse_args()
    lines = [
        "# The cost of parameter names",
        "",
        f"`python -m benchmarks.parameters`: processor time of an evaluation in microseconds, d = {D}, with",
        f"an objective that does nothing; the minimum of {REPEATS} runs of {EVALUATIONS:,} evaluations each.",
        "",
        "| parameters | arrays | named | difference |",
        "|---|---|---|---|",
    ]
    for name, parameters in KINDS.items():
        arrays, named = measure(parameters)
        lines.append(f"| {name} | {arrays:.1f} | {named:.1f} | {named - arrays:.1f} |")
        print(lines[-1], flush=True)
    arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
