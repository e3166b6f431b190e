"""What happens where: the program tried at all points of a grid, and drawn as a map with a search's path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fmnes
from fmnes.evaluation.evaluator import Task, evaluate_all
from fmnes.evaluation.programs.runner import CommandEvaluator
from fmnes.outcome import START, EvaluationId

#: What may happen, by how its reason begins.
VALUE = "a value"
DEATHS = {
    "died: SIGSEGV": "crashes",
    "timed out": "hangs",
    "returned NaN": "prints nan",
    "found no number": "prints ******",
}


class Map(NamedTuple):
    flow: NDArray[np.float64]
    """(n,)"""
    coolant: NDArray[np.float64]
    """(m,)"""
    what: NDArray[Any]
    """VALUE, one of DEATHS, or in other words what came. (m, n)"""
    value: NDArray[np.float64]
    """NaN where there is none. (m, n)"""


def try_all(problem: Any, n: int) -> Map:
    """n flows and three quarters as many coolants, over the parameters' ranges; a few programs at a time."""
    flow, coolant = problem.space.parameters["flow"], problem.space.parameters["coolant"]
    flows = np.geomspace(flow.lower, flow.upper, n)
    coolants = np.linspace(coolant.lower, coolant.upper, 3 * n // 4)
    points = [{"flow": x, "coolant": y} for y in coolants for x in flows]
    tasks = [Task(problem.space.numbers(point), EvaluationId(0, START, 0)) for point in points]
    what = np.full(len(points), VALUE, dtype=object)
    value = np.full(len(points), np.nan)
    command = replace(problem.command, timeout=problem.run["timeout"], keep="none")
    evaluator = CommandEvaluator(command, problem.run["workers"], named=problem.space.named)
    try:
        for i, outcome in evaluate_all(evaluator, tasks):
            if outcome.status == "value":
                value[i] = outcome.value
            else:
                what[i] = death(outcome.reason)
    finally:
        evaluator.close()
    shape = (len(coolants), len(flows))
    return Map(flows, coolants, what.reshape(shape), value.reshape(shape))


def death(reason: str) -> str:
    return next((word for begins, word in DEATHS.items() if reason.startswith(begins)), reason)


def shares(everywhere: Map) -> dict[str, float]:
    """Of the grid's points, by what happened; the most frequent first."""
    words, counts = np.unique(everywhere.what.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(words[i]): float(counts[i] / counts.sum()) for i in order}


def draw(everywhere: Map, tried: fmnes.Evaluations, middles: Sequence[Mapping[str, float]]) -> Any:
    """The map, what a search tried on it, and the middle of each of its generations."""
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.ticker import FixedLocator

    from fmnes.plots import drawing

    figure = drawing.blank(9, 6)
    axes = drawing.panel(figure)
    axes.grid(False)
    grid = {"shading": "nearest", "rasterized": True}
    shade = axes.pcolormesh(
        everywhere.flow, everywhere.coolant, everywhere.value, norm=LogNorm(), cmap="Blues_r", **grid
    )
    bar = figure.colorbar(shade, ax=axes, label="cost, log scale", pad=0.01)
    bar.ax.yaxis.set_major_locator(FixedLocator([3, 5, 10, 20, 50]))
    bar.ax.yaxis.set_major_formatter("{x:g}")
    bar.ax.minorticks_off()
    colours = (drawing.RED, drawing.ORANGE, drawing.PINK, drawing.GREY)
    for colour, word in zip(colours, DEATHS.values(), strict=True):
        there = np.where(everywhere.what == word, 1.0, np.nan)
        axes.pcolormesh(everywhere.flow, everywhere.coolant, there, cmap=ListedColormap([colour]), **grid)
        axes.plot([], [], "s", color=colour, markersize=9, label=word)
    flow, coolant, failed = tried["flow"], tried["coolant"], np.isnan(tried.value)
    axes.plot(flow[~failed], coolant[~failed], "o", color="white", mec="black", mew=0.6, ms=4, label="tried")
    axes.plot(flow[failed], coolant[failed], "x", color="black", ms=4, mew=0.8, label="tried, failed")
    path = np.array([[middle["flow"], middle["coolant"]] for middle in middles])
    axes.plot(*path.T, color=drawing.YELLOW, linewidth=1.5, label="the search's middle")
    best = int(np.nanargmin(tried.value))
    axes.plot(*path[0], "D", color=drawing.YELLOW, mec="black", ms=8, label="start", zorder=5)
    axes.plot(
        flow[best], coolant[best], "*", color=drawing.YELLOW, mec="black", ms=15, label="best", zorder=5
    )
    drawing.log_scale(axes, "x")
    axes.set(xlabel="flow, l/min, log scale", ylabel="coolant, K")
    drawing.title(axes, f"best {drawing.number(tried.value[best])} after {len(flow)} evaluations")
    drawing.legend(figure, axes, columns=5)
    return figure
