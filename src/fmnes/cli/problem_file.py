"""Problem files: named parameters, a program and a budget, in TOML.

    command = ["{here}/simulate.py", "{params}"]

    [parameters.thickness]
    start = 2.0
    step = 0.5          # about how far away the best value may be; a factor where the scale is "log"
    lower = 0.1
    upper = 10.0
    scale = "log"

    [run]
    max_evaluations = 500

Nothing in a problem file is run as code; the program is started without a shell.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmnes.arguments import is_number, shown
from fmnes.bounds import Bounds
from fmnes.errors import ArgumentError, nearest
from fmnes.evaluation.programs.command import Command
from fmnes.parameters import Real
from fmnes.space import Space, make_space

TOP = ("command", "parameters", "run", "program")
PARAMETER = ("start", "step", "lower", "upper", "scale")
RUN = (
    "method",
    "population_size",
    "bounds_as",
    "target",
    "max_evaluations",
    "max_seconds",
    "xtol",
    "ftol",
    "seed",
    "workers",
    "timeout",
    "retries",
    "restarts",
    "restart_from",
    "second_look",
    "evaluate_start",
    "run_dir",
)
PROGRAM = ("lost_exit_codes", "success_exit_codes", "keep", "max_kept", "directory")
#: A problem of a hundred thousand parameters has less.
MAX_BYTES = 8 * 2**20
#: Dots in one line besides strings and comments; a key of very many parts would take all memory to read.
MAX_DOTS = 50
_STRING_OR_COMMENT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*")


@dataclass(frozen=True)
class Parameter:
    """One named parameter in the user's units."""

    name: str
    start: float
    step: float
    lower: float = -math.inf
    upper: float = math.inf
    scale: str = "linear"

    def __post_init__(self) -> None:
        if self.scale not in ("linear", "log"):
            raise ArgumentError(f"{self.name}: found scale {shown(self.scale)}, wanted 'linear' or 'log'")
        for key in ("start", "step", "lower", "upper"):
            value = getattr(self, key)
            endless = key in ("lower", "upper") and value in (-math.inf, math.inf)
            if not endless and not is_number(value):
                raise ArgumentError(f"{self.name}: found {key} = {shown(value)}, wanted a number")
        if self.scale == "log":
            if not self.start > 0 or -math.inf < self.lower < 0:
                raise ArgumentError(
                    f"{self.name}: found start or lower not positive, wanted so on a log scale"
                )
            if not self.step > 1:
                raise ArgumentError(
                    f"{self.name}: found step {self.step:g}, wanted a factor above 1 (log scale)"
                )
        elif not self.step > 0:
            raise ArgumentError(f"{self.name}: found step {self.step:g}, wanted a positive number")
        if not self.lower <= self.start <= self.upper or self.lower >= self.upper:
            bounds = f"[{self.lower:g}, {self.upper:g}]"
            raise ArgumentError(
                f"{self.name}: found start {self.start:g} and bounds {bounds}, wanted it inside"
            )

    def inside(self, value: float) -> float:
        """The coordinate the search works with."""
        if self.scale == "linear":
            return value
        return math.log(value) if 0 < value < math.inf else (-math.inf if value <= 0 else math.inf)


@dataclass(frozen=True)
class ProblemFile:
    command: Command
    parameters: tuple[Parameter, ...]
    run: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of `fmnes.minimize`."""

    @property
    def space(self) -> Space:
        """The parameters as `fmnes.minimize` takes them."""
        finite = [[v if math.isfinite(v) else None for v in (p.lower, p.upper)] for p in self.parameters]
        return make_space(
            [
                (p.name, Real(*bounds, start=p.start, sigma=p.step, log=p.scale == "log"))
                for p, bounds in zip(self.parameters, finite, strict=True)
            ]
        )

    @property
    def start(self) -> dict[str, Any]:
        """x0, sigma0 and bounds of `fmnes.minimize`."""
        ps = self.parameters
        return {
            "x0": [p.inside(p.start) for p in ps],
            "sigma0": [math.log(p.step) if p.scale == "log" else p.step for p in ps],
            "bounds": Bounds([p.inside(p.lower) for p in ps], [p.inside(p.upper) for p in ps]),
        }


def make_problem(
    argv: list[str],
    parameters: list[Parameter],
    run: dict[str, Any],
    program: dict[str, Any] | None = None,
    here: Path | None = None,
) -> ProblemFile:
    if not parameters:
        raise ArgumentError("parameters: found none, wanted at least one, with its start and step")
    command = Command(
        argv,
        names=[p.name for p in parameters],
        here=here,
        **(program or {}),
    )
    command.check(len(parameters))
    return ProblemFile(command, tuple(parameters), run)


def read_problem(path: Path) -> ProblemFile:
    text = _read_text(path)
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MAX_DOTS and _STRING_OR_COMMENT.sub("", line).count(".") > MAX_DOTS:
            raise ArgumentError(f"{path}, line {number}: found more than {MAX_DOTS} dots, wanted TOML")
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, a number of too many digits, too deeply nested
        raise ArgumentError(f"{path}: found {error}, wanted TOML") from None

    def check(table: Any, known: tuple[str, ...], where: str) -> dict[str, Any]:
        if not isinstance(table, dict):
            raise ArgumentError(f"{path}: found {where or 'the file'} = {shown(table)}, wanted a table")
        for key in table:
            if key not in known:
                inside = f" in [{where}]" if where else ""
                raise ArgumentError(
                    f"{path}{_line_of(text, key)}: found the key {key!r}{inside}, wanted one of "
                    f"{', '.join(known)}{nearest(key, known)}"
                )
        return table

    check(data, TOP, "")
    if "command" not in data:
        raise ArgumentError(
            f"{path}: found no command, wanted such as command = ['./simulate', '{{params}}']"
        )
    run = dict(check(data.get("run", {}), RUN, "run"))
    program = check(data.get("program", {}), PROGRAM, "program")
    tables = data.get("parameters", {})
    if not isinstance(tables, dict):
        raise ArgumentError(
            f"{path}: found parameters = {shown(tables)}, wanted tables such as [parameters.k]"
        )
    for name, table in tables.items():
        check(table, PARAMETER, f"parameters.{name}")
        missing = [key for key in ("start", "step") if key not in table]
        if missing:
            raise ArgumentError(
                f"{path}{_line_of(text, name)}: found no {missing[0]} in [parameters.{name}], "
                "wanted start and step"
            )
    try:
        parameters = [Parameter(name, **table) for name, table in tables.items()]
        return make_problem(data["command"], parameters, run, program, path.resolve().parent)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


def _read_text(path: Path) -> str:
    """The file's text; what is no plain file, or far too large for a problem file, is not even begun."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for ever
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ArgumentError(f"{path}: found something else than a plain file, wanted a problem file")
            with open(descriptor, "rb", closefd=False) as file:
                text = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(text) > MAX_BYTES:
            raise ArgumentError(f"{path}: found more than {MAX_BYTES} bytes, wanted a problem file")
        return text.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: cannot be read ({error})") from None


def parse_parameter(text: str) -> Parameter:
    """`name=start,step[,lower,upper][,log]` of the command line."""
    match = re.fullmatch(r"([^=]+)=(.+)", text)
    parts = match[2].split(",") if match else []
    scale = "linear"
    if parts and parts[-1].strip() in ("log", "linear"):
        scale = parts.pop().strip()
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if not match or len(numbers) not in (2, 4):
        raise ArgumentError(f"param: found {text!r}, wanted name=start,step[,lower,upper][,log]")
    lower, upper = numbers[2:] or (-math.inf, math.inf)
    return Parameter(match[1].strip(), numbers[0], numbers[1], lower, upper, scale)


def _line_of(text: str, key: str) -> str:
    """`, line n` of the first line that sets the key or opens its table."""
    quoted = rf"[\"']?{re.escape(key)}[\"']?"
    pattern = re.compile(rf"^\s*(?:{quoted}\s*[=.]|\[+[^\]]*{quoted}\s*\]+)")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return f", line {number}"
    return ""
