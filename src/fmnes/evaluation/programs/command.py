"""External programs as objectives: the command and its settings."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fmnes._files import read_plain
from fmnes.arguments import check_number, check_path, is_number, shown, suggest_options
from fmnes.errors import ArgumentError, Infeasible, Lost
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs.answer import check_source
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
from fmnes.outcome import EvaluationId, read_outputs

# -- Checks of the settings

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_BYTES = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?I?B?)", re.ASCII | re.IGNORECASE)
#: No program starts with less.
_LEAST_BYTES = 2**20


def check_strings(argument: str, found: Any) -> tuple[str, ...]:
    if isinstance(found, (str, bytes)):
        text = str(found)
        wanted = f"{text.split()} (there is no shell to split it)" if argument == "argv" else f"[{text!r}]"
        raise ArgumentError(f"{argument}: found one string, wanted a list such as {wanted}")
    try:
        strings = tuple(os.fspath(element) for element in found)
    except Exception:  # a class of the user may raise anything
        raise ArgumentError(f"{argument}: found {shown(found)}, wanted a list of strings") from None
    for element in strings:
        if not isinstance(element, str) or "\0" in element or (not element and argument != "argv"):
            raise ArgumentError(f"{argument}: found {shown(element)}, wanted text")
    return strings


def check_codes(argument: str, found: Any, *, signals: bool = False) -> tuple[int, ...]:
    """Check exit codes; with `signals`, also negative signal numbers."""
    try:
        codes = tuple(found)
    except Exception:
        codes = (None,)
    least = -64 if signals else 0
    if any(type(code) is not int or not least <= code <= 255 for code in codes):
        also = ", or from -1 to -64 for signals" if signals else ""
        raise ArgumentError(
            f"{argument}: found {shown(found)}, wanted a list of exit codes from 0 to 255{also}"
        )
    return codes


def check_bytes(argument: str, found: Any) -> int | None:
    """Check a number of bytes, or a text such as "2 GB"."""
    if found is None:
        return None
    match = _BYTES.fullmatch(found.strip()) if isinstance(found, str) else None
    size = float(found) if is_number(found) else 0.0
    if match and match[2].upper() in _UNITS:
        size = float(match[1]) * _UNITS[match[2].upper()]
    if not _LEAST_BYTES <= size < 2**62:
        raise ArgumentError(
            f"{argument}: found {shown(found)}, wanted a number of bytes, or such as '2 GB' or '500 MB'"
        )
    return int(size)


# -- Text of a problem file


#: Largest problem file in bytes; one with a hundred thousand parameters is smaller.
MAX_BYTES = 8 * 2**20
#: Most dots in a line outside of strings and comments: parsing a key with many parts would exhaust memory.
MAX_DOTS = 50
_STRING_OR_COMMENT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*")
#: The form of `tomllib`'s messages.
_ERROR = re.compile(r"(.+) \(at line (\d+), column \d+\)", re.S)
_TWICE = re.compile(r"Cannot declare \('parameters', (.+)\) twice", re.S)


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a problem file; only plain files up to MAX_BYTES are accepted."""
    try:
        data, _ = read_plain(os.fspath(path), MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise ArgumentError(f"{path}: found more than {MAX_BYTES} bytes, wanted a problem file")
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ArgumentError(
            f"{path}: found a byte that is not UTF-8 in line {line}, wanted a text file saved as UTF-8"
        ) from None
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read ({error.strerror}), wanted a problem file") from None


def parse(text: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Parse TOML; errors name the line."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MAX_DOTS and _STRING_OR_COMMENT.sub("", line).count(".") > MAX_DOTS:
            raise ArgumentError(f"{path}, line {number}: found more than {MAX_DOTS} dots, wanted TOML")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, a number of too many digits, too deeply nested
        said = _ERROR.fullmatch(str(error))
        where, what = (f", line {said[2]}", said[1]) if said else ("", str(error))
        twice = _TWICE.fullmatch(what)
        if twice:
            raise ArgumentError(
                f"{path}{where}: found two parameters of the name {twice[1]}, wanted one name for each"
            ) from None
        if what == "Cannot overwrite a value":
            raise ArgumentError(f"{path}{where}: found a key for the second time, wanted it once") from None
        raise ArgumentError(
            f"{path}{where}: found what is not TOML ({what[:200]}), wanted TOML: key = value, text in "
            "quotes, lists in [ ]"
        ) from None


# -- The environment of a program


#: One thread for each program: several programs with a thread per core each would be many times slower.
#: ngspice only respects OMP_THREAD_LIMIT.
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def variables(ours: Mapping[str, str], theirs: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return the environment of a program: that of this process, one thread, and the user's settings."""
    said = {**ours, **(theirs or {})}
    joined = {**dict.fromkeys(ONE_THREAD, "1"), **said}
    if "OMP_THREAD_LIMIT" not in said:  # do not limit a user's own OMP_NUM_THREADS
        threads = joined["OMP_NUM_THREADS"] or ""
        joined["OMP_THREAD_LIMIT"] = threads if threads.isdecimal() else None
    return {name: value for name, value in joined.items() if value is not None}


def check_environment(found: Any) -> dict[str, str | None]:
    """Check an environment; None removes a variable. Raises ArgumentError."""
    try:
        environment = {} if found is None else dict(found)
    except Exception:  # a class of the user may raise anything
        raise ArgumentError(f"environment: found {shown(found)}, wanted a dictionary") from None
    for name, value in environment.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ArgumentError(f"environment: found {shown(name)}, wanted a name without '='")
        if value is not None and (not isinstance(value, str) or "\0" in value):
            # Not the value itself, which may be a secret.
            raise ArgumentError(
                f"environment: found {name} of type {type(value).__name__}, wanted text such as '4'"
            )
    return environment


def environment_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the program's environment in the tables of a problem file."""
    program = data.get("program", {})
    found = program.get("environment", {}) if isinstance(program, Mapping) else {}
    if not isinstance(found, Mapping):
        raise ArgumentError(f"environment: found {shown(found)}, wanted a table such as {{ NAME = '4' }}")
    return {name: value for name, value in check_environment(found).items() if value is not None}


def read_environment(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the program's environment from a problem file: a run directory keeps only the names.

    Raises ArgumentError if the file is missing or invalid.
    """
    name = check_path("problem_file", path)
    if not os.path.exists(name):
        raise ArgumentError(
            f"{name}: found no problem file, wanted it for the program's environment, which a run directory "
            "does not keep"
        )
    data = parse(read_text(name), name)
    try:
        return environment_of(data)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from None


# -- The command


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
