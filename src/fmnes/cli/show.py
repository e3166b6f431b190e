"""`fmnes show`: a run as it stands, and why evaluations failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fmnes.cli import output, places, reading
from fmnes.cli.next_steps import Step, as_line, next_steps


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
    output.say(console, output.counted(found.evaluations, found.failed))
    if found.made_again:
        output.say(console, f"{found.made_again} more are made again: the program looked broken")
    if failures:
        output.show_in_full(console, found.failures)
        output.show_in_full(console, found.lost, prefix="lost: ")
        console.print()
    else:
        output.show_reasons(console, [(one.reason, one.count) for one in found.failures])
        output.show_reasons(console, [(one.reason, one.count) for one in found.lost], prefix="lost: ")
    output.show_steps(console, _steps(found, failures))


def _steps(found: reading.Shown, failures: bool) -> list[Step]:
    """What to do next, but for what was just done."""
    in_full = as_line("show", found.begun.run, "--failures")
    steps = [] if found.running else next_steps(found.ending())
    steps = [step for step in steps if step.command != in_full]
    return steps if failures or not (found.failures or found.lost) else [Step("why", in_full), *steps]


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
