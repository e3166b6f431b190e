"""`fmnes show`: a run as it stands, and why evaluations failed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fmnes.cli import output, places, reading
from fmnes.cli.next_steps import Step, as_line, next_steps
from fmnes.run.reading import Reason, Run, read_run


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
    found = read_run(run)
    if as_json:
        typer.echo(json.dumps(_as_json(found)))
        return
    console = Console()
    output.say(console, f": {found.message}" if found.message else "", bold=found.state)
    output.show_point(console, _best(found), found.best.fun, reading.unshown(found))
    output.say(console, output.counted(found.answered, found.failed))
    if found.made_again:
        output.say(console, f"{found.made_again} more are made again: the program looked broken")
    failed, lost = _reasons(found)
    if failures:
        output.show_in_full(console, failed)
        output.show_in_full(console, lost, prefix="lost: ")
        console.print()
    else:
        output.show_reasons(console, [(one.reason, one.count) for one in failed])
        output.show_reasons(console, [(one.reason, one.count) for one in lost], prefix="lost: ")
    output.show_steps(console, _steps(found, run, failures))


def _best(found: Run) -> reading.Point | None:
    return None if found.best.x is None else found.named(found.best.x)


def _reasons(found: Run) -> tuple[list[Reason], list[Reason]]:
    """Of what failed, and of what was lost."""
    told = [one for one in found.reasons if not one.made_again]
    return [one for one in told if not one.lost], [one for one in told if one.lost]


def _steps(found: Run, run: Path, failures: bool) -> list[Step]:
    """What to do next, but for what was just done."""
    in_full = as_line("show", run, "--failures")
    steps = [] if found.running else next_steps(reading.ending_now(found, run))
    steps = [step for step in steps if step.command != in_full]
    return steps if failures or not any(_reasons(found)) else [Step("why", in_full), *steps]


def _as_json(found: Run) -> dict[str, Any]:
    failed, lost = _reasons(found)
    return {
        "state": found.state,
        "message": found.message,
        "success": found.result is not None and found.result.success,
        "evaluations": found.answered,
        "failed": found.failed,
        "statuses": found.summary.statuses,
        "failures": [output.reason_as_json(one) for one in failed],
        "lost": [output.reason_as_json(one) for one in lost],
        "fun": found.best.fun if math.isfinite(found.best.fun) else None,
        "parameters": _best(found),
        "note": reading.unshown(found) or None,
    }
