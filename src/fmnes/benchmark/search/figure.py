"""One picture: for each method the ratio to the better reference, problem by problem and d by d."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from fmnes.benchmark.search.report import methods_of
from fmnes.benchmark.search.suite import GROUPS
from fmnes.benchmark.search.table import Cell, Cells, ratio
from fmnes.errors import MissingExtra

#: Colours are full at this ratio and at its inverse.
FULL = 8.0


def draw(cells: Cells, path: Path) -> None:
    """Blue: fewer evaluations than the reference; red: more. A star: not every run is solved."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("the figure", "plot") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    methods, dimensions = methods_of(cells), sorted({d for _, d, _ in cells})
    problems = [p for group in GROUPS.values() for p in group if any(key[0] == p for key in cells)]
    size = (1.6 + len(methods) * (0.5 * len(dimensions) + 0.3), 0.9 + 0.27 * len(problems))
    # The same drawing gives the same file, and text stays text, which is short.
    with matplotlib.rc_context({"svg.hashsalt": "fmnes", "svg.fonttype": "none", "font.size": 8}):
        figure, panels = pyplot.subplots(
            1, len(methods), figsize=size, sharey=True, squeeze=False, layout="constrained"
        )
        for panel, method in zip(panels[0], methods, strict=True):
            _draw_method(panel, cells, problems, dimensions, method)
        panels[0][0].set_yticks(range(len(problems)), problems)
        figure.suptitle("Evaluations over those of the better reference; –: none solved, *: not all")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)


def _draw_method(panel: Any, cells: Cells, problems: list[str], dimensions: list[int], method: str) -> None:
    ratios = np.array([[ratio(cells, p, d, method) for d in dimensions] for p in problems])
    full = math.log(FULL)
    panel.imshow(np.log(ratios), cmap="RdBu_r", vmin=-full, vmax=full, aspect="auto")
    for (row, column), r in np.ndenumerate(ratios):
        cell = cells.get((problems[row], dimensions[column], method))
        if cell is not None:
            colour = "white" if abs(math.log(r)) > 0.6 * full else "black"  # NaN is not above
            panel.text(column, row, _mark(cell, r), ha="center", va="center", fontsize=7, color=colour)
    panel.set_title(method)
    panel.set_xticks(range(len(dimensions)), [str(d) for d in dimensions])
    panel.set_xlabel("d")
    panel.tick_params(length=0)


def _mark(cell: Cell, r: float) -> str:
    if not cell.solved:
        return "–"
    star = "" if cell.solved == cell.runs else "*"
    if math.isnan(r):
        return "·" + star
    if r < 0.1:
        return f"1/{1 / r:.0f}{star}"
    return f"{r:.{2 if r < 1 else 1 if r < 10 else 0}f}{star}"
