"""How a run went: its values, and the distribution it drew from, over the evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes.plots import drawing
from fmnes.plots.given import Given, Source, Table, course, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def convergence(run: Source) -> Figure:
    """Plot every evaluation, the best value so far as a line, and failed evaluations as ticks on top.

    Without stored evaluations, the dots of a result are the best values of the generations.

    Parameters
    ----------
    run : Result, path or Run
        The result of `minimize`, a run directory, or what `fmnes.read_run` returned.

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
    >>> import fmnes
    >>> result = fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, rng=1)
    >>> figure = fmnes.plots.convergence(result)
    """
    given = read(run)
    figure = drawing.blank(8, 4.5)
    at, best, count = course(given)
    if not count:
        return drawing.note(figure, "no evaluation yet")
    axes = drawing.panel(figure)
    values = best
    if given.table is not None:
        values = given.table.value
        _draw_dots(axes, np.arange(1, count + 1), values, "an evaluation")
        failing(axes, np.flatnonzero(given.table.failed) + 1, "a failed one")
        begins = np.flatnonzero(np.diff(given.table.restart)) + 1.5
    else:
        history = given.history
        values = np.where(np.isfinite(history["generation_best"]), history["generation_best"], np.nan)
        _draw_dots(axes, history["evaluations"], values, "the best of a generation")
        begins = history["evaluations"][:-1][np.diff(history["restart"]) > 0] + 0.5
    if len(best):
        steps = drawing.drawable(np.append(best, best[-1]))
        axes.step(
            np.append(at, count),
            steps,
            where="post",
            color=drawing.BLACK,
            linewidth=1.8,
            label="best so far",
            gid="best",
            zorder=4,
        )
    restarts(axes, begins)
    scaled = drawing.scale_of_values(axes, drawing.drawable(values))
    axes.set_xlim(0.5, count + max(0.5, 0.01 * count))
    axes.set_xlabel("evaluations")
    axes.set_ylabel(f"value{scaled}")
    drawing.title(axes, f"{_ending(given)}{_failed(given.table)}")
    if not len(best):
        axes.set_yticks([])
        axes.text(
            0.5, 0.5, "no evaluation has a value", transform=axes.transAxes, ha="center", color=drawing.GREY
        )
    drawing.legend(figure, axes)
    return figure


def distribution(run: Source) -> Figure:
    """Plot the step size, and the longest and shortest axis of the search distribution.

    Parameters
    ----------
    run : Result, path or Run
        The result of `minimize`, a run directory, or what `fmnes.read_run` returned.

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
    >>> import fmnes
    >>> result = fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, rng=1)
    >>> figure = fmnes.plots.distribution(result)
    """
    given = read(run)
    figure = drawing.blank(8, 4.5)
    history = given.history
    if not history or not len(history["evaluations"]):
        return drawing.note(figure, "no complete generation yet")
    axes = drawing.panel(figure)
    rows = drawing.evenly(len(history["evaluations"]), drawing.POINTS)
    sigma = history["sigma"]
    columns = (
        history["evaluations"],
        sigma,
        sigma * history["longest_axis"],
        sigma * history["shortest_axis"],
    )
    thinned = [column[rows] for column in columns]
    x, *lines = drawing.broken([thinned[0], *map(drawing.drawable, thinned[1:])], history["restart"][rows])
    middle, longest, shortest = (np.where(line > 0, line, np.nan) for line in lines)
    few = {"marker": "o", "markersize": 3} if len(rows) <= 30 else {}
    axes.fill_between(x, shortest, longest, color=drawing.SKY, alpha=0.25, linewidth=0)
    axes.plot(x, longest, color=drawing.BLUE, linestyle="--", label="longest axis", **few)
    axes.plot(x, middle, color=drawing.BLACK, linewidth=1.8, label="step size", **few)
    axes.plot(x, shortest, color=drawing.GREEN, linestyle=":", linewidth=1.8, label="shortest axis", **few)
    restarts(axes, history["evaluations"][:-1][np.diff(history["restart"]) > 0] + 0.5)
    drawing.log_scale(axes, "y")
    axes.set_xlim(0, None)
    axes.set_xlabel("evaluations")
    axes.set_ylabel("standard deviation, log scale")
    ratio = history["longest_axis"][-1] / history["shortest_axis"][-1]
    ending = f"step size {drawing.number(sigma[-1])} at the end, axes 1 : {drawing.number(ratio)}"
    drawing.title(axes, f"{ending}, in the search's numbers")
    drawing.legend(figure, axes)
    return figure


def failing(axes: Any, at: NDArray[Any], label: str) -> None:
    """Ticks above the plot, where no dot can be."""
    if len(at):
        axes.plot(
            at,
            np.full(len(at), 1.025),
            "|",
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            color=drawing.FAILED,
            markersize=7,
            markeredgewidth=0.8,
            label=label,
            gid="failed",
            rasterized=len(at) > drawing.MARKS,
        )


def restarts(axes: Any, at: NDArray[Any]) -> None:
    for i, x in enumerate(at[:100]):
        axes.axvline(
            x,
            color=drawing.GREY,
            linewidth=0.8,
            linestyle=(0, (1, 2)),
            label="" if i else "a restart or second look",
        )


def _draw_dots(axes: Any, x: NDArray[Any], values: NDArray[np.float64], label: str) -> None:
    there = np.isfinite(values)
    if there.any():
        axes.plot(
            x[there],
            drawing.drawable(values[there]),
            "o",
            color=drawing.SKY,
            markersize=3,
            markeredgewidth=0,
            alpha=0.7,
            label=label,
            gid="evaluations",
            rasterized=int(there.sum()) > drawing.MARKS,
        )


def _ending(given: Given) -> str:
    best = f"best {drawing.number(given.fun)}" if np.isfinite(given.fun) else "no success"
    return f"{best} after {plural(given.evaluations, 'evaluation')}"


def _failed(table: Table | None) -> str:
    return "" if table is None else f", {int(table.failed.sum()):,} failed"


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
