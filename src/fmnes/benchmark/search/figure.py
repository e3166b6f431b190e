"""One picture: for each method the ratio to the better reference, problem by problem and d by d."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from fmnes.benchmark.search.report import methods_of
from fmnes.benchmark.search.suite import GROUPS
from fmnes.benchmark.search.table import CLIP, Cells, ratio
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
    matplotlib.rcParams["svg.hashsalt"] = "fmnes"  # the same drawing gives the same file
    from matplotlib import pyplot

    methods, dimensions = methods_of(cells), sorted({d for _, d, _ in cells})
    problems = [p for group in GROUPS.values() for p in group if any(key[0] == p for key in cells)]
    size = (1.6 + len(methods) * (0.5 * len(dimensions) + 0.3), 0.9 + 0.27 * len(problems))
    figure, panels = pyplot.subplots(
        1, len(methods), figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for panel, method in zip(panels[0], methods, strict=True):
        ratios = np.array([[ratio(cells, p, d, method) for d in dimensions] for p in problems])
        panel.imshow(np.log(ratios), cmap="RdBu_r", vmin=-math.log(FULL), vmax=math.log(FULL), aspect="auto")
        for (row, column), r in np.ndenumerate(ratios):
            cell = cells.get((problems[row], dimensions[column], method))
            if cell is not None:
                dark = abs(math.log(r)) > 0.6 * math.log(FULL) if not math.isnan(r) else False
                panel.text(
                    column,
                    row,
                    _mark(cell.solved, cell.runs, r),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if dark else "black",
                )
        panel.set_title(method, fontsize=10)
        panel.set_xticks(range(len(dimensions)), [str(d) for d in dimensions], fontsize=8)
        panel.set_xlabel("d", fontsize=8)
        panel.tick_params(length=0)
    panels[0][0].set_yticks(range(len(problems)), problems, fontsize=8)
    figure.suptitle("Evaluations over those of the better reference; –: none solved, *: not all", fontsize=10)
    pyplot.rcParams["svg.fonttype"] = "none"  # text stays text: a small file
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _mark(solved: int, runs: int, r: float) -> str:
    if not solved:
        return "–"
    star = "" if solved == runs else "*"
    if math.isnan(r):
        return "·" + star
    text = (
        f"1/{1 / r:.0f}"
        if r <= 0.1
        else f"{r:.2f}"
        if r < 1
        else f"{r:.1f}"
        if r < 10
        else f"{min(r, CLIP):.0f}"
    )
    return text + star
