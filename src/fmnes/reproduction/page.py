"""The report as one self-contained HTML page: no script, nothing from the network, light or dark."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from fmnes.reproduction.report import FIGURE_TEXT, Section

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
