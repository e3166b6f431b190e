"""`fmnes init`, `check` and `try`: from a new problem file to its first evaluation."""

from __future__ import annotations

import itertools
import json
import math
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, replace
from importlib import resources
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from fmnes._text import number
from fmnes.arguments import shown
from fmnes.cli import messages, reading
from fmnes.cli.messages import plain_words
from fmnes.cli.problem_file import PROGRAM, ProblemFile, in_file, read_problem
from fmnes.constraints import limits_in_words
from fmnes.errors import ArgumentError, FmnesError, RunError, nearest
from fmnes.evaluation.evaluator import Task, evaluate_all
from fmnes.evaluation.programs.command import Command, read_text, variables
from fmnes.evaluation.programs.inputs import FILES, find_program, read_inputs
from fmnes.evaluation.programs.process import STDERR, STDOUT
from fmnes.evaluation.programs.runner import CommandEvaluator
from fmnes.evaluation.programs.workspace import Workspace
from fmnes.outcome import START, EvaluationId, Outcome, lost
from fmnes.parameters import Categorical, Integer, Parameter, Real, read_parameter, table_of
from fmnes.run.loop import check_origin
from fmnes.run.minimize import minimize
from fmnes.run.settings import Settings, evaluations_with_models
from fmnes.search.optimizer import Optimizer
from fmnes.space import Space

# -- `fmnes try`: one evaluation with its files and output.


#: Files that are listed, and bytes of each output that are shown.
MAX_FILES, MAX_OUTPUT = 200, 10_000


class Trial(NamedTuple):
    """One evaluation and its outcome."""

    point: dict[str, Any]
    argv: list[str]
    environment: dict[str, str | None]
    """Variables that differ from this process; None: removed."""
    directory: Path
    files: dict[str, int]
    """Bytes of each, by its path in the directory; at most MAX_FILES."""
    stdout: str
    stderr: str
    """The end of each."""
    outcome: Outcome

    def as_json(self) -> dict[str, Any]:
        outcome = self.outcome
        return {
            "status": outcome.status,
            "value": outcome.value if outcome.status == "value" else None,
            "outputs": outcome.outputs or {},
            "reason": outcome.reason,
            "detail": outcome.detail,
            "seconds": None if math.isnan(outcome.seconds) else outcome.seconds,
            "parameters": self.point,
            "argv": self.argv,
            "environment": self.environment,
            "directory": str(self.directory),
            "files": self.files,
            "stdout": self.stdout,
            "stderr": self.stderr,
        }


def read_values(space: Space, words: Sequence[str], start: Mapping[str, Any]) -> dict[str, Any]:
    """The start with the values `name=value` replaced; raise ArgumentError for values outside the space."""
    said: dict[str, Any] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.rpartition("="))
        if not equals or not name:
            raise ArgumentError(f"values: found {shown(word)}, wanted such as {space.names[0]}=1.5")
        if name not in space.parameters:
            raise ArgumentError(
                f"{name}: found no parameter of this name, wanted one of {', '.join(space.names)}"
                f"{nearest(name, space.names)}"
            )
        if name in said:
            raise ArgumentError(f"{name}: found two values, wanted one")
        said[name] = _read_value(name, space.parameters[name], text)
    return {**start, **said}


def _read_value(name: str, p: Parameter, text: str) -> Any:
    if isinstance(p, Categorical):
        written = [str(choice) for choice in p.choices]
        if text not in written:
            raise ArgumentError(f"{name}: found {shown(text)}, wanted one of {', '.join(written[:20])}")
        return p.choices[written.index(text)]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ArgumentError(f"{name}: found {shown(text)}, wanted a number")
    try:
        read_parameter(name, {**table_of(p), "start": value})  # what holds for a start holds for any point
    except ArgumentError as error:
        raise ArgumentError(plain_words(str(error)).replace("found start = ", "found ")) from None
    return int(value) if isinstance(p, Integer) else value


def new_directory(problem: ProblemFile, path: Path) -> Path:
    """A new directory in NAME.try next to the file, or in the directory that the file names."""
    given = problem.command.directory
    beside = path.with_suffix(".try")
    folder = beside if given is None else Path(given) / beside.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            with suppress(FileExistsError):
                (folder / str(number)).mkdir()
                return folder / str(number)
    except OSError as error:
        raise ArgumentError(f"{folder}: a directory cannot be made there ({error.strerror})") from None
    raise AssertionError


def try_point(problem: ProblemFile, point: dict[str, Any], directory: Path) -> Trial:
    """Evaluate one point in this directory, which is kept."""
    here = Path(os.path.abspath(directory))
    # The directory is kept anyway; "none" avoids a note about it.
    command = replace(problem.command, keep="none", timeout=problem.run.get("timeout"))
    evaluator = CommandEvaluator(command, named=lambda x: dict(point), workspace=_KeptWorkspace(here))
    try:
        task = Task(problem.space.numbers(point), EvaluationId(0, START, 0))
        outcome = next((outcome for _, outcome in evaluate_all(evaluator, [task])), lost("interrupted"))
    except ArgumentError:
        with suppress(OSError):  # nothing was run in it
            directory.rmdir()
        raise
    finally:
        evaluator.close()
    inputs = read_inputs(command)
    known = {**{name: str(here / file) for name, file in FILES.items()}, "here": inputs.here, **point}
    return Trial(
        point,
        [inputs.program, *(argument.fill(known) for argument in inputs.arguments)],
        _changed(variables(os.environ, command.environment)),
        directory,
        _files(here),
        _end_of(here / STDOUT),
        _end_of(here / STDERR),
        outcome,
    )


class _KeptWorkspace(Workspace):
    """One existing directory, which is kept."""

    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory), 1)
        self._directory = directory

    def new(self, key: Any) -> Path:
        return self._directory

    def remove(self, directory: Path) -> None:
        pass


def _changed(environment: Mapping[str, str]) -> dict[str, str | None]:
    """The differences between a program's environment and that of this process."""
    added = {name: value for name, value in environment.items() if os.environ.get(name) != value}
    return {**added, **dict.fromkeys(name for name in os.environ if name not in environment)}


def _files(directory: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if len(found) >= MAX_FILES:
                return found
            with suppress(OSError):  # gone by now
                found[str(path.relative_to(directory))] = path.lstat().st_size
    return found


def _end_of(path: Path) -> str:
    """The end of an output file; empty if the program replaced it by another kind of file."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                data = os.pread(descriptor, MAX_OUTPUT, max(0, status.st_size - MAX_OUTPUT))
                return data.decode(errors="replace")
        finally:
            os.close(descriptor)
    return ""


# -- The commands `init`, `check` and `try`.


#: Each folder is a template of `init`.
_TEMPLATES = resources.files("fmnes.cli") / "templates"
TEMPLATES = sorted(found.name for found in _TEMPLATES.iterdir() if found.is_dir() and found.name[0] != "_")
#: Lines of each output that are shown; --json has more.
_LINES = 20
#: Options of `Optimizer`; the others belong to the run.
_SEARCH = (
    "method",
    "population_size",
    "bounds_as",
    "target",
    "max_evaluations",
    "xtol",
    "ftol",
    "rng",
    "constraints",
    "noise",
)

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
    messages.say(console, f"wrote {', '.join(str(folder / name) for name in files)}")
    if "problem.toml" in files:
        problem = shlex.quote(str(folder / "problem.toml"))
        messages.say(console, f"one evaluation:  fmnes try {problem}")
        messages.say(console, f"the search:      fmnes minimize {problem}")
    else:
        script = next(name for name in files if name.endswith(".py"))
        messages.say(console, f"now run:  {shlex.quote(_python())} {shlex.quote(str(folder / script))}")


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
    """The command for this Python: `python`, or its path if that is another one."""
    found = shutil.which("python")
    return "python" if found and os.path.samefile(found, sys.executable) else sys.executable


def check(file: Problem, as_json: Json = False) -> None:
    """Read a problem file, run nothing, and say what it means or what is wrong with it."""
    try:
        reading.check_problem(file)
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
        limits = {name: asdict(c) for name, c in problem.run.get("constraints", {}).items()}
        found |= {"constraints": limits} if limits else {}
        typer.echo(json.dumps({**found, "parameters": parameters, "start": start, **said, "run": run}))
        return
    console = Console()
    messages.say(console, ": nothing is wrong with it", bold=str(file))
    messages.say(console, f"program: {find_program(command)}")
    messages.say(console, f"command: {shlex.join(command.argv)}")
    rows = [_row(name, p, start[name]) for name, p in problem.space.parameters.items()]
    _table(console, ("parameter", "range", "start", "sigma"), rows)
    for name, c in problem.run.get("constraints", {}).items():
        messages.say(console, f"limit: {name} {limits_in_words(c.lower, c.upper)}")
    for name, value in {**said, **_run(problem)}.items():
        messages.say(console, f"{name}: {_plain(value)}")
    if not {"max_evaluations", "max_seconds"} & {*problem.run}:
        messages.say(console, "no max_evaluations, no max_seconds: it ends when it has converged")


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
    reading.check_problem(file)
    problem = read_problem(file)
    point = read_values(problem.space, values or [], check_run(problem, file))
    trial = try_point(problem, point, new_directory(problem, file))
    if as_json:
        typer.echo(json.dumps(trial.as_json()))
    else:
        _show(Console(), trial)
    raise typer.Exit(0 if trial.outcome.status == "value" else 1)


def check_run(problem: ProblemFile, path: Path) -> dict[str, Any]:
    """The first point that `minimize` evaluates; raise ArgumentError for options it would refuse."""
    run = problem.run
    try:
        opt = Optimizer(problem.space.parameters, **{name: run[name] for name in _SEARCH if name in run})
        others = {name: value for name, value in run.items() if name in _OTHERS}
        settings = Settings(**{**_OTHERS, **others})
        noisy = opt.noise is not None and opt.noise.sampled
        evaluations_with_models(run.get("surrogate", "auto"), settings, opt, program=True, plain=noisy)
        check_origin(opt, settings.restart_from)
        if "warm_start" in run:
            reading.check_run(Path(run["warm_start"]))
    except ArgumentError as error:
        raise ArgumentError(in_file(path, read_text(path), str(error))) from None
    except RunError as error:
        raise ArgumentError(in_file(path, read_text(path), f"warm_start: {error}")) from None
    start: dict[str, Any] = opt.start_point
    return start


#: Default settings of a run.
_OTHERS: dict[str, Any] = {
    field.name: signature(minimize).parameters[field.name].default for field in fields(Settings)
}


def _run(problem: ProblemFile) -> dict[str, Any]:
    """The table [run], with the keys of the file."""
    run = {name: value for name, value in problem.run.items() if name != "constraints"}
    return {"seed" if name == "rng" else name: value for name, value in run.items()}


def _program(command: Command) -> dict[str, Any]:
    """The fields of [program] that differ from their defaults; of `environment` only the names."""
    said = {}
    for field in fields(command):
        value = getattr(command, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name in PROGRAM and value and value != default:
            said[field.name] = sorted(value) if field.name == "environment" else value
    return said


def _row(name: str, p: Parameter, start: Any) -> tuple[str, str, str, str]:
    """A parameter as `check` shows it."""
    if isinstance(p, Categorical):
        return name, ", ".join(map(str, p.choices)), str(start), ""
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
    """Shorten a long value in the middle."""
    if len(rows) > messages.MAX_ROWS:
        rows = [*rows[:10], ["..."] * len(head), *rows[-10:]]
    console.print(messages.table(head, rows))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _show(console: Console, trial: Trial) -> None:
    outcome = trial.outcome
    messages.say(console, f" {shlex.join(trial.argv)}", bold="ran")
    added = [f"{n}={v}" if v is not None else f"(without {n})" for n, v in trial.environment.items()]
    if added:
        messages.say(console, f" {' '.join(shlex.quote(word) for word in added)}", bold="with")
    messages.say(console, f" {trial.directory}", bold="in")
    _table(console, ("parameter", "value"), [(n, number(v)) for n, v in trial.point.items()])
    files = [f"{name} ({size} bytes)" for name, size in trial.files.items()]
    more = ", ..." if len(files) >= MAX_FILES else ""
    messages.say(console, f" {', '.join(files)}{more}", bold="files")
    for name, text in (("stdout", trial.stdout), ("stderr", trial.stderr)):
        lines = text.rstrip().expandtabs().splitlines()
        if lines:
            cut = f", its last {_LINES} lines" if len(lines) > _LINES else ""
            messages.say(console, f"{cut}:", bold=name)
        for line in lines[-_LINES:]:
            messages.say(console, f"  {line}")
    said = {"infeasible": "failed", "lost": "lost"}.get(outcome.status, "value")
    messages.say(console, f" {outcome.value:.10g}" if said == "value" else f": {outcome.reason}", bold=said)
    for line in outcome.detail.expandtabs().splitlines():
        if line not in f"{trial.stdout}\n{trial.stderr}":  # what we have to say to it
            messages.say(console, f"  {line}")
    for name, value in (outcome.outputs or {}).items():
        messages.say(console, f" {_plain(value)}", bold=name)
    messages.say(console, f" {outcome.seconds:.3g} s", bold="time")
