"""Hashes that show that a driver and its workers evaluate the same objective.

The objective never goes through the queue's directory: each worker imports its own. The hash of a function
covers its source text, default arguments, closure, and the arguments of `functools.partial` or the attributes
of its object, if these are plain data, arrays or functions. That of a Command covers its arguments, how its
answer is read, and the contents of its templates.

Not covered: functions and modules that it calls, global variables, files and programs, the environment, and
values that are not plain data (only their type). After changing those, restart the workers.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fmnes._files import read_plain
from fmnes.arguments import check_callable
from fmnes.errors import ArgumentError
from fmnes.evaluation.programs.command import Command
from fmnes.evaluation.programs.inputs import MAX_TEMPLATE

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
