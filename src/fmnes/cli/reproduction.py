"""`fmnes reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fmnes.cli.bar import show_bar


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="table-2, table-3, table-4, corrections, figure-1, sweep, or all (but the sweep)."
        ),
    ] = "all",
    trials: Annotated[int, typer.Option(help="Trials per cell; the paper has 50.")] = 50,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for results and report.")] = Path("reproduction"),
    method: Annotated[str | None, typer.Option(help="Only this method, such as FM-NES.")] = None,
) -> None:
    """Run the paper's experiments and set our numbers beside the published ones.

    All tables with 50 trials take about half an hour on 2 cores; table-2 with 3 trials half a minute.
    """
    from fmnes.reproduction import reproduce as run
    from fmnes.reproduction.report import HEAD, table_rows

    with show_bar("trials", out) as progress:
        rows = run(what, trials=trials, workers=workers, out=out, method=method, progress=progress)
    if rows:
        table = Table(*HEAD)
        for line in table_rows(rows):
            table.add_row(*line)
        Console().print(table)
    typer.echo(f"report: {out / ('sweep.md' if what == 'sweep' else 'report.md')}, and the same as .html")
