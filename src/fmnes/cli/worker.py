"""`fmnes worker`: evaluate points of a queue, and `--queue` for the run that hands them out."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fmnes.arguments import shown
from fmnes.cli import messages, reading
from fmnes.cli.problem_file import read_problem
from fmnes.errors import ArgumentError
from fmnes.evaluation.queue.file_queue import FileQueue
from fmnes.evaluation.queue.worker import IDLE_SECONDS, OVER_SECONDS, work

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
        Path | None,
        typer.Argument(metavar="[PROBLEM.toml]", help="The driver's problem file, if any."),
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
