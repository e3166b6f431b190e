"""The picture and the figures of docs/airfoil.md.

    python -m benchmarks.airfoil [--seeds 5] [--out docs/plots]

The search of `python -m examples.airfoil.run`; then the section before and after in other flows than the one
that was searched in; and how many shapes fail in the first generations.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fmnes
from examples.airfoil.picture import draw, points
from examples.airfoil.run import check_installed, read, search, start
from examples.airfoil.shape import section

GENERATIONS = 20


class Flow(NamedTuple):
    reynolds: float = 1e6
    lift: float = 0.5
    ncrit: float = 9  # how calm the air is; XFOIL's manual: 4 to 8 a dirty wind tunnel, 9 an average one
    panels: int | None = None  # XFOIL's own 160 where none are said

    def commands(self) -> str:
        panelling = "PANE\n" if self.panels is None else ""
        return (
            f"LOAD section.dat\n{panelling}OPER\nVISC {self.reynolds:.0f}\nVPAR\nN {self.ncrit:g}\n\n"
            f"ITER 200\nCL {self.lift:g}\n\nQUIT\n"
        )


FLOWS = {
    "as searched": Flow(),
    "our own 160 panels": Flow(panels=160),
    "200 panels": Flow(panels=200),
    "240 panels": Flow(panels=240),
    "Ncrit 7": Flow(ncrit=7),
    "Ncrit 11": Flow(ncrit=11),
    "Re 800,000": Flow(reynolds=8e5),
    "Re 1,200,000": Flow(reynolds=1.2e6),
    "lift 0.3": Flow(lift=0.3),
    "lift 0.4": Flow(lift=0.4),
    "lift 0.6": Flow(lift=0.6),
    "lift 0.7": Flow(lift=0.7),
}


def outcome(x: Mapping[str, float], flow: Flow, command: fmnes.Command) -> dict[str, float] | None:
    """The drag in counts and the other outputs of the problem file, or None where XFOIL has no answer."""
    numbers = list(x.values())
    around = points(x) if flow.panels is None else section(numbers[:4], numbers[4:], flow.panels)
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{x:.9f} {y:.9f}\n" for x, y in around]
        (Path(folder) / "section.dat").write_text("section\n" + "".join(lines))
        done = subprocess.run(
            ["xfoil"],
            input=flow.commands(),
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "DISPLAY": ""},
            check=False,
        )
    found = {
        name: re.findall(source["regex"], done.stdout)
        for name, source in {"drag": command.value or {}, **(command.outputs or {})}.items()
    }
    if any(text in done.stdout for text in command.fail_if) or not found["drag"]:
        return None
    said = {name: float(texts[-1]) for name, texts in found.items()}
    return said | {"drag": 1e4 * said["drag"]}


def row(name: str, before: dict[str, float] | None, after: dict[str, float] | None) -> str:
    def cells(said: dict[str, float] | None) -> list[str]:
        if said is None:
            return ["no answer", "", ""]
        return [f"{said['drag']:.1f}", *(f"{said[f'{side}_turbulent']:.2f}" for side in ("upper", "lower"))]

    gain = f"{1 - after['drag'] / before['drag']:.0%}" if before and after else ""
    return f"| {' | '.join([name, *cells(before), *cells(after), gain])} |"


def measures(x: Mapping[str, float]) -> str:
    numbers = list(x.values())
    around = np.array(section(numbers[:4], numbers[4:], 2000))
    along, below = around[1000:].T
    above = around[1000::-1, 1]
    thickness, camber = above - below, (above + below) / 2
    return (
        f"thickest ({thickness.max():.1%}) at {along[thickness.argmax()]:.2f}, "
        f"most camber ({camber.max():.1%}) at {along[camber.argmax()]:.2f} of the chord"
    )


def share_of_failures(problem: Any, seed: int) -> float:
    """In the first generations; the start itself is not counted."""
    result = fmnes.minimize(
        problem.command,
        problem.space.parameters,
        rng=seed,
        workers=problem.run["workers"],
        keep_evaluations=True,
        callback=lambda view: view.generation >= GENERATIONS,
    )
    assert result.evaluations is not None
    return float(np.mean(result.evaluations.status[1:] != "value"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/plots"))
    given = parser.parse_args()
    check_installed(picture=True)
    problem = read()
    result = search(problem)
    assert result.x is not None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{(used.ru_utime + used.ru_stime) / result.nfev:.3f} s of processor time an evaluation")
    given.out.mkdir(parents=True, exist_ok=True)
    picture = fmnes.plots.as_svg(draw(start(problem), result))
    (given.out / "airfoil.svg").write_text(picture + "\n", encoding="utf-8")
    print(result)
    print(f"before: {measures(start(problem))}\nafter: {measures(result.x)}")
    head = "flow", "before", "upper", "lower", "after", "upper", "lower", "less"
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name, flow in FLOWS.items():
        print(row(name, *(outcome(x, flow, problem.command) for x in (start(problem), result.x))), flush=True)
    shares = [share_of_failures(problem, seed) for seed in range(given.seeds)]
    print(
        f"\nfailed in the first {GENERATIONS} generations: {np.median(shares):.0%} "
        f"({min(shares):.0%} to {max(shares):.0%}, {given.seeds} seeds)"
    )


if __name__ == "__main__":
    main()
