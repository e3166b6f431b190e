"""External programs as objectives: a point goes in as arguments or JSON, a number comes out.

`Command` holds the settings and the protocol; `answer.py` reads what a program says, `runner.py` keeps some
of them running, each in a directory of `workspace.py`, and `process.py` runs one of them. What it leaves
running is for `guard.py`, what it leaves on disk for `removal.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fmnes.arguments import check_number, check_path, is_number, names_options, shown
from fmnes.errors import ArgumentError, Infeasible, Lost, nearest
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs.answer import find_answer, printable
from fmnes.evaluation.programs.process import PARAMS, RESULTS, Ending
from fmnes.outcome import DETAIL_LIMIT, Outcome, from_number, infeasible, lost
from fmnes.result import Vector

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FILES = {"params": PARAMS, "results": RESULTS}


@dataclass(frozen=True)
class Command:
    """An external program as objective, never run through a shell.

        fmnes.minimize(fmnes.Command(["./simulate", "{params}"], timeout=60), x0, sigma0)

    **In.** `argv` is a list: the program and its arguments. In these `{x0}`, `{x1}`, … (or `{name}` for each
    of `names`) stand for the coordinates, `{params}` for the path of a JSON file with the point, `{results}`
    for that of a file the program may write, `{here}` for the directory we are in now, and `{{` and `}}` for
    braces. Standard input is the JSON, too: {"x": [...], "params": {name: value}, "generation", "slot", ...}.
    The program runs in a fresh directory each time: write "{here}/model.py" for a file of yours.

    **Out.** The results file if there is one, else the last line printed that is not empty: a number;
    {"f": number}, {"value": number} or {"fail": "reason"}; or the word FAIL, perhaps with a reason.

    **Failed** is a run that says so, gives no finite number, exits with a code not in `success_exit_codes`,
    crashes or takes more than `timeout` seconds (while it is not suspended). **Lost** (not the point's fault:
    it is tried again) is one that exits with one of `lost_exit_codes`, or is ended from outside: by SIGTERM,
    SIGINT or SIGHUP, or with the exit code that a shell makes of them.

    `keep` tells which directories stay for you to look at: at most `max_kept`, the first of each reason
    before all others, then the latest. They are below `directory`, else in the run directory's `kept`, else
    where the system has its temporary files. `environment` adds to ours; None removes a variable. `here` is
    the current directory unless given; a relative path of the program starts there.
    """

    argv: Sequence[str]
    _: KW_ONLY
    names: Sequence[str] | None = None
    timeout: float | None = None
    lost_exit_codes: Sequence[int] = (75,)  # EX_TEMPFAIL of sysexits.h
    keep: Literal["failed", "all", "none"] = "failed"
    max_kept: int = 100
    directory: str | os.PathLike[str] | None = None
    environment: Mapping[str, str | None] | None = field(default=None, repr=False, hash=False)  # secrets
    success_exit_codes: Sequence[int] = (0,)
    here: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        def settle(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        settle("argv", _strings("argv", self.argv))
        settle("names", None if self.names is None else _strings("names", self.names))
        settle("timeout", check_number("timeout", self.timeout, above=0))
        settle("max_kept", check_number("max_kept", self.max_kept, above=-1, whole=True) or 0)
        settle("here", os.path.abspath(check_path("here", "." if self.here is None else self.here)))
        if self.directory is not None:
            settle("directory", os.path.abspath(check_path("directory", self.directory)))
        settle("environment", {} if self.environment is None else _dict("environment", self.environment))
        settle("lost_exit_codes", _codes("lost_exit_codes", self.lost_exit_codes))
        settle("success_exit_codes", _codes("success_exit_codes", self.success_exit_codes))
        for name, value in (self.environment or {}).items():
            if "=" in _strings("environment", [name, *([value] if value else [])])[0]:
                raise ArgumentError(f"environment: found {name!r}, wanted a name without '='")
        names = self.names or ()
        if len(set(names)) < len(names) or {"params", "results", "here"} & set(names):
            raise ArgumentError(f"names: found {names}, wanted one for each; params, results, here are taken")
        if not isinstance(self.keep, str) or self.keep not in ("failed", "all", "none"):
            raise ArgumentError(f"keep: found {shown(self.keep)}, wanted 'failed', 'all' or 'none'")
        both = set(self.lost_exit_codes) & set(self.success_exit_codes)
        if both:
            raise ArgumentError(f"lost_exit_codes: found {both}, which are success_exit_codes as well")
        if not self.argv:
            raise ArgumentError("argv: found an empty list, wanted the program and its arguments")
        for element in self.argv:
            _fill(element, str)
        if self.names is not None:
            self.arguments(dict.fromkeys(self.names, 0.0), Path())

    def __call__(self, x: ArrayLike | Mapping[str, float]) -> float:
        """The value at x, an array or {name: value}.

        Raises `fmnes.Infeasible` or `fmnes.Lost`, with the details as a note.
        """
        named = _point(x) if isinstance(x, Mapping) else None
        point = np.asarray(x if named is None else list(named.values()), dtype=float).reshape(-1)
        if not np.isfinite(point).all():
            raise ArgumentError(f"x: found {point}, wanted finite numbers")
        self.check(point.size, named)
        outcome = self.run(Task(point, 0, 0), named=named)
        if outcome.status == "value":
            return outcome.value
        error = (Lost if outcome.status == "lost" else Infeasible)(outcome.reason)
        error.add_note(outcome.detail)
        raise error

    def run(
        self, task: Task, deadline: float | None = None, named: Mapping[str, Any] | None = None
    ) -> Outcome:
        """What comes of one evaluation; `named` is the point in the user's words, if it has names."""
        from fmnes.evaluation.programs.runner import (
            CommandEvaluator,
        )  # which knows this class, and is POSIX's
        from fmnes.evaluation.programs.workspace import by_hand

        directory = None if self.directory is None else str(self.directory)
        workspace = by_hand(directory, self.max_kept, os.getpid())
        evaluator = CommandEvaluator(
            self, named=None if named is None else lambda x: dict(named), workspace=workspace
        )
        try:
            for _, outcome in evaluator([task], deadline):
                return outcome
            return lost("stopped at the deadline")
        finally:
            evaluator.close()

    def check(self, d: int | None = None, names: Iterable[str] | None = None) -> None:
        """Raises ArgumentError if it cannot run, or not with points of d coordinates or of these names."""
        if names is not None and self.names is not None and tuple(names) != self.names:
            raise ArgumentError(f"names: found {self.names}, wanted those of the parameters: {tuple(names)}")
        if names is not None:
            self.arguments(dict.fromkeys(names, 0.0), Path())
        elif d is not None:
            self.arguments(self.named(np.zeros(d)), Path())
        name = self.argv[0]
        path = self.program
        if os.sep not in path or not os.path.exists(path):
            beside = os.sep not in name and os.path.exists(os.path.join(str(self.here), name))
            hint = f"; did you mean './{name}'?" if beside else ", wanted one on the PATH, or a path to one"
            raise ArgumentError(f"argv: found no program {name!r}{hint}")
        if os.path.isdir(path):
            raise ArgumentError(f"argv: found the directory {name!r}, wanted a program")
        if not os.access(path, os.X_OK):
            raise ArgumentError(
                f"argv: found {name!r}, which is not executable; run chmod +x on it, or put its interpreter "
                f"first: ['python', '{{here}}/{os.path.basename(name)}', ...]"
            )
        with suppress(PermissionError), open(path, "rb") as file:  # a binary need not be readable
            first = file.readline(256)
            interpreter = re.split(r"[ \t\n]", first[2:].decode(errors="replace").lstrip(" \t"))[0]
            if first.startswith(b"#!") and not os.access(os.path.join(str(self.here), interpreter), os.X_OK):
                windows = " (it ends in \\r: save the file with Unix line ends)" * interpreter.endswith("\r")
                raise ArgumentError(
                    f"argv: found {name!r}, whose interpreter {interpreter!r} is missing{windows}"
                )
        place = Path(self.directory or tempfile.gettempdir())
        place = place if place.exists() else place.parent
        if not place.is_dir() or not os.access(place, os.W_OK):
            raise ArgumentError(f"directory: found {str(place)!r}, wanted a directory we may write to")

    @property
    def program(self) -> str:
        """The path of the program, absolute because it does not run here."""

        def only_here(name: str) -> str:
            if name != "here":
                raise ArgumentError(
                    f"argv: found {{{name}}} in the program's name, wanted it among the arguments"
                )
            return str(self.here)

        name = _fill(self.argv[0], only_here)
        if os.sep not in name:
            name = shutil.which(name, path=(self.environment or {}).get("PATH")) or name
        return os.path.join(str(self.here), name.removeprefix("./")) if os.sep in name else name

    def named(self, x: Vector) -> dict[str, Any]:
        """The point as {name: value}; x0, x1, … where it has no names. x: (d,)"""
        if self.names is None:
            return {f"x{i}": value for i, value in enumerate(x.tolist())}
        if len(x) != len(self.names):
            raise ArgumentError(f"names: found {len(self.names)} for a point of {len(x)} coordinates")
        return dict(zip(self.names, x.tolist(), strict=True))

    def arguments(self, point: Mapping[str, Any], directory: Path) -> list[str]:
        """argv for one point."""
        files = {name: str(directory / file) for name, file in _FILES.items()}
        known = {"here": str(self.here), **files, **{name: repr(value) for name, value in point.items()}}
        return [
            self.program,
            *(_fill(element, lambda name: _value(name, known)) for element in self.argv[1:]),
        ]

    def params(self, task: Task, point: Mapping[str, Any], names: bool) -> str:
        """The JSON for one point, with or without its names; numbers keep all their digits."""
        said = {"x": list(point.values()), **({"params": point} if names else {})}
        return json.dumps({**said, **{k: v for k, v in task._asdict().items() if k != "x"}}) + "\n"

    def outcome(self, ending: Ending, directory: Path) -> Outcome:
        """What came of a run."""
        from fmnes.evaluation.deaths import outcome_of_death  # POSIX's, too

        detail = printable((ending.stderr.strip() or ending.stdout.strip())[-DETAIL_LIMIT:], "\n\t")
        code = ending.code
        if ending.timed_out:
            return infeasible(f"timed out after {self.timeout:g} s", fault="timeout", detail=detail)
        if code in self.lost_exit_codes:
            return lost(f"exited with code {code}", detail=detail)
        death = None if code in self.success_exit_codes else outcome_of_death(code)
        if death is not None and code is None:
            death = replace(death, reason="its exit code was taken by another part of this process")
        if death is not None and (death.status == "lost" or code is None or code < 0):
            return replace(death, detail=detail)
        in_file = any("{results}" in element for element in self.argv)
        answer, problem = find_answer(ending, directory, in_file)
        # A program may well say FAIL and exit with an error: that is its answer, in its own words.
        if isinstance(answer, Outcome):
            return replace(answer, detail=detail)
        if death is not None:
            return infeasible(death.reason, fault=death.fault, detail=detail + self._hint())
        if answer is None:
            return infeasible(problem, fault="garbled output", detail=detail)
        outcome = from_number(answer)
        return outcome if outcome.status == "value" else replace(outcome, detail=detail)

    def _hint(self) -> str:
        """The mistake everybody makes once: a relative path, for a program that runs elsewhere."""
        for element in self.argv[1:]:
            if not os.path.isabs(element) and os.path.isfile(os.path.join(str(self.here), element)):
                return f"\n{element!r} is a file in {self.here}, not where it ran; write '{{here}}/{element}'"
        return ""


# A decorator of the class would hide its signature from `help` and from type checkers.
Command.__init__ = names_options(Command.__init__)  # type: ignore[method-assign]


def _value(name: str, known: Mapping[str, Any]) -> Any:
    """What a placeholder stands for."""
    if name in known:
        return known[name]
    numbers = [other for other in known if re.fullmatch(r"x\d+", other)]
    if numbers and re.fullmatch(r"x\d{1,9}", name):
        raise ArgumentError(f"argv: found {{{name}}}, but points have {len(numbers)} coordinates, from x0 on")
    hint = nearest(name, islice(known, 1000))
    raise ArgumentError(
        f"argv: found the unknown placeholder {{{name}}}{hint} (for a brace itself, write it twice)"
    )


def _point(found: Mapping[Any, Any]) -> dict[str, Any]:
    """A point that somebody wrote by hand."""
    for name, value in found.items():
        if not isinstance(name, str) or not is_number(value):
            raise ArgumentError(f"x: found {shown(name)}: {shown(value)}, wanted names with finite numbers")
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def _strings(argument: str, found: Any) -> tuple[str, ...]:
    if isinstance(found, (str, bytes)):
        raise ArgumentError(
            f"{argument}: found one string, wanted a list such as {str(found).split()} (there is no shell to "
            "split it)"
        )
    try:
        strings = tuple(os.fspath(element) for element in found)
    except Exception:  # of the user's own class it may be anything
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a list of strings") from None
    for element in strings:
        if not isinstance(element, str) or "\0" in element or (not element and argument != "argv"):
            raise ArgumentError(f"{argument}: found {shown(element)}, wanted text")
    return strings


def _dict(argument: str, found: Any) -> dict[Any, Any]:
    try:
        return dict(found)
    except Exception:
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a dictionary") from None


def _codes(argument: str, found: Any) -> tuple[int, ...]:
    try:
        codes = tuple(found)
    except Exception:
        codes = (None,)
    if any(type(code) is not int or not 0 <= code <= 255 for code in codes):
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a list of exit codes from 0 to 255")
    return codes


def _fill(template: str, value: Callable[[str], str]) -> str:
    """The template with each {name} replaced by value(name), once and literally."""

    def one(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] is None:
            raise ArgumentError(f"argv: found a lonely {match[0]!r} in {template!r}, wanted it doubled")
        return value(match[1])

    return _BRACES.sub(one, template)
