"""The reproduction's report, as Markdown and HTML, and figure 1."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import MissingExtra
from fmnes.plots import drawing
from fmnes.search.optimizer import Optimizer
from fmnes.search.stopping import limit_reached
from fmnes_bench.reproduction.cells import (
    CHANCE,
    FEWEST,
    MAX_EVALUATIONS,
    METHODS,
    PAPER_TRIALS,
    TARGET,
    TOLERANCE,
    Cell,
    Row,
    Summary,
    problem_of,
    seed_for,
)
from fmnes_bench.trials import table

# -- The report as one self-contained HTML page: no script, nothing from the network, light or dark.


#: What is wider than the window scrolls in a box of its own, in which the first column stays.
STYLE = """
:root { color-scheme: light dark; --text: #222; --paper: #fff; --line: #ccc; --code: #f2f2f2; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e4e4; --paper: #161616; --line: #444; --code: #2a2a2a; }
}
html { background: var(--paper); color: var(--text); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: break-word; }
h1, h2 { line-height: 1.2; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
thead th { vertical-align: bottom; white-space: normal; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
th:first-child { position: sticky; left: 0; background: var(--paper); font-weight: normal; }
thead th:first-child { font-weight: bold; }
code { background: var(--code); padding: 0 .2rem; }
svg { width: 100%; min-width: 44rem; height: auto; background: #fff; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; }
  th, td { padding: .25rem .4rem; }
  th:first-child { white-space: normal; min-width: 5.5rem; max-width: 7rem; }
}
"""


def page(heading: str, sections: Sequence[Section], intro: str, svg: Path | None) -> str:
    parts = [f"<h1>{html.escape(heading, quote=False)}</h1>\n<p>{_text(intro)}</p>"]
    for title, text, head, rows in sections:
        header = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in head)
        body = "\n".join(map(_row, rows))
        note = f"<p>{_text(text)}</p>\n" if text else ""
        table = f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        parts.append(f"<h2>{html.escape(title)}</h2>\n{note}{_wide(title, table)}")
    if svg and svg.exists():
        drawing = svg.read_text(encoding="utf-8")
        drawing = drawing[drawing.index("<svg") :]
        title = "Figure 1: the shape on Rosenbrock"
        parts.append(f"<h2>{title}</h2>\n<p>{_text(FIGURE_TEXT)}</p>\n{_wide(title, drawing)}")
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>FM-NES reproduced</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _row(values: tuple[str, ...]) -> str:
    first, *others = (html.escape(value) for value in values)
    cells = "".join(f"<td>{value}</td>" for value in others)
    return f"<tr><th scope='row'>{first}</th>{cells}</tr>"


def _wide(name: str, content: str) -> str:
    """A box that scrolls sideways, by the keyboard too."""
    return f"<div class='wide' role='region' tabindex='0' aria-label='{html.escape(name)}'>{content}</div>"


def _text(text: str) -> str:
    """Escaped, with `code` in backticks kept as code, and no line that begins with the sign of a per cent."""
    pieces = html.escape(text).replace(" %", "&nbsp;%").split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


# -- Figure 1: eigenvalues of B Bᵀ and the best value on Rosenbrock, both methods. Needs matplotlib.


CELLS = (Cell("FM-NES", "rosenbrock", 16), Cell("DX-NES-IC", "rosenbrock", 20))
#: Generations from row to row.
EVERY = 10


class Trace(NamedTuple):
    evaluations: NDArray[np.float64]
    axes: NDArray[np.float64]
    """Square roots of the eigenvalues of B Bᵀ, longest first. (rows, d)"""
    best: NDArray[np.float64]


def trace(cell: Cell) -> Trace:
    """The first trial, looked at every few generations."""
    problem = problem_of(cell)
    opt = Optimizer(
        problem.x0,
        problem.sigma0,
        method=METHODS[cell.method],
        population_size=cell.population_size,
        rng=seed_for(cell, 0),
        target=TARGET,
        max_evaluations=MAX_EVALUATIONS,
    )
    rows = []
    while limit_reached(opt) is None:
        opt.tell(problem.fun(opt.ask()))
        if opt.generation % EVERY == 0:
            variances = np.linalg.eigvalsh(opt.covariance)[::-1]
            rows.append((opt.evaluations, np.sqrt(variances) / opt.sigma, opt.best.fun))
    evaluations, axes, best = zip(*rows, strict=True)
    return Trace(np.array(evaluations, dtype=float), np.array(axes), np.array(best))


def draw(folder: Path) -> list[Path]:
    """figure-1.png and figure-1.svg."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("the figure", "plot") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fmnes"  # the same drawing gives the same file
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for panel, cell in zip(panels, CELLS, strict=True):
        shown = trace(cell)
        panel.semilogy(shown.evaluations, shown.axes, color=drawing.RED, linewidth=0.5)
        panel.set_title(f"{cell.method} (λ = {cell.population_size})")
        panel.set_xlabel("evaluations")
        right = panel.twinx()
        right.semilogy(shown.evaluations, shown.best, color=drawing.BLUE, linewidth=1.5)
        right.set_ylim(1e-11, 1e3)
        if cell is CELLS[-1]:
            right.set_ylabel("best value", color=drawing.BLUE)
    panels[0].set_ylabel("square roots of the eigenvalues of B Bᵀ", color=drawing.RED)
    paths = [folder / "figure-1.png", folder / "figure-1.svg"]
    figure.savefig(paths[0], dpi=150, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    pyplot.close(figure)
    return paths


# -- The report as Markdown; `page` makes an HTML page of the same sections.


TITLES = {
    "table-2": "Table II: unconstrained problems",
    "table-3": "Table III: implicitly constrained problems",
    "table-4": "Table IV: ablation on IC-Sphere",
    "corrections": "Four corrections: what the printed values give instead",
}
HEAD = ("method", "problem", "λ", "successes", "evaluations", "paper's successes", "paper", "ratio", "mark")
Table = list[tuple[str, ...]]
Section = tuple[str, str, tuple[str, ...], Table]
"""Title, text, head and rows."""


def table_rows(rows: list[Row]) -> Table:
    lines: Table = []
    for row in rows:
        cell, ours, theirs = row.published.cell, row.ours, row.published
        lines.append(
            (
                cell.method,
                cell.problem,
                str(cell.population_size),
                f"{ours.successes} of {ours.trials}",
                thousands(ours.mean, ours.sd),
                f"{theirs.successes} of {PAPER_TRIALS}",
                as_printed(theirs.mean, theirs.sd),
                "" if math.isnan(row.ratio) else f"{row.ratio:.3f}",
                row.mark,
            )
        )
    return lines


def thousands(mean: float, sd: float) -> str:
    """Both in thousands: the spread with two digits, the mean down to the last of them."""
    if math.isnan(mean):
        return "–"
    if math.isnan(sd) or sd == 0:
        return f"{mean / 1000:.{_decimals(mean, 4)}f}k" + ("" if math.isnan(sd) else " ± 0k")
    decimals = _decimals(sd, 2)
    return f"{mean / 1000:.{decimals}f}k ± {sd / 1000:.{decimals}f}k"


def as_printed(mean: float | None, sd: float | None) -> str:
    """In thousands, with the three digits that the paper has."""
    if mean is None or sd is None:
        return "–"
    return f"{mean / 1000:.{_decimals(mean, 3)}f}k ± {sd / 1000:.{_decimals(sd, 3)}f}k"


def _decimals(value: float, digits: int) -> int:
    """The number of decimals of a value in thousands with this number of significant digits."""
    return max(0, digits - 1 - math.floor(math.log10(value / 1000)))


def sweep_rows(summaries: dict[Cell, Summary], chosen: dict[tuple[str, str], int]) -> Table:
    """For every method and problem the best population size found, beside the paper's choice."""
    lines: Table = []
    for (method, problem), paper in chosen.items():
        tried = {cell.population_size: s for cell, s in summaries.items() if cell[:2] == (method, problem)}
        if not tried:
            continue
        # As the paper ranks them: more successes first, then fewer evaluations.
        best = min(
            tried, key=lambda size: (-tried[size].successes / tried[size].trials, _or_inf(tried[size].mean))
        )
        at_paper = tried.get(paper)
        lines.append(
            (
                method,
                problem,
                str(best) if tried[best].successes else "–",
                f"{tried[best].successes} of {tried[best].trials}",
                thousands(tried[best].mean, tried[best].sd),
                str(paper),
                "" if at_paper is None else thousands(at_paper.mean, at_paper.sd),
            )
        )
    return lines


def _or_inf(value: float) -> float:
    return math.inf if math.isnan(value) else value


SWEEP_HEAD = ("method", "problem", "best λ", "successes", "evaluations", "paper's λ", "evaluations there")


def sizes(summaries: dict[Cell, Summary]) -> list[Section]:
    """A table of each method: every size on every problem."""
    sections = []
    for method in dict.fromkeys(cell.method for cell in summaries):
        own = {cell: summary for cell, summary in summaries.items() if cell.method == method}
        names = list(dict.fromkeys(cell.problem for cell in own))
        rows = [
            (str(size), *(_of_size(own.get(Cell(method, name, size))) for name in names))
            for size in sorted({cell.population_size for cell in own})
        ]
        sections.append((f"{method}, every size", SIZES, ("λ", *names), rows))
    return sections


SIZES = "In brackets the successes, where not all trials were."


def _of_size(summary: Summary | None) -> str:
    if summary is None:
        return ""
    some = "" if summary.successes == summary.trials else f" ({summary.successes})"
    return thousands(summary.mean, summary.sd) + some


MARKS = (
    f"A mark `*`: the mean differs from the paper's by more than {100 * TOLERANCE:g} % and by more than "
    f"chance (t-test at {100 * CHANCE:g} %: 3 standard errors of many trials, more of few); "
    f"`s`: the share of successes does (Fisher's exact test at {100 * CHANCE:g} %); "
    f"under {FEWEST} trials nothing is marked. "
)


def introduction(command: str, trials: int, marks: str = "") -> str:
    over = "one trial, where it succeeded" if trials == 1 else f"the successful ones of {trials} trials"
    what = "" if trials == 1 else "mean ± standard deviation over "
    return (
        f"Evaluations until the first value below {TARGET:g}, d = 40, at most {MAX_EVALUATIONS:,} of them; "
        f"{what}{over}, in thousands (k). {marks}"
        f"Made with `{command}`; trial k of a cell draws from "
        "`SeedSequence([crc32(method), crc32(problem), λ, k])`, so each can be repeated alone."
    )


CORRECTIONS = (
    "The paper leaves most constants to other papers, and four that it prints or implies are not those "
    "its tables were made with. All rows above use the corrected values. The rows below use the printed "
    "ones, beside the paper's table, which they miss: the path's rate c_σ lacks a division by √d; "
    "public code has λ instead of the number of feasible points in the distance weights' α; Cigar is "
    "printed with 100 where the tables need 1000; and CMA-ES was run with the parameters of the 2006 "
    "tutorial, not of the 2016 one that is cited."
)


TITLE = "The paper's tables, reproduced"


def sweep_title(cells: Sequence[Cell]) -> str:
    methods = {cell.method for cell in cells}
    return "The sweep over population sizes" + (f": {methods.pop()}" if len(methods) == 1 else "")


def markdown(title: str, sections: Sequence[Section], intro: str, figure: str | None) -> str:
    parts = [f"# {title}", "", intro, ""]
    for name, text, head, rows in sections:
        parts += [f"## {name}", ""]
        if text:
            parts += [text, ""]
        parts += [*table(head, rows), ""]
    if figure:
        parts += [
            "## Figure 1: the shape on Rosenbrock",
            "",
            FIGURE_TEXT,
            "",
            f"![Axis lengths and best value against evaluations, for FM-NES and DX-NES-IC]({figure})",
            "",
        ]
    return "\n".join(parts)


FIGURE_TEXT = (
    "Square roots of all eigenvalues of B Bᵀ (red) and the best value (blue) against evaluations, one "
    "trial each of FM-NES (λ = 16) and DX-NES-IC (λ = 20) on 40-dimensional Rosenbrock. The longest "
    "axis of FM-NES stands further above the second: the rank-one update stretches the distribution "
    "along the valley."
)
