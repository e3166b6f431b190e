"""The page of the comparison, docs/benchmarks/real.md, from the rows beside it.

    python -m benchmarks.real.report [--out docs/benchmarks/real.md]

All numbers come from the rows, docs/benchmarks/real*.jsonl; all text from words.py.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path

from fmnes.strategies import DEFAULT_METHOD

from .methods import METHODS
from .rows import by_method, median_best, read_rows, share_failed, table
from .tasks import TASKS
from .trial import Row
from .words import ABOUT, PROBLEMS

FOLDER = Path("docs/benchmarks")


def page(rows: Sequence[Row]) -> str:
    """The page, with the problems that have rows."""
    found = [problem for problem in TASKS if any(row["problem"] == problem for row in rows)]
    parts = [ABOUT, "## The default and the best of the others", against_the_others(rows, found)]
    for problem in found:
        told = PROBLEMS[problem]
        task = TASKS[problem]()
        parts += [
            f"## {told.title}",
            f"[The problem]({told.page}): {len(task.parameters)} parameters, {task.budget:,} evaluations; "
            f"{told.value}.",
            table(rows, problem),
        ]
        if absent := missing(rows, problem):
            parts.append(absent)
        parts.append(textwrap.fill(told.why, 120, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(parts) + "\n"


def against_the_others(rows: Sequence[Row], problems: Sequence[str]) -> str:
    head = ["", f"`{DEFAULT_METHOD}`", "best other", "method", "the default is", "failed", "failed (other)"]
    lines = [head, ["---"] * len(head)]
    for problem in problems:
        methods = by_method(rows, problem)
        own = methods.pop(DEFAULT_METHOD, None)
        if not (own and methods):
            continue
        other = min(methods, key=lambda method: median_best(methods[method]))
        mine, theirs = median_best(own), median_best(methods[other])
        shares = [f"{share_failed(some):.0%}" for some in (own, methods[other])]
        found = [f"{mine:.4g}", f"{theirs:.4g}", f"`{other}`", compared(mine, theirs)]
        lines.append([PROBLEMS[problem].title, *found, *shares])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def compared(mine: float, theirs: float) -> str:
    """The difference in words; smaller values are better."""
    more = mine / theirs - 1
    if abs(more) < 0.005:
        return "equal"
    return f"{abs(more):.0%} {'worse' if more > 0 else 'better'}"


def missing(rows: Sequence[Row], problem: str) -> str:
    """The methods that have fewer seeds than the others, or none."""
    seeds = {method: len(own) for method, own in by_method(rows, problem).items()}
    most = max(seeds.values())
    few = [f"`{method}` {seeds.get(method, 0)}" for method in METHODS if seeds.get(method, 0) < most]
    return f"Number of seeds, if fewer than {most}: {', '.join(few)}." if few else ""


def kept_rows(folder: Path = FOLDER) -> list[Row]:
    """The rows of all files in the folder; a run that is in two files counts once."""
    rows = [row for file in sorted(folder.glob("real*.jsonl")) for row in read_rows(file)]
    return list({(row["problem"], row["method"], row["seed"], row["budget"]): row for row in rows}.values())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=FOLDER / "real.md")
    given = parser.parse_args(arguments)
    given.out.write_text(page(kept_rows()), encoding="utf-8")


if __name__ == "__main__":
    main()
