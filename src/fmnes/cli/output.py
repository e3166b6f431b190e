"""How results look on the command line, and the one place that prints users' words."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fmnes.report.terminal import literal
from fmnes.result import Result, StopReason

#: Exit codes: 0 the run ended as asked, 1 it could not, 2 wrong input, 130 interrupted.
_FAILED = {StopReason.NO_FEASIBLE, StopReason.LOST, StopReason.NUMERICAL, StopReason.STORAGE}
#: A longer table is cut to its first and last rows.
MAX_ROWS = 40
_ENDS = 10


def exit_code(result: Result) -> int:
    if result.stop_reason is StopReason.INTERRUPTED:
        return 130
    return 1 if result.stop_reason in _FAILED else 0


def say(console: Console, text: str, *, bold: str = "") -> None:
    """One line, `bold` first. Nothing in it is markup, the name of an emoji, or a command to the terminal."""
    console.print(Text.assemble((literal(bold), "bold"), literal(text)), soft_wrap=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The words of each row as they are; in a narrow terminal names take several lines, numbers do not."""
    made = Table()
    for i, title in enumerate(head):
        made.add_column(title, overflow="fold", no_wrap=i > 0)
    for row in rows:
        made.add_row(*(Text(literal(cell)) for cell in row))
    return made


def show_point(
    console: Console, names: Sequence[str], values: Sequence[float] | None, fun: float | None, note: str = ""
) -> None:
    """note: why there is no point, if it is not that nothing has succeeded."""
    if values is None:
        say(console, note or "no evaluation has succeeded yet")
    else:
        _show_values(console, [(name, f"{v:.8g}") for name, v in zip(names, values, strict=True)])
    if fun is not None and math.isfinite(fun):
        console.print(Text.assemble("value: ", (f"{fun:.10g}", "bold")))


def _show_values(console: Console, rows: list[tuple[str, str]]) -> None:
    many = len(rows) > MAX_ROWS
    shown = [*rows[:_ENDS], ("...", "..."), *rows[-_ENDS:]] if many else rows
    console.print(table(("parameter", "best"), shown))
    if many:
        say(console, f"{len(rows)} parameters, of which the first and last {_ENDS} are shown; --json has all")


def show_ending(console: Console, result: Result) -> None:
    """Why it stopped, and what failed."""
    reason = result.stop_reason.name if result.stop_reason else "running"
    say(console, f": {result.message}", bold=reason)
    failures = [(failure.reason, failure.count) for failure in result.failures]
    show_failures(console, result.nfev, result.n_infeasible, failures)


def show_failures(console: Console, evaluations: int, failed: int, reasons: list[tuple[str, int]]) -> None:
    say(console, f"{evaluations} evaluations, {failed} of them failed")
    show_reasons(console, reasons)


def show_reasons(console: Console, reasons: Sequence[tuple[str, int]], prefix: str = "") -> None:
    """The most frequent ones."""
    for reason, count in reasons[:10]:
        say(console, f"  {count:6d} × {prefix}{reason}")
    if len(reasons) > 10:
        say(console, f"  and {len(reasons) - 10} other reasons")


def as_argument(path: Path) -> str:
    """As one would type it."""
    return literal(shlex.quote(str(path)))


def named(names: Sequence[str], values: Sequence[float] | None) -> dict[str, float] | None:
    return None if values is None else dict(zip(names, values, strict=True))


def as_json(result: Result, names: Sequence[str], values: Sequence[float] | None) -> dict[str, Any]:
    return {**result.as_json(), "parameters": named(names, values)}
