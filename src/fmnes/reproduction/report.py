"""The report: Markdown, and the same as one self-contained HTML page."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path

from fmnes.reproduction.cells import MAX_EVALUATIONS, TARGET, Cell
from fmnes.reproduction.tables import Row, Summary

TITLES = {
    "table-2": "Table II: unconstrained problems",
    "table-3": "Table III: implicitly constrained problems",
    "table-4": "Table IV: ablation on IC-Sphere",
    "corrections": "Four corrections: what the printed values give instead",
}
HEAD = ("method", "problem", "λ", "successes", "evaluations", "paper's successes", "paper", "ratio", "")
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
                f"{theirs.successes} of 50",
                thousands(theirs.mean or math.nan, theirs.sd or math.nan),
                "" if math.isnan(row.ratio) else f"{row.ratio:.3f}",
                row.mark,
            )
        )
    return lines


def thousands(mean: float, sd: float) -> str:
    if math.isnan(mean):
        return "–"
    spread = "" if math.isnan(sd) else f" ± {sd / 1000:.3g}"
    return f"{mean / 1000:.4g}k{spread}"


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


def introduction(command: str, trials: int) -> str:
    return (
        f"Evaluations until the first value below {TARGET:g}, d = 40, at most {MAX_EVALUATIONS:,} of them; "
        f"mean ± standard deviation over the successful ones of {trials} trials, in thousands. A mark `*`: "
        "the mean is more than 3 % off the paper's; `s`: another share of successes. "
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


def markdown(sections: Sequence[Section], intro: str, figure: str | None) -> str:
    parts = ["# The paper's tables, reproduced", "", intro, ""]
    for title, text, head, rows in sections:
        parts += [f"## {title}", ""]
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


def page(sections: Sequence[Section], intro: str, svg: Path | None) -> str:
    parts = [f"<h1>The paper's tables, reproduced</h1><p>{_text(intro)}</p>"]
    for title, text, head, rows in sections:
        header = "".join(f"<th>{html.escape(name)}</th>" for name in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>" for row in rows
        )
        note = f"<p>{_text(text)}</p>" if text else ""
        parts.append(f"<h2>{html.escape(title)}</h2>{note}<table><tr>{header}</tr>{body}</table>")
    if svg and svg.exists():
        drawing = svg.read_text(encoding="utf-8")
        drawing = drawing[drawing.index("<svg") :]
        parts.append(f"<h2>Figure 1: the shape on Rosenbrock</h2><p>{_text(FIGURE_TEXT)}</p>{drawing}")
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
        "table{border-collapse:collapse;margin:1rem 0}"
        "th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;"
        "text-align:right}th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}td{white-space:nowrap}"
        "svg{max-width:100%;height:auto}code{background:#f4f4f4;padding:0 .2rem}"
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
        f"content='width=device-width'><title>FM-NES reproduced</title><style>{style}</style></head><body>"
        + "".join(parts)
        + "</body></html>\n"
    )


def _text(text: str) -> str:
    """Escaped, with `code` in backticks kept as code."""
    pieces = html.escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))
