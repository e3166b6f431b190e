"""`fmnes init`, `check` and `try`: a problem file from its first line to its first evaluation."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fmnes.arguments import shown
from fmnes.cli import output, places
from fmnes.cli.problem_file import PROGRAM, ProblemFile, in_file, read_problem
from fmnes.cli.trial import MAX_FILES, Trial, new_directory, read_values, try_point
from fmnes.errors import ArgumentError, FmnesError, RunError, nearest
from fmnes.evaluation.programs.command import Command
from fmnes.evaluation.programs.program import find_program
from fmnes.evaluation.programs.toml import read_text
from fmnes.parameters import Integer, Parameter, Real
from fmnes.run.settings import Settings
from fmnes.run.succession import check_origin
from fmnes.search.optimizer import Optimizer
from fmnes.space import Space

#: Each folder is a template of `init`.
_TEMPLATES = resources.files("fmnes.cli") / "templates"
TEMPLATES = sorted(found.name for found in _TEMPLATES.iterdir() if found.is_dir() and found.name[0] != "_")
#: Lines of each output that are shown; --json has more.
_LINES = 20
#: Options of the search itself; the others are of the run around it.
_SEARCH = ("method", "population_size", "bounds_as", "target", "max_evaluations", "xtol", "ftol", "rng")

Problem = Annotated[Path, typer.Argument(metavar="PROBLEM.toml", help="A problem file.")]
Json = Annotated[bool, typer.Option("--json", help="Print it as JSON and nothing else.")]


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")] = Path(),
    template: Annotated[
        str,
        typer.Option(
            help=f"What to begin with: one of {', '.join(TEMPLATES)}.",
            autocompletion=lambda incomplete: [name for name in TEMPLATES if name.startswith(incomplete)],
        ),
    ] = "program",
) -> None:
    """Write a small commented example that runs: a problem file with its program, or a Python script."""
    files = template_files(template)
    try:
        for name in files:
            if os.path.lexists(folder / name):
                raise ArgumentError(
                    f"{folder / name}: found it there already, wanted to write it; choose another folder"
                )
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with open(folder / name, "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ArgumentError(
            f"{folder}: the files cannot be written there ({error.strerror}); choose another folder"
        ) from None
    console = Console()
    output.say(console, f"wrote {', '.join(str(folder / name) for name in files)}")
    if "problem.toml" in files:
        problem = shlex.quote(str(folder / "problem.toml"))
        output.say(console, f"one evaluation:  fmnes try {problem}")
        output.say(console, f"the search:      fmnes minimize {problem}")
    else:
        script = next(name for name in files if name.endswith(".py"))
        output.say(console, f"now run:  {shlex.quote(_python())} {shlex.quote(str(folder / script))}")


def template_files(template: str) -> dict[str, str]:
    """The texts of a template's files by their names, ready to be written."""
    if template not in TEMPLATES:
        wanted = f"{', '.join(TEMPLATES)}{nearest(template, TEMPLATES)}"
        raise ArgumentError(f"--template: found {shown(template)}, wanted one of {wanted}")
    texts = {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted((_TEMPLATES / template).iterdir(), key=lambda file: file.name)
        if file.is_file()
    }
    python = json.dumps(sys.executable, ensure_ascii=False)[1:-1]
    return {n: t.replace("PYTHON", python) if n.endswith(".toml") else t for n, t in texts.items()}


def _python() -> str:
    """As one would type it, if that is the one that we are."""
    found = shutil.which("python")
    return "python" if found and os.path.samefile(found, sys.executable) else sys.executable


def check(file: Problem, as_json: Json = False) -> None:
    """Read a problem file, run nothing, and say what it means or what is wrong with it."""
    try:
        places.check_problem(file)
        problem = read_problem(file)
        start = check_run(problem, file)
    except FmnesError as error:
        if not as_json:
            raise
        typer.echo(json.dumps({"ok": False, "error": str(error)}))
        raise typer.Exit(2) from None
    command, said = problem.command, _program(problem.command)
    if as_json:
        run = {name: str(v) if isinstance(v, Path) else v for name, v in _run(problem).items()}
        found = {"ok": True, "program": find_program(command), "command": list(command.argv)}
        parameters = {entry.pop("name"): entry for entry in problem.space.as_json()}
        typer.echo(json.dumps({**found, "parameters": parameters, "start": start, **said, "run": run}))
        return
    console = Console()
    output.say(console, ": nothing is wrong with it", bold=str(file))
    output.say(console, f"program: {find_program(command)}")
    output.say(console, f"command: {shlex.join(command.argv)}")
    rows = [_row(name, p, start[name]) for name, p in problem.space.parameters.items()]
    _table(console, ("parameter", "range", "start", "sigma"), rows)
    for name, value in {**said, **_run(problem)}.items():
        output.say(console, f"{name}: {_plain(value)}")
    if not {"max_evaluations", "max_seconds"} & {*problem.run}:
        output.say(console, "no max_evaluations, no max_seconds: it ends when it has converged")


def try_(
    file: Problem,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="Parameters that are not those of the start."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate one point, the start or another, and show all of it: what ran, where, its files and output.

    The directory stays, in NAME.try beside the file. The exit status is 0 if there is a value.
    """
    places.check_problem(file)
    problem = read_problem(file)
    point = read_values(problem.space, values or [], check_run(problem, file))
    trial = try_point(problem, point, new_directory(problem, file))
    if as_json:
        typer.echo(json.dumps(trial.as_json()))
    else:
        _show(Console(), trial)
    raise typer.Exit(0 if trial.outcome.status == "value" else 1)


def check_run(problem: ProblemFile, path: Path) -> dict[str, Any]:
    """The point that `minimize` evaluates first. Raises ArgumentError for options it would refuse."""
    run = problem.run
    try:
        opt = Optimizer(problem.space.parameters, **{name: run[name] for name in _SEARCH if name in run})
        others = {name: value for name, value in run.items() if name in _OTHERS}
        settings = Settings(**{**_OTHERS, **others})
        check_origin(opt, settings.restart_from)
        if "warm_start" in run:
            places.check_run(Path(run["warm_start"]))
    except ArgumentError as error:
        raise ArgumentError(in_file(path, read_text(path), str(error))) from None
    except RunError as error:
        raise ArgumentError(in_file(path, read_text(path), f"warm_start: {error}")) from None
    start: dict[str, Any] = opt.start_point
    return start


#: Settings of a run that says nothing of them.
_OTHERS: dict[str, Any] = {
    "max_evaluations": None,
    "max_seconds": None,
    "workers": 1,
    "vectorized": False,
    "timeout": None,
    "retries": 2,
    "on_error": "infeasible",
    "restarts": 0,
    "target": None,
    "restart_from": "start",
    "second_look": True,
    "evaluate_start": True,
}


def _run(problem: ProblemFile) -> dict[str, Any]:
    """What [run] says, in the file's words."""
    return {"seed" if name == "rng" else name: value for name, value in problem.run.items()}


def _program(command: Command) -> dict[str, Any]:
    """What [program] says: the fields that are not as they would be anyway. Of `environment` the names."""
    said = {}
    for field in fields(command):
        value = getattr(command, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name in PROGRAM and value and value != default:
            said[field.name] = sorted(value) if field.name == "environment" else value
    return said


def _row(name: str, p: Parameter, start: Any) -> tuple[str, str, str, str]:
    """A parameter as `check` shows it."""
    ends = ["none" if end is None else f"{end:.6g}" for end in (p.lower, p.upper)]
    kind, step = "", Space({name: p}).start()["sigma0"][0]
    sigma = f"{step:.4g}"
    if isinstance(p, Integer):
        kind = ", whole numbers"
    elif isinstance(p, Real) and p.multiple_of is not None:
        kind = f", multiples of {p.multiple_of:g}"
    elif isinstance(p, Real) and p.log:
        kind, sigma = ", log", f"× {math.exp(step):.4g}"
    return name, f"{ends[0]} to {ends[1]}{kind}", f"{start:.6g}", sigma


def _table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A long one without its middle."""
    if len(rows) > output.MAX_ROWS:
        rows = [*rows[:10], ["..."] * len(head), *rows[-10:]]
    console.print(output.table(head, rows))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _show(console: Console, trial: Trial) -> None:
    outcome = trial.outcome
    output.say(console, f" {shlex.join(trial.argv)}", bold="ran")
    added = [f"{n}={v}" if v is not None else f"(without {n})" for n, v in trial.environment.items()]
    if added:
        output.say(console, f" {' '.join(shlex.quote(word) for word in added)}", bold="with")
    output.say(console, f" {trial.directory}", bold="in")
    _table(console, ("parameter", "value"), [(n, f"{v:.10g}") for n, v in trial.point.items()])
    files = [f"{name} ({size} bytes)" for name, size in trial.files.items()]
    more = ", ..." if len(files) >= MAX_FILES else ""
    output.say(console, f" {', '.join(files)}{more}", bold="files")
    for name, text in (("stdout", trial.stdout), ("stderr", trial.stderr)):
        lines = text.rstrip().expandtabs().splitlines()
        if lines:
            cut = f", its last {_LINES} lines" if len(lines) > _LINES else ""
            output.say(console, f"{cut}:", bold=name)
        for line in lines[-_LINES:]:
            output.say(console, f"  {line}")
    said = {"infeasible": "failed", "lost": "lost"}.get(outcome.status, "value")
    output.say(console, f" {outcome.value:.10g}" if said == "value" else f": {outcome.reason}", bold=said)
    for line in outcome.detail.expandtabs().splitlines():
        if line not in f"{trial.stdout}\n{trial.stderr}":  # what we have to say to it
            output.say(console, f"  {line}")
    for name, value in (outcome.outputs or {}).items():
        output.say(console, f" {_plain(value)}", bold=name)
    output.say(console, f" {outcome.seconds:.3g} s", bold="time")
