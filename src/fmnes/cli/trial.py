"""One evaluation of a problem file's program, with all that can be seen of it: `fmnes try`."""

from __future__ import annotations

import itertools
import math
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fmnes.arguments import shown
from fmnes.cli.problem_file import ProblemFile
from fmnes.cli.wording import plain_words
from fmnes.errors import ArgumentError, nearest
from fmnes.evaluation.evaluator import START, Task
from fmnes.evaluation.programs.environment import variables
from fmnes.evaluation.programs.inputs import FILES, read_inputs
from fmnes.evaluation.programs.process import STDERR, STDOUT
from fmnes.evaluation.programs.runner import CommandEvaluator
from fmnes.evaluation.programs.workspace import Workspace
from fmnes.outcome import Outcome, lost
from fmnes.parameters import Integer, Parameter, read_parameter, table_of
from fmnes.space import Space

#: Files of the evaluation's directory that are listed, and bytes of each output that are shown.
MAX_FILES, MAX_OUTPUT = 200, 10_000


class Trial(NamedTuple):
    """What was run, and what came of it."""

    point: dict[str, Any]
    argv: list[str]
    environment: dict[str, str | None]
    """What the program's has beside ours; None: what it has not."""
    directory: Path
    files: dict[str, int]
    """Bytes of each, by its path in the directory; at most MAX_FILES."""
    stdout: str
    stderr: str
    """Their ends."""
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
    """The start, but for what words `name=value` say. Raises ArgumentError for what no search would ask."""
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
    """A new one in the folder NAME.try beside the file, or in the directory that the file names."""
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
    """One evaluation in this directory, which stays as the program leaves it."""
    here = Path(os.path.abspath(directory))
    # It stays anyway; "none" only says that there is nothing more to say about it.
    command = replace(problem.command, keep="none", timeout=problem.run.get("timeout"))
    evaluator = CommandEvaluator(command, named=lambda x: dict(point), workspace=_Stays(here))
    try:
        # The numbers are the point's own words here: nothing searches.
        task = Task(np.array(list(point.values()), dtype=float), START, 0)
        outcome = next((outcome for _, outcome in evaluator([task])), lost("interrupted"))
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


class _Stays(Workspace):
    """One directory, which is there already and stays."""

    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory), 1)
        self._directory = directory

    def new(self, key: Any) -> Path:
        return self._directory

    def remove(self, directory: Path) -> None:
        pass


def _changed(environment: Mapping[str, str]) -> dict[str, str | None]:
    """What a program's environment has beside ours, and what it lacks."""
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
    """The end of an output; nothing if the program has put something else into its place."""
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
