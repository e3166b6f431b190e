"""HTML building blocks of the page. All untrusted text goes through `text`, which escapes it."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from fmnes._text import literal

GENERATOR = "fmnes report"
#: No scripts and no network: markup that slipped through would be harmless.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

#: Wide content scrolls in its own box. The dark scheme inverts plots and rotates the hues back, to keep
#: the colours.
STYLE = """
:root { color-scheme: light dark;
  --text: #222; --faint: #595959; --paper: #fff; --line: #ccc; --code: #f3f3f3;
  --good: #00664b; --bad: #9c3d00; --going: #005a8d; --mark: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --faint: #a8a8a8; --paper: #161616; --line: #444; --code: #262626;
    --good: #4fd1a5; --bad: #ff9d57; --going: #6cc3f5; --mark: #6cc3f5; }
  figure svg { filter: invert(91.4%) hue-rotate(180deg); }
}
html { background: var(--paper); color: var(--text); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 1.5rem auto; padding: 0 1rem;
  overflow-wrap: break-word; }
h1, h2 { line-height: 1.2; }
h2 { margin: 2.2rem 0 .6rem; font-size: 1.3rem; }
small, .faint { color: var(--faint); }
.state { font-weight: bold; } .good { color: var(--good); } .bad { color: var(--bad); }
.going { color: var(--going); }
dl.facts { display: flex; flex-wrap: wrap; gap: .8rem 2.2rem; margin: 1rem 0; }
dl.facts dt { color: var(--faint); font-size: .85rem; }
dl.facts dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; font-weight: normal; font-variant-numeric: tabular-nums; }
thead th { color: var(--faint); font-size: .85rem; }
td.number { text-align: right; white-space: nowrap; }
pre, code { background: var(--code); font: .85rem/1.45 ui-monospace, monospace; border-radius: 3px; }
code { padding: 0 .25rem; }
pre { padding: .5rem .7rem; margin: .3rem 0 .8rem; white-space: pre-wrap; max-height: 24rem;
  overflow-y: auto; }
details { border-bottom: 1px solid var(--line); padding: .35rem 0; }
summary { cursor: pointer; }
.range { display: inline-block; position: relative; width: 7rem; height: .5rem; background: var(--line);
  border-radius: .25rem; }
.range i { position: absolute; top: -.15rem; width: .3rem; height: .8rem; margin-left: -.15rem;
  background: var(--mark); }
figure { margin: 1rem 0; }
figure svg { width: 100%; max-width: 46rem; height: auto; display: block; background: #fff; }
figure.several svg { min-width: 34rem; max-width: none; }
td code { overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  h1 { overflow-wrap: anywhere; }
  dl.facts { gap: .6rem 1.4rem; } dl.facts dd { font-size: 1.15rem; }
  th, td { padding-right: .45rem; font-size: .9rem; }
  td:first-child { overflow-wrap: anywhere; }
  .range { width: 3.2rem; }
}
.live { display: flex; gap: 1rem; align-items: baseline; justify-content: flex-end; margin: 0; }
button { font: inherit; padding: .3rem 1rem; cursor: pointer; }
"""


def text(words: object, lines: bool = False) -> str:
    """Escape untrusted text; in one line unless `lines`."""
    return html.escape(literal(str(words), lines))


def code(words: object) -> str:
    return f"<code>{text(words)}</code>"


def section(title: str, *parts: str) -> str:
    return f"<h2>{text(title)}</h2>\n" + "\n".join(part for part in parts if part)


def facts(pairs: Mapping[str, str]) -> str:
    """A list of key figures; the values are already markup."""
    rows = "".join(f"<div><dt>{text(name)}</dt><dd>{value}</dd></div>" for name, value in pairs.items())
    return f"<dl class='facts'>{rows}</dl>"


def table(name: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are already markup, and numbers are aligned right."""
    titles = "".join(f"<th scope='col'>{text(title)}</th>" for title in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    top = f"<thead><tr>{titles}</tr></thead>\n" if any(head) else ""
    return wide(name, f"<table>\n{top}<tbody>\n{body}</tbody>\n</table>")


def _cell(markup: str) -> str:
    try:
        float(markup)
    except ValueError:
        return f"<td>{markup}</td>"
    return f"<td class='number'>{markup}</td>"


def wide(name: str, content: str) -> str:
    """A box that scrolls horizontally, also with the keyboard."""
    return f"<div class='wide' role='region' tabindex='0' aria-label='{text(name)}'>{content}</div>"


def figure(name: str, svg: str, words: str, several: bool = False) -> str:
    """A plot with its caption; several: it has several panels, and is wide."""
    kind = " class='several'" if several else ""
    return f"<figure{kind}>{wide(name, svg)}<figcaption class='faint'>{text(words)}</figcaption></figure>"


def folded(title: str, key: object, content: str, opened: bool) -> str:
    """A collapsible part; the live page identifies it by `key`."""
    start = f"<details data-key='{text(key)}'{' open' if opened else ''}>"
    return f"{start}<summary>{title}</summary>\n{content}\n</details>"


def document(title: str, parts: Mapping[str, str], *, policy: str = POLICY, live: str = "") -> str:
    """The whole page; `live`: the script of the live page, which the policy allows."""
    body = "\n".join(f"<section id='{name}'>\n{markup}\n</section>" for name, markup in parts.items())
    return f"""<!doctype html>
<html lang='en'>
<head>
<meta charset='utf-8'>
<meta name='generator' content='{GENERATOR}'>
<meta http-equiv='Content-Security-Policy' content="{policy}">
<meta name='viewport' content='width=device-width, initial-scale=1'>
<title>{text(title)}</title>
<link rel='icon' href='data:,'>
<style>{STYLE}</style>
</head>
<body>
{live}{body}
</body>
</html>
"""
