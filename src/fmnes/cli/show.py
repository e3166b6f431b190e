"""What a run has found: `fmnes show`, `export`, `report` and `watch`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from fmnes.storage.directory import CONFIG, LOCK
from fmnes.storage.lock import holder

if TYPE_CHECKING:
    from fmnes.html.live import Server

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
    messages.show_noise(console, found.result)
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
        "fun_error": None if found.result is None else found.result.fun_error,
        "noise": None if found.result is None or found.result.noise is None else found.result.noise.as_json(),
        "note": why_hidden(found) or None,
    }


# -- `fmnes export`


class Format(StrEnum):
    csv = "csv"
    json = "json"
    parquet = "parquet"


def table_format(text: str) -> Format:
    if text in list(Format):
        return Format(text)
    raise typer.BadParameter(f"found {text!r}, wanted one of {', '.join(Format)}")


def export(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    format: Annotated[
        Format | None,
        typer.Option(
            help="By default what the name of --output ends in, or csv.",
            show_default=False,
            parser=table_format,
            metavar=f"[{'|'.join(Format)}]",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="A file to write; by default the standard output.", show_default=False)
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


# -- `fmnes watch`: the live page of a run in a browser.

#: Seconds without a request after which the server of `--open` ends, once the run is over.
LEFT_SECONDS = 60


def watch(
    run: Annotated[Path, typer.Argument(help="The run directory; it may not be there yet.")],
    port: Annotated[
        int,
        typer.Option(
            help="The port, or the next one that is free.", parser=reading.port_number, metavar="INTEGER"
        ),
    ] = 8790,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    until_left: Annotated[
        float | None,
        typer.Option(hidden=True, help="End this many seconds after the run and the last request."),
    ] = None,
) -> None:
    """Show a run as a live page, with a button to stop it; Ctrl-C ends the page, not the run."""
    if os.path.lexists(run) and not _begins(run):
        reading.check_run(run)
    from fmnes.plots.drawing import need_matplotlib

    need_matplotlib()
    from fmnes.html.live import serve_at

    if hasattr(os, "nice"):
        os.nice(19)  # the run goes first
    try:
        server = serve_at(run, port)
    except OSError as error:
        raise FmnesError(f"port: found none from {port} that is free ({error}); wanted one: --port") from None
    console = Console()
    messages.say(console, f"{run} is shown at {server.address}")
    if not os.path.lexists(run / CONFIG):
        messages.say(console, f"found no run in {run} yet; waiting for it to begin{reading.similar_run(run)}")
    messages.say(console, "Ctrl-C ends the page, not the run")
    with server, contextlib.ExitStack() as around:
        if open_it and not webbrowser.open(around.enter_context(_hidden(server.address))):
            messages.say(Console(stderr=True), "found no browser to open it")
        if until_left is not None:
            threading.Thread(target=_end_when_left, args=(server, run, until_left), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)


def _begins(run: Path) -> bool:
    """Whether a run has made its directory, but not yet its files: both may be started together."""
    if not run.is_dir():
        return False
    return set(os.listdir(run)) <= {LOCK} or holder(run / LOCK) is not None


@contextlib.contextmanager
def _hidden(address: str) -> Iterator[str]:
    """The address of a private file that redirects to the page: other users can see a browser's arguments,
    so the token must not be among them."""
    with tempfile.TemporaryDirectory(prefix="fmnes-watch-") as folder:
        path = Path(folder) / "open.html"
        path.write_text(f"<!doctype html><meta http-equiv='refresh' content='0; url={address}'>")
        yield path.as_uri()


def _end_when_left(server: Server, run: Path, seconds: float) -> None:
    while holder(run / LOCK) is not None or time.monotonic() - server.asked < seconds:
        time.sleep(0.5)
    server.shutdown()


def open_watch(run: Path) -> subprocess.Popen[bytes]:
    """Open the live page from a separate process, which costs the run little and outlives it."""
    options = ["--open", "--until-left", str(LEFT_SECONDS)]
    return subprocess.Popen(
        [sys.executable, "-m", "fmnes", "watch", *options, "--", os.path.abspath(run)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
