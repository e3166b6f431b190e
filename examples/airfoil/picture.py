"""The picture of docs/airfoil.md: how the search went, and the section before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import fmnes
from examples.airfoil.shape import section
from fmnes.plots import drawing
from fmnes.plots.history import failing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Of those that failed, so many are drawn: evenly over the search.
FAILED = 12


def points(x: Mapping[str, float]) -> np.ndarray:
    """(n, 2), around the section of these numbers."""
    numbers = list(x.values())
    return np.array(section(numbers[:4], numbers[4:]))


def draw(start: Mapping[str, float], result: fmnes.Result) -> Figure:
    """result: with its evaluations. Returns a matplotlib Figure; nothing is shown or written."""
    table = result.evaluations
    assert table is not None and result.x is not None
    figure = drawing.blank(8, 6.2)
    rows = figure.add_gridspec(2, 1, height_ratios=[1.3, 1])
    _draw_course(drawing.panel(figure, rows[0]), 1e4 * table.value)

    axes = drawing.panel(figure, rows[1])
    failed = np.flatnonzero(table.status == "infeasible")
    for k, row in enumerate(failed[drawing.evenly(len(failed), FAILED)]):
        x, y = points({name: column[row] for name, column in table.parameters.items()}).T
        axes.plot(x, y, color="#bbbbbb", linewidth=0.7, label="" if k else "some that failed")
    for x, colour, name in ((start, drawing.BLUE, "before"), (result.x, drawing.BLACK, "after")):
        axes.plot(*points(x).T, color=colour, linewidth=1.8, label=name)
    around = np.concatenate([points(start), points(result.x)])[:, 1]
    middle, half = (around.min() + around.max()) / 2, 0.13
    axes.set(aspect="equal", xlim=(-0.02, 1.02), ylim=(middle - half, middle + half))
    axes.set(xlabel="x / chord", ylabel="y / chord")
    drawing.legend(figure, axes)
    return figure


def _draw_course(axes: Any, counts: np.ndarray) -> None:
    at = np.arange(1, len(counts) + 1)
    best = np.fmin.accumulate(counts)
    failed = np.isnan(counts)
    axes.plot(
        at, counts, "o", color=drawing.SKY, markersize=3, markeredgewidth=0, alpha=0.7, gid="evaluations"
    )
    failing(axes, at[failed], "")
    axes.step(at, best, where="post", color=drawing.BLACK, linewidth=1.8, gid="best")
    # What is far above the start is not worth the room.
    axes.set(xlim=(0.5, 1.01 * len(counts)), ylim=(best[-1] - 4, 1.6 * counts[0]))
    axes.set(xlabel="evaluations; a red tick on top is one that failed", ylabel="drag, counts (10⁻⁴)")
    course = f"{counts[0]:.1f} → {best[-1]:.1f} counts in {len(counts)} evaluations"
    drawing.title(axes, f"{course}, {failed.sum()} of them failed")
