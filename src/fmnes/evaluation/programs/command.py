"""External programs as objectives: a point goes in as arguments, files or JSON, a number comes out.

`Command` holds the settings, which `settling.py` checks. `inputs.py` fills `template.py`'s holes and lays out
what a program is given, `program.py` finds the program, `runnable.py` says whether it can run, `runner.py`
keeps some programs running, each in a directory of `workspace.py`, and `process.py` runs one of
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

from fmnes.arguments import is_number, names_options, shown
from fmnes.errors import ArgumentError, Infeasible, Lost
from fmnes.evaluation.evaluator import Task


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
        # Every run asks whether its objective is a Command; only one that is needs all this.
        from fmnes.evaluation.programs.settling import settle_all

        settle_all(self)

    def __call__(self, x: ArrayLike | Mapping[str, float]) -> float:
        """The value at x, an array or {name: value}.

        Raises `fmnes.Infeasible` or `fmnes.Lost`, with the details as a note.
        """
        named = _point(x) if isinstance(x, Mapping) else None
        point = np.asarray(x if named is None else list(named.values()), dtype=float).reshape(-1)
        if not np.isfinite(point).all():
            raise ArgumentError(f"x: found {point}, wanted finite numbers")
        from fmnes.evaluation.programs.runnable import check_runnable
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
