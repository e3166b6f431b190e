"""The command line. Needs the extra `cli` (typer and rich)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

import fmnes
from fmnes.problems import predator_prey
from fmnes.report.live import LiveDisplay
from fmnes.result import Failure, Result

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
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
    method: Annotated[str, typer.Option(help="fm-nes, dx-nes-ic, xnes or cma-es.")] = "fm-nes",
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
    # Progress goes to stderr: what is asked for with --json stays alone on stdout.
    with LiveDisplay(Console(stderr=True), budget) as display:
        result = fmnes.minimize(
            predator_prey.misfit,
            predator_prey.START,
            predator_prey.SIGMA,
            method=method,
            population_size=16,
            target=1e-10,
            max_evaluations=budget,
            restarts=5,
            rng=seed,
            callback=display.update,
        )
    if as_json:
        typer.echo(json.dumps(result_as_json(result, predator_prey.NAMES)))
        return
    table = Table("parameter", "found", "true", title=None)
    found = result.x if result.x is not None else [float("nan")] * 4
    for name, value, true in zip(predator_prey.NAMES, found, predator_prey.TRUE_RATES, strict=True):
        table.add_row(name, f"{value:.6f}", f"{true:g}")
    console.print()
    console.print(table)
    show_ending(console, result)


@app.command()
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
    """Run the paper's experiments and set our numbers beside the published ones."""
    from fmnes.reproduction import reproduce as run
    from fmnes.reproduction.report import HEAD, table_rows

    console = Console()
    columns = ("{task.percentage:>3.0f}%", BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("trials")
        try:
            rows = run(
                what,
                trials=trials,
                workers=workers,
                out=out,
                method=method,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        except KeyboardInterrupt:
            bar.stop()
            typer.echo(f"interrupted; finished trials are kept in {out}: the same command goes on from there")
            raise typer.Exit(130) from None
    if rows:
        table = Table(*HEAD)
        for line in table_rows(rows):
            table.add_row(*line)
        console.print(table)
    typer.echo(f"report: {out / ('sweep.md' if what == 'sweep' else 'report.md')}, and the same as .html")


def show_ending(console: Console, result: Result) -> None:
    """Why it stopped, and what failed."""
    console.print(
        f"[bold]{result.stop_reason.name if result.stop_reason else 'running'}[/]: {result.message}"
    )
    console.print(f"{result.nfev} evaluations, {result.n_infeasible} of them failed")
    for failure in result.failures[:10]:
        console.print(f"  {failure.count:6d} × {failure.reason}", highlight=False)


def result_as_json(result: Result, names: Any = None) -> dict[str, Any]:
    """A result as JSON data; no NaN or infinity, which JSON does not have."""
    x = None if result.x is None else result.x.tolist()
    return {
        "x": x,
        "parameters": dict(zip(names, x, strict=True)) if names is not None and x is not None else None,
        "fun": result.fun if x is not None else None,
        "success": result.success,
        "stop_reason": result.stop_reason.name if result.stop_reason else None,
        "message": result.message,
        "nfev": result.nfev,
        "nit": result.nit,
        "n_infeasible": result.n_infeasible,
        "seed": result.seed,
        "failures": [_failure_as_json(failure) for failure in result.failures],
    }


def _failure_as_json(failure: Failure) -> dict[str, Any]:
    return {"reason": failure.reason, "count": failure.count, "first_x": failure.x[0].tolist()}
