"""Paths and run directories as the command line reads them; nothing in them is trusted."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from fmnes.arguments import shown
from fmnes.cli.problem_file import ProblemFile
from fmnes.errors import ArgumentError, RunError, nearest
from fmnes.evaluation.objective import command_from, describe_objective
from fmnes.reading.next_steps import (
    RunOutcome,
    Step,
    as_argument,
    as_line,
    as_lines,
    find_problem,
    run_outcome,
    where_a_run_is,
)
from fmnes.result import Result
from fmnes.run.settings import UNUSABLE
from fmnes.run.settings import RunConfig as StoredConfig
from fmnes.storage.directory import (
    CONFIG,
    LOCK,
    PREVIOUS,
    SNAPSHOT,
    RunDirectory,
    is_run,
    next_free,
    read_config,
)
from fmnes.storage.lock import holder

# -- Values of options.


def seconds(text: str) -> float:
    with suppress(ValueError):
        if (found := float(text)) >= 0:
            return found
    raise typer.BadParameter(f"found {text!r}, wanted a number of seconds, at least 0")


def port_number(text: str | int) -> int:
    """text: an int if it is the default, which is parsed, too."""
    if re.fullmatch(r"[0-9]{1,5}", str(text)) and 0 < int(text) < 65536:
        return int(text)
    raise typer.BadParameter(f"found {text!r}, wanted a port, from 1 to 65535")


# -- Paths on the command line, with hints for wrong ones.


#: A larger folder is not searched for hints.
_MANY = 1000


def check_run(run: Path) -> None:
    """Raise RunError if it is not a run directory, with a hint at a similar one."""
    if not os.path.lexists(run):
        raise RunError(f"{run}: found nothing there, wanted a run directory{similar_run(run)}")
    if not run.is_dir():
        raise RunError(f"{run}: found a file, wanted a run directory{_meant(run.with_suffix('.run'))}")
    if not os.path.lexists(run / CONFIG):
        inside = [path for path in _entries(run) if path.is_dir() and is_run(path)]
        hint = _meant(inside[0]) if inside else "; `fmnes minimize` makes one"
        raise RunError(f"{run}: found no {CONFIG} in it, wanted a run directory{hint}")


def check_problem(path: Path) -> None:
    """Raise ArgumentError if there is no file, with a hint at a similar one."""
    if not os.path.lexists(path):
        similar = _similar(path, lambda other: other.suffix == ".toml")
        hint = similar or "; to write one:  fmnes init"
        raise ArgumentError(f"{path}: found nothing there, wanted a problem file{hint}")
    if path.is_dir():
        files = _problems(path)
        hint = f"; did you mean '{files[0]}'?" if files else ""
        raise ArgumentError(f"{path}: found a folder, wanted a problem file{hint}")


def no_problem(word: str) -> ArgumentError:
    """The error for a word that is neither a problem file nor a program with --param."""
    path = Path(word)
    hint = ""
    if path.is_dir() and is_run(path):
        hint = f"; this is a run, to go on with it:  fmnes resume {as_argument(path)}"
    elif path.is_dir():
        files = _problems(path)
        hint = f"; did you mean:  fmnes minimize {as_argument(files[0])}" if files else ""
    return ArgumentError(
        f"{word}: found neither a problem file, whose name ends in .toml, nor --param for a program; wanted "
        f"one of them{hint}"
    )


def _problems(folder: Path) -> list[Path]:
    return sorted(entry for entry in _entries(folder) if entry.suffix == ".toml")


def _meant(path: Path) -> str:
    return f"; did you mean {str(path)!r}?" if path.is_dir() and is_run(path) else ""


def similar_run(run: Path) -> str:
    """A hint at a run directory with a similar name."""
    return _similar(run, is_run)


def _similar(path: Path, fits: Callable[[Path], bool]) -> str:
    names = [entry.name for entry in _entries(path.parent) if fits(entry)]
    return nearest(path.name, names)


def _entries(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []
    return [folder / name for name in names] if len(names) <= _MANY else []


# -- Differences between a run and its current problem file.


#: More are only counted.
MAX_SHOWN = 5


def changes(was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Such as "width.upper is 2.0, was 1.0". Both as `config.json` has them: objective and parameters."""
    now = json.loads(json.dumps(now))  # tuples as lists, as they were read
    found = _differences(_program(was), _program(now), "", {"argv": "command"})
    old, new = _tables(was), _tables(now)
    if old and new:
        found += [f"{name} is new" for name in new if name not in old]
        found += [f"{name} is gone" for name in old if name not in new]
        for name in old:
            found += _differences(old[name], new.get(name), f"{name}.", {})
    more = len(found) - MAX_SHOWN
    return [*found[:MAX_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _differences(was: Any, now: Any, prefix: str, words: dict[str, str]) -> list[str]:
    if not isinstance(was, dict) or not isinstance(now, dict):
        return []
    keys = [key for key in was if key in now or prefix] + [key for key in now if prefix and key not in was]
    return [
        f"{prefix}{words.get(key, key)} is {_value(now.get(key))}, was {_value(was.get(key))}"
        for key in keys
        if was.get(key) != now.get(key)
    ]


def _program(config: dict[str, Any]) -> Any:
    """What is run; where the problem file is does not change it."""
    objective = config.get("objective")
    if not isinstance(objective, dict):
        return None
    return {key: value for key, value in objective.items() if key != "problem_file"}


def _tables(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters by name."""
    tables = config.get("parameters")
    if not isinstance(tables, list):
        return {}
    return {str(table["name"]): table for table in tables if isinstance(table, dict) and "name" in table}


def _value(value: Any) -> str:
    return "not set" if value is None else shown(value)


# -- The configuration of a run directory, which is untrusted.


Point = dict[str, Any]


class RunConfig(NamedTuple):
    """The configuration of a run."""

    run: Path
    objective: dict[str, Any]
    settings: dict[str, Any]
    problem: Path | None
    """Its problem file, if there is one."""
    named: Callable[[Sequence[float]], Point]
    """A point of the search in the user's names and units."""
    as_kept: dict[str, Any]
    """All of it, as the run directory has it."""

    @property
    def max_evaluations(self) -> int | None:
        found = self.settings.get("max_evaluations")
        return found if isinstance(found, int) else None

    @property
    def function(self) -> str | None:
        """The name of the Python function it minimises; None for a program."""
        return str(self.objective["name"]) if self.objective["kind"] == "function" else None


def read_run_config(run: Path) -> RunConfig:
    """Read the configuration of a run."""
    return _begun(run, read_config(run))


def read_program(run: Path) -> RunConfig:
    """The configuration of a run that the command line can resume: one of a program."""
    begun = read_run_config(run)
    if begun.function is not None:
        call = f"fmnes.resume({str(run)!r}, {begun.function})"
        how = f"; from Python:  {call}" if begun.function.isidentifier() else ""
        raise ArgumentError(f"{run}: found a run of a Python function, wanted one of a program{how}")
    try:
        command_from(begun.objective)
    except UNUSABLE as error:
        raise RunError(f"{run}: found an unusable configuration ({error})") from None
    return begun


def ending_of(result: Result, begun: RunConfig) -> RunOutcome:
    return run_outcome(
        begun.run,
        begun.objective,
        begun.settings,
        begun.problem,
        result.stop_reason,
        success=result.success,
        found=result.x is not None,
        failed=result.n_infeasible > 0,
        evaluations=result.nfev,
    )


def names_of(result: Result, begun: RunConfig) -> Callable[[Any], Point]:
    """A point of the result in the user's names and units, which of named parameters it has already."""
    names = result.parameters
    if names is None:  # arrays
        return begun.named
    return lambda x: x if isinstance(x, dict) else dict(zip(names, x.tolist(), strict=True))


def count_evaluations(run: Path) -> int:
    with RunDirectory.open(run, read_only=True) as directory:
        return directory.log.count()


def _begun(run: Path, config: dict[str, Any]) -> RunConfig:
    found = StoredConfig.read(run, config)

    def named(x: Sequence[float]) -> Point:
        return found.coordinates(len(x)).named(np.asarray(x, dtype=float))

    problem = find_problem(run, found.objective)
    return RunConfig(run, found.objective, found.settings.as_json(), problem, named, config)


# -- The error for a run directory that is already in use.


def run_exists_error(run: Path, words: list[str], problem: ProblemFile) -> RunError:
    """words: the arguments of `fmnes minimize`, if it was not begun from a command line."""
    typed = sys.argv[2:] if sys.argv[1:2] == ["minimize"] else words
    resumable = (run / SNAPSHOT).exists() or (run / PREVIOUS).exists()
    user = holder(run / LOCK)
    found, steps = "a run", where_a_run_is(typed, run, next_free(run), _beside(run), resumable)
    if user:
        found, steps = f"a run in use by {user}", [Step("to look at it", as_line("show", run)), steps[-1]]
    try:
        differs = changed(read_run_config(run), problem)
    except RunError:  # of an older or another version
        differs = []
    if differs:
        found += f" of another problem ({'; '.join(differs)})"
    return RunError(f"{run}: found {found}, wanted a new or empty directory\n{as_lines(steps)}")


def changed(begun: RunConfig, problem: ProblemFile) -> list[str]:
    """The differences between a run and a problem."""
    now = {"objective": describe_objective(problem.command), "parameters": problem.space.as_json()}
    return changes(begun.as_kept, now)


def _beside(run: Path) -> Path:
    """A free name such as problem-2.run."""
    numbered = (run.with_stem(f"{run.stem}-{n}") for n in itertools.count(2))
    return next(path for path in numbered if not os.path.lexists(path))
