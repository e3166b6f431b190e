"""`fmnes show`: a run as it stands, and why evaluations failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fmnes.cli import output, places, reading
from fmnes.cli.next_steps import as_line, next_steps


def show(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    failures: Annotated[
        bool,
        typer.Option("--failures", help="Each reason with its first evaluation: where, output, directory."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Show a run, also while it is running: its state, the best point, and what failed."""
    places.check_run(run)
    found = reading.read_run(run)
    if as_json:
        typer.echo(json.dumps(_as_json(found)))
        return
    console = Console()
    output.say(console, f": {found.message}" if found.message else "", bold=found.state)
    output.show_point(console, found.best, found.fun, found.note or "")
    reasons = [] if failures else [(one.reason, one.count) for one in found.failures]
    output.show_failures(console, found.evaluations, found.failed, reasons)
    if found.made_again:
        output.say(
            console, f"  {found.made_again} more are made again when it goes on: the program looked broken"
        )
    if failures:
        output.show_in_full(console, found.failures)
        output.show_in_full(console, found.lost, prefix="lost: ")
        console.print()
    else:
        output.show_reasons(console, [(one.reason, one.count) for one in found.lost], prefix="lost: ")
        if found.failures or found.lost:
            output.say(console, f"why:  {as_line('show', str(run), '--failures')}")
    if not found.running:
        output.show_steps(console, next_steps(found.ending(run)))


def _as_json(found: reading.Shown) -> dict[str, Any]:
    return {
        "state": found.state,
        "message": found.message,
        "success": found.success,
        "evaluations": found.evaluations,
        "failed": found.failed,
        "statuses": found.statuses,
        "failures": [output.reason_as_json(one) for one in found.failures],
        "lost": [output.reason_as_json(one) for one in found.lost],
        "fun": found.fun,
        "parameters": found.best,
        "note": found.note,
    }
