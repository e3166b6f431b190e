"""Plots of how a run went: values, distribution, failures, and several runs side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes._text import group_reasons
from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes.plots import drawing
from fmnes.reading.data import Floats, RunData, Source, Table, read, with_evaluations

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- How a run went: its values, and the distribution it drew from, over the evaluations.


def convergence(run: Source) -> Figure:
    """Plot every evaluation, the best value so far as a line, and failed evaluations as ticks on top.

    Of noisy values a running median is a second line, and the value of the answer has its standard error.
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
        values, violated = given.table.value, given.table.violated
        number = np.arange(1, count + 1)
        _draw_dots(axes, number, np.where(violated, np.nan, values), "an evaluation")
        _draw_dots(axes, number, np.where(violated, values, np.nan), "one beyond a limit", drawing.ORANGE)
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
            label="luckiest so far" if given.noisy else "best so far",
            gid="best",
            zorder=4,
        )
    if given.noisy:
        _draw_smoothed(axes, given, values, count)
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


#: The running median of noisy values is taken over this share of them, and at least so many.
SMOOTHED_SHARE, SMOOTHED_LEAST = 0.04, 9


def _draw_smoothed(axes: Any, given: RunData, values: Floats, count: int) -> None:
    """Draw a running median of noisy values, and the average at the answer with its standard error."""
    numbers = np.arange(1, count + 1) if given.table is not None else given.history["evaluations"]
    found = np.isfinite(values)
    at, smooth = running_median(np.asarray(numbers, dtype=float)[found], values[found])
    axes.plot(at, drawing.drawable(smooth), color=drawing.ORANGE, label="running median", gid="smoothed")
    if given.error is not None:
        axes.errorbar(
            [count],
            [given.fun],
            yerr=[given.error],
            fmt="D",
            color=drawing.ORANGE,
            label="average at the answer",
        )


def running_median(at: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return medians of overlapping windows of values, and where their centres are."""
    width = min(len(values), max(SMOOTHED_LEAST, int(SMOOTHED_SHARE * len(values))))
    if not width:
        return at[:0], values[:0]
    starts = np.unique(np.linspace(0, len(values) - width, 200).astype(int))
    medians = np.array([np.median(values[i : i + width]) for i in starts])
    return np.array([at[i : i + width].mean() for i in starts]), medians


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


def _draw_dots(
    axes: Any, x: NDArray[Any], values: NDArray[np.float64], label: str, colour: str = drawing.SKY
) -> None:
    there = np.isfinite(values)
    if there.any():
        axes.plot(
            x[there],
            drawing.drawable(values[there]),
            "o",
            color=colour,
            markersize=3,
            markeredgewidth=0,
            alpha=0.7,
            label=label,
            gid="evaluations",
            rasterized=int(there.sum()) > drawing.MARKS,
        )


def _ending(given: RunData) -> str:
    best = f"best {drawing.number(given.fun)}" if np.isfinite(given.fun) else "no success"
    return f"{best} after {plural(given.evaluations, 'evaluation')}"


def _failed(table: Table | None) -> str:
    return "" if table is None else f", {int(table.failed.sum()):,} failed"


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def improvements(value: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Which evaluations (from 1) were the best so far, and their values. value: (n,), NaN where it failed."""
    best = np.minimum.accumulate(np.where(np.isnan(value), np.inf, value))
    better = np.flatnonzero(best < np.concatenate(([np.inf], best[:-1])))
    return better + 1, best[better]


def course(given: RunData) -> tuple[Floats, Floats, int]:
    """Where the best value changed, the best from there on, and how many evaluations there were.

    Of a result without evaluations it is known at the end of each generation only.
    """
    if given.table is not None:
        which, best = improvements(np.where(given.table.violated, np.nan, given.table.value))
        return which.astype(np.float64), best, given.evaluations
    generation, best = improvements(given.history["best"])
    at = given.history["evaluations"][generation - 1].astype(np.float64)
    if given.fun < best.min(initial=np.inf):  # found in a generation that was not completed
        at, best = np.append(at, float(given.evaluations)), np.append(best, given.fun)
    return at, best, given.evaluations


# -- Several runs side by side.


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
        colour, line = drawing.line_style(i)
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


# -- How much failed, when, and why.


#: Reasons shown by name.
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
    told = group_reasons(set(table.reason[table.failed]))
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
