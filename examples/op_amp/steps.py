"""Responses to a step: how long they take to settle, and a picture of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fmnes

Floats = NDArray[np.float64]
#: When the edges of the netlist's pulse begin, and when the next one is due, in ns.
RISING, FALLING, END = 100.0, 600.0, 1100.0
#: How near counts as settled, in mV.
NEAR = 10.0


class Step(NamedTuple):
    time: Floats
    """ns, as (n,) as the rest."""
    given: Floats
    """What goes in, in V."""
    out: Floats
    """What comes out."""


def read(file: Path) -> Step:
    time, given, out = np.loadtxt(file, unpack=True)
    return Step(1e9 * time, given, out)


def settling(step: Step, edge: float) -> float:
    """How many ns after an edge the output stays near its input; infinite if not before the next edge."""
    during = (step.time >= edge) & (step.time < (FALLING if edge == RISING else END))
    time, error = step.time[during] - edge, 1000 * np.abs(step.out - step.given)[during]
    last = int(np.flatnonzero(error > NEAR)[-1])
    if last == len(error) - 1:
        return float("inf")
    return float(np.interp(-NEAR, -error[last : last + 2], time[last : last + 2]))


def words(step: Step) -> str:
    def one(edge: float) -> str:
        found = settling(step, edge)
        return f"in {found:.0f} ns" if np.isfinite(found) else "not before the next edge"

    return f"it settles {one(RISING)} after the rising edge, {one(FALLING)} after the falling one"


def draw(before: Step, after: Step, exploited: Step, result: fmnes.Result, untested: fmnes.Result) -> Any:
    """Above the responses, below the runs; `exploited` is the best of `untested`, without a falling edge."""
    from fmnes.plots import drawing

    figure = drawing.blank(10, 7)
    rows = figure.add_gridspec(2, 2)
    axes = drawing.panel(figure, rows[0, :])
    axes.plot(before.time, before.given, color=drawing.GREY, linewidth=1, label="input")
    axes.plot(before.time, before.out, "--", color=drawing.SKY, linewidth=1.6, label="start")
    axes.plot(after.time, after.out, color=drawing.BLUE, linewidth=1.8, label="best, both edges tested")
    axes.plot(
        exploited.time,
        exploited.out,
        ":",
        color=drawing.RED,
        linewidth=1.8,
        label="best, only the rising one",
    )
    for edge in (RISING, FALLING):
        axes.axvspan(edge, edge + 100, color=drawing.YELLOW, alpha=0.25, linewidth=0)
    axes.set(xlabel="ns; 100 ns to settle are shaded", ylabel="V", xlim=(0, END))
    drawing.title(axes, "a step of 1 V, up and down")
    axes.legend(frameon=False, fontsize=9, loc=(0.3, 0.25))
    _draw_course(drawing.panel(figure, rows[1, 0]), result, "both edges tested", drawing.BLUE)
    _draw_course(drawing.panel(figure, rows[1, 1]), untested, "only the rising one tested", drawing.RED)
    low, high = np.array([panel.get_ylim() for panel in figure.axes[1:]]).T
    for panel in figure.axes[1:]:
        panel.set_ylim(low.min(), high.max())
    return figure


def _draw_course(axes: Any, result: fmnes.Result, what: str, colour: str) -> None:
    """Every value, the best so far, and what failed as ticks on top."""
    from fmnes.plots import drawing, history

    assert result.evaluations is not None
    value = result.evaluations.value
    best = np.fmin.accumulate(value)
    at = np.arange(1, len(value) + 1)
    axes.plot(at, value, "o", color=drawing.SKY, markersize=3, markeredgewidth=0, alpha=0.7)
    axes.step(at, best, where="post", color=colour, linewidth=1.8)
    history.failing(axes, at[np.isnan(value)], "failed")
    drawing.log_scale(axes, "y")
    axes.set(xlabel="evaluations; ticks above: failed", ylabel="mW, log scale", xlim=(0, len(value)))
    drawing.title(axes, f"{what}: {drawing.number(result.fun)} mW")
