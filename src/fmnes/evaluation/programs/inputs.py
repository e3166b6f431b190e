"""What a program is given: arguments, input files made from templates, standard input, support files.

Templates are read once, by `read_inputs`; for each evaluation they are only filled.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fmnes.arguments import shown
from fmnes.errors import ArgumentError
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs.checks import read_plain
from fmnes.evaluation.programs.process import PARAMS, RESULTS, STDERR, STDIN, STDOUT
from fmnes.evaluation.programs.program import find_program
from fmnes.evaluation.programs.template import SomeNumber, Template, parse_argument, parse_file
from fmnes.result import Vector

if TYPE_CHECKING:
    from fmnes.evaluation.programs.command import Command

#: Files whose paths have names of their own in arguments and templates.
FILES = {"params": PARAMS, "results": RESULTS}
#: What stands for something else than a parameter.
TAKEN = (*FILES, "here")
#: A deck of a million lines has less.
MAX_TEMPLATE = 64 * 2**20
_OURS = (PARAMS, RESULTS, STDIN, STDOUT, STDERR)


class Deck(NamedTuple):
    """An input file to be made."""

    target: str
    template: Template
    mode: int
    """Its permissions: a template that may be run makes a script that may be run."""


class Support(NamedTuple):
    """A file or folder of the user's that the program finds beside its own."""

    source: str
    target: str
    how: str


class Inputs(NamedTuple):
    program: str
    here: str
    arguments: tuple[Template, ...]
    decks: tuple[Deck, ...]
    stdin: Template | None
    support: tuple[Support, ...]

    @property
    def templates(self) -> list[Template]:
        decks = [deck.template for deck in self.decks]
        return [*self.arguments, *decks, *([] if self.stdin is None else [self.stdin])]

    @property
    def name_results(self) -> bool:
        """Whether the program is told where to write its results."""
        return any("results" in template.names({}) for template in self.templates)

    def check(self, point: Iterable[str] | Mapping[str, Any], has_names: bool) -> None:
        """Raises ArgumentError if these parameters and the placeholders do not fit each other.

        point: the names, or one point with values, which also tells whole numbers.
        """
        values = point if isinstance(point, Mapping) else dict.fromkeys(point, SomeNumber())
        known = self._known(values, Path())
        used: set[str] = set()
        for template in self.templates:
            template.fill(known)
            used |= template.names(known)
        unused = [name for name in values if name not in used]
        written = self.decks or self.stdin or any(name in used for name in values)
        if has_names and unused and written and "params" not in used:
            name = unused[0]
            wanted = f"{{{name}}} somewhere" if name.isidentifier() else "a name of letters, digits and _"
            raise ArgumentError(
                f"parameters: found {shown(name)} in no placeholder of {self._places()}, wanted {wanted}, or "
                "{params}, the path of a JSON file with all of them"
            )

    def write(self, task: Task, point: Mapping[str, Any], has_names: bool, directory: Path) -> list[str]:
        """Everything the program finds in its directory; returns argv."""
        known = self._known(point, directory)
        argv = [self.program, *(argument.fill(known) for argument in self.arguments)]
        (directory / PARAMS).write_text(_json(task, point, has_names), encoding="utf-8")
        if self.stdin is not None:
            (directory / STDIN).write_bytes(self.stdin.fill(known).encode())
        for deck in self.decks:
            path = directory / deck.target
            path.write_bytes(deck.template.fill(known).encode())
            if deck.mode & 0o100:
                path.chmod(0o700)
        for support in self.support:
            _place(support, directory)
        return argv

    def is_old(self, file: str, directory: Path) -> bool:
        """Whether a file is still as it was copied: then it is not the program's answer."""
        first, *rest = Path(file).parts
        for one in self.support:
            if one.target == first:
                with suppress(OSError):
                    theirs, ours = Path(one.source, *rest).stat(), (directory / file).lstat()
                    return (theirs.st_size, theirs.st_mtime_ns) == (ours.st_size, ours.st_mtime_ns)
        return False

    def _known(self, point: Mapping[str, Any], directory: Path) -> dict[str, Any]:
        files = {name: str(directory / file) for name, file in FILES.items()}
        return {**files, "here": self.here, **point}

    def _places(self) -> str:
        names = dict.fromkeys(template.where for template in self.templates)
        return ", ".join(names) if len(names) <= 5 else f"argv and {len(names) - 1} files"


def point_of(names: Sequence[str] | None, x: Vector) -> dict[str, Any]:
    """The point as {name: value}; x0, x1, … where it has no names. x: (d,)"""
    if names is None:
        return {f"x{i}": value for i, value in enumerate(x.tolist())}
    if len(x) != len(names):
        raise ArgumentError(f"names: found {len(names)} for a point of {len(x)} coordinates")
    return dict(zip(names, x.tolist(), strict=True))


def read_inputs(command: Command) -> Inputs:
    """Raises ArgumentError if a template or a support file is not there, or not what it must be."""
    here = str(command.here)
    decks = []
    support = []
    for argument, path in files_of(command):
        if argument == "templates":
            template, mode = _read_template(argument, here, path)
            decks.append(Deck(target_of(argument, path), template, mode))
        else:
            support.append(Support(os.path.join(here, path), target_of(argument, path), argument))
            _check_support(support[-1], str(command.directory or tempfile.gettempdir()))
    stdin = None if command.stdin is None else _read_template("stdin", here, str(command.stdin))[0]
    arguments = tuple(parse_argument(element) for element in command.argv[1:])
    return Inputs(find_program(command), here, arguments, tuple(decks), stdin, tuple(support))


def check_targets(command: Command) -> None:
    """Raises ArgumentError for two files of one name in the evaluation's directory, or one of ours.

    So for an answer in what is linked: all evaluations would write to one file.
    """
    links = {target_of("link", str(path)): str(path) for path in command.link}
    for source in [command.value or {}, *(command.outputs or {}).values()]:
        file = source.get("file", "stdout.txt")
        if Path(file).parts[0] in links:
            raise ArgumentError(
                f"link: found {links[Path(file).parts[0]]!r}, where the program is to write {file!r}, the "
                "same for all evaluations; wanted copy="
            )
    seen: dict[str, str] = {}
    for argument, path in files_of(command):
        target = target_of(argument, path)
        if target in _OURS:
            raise ArgumentError(
                f"{argument}: found {path!r}, whose name {target} is taken in an evaluation's directory; "
                "wanted another name"
            )
        if target in seen:
            raise ArgumentError(
                f"{argument}: found {path!r} beside {seen[target]!r}: both would be {target!r} in an "
                "evaluation's directory; wanted another name"
            )
        seen[target] = path


def target_of(argument: str, path: str) -> str:
    """The name of a file in the evaluation's directory."""
    name = os.path.basename(os.path.normpath(path))
    target = name.removesuffix(".in") if argument == "templates" else name
    if target in ("", ".", "..", os.sep):
        raise ArgumentError(f"{argument}: found {path!r}, wanted a file with a name such as deck.inp.in")
    return target


def files_of(command: Command) -> list[tuple[str, str]]:
    """The user's files, each with the argument it comes from."""
    arguments = {"templates": command.templates, "copy": command.copy, "link": command.link}
    return [(argument, str(path)) for argument, paths in arguments.items() for path in paths]


def _json(task: Task, point: Mapping[str, Any], has_names: bool) -> str:
    """The JSON for one point, with its names if it has some; numbers keep all their digits."""
    said = {"x": list(point.values()), **({"params": point} if has_names else {})}
    return json.dumps({**said, **{k: v for k, v in task._asdict().items() if k != "x"}}) + "\n"


def _read_template(argument: str, here: str, path: str) -> tuple[Template, int]:
    """A template and its permissions."""
    try:
        data, mode = read_plain(os.path.join(here, path), MAX_TEMPLATE)
    except (FileNotFoundError, NotADirectoryError):
        raise ArgumentError(f"{argument}: found no file {path!r} in {here}, wanted a template") from None
    except OSError as error:
        raise ArgumentError(f"{argument}: found {path!r}, which cannot be read: {error.strerror}") from None
    instead = "; wanted a text, or copy=, which takes any file" if argument == "templates" else ""
    if len(data) > MAX_TEMPLATE:
        raise ArgumentError(f"{argument}: found {path!r} of more than {MAX_TEMPLATE} bytes{instead}")
    if b"\0" in data:
        raise ArgumentError(f"{argument}: found {path!r}, a binary file{instead}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(
            f"{argument}: found {path!r}, which is not UTF-8 at byte {error.start}{instead or '; save it so'}"
        ) from None
    return parse_file(text, os.path.basename(path)), mode


def _check_support(one: Support, place: str) -> None:
    try:
        mode = os.stat(one.source).st_mode
    except OSError as error:
        raise ArgumentError(f"{one.how}: found {one.source!r} ({error.strerror}), wanted a file") from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ArgumentError(f"{one.how}: found {one.source!r}, wanted a plain file or a folder")
    if not os.access(one.source, os.R_OK):
        raise ArgumentError(f"{one.how}: found {one.source!r}, which we may not read")
    source = os.path.realpath(one.source)
    if one.how == "copy" and os.path.commonpath([source, os.path.realpath(place)]) == source:
        raise ArgumentError(
            f"copy: found the folder {one.source!r}, in which the evaluations are made ({place}); wanted "
            "another directory=, or link"
        )


def _place(support: Support, directory: Path) -> None:
    """Raises OSError, with a message that says which file it is about."""
    target = directory / support.target
    try:
        if support.how == "link":
            os.symlink(support.source, target)
        elif os.path.isdir(support.source):
            shutil.copytree(support.source, target, symlinks=True)
        else:
            shutil.copy2(support.source, target)
    except (OSError, RecursionError) as error:
        words = getattr(error, "strerror", None) or str(error)
        if isinstance(error, shutil.Error):  # a list of what went wrong in a folder
            words = str(error.args[0][0][2])
        number = getattr(error, "errno", None) or errno.EIO
        raise OSError(number, f"{support.how} of {support.source!r}: {words}") from None
