"""The runtime curves of one suite, a panel a dimension. Without matplotlib there is no plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.benchmark.coco.runs import Run
from fmnes.benchmark.coco.runtimes import TARGETS


def curve(runs: Sequence[Run], budget: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Evaluations per dimension, and the share of all pairs of problem and target reached by then."""
    t = np.sort([hit / run.job.case.dimension for run in runs for hit in run.hits])
    t = t[t <= budget]
    share = np.arange(len(t) + 1) / (len(runs) * len(TARGETS))
    return np.concatenate([[0.0], t, [float(budget)]]), np.append(share, share[-1])


def draw(runs: Sequence[Run], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fmnes"  # the same drawing gives the same file
    from matplotlib import pyplot

    dimensions = sorted({run.job.case.dimension for run in runs})
    methods = list(dict.fromkeys(run.job.method for run in runs))
    columns = min(len(dimensions), 3)
    count = -(-len(dimensions) // columns)
    figure, grid = pyplot.subplots(
        count, columns, figsize=(4 * columns, 3.2 * count), squeeze=False, sharey=True, layout="constrained"
    )
    panels: list[Any] = list(grid.flat)
    for panel in panels[len(dimensions) :]:
        panel.set_axis_off()
    for panel, d in zip(panels, dimensions, strict=False):
        for i, method in enumerate(methods):
            chosen = [run for run in runs if run.job.method == method and run.job.case.dimension == d]
            if chosen:
                t, share = curve(chosen, chosen[0].job.budget)
                style = ("-", "--", ":")[i // 10 % 3]
                panel.step(t, share, style, where="post", color=f"C{i % 10}", linewidth=1.2, label=method)
        panel.set_xscale("log")
        panel.set_xlim(1, max(run.job.budget for run in runs))
        panel.set_ylim(0, 1)
        panel.set_title(f"{runs[0].job.case.suite}, d = {d}")
        panel.set_xlabel("evaluations / d")
    panels[0].set_ylabel("share of targets reached")
    panels[0].legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
