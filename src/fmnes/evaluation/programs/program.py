"""The program of a command: where it is, and whether it can be started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from fmnes.errors import ArgumentError
from fmnes.evaluation.programs.template import Hole, parse_argument

if TYPE_CHECKING:
    from fmnes.evaluation.programs.command import Command


def find_program(command: Command) -> str:
    """The path of the program, absolute because it does not run here."""
    template = parse_argument(command.argv[0])
    for hole in template.pieces:
        if isinstance(hole, Hole) and hole.text != "here":
            raise ArgumentError(
                f"argv: found {{{hole.text}}} in the program's name, wanted it among the arguments, each of "
                "which is an element of the list"
            )
    name = template.fill({"here": str(command.here)})
    if os.sep not in name:
        name = shutil.which(name, path=(command.environment or {}).get("PATH")) or name
    return os.path.join(str(command.here), name.removeprefix("./")) if os.sep in name else name


#: What a shell would obey. A program that takes one of these as its argument is started by `sh -c`.
_OF_A_SHELL = ("|", "||", "&&", "&", ">", ">>", "<", "<<", "2>", "2>&1", "&>")
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "fish")


def check_no_shell(command: Command) -> None:
    """Raises ArgumentError for a pipe or a redirection among the arguments: no shell would see it."""
    found = next((word for word in command.argv[1:] if word in _OF_A_SHELL), None)
    if found is None or os.path.basename(command.argv[0]) in _SHELLS:
        return
    program = re.sub(r"^\./", "{here}/", command.argv[0])
    line = shlex.join([program, *command.argv[1:]]).replace(f"'{found}'", found)
    raise ArgumentError(
        f"argv: found {found!r}, which only a shell understands, and none is used; write a script with that "
        f"line, or ['sh', '-c', {line!r}]"
    )


def check_program(command: Command) -> None:
    name = command.argv[0]
    path = find_program(command)
    if os.sep not in path or not os.path.exists(path):
        beside = os.sep not in name and os.path.exists(os.path.join(str(command.here), name))
        where = f"at {path}" if os.sep in name else "on the PATH, or a path to one"
        hint = f"; did you mean './{name}'?" if beside else f", wanted one {where}"
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
        if first.startswith(b"#!") and not os.access(os.path.join(str(command.here), interpreter), os.X_OK):
            windows = " (it ends in \\r: save the file with Unix line ends)" * interpreter.endswith("\r")
            raise ArgumentError(
                f"argv: found {name!r}, whose interpreter {interpreter!r} is missing{windows}"
            )
