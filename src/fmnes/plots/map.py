"""Where failures are expected, as a map of the two parameters that matter most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fmnes.analysis.explanation import Explanation, explanation_of
from fmnes.analysis.failure_map import FailureMap
from fmnes.analysis.failure_map import failure_map as map_of
from fmnes.plots import drawing
from fmnes.plots.history import plural
from fmnes.reading.data import RunData, Source, Table, with_evaluations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Points of either kind that are drawn.
DRAWN = 1000
#: Places where nothing was evaluated nearby.
UNKNOWN = "#e4e4e4"


def failure_map(run: Source) -> Figure:
    """Plot the local share of failed evaluations over the two parameters that matter most.

    The share at a place is that of the nearest evaluated points, whatever their other parameters. Grey places
    have no evaluated point nearby.

    Parameters
    ----------
    run : Result, path or Run
        The result of `minimize(..., keep_evaluations=True)`, a run directory, or what `fmnes.read_run`
        returned.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    ArgumentError
        The result has no evaluations.
    MissingExtra
        matplotlib is not installed.

    Examples
    --------
    >>> import fmnes
    >>> def simulate(x):
    ...     return float(x @ x) if x[0] + x[1] > 1 else None
    >>> result = fmnes.minimize(simulate, [2.0, 2.0], 0.5, rng=1, keep_evaluations=True)
    >>> figure = fmnes.plots.failure_map(result)
    """
    given, table = with_evaluations(run)
    return draw_map(given, table, explanation_of(table, given.logs))


def draw_map(given: RunData, table: Table, explanation: Explanation) -> Figure:
    """The map of evaluations that are read and explained."""
    found = map_of(table, explanation, given.logs)
    if found is None or not table.failed.any():
        return drawing.note(drawing.blank(8, 4.5), _why_none(table))
    figure = drawing.blank(8, 5.5)
    axes = drawing.panel(figure)
    axes.set_facecolor(UNKNOWN)
    axes.grid(False)
    _draw_shares(figure, axes, found)
    _draw_points(axes, table, found)
    if given.best:
        at = [float(drawing.drawable(given.best[name])) for name in (found.across, found.down)]
        axes.plot(
            *at,
            "*",
            color="white",
            markeredgecolor="black",
            markersize=14,
            linestyle="",
            label="best point",
            zorder=5,
        )
    for which, name in (("x", found.across), ("y", found.down)):
        if name in given.logs:
            drawing.log_scale(axes, which)
    axes.set_xlabel(drawing.word(found.across))
    axes.set_ylabel(drawing.word(found.down))
    drawing.title(
        axes, f"{int(table.failed.sum()):,} of {plural(len(table), 'evaluation')} failed: where on average?"
    )
    drawing.legend(figure, axes)
    return figure


def _why_none(table: Table) -> str:
    if not len(table):
        return "no evaluation yet"
    if not table.failed.any():
        return f"{plural(len(table), 'evaluation')}, none failed"
    return "the points of this run are not kept" if not table.points else "a map needs two parameters"


def _draw_shares(figure: Figure, axes: Any, found: FailureMap) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("failed", ["#ffffff", "#f5c19b", drawing.FAILED])
    mesh = axes.pcolormesh(
        drawing.drawable(found.x),
        drawing.drawable(found.y),
        np.ma.masked_invalid(100 * found.share),
        cmap=colours,
        vmin=0,
        vmax=100,
        rasterized=True,
    )
    mesh.set_gid("map")
    bar = figure.colorbar(mesh, ax=axes, pad=0.02)
    bar.set_label("evaluated points nearby that failed, %", fontsize=9)
    bar.outline.set_visible(False)


def _draw_points(axes: Any, table: Table, found: FailureMap) -> None:
    x, y = (drawing.drawable(table.points[name]) for name in (found.across, found.down))
    kinds = (
        (table.failed, "x", drawing.BLACK, "failed", "failed"),
        (~table.failed, "o", drawing.BLUE, "evaluations", "has a value"),
    )
    for these, marker, colour, gid, label in kinds:
        rows = np.flatnonzero(these)
        rows = rows[drawing.evenly(len(rows), DRAWN)]
        if len(rows):
            axes.plot(
                x[rows],
                y[rows],
                marker,
                color=colour,
                markersize=3.5,
                markeredgewidth=0.7,
                fillstyle="none",
                alpha=0.7,
                gid=gid,
                label=label,
                linestyle="",
            )
