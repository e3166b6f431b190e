"""The plots of a run for its page, each with what it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fmnes import plots
from fmnes.cli.page.markup import section, text, wide
from fmnes.run.reading import Run


class Picture(NamedTuple):
    title: str
    words: str
    draw: Callable[[Any], Any]


PICTURES = {
    "course": Picture(
        "The course", "Every evaluation and the best so far; what failed stands on top.", plots.convergence
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
    "steps": Picture("The steps", "How far it looks: they shrink as it converges.", plots.distribution),
}


def drawn(name: str, run: Run) -> str:
    """One part of the page."""
    picture = PICTURES[name]
    svg = plots.as_svg(picture.draw(run))
    caption = f"<figcaption class='faint'>{text(picture.words)}</figcaption>"
    return section(picture.title, f"<figure>{wide(picture.title, svg)}{caption}</figure>")
