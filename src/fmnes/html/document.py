"""The report: one run as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fmnes import plots
from fmnes._text import number
from fmnes.analysis.explanation import Explanation, explanation_of, with_error
from fmnes.html import content, markup
from fmnes.html.markup import figure, section, table, text
from fmnes.plots.map import draw_map
from fmnes.reading.data import with_evaluations
from fmnes.reading.run import Run, read_run

# -- The plots of the page, each with its caption.


class Picture(NamedTuple):
    title: str
    words: str
    draw: Callable[[Any], Any]


PICTURES = {
    "course": Picture(
        "Convergence", "Every evaluation and the best so far; failures are at the top.", plots.convergence
    ),
    "where": Picture(
        "Where it fails",
        "Each evaluation against each parameter and each pair of them: crosses failed, the star is the best.",
        plots.slices,
    ),
    "when": Picture(
        "When it fails", "The share of failed evaluations over the run, by reason.", plots.failures
    ),
    "movement": Picture(
        "The parameters",
        "Where the search drew its points, mean and deviation, and the best.",
        plots.parameters,
    ),
    "steps": Picture(
        "Step sizes", "The step sizes: they shrink as the search converges.", plots.distribution
    ),
}


#: Inches of a plot with one panel: narrower than on its own, so that its text can be read on a phone.
NARROW = 6.2
#: The part with what the evaluations say of failures and parameters.
EXPLAINED = "explained"
#: The parts that need all evaluations.
DRAWN = (*PICTURES, EXPLAINED)
EXPLANATION = "What failures have in common, and which parameters matter"
EXPLAINED_MAP = (
    "The share of evaluated points nearby that failed, whatever their other parameters; grey: none is near. "
    "Dashed: the edge that a model expects, with the other parameters as at the best point."
)
OPTIMUM = "The best point and the optimum that a model expects"
#: Parameters in the table.
SHARES = 10


def drawn(name: str, run: Run) -> str:
    """One part of the page that needs all evaluations."""
    if name == EXPLAINED:
        return explained(run)
    picture = PICTURES[name]
    return section(picture.title, _figure(picture.title, picture.draw(run), picture.words))


def _figure(title: str, plot: Any, words: str) -> str:
    """A plot with its caption. Several panels keep their size, and scroll in a narrow window."""
    several = sum(axes.get_label() != "<colorbar>" for axes in plot.axes) > 1
    if not several:
        width, height = plot.get_size_inches()
        plot.set_size_inches(NARROW, height * NARROW / width)
    return figure(title, plots.as_svg(plot), words, several=several)


def explained(run: Run) -> str:
    """What the evaluations say of failures and parameters: sentences, shares and a map."""
    given, evaluations = with_evaluations(run)
    found = explanation_of(evaluations, given.logs, given.noisy)
    sentences = [f"<p>{text(sentence)}</p>" for sentence in found.sentences]
    if not sentences:
        sentences = [f"<p>The {found.evaluations:,} evaluations show no clear pattern.</p>"]
    plot = ""
    if found.failed and len(evaluations.points) > 1:
        plot = _figure(EXPLANATION, draw_map(given, evaluations, found), EXPLAINED_MAP)
    return section(EXPLANATION, *sentences, _optimum(found, given.best), _shares(found), plot)


def _optimum(found: Explanation, best: Mapping[str, float]) -> str:
    """The expected optimum beside the best point, if it is expected to be better."""
    there = found.predicted
    if there is None or not there.better:
        return ""
    rows = [
        (text(name), text(number(best.get(name, ""))), text(number(value)))
        for name, value in there.parameters.items()
    ]
    value = ("value", text(number(there.best)), text(with_error(there.value, there.error)))
    return table(OPTIMUM, ("parameter", "best point", "expected optimum"), [*rows, value])


def _shares(found: Explanation) -> str:
    names = list(dict.fromkeys([*found.value.shares, *found.failure.shares]))[:SHARES]
    if len(names) < 2:  # the sentence says it
        return ""
    rows = [
        (text(name), _percent(found.value.shares.get(name)), _percent(found.failure.shares.get(name)))
        for name in names
    ]
    return table(EXPLANATION, ("parameter", "share for the value", "share for failure"), rows)


def _percent(share: float | None) -> str:
    return "no clear difference" if share is None else f"{100 * share:.0f} %"


# -- One run as one file: no script, nothing from the network.


#: The parts of the page in their order.
ORDER = (
    "head",
    "next",
    "best",
    "course",
    "where",
    "failures",
    EXPLAINED,
    "when",
    "movement",
    "steps",
    "settings",
)


def report(path: Path, more: Mapping[str, str] | None = None) -> str:
    """The page of the run in this directory, as it is now. Raises RunError if there is none.

    more: further parts, {name: markup}, placed after the outcome of the run.
    """
    run = read_run(path)
    parts_of_run = content.parts(run, path)
    parts_of_run["settings"] += content.made_at()
    parts = list(in_order({**parts_of_run, **drawings(run)}).items())
    return markup.document(run.path.name, dict([*parts[:2], *(more or {}).items(), *parts[2:]]))


def drawings(run: Run) -> dict[str, str]:
    return {name: drawn(name, run) for name in DRAWN}


def in_order(parts: Mapping[str, str]) -> dict[str, str]:
    return {name: parts.get(name, "") for name in ORDER}
