"""`fmnes show`, `export` and `report`."""

from __future__ import annotations

import json
import math
import sys
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fmnes._files import atomic_write, open_regular
from fmnes._text import near
from fmnes.analysis.explanation import explain
from fmnes.cli import messages, reading
from fmnes.errors import ArgumentError, FmnesError, RunError
from fmnes.evaluations import write, write_stream
from fmnes.reading.next_steps import Step, as_line, next_steps, outcome_of, why_hidden
from fmnes.reading.run import Reason, Run, read_run

# -- `fmnes show`: the state of a run, and why evaluations failed.


#: Up to this many coordinates are explained, which takes less than a second. The report has no limit.
EXPLAINED = 200_000


def show(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    failures: Annotated[
        bool,
        typer.Option("--failures", help="Each reason with its first evaluation: where, output, directory."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Show a run, also while it is running: its state, the best point, and what failed."""
    reading.check_run(run)
    found = read_run(run)
    if as_json:
        typer.echo(json.dumps(_as_json(found)))
        return
    console = Console()
    messages.say(console, f": {found.message}" if found.message else "", bold=found.state)
    messages.show_point(console, _best(found), found.best.fun, why_hidden(found))
    messages.show_limits(console, found.constraints)
    messages.say(console, messages.counted(found.answered, found.failed))
    if found.made_again:
        messages.say(console, f"{found.made_again} more are made again: the program looked broken")
    failed, lost = _reasons(found)
    if failures:
        messages.show_in_full(console, failed)
        messages.show_in_full(console, lost, prefix="lost: ")
        console.print()
    else:
        messages.show_reasons(console, [(one.reason, one.count) for one in failed])
        messages.show_reasons(console, [(one.reason, one.count) for one in lost], prefix="lost: ")
        _explain(console, found)
    messages.show_steps(console, _steps(found, run, failures))


def _explain(console: Console, found: Run) -> None:
    """Print what failing points have in common and which parameters matter, where that is clear."""
    if found.summary.evaluations * len(found.names) > EXPLAINED:
        return
    try:
        sentences = explain(found).sentences
    except FmnesError:  # a damaged row; what is shown above does not need it
        return
    if sentences:
        console.print()
        for sentence in sentences:
            messages.say(console, sentence)
        console.print()


def _best(found: Run) -> reading.Point | None:
    return None if found.best.x is None else found.named(found.best.x)


def _reasons(found: Run) -> tuple[list[Reason], list[Reason]]:
    """The reasons of failed and of lost evaluations."""
    counted = [one for one in found.reasons if not one.made_again]
    return [one for one in counted if not one.lost], [one for one in counted if one.lost]


def _steps(found: Run, run: Path, failures: bool) -> list[Step]:
    """Next steps, except the command that was just run."""
    in_full = as_line("show", run, "--failures")
    steps = [] if found.running else next_steps(outcome_of(found, run))
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
        "failures": [messages.reason_as_json(one) for one in failed],
        "lost": [messages.reason_as_json(one) for one in lost],
        "fun": found.best.fun if math.isfinite(found.best.fun) else None,
        "parameters": _best(found),
        "constraints": None
        if found.constraints is None
        else {name: one.as_json() for name, one in found.constraints.items()},
        "note": why_hidden(found) or None,
    }


# -- `fmnes export`


class Format(StrEnum):
    csv = "csv"
    json = "json"
    parquet = "parquet"


def export(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    format: Annotated[
        Format | None,
        typer.Option(help="By default what the name of --output ends in, or csv.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="A file to write; by default the standard output.", show_default=False),
    ] = None,
) -> None:
    """Write every evaluation of a run, in its names and units, as CSV, JSON or Parquet."""
    if format is None:
        ending = "" if output is None else output.suffix.removeprefix(".").lower()
        format = Format(ending) if ending in [known.value for known in Format] else Format.csv
    if output is None and format is Format.parquet:
        raise ArgumentError("output: found none, wanted a file for Parquet: --output evaluations.parquet")
    reading.check_run(run)
    tables = read_run(run).tables()
    if output is not None:
        write(tables, format.value, output)
        return
    try:
        # Bytes: what a terminal's encoding lacks must not be spelt out in a file.
        with open(sys.stdout.fileno(), "wb", closefd=False) as file:
            write_stream(tables, format.value, file)
    except BrokenPipeError:  # the reader has closed the pipe
        pass
    except OSError as error:
        raise RunError(f"the output could not be written ({error})") from None


# -- `fmnes report`


#: Default file name, in the run directory.
REPORT = "report.html"


def report(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    output: Annotated[
        Path | None,
        typer.Option(
            help=f"The file to write; by default {REPORT} in the run directory.", show_default=False
        ),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write a run as one HTML page with its plots, also while it is running."""
    reading.check_run(run)
    from fmnes.plots.drawing import need_matplotlib

    need_matplotlib()
    from fmnes.html.document import report as page

    target = run / REPORT if output is None else output
    if output is None and not _is_ours(target):
        raise RunError(f"{target}: found a file that is not a report, wanted another place: --output")
    markup = page(run)
    try:
        with atomic_write(target) as file:
            file.write(markup.encode())
    except OSError as error:
        # Without the file names in the error: one is temporary.
        why = error.strerror or error
        raise RunError(f"{target}: could not be written ({why}); wanted another place: --output") from None
    messages.say(Console(), f"the report is {near(target)}")
    if open_it and not webbrowser.open(target.absolute().as_uri()):
        messages.say(Console(stderr=True), f"found no browser to open {target}")


def _is_ours(path: Path) -> bool:
    """Whether it is an earlier report, or does not exist."""
    from fmnes.html.markup import GENERATOR

    try:
        with open_regular(path) as file:
            return GENERATOR.encode() in file.read(1000)
    except FileNotFoundError:
        return True
    except OSError:
        return False
