"""Time courses of two networks, before and after, with the data that they are to meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes_bench.gene_network.estimation import HIGH, GeneNetworkProblem
from fmnes_bench.gene_network.network import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fmnes.result import Result


def draw(
    problem: GeneNetworkProblem,
    before: Any,
    after: Any,
    *,
    states: Sequence[int] = (0, 2, 7),
    result: Result | None = None,
) -> Figure:
    """Draw the data as dots and the courses of two networks as lines, one network above the other.

    Parameters
    ----------
    problem : GeneNetworkProblem
        The problem.
    before : dict or array_like
        The point above, such as `problem.start`.
    after : dict or array_like
        The point below, such as `result.x`.
    states : sequence of int, optional
        The initial states to draw.
    result : Result, optional
        The result of `minimize(..., keep_evaluations=True)`: adds the best value so far below.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.

    Examples
    --------
    >>> from fmnes_bench import gene_network
    >>> problem = gene_network.problem()
    >>> figure = gene_network.draw(problem, problem.start, problem.true)
    """
    from fmnes.plots import drawing

    if not isinstance(problem, GeneNetworkProblem):
        raise ArgumentError(f"problem: found {shown(problem)}, wanted a gene_network.problem()")
    count = len(problem.initial)
    if not len(states) or not all(isinstance(s, int) and 0 <= s < count for s in states):
        raise ArgumentError(f"states: found {shown(states)}, wanted some of 0 to {count - 1}")
    figure = drawing.blank(11, 6 if result is None else 8.5)
    grid: Any = figure.add_gridspec(2 if result is None else 3, len(states))
    times = np.linspace(0, problem.times[-1], 101)
    for row, (name, point) in enumerate((("before", before), ("after", after))):
        found, error = problem.courses(point, times), problem.fun(point)
        for column, state in enumerate(states):
            axes = drawing.panel(figure, grid[row, column])
            _draw_courses(axes, problem, times, found, state)
            raised = " and ".join(f"X{i + 1}" for i in np.flatnonzero(problem.initial[state] == HIGH))
            drawing.title(axes, f"{'' if column else f'{name}, off by {error:.1%}: '}{raised} high at first")
            axes.set_ylim(0, 1.15 * float(problem.observed.max()))
            if row:
                axes.set_xlabel("time")
            if not column:
                axes.set_ylabel("concentration")
    if result is not None:
        _draw_best_so_far(drawing.panel(figure, grid[2, :]), result)
    drawing.legend(figure, figure.axes[0], columns=6)
    return figure


def _draw_courses(axes: Any, problem: GeneNetworkProblem, times: Floats, found: Floats, state: int) -> None:
    from fmnes.plots import drawing

    colours = (drawing.BLUE, drawing.GREEN, drawing.RED, drawing.PINK, drawing.ORANGE)
    for gene, colour in enumerate(colours):
        axes.plot(times, found[:, state, gene], color=colour, linewidth=1.4, label=f"X{gene + 1}")
        axes.plot(problem.times, problem.observed[:, state, gene], "o", color=colour, markersize=3.5)
    axes.plot([], [], "o", color=drawing.GREY, markersize=3.5, label="data")


def _draw_best_so_far(axes: Any, result: Result) -> None:
    from fmnes.plots import drawing, history
    from fmnes.plots.history import improvements
    from fmnes.reading.data import with_evaluations

    _, table = with_evaluations(result)
    at, best = improvements(table.value)
    axes.step(
        np.append(at, len(table)),
        np.append(best, best[-1:]),
        where="post",
        color=drawing.BLACK,
        linewidth=1.8,
    )
    history.failing(axes, np.flatnonzero(table.failed) + 1, "failed")
    drawing.log_scale(axes, "y")
    axes.set(xlabel="evaluations; ticks above: failed", ylabel="error, log scale", xlim=(0, len(table)))
    drawing.title(axes, f"best so far {drawing.number(result.fun)}, {int(table.failed.sum()):,} failed")
