"""External programs as objectives: the command and its settings."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fmnes.arguments import check_number, check_path, is_number, shown, suggest_options
from fmnes.errors import ArgumentError, Infeasible, Lost
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs.answer import check_source
from fmnes.evaluation.programs.checks import check_bytes, check_codes, check_environment, check_strings
from fmnes.evaluation.programs.inputs import (
    TAKEN,
    SomeNumber,
    check_no_shell,
    check_program,
    check_targets,
    parse_argument,
    point_of,
    read_inputs,
)
from fmnes.evaluation.supervision import need_supervision
from fmnes.identity import EvaluationId
from fmnes.outcome import read_outputs

# -- External programs as objectives: the command and its settings.


def validate(command: Command) -> None:
    """Normalise all settings of a Command; raises ArgumentError for invalid ones."""

    def settle(name: str, value: Any) -> None:
        object.__setattr__(command, name, value)

    settle("argv", check_strings("argv", command.argv))
    settle("names", None if command.names is None else check_strings("names", command.names))
    for name in ("templates", "copy", "link"):
        settle(name, check_strings(name, getattr(command, name)))
    for name in ("stdin", "problem_file", "directory"):
        if getattr(command, name) is not None:
            settle(name, check_path(name, getattr(command, name)))
    settle("here", os.path.abspath(check_path("here", "." if command.here is None else command.here)))
    for name in ("problem_file", "directory"):
        if getattr(command, name) is not None:
            settle(name, os.path.abspath(getattr(command, name)))
    settle("environment", check_environment(command.environment))
    settle("value", None if command.value is None else check_source("value", command.value))
    settle("outputs", _outputs(command.outputs))
    texts = [command.fail_if] if isinstance(command.fail_if, str) and command.fail_if else command.fail_if
    settle("fail_if", check_strings("fail_if", texts))
    if any(not text.strip() or len(text) > 1000 for text in command.fail_if):
        raise ArgumentError("fail_if: found a blank text, or one of more than 1000 characters")
    settle("timeout", check_number("timeout", command.timeout, above=0))
    settle("memory_limit", check_bytes("memory_limit", command.memory_limit))
    settle("max_kept", check_number("max_kept", command.max_kept, above=-1, whole=True) or 0)
    settle("success_exit_codes", check_codes("success_exit_codes", command.success_exit_codes, signals=True))
    settle("lost_exit_codes", check_codes("lost_exit_codes", command.lost_exit_codes))
    names = command.names or ()
    if len(set(names)) < len(names) or set(TAKEN) & set(names):
        raise ArgumentError(f"names: found {names}, wanted one for each; params, results, here are taken")
    if not isinstance(command.keep, str) or command.keep not in ("failed", "all", "none"):
        raise ArgumentError(f"keep: found {shown(command.keep)}, wanted 'failed', 'all' or 'none'")
    both = set(command.lost_exit_codes) & set(command.success_exit_codes)
    if both:
        raise ArgumentError(f"lost_exit_codes: found {both}, which are success_exit_codes as well")
    if not command.argv:
        raise ArgumentError("argv: found an empty list, wanted the program and its arguments")
    check_targets(command)
    for element in command.argv:
        template = parse_argument(element)
        if command.names is not None:
            template.fill({**dict.fromkeys(TAKEN, ""), **dict.fromkeys(names, SomeNumber())})


def _outputs(found: Any) -> dict[str, dict[str, str]]:
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ArgumentError(f"outputs: found {shown(found)}, wanted such as {{'mass': {{'regex': ...}}}}")
    try:  # as what a function returns: too many, or a name that cannot be written
        read_outputs(dict.fromkeys(found))
    except TypeError as error:
        raise ArgumentError(f"outputs: found {error}") from None
    for name in found:
        if "\0" in name:
            raise ArgumentError(f"outputs: found the name {shown(name)}, wanted text such as 'mass'")
    return {name: check_source(f"outputs, {name}", source) for name, source in found.items()}


@dataclass(frozen=True)
class Command:
    r"""An external program as objective, never run through a shell.

    The program runs in a new directory each time. It answers with the results file if there is one, otherwise
    with the last line of its output that is not empty: a number; {"f": number}, {"value": number} or
    {"fail": "reason"}; or the word FAIL, optionally with a reason.

    An evaluation has failed if the program reports it, gives no finite number, exits with a code not in
    `success_exit_codes`, crashes or takes too long. It is lost (the point is not at fault and is tried again)
    if the program exits with one of `lost_exit_codes`, or is ended from outside: by SIGTERM, SIGINT or
    SIGHUP, or with the exit code that a shell makes of them.

    Parameters
    ----------
    argv : sequence of str
        The program and its arguments. In these `{name}` is replaced by a parameter (`{x0}`, `{x1}`, … for
        points without names), `{name:12.5e}` by one in a format of Python, `{params}` by the path of a JSON
        file with the point, `{results}` by that of a file that the program may write, `{here}` by the
        directory in which fmnes runs, and `{{` and `}}` by braces.
    names : sequence of str, optional
        A name for each coordinate of an array; named parameters have their own.
    templates : sequence of path, optional
        Text files with such placeholders. "deck.inp.in" is written as "deck.inp" into the directory. Braces
        of another form are left as they are; `{{name}}` gives `{name}` itself.
    stdin : path, optional
        A template for standard input. The default is the JSON {"x": [...], "params": {name: value},
        "generation", "slot", "redraw", "attempt", "restart"}.
    copy : sequence of path, optional
        Files or folders that are copied into the directory.
    link : sequence of path, optional
        Files or folders that are linked into the directory.
    environment : dict of str to str or None, optional
        Additional environment variables; None removes a variable. Unless they are set, OMP_NUM_THREADS and
        similar variables are 1: one thread for each program.
    here : path, optional
        Where relative paths of the program, templates and files start; by default the current directory.
    problem_file : path, optional
        The problem file it came from, in which `fmnes.resume` reads `environment` again.
    value : dict of str to str, optional
        Where the value is instead. {"regex": ...} is searched in the output (^ and $ match at lines),
        {"file": ..., "regex": ...} in a file; the last match counts, its group 1 if it has one. {"file": ...,
        "json": "drag.total[0]"} reads JSON, and {"file": ...} the last line. 1.5D+03 is a number too.
        A search takes at most what is left of the timeout, at least 1 s and at most 60 s; then the evaluation
        has failed.
    outputs : dict of str to dict, optional
        Further outputs to store beside the value, {name: a source as above}; None if it is not found.
    fail_if : str or sequence of str, optional
        Plain strings (not regular expressions) that mean failure if they are printed; the string is the
        reason.
    timeout : float, optional
        Seconds, not counting time in which the machine is suspended.
    memory_limit : int or str, optional
        Bytes of address space of each of its processes, or a string such as "2 GB"; on Linux.
    success_exit_codes : sequence of int, optional
        Exit codes of a program that has finished its work; -8 for one that dies of signal 8 then.
    lost_exit_codes : sequence of int, optional
        Exit codes that mean that the point is not at fault.
    keep : {"failed", "all", "none"}, optional
        Which directories are kept.
    max_kept : int, optional
        Keep at most this number; the first of each reason has priority, then the latest.
    directory : path, optional
        Where directories are made and kept. By default they are made in the system's directory for temporary
        files, and kept in `kept` of the run directory if there is one.

    Raises
    ------
    ArgumentError
        An argument is wrong, or a template or file is missing.

    Examples
    --------
    >>> import sys
    >>> import fmnes
    >>> program = fmnes.Command([sys.executable, "-c", "print({width} ** 2)"], timeout=60)
    >>> program({"width": 3.0})
    9.0
    >>> fmnes.minimize(program, {"width": fmnes.Real(0.1, 10)}, max_evaluations=5, rng=1).nfev
    5
    >>> solver = fmnes.Command(["solver", "beam.inp"], value={"regex": r"mass =\s*(\S+)"})
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
        validate(self)

    def __call__(self, x: ArrayLike | Mapping[str, float]) -> float:
        """Run the program once and return its value.

        Parameters
        ----------
        x : array_like or dict of str to float
            The point.

        Returns
        -------
        float
            The value.

        Raises
        ------
        Infeasible
            The evaluation failed; the details are a note.
        Lost
            The evaluation was lost; the details are a note.
        ArgumentError
            The point does not have finite numbers, or the program cannot be run.
        """
        named = _point(x) if isinstance(x, Mapping) else None
        point = np.asarray(x if named is None else list(named.values()), dtype=float).reshape(-1)
        if not np.isfinite(point).all():
            raise ArgumentError(f"x: found {point}, wanted finite numbers")
        from fmnes.evaluation.programs.runner import run_once  # imports this module; POSIX only

        check_runnable(self, point.size, named)
        outcome = run_once(self, Task(point, EvaluationId(0, 0, 0)), named=named)
        if outcome.status == "value":
            return outcome.value
        error = (Lost if outcome.status == "lost" else Infeasible)(outcome.reason)
        error.add_note(outcome.detail)
        raise error


# A decorator of the class would hide its signature from `help` and from type checkers.
Command.__init__ = suggest_options(Command.__init__)  # type: ignore[method-assign]


def _point(found: Mapping[Any, Any]) -> dict[str, Any]:
    """Check a point given by name."""
    for name, value in found.items():
        if not isinstance(name, str) or not is_number(value):
            raise ArgumentError(f"x: found {shown(name)}: {shown(value)}, wanted names with finite numbers")
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


# -- Checks that a command can run, before the first evaluation.


def check_runnable(
    command: Command,
    d: int | None = None,
    names: Iterable[str] | Mapping[str, Any] | None = None,
    *,
    elsewhere: bool = False,
) -> None:
    """Raise ArgumentError if the command cannot run with points of d coordinates or of these names.

    names: those of the parameters; or a point, {name: value}, which also shows which are integers.
    elsewhere: it runs on other machines, so the program itself is not checked.
    """
    check_no_shell(command)
    _check_names(command, d, names)
    if elsewhere:
        return
    need_supervision("Command")
    check_program(command)
    if command.memory_limit is not None and not sys.platform.startswith("linux"):
        raise ArgumentError(f"memory_limit: found {command.memory_limit}, wanted None: it needs Linux")
    place = Path(command.directory or tempfile.gettempdir())
    place = place if place.exists() else place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise ArgumentError(f"directory: found {str(place)!r}, wanted a directory we may write to")


def _check_names(command: Command, d: int | None, names: Iterable[str] | None) -> None:
    inputs = read_inputs(command)
    if names is None:
        if d is not None:
            inputs.check(point_of(command.names, np.zeros(d)), command.names is not None)
        return
    names = names if isinstance(names, Mapping) else tuple(names)
    if command.names is not None and tuple(names) != command.names:
        raise ArgumentError(f"names: found {command.names}, wanted those of the parameters: {tuple(names)}")
    for name in TAKEN:
        if name in names:
            raise ArgumentError(f"parameters: found the name {name!r}, which is taken; wanted another")
    inputs.check(names, True)
