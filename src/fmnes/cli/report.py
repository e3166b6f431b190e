"""`fmnes report`: a run as one page to look at, to keep and to send."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fmnes.cli import output as shown
from fmnes.cli import places
from fmnes.cli.page.markup import GENERATOR
from fmnes.errors import RunError
from fmnes.plots.drawing import need_matplotlib
from fmnes.storage.atomic import atomic_write
from fmnes.storage.regular import open_regular

#: Where it is written unless the user says: in the run directory.
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
    places.check_run(run)
    need_matplotlib()
    from fmnes.cli.page.document import report as page

    target = run / REPORT if output is None else output
    if output is None and not _is_ours(target):
        raise RunError(f"{target}: found a file that is not ours, wanted another place: --output")
    markup = page(run)
    try:
        with atomic_write(target) as file:
            file.write(markup.encode())
    except OSError as error:
        # Without the names of the error, of which one is a temporary file's.
        why = error.strerror or error
        raise RunError(f"{target}: could not be written ({why}); wanted another place: --output") from None
    shown.say(Console(), f"the report is {shown.near(target)}")
    if open_it and not webbrowser.open(target.absolute().as_uri()):
        shown.say(Console(stderr=True), f"found no browser to open {target}")


def _is_ours(path: Path) -> bool:
    """A report from before, or nothing."""
    try:
        with open_regular(path) as file:
            return GENERATOR.encode() in file.read(1000)
    except FileNotFoundError:
        return True
    except OSError:
        return False
