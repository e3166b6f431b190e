"""The least drag of `fmnes init --template xfoil`, by trying everything: python -m benchmarks.xfoil_grid

All sections with the strip at every 0.05 of the chord, then the ten best sections with the strip at every
0.01: some 9000 evaluations with the template's own files, which take minutes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fmnes.cli.problem import template_files
from fmnes.cli.problem_file import ProblemFile, read_problem
from fmnes.evaluation.evaluator import Task, evaluate_all
from fmnes.evaluation.programs.runner import CommandEvaluator
from fmnes.outcome import START, EvaluationId

Row = tuple[float, dict[str, Any]]


def drags(problem: ProblemFile, points: Sequence[dict[str, Any]], workers: int) -> list[Row]:
    """(drag, point) of all that converged, the least first."""
    evaluator = CommandEvaluator(problem.command, workers, named=problem.space.named)
    try:
        tasks = [Task(problem.space.numbers(point), EvaluationId(0, START, 0)) for point in points]
        found = [
            (outcome.value, points[k])
            for k, outcome in evaluate_all(evaluator, tasks)
            if outcome.status == "value"
        ]
    finally:
        evaluator.close()
    return sorted(found, key=lambda row: row[0])


def sections(problem: ProblemFile) -> Iterable[tuple[int, int, int]]:
    ranges = (problem.space.parameters[name] for name in ("camber", "position", "thickness"))
    return itertools.product(*(range(int(p.lower), int(p.upper) + 1) for p in ranges))  # type: ignore[arg-type]


def with_strips(which: Iterable[tuple[int, int, int]], strips: Iterable[float]) -> list[dict[str, Any]]:
    names = ("camber", "position", "thickness", "strip")
    return [dict(zip(names, (*section, strip), strict=True)) for section in which for strip in strips]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    workers = parser.parse_args().workers
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in template_files("xfoil").items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        problem = read_problem(Path(folder) / "problem.toml")
        points = with_strips(sections(problem), [k / 20 for k in range(2, 21)])
        coarse = drags(problem, points, workers)
        print(f"{len(points) - len(coarse)} of {len(points)} failed; the least drag is {coarse[0][0]:.5f}")
        best = list(dict.fromkeys((p["camber"], p["position"], p["thickness"]) for _, p in coarse))[:10]
        fine = drags(problem, with_strips(best, [k / 100 for k in range(10, 101)]), workers)
    print(f"with finer strips, {time.monotonic() - began:.0f} s in all:")
    for drag, p in fine[:10]:
        print(f"{drag:.5f}  NACA {p['camber']}{p['position']}{p['thickness']:02d}, strip at {p['strip']:g}")


if __name__ == "__main__":
    main()
