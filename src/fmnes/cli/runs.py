"""`fmnes minimize`, `resume`, `stop` and `worker`."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import fmnes
from fmnes.arguments import check_count, check_path, shown
from fmnes.cli import messages, reading
from fmnes.cli.messages import LiveDisplay, argument_of, as_option, plain_words
from fmnes.cli.problem_file import ProblemFile, in_file, make_problem, parse_parameter, read_problem
from fmnes.cli.reading import changed, run_exists_error
from fmnes.cli.show import open_watch
from fmnes.errors import ArgumentError, FmnesError, ObjectiveError, not_among
from fmnes.evaluation.programs.command import read_text
from fmnes.evaluation.queue.file_queue import FileQueue
from fmnes.evaluation.queue.worker import IDLE_SECONDS, OVER_SECONDS, work
from fmnes.reading.next_steps import (
    ARCHIVE,
    Step,
    as_line,
    as_lines,
    as_page,
    next_steps,
    outcome_of,
    start_over,
    when_broken,
)
from fmnes.reading.run import read_run
from fmnes.result import Result, StopReason, View
from fmnes.storage.directory import Answer, RunExists, archive_run, request_stop
from fmnes.strategies import METHODS

# -- The option --method.


def check_method(method: str | None) -> str | None:
    """The method, if it is known; otherwise raise ArgumentError with all names."""
    if method is not None and method not in METHODS:
        raise not_among("--method", method, METHODS)
    return method


def complete_method(incomplete: str) -> list[str]:
    """Completions for the shell."""
    return [method for method in METHODS if method.startswith(incomplete)]


Method = Annotated[
    str | None,
    typer.Option(help=f"One of {', '.join(METHODS)}.", autocompletion=complete_method, callback=check_method),
]


# -- `fmnes minimize` and `resume`: runs of external programs, kept in run directories.


def whole(text: str) -> int:
    """A whole number, also as 1e4."""
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        if (number := float(text)).is_integer():
            return int(number)
    raise typer.BadParameter(f"found {text!r}, wanted a whole number")


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"found {text!r}, wanted a number") from None


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
MaxEvaluations = Annotated[
    int | None, typer.Option(help="Evaluations in all.", parser=whole, metavar="INTEGER")
]
MaxSeconds = Annotated[float | None, typer.Option(help="Seconds in all.", parser=number, metavar="FLOAT")]
Workers = Annotated[int | None, typer.Option(help="Programs at a time.", parser=whole, metavar="INTEGER")]
Timeout = Annotated[
    float | None, typer.Option(help="Seconds before a program is killed.", parser=number, metavar="FLOAT")
]
Retries = Annotated[
    int | None, typer.Option(help="Further tries of a lost evaluation.", parser=whole, metavar="INTEGER")
]
Open = Annotated[bool, typer.Option("--open", help="Watch it in the browser, as `fmnes watch` does.")]
Target = Annotated[
    float | None, typer.Option(help="Stop at a value as low as this.", parser=number, metavar="FLOAT")
]


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
    archive_existing: Annotated[
        bool, typer.Option(ARCHIVE, help="Rename an existing run to NAME.run.1, .2, …, and start over.")
    ] = False,
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    target: Target = None,
    workers: Workers = None,
    queue: Queue = None,
    timeout: Timeout = None,
    retries: Retries = None,
    method: Method = None,
    population_size: Annotated[
        int | None, typer.Option(help="Points per generation.", parser=whole, metavar="INTEGER")
    ] = None,
    restarts: Annotated[
        str | None,
        typer.Option(metavar="N|bipop", help="Further searches, each with twice the population; or bipop."),
    ] = None,
    surrogate: Annotated[
        bool | None,
        typer.Option(help="Models of the values and failures that save evaluations, or none; else as fits."),
    ] = None,
    noise: Annotated[
        bool | None,
        typer.Option(help="Values at the same point differ, or never do; else the run finds out."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same run.", parser=whole, metavar="INTEGER")
    ] = None,
    open_it: Open = False,
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
        "restarts": _restarts(restarts),
        "surrogate": surrogate,
        "noise": noise,
    }
    typed = {name: value for name, value in flags.items() if value is not None}
    options = {**problem.run, **typed}
    if seed is not None:
        options["rng"] = check_count("--seed", seed, 0)
    options |= queue_options(queue, workers)
    usual = check_path("run_dir", options.pop("run_dir", folder))
    kept = run_dir or Path(usual)

    file = Path(words[0]) if words[0].endswith(".toml") else None

    def begin(**more: Any) -> Result:
        try:
            return fmnes.minimize(problem.command, problem.space.parameters, **options, run_dir=kept, **more)
        except ArgumentError as error:
            if file is None or argument_of(str(error)) in typed:
                raise ArgumentError(as_option(str(error), typed)) from None
            raise ArgumentError(in_file(file, read_text(file), str(error))) from None

    def run(**more: Any) -> Result:
        try:
            return begin(**more)
        except RunExists:
            if not archive_existing:
                raise run_exists_error(kept, words, problem) from None
        moved = kept.with_name(archive_run(kept).name)
        messages.say(Console(stderr=True), f"the earlier run is now {moved}")
        return begin(**more)

    _run(run, kept, LiveDisplay(options.get("max_evaluations")), as_json, open_it, file)


def resume(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    target: Target = None,
    workers: Workers = None,
    queue: Queue = None,
    timeout: Timeout = None,
    retries: Retries = None,
    forget_failures: Annotated[
        str | None,
        typer.Option(
            metavar="[=WHAT]",
            help="Take failures back whose cause is repaired: those since the last success, or with WHAT "
            "those with this text in their reason or output, or since this time (2026-05-01T12:00).",
        ),
    ] = None,
    open_it: Open = False,
    as_json: Json = False,
) -> None:
    """Go on with a run: after a crash, Ctrl-C, a program that was broken, or with a larger budget."""
    reading.check_run(run)
    begun = reading.read_program(run)
    _say_changes(begun)
    flags = {"max_evaluations": max_evaluations, "max_seconds": max_seconds, "target": target}
    flags |= {"workers": workers, "timeout": timeout, "retries": retries}
    options: Any = {name: value for name, value in flags.items() if value is not None}
    options |= queue_options(queue, workers)
    if forget_failures is not None:
        options["forget_failures"] = forget_failures or True
    used = read_run(run).answered
    if forget_failures is None and max_evaluations is not None and 0 < max_evaluations < used:
        raise ArgumentError(
            f"--max-evaluations: found {max_evaluations}, but {run} has used {used} evaluations already; "
            f"wanted more than {used}: it is the budget of the whole run"
        )
    budget = max_evaluations or begun.max_evaluations
    display = LiveDisplay(budget, made_before=reading.count_evaluations(run))

    def go_on(**more: Any) -> Result:
        try:
            return fmnes.resume(run, **options, **more)
        except ArgumentError as error:
            raise ArgumentError(as_option(str(error), options)) from None

    _run(go_on, run, display, as_json, open_it, begun.problem)


def _problem(words: list[str], params: list[str]) -> tuple[ProblemFile, Path]:
    """The problem, and its default run directory."""
    if words[0].endswith(".toml"):
        if len(words) > 1:
            raise ArgumentError(f"{words[1]}: found after a problem file, wanted nothing more")
        if params:
            raise ArgumentError("--param: found together with a problem file, wanted one of them")
        path = Path(words[0])
        reading.check_problem(path)
        return read_problem(path), path.with_suffix(".run")
    if len(words) == 1 and not params:
        raise reading.no_problem(words[0])
    if not params:
        raise ArgumentError(
            "--param: found none, wanted one for each parameter, such as --param width=0.1..10"
        )
    parameters = [parse_parameter(text) for text in params]
    try:
        problem = make_problem(words, parameters, {})
    except ArgumentError as error:
        raise ArgumentError(plain_words(str(error))) from None
    return problem, Path(Path(words[0]).stem + ".run")


def _restarts(text: str | None) -> int | str | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def _run(
    run: Callable[..., Result],
    kept: Path,
    display: LiveDisplay,
    as_json: bool,
    open_it: bool,
    problem: Path | None,
) -> None:
    """Run with a live display, then show the result; the exit code says how it ended."""
    if open_it:
        from fmnes.plots.drawing import need_matplotlib

        need_matplotlib()
    with display:
        try:
            result = run(callback=_opening(kept, display.update) if open_it else display.update)
        except ObjectiveError as error:
            raise ObjectiveError(f"{error}\n{as_lines(when_broken(kept, problem))}") from None
        display.end(result)
    begun = reading.read_run_config(kept)._replace(problem=problem)
    named = reading.names_of(result, begun)
    if as_json:
        typer.echo(json.dumps(messages.as_json(result, named)))
    else:
        console = Console()
        messages.show_point(console, None if result.x is None else named(result.x), result.fun)
        messages.show_noise(console, result)
        messages.show_limits(console, result.constraints)
        messages.show_ending(console, result)
        messages.say(console, f"kept in {kept}; to see it again:  {as_line('show', kept)}")
        messages.show_steps(console, [as_page(kept), *next_steps(reading.ending_of(result, begun))])
    raise typer.Exit(messages.exit_code(result))


def _opening(kept: Path, update: Callable[[View], Any]) -> Callable[[View], Any]:
    """Open the page at the first update, when the run directory exists."""
    opened: list[Any] = []

    def update_and_open(view: View) -> Any:
        if not opened:
            opened.append(open_watch(kept))
        return update(view)

    return update_and_open


def _say_changes(begun: reading.RunConfig) -> None:
    """Warn if the problem file has changed: the run continues with its old settings."""
    if begun.problem is None:
        return
    try:
        found = changed(begun, read_problem(begun.problem))
    except FmnesError:  # the file is not needed to go on
        return
    if found:
        text = (
            f"{begun.problem} has changed ({'; '.join(found)}), but the run continues with its old settings"
        )
        messages.say(Console(stderr=True), f"{text}; to start over:  {start_over(begun.run, begun.problem)}")


# -- `fmnes stop`: end a run from another terminal, or another machine.


def stop(
    run: Annotated[Path, typer.Argument(help="The run directory.")],
    wait: Annotated[
        float,
        typer.Option(help="Seconds to wait until it has stopped.", parser=reading.seconds, metavar="FLOAT"),
    ] = 10.0,
) -> None:
    """Ask a running run to stop, as Ctrl-C would; `fmnes resume` goes on with it.

    The exit status is 0 if it does not run any more, and 1 if it still does after the wait.
    """
    reading.check_run(run)
    console = Console()
    answer = request_stop(run, wait)
    if answer is Answer.ASKED:
        messages.say(
            console, "the run is asked to stop" + (f", and still runs after {wait:g} s" if wait else "")
        )
        messages.show_steps(console, [Step("to look at it", as_line("show", run))])
        raise typer.Exit(1 if wait else 0)
    found = read_run(run)
    reason = None if found.result is None else found.result.stop_reason
    if answer is Answer.NOT_RUNNING:
        began = "not running"
    else:  # it may have come to its end in the same moment
        began = "stopped" if reason in (StopReason.INTERRUPTED, None) else "ended by itself"
    messages.say(console, f": {found.message}" if found.message else "", bold=began)
    messages.show_steps(console, [] if found.running else next_steps(outcome_of(found, run)))


# -- Workers of a queue


Queue = Annotated[
    Path | None,
    typer.Option(
        help="Hand the evaluations out through this directory, to `fmnes worker` on any machine that sees it."
    ),
]


def queue_options(queue: Path | None, workers: int | None) -> dict[str, Any]:
    """The arguments that `--queue` adds to a run; they override `workers` of a problem file."""
    if queue is None:
        return {}
    if workers is not None:
        raise ArgumentError("--queue: found together with --workers, wanted one of them")
    return {"executor": FileQueue(queue), "workers": 1}


def worker(
    directory: Annotated[Path, typer.Argument(help="The directory of the queue, the same as the driver's.")],
    problem: Annotated[
        Path | None, typer.Argument(metavar="[PROBLEM.toml]", help="The driver's problem file, if any.")
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Else the driver's function, imported here; modules are also looked for in this directory.",
        ),
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds to wait for a driver; {IDLE_SECONDS:g}, or {OVER_SECONDS:g} after a run's end.",
            parser=reading.seconds,
            metavar="FLOAT",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Evaluate points for a run that hands them out through a directory, until it has ended.

    The objective is imported here and never comes out of the directory. Start as many as you like, on any
    machines that see the directory, and end them when you like: what one was working on is made by another.
    """
    if (problem is None) == (function is None):
        found = "neither a problem file nor" if problem is None else "both a problem file and"
        raise ArgumentError(
            f"worker: found {found} --function, wanted one of them, such as --function model:simulate"
        )
    if problem is not None:
        reading.check_problem(problem)
        objective: Any = read_problem(problem).command
    else:
        objective = load_objective(str(function))
    console = Console(stderr=True, quiet=quiet)
    ending = work(directory, objective, idle=idle, say=lambda text: messages.say(console, text))
    messages.say(console, f"{ending.evaluations} evaluations; {ending.why}")
    raise typer.Exit(128 + ending.signal if ending.signal else 0)


def load_objective(text: str) -> Any:
    """The function, or the Command, of `module:name`."""
    module, colon, path = text.partition(":")
    if not module or not colon or not path:
        raise ArgumentError(f"function: found {shown(text)}, wanted module:name, such as model:simulate")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # the module's own code is run
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            hint = "; is it in this directory, or installed?"
        elif os.path.exists(f"{module}.py"):
            hint = '; what a script runs belongs under `if __name__ == "__main__":`'
        raise ArgumentError(
            f"function: found the module {module!r}, which cannot be imported ({type(error).__name__}: "
            f"{error}){hint}"
        ) from None
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ArgumentError(f"function: found no {path!r} in {module!r}, wanted the objective") from None
    return found
