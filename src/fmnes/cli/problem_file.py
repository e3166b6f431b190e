"""Problem files: named parameters, a program and a budget, in TOML.

    command = ["{here}/simulate.py", "{thickness}"]

    [parameters.thickness]
    lower = 0.1
    upper = 10.0
    log = true

    [run]
    max_evaluations = 500

`[program]` has the other arguments of `fmnes.Command`, `[run]` those of `fmnes.minimize`, and
`[constraints.stress]` the limits on an output. Nothing in a file is run as code; the program is started
without a shell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmnes.arguments import check_count, check_path, option_alias, shown
from fmnes.cli.messages import argument_of, plain_words
from fmnes.constraints import Constraint
from fmnes.errors import ArgumentError, nearest
from fmnes.evaluation.programs.command import Command, check_runnable, parse, read_text
from fmnes.parameters import KEYS, Parameter, read_parameter
from fmnes.space import Space, make_space

TOP = ("command", "parameters", "constraints", "program", "run")
LIMITS = ("lower", "upper", "tolerance")
PROGRAM = (
    "templates",
    "stdin",
    "copy",
    "link",
    "value",
    "outputs",
    "fail_if",
    "success_exit_codes",
    "lost_exit_codes",
    "environment",
    "memory_limit",
    "keep",
    "max_kept",
    "directory",
)
RUN = (
    "max_evaluations",
    "max_seconds",
    "target",
    "workers",
    "timeout",
    "retries",
    "seed",
    "method",
    "population_size",
    "xtol",
    "ftol",
    "bounds_as",
    "restarts",
    "restart_from",
    "second_look",
    "surrogate",
    "noise",
    "evaluate_start",
    "warm_start",
    "run_dir",
)
_HEADER, _SETTING = re.compile(r"\s*\[+([^\[\]]+)\]"), re.compile(r"\s*([^=#]+)=")


@dataclass(frozen=True)
class ProblemFile:
    """`fmnes.minimize(problem.command, problem.space.parameters, **problem.run)`"""

    command: Command
    space: Space
    run: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of `fmnes.minimize`."""


def make_problem(
    argv: list[str],
    parameters: Sequence[tuple[str, Parameter]],
    run: dict[str, Any],
    program: dict[str, Any] | None = None,
) -> ProblemFile:
    """program: the other arguments of `fmnes.Command`."""
    if not parameters:
        raise ArgumentError("--param: found none, wanted at least one, such as --param width=0.1..10,log")
    space = make_space(parameters)
    command = Command(argv, **(program or {}))
    check_runnable(command, names=space.names)
    return ProblemFile(command, space, run)


def read_problem(path: Path) -> ProblemFile:
    """Read a problem file; relative paths start at its directory. Raise ArgumentError if it is wrong."""
    text = read_text(path)
    data = _tables(path, text)
    if "command" not in data:
        found = "no command" if text.strip() else "an empty file"
        raise ArgumentError(
            f"{path}: found {found}, wanted such as command = ['./simulate', '{{params}}']; to write an "
            "example:  fmnes init"
        )
    pairs = []
    for name, table in data["parameters"].items():
        try:
            pairs.append((name, read_parameter(name, table)))
        except ArgumentError as error:
            where = f"parameters.{name}"
            strange = next((key for key in table if key not in KEYS), None)
            said = plain_words(str(error))
            if strange is None:
                about = re.match(r"[^:]*: found (\w+) = ", said)
                line = (about and _line_of(text, about[1], where)) or _line_of(text, where)
                raise ArgumentError(f"{path}{line}: {said}") from None
            line = _line_of(text, strange, where) or _line_of(text, where)
            raise ArgumentError(f"{path}{line}: {said}{_where_else(strange, where)}") from None
    if not pairs:
        raise ArgumentError(f"{path}: found no parameters, wanted at least one, such as [parameters.width]")
    try:
        program = _with_paths(data["program"], path, ("directory",))
        run = _with_paths(data["run"], path, ("run_dir", "warm_start"))
        if "seed" in run:
            run["rng"] = check_count("seed", run.pop("seed"), 0)
        if data["constraints"]:
            run["constraints"] = _constraints(data["constraints"], data["program"].get("outputs"))
        program |= {"here": path.resolve().parent, "problem_file": path.resolve()}
        return make_problem(data["command"], pairs, run, program)
    except ArgumentError as error:
        raise ArgumentError(in_file(path, text, str(error))) from None


def in_file(path: Path, text: str, message: str) -> str:
    """A message about an argument, with its line in the file and the file's keys."""
    said = plain_words(message)
    argument = argument_of(said)
    table = "program" if argument in PROGRAM else "run" if argument in RUN else ""
    line = _line_of(text, argument, table) if table or argument in TOP else ""
    if limited := re.match(r"constraints\.([^:]+): ", said):
        line = _line_of(text, f"constraints.{limited[1]}")
    if unused := re.match(r"parameters: found '(.+)' in no placeholder", said):
        line = _line_of(text, f"parameters.{unused[1]}")
    return f"{path}{line}: {said}"


def _tables(path: Path, text: str) -> dict[str, Any]:
    """The parts of the file, after a check of keys and tables."""
    data = parse(text, path)

    def check(table: Any, known: Sequence[str], where: str) -> dict[str, Any]:
        if not isinstance(table, dict):
            raise ArgumentError(
                f"{path}{_line_of(text, where)}: found {where} = {shown(table)}, wanted a table such as "
                f"[{'parameters.width' if where == 'parameters' else where}]"
            )
        for key in table if known else ():
            if key not in known:
                inside = f" in [{where}]" if where else ""
                hint = _where_else(key, where) or _other_name(key, known) or nearest(key, known)
                raise ArgumentError(
                    f"{path}{_line_of(text, key, where)}: found the key {key!r}{inside}, wanted one of "
                    f"{', '.join(known)}{hint}"
                )
        return table

    check(data, TOP, "")
    found = {name: check(data.get(name, {}), keys, name) for name, keys in _KNOWN.items()}
    for name, table in found["parameters"].items():
        check(table, (), f"parameters.{name}")
    for name, table in found["constraints"].items():
        check(table, LIMITS, f"constraints.{name}")
    return {**data, **found}


_KNOWN: dict[str, tuple[str, ...]] = {"parameters": (), "constraints": (), "program": PROGRAM, "run": RUN}


def _where_else(key: str, where: str) -> str:
    """A hint for a key in the wrong table: a [table] may begin earlier than intended."""
    if key in TOP:
        return f"; {key!r} belongs above the first [table]" if key == "command" else f"; write [{key}]"
    for name in ("program", "run"):
        if key in _KNOWN[name] and name != where:
            return f"; {key!r} belongs in [{name}]"
    return ""


def _other_name(key: str, known: Sequence[str]) -> str:
    """A hint for a key that another program, or Python, has for one of these."""
    meant = re.match(r"(\w+)=", option_alias(key, {"rng", *known}) or f"{key}=")
    name = meant[1].replace("rng", "seed") if meant else ""
    return f"; did you mean {name!r}?" if name in known else ""


def _constraints(tables: dict[str, Any], reported: Any) -> dict[str, Constraint]:
    """The limits by output; reported: the outputs that [program] reads, if it says so."""
    found = {}
    for name, table in tables.items():
        try:
            found[name] = Constraint(**table)
        except ArgumentError as error:
            words = str(error).removeprefix("constraint: ")
            raise ArgumentError(f"constraints.{name}: {words}") from None
        if isinstance(reported, dict) and name not in reported:
            raise ArgumentError(
                f"constraints.{name}: found no output of this name, wanted one of {', '.join(reported)}"
                f"{nearest(name, reported)}"
            )
    return found


def _with_paths(table: dict[str, Any], path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The table with paths relative to the current directory."""
    paths = {name: path.parent / check_path(name, table[name]) for name in names if name in table}
    return {**table, **paths}


def parse_parameter(text: str) -> tuple[str, Parameter]:
    """`name=lower..upper[,log|integer]` or `name=start,sigma[,lower,upper][,log|integer]`."""
    name, equals, said = (part.strip() for part in text.partition("="))
    parts = [part.strip() for part in said.split(",")]
    table: dict[str, Any] = {}
    while parts and parts[-1] in ("log", "linear", "integer"):
        word = parts.pop()
        table |= {"integer": True} if word == "integer" else {"log": word == "log"}
    keys: tuple[str, ...] = ("start", "sigma", "lower", "upper")
    if len(parts) == 1 and ".." in parts[0]:
        parts, keys = list(parts[0].partition("..")[::2]), ("lower", "upper")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if not name or not equals or len(numbers) not in (2, len(keys)):
        raise ArgumentError(
            f"--param: found {shown(text)}, wanted name=lower..upper[,log|integer] or "
            "name=start,sigma[,lower,upper][,log|integer]"
        )
    try:
        return name, read_parameter(name, table | dict(zip(keys, numbers, strict=False)))
    except ArgumentError as error:
        raise ArgumentError(f"--param: {plain_words(str(error))}") from None


def _line_of(text: str, key: str, table: str = "") -> str:
    """`, line n` of the first line that sets the key of this table, or opens the table of its name."""
    wanted = _unquoted(f"{table}.{key}" if table else key)
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            current = f"{_unquoted(header[1])}."
        setting = None if header else _SETTING.match(line)
        found = current if header else f"{current}{_unquoted(setting[1])}." if setting else ""
        if found == f"{wanted}." or (setting and found.startswith(f"{wanted}.")):
            return f", line {number}"
    return ""


def _unquoted(key: str) -> str:
    return re.sub(r"[\"'\s]", "", key)
