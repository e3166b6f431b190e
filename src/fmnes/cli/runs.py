"""`fmnes init`, `minimize`, `resume` and `show`: runs of external programs, kept in run directories."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fmnes
from fmnes.cli import output, templates
from fmnes.cli.problem_file import ProblemFile, make_problem, parse_parameter, read_problem
from fmnes.errors import ArgumentError
from fmnes.evaluation.programs.command import Command
from fmnes.report.live import LiveDisplay
from fmnes.result import Result
from fmnes.run.settings import command_from
from fmnes.storage.directory import RunDirectory

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
MaxEvaluations = Annotated[int | None, typer.Option(help="Evaluations in all.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Seconds in all.")]
Workers = Annotated[int | None, typer.Option(help="Programs at a time.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds before a program is killed.")]
Retries = Annotated[int | None, typer.Option(help="Further tries of a lost evaluation.")]
Target = Annotated[float | None, typer.Option(help="Stop at a value as low as this.")]


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")] = Path(),
) -> None:
    """Write a commented problem file and a small failing simulator beside it, ready to run."""
    problem, simulator = folder / "problem.toml", folder / "simulate.py"
    for path in (problem, simulator):
        if path.exists():
            raise ArgumentError(f"{path}: found it there already, wanted to write it; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    problem.write_text(
        templates.PROBLEM.replace("PYTHON", json.dumps(sys.executable)[1:-1]), encoding="utf-8"
    )
    simulator.write_text(templates.SIMULATOR, encoding="utf-8")
    typer.echo(f"wrote {problem} and {simulator}; now run:  fmnes minimize {problem}")


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
        typer.Option(help="name=start,step[,lower,upper][,log]; once for each parameter, without a file."),
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
    method: Annotated[str | None, typer.Option(help="fm-nes, dx-nes-ic, xnes or cma-es.")] = None,
    population_size: Annotated[int | None, typer.Option(help="Points per generation.")] = None,
    restarts: Annotated[int | None, typer.Option(help="Further runs with twice the population.")] = None,
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
        "restarts": restarts,
        "seed": seed,
    }
    options = {**problem.run, **{name: value for name, value in flags.items() if value is not None}}
    if "seed" in options:
        options["rng"] = options.pop("seed")
    kept = run_dir or Path(options.pop("run_dir", folder))
    options.pop("run_dir", None)

    def run(**more: Any) -> Result:
        return fmnes.minimize(problem.command, **problem.start, **options, run_dir=kept, **more)

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
    with RunDirectory.open(run, read_only=True) as directory:
        summary, ended, user = directory.log.summary(), directory.result, directory.in_use_by
        objective = directory.config["objective"]
    state = f"running ({user})" if user else ended["stop_reason"] if ended else "stopped; resume it"
    best = summary.best
    x = best.x if best else None
    values = (
        None
        if x is None
        else (command_from(objective).values(x.tolist()) if objective["kind"] == "command" else x.tolist())
    )
    names = objective.get("names") or [f"x{i}" for i in range(0 if values is None else len(values))]
    failed = summary.reasons["infeasible"]
    if as_json:
        report = {
            "state": state,
            "message": ended["message"] if ended else None,
            "evaluations": summary.evaluations,
            "statuses": summary.statuses,
            "failures": failed,
            "lost": summary.reasons["lost"],
            "fun": best.outcome.value if best else None,
            "parameters": output.named(names, values),
        }
        typer.echo(json.dumps(report))
        return
    console = Console()
    console.print(
        f"[bold]{state}[/]" + (f": {ended['message']}" if ended and not user else ""), highlight=False
    )
    output.show_point(console, names, values, best.outcome.value if best else float("nan"))
    output.show_failures(
        console, summary.evaluations, summary.statuses.get("infeasible", 0), list(failed.items())
    )
    for reason, count in summary.reasons["lost"].items():
        console.print(f"  {count:6d} × lost: {reason}", highlight=False, markup=False)


def _problem(words: list[str], params: list[str]) -> tuple[ProblemFile, Path]:
    """The problem, and where its run is kept unless the user says."""
    if len(words) == 1 and words[0].endswith(".toml"):
        if params:
            raise ArgumentError("param: found together with a problem file, wanted one of them")
        path = Path(words[0])
        return read_problem(path), path.with_suffix(".run")
    parameters = [parse_parameter(text) for text in params]
    return make_problem(words, parameters, {}), Path(Path(words[0]).stem + ".run")


def _run(run: Any, command: Command, kept: Path, max_evaluations: int | None, as_json: bool) -> None:
    """Run with a live display, then show the result; the exit code says how it ended."""
    with LiveDisplay(Console(stderr=True), max_evaluations) as display:
        result = run(callback=display.update)
    values = None if result.x is None else command.values(result.x.tolist())
    names = command.names or [f"x{i}" for i in range(len(result.x_mean))]
    if as_json:
        typer.echo(json.dumps(output.as_json(result, names, values)))
    else:
        console = Console()
        output.show_point(console, names, values, result.fun)
        output.show_ending(console, result)
        typer.echo(f"kept in {kept}; to go on:  fmnes resume {kept} --max-evaluations N")
    raise typer.Exit(output.exit_code(result))


def _command(run: Path) -> Command:
    with RunDirectory.open(run, read_only=True) as directory:
        objective = directory.config["objective"]
    if objective["kind"] != "command":
        raise ArgumentError(
            f"{run}: found a run of the Python function {objective['name']!r}, wanted one of a program; "
            "go on with it from Python: fmnes.resume(run_dir, fun)"
        )
    return command_from(objective)
