"""The page and the figure of the search benchmark."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fmnes.plots import drawing
from fmnes.strategies import DEFAULT_METHOD
from fmnes_bench.search import suite
from fmnes_bench.search.runs import (
    CLIP,
    DEFAULT,
    DEFAULT_REFERENCES,
    WITHOUT,
    Cell,
    Cells,
    Trial,
    beside,
    honesty,
    ratio,
    summarise,
    summary,
)
from fmnes_bench.search.suite import GROUPS
from fmnes_bench.trials import table

# -- The figure: for each method the ratio to the better reference, by problem and d.


#: Colours are full at this ratio and at its inverse.
FULL = 8.0
#: The figure has the methods that were measured on this share of the cells.
SHOWN = 0.25


def draw(cells: Cells, path: Path) -> None:
    """Draw a panel for each method: blue, fewer evaluations than the reference; orange, more.

    Variants of the default with one setting taken back, and methods that were measured on few problems, are
    in the tables only.
    """
    measured = Counter(method for _, _, method in cells)
    methods = [
        method
        for method in methods_of(cells)
        if not method.startswith(WITHOUT) and measured[method] >= SHOWN * max(measured.values())
    ]
    dimensions = _dimensions(cells)
    compared = {p for p, d, method in cells if not math.isnan(ratio(cells, p, d, method))}
    groups = [[p for p in group if p in compared] for group in GROUPS.values()]
    problems = [p for group in groups for p in group]
    # 8 inches, which a page of the documentation shows at its full width.
    figure = drawing.blank(max(4.0, 1.7 + 1.55 * len(methods)), 1.4 + 0.2 * len(problems))
    panels = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for panel, method in zip(panels, methods, strict=True):
        mesh = _draw_method(panel, cells, problems, dimensions, method)
        for edge in sorted({*itertools.accumulate(map(len, groups))} - {0, len(problems)}):
            panel.axhline(edge - 0.5, color="black", linewidth=0.8)
    panels[0].set_yticks(range(len(problems)), problems, fontsize=9)
    ticks = [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8]
    bar = figure.colorbar(mesh, ax=list(panels), location="top", shrink=0.7, aspect=40, extend="both")
    bar.set_ticks([math.log(x) for x in ticks], labels=["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.ax.set_title("evaluations divided by those of the better reference", fontsize=10)
    figure.supxlabel("dimension d.   * not every run is solved,  – none is,  grey: not measured", fontsize=10)
    path.write_text(drawing.as_svg(figure) + "\n", encoding="utf-8")


def _colours() -> Any:
    """From blue through white to orange-red, both of the palette that colour-blind readers distinguish."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ratio", [drawing.BLUE, "white", drawing.RED])


def _draw_method(panel: Any, cells: Cells, problems: list[str], dimensions: list[int], method: str) -> Any:
    ratios = np.array([[ratio(cells, p, d, method) for d in dimensions] for p in problems])
    full = math.log(FULL)
    columns, rows = np.arange(len(dimensions)), np.arange(len(problems))
    logarithms = np.ma.masked_invalid(np.log(ratios))
    mesh = panel.pcolormesh(columns, rows, logarithms, cmap=_colours(), vmin=-full, vmax=full)
    for (row, column), r in np.ndenumerate(ratios):
        cell = cells.get((problems[row], dimensions[column], method))
        if cell is not None and cell.solved < cell.runs:
            colour = "white" if abs(math.log(r)) > 0.6 * full else "black"  # NaN is not above
            mark = "*" if cell.solved else "–"
            panel.text(column, row, mark, ha="center", va="center", fontsize=9, color=colour)
    panel.set_title(method, fontsize=10)
    panel.set_xticks(columns, [str(d) for d in dimensions], fontsize=9)
    panel.set_facecolor("#e4e4e4")
    panel.set_ylim(len(problems) - 0.5, -0.5)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    return mesh


# -- The page: a summary, a table for each group of problems, and the correctness of `success`.


TITLES = {
    "study": "Problems with and without failing regions",
    "paper": "The paper's problems to its target",
    "box": "Bounds",
    "rotated": "Active constraints in a random frame",
    "regions": "Narrow, curved and uncertain regions",
    "noise": "Noise in the values",
    "beam": "The beam of `fmnes init`",
}
TEXTS = {
    "study": (
        "The paper's eight problems; `active`: a sphere whose centre is cut off by 1, d/2 (`h`) or d "
        "constraints; `aell`: a rotated quadratic of condition 1000 with 1 or d/2 planes in another random "
        "frame, beyond which the function still decreases; `slope`: a linear function on the unit ball. "
        "Target: 1e-9."
    ),
    "paper": "d = 40, target 1e-10, one setting for all problems. The paper chose λ by hand for each.",
    "box": (
        "Quadratics in [0, 1]^d (condition 3 separable, 1000 rotated) whose centre lies partly outside, so "
        "that about half of the coordinates end on a bound. Target: 1e-8. `cma` uses its transformation."
    ),
    "rotated": "The `active` problems, rotated. Target: 1e-9.",
    "regions": (
        "`narrow`: feasible between two planes a fifth of the first step apart; `wedge`: the optimum is the "
        "tip of a wedge of 11 degrees; `curved`: feasible in a thin ring; `uncertain`: as `active`, but an "
        "evaluation near the boundary fails at random, half of them at the boundary itself. Target: 1e-9."
    ),
    "noise": (
        "Values with normal noise of standard deviation 1. The target is d/10 for the mean of the search "
        "distribution, evaluated without noise, within 2,000 d evaluations."
    ),
    "beam": "Three parameters; the optimum lies on two bounds and on the boundary of failure. Target: 1 %.",
}
INTRODUCTION = (
    "Made by `fmnes bench search`.\n\n- **Numbers** are the evaluations until the first value within the "
    "target of the minimum ± standard error: the sum over all runs, including unsolved ones, divided by the "
    "number of solved runs. The solved share is in brackets if it is not 1; – means that no run is "
    "solved.\n- **After ×**: the ratio to the better of "
    f"{' and '.join(DEFAULT_REFERENCES)} (to cma for bounds), within [1/{CLIP:g}, {CLIP:g}]; if neither "
    f"solves the problem, 1/{CLIP:g}.\n"
    "- **Runs**: each method has its own default λ. A run ends at the target, at the limits of floating "
    "point, or after 20,000 (d + 1) evaluations (NOMAD: 500 d)."
)
REPEATED = (
    "`python -m benchmarks.search_rows` repeats a random sample of the rows and compares. Runs use one BLAS "
    "kernel and one thread, but they are chaotic: if another NumPy or OpenBLAS rounds differently, single "
    "rows change by some per cent, and means by less than their standard errors "
    "(docs/benchmarks/index.md has figures)."
)
#: Of the figure, for readers who do not see it.
ALTERNATIVE = "Heat map of the evaluations relative to the better reference, by problem, dimension and method"
FIGURE = (
    "Evaluations of each method relative to the better reference, for each problem and dimension: blue "
    "means fewer, orange more. The summary and the tables below give the numbers."
)
#: Seeds below were used while the default was designed.
DESIGN_SEEDS = 24
#: The groups over which wrong successes are counted together.
COUNTED = ("study", "box", "beam")


def page(trials: Sequence[Trial], figure: str | None) -> str:
    seeds = [t.key.seed for t in trials]
    on_new_seeds = seeds and min(seeds) >= DESIGN_SEEDS
    parts = [
        "# The search on seeds not used before"
        if on_new_seeds
        else "# The search compared with other methods",
        "",
        f"{INTRODUCTION}\n- **Seeds** {min(seeds)} to {max(seeds)}; those below {DESIGN_SEEDS} were used to "
        "design the default."
        if seeds
        else INTRODUCTION,
        "",
        REPEATED,
        "",
    ]
    to_target = [t for t in trials if t.key.what == "evaluations"]
    ended = [t for t in trials if t.key.what == "success"]
    if to_target:
        cells = summarise(to_target)
        if figure:
            parts += [f"![{ALTERNATIVE}]({figure})", "", FIGURE, ""]
        parts += ["## Summary", "", *table(SUMMARY_HEAD, summary_rows(cells)), ""]
        compared = beside_rows(cells)
        if compared:
            parts += ["## The default compared with each of the others", "", BESIDE_TEXT, ""]
            parts += [*table(BESIDE_HEAD, compared), ""]
        for group in GROUPS:
            rows = cell_rows(cells, group)
            if rows:
                head = ("d", "problem", "runs", *methods_of(cells))
                parts += [f"## {TITLES[group]}", "", TEXTS[group], "", *table(head, rows), ""]
    if ended:
        parts += ["## Is success true?", "", HONESTY_TEXT, "", *table(HONESTY_HEAD, honesty_rows(ended)), ""]
        beam = beam_rows(ended)
        if beam:
            parts += [f"## {TITLES['beam']}, to the end", "", BEAM_TEXT, "", *table(BEAM_HEAD, beam), ""]
    return "\n".join(parts)


def methods_of(cells: Cells) -> list[str]:
    return _ordered(method for _, _, method in cells)


def _ordered(methods: Iterable[str]) -> list[str]:
    found = set(methods)
    return [name for name in DEFAULT if name in found] + sorted(found - set(DEFAULT))


def _dimensions(cells: Cells) -> list[int]:
    return sorted({d for _, d, _ in cells})


SUMMARY_HEAD = ("problems", "d", "method", "cells", "geometric mean", "worst", "solved", "least solved")


def summary_rows(cells: Cells) -> list[list[str]]:
    rows = []
    for group in GROUPS:
        for d in _dimensions(cells):
            for method in methods_of(cells):
                s = summary(cells, group, d, method)
                if s is None:
                    continue
                solved = f"{s.solved} of {s.runs}"
                least = "" if s.least_share == 1 else f"{s.least_share:.2f} ({s.least})"
                worst = f"{s.worst_ratio:.2f} ({s.worst})"
                mean = f"{s.geometric_mean:.2f}"
                rows.append([group, str(d), method, str(s.cells), mean, worst, solved, least])
    return rows


BESIDE_TEXT = (
    f"Evaluations of `{DEFAULT_METHOD}` divided by those of the other method: the geometric mean over the "
    f"problems, each within [1/{CLIP:g}, {CLIP:g}], ± its standard error over the cells that both solve. "
    "Below 1 the default needs fewer."
)
BESIDE_HEAD = ("problems", "d", "other", "cells", "ratio")


def beside_rows(cells: Cells) -> list[list[str]]:
    rows = []
    for group in GROUPS:
        for d in _dimensions(cells):
            for other in methods_of(cells):
                found = beside(cells, group, d, DEFAULT_METHOD, other)
                if found and other != DEFAULT_METHOD and not other.startswith(WITHOUT):
                    shown = f"{found.ratio:.2f} ± {found.error:.2f}"
                    rows.append([group, str(d), other, str(found.cells), shown])
    return rows


def cell_rows(cells: Cells, group: str) -> list[list[str]]:
    rows = []
    for d in _dimensions(cells):
        for problem in GROUPS[group]:
            own = {m: cells[problem, d, m] for m in methods_of(cells) if (problem, d, m) in cells}
            if own:
                runs = "/".join(str(n) for n in sorted({cell.runs for cell in own.values()}))
                shown = [
                    _shown(own[m], ratio(cells, problem, d, m)) if m in own else "" for m in methods_of(cells)
                ]
                rows.append([str(d), problem, runs, *shown])
    return rows


def _shown(cell: Cell, to_reference: float) -> str:
    if not cell.solved:
        return "–"
    share = "" if cell.solved == cell.runs else f" ({cell.solved / cell.runs:.2f})"
    error = "" if math.isnan(cell.error) else f" ± {cell.error:.0f}"
    beside = "" if math.isnan(to_reference) else f" ×{to_reference:.2f}"
    return f"{cell.mean:.0f}{error}{share}{beside}"


HONESTY_TEXT = (
    "Called as a user would: no target, default tolerances. *Near*: at most 1 % of the difference between "
    "the start's value and the minimum is left. *Wrong success*: success is reported and the answer is not "
    "near. *Inexact*: success is reported and more than a millionth of the difference is left. *Counted*: "
    f"{', '.join(COUNTED)} together."
)
HONESTY_HEAD = (
    "problems",
    "method",
    "runs",
    "near",
    "wrong successes",
    "inexact",
    "near and reported",
    "evaluations a run",
)


def honesty_rows(trials: Sequence[Trial]) -> list[list[str]]:
    starts: dict[tuple[str, int, int], float] = {}
    for t in trials:
        at = (t.key.problem, t.key.d, t.key.seed)
        if at not in starts:
            problem = suite.get(*at)
            starts[at] = problem.gap_at(problem.x0)
    groups = {name: [name] for name in GROUPS} | {"counted": list(COUNTED)}
    rows = []
    for name, members in groups.items():
        for method in _ordered(t.key.method for t in trials):
            own = [t for t in trials if t.key.method == method and suite.GROUP_OF[t.key.problem] in members]
            if own:
                h = honesty(own, starts)
                wrong = f"{h.wrong} ({h.wrong / h.runs:.1%})" if h.wrong else "0"
                said = f"{h.said / h.near:.1%}" if h.near else "–"
                numbers = [str(h.runs), str(h.near), wrong, str(h.inexact), said, f"{h.evaluations:.0f}"]
                rows.append([name, method, *numbers])
    return rows


BEAM_TEXT = (
    "Without a target, at most 3,000 evaluations: the first value within 1 % of 0.46416, and the end of the "
    "runs."
)
BEAM_HEAD = (
    "method",
    "runs",
    "median evaluations to within 1 %",
    "end more than 1 % off",
    "of these, success",
)


def beam_rows(trials: Sequence[Trial]) -> list[list[str]]:
    rows = []
    beam = suite.get("beam", 3)
    for method in _ordered(t.key.method for t in trials):
        own = [t for t in trials if t.key.method == method and t.key.problem == "beam"]
        if own:
            first = statistics.median(t.first or math.inf for t in own)
            off = [t for t in own if t.gap > beam.gap]
            shown = "never" if math.isinf(first) else f"{first:.0f}"
            rows.append([method, str(len(own)), shown, str(len(off)), str(sum(t.said for t in off))])
    return rows
