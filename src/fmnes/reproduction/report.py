"""The report: its tables and words, as Markdown. `page.py` makes an HTML page of the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fmnes.reproduction.cells import MAX_EVALUATIONS, PAPER_TRIALS, TARGET, Cell
from fmnes.reproduction.tables import CHANCE, FEWEST, TOLERANCE, Row, Summary

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
    """How many stand behind the point where a value is written in thousands with so many digits."""
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
        parts += [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows), ""]
    if figure:
        parts += ["## Figure 1: the shape on Rosenbrock", "", FIGURE_TEXT, "", f"![Figure 1]({figure})", ""]
    return "\n".join(parts)


FIGURE_TEXT = (
    "Square roots of all eigenvalues of B Bᵀ (red) and the best value (blue) against evaluations, one "
    "trial each of FM-NES (λ = 16) and DX-NES-IC (λ = 20) on 40-dimensional Rosenbrock. The longest "
    "axis of FM-NES stands further above the second: the rank-one update stretches the distribution "
    "along the valley."
)


def _line(values: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"
