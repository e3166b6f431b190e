"""`fmnes init`, `minimize` and `resume`: runs of external programs, kept in run directories."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fmnes
from fmnes.arguments import check_number, check_path
from fmnes.cli import output, places, reading, templates
from fmnes.cli.changes import changes
from fmnes.cli.methods import Method, check_method
from fmnes.cli.next_steps import Step, as_argument, as_line, as_lines, next_steps, where_a_run_is
from fmnes.cli.problem_file import ProblemFile, make_problem, parse_parameter, read_problem
from fmnes.errors import ArgumentError, FmnesError, ObjectiveError, RunError
from fmnes.report.live import LiveDisplay
from fmnes.result import Result
from fmnes.run.settings import describe_objective
from fmnes.storage.aside import move_aside, next_free
from fmnes.storage.directory import LOCK, RunExists
from fmnes.storage.lock import holder

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
    try:
        for path in (problem, simulator):
            if os.path.lexists(path):
                raise ArgumentError(
                    f"{path}: found it there already, wanted to write it; choose another folder"
                )
        folder.mkdir(parents=True, exist_ok=True)
        python = json.dumps(sys.executable)[1:-1]
        problem.write_text(templates.PROBLEM.replace("PYTHON", python), encoding="utf-8")
        simulator.write_text(templates.SIMULATOR, encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"{folder}: the files cannot be written there ({error})") from None
    run = f"fmnes minimize {as_argument(problem)}"
    output.say(Console(), f"wrote {problem} and {simulator}; now run:  {run}")


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
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Move the run that is there aside, to NAME.run.1 or so, and begin anew."
        ),
    ] = False,
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    target: Target = None,
    workers: Workers = None,
    timeout: Timeout = None,
    retries: Retries = None,
    method: Method = None,
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
    if isinstance(options.get("method"), str):
        check_method(options["method"])
    in_file = check_path("run_dir", options.pop("run_dir", folder))
    kept = run_dir or Path(in_file)

    def begin(**more: Any) -> Result:
        return fmnes.minimize(problem.command, problem.space.parameters, **options, run_dir=kept, **more)

    def run(**more: Any) -> Result:
        try:
            return begin(**more)
        except RunExists:
            if not again:
                raise _taken(kept, words, problem) from None
        moved = kept.with_name(move_aside(kept).name)
        output.say(Console(stderr=True), f"the run that was there is now {moved}")
        return begin(**more)

    _run(run, kept, LiveDisplay(options.get("max_evaluations")), as_json)


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
    places.check_run(run)
    begun = reading.read_program(run)
    _say_changes(run, begun)
    flags = {"max_evaluations": max_evaluations, "max_seconds": max_seconds, "target": target}
    flags |= {"workers": workers, "timeout": timeout, "retries": retries}
    options: Any = {name: value for name, value in flags.items() if value is not None}
    budget = max_evaluations or begun.max_evaluations
    display = LiveDisplay(budget, made_before=reading.count_evaluations(run))
    _run(lambda **more: fmnes.resume(run, **options, **more), run, display, as_json)


def _problem(words: list[str], params: list[str]) -> tuple[ProblemFile, Path]:
    """The problem, and where its run is kept unless the user says."""
    if len(words) == 1 and words[0].endswith(".toml"):
        if params:
            raise ArgumentError("param: found together with a problem file, wanted one of them")
        path = Path(words[0])
        places.check_problem(path)
        return read_problem(path), path.with_suffix(".run")
    if len(words) == 1 and not params:
        raise places.no_problem(words[0])
    parameters = [parse_parameter(text) for text in params]
    return make_problem(words, parameters, {}), Path(Path(words[0]).stem + ".run")


def _run(run: Callable[..., Result], kept: Path, display: LiveDisplay, as_json: bool) -> None:
    """Run with a live display, then show the result; the exit code says how it ended."""
    with display:
        try:
            result = run(callback=display.update)
        except ObjectiveError as error:
            raise ObjectiveError(f"{error}\n{as_lines(_mend(kept))}") from None
        display.end(result)
    begun = reading.read_begun(kept)
    named = reading.names_of(result, begun)
    if as_json:
        typer.echo(json.dumps(output.as_json(result, named)))
    else:
        console = Console()
        output.show_point(console, None if result.x is None else named(result.x), result.fun)
        output.show_ending(console, result)
        output.say(console, f"kept in {kept}")
        output.show_steps(console, next_steps(reading.ending_of(result, kept, begun)))
    raise typer.Exit(output.exit_code(result))


def _mend(kept: Path) -> list[Step]:
    """What to do where the program looks broken."""
    problem = reading.read_begun(kept).problem
    steps = [Step("when the program is mended", as_line("resume", str(kept)))]
    if problem is None:
        return steps
    anew = as_line("minimize", "--again", str(problem))
    return [
        Step("one evaluation by itself", as_line("try", str(problem))),
        *steps,
        Step("when the problem file is", anew),
    ]


def _taken(kept: Path, words: list[str], problem: ProblemFile) -> RunError:
    """There is a run where one was to begin."""
    # As it was typed; a test has no command line of its own.
    typed = sys.argv[2:] if sys.argv[1:2] == ["minimize"] else words
    steps = where_a_run_is(typed, kept, next_free(kept), _beside(kept))
    user = holder(kept / LOCK)
    if user:
        steps = [Step("to look at it", as_line("show", str(kept))), steps[-1]]
    begun = reading.read_begun(kept)
    changed = _changes(begun, problem)
    found = f"a run in use by {user}" if user else "a run in this directory"
    differs = f" ({begun.problem} has changed: {'; '.join(changed)})" if changed and begun.problem else ""
    return RunError(f"{kept}: found {found}{differs}, wanted a new or empty one\n{as_lines(steps)}")


def _beside(kept: Path) -> Path:
    """A name that is free: problem-2.run."""
    numbers = (kept.with_stem(f"{kept.stem}-{n}") for n in itertools.count(2))
    return next(path for path in numbers if not os.path.lexists(path))


def _changes(begun: reading.Begun, problem: ProblemFile) -> list[str]:
    now = {"objective": describe_objective(problem.command), "parameters": problem.space.as_json()}
    return changes(begun.as_kept, now)


def _say_changes(run: Path, begun: reading.Begun) -> None:
    """A run goes on as it began; who has changed the problem file meanwhile may expect otherwise."""
    if begun.problem is None:
        return
    try:
        changed = _changes(begun, read_problem(begun.problem))
    except FmnesError:  # it is not needed to go on
        return
    if changed:
        anew = as_line("minimize", "--again", str(begun.problem))
        text = f"{begun.problem} has changed ({'; '.join(changed)}), and the run goes on as it began"
        output.say(Console(stderr=True), f"{text}; to begin anew:  {anew}")
