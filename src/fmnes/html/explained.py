"""What the evaluations say of failures and parameters: sentences, shares and a map."""

from __future__ import annotations

from fmnes.analysis.explanation import Explanation, explanation_of
from fmnes.html.markup import figure, section, table, text
from fmnes.plots.drawing import as_svg
from fmnes.plots.map import draw_map
from fmnes.reading.data import with_evaluations
from fmnes.reading.run import Run

TITLE = "What failures have in common, and which parameters matter"
CAPTION = (
    "The share of evaluated points nearby that failed, whatever their other parameters; grey: none is nearby."
)
#: Parameters in the table.
SHOWN = 10


def part(run: Run) -> str:
    """The section of the page."""
    given, evaluations = with_evaluations(run)
    found = explanation_of(evaluations, given.logs)
    sentences = [f"<p>{text(sentence)}</p>" for sentence in found.sentences]
    if not sentences:
        sentences = [f"<p>The {found.evaluations:,} evaluations show no clear pattern.</p>"]
    plot = ""
    if found.failed and len(evaluations.points) > 1:
        plot = figure(TITLE, as_svg(draw_map(given, evaluations, found)), CAPTION)
    return section(TITLE, *sentences, _shares(found), plot)


def _shares(found: Explanation) -> str:
    names = list(dict.fromkeys([*found.value.shares, *found.failure.shares]))[:SHOWN]
    if len(names) < 2:  # the sentence says it
        return ""
    rows = [
        (text(name), _percent(found.value.shares.get(name)), _percent(found.failure.shares.get(name)))
        for name in names
    ]
    return table(TITLE, ("parameter", "share for the value", "share for failure"), rows)


def _percent(share: float | None) -> str:
    return "no clear difference" if share is None else f"{100 * share:.0f} %"
