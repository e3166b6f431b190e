"""The command line. Needs the extra `cli` (typer and rich)."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

import fmnes
from fmnes.cli import bench, export, output, problems, report, runs, show, stop, watch, worker
from fmnes.cli.methods import Method
from fmnes.cli.reproduction import reproduce
from fmnes.problems import predator_prey
from fmnes.report.live import LiveDisplay
from fmnes.strategies import DEFAULT_METHOD

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


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Another seed gives another run.")] = 1,
    method: Method = DEFAULT_METHOD,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
    ] = False,
) -> None:
    """Fit a simulation that fails for part of the space, and show what happened."""
    console = Console(quiet=as_json)
    console.print(
        "[bold]Demo:[/] fit four rates of a predator-prey simulation to observed populations.\n"
        "Where a species dies out or the integration blows up there is no value: the evaluation fails.\n"
    )
    budget = 20_000
    with LiveDisplay(budget) as display:
        result = fmnes.minimize(
            predator_prey.misfit,
            predator_prey.START,
            predator_prey.SIGMA,
            method=method or DEFAULT_METHOD,
            population_size=16,
            target=1e-10,
            max_evaluations=budget,
            restarts=5,
            rng=seed,
            callback=display.update,
        )
        display.end(result)
    if as_json:
        typer.echo(json.dumps(output.as_json(result, _rates)))
        raise typer.Exit(output.exit_code(result))
    found = result.x if result.x is not None else [float("nan")] * 4
    rates = zip(predator_prey.NAMES, found, predator_prey.TRUE_RATES, strict=True)
    rows = [(name, f"{value:.6f}", f"{true:g}") for name, value, true in rates]
    console.print()
    console.print(output.table(("parameter", "found", "true"), rows))
    output.show_ending(console, result)
    raise typer.Exit(output.exit_code(result))


def _rates(x: Any) -> dict[str, float]:
    return dict(zip(predator_prey.NAMES, x.tolist(), strict=True))


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
