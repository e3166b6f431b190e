"""The command line. Needs the extra `cli` (typer and rich)."""

from __future__ import annotations

from typing import Annotated

import typer

import fmnes
from fmnes.cli import bench, demo, export, problems, report, runs, show, stop, watch, worker
from fmnes.cli.reproduction import reproduce

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Optimise functions whose evaluation may fail.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(fmnes.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, help="Show the version.")] = False,
) -> None:
    pass


app.command()(demo.demo)
app.command()(problems.init)
app.command()(problems.check)
app.command("try")(problems.try_)
app.command()(runs.minimize)
app.command()(runs.resume)
app.command()(stop.stop)
app.command()(worker.worker)
app.command()(show.show)
app.command()(export.export)
app.command()(report.report)
app.command()(watch.watch)
app.command()(reproduce)
app.add_typer(bench.app, name="bench")
