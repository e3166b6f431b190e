"""How much failed, when, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from fmnes.alike import told_as
from fmnes.plots import drawing
from fmnes.plots.course import plural
from fmnes.plots.given import Source, with_evaluations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: So many reasons by name.
REASONS = 6
#: Columns at most, and evaluations of one at least.
COLUMNS, LEAST = 50, 10
# Neighbours differ in brightness and in hatching too.
_LOOKS = (
    (drawing.RED, ""),
    (drawing.SKY, "//"),
    (drawing.BLUE, ""),
    (drawing.ORANGE, "xx"),
    (drawing.GREEN, ""),
    (drawing.PINK, ".."),
)
_OTHER = ("#bbbbbb", "")


def failures(run: Source) -> Figure:
    """Plot the share of failed evaluations over time by reason: the most frequent by name, then "other".

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
    >>> figure = fmnes.plots.failures(result)
    """
    _, table = with_evaluations(run)
    count, failed = len(table), int(table.failed.sum())
    if not failed:
        figure = drawing.blank(8, 4.5)
        return drawing.note(
            figure, f"{plural(count, 'evaluation')}, none failed" if count else "no evaluation yet"
        )
    told = told_as(set(table.reason[table.failed]))
    ranked = Counter(told[reason] for reason in table.reason[table.failed]).most_common()
    named = [reason for reason, _ in ranked[:REASONS]]
    left_out = len(ranked) - len(named)
    figure = drawing.blank(8, 4.2 + 0.22 * min(len(ranked), REASONS + 1))
    axes = drawing.panel(figure)
    place = {reason: i for i, reason in enumerate(named)}
    kind = np.array([place.get(told.get(reason, reason), len(named)) for reason in table.reason])
    columns = max(1, min(COLUMNS, count // LEAST))
    edges = np.linspace(0, count, columns + 1)
    column = np.minimum(np.searchsorted(edges, np.arange(count), side="right") - 1, columns - 1)
    sizes = np.bincount(column, minlength=columns)
    below = np.zeros(columns)
    looks = [*_LOOKS[: len(named)], _OTHER]
    words = [drawing.word(reason, drawing.REASON) for reason in named]
    words.append(f"other ({plural(left_out, 'reason')})")
    for i, (label, (colour, hatch)) in enumerate(zip(words, looks, strict=True)):
        these = table.failed & (kind == i)
        if these.any():
            share = 100 * np.bincount(column[these], minlength=columns) / sizes
            axes.bar(
                edges[:-1],
                share,
                np.diff(edges),
                below,
                align="edge",
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.3,
                label=f"{int(these.sum()):,} × {label}",
            )
            below += share
    axes.set_xlim(0, count)
    axes.set_ylim(0, 100 if below.max() > 50 else 1.25 * below.max())
    axes.set_xlabel("evaluations")
    axes.set_ylabel("failed, %")
    drawing.title(
        axes,
        f"{failed:,} of {plural(count, 'evaluation')} failed ({100 * failed / count:.3g} %), "
        f"for {plural(len(ranked), 'reason')}",
    )
    drawing.legend(figure, axes, columns=1)
    return figure
