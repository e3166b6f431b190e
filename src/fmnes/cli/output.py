"""How results look on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from fmnes.result import Result, StopReason

#: Exit codes: 0 the run ended as asked, 1 it could not, 2 wrong input, 130 interrupted.
_FAILED = {StopReason.NO_FEASIBLE, StopReason.LOST, StopReason.NUMERICAL, StopReason.STORAGE}


def exit_code(result: Result) -> int:
    if result.stop_reason is StopReason.INTERRUPTED:
        return 130
    return 1 if result.stop_reason in _FAILED else 0


def show_point(console: Console, names: Sequence[str], values: Sequence[float] | None, fun: float) -> None:
    if values is None:
        console.print("no evaluation has succeeded yet")
        return
    table = Table("parameter", "best")
    for name, value in zip(names, values, strict=True):
        table.add_row(name, f"{value:.8g}")
    console.print(table)
    console.print(f"value: [bold]{fun:.10g}[/]", highlight=False)


def show_ending(console: Console, result: Result) -> None:
    """Why it stopped, and what failed."""
    reason = result.stop_reason.name if result.stop_reason else "running"
    console.print(f"[bold]{reason}[/]: {result.message}", highlight=False)
    failures = [(failure.reason, failure.count) for failure in result.failures]
    show_failures(console, result.nfev, result.n_infeasible, failures)


def show_failures(console: Console, evaluations: int, failed: int, reasons: list[tuple[str, int]]) -> None:
    console.print(f"{evaluations} evaluations, {failed} of them failed", highlight=False)
    for reason, count in reasons[:10]:
        console.print(f"  {count:6d} × {reason}", highlight=False, markup=False)
    if len(reasons) > 10:
        console.print(f"  and {len(reasons) - 10} other reasons", highlight=False)


def named(names: Sequence[str], values: Sequence[float] | None) -> dict[str, float] | None:
    return None if values is None else dict(zip(names, values, strict=True))


def as_json(result: Result, names: Sequence[str], values: Sequence[float] | None) -> dict[str, Any]:
    return {**result.as_json(), "parameters": named(names, values)}
