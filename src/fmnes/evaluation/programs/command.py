"""External programs as objectives: a point goes in as arguments, files or JSON, a number comes out.

`Command` holds the settings. `inputs.py` fills `template.py`'s holes and lays out what a program is given,
`program.py` finds the program, `runnable.py` says whether it can run,
`runner.py` keeps some programs running, each in a directory of `workspace.py`, and `process.py` runs one of
them. `verdict.py` says what came of it: from what it answers (`answer.py`), or from where the user says that
the value stands (`sources.py`). What it leaves running is for `guard.py`, what it leaves on disk for
`removal.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fmnes.arguments import check_number, check_path, is_number, names_options, shown
from fmnes.errors import ArgumentError, Infeasible, Lost
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs.checks import check_bytes, check_codes, check_strings
from fmnes.evaluation.programs.environment import check_environment
from fmnes.evaluation.programs.inputs import TAKEN, check_targets
from fmnes.evaluation.programs.runnable import check_runnable
from fmnes.evaluation.programs.sources import check_source
from fmnes.evaluation.programs.template import SomeNumber, parse_argument


@dataclass(frozen=True)
class Command:
    """An external program as objective, never run through a shell.

        space = {"width": fmnes.Real(0.1, 10, log=True), "layers": fmnes.Integer(1, 12)}
        fmnes.minimize(fmnes.Command(["./simulate", "{width}", "{layers}"], timeout=60), space)

        fmnes.Command(["solver", "beam.inp"], templates=["beam.inp.in"], value={"regex": r"mass =\\s*(\\S+)"})

    The program runs in a fresh directory each time. What it is given:

    argv: a list, the program and its arguments. In these `{name}` stands for a parameter (`{x0}`, `{x1}`, …
        for points without names), `{name:12.5e}` for one in a format of Python's, `{params}` for the path of
        a JSON file with the point, `{results}` for that of a file the program may write, `{here}` for the
        directory we are in now, and `{{` and `}}` for braces.
    names: a name for each coordinate of an array; named parameters bring their own.
    templates: text files with such placeholders. "deck.inp.in" is written as "deck.inp" into the directory.
        Braces of another form are the file's own; `{{name}}` gives `{name}` itself.
    stdin: a template for standard input. Without one it is the JSON: {"x": [...], "params": {name: value},
        "generation", "slot", "redraw", "attempt", "restart"}.
    copy, link: files or folders of yours, copied or linked into the directory.
    environment: adds to ours; None removes a variable. Unless they are set, OMP_NUM_THREADS and its like are
        1: one thread for each program.
    here: where relative paths start, of the program, templates and files; by default the current directory.
    problem_file: the problem file it came from, where `fmnes.resume` reads `environment` again.

    What it answers: the results file if there is one, else the last line printed that is not empty: a number;
    {"f": number}, {"value": number} or {"fail": "reason"}; or the word FAIL, perhaps with a reason. Or:

    value: where the value stands instead. {"regex": ...} is searched in the output (^ and $ are a line's),
        {"file": ..., "regex": ...} in a file; the last match counts, its group 1 if it has one. Or
        {"file": ..., "json": "drag.total[0]"}; or {"file": ...}, its last line. 1.5D+03 is a number, too.
    outputs: further ones to keep beside the value, {name: a source as above}; None where it is not found.
    fail_if: a text, or a list of them, which means failed wherever it is printed; it is the reason.

    Failed is a run that says so, gives no finite number, exits with a code not in `success_exit_codes`,
    crashes or takes too long. Lost (not the point's fault: it is tried again) is one that exits with one of
    `lost_exit_codes`, or is ended from outside: by SIGTERM, SIGINT or SIGHUP, or with the exit code that a
    shell makes of them.

    timeout: seconds, while it is not suspended.
    memory_limit: bytes of address space of each of its processes, or a text such as "2 GB"; on Linux.
    success_exit_codes: those of a program that has done its work; -8 for one that dies of signal 8 then.
    lost_exit_codes: those that are not the point's fault.

    Which directories stay for you to look at:

    keep: those of "failed" evaluations, "all" or "none".
    max_kept: at most so many; the first of each reason before all others, then the latest.
    directory: where they are made and kept. By default they are made where the system has its temporary
        files, and kept in the run directory's `kept` if there is one.
    """

    argv: Sequence[str]
    _: KW_ONLY
    names: Sequence[str] | None = None
    templates: Sequence[str | os.PathLike[str]] = ()
    stdin: str | os.PathLike[str] | None = None
    copy: Sequence[str | os.PathLike[str]] = ()
    link: Sequence[str | os.PathLike[str]] = ()
    environment: Mapping[str, str | None] | None = field(default=None, repr=False, hash=False)  # secrets
    here: str | os.PathLike[str] | None = None
    problem_file: str | os.PathLike[str] | None = None
    value: Mapping[str, str] | None = field(default=None, hash=False)
    outputs: Mapping[str, Mapping[str, str]] | None = field(default=None, hash=False)
    fail_if: str | Sequence[str] = ()
    timeout: float | None = None
    memory_limit: int | str | None = None
    success_exit_codes: Sequence[int] = (0,)
    lost_exit_codes: Sequence[int] = (75,)  # EX_TEMPFAIL of sysexits.h
    keep: Literal["failed", "all", "none"] = "failed"
    max_kept: int = 100
    directory: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        def settle(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        settle("argv", check_strings("argv", self.argv))
        settle("names", None if self.names is None else check_strings("names", self.names))
        for name in ("templates", "copy", "link"):
            settle(name, check_strings(name, getattr(self, name)))
        for name in ("stdin", "problem_file", "directory"):
            if getattr(self, name) is not None:
                settle(name, check_path(name, getattr(self, name)))
        settle("here", os.path.abspath(check_path("here", "." if self.here is None else self.here)))
        for name in ("problem_file", "directory"):
            if getattr(self, name) is not None:
                settle(name, os.path.abspath(getattr(self, name)))
        settle("environment", check_environment(self.environment))
        settle("value", None if self.value is None else check_source("value", self.value))
        settle("outputs", _outputs(self.outputs))
        texts = [self.fail_if] if isinstance(self.fail_if, str) and self.fail_if else self.fail_if
        settle("fail_if", check_strings("fail_if", texts))
        if any(not text.strip() or len(text) > 1000 for text in self.fail_if):
            raise ArgumentError("fail_if: found a blank text, or one of more than 1000 characters")
        settle("timeout", check_number("timeout", self.timeout, above=0))
        settle("memory_limit", check_bytes("memory_limit", self.memory_limit))
        settle("max_kept", check_number("max_kept", self.max_kept, above=-1, whole=True) or 0)
        settle("success_exit_codes", check_codes("success_exit_codes", self.success_exit_codes, signals=True))
        settle("lost_exit_codes", check_codes("lost_exit_codes", self.lost_exit_codes))
        names = self.names or ()
        if len(set(names)) < len(names) or set(TAKEN) & set(names):
            raise ArgumentError(f"names: found {names}, wanted one for each; params, results, here are taken")
        if not isinstance(self.keep, str) or self.keep not in ("failed", "all", "none"):
            raise ArgumentError(f"keep: found {shown(self.keep)}, wanted 'failed', 'all' or 'none'")
        both = set(self.lost_exit_codes) & set(self.success_exit_codes)
        if both:
            raise ArgumentError(f"lost_exit_codes: found {both}, which are success_exit_codes as well")
        if not self.argv:
            raise ArgumentError("argv: found an empty list, wanted the program and its arguments")
        check_targets(self)
        for element in self.argv:
            template = parse_argument(element)
            if self.names is not None:
                template.fill({**dict.fromkeys(TAKEN, ""), **dict.fromkeys(names, SomeNumber())})

    def __call__(self, x: ArrayLike | Mapping[str, float]) -> float:
        """The value at x, an array or {name: value}.

        Raises `fmnes.Infeasible` or `fmnes.Lost`, with the details as a note.
        """
        named = _point(x) if isinstance(x, Mapping) else None
        point = np.asarray(x if named is None else list(named.values()), dtype=float).reshape(-1)
        if not np.isfinite(point).all():
            raise ArgumentError(f"x: found {point}, wanted finite numbers")
        from fmnes.evaluation.programs.runner import run_once  # which knows this class, and is POSIX's

        check_runnable(self, point.size, named)
        outcome = run_once(self, Task(point, 0, 0), named=named)
        if outcome.status == "value":
            return outcome.value
        error = (Lost if outcome.status == "lost" else Infeasible)(outcome.reason)
        error.add_note(outcome.detail)
        raise error


# A decorator of the class would hide its signature from `help` and from type checkers.
Command.__init__ = names_options(Command.__init__)  # type: ignore[method-assign]


def _point(found: Mapping[Any, Any]) -> dict[str, Any]:
    """A point that somebody wrote by hand."""
    for name, value in found.items():
        if not isinstance(name, str) or not is_number(value):
            raise ArgumentError(f"x: found {shown(name)}: {shown(value)}, wanted names with finite numbers")
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def _outputs(found: Any) -> dict[str, dict[str, str]]:
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ArgumentError(f"outputs: found {shown(found)}, wanted such as {{'mass': {{'regex': ...}}}}")
    for name in found:
        if not isinstance(name, str) or not name.strip() or "\0" in name:
            raise ArgumentError(f"outputs: found the name {shown(name)}, wanted text such as 'mass'")
    return {name: check_source(f"outputs, {name}", source) for name, source in found.items()}
