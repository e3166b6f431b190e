"""Several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes.plots import drawing
from fmnes.plots.given import Source, course, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = (
    drawing.BLUE,
    drawing.RED,
    drawing.GREEN,
    drawing.PINK,
    drawing.ORANGE,
    drawing.SKY,
    drawing.BLACK,
)
_LINES = ("-", "--", "-.", ":")


def compare(
    *runs: Source | Sequence[Source] | Mapping[str, Source], labels: Sequence[str] | None = None
) -> Figure:
    """Plot the best value so far of several runs over the evaluations.

    Parameters
    ----------
    *runs : Result, path or Run, or a sequence or dict of these
        One after another, a list of them, or {label: run}.
    labels : sequence of str, optional
        One per run; by default the names of the run directories, and "run 1", "run 2", … for results.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    ArgumentError
        There is no run, or the number of labels differs.
    MissingExtra
        matplotlib is not installed.

    Examples
    --------
    >>> import fmnes
    >>> def f(x):
    ...     return float(x @ x)
    >>> runs = {name: fmnes.minimize(f, [3.0, 2.0], 0.5, method=name, rng=1) for name in ("fm-nes", "xnes")}
    >>> figure = fmnes.plots.compare(runs)
    """
    listed, labels = _listed(runs, labels)
    given = [read(run, f"run {i + 1}") for i, run in enumerate(listed)]
    if labels is None:
        labels = [one.label or f"run {i + 1}" for i, one in enumerate(given)]
    figure = drawing.blank(8, 4.5 + 0.22 * len(given))
    axes = drawing.panel(figure)
    courses = [course(one) for one in given]
    for i, (one, label, (at, best, count)) in enumerate(zip(given, labels, courses, strict=True)):
        if len(best):
            x, y = np.append(at, count), drawing.drawable(np.append(best, best[-1]))
            ending = f"{drawing.number(best[-1])} after {count:,}"
        else:
            x, y, ending = np.empty(0), np.empty(0), f"no success in {count:,}"
        if one.table is not None:
            ending += f", {int(one.table.failed.sum()):,} failed"
        colour, line = _COLOURS[i % len(_COLOURS)], _LINES[i % len(_LINES)]
        axes.step(
            x,
            y,
            where="post",
            color=colour,
            linestyle=line,
            linewidth=1.8,
            label=f"{drawing.word(label)}: {ending}",
            gid="best",
        )
        axes.plot(x[-1:], y[-1:], "o", color=colour, markersize=5)
    scaled = drawing.scale_of_values(axes, drawing.drawable(np.concatenate([best for _, best, _ in courses])))
    axes.set_xlim(0, None)
    axes.set_xlabel("evaluations")
    axes.set_ylabel(f"best value so far{scaled}")
    drawing.title(axes, _title(labels, courses))
    drawing.legend(figure, axes, columns=1 if len(given) <= 8 else 2)
    return figure


def _listed(runs: Sequence[Any], labels: Sequence[str] | None) -> tuple[list[Any], Sequence[str] | None]:
    if len(runs) == 1 and isinstance(runs[0], Mapping):
        labels = list(runs[0]) if labels is None else labels
        runs = list(runs[0].values())
    elif len(runs) == 1 and isinstance(runs[0], (list, tuple)):
        runs = runs[0]
    if not runs:
        raise ArgumentError("runs: found none, wanted at least one")
    if labels is not None:
        if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
            raise ArgumentError(f"labels: found {shown(labels)}, wanted a list of texts")
        if len(labels) != len(runs):
            raise ArgumentError(f"labels: found {len(labels)}, wanted {len(runs)}, one for each run")
    return list(runs), labels


def _title(labels: Sequence[str], courses: Sequence[tuple[Any, Any, int]]) -> str:
    found = [(float(best[-1]), i) for i, (_, best, _) in enumerate(courses) if len(best)]
    if not found:
        return "no run has a success"
    if len(courses) == 1:
        return f"best {drawing.number(found[0][0])}"
    return f"the best is {drawing.word(labels[min(found)[1]])}, with {drawing.number(min(found)[0])}"
