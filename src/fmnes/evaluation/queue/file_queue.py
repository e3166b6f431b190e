"""`fmnes.FileQueue`: an executor for workers that share nothing but a directory."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import os
import shlex
import sys
import textwrap
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fmnes._files import read_plain
from fmnes.arguments import check_callable, check_path, is_number, shown, suggest_options
from fmnes.errors import ArgumentError
from fmnes.evaluation.programs.command import Command
from fmnes.evaluation.programs.inputs import MAX_TEMPLATE
from fmnes.evaluation.supervision import AwakeClock

if TYPE_CHECKING:
    from fmnes.evaluation.evaluator import Evaluator
    from fmnes.evaluation.queue.driver import LiveWorkers
    from fmnes.space import Space


class FileQueue:
    """An executor for workers that share only a directory, on any machine that sees it.

    Start any number of workers, at any time and on any machine, with `fmnes worker queue --function
    model:simulate`. A worker imports the objective itself, and is refused if its objective differs. Each
    evaluation is isolated and timed by its worker (`timeout=` works). If a worker or its machine dies, its
    evaluation is repeated elsewhere. The results are those of a run without workers.

    Parameters
    ----------
    directory : path
        A new or empty directory, or one in which a queue was made. One driver at a time can use it.
    lease : float, optional
        Seconds without a heartbeat after which a worker counts as dead.

    Raises
    ------
    ArgumentError
        `directory` is not a path, or `lease` is below 1.

    Examples
    --------
    >>> import os, tempfile
    >>> import fmnes
    >>> queue = fmnes.FileQueue(os.path.join(tempfile.mkdtemp(), "queue"), lease=30)
    >>> queue.lease
    30.0

    A run through it, which waits for workers:

    >>> fmnes.minimize(simulate, x0, sigma0, executor=queue, run_dir="run")  # doctest: +SKIP
    """

    def __init__(self, directory: str | os.PathLike[str], *, lease: float = 60.0) -> None:
        self.directory = Path(check_path("directory", directory)).absolute()
        if not is_number(lease) or lease < 1:
            raise ArgumentError(f"lease: found {shown(lease)}, wanted a number of seconds, at least 1")
        self.lease = float(lease)
        self._clock = AwakeClock()
        self._live: LiveWorkers | None = None

    def __repr__(self) -> str:
        return f"FileQueue({str(self.directory)!r})"

    def n_workers(self) -> int | None:
        """Return the number of workers that have registered and are not known to be dead.

        Returns
        -------
        int or None
            None if there is no queue yet.
        """
        return self._workers().count()

    def make_evaluator(
        self,
        fun: Any,
        d: int,
        *,
        timeout: float | None,
        retries: int,
        kept_in: str | None,
        space: Space | None,
    ) -> Evaluator:
        """Return the evaluator of a run; it locks the directory until it is closed.

        Parameters
        ----------
        fun : callable or Command
            The objective.
        d : int
            Number of coordinates.
        timeout : float or None
            Seconds for an evaluation.
        retries : int
            How often a lost evaluation is repeated.
        kept_in : str or None
            Folder of the run directory for the directories of failed programs.
        space : Space or None
            The named parameters.

        Returns
        -------
        Evaluator
            The evaluator.
        """
        from fmnes.evaluation.queue import files
        from fmnes.evaluation.queue.driver import QueueDriver, QueueEvaluator
        from fmnes.evaluation.queue.files import Job, new_driver
        from fmnes.evaluation.supervision import RetryKilled
        from fmnes.storage.directory import CONFIG
        from fmnes.storage.lock import RunLock

        objective = fingerprint(fun)
        if isinstance(fun, Command):
            _check_command(fun, d, space)
            timeout = fun.timeout if timeout is None else timeout
        run = os.path.realpath(os.path.dirname(kept_in)) if kept_in else ""
        files.make_queue(self.directory)
        lock = RunLock(self.directory / files.LOCK)
        try:
            job = Job(objective, d, timeout, self.lease, space, run, new_driver())
            driver = QueueDriver(
                self.directory,
                job,
                self._workers(),
                self._clock,
                call=_call(self.directory, fun),
                resumed=bool(run) and os.path.exists(os.path.join(run, CONFIG)),
            )
        except BaseException:
            lock.release()
            raise
        return RetryKilled(QueueEvaluator(driver, lock), retries)

    def _workers(self) -> LiveWorkers:
        from fmnes.evaluation.queue.driver import LiveWorkers

        if self._live is None:
            self._live = LiveWorkers(self.directory, self.lease, self._clock)
        return self._live


# A decorator of the class would hide its signature from `help` and from type checkers.
FileQueue.__init__ = suggest_options(FileQueue.__init__)  # type: ignore[method-assign]


def _check_command(command: Command, d: int, space: Space | None) -> None:
    """Check the files and placeholders. The program itself need exist on the workers' machines only."""
    from fmnes.evaluation.programs.inputs import point_of, read_inputs

    named = None if space is None else space.named(np.zeros(d))
    if named is not None and command.names is not None and tuple(named) != tuple(command.names):
        raise ArgumentError(f"names: found {command.names}, wanted those of the parameters: {tuple(named)}")
    point = point_of(command.names, np.zeros(d)) if named is None else named
    read_inputs(command).check(point, named is not None or command.names is not None)


def _call(directory: Path, fun: Any) -> str:
    """Return the command line that starts a worker for this objective, as far as it is known."""
    problem = getattr(fun, "problem_file", None)
    if problem is not None:
        return f"fmnes worker {shlex.quote(str(directory))} {shlex.quote(str(problem))}"
    module = getattr(fun, "__module__", None) or "module"
    if module == "__main__":  # workers import it by the name of its file
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or "module").stem
    name = getattr(fun, "__qualname__", None) or "name"
    return f"fmnes worker {shlex.quote(str(directory))} --function {shlex.quote(f'{module}:{name}')}"


# -- Hashes that show that a driver and its workers evaluate the same objective.
#
# The objective never goes through the queue's directory: each worker imports its own. The hash of a function
# covers its source text, default arguments, closure, and the arguments of `functools.partial` or the
# attributes of its object, if these are plain data, arrays or functions. That of a Command covers its
# arguments, how its answer is read, and the contents of its templates.
#
# Not covered: functions and modules that it calls, global variables, files and programs, the environment, and
# values that are not plain data (only their type). After changing those, restart the workers.

#: Settings on which a Command's answer depends.
_COMMAND = {
    "arguments": ("argv", "names"),
    "files": ("templates", "stdin", "copy", "link"),
    "answer": ("value", "outputs", "fail_if", "success_exit_codes", "lost_exit_codes"),
    "memory limit": ("memory_limit",),
}
_DEPTH = 20


class Fingerprint(NamedTuple):
    kind: str
    """function or command."""
    name: str
    """For messages."""
    parts: dict[str, str]
    """The hash of each part, by its name for messages."""

    @property
    def hash(self) -> str:
        text = json.dumps([self.kind, sorted(self.parts.items())])
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "hash": self.hash}

    @classmethod
    def from_json(cls, data: Any) -> Fingerprint:
        """Parse the output of `as_json`. Raises ValueError for anything else."""
        if not isinstance(data, dict) or set(data) != {"kind", "name", "parts", "hash"}:
            raise ValueError("no objective")
        kind, name, parts = data["kind"], data["name"], data["parts"]
        if not isinstance(parts, dict) or not all(
            isinstance(text, str) for text in (kind, name, *parts.values())
        ):
            raise ValueError("an invalid description of an objective")
        found = cls(kind, name, parts)
        if found.hash != data["hash"]:
            raise ValueError("an objective with the hash of another one")
        return found


def differences(ours: Fingerprint, theirs: Fingerprint) -> str:
    """Describe what differs; empty if nothing does."""
    if ours.kind != theirs.kind:
        return f"a {ours.kind} instead of a {theirs.kind}"
    names = dict.fromkeys([*theirs.parts, *ours.parts])
    return ", ".join(name for name in names if ours.parts.get(name) != theirs.parts.get(name))


def fingerprint(fun: Any) -> Fingerprint:
    """Return the fingerprint of an objective. Raises ArgumentError for what cannot be one."""
    if isinstance(fun, Command):
        return _of_command(fun)
    check_callable(fun)
    parts = {name: _hash(value) for name, value in _parts(fun, _text).items()}
    name = getattr(fun, "__qualname__", None) or type(fun).__qualname__
    return Fingerprint("function", str(name), parts)


def _of_command(command: Command) -> Fingerprint:
    plain = dataclasses.asdict(command)
    parts = {part: _hash([(name, _text(plain[name])) for name in names]) for part, names in _COMMAND.items()}
    parts["names of its environment"] = _hash(sorted(command.environment or {}))  # the values may be secrets
    for template in [*map(str, command.templates), *([] if command.stdin is None else [str(command.stdin)])]:
        try:
            data, _ = read_plain(f"{command.here}/{template}", MAX_TEMPLATE)
        except OSError as error:
            raise ArgumentError(
                f"templates: found {template!r}, which cannot be read: {error.strerror}"
            ) from None
        parts[f"the template {template}"] = hashlib.sha256(data).hexdigest()
    return Fingerprint("command", " ".join(command.argv)[:200], parts)


def _parts(fun: Any, text: Callable[[Any], str]) -> dict[str, str]:
    """Return the parts of a function by their names for messages; `text` converts values to text."""
    if isinstance(fun, functools.partial):
        return {**_parts(fun.func, text), "arguments of its partial": text([fun.args, fun.keywords])}
    if isinstance(fun, types.MethodType):
        return {**_parts(fun.__func__, text), "its object": text(fun.__self__)}
    if isinstance(fun, types.FunctionType):
        return {
            "source": _source(fun),
            "defaults": text([fun.__defaults__, fun.__kwdefaults__]),
            "closure": text([_inside(cell) for cell in fun.__closure__ or ()]),
        }
    if isinstance(fun, (types.BuiltinFunctionType, np.ufunc)):
        return {"name": f"{getattr(fun, '__module__', '')}.{fun.__name__}"}
    return {"source": _source(type(fun)), "its object": text(fun)}


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is empty
        return None


def _source(made: Any) -> str:
    """Return the source text, or the name if there is none, as in an interactive session.

    The module is left out: the driver's script is `__main__`, and its workers import it by its name.
    """
    try:
        # Not the wrapped function, which is in the closure.
        text = inspect.getsource(made if isinstance(made, type) else made.__code__)
        return "\n".join(line.rstrip() for line in textwrap.dedent(text).strip().splitlines())
    except (OSError, TypeError, IndexError, SyntaxError):
        return f"no source: {made.__qualname__}"


def _text(value: Any, seen: tuple[int, ...] = ()) -> str:
    """Convert a value to a text that is the same in every process if the value is plain data."""
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, float):
        return f"float {float(value).hex()}"
    if isinstance(value, complex):
        return f"complex {value.real.hex()} {value.imag.hex()}"
    if isinstance(value, (np.generic, np.ndarray)):
        array = np.ascontiguousarray(value)
        data = "" if array.dtype.hasobject else hashlib.sha256(array.tobytes()).hexdigest()
        return f"array {array.dtype.str} {np.shape(value)} {data}"
    if len(seen) >= _DEPTH or id(value) in seen:  # a cycle, such as a recursive function
        return "deeper"
    inner = functools.partial(_text, seen=(*seen, id(value)))
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} [{', '.join(map(inner, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__} {{{', '.join(sorted(map(inner, value)))}}}"
    if isinstance(value, Mapping):
        return f"mapping {{{', '.join(f'{inner(k)}: {inner(v)}' for k, v in value.items())}}}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type):
        return f"class {_source(value)}"
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        return f"function {_parts(value, inner)}"
    state = getattr(value, "__dict__", None) or {}
    plain = {name: held for name, held in state.items() if name != "__module__"}
    return f"object of {type(value).__qualname__} {inner(plain)}"


def _hash(value: Any) -> str:
    return hashlib.sha256(str(value).encode(errors="backslashreplace")).hexdigest()
