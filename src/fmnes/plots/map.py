"""The failure map: where evaluations fail and where a model expects it, in the plane of two parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.analysis.explanation import Explanation, explanation_of
from fmnes.analysis.prediction import Edge, edge_through_best
from fmnes.plots import drawing
from fmnes.plots.history import plural
from fmnes.reading.data import Floats, RunData, Source, Table, in_box, on_scale, with_evaluations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# -- The plane of two parameters: the local share of failed evaluations, and the edge that a model expects.

#: Cells of the map along each parameter.
CELLS = 40
#: Borders and middles of the cells by turns, as shares of the range.
PLACES = np.linspace(0, 1, 2 * CELLS + 1)
#: Evaluated cells that the share of a place is the mean of; farther than this share of the range none counts.
NEAREST, NEAR = 8, 0.12
#: Weight of the overall share; an evaluated cell has a weight of 1, and of 1/(1 + r²) r cells away.
AVERAGE = 0.05


class FailureMap(NamedTuple):
    """The local share of failed evaluations, and the expected edge of the failing region."""

    across: str
    down: str
    x: Floats
    """Borders and middles of the cells by turns, in the user's units. (2 CELLS + 1,)"""
    y: Floats
    share: Floats
    """From 0 to 1; NaN where nothing was evaluated nearby. (CELLS, CELLS), rows along y"""
    edge: Edge | None
    """At the middles of the cells, through the best point; None if none is clear."""


def map_of(table: Table, explanation: Explanation, logs: frozenset[str]) -> FailureMap | None:
    """The map of the two most important parameters; None with fewer than two, or without evaluations."""
    if len(table.points) < 2 or not len(table):
        return None
    across, down = most_important(explanation, list(table.points))
    x = on_scale({name: table.points[name] for name in (across, down)}, logs)
    return FailureMap(
        across,
        down,
        _places(x[:, 0], across in logs),
        _places(x[:, 1], down in logs),
        local_share(in_box(x), table.failed),
        edge_through_best(table, logs, across, down, PLACES[1::2]),
    )


def most_important(explanation: Explanation, names: list[str]) -> tuple[str, str]:
    """The two parameters that matter most: for failure, then for the value, then the first ones."""
    rules = [one.rule for one in explanation.failures if one.rule is not None]
    ranked = [
        *explanation.failure.shares,
        *(condition.name for rule in rules for condition in rule.conditions),
        *explanation.value.shares,
        *names,
    ]
    first, second, *_ = dict.fromkeys(ranked)
    return first, second


def local_share(x: Floats, failed: NDArray[np.bool_]) -> Floats:
    """The share of failures around the middle of each cell of the unit square. x: (n, 2), in it

    Each evaluated cell has its own share, so that many points at one place count once. The share elsewhere is
    the mean of the nearest ones, closer ones with a larger weight, and of all of them with a small weight.
    """
    cell = np.minimum((x * CELLS).astype(np.int64), CELLS - 1)
    occupied, which, counts = np.unique(
        cell[:, 1] * CELLS + cell[:, 0], return_inverse=True, return_counts=True
    )
    share = np.bincount(which, weights=failed) / counts
    row, column = np.divmod(occupied, CELLS)
    down, across = np.divmod(np.arange(CELLS**2), CELLS)
    squared = (down[:, None] - row) ** 2.0 + (across[:, None] - column) ** 2.0
    nearest = np.argsort(squared, axis=1, kind="stable")[:, :NEAREST]
    squared = np.take_along_axis(squared, nearest, axis=1)
    weights = np.where(squared <= (NEAR * CELLS) ** 2, 1 / (1 + squared), 0.0)
    total = weights.sum(axis=1)
    mean = ((weights * share[nearest]).sum(axis=1) + AVERAGE * share.mean()) / (total + AVERAGE)
    known: Floats = np.where(total > 0, mean, np.nan).reshape(CELLS, CELLS)
    return known


def _places(column: Floats, log: bool) -> Floats:
    """PLACES in the range of a column, in the user's units; a constant column gets a width."""
    low, high = float(column.min()), float(column.max())
    if not low < high:
        margin = 1.0 if log else max(abs(low), 1.0) * 1e-3
        low, high = low - margin, high + margin
    places = low * (1 - PLACES) + high * PLACES  # the full range may overflow
    return np.exp(places) if log else places


# -- Where failures are expected, as a map of the two parameters that matter most.

#: Points of either kind that are drawn.
DRAWN = 1000
#: Places where nothing was evaluated nearby.
UNKNOWN = "#e4e4e4"


def failure_map(run: Source) -> Figure:
    """Plot where evaluations fail over the two parameters that matter most, and where a model expects it.

    The colour is the share of failures of the nearest evaluated points, whatever their other parameters. Grey
    places have no evaluated point nearby. The dashed line is the edge that a model of the failures expects,
    with the other parameters as at the best point; it is drawn if most points that were left out of the model
    are on their side of it.

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
    return draw_map(given, table, explanation_of(table, given.logs, given.noisy))


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
    _draw_edge(axes, found)
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
        drawing.drawable(found.x[::2]),
        drawing.drawable(found.y[::2]),
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


def _draw_edge(axes: Any, found: FailureMap) -> None:
    if found.edge is None or (found.edge.margin > 0).all() or not (found.edge.margin > 0).any():
        return
    x, y = (drawing.drawable(places[1::2]) for places in (found.x, found.y))
    axes.contour(x, y, found.edge.margin, levels=[0.0], colors=drawing.BLACK, linestyles="--", linewidths=1.2)
    label = f"expected edge ({found.edge.right:.0%} of left-out points on their side)"
    axes.plot([], [], "--", color=drawing.BLACK, linewidth=1.2, gid="edge", label=label)


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
