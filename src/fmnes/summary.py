"""A result as a few lines of text, and as a small HTML table for notebooks.

Names, reasons and messages are untrusted text: they are shown as plain text in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from fmnes._text import short

if TYPE_CHECKING:
    from fmnes.constraints import ConstraintResult
    from fmnes.result import Columns, Result

#: First and last entries of a long point that are shown.
FIRST, LAST = 8, 3
#: Reasons of failed evaluations that are shown.
REASONS = 3
#: Constraints that are shown.
LIMITS = 10
#: Characters of a name, a reason and a message.
NAME, REASON, MESSAGE = 60, 120, 300
#: The course: pixels, and points of the line.
WIDTH, HEIGHT, POINTS = 320, 80, 120


def text(result: Result, fully: bool = False) -> str:
    """A few lines, each beginning with the field that has more.

    fully: x by name, and why evaluations failed.
    """
    rows = _rows(result, fully)
    width = max(map(len, rows)) + 2
    lines = [
        f"  {'' if i else name:{width}}{line}" for name, own in rows.items() for i, line in enumerate(own)
    ]
    return "\n".join(["fmnes.Result", *lines])


def html(result: Result) -> str:
    """A table and the course, in the colours of the page; no script, and nothing from elsewhere."""
    left = 'style="text-align:left;vertical-align:top"'
    rows = [
        f"<tr><th {left}>{name}</th><td {left}>{'<br>'.join(map(escape, lines))}</td></tr>"
        for name, lines in _rows(result, fully=True).items()
    ]
    table = f'<table style="color:inherit">{"".join(rows)}</table>'
    return f"<div>{table}{_course(result.history)}</div>"


def _rows(result: Result, fully: bool) -> dict[str, list[str]]:
    """{field: lines about it}"""
    rows = {
        "x": _by_name(result.x) if fully and isinstance(result.x, dict) else [_in_one_line(result.x)],
        "fun": [value_of(result)],
        "success": [str(result.success)],
        "stop_reason": [_ending(result)],
        "nfev": [_evaluations(result)],
    }
    if fully and result.constraints is not None:
        rows["constraints"] = limits_in_lines(result.constraints)
    if result.noise is not None:
        rows["noise"] = [noise_of(result)]
    if fully and result.failures:
        rows["failures"] = [f"{f.count} × {short(f.reason, REASON)}" for f in result.failures[:REASONS]]
        if (more := len(result.failures) - REASONS) > 0:
            rows["failures"].append(f"... {more} more reasons")
    return rows


def value_of(result: Result) -> str:
    """The value, with its standard error if it is an average."""
    error = "" if result.fun_error is None else f" ± {result.fun_error:.2g}"
    return _number(result.fun) + error


def noise_of(result: Result) -> str:
    """How much values at the same point differ."""
    assert result.noise is not None
    deviation, size = result.noise.standard_deviation, abs(result.fun)
    share = f" ({100 * deviation / size:.2g} %)" if 0 < size < np.inf and deviation < size else ""
    seen = "" if result.best_seen is None else f"; the luckiest value is {_number(result.best_seen.fun)}"
    return f"values at the same point differ by about {deviation:.2g}{share}{seen}"


def limits_in_lines(constraints: dict[str, ConstraintResult]) -> list[str]:
    """A line for each constraint: violated ones first, then active ones."""
    order = sorted(constraints.items(), key=lambda item: (item[1].satisfied, not item[1].active))
    lines = [f"{_name(name)} = {_number(found.value)}, {_state(found)}" for name, found in order]
    return lines if len(lines) <= LIMITS else [*lines[:LIMITS], f"... {len(lines) - LIMITS} more"]


def _state(found: ConstraintResult) -> str:
    """The limits, and whether they hold."""
    if not found.satisfied:
        return f"violated: wanted {found.limits}"
    if not found.active:
        return found.limits
    cost = f"{abs(found.multiplier):.4g}"
    if found.lower == found.upper:
        change = "raised" if found.multiplier > 0 else "lowered"
        return f"{found.limits}: fun would be about {cost} lower for each unit by which it is {change}"
    return f"{found.limits}: active; fun would be about {cost} lower for each unit by which it is relaxed"


def _in_one_line(x: Any) -> str:
    """A point as Python would write it."""
    if x is None:
        return "None: no feasible point"
    if isinstance(x, dict):
        return "{" + ", ".join(_entries(x, lambda name: f"{_name(name)!r}: {_number(x[name])}")) + "}"
    return "[" + ", ".join(_entries(x, lambda i: _number(x[i]))) + "]"


def _by_name(x: dict[str, Any]) -> list[str]:
    """A line for each."""
    return _entries(x, lambda name: f"{_name(name)} = {_number(x[name])}", " {} more")


def _entries(x: Any, show: Callable[[Any], str], left_out: str = "") -> list[str]:
    """Its first and its last coordinates, and a word for those between them."""
    keys: Any = list(x) if isinstance(x, dict) else range(len(x))
    if len(keys) <= FIRST + LAST + 1:
        return [show(key) for key in keys]
    between = "..." + left_out.format(len(keys) - FIRST - LAST)
    return [*map(show, keys[:FIRST]), between, *map(show, keys[-LAST:])]


def _name(name: str) -> str:
    return short(name, NAME)


def _number(value: Any) -> str:
    """A number, or a choice as Python writes it."""
    if value is None or isinstance(value, (str, bool)):
        return short(repr(value), NAME)
    return str(value) if isinstance(value, (int, np.integer)) else f"{value:.8g}"


def _ending(result: Result) -> str:
    message = short(result.message, MESSAGE)
    return f"{result.stop_reason.name if result.stop_reason else None}: {message}"


def _evaluations(result: Result) -> str:
    failed = f"{result.n_infeasible} of them failed" if result.n_infeasible else "none failed"
    repeated = f"; {result.n_repeated} known points were not run again" if result.n_repeated else ""
    return f"{result.nfev} evaluations, {failed}{repeated}"


def _course(history: Columns) -> str:
    """The best value so far against the evaluations, as a line; nothing where there are not two of them."""
    if not {"evaluations", "best"} <= history.keys():
        return ""
    found = np.isfinite(history["best"])
    evaluations, best = history["evaluations"][found], history["best"][found]
    if len(best) < 2:
        return ""
    last = evaluations[-1]
    # Evenly over the evaluations, and the last one always.
    rows = np.searchsorted(evaluations, np.linspace(evaluations[0], last, POINTS))
    rows = np.unique(np.minimum(rows, len(best) - 1))
    scale = _log_scale if best.min() > 0 and best.min() < best.max() / 100 else _scale
    x = WIDTH * evaluations[rows] / max(last, 1)
    y = 3 + (HEIGHT - 6) * (1 - scale(best)[rows])
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    words = f"best so far, from {best[0]:.4g} to {best[-1]:.4g} in {last} evaluations"
    words += ", on a log scale" if scale is _log_scale else ""
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{words}</title>"
        f'<path d="M0.5 0V{HEIGHT - 0.5}H{WIDTH}" fill="none" stroke="currentColor" stroke-opacity="0.3"/>'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
        f"<div><small>{words}</small></div>"
    )


def _scale(values: Any) -> Any:
    """From 0, the lowest, to 1. In halves, as the full range may overflow."""
    halves = values / 2
    width = halves.max() - halves.min()
    return (halves - halves.min()) / width if width > 0 else np.full(len(values), 0.5)


def _log_scale(values: Any) -> Any:
    return _scale(np.log(values))
