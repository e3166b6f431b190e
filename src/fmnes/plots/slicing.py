"""Where in the space it fails: values and failures against each parameter, and against each pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.plots import drawing
from fmnes.plots.course import failing, plural
from fmnes.plots.given import Floats, Source, Table, with_evaluations
from fmnes.plots.movement import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: So many parameters are all drawn; of more the most telling ones.
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
    names, why = _telling(table)
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
    """On the diagonal: the value against one parameter; what failed has none and stands on top."""
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


def _telling(table: Table) -> tuple[list[str], str]:
    """The parameters to draw, and why just these."""
    points, failed = table.points, table.failed
    if len(points) <= ALL:
        return list(points), ""
    if failed.any() and not failed.all():
        score = {name: _apart(column, failed) for name, column in points.items()}
        why = "those that tell failed points from good ones best"
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
        lines.append(f"drawn are {drawn:,} evaluations, evenly over the run")
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
