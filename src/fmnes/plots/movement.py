"""Where the points were, generation by generation: a small plot for each parameter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.plots import drawing
from fmnes.plots.course import restarts
from fmnes.plots.given import Floats, Source, Table, with_evaluations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    names = _telling(spreads)
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
    """Why there are no points to draw."""
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


def _telling(spreads: dict[str, _Spread]) -> list[str]:
    """All of them, or those that moved furthest, in the deviations they began with."""
    if len(spreads) <= MOST:
        return list(spreads)

    def moved(name: str) -> float:
        middle, deviation = spreads[name]
        return float(np.abs(middle - middle[0]).max() / (deviation[0] or 1.0))

    chosen = set(sorted(spreads, key=moved, reverse=True)[:MOST])
    return [name for name in spreads if name in chosen]
