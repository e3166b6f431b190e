"""Plots of parameters: where the points were, and where in the space evaluations failed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.plots import drawing
from fmnes.plots.history import failing, plural, restarts
from fmnes.reading.data import Floats, Source, Table, with_evaluations

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- Where the points were, generation by generation: a small plot for each parameter.


#: Parameters at most, and generations of each.
MOST, GENERATIONS = 24, 150


class _Spread(NamedTuple):
    middle: Floats
    deviation: Floats


class _Generations(NamedTuple):
    first: NDArray[np.int64]
    """Row of each one's first evaluation."""
    size: NDArray[np.int64]
    restart: NDArray[np.int64]


def parameters(run: Source) -> Figure:
    """Plot the mean of each generation's points with their standard deviation, and the best point.

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
    >>> result = fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, rng=1, keep_evaluations=True)
    >>> figure = fmnes.plots.parameters(result)
    """
    given, table = with_evaluations(run)
    if not table.points or not len(table):
        return drawing.note(drawing.blank(8, 4.5), unknown(len(table)))
    generations = _generations(table)
    spreads = {
        name: _spread(_on_scale(column, name in given.logs), generations)
        for name, column in table.points.items()
    }
    names = _moving_parameters(spreads)
    across = min(len(names), 4 if len(names) > 6 else 3)
    down = math.ceil(len(names) / across)
    figure = drawing.blank(max(4.5, 2.9 * across), 0.9 + 2.1 * down)
    rows = drawing.evenly(len(generations.first), GENERATIONS)
    at = generations.first[rows] + (generations.size[rows] + 1) / 2  # the middle of the generation
    begins = np.flatnonzero(np.diff(table.restart)) + 1.5
    axes = None
    for i, name in enumerate(names):
        log = name in given.logs
        axes = drawing.panel(figure, down, across, i + 1)
        middle, deviation = (column[rows] for column in spreads[name])
        bounds = (middle - deviation, middle, middle + deviation)
        back = [drawing.drawable(np.exp(np.minimum(b, 500)) if log else b) for b in bounds]
        x, low, line, high = drawing.broken([at, *back], generations.restart[rows])
        few = {"marker": "o", "markersize": 3} if len(rows) <= 15 else {}
        axes.fill_between(x, low, high, color=drawing.SKY, alpha=0.45, linewidth=0, label="± its deviation")
        axes.plot(x, line, color=drawing.BLUE, label="mean of a generation", **few)
        best = given.best.get(name)
        if best is not None:
            axes.axhline(
                float(drawing.drawable(best)),
                color=drawing.BLACK,
                linestyle="--",
                linewidth=1.2,
                label="best point",
            )
        restarts(axes, begins)
        if log:
            drawing.log_scale(axes, "y")
        axes.set_xlim(0, len(table) + 1)
        axes.tick_params(which="both", labelsize=8)
        said = "" if best is None else f"   best {drawing.number(best)}"
        axes.set_title(f"{drawing.word(name, 24)}{said}", loc="left", fontsize=10)
        if i >= len(names) - across:
            axes.set_xlabel("evaluations", fontsize=9)
    left_out = len(spreads) - len(names)
    if left_out:
        heading = f"{len(names)} of {len(spreads)} parameters: those that moved furthest"
        figure.suptitle(heading, x=0.01, ha="left", fontsize=11)
    drawing.legend(figure, axes)
    return figure


def unknown(count: int) -> str:
    """The message for a plot without points."""
    return "the points of this run are not kept" if count else "no evaluation yet"


def _on_scale(column: Floats, log: bool) -> Floats:
    return np.log(np.maximum(column, 1e-300)) if log else drawing.drawable(column)


def _generations(table: Table) -> _Generations:
    moved = (np.diff(table.restart) != 0) | (np.diff(table.generation) != 0)
    first = np.concatenate(([0], np.flatnonzero(moved) + 1))
    size = np.diff(np.append(first, len(table)))
    # The start is one point before the first generation: it has no deviation.
    kept = table.generation[first] >= 0 if (table.generation >= 0).any() else np.full(len(first), True)
    return _Generations(first[kept], size[kept], table.restart[first[kept]])


def _spread(column: Floats, generations: _Generations) -> _Spread:
    """Mean and standard deviation of each generation's points."""
    first, size, _ = generations
    begin = int(first[0])
    part = column[begin:]
    middle = np.add.reduceat(part, first - begin) / size
    away = part - np.repeat(middle, size)
    return _Spread(middle, np.sqrt(np.add.reduceat(away**2, first - begin) / size))


def _moving_parameters(spreads: dict[str, _Spread]) -> list[str]:
    """All of them, or those that moved furthest, in the deviations they began with."""
    if len(spreads) <= MOST:
        return list(spreads)

    def moved(name: str) -> float:
        middle, deviation = spreads[name]
        return float(np.abs(middle - middle[0]).max() / (deviation[0] or 1.0))

    chosen = set(sorted(spreads, key=moved, reverse=True)[:MOST])
    return [name for name in spreads if name in chosen]


# -- Where in the space it fails: values and failures against each parameter, and against each pair.


#: Up to this many parameters are all drawn; of more, the most informative ones.
ALL, TELLING = 5, 4
#: Evaluations that are drawn: those that failed and those that have a value, as many of each at most.
DRAWN = 2000


class _Marks(NamedTuple):
    """What is drawn of the evaluations, the same in each panel."""

    good: NDArray[np.int64]
    """Rows, the best one last: it lies on top."""
    bad: NDArray[np.int64]
    rank: Floats
    """Of the good ones: 0 the best value, 1 the worst. By rank, so that one huge value takes no colours."""
    as_picture: bool


def slices(run: Source) -> Figure:
    """Plot the values against each parameter, and the points of each pair of parameters, with failures.

    With many parameters: those that separate failed points from good ones best or, if none does, those on
    which the value depends most.

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
    >>> result = fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, rng=1, keep_evaluations=True)
    >>> figure = fmnes.plots.slices(result)
    """
    given, table = with_evaluations(run)
    if not table.points or not len(table):
        return drawing.note(drawing.blank(8, 4.5), unknown(len(table)))
    names, why = _informative_parameters(table)
    d = len(names)
    marks = _marks(table, d)
    side = {1: 7.0, 2: 4.0, 3: 3.2}.get(d, 2.6)
    figure = drawing.blank(side * d, 4.5 if d == 1 else 1.2 + 0.8 * side * d)
    for i, down in enumerate(names):
        for j, across in enumerate(names[: i + 1]):
            axes = drawing.panel(figure, d, d, i * d + j + 1)
            x = drawing.drawable(table.points[across])
            if i == j:
                _draw_values(axes, x, table.value, marks)
                axes.set_title(f"value against {drawing.word(down, 24)}", loc="left", fontsize=9, pad=10)
            else:
                _draw_pair(axes, x, drawing.drawable(table.points[down]), marks)
                if given.best:
                    at = [float(drawing.drawable(given.best[name])) for name in (across, down)]
                    axes.plot(*at, "*", color="white", markeredgecolor="black", markersize=12, zorder=5)
                if down in given.logs:
                    drawing.log_scale(axes, "y")
            if across in given.logs:
                drawing.log_scale(axes, "x")
            axes.tick_params(which="both", labelsize=8)
            if i == d - 1:
                axes.set_xlabel(drawing.word(across, 24), fontsize=9)
            if j == 0 and i > 0:
                axes.set_ylabel(drawing.word(down, 24), fontsize=9)
    figure.suptitle(_title(table, why, marks), x=0.01, ha="left", fontsize=11)
    _draw_key(figure, marks, best=bool(given.best) and d > 1)
    return figure


def _draw_values(axes: Any, x: Floats, value: Floats, marks: _Marks) -> None:
    """On the diagonal: the value against one parameter; failures are at the top."""
    values = drawing.drawable(value[marks.good])
    axes.update_datalim(np.column_stack((x, np.full(len(x), values.min() if len(values) else 0.0))))
    _scatter(axes, x[marks.good], values, marks)
    drawing.scale_of_values(axes, values)
    failing(axes, x[marks.bad], "failed")
    if not len(values):
        axes.set_yticks([])


def _draw_pair(axes: Any, x: Floats, y: Floats, marks: _Marks) -> None:
    """Below it: where the points were, and where they failed."""
    bad = marks.bad
    if len(bad):
        axes.plot(
            x[bad],
            y[bad],
            "x",
            color=drawing.FAILED,
            markersize=4.5,
            markeredgewidth=0.9,
            gid="failed",
            rasterized=marks.as_picture,
        )
    _scatter(axes, x[marks.good], y[marks.good], marks)


def _scatter(axes: Any, x: Floats, y: Floats, marks: _Marks) -> None:
    if len(x):
        axes.scatter(
            x,
            y,
            c=marks.rank,
            cmap="cividis",
            vmin=0,
            vmax=1,
            s=10,
            linewidths=0,
            gid="evaluations",
            rasterized=marks.as_picture,
            zorder=3,
        )


def _marks(table: Table, d: int) -> _Marks:
    good, bad = (
        rows[drawing.evenly(len(rows), DRAWN)]
        for rows in (np.flatnonzero(~table.failed), np.flatnonzero(table.failed))
    )
    good = good[np.argsort(-table.value[good], kind="stable")]
    total = (len(good) + len(bad)) * d * (d + 1) // 2
    rank = np.linspace(1, 0, len(good)) if len(good) > 1 else np.zeros(len(good))
    return _Marks(good, bad, rank, total > drawing.MARKS)


def _informative_parameters(table: Table) -> tuple[list[str], str]:
    """The parameters to draw, and why just these."""
    points, failed = table.points, table.failed
    if len(points) <= ALL:
        return list(points), ""
    if failed.any() and not failed.all():
        score = {name: _apart(column, failed) for name, column in points.items()}
        why = "those that separate failed points best"
    else:
        value = _ranks(table.value) if not failed.any() else np.arange(len(table), dtype=float)
        score = {name: _together(_ranks(column), value) for name, column in points.items()}
        why = "those that moved most" if failed.any() else "those the value depends on most"
    chosen = set(sorted(score, key=lambda name: score[name], reverse=True)[:TELLING])
    return [name for name in points if name in chosen], f"{TELLING} of {len(points)} parameters: {why}"


def _apart(column: Floats, failed: NDArray[np.bool_]) -> float:
    """The largest distance of the two distribution functions (Kolmogorov and Smirnov): 0 alike, 1 apart."""
    order = np.argsort(column, kind="stable")
    ends = np.append(np.diff(column[order]) != 0, True)  # equal numbers count together
    bad = np.cumsum(failed[order]) / failed.sum()
    good = np.cumsum(~failed[order]) / (~failed).sum()
    return float(np.abs(bad - good)[ends].max())


def _ranks(column: Floats) -> Floats:
    return np.argsort(np.argsort(column, kind="stable"), kind="stable").astype(float)


def _together(ranks: Floats, others: Floats) -> float:
    """Correlation of ranks, without its sign."""
    if len(ranks) < 2:
        return 0.0
    return float(abs(np.corrcoef(ranks, others)[0, 1]))


def _title(table: Table, why: str, marks: _Marks) -> str:
    lines = [f"{int(table.failed.sum()):,} of {plural(len(table), 'evaluation')} failed: where?"]
    if not table.failed.any():
        lines = [f"{plural(len(table), 'evaluation')}, none failed"]
    if why:
        lines.append(why)
    if (drawn := len(marks.good) + len(marks.bad)) < len(table):
        lines.append(f"{drawn:,} evaluations are drawn, evenly over the run")
    return "\n".join(lines)


def _draw_key(figure: Figure, marks: _Marks, best: bool) -> None:
    from matplotlib.lines import Line2D

    kinds = [
        (len(marks.good) > 0, "o", "#fdea45", "#999999", "high value"),
        (len(marks.good) > 0, "o", "#00224e", "#00224e", "low value"),
        (len(marks.bad) > 0, "x", drawing.FAILED, drawing.FAILED, "failed"),
        (best, "*", "white", "black", "best point"),
    ]
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=colour, markeredgecolor=edge, label=label)
        for there, marker, colour, edge, label in kinds
        if there
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
