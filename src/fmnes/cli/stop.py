"""`fmnes stop`: end a run from another terminal, or another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fmnes.cli import output, places, reading
from fmnes.cli.next_steps import Step, as_line, next_steps
from fmnes.result import StopReason
from fmnes.run.reading import read_run
from fmnes.storage.asking import Answer, ask_to_stop


def stop(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    wait: Annotated[float, typer.Option(help="Seconds to wait until it has stopped.", min=0.0)] = 10.0,
) -> None:
    """Ask a running run to stop, as Ctrl-C would; `fmnes resume` goes on with it.

    The exit status is 0 if it does not run any more, and 1 if it still does after the wait.
    """
    places.check_run(run)
    console = Console()
    answer = ask_to_stop(run, wait)
    if answer is Answer.ASKED:
        output.say(
            console, "the run is asked to stop" + (f", and still runs after {wait:g} s" if wait else "")
        )
        output.show_steps(console, [Step("to look at it", as_line("show", run))])
        raise typer.Exit(1 if wait else 0)
    found = read_run(run)
    reason = None if found.result is None else found.result.stop_reason
    if answer is Answer.NOT_RUNNING:
        began = "not running"
    else:  # it may have come to its end in the same moment
        began = "stopped" if reason in (StopReason.INTERRUPTED, None) else "ended by itself"
    output.say(console, f": {found.message}" if found.message else "", bold=began)
    output.show_steps(console, [] if found.running else next_steps(reading.ending_now(found, run)))
