"""`fmnes minimize`, `resume` and `show`: runs of external programs, kept in run directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fmnes
from fmnes.arguments import check_number, check_path
from fmnes.cli import output
from fmnes.cli.problem_file import ProblemFile, make_problem, parse_parameter, read_problem
from fmnes.cli.reading import command_of, objective_of, read_run
from fmnes.errors import ArgumentError, RunError
from fmnes.evaluation.programs.command import Command
from fmnes.report.live import LiveDisplay
from fmnes.result import Result
from fmnes.storage.directory import RunDirectory
from fmnes.strategies import METHODS

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
MaxEvaluations = Annotated[int | None, typer.Option(help="Evaluations in all.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Seconds in all.")]
Workers = Annotated[int | None, typer.Option(help="Programs at a time.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds before a program is killed.")]
Retries = Annotated[int | None, typer.Option(help="Further tries of a lost evaluation.")]
Target = Annotated[float | None, typer.Option(help="Stop at a value as low as this.")]


def minimize(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="PROBLEM.toml | -- PROGRAM ARGUMENTS...",
            help="A problem file, or after -- a program with {params}, {results} or {name} in its arguments.",
        ),
    ],
    param: Annotated[
        list[str] | None,
        typer.Option(
            help="name=lower..upper[,log|integer] or name=start,sigma[,lower,upper][,log|integer]; once for "
            "each parameter, without a file."
        ),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Keep the run here; by default beside the problem file, as NAME.run.")
    ] = None,
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    target: Target = None,
    workers: Workers = None,
    timeout: Timeout = None,
    retries: Retries = None,
    method: Annotated[str | None, typer.Option(help=f"One of {', '.join(METHODS)}.")] = None,
    population_size: Annotated[int | None, typer.Option(help="Points per generation.")] = None,
    restarts: Annotated[
        str | None,
        typer.Option(metavar="N|bipop", help="Further searches, each with twice the population; or bipop."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same run.")] = None,
    as_json: Json = False,
) -> None:
    """Minimise what an external program prints; every evaluation is kept, and `fmnes resume` goes on."""
    problem, folder = _problem(words, param or [])
    flags = {
        "max_evaluations": max_evaluations,
        "max_seconds": max_seconds,
        "target": target,
        "workers": workers,
        "timeout": timeout,
        "retries": retries,
        "method": method,
        "population_size": population_size,
        "restarts": int(restarts) if restarts and restarts.isdecimal() else restarts,
        "seed": seed,
    }
    options = {**problem.run, **{name: value for name, value in flags.items() if value is not None}}
    if "seed" in options:
        options["rng"] = check_number("seed", options.pop("seed"), above=-1, whole=True, optional=False)
    in_file = check_path("run_dir", options.pop("run_dir", folder))
    kept = run_dir or Path(in_file)

    def run(**more: Any) -> Result:
        return fmnes.minimize(problem.command, problem.space.parameters, **options, run_dir=kept, **more)

    _run(run, problem.command, kept, options.get("max_evaluations"), as_json)


def resume(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    target: Target = None,
    workers: Workers = None,
    timeout: Timeout = None,
    retries: Retries = None,
    as_json: Json = False,
) -> None:
    """Go on with a run: after a crash, Ctrl-C, or with a larger budget."""
    command = _command(run)
    flags = {"max_evaluations": max_evaluations, "max_seconds": max_seconds, "target": target}
    flags |= {"workers": workers, "timeout": timeout, "retries": retries}
    options: Any = {name: value for name, value in flags.items() if value is not None}
    _run(lambda **more: fmnes.resume(run, **options, **more), command, run, max_evaluations, as_json)


def show(run: Annotated[Path, typer.Argument(help="The run directory.")], as_json: Json = False) -> None:
    """Show a run, also while it is running: its state, the best point, and what failed."""
    found = read_run(run)
    if as_json:
        report = {
            "state": found.state,
            "message": found.message,
            "evaluations": found.summary.evaluations,
            "statuses": found.summary.statuses,
            "failures": found.summary.reasons["infeasible"],
            "lost": found.summary.reasons["lost"],
            "fun": found.fun,
            "parameters": output.named(found.names, found.values),
            "note": found.note,
        }
        typer.echo(json.dumps(report))
        return
    console = Console()
    output.say(console, f": {found.message}" if found.message else "", bold=found.state)
    output.show_point(console, found.names, found.values, found.fun, found.note or "")
    summary = found.summary
    failed = list(summary.reasons["infeasible"].items())
    output.show_failures(console, summary.evaluations, summary.statuses.get("infeasible", 0), failed)
    output.show_reasons(console, list(summary.reasons["lost"].items()), prefix="lost: ")


def _problem(words: list[str], params: list[str]) -> tuple[ProblemFile, Path]:
    """The problem, and where its run is kept unless the user says."""
    if len(words) == 1 and words[0].endswith(".toml"):
        if params:
            raise ArgumentError("param: found together with a problem file, wanted one of them")
        path = Path(words[0])
        return read_problem(path), path.with_suffix(".run")
    if len(words) == 1 and not params:
        raise ArgumentError(
            f"{words[0]}: found neither a problem file, whose name ends in .toml, nor --param for a program; "
            "wanted one of them"
        )
    parameters = [parse_parameter(text) for text in params]
    return make_problem(words, parameters, {}), Path(Path(words[0]).stem + ".run")


def _run(run: Any, command: Command, kept: Path, max_evaluations: int | None, as_json: bool) -> None:
    """Run with a live display, then show the result; the exit code says how it ended."""
    with LiveDisplay(max_evaluations) as display:
        result = run(callback=display.update)
    d = len(result.x_mean)
    if command.names is not None and len(command.names) != d:
        raise RunError(f"{kept}: found {len(command.names)} names, wanted {d} as its points have")
    names = list(result.parameters or command.names or [f"x{i}" for i in range(d)])
    values = None if result.x is None else result.vector.tolist()
    if as_json:
        typer.echo(json.dumps(output.as_json(result, names, values)))
    else:
        console = Console()
        output.show_point(console, names, values, result.fun)
        output.show_ending(console, result)
        go_on = f"fmnes resume {output.as_argument(kept)} --max-evaluations N"
        output.say(console, f"kept in {kept}; to go on:  {go_on}")
    raise typer.Exit(output.exit_code(result))


def _command(run: Path) -> Command:
    with RunDirectory.open(run, read_only=True) as directory:
        objective = objective_of(directory)
    if objective["kind"] == "command":
        return command_of(run, objective)
    raise ArgumentError(
        f"{run}: found a run of the Python function {objective['name']!r}, wanted one of a program; "
        "go on with it from Python: fmnes.resume(run_dir, fun)"
    )
