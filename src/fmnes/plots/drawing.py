"""Matplotlib, as all plots use it: the figure, the colours, words on it, scales, and the figure as SVG.

No pyplot: it would keep every figure in memory, and might open windows.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes._text import short
from fmnes.arguments import shown
from fmnes.errors import ArgumentError, MissingExtra
from fmnes.reading.data import evenly as evenly

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which the colour-blind can tell apart.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#f0e442",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
GREY = "#6f6f6f"
#: Of several lines in one plot: neighbours differ in colour and in pattern.
LINE_COLOURS = (BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK)
LINE_PATTERNS = ("-", "--", "-.", ":")
#: What failed; it has a marker of its own as well.
FAILED = RED
#: More marks than this are one picture inside of an SVG: 10^5 of them would be 10 MB.
MARKS = 3000
#: Points of a line; more cannot be seen.
POINTS = 1000
#: Beyond this, and closer to zero than its inverse, matplotlib's axes fail: such numbers are drawn there.
HUGE = 1e100
#: Invisible digits of a coordinate.
_HUNDREDTHS = re.compile(r"(\d\.\d\d)\d+")
#: Characters of a name and of a reason.
NAME, REASON = 30, 60


def _matplotlib() -> Any:
    try:
        import matplotlib
        import matplotlib.figure
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise MissingExtra("fmnes.plots", "plot") from None
    return matplotlib


def need_matplotlib() -> None:
    """Raises MissingExtra, with the line that installs it, where it is not."""
    _matplotlib()


def blank(width: float, height: float) -> Figure:
    """A white figure; inches."""
    figure: Figure = _matplotlib().figure.Figure(
        figsize=(width, height), layout="constrained", facecolor="white"
    )
    return figure


def panel(figure: Figure, *place: int) -> Any:
    """Axes with a light grid and without a box; place as in `add_subplot`."""
    axes = figure.add_subplot(*place) if place else figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def line_style(i: int) -> tuple[str, str]:
    """Colour and pattern of line number i of a plot."""
    return LINE_COLOURS[i % len(LINE_COLOURS)], LINE_PATTERNS[i % len(LINE_PATTERNS)]


def word(text: str, most: int = NAME) -> str:
    """Untrusted text in one line, safe for matplotlib: $ starts mathematics, and a leading underscore hides
    a label."""
    text = short(text, most).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def number(value: float) -> str:
    return f"{value:.4g}"


def title(axes: Any, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=11, pad=14)


def legend(figure: Figure, axes: Any, columns: int = 4) -> None:
    """Below: over the points it would hide some."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def note(figure: Figure, text: str) -> Figure:
    """In place of a plot that has nothing to show."""
    figure.text(0.5, 0.5, text, ha="center", va="center", color=GREY)
    return figure


def drawable(values: Any) -> NDArray[np.float64]:
    """The numbers, as far as they fit on an axis."""
    clipped = np.clip(np.asarray(values, dtype=float), -HUGE, HUGE)
    tiny = (clipped != 0) & (np.abs(clipped) < 1 / HUGE)
    fitting: NDArray[np.float64] = np.where(tiny, np.copysign(1 / HUGE, clipped), clipped)
    return fitting


def log_scale(axes: Any, which: str) -> None:
    """With numbers as people write them, and some between the powers of ten where there are few of these.

    which: "x" or "y".
    """
    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")

    def power(value: float, _: Any) -> str:
        if 1e-3 <= value <= 1e4:
            return f"{value:g}"
        return f"$10^{{{round(np.log10(value))}}}$" if value > 0 else ""

    def between(value: float, _: Any) -> str:
        low, high = sorted(axis.get_view_interval())
        if not (0 < high < 50 * low and value > 0 and f"{value:e}"[0] in "25"):
            return ""
        return f"{value:.3g}"

    axis.set_major_formatter(power)
    axis.set_minor_formatter(between)


def scale_of_values(axes: Any, values: NDArray[np.float64]) -> str:
    """A log scale where values differ by orders of magnitude, as far as their signs allow. Returns a word for
    it, to be added to the label."""
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    low, high = float(values.min()), float(values.max())
    if low > 0:
        if high > 10 * low:
            log_scale(axes, "y")
            return ", log scale"
        return ""
    # No logarithm of these: linear as far as the lowest reach, or below the smallest that is not 0.
    near = (
        max(-low, abs(float(np.median(values)))) if low < 0 else float(values[values > 0].min(initial=high))
    )
    if high > 100 * near > 0:
        axes.set_yscale("symlog", linthresh=max(near, 1e-30 * high))
        return ", log scale but near 0"
    return ""


def broken(columns: Iterable[Any], parts: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """Columns with a gap where another part begins, so that no line leads from the one to the other."""
    gaps = np.flatnonzero(np.diff(parts)) + 1
    return [np.insert(np.asarray(column, dtype=float), gaps, np.nan) for column in columns]


def as_svg(figure: Figure) -> str:
    """Return a figure as an SVG element for a web page: the same figure gives the same text.

    Labels are text, not outlines. Parts of the plot have a class: "evaluations", "failed", "best".

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.

    Returns
    -------
    str
        The SVG element.

    Raises
    ------
    ArgumentError
        `figure` is not a Figure of matplotlib.
    MissingExtra
        matplotlib is not installed.

    Examples
    --------
    >>> import fmnes
    >>> result = fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, rng=1)
    >>> fmnes.plots.as_svg(fmnes.plots.convergence(result)).startswith("<svg")
    True
    """
    matplotlib = _matplotlib()
    if not isinstance(figure, matplotlib.figure.Figure):
        raise ArgumentError(f"figure: found {shown(figure)}, wanted a matplotlib Figure")
    file = io.StringIO()
    nothing: Any = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    same = {"svg.hashsalt": "fmnes", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    with matplotlib.rc_context(same), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the page's fonts draw it
        figure.savefig(file, format="svg", dpi=100, metadata=nothing)
    return _slim(file.getvalue())


def _slim(svg: str) -> str:
    """The SVG without parts that a page with several would repeat, at half the size.

    The patterns begin with <, which is escaped in users' text.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style type=\"text/css\">.*?</style>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*_\d+"', "<g", svg)  # matplotlib's own ids
    svg = re.sub(r'<g id="([^"]*)"', r'<g class="\1"', svg)
    svg = re.sub(r"<(?:path|use)\b[^>]*>", lambda mark: _HUNDREDTHS.sub(r"\1", mark[0]), svg)
    svg = re.sub(r"\n +", "\n", svg)
    # Each coloured mark comes in a group of its own, clipped as the one before.
    svg = re.sub(r'(?<=/>\n)</g>\n<g clip-path="[^"]*">\n(?=<use)', "", svg)
    return re.sub(r"<g([^>]*)>\n((?:<use[^>]*/>\n)+)</g>", _one_style, svg)


def _one_style(group: re.Match[str]) -> str:
    """Marks that all look alike: the group has their style."""
    attributes, marks = group[1], group[2]
    styles = set(re.findall(r' style="[^"]*"', marks))
    if len(styles) != 1 or "style" in attributes:
        return group[0]
    style = styles.pop()
    return f"<g{attributes}{style}>\n{marks.replace(style, '')}</g>"
