"""Inputs of a program: arguments, files made from templates, standard input, support files."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fmnes._files import read_plain
from fmnes.arguments import shown
from fmnes.errors import ArgumentError, nearest
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs.process import PARAMS, RESULTS, STDERR, STDIN, STDOUT
from fmnes.result import Vector

if TYPE_CHECKING:
    from fmnes.evaluation.programs.command import Command


# -- Placeholders
#
# In arguments, {name} and {name:format} are replaced by values, and all other braces are doubled. Input files
# have braces of their own (JSON, gmsh, ngspice): there only {identifier} and {identifier:format} are
# replaced, {{identifier}} gives {identifier}, {{{identifier}}} a value in braces, other braces are kept.


_IN_ARGUMENT = re.compile(r"\{\{|\}\}|\{(?P<hole>[^{}]*)\}|[{}]")
_FORM = r"[^\W\d]\w*(?::[^{}\r\n]*)?"
_IN_FILE = re.compile(
    rf"(?P<brace>\{{\{{)?\{{(?P<hole>{_FORM})\}}(?(brace)\}}\}})|\{{(?P<own>\{{{_FORM}\}})\}}"
)
#: A width of four digits in a format, which could exhaust memory.
_WIDE = re.compile(r"\d{4}")
#: Placeholders that a message names.
_SHOWN = 6


class Placeholder(NamedTuple):
    text: str
    """The text between the braces."""
    line: int


class Template(NamedTuple):
    """A text with placeholders, parsed once."""

    where: str
    """"argv" or the file name, for messages."""
    pieces: tuple[str | Placeholder, ...]
    is_file: bool = False

    def fill(self, known: Mapping[str, Any]) -> str:
        """Insert values literally; numbers without a format keep all digits."""
        return "".join(p if isinstance(p, str) else _value(self, p, known) for p in self.pieces)

    def names(self, known: Mapping[str, Any]) -> set[str]:
        """Return the names in its placeholders."""
        return {_split(piece.text, known)[0] for piece in self.pieces if isinstance(piece, Placeholder)}


class SomeNumber:
    """A sample value that accepts formats of floats and of integers."""

    def __repr__(self) -> str:
        return "a number"

    def __format__(self, form: str) -> str:
        try:
            return format(1.5, form)
        except ValueError:
            return format(1, form)


def parse_argument(text: str) -> Template:
    def pieces() -> Iterator[str | Placeholder]:
        end = 0
        for match in _IN_ARGUMENT.finditer(text):
            yield text[end : match.start()]
            end = match.end()
            if match[0] in ("{{", "}}"):
                yield match[0][0]
            elif match["hole"] is None:
                raise ArgumentError(f"argv: found a single {match[0]!r} in {text!r}, wanted it doubled")
            else:
                yield Placeholder(match["hole"], 1)
        yield text[end:]

    return Template("argv", _joined(pieces()))


def parse_file(text: str, where: str) -> Template:
    def pieces() -> Iterator[str | Placeholder]:
        end, line = 0, 1
        for match in _IN_FILE.finditer(text):
            line += text.count("\n", end, match.start())
            yield text[end : match.start()]
            end = match.end()
            if match["own"] is not None:
                yield match["own"]
            else:
                brace = match["brace"] is not None
                yield "{" * brace
                yield Placeholder(match["hole"], line)
                yield "}" * brace
        yield text[end:]

    return Template(where, _joined(pieces()), is_file=True)


def _joined(pieces: Iterator[str | Placeholder]) -> tuple[str | Placeholder, ...]:
    return tuple(piece for piece in pieces if piece)


def _split(text: str, known: Mapping[str, Any]) -> tuple[str, str]:
    """Split a placeholder into name and format; a name may contain a colon."""
    name, _, form = (text, "", "") if text in known else text.partition(":")
    return name, form


def _value(template: Template, hole: Placeholder, known: Mapping[str, Any]) -> str:
    name, form = _split(hole.text, known)
    where = f"{template.where}, line {hole.line}" if template.is_file else template.where
    if name not in known:
        raise ArgumentError(f"{where}: {_unknown(name, hole, known, template.is_file)}")
    value = known[name]
    if not form:
        return value if isinstance(value, str) else repr(value)
    try:
        if _WIDE.search(form):
            raise ValueError("it is wider than 999 characters")
        return format(value, form)
    except (ValueError, OverflowError) as error:
        good = ">20" if isinstance(value, str) else "5d" if isinstance(value, int) else "12.5e"
        raise ArgumentError(
            f"{where}: found {{{hole.text}}}, whose format does not fit {shown(value)} ({error}); wanted "
            f"such as {{{name}:{good}}}"
        ) from None


def _unknown(name: str, hole: Placeholder, known: Mapping[str, Any], is_file: bool) -> str:
    numbers = sum(re.fullmatch(r"x\d+", other) is not None for other in known)
    if numbers and re.fullmatch(r"x\d{1,9}", name):
        return f"found {{{hole.text}}}, but points have {numbers} coordinates, from x0 on"
    some = [f"{{{other}}}" for other in islice(known, _SHOWN + 1)]
    listed = ", ".join(some[:_SHOWN]) + (", …" if some[_SHOWN:] else "")
    hint = nearest(name, islice(known, 1000)) or f", wanted one of {listed}"
    found = f"found the unknown placeholder {{{hole.text}}}{hint}"
    if is_file:
        return f"{found} (if it is the file's own, write {{{{{hole.text}}}}})"
    return f"{found} (for a brace itself, write it twice)"


# -- The program file


def find_program(command: Command) -> str:
    """Return the path of the program, absolute because it runs in another directory."""
    template = parse_argument(command.argv[0])
    for hole in template.pieces:
        if isinstance(hole, Placeholder) and hole.text != "here":
            raise ArgumentError(
                f"argv: found {{{hole.text}}} in the program's name, wanted it among the arguments, each of "
                "which is an element of the list"
            )
    name = template.fill({"here": str(command.here)})
    if os.sep not in name:
        name = shutil.which(name, path=(command.environment or {}).get("PATH")) or name
    return os.path.join(str(command.here), name.removeprefix("./")) if os.sep in name else name


#: Shell operators, which are refused as arguments.
_OF_A_SHELL = ("|", "||", "&&", "&", ">", ">>", "<", "<<", "2>", "2>&1", "&>")
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "fish")


def check_no_shell(command: Command) -> None:
    """Raise ArgumentError for a pipe or a redirection among the arguments: no shell is used."""
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
    """Raise ArgumentError if the program is missing or cannot be executed."""
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


# -- Inputs: arguments, files from templates, standard input, support files


#: Files whose paths are available as placeholders.
FILES = {"params": PARAMS, "results": RESULTS}
#: Placeholders that are not parameters.
TAKEN = (*FILES, "here")
#: Largest template in bytes; a deck of a million lines is smaller.
MAX_TEMPLATE = 64 * 2**20
_OURS = (PARAMS, RESULTS, STDIN, STDOUT, STDERR)


class InputFile(NamedTuple):
    """An input file to be made from a template."""

    target: str
    template: Template
    mode: int
    """Permissions of the template: an executable one gives an executable file."""


class Support(NamedTuple):
    """A file or folder of the user that is copied or linked into the program's directory."""

    source: str
    target: str
    how: str


class Inputs(NamedTuple):
    """Everything a program is given. Templates are read once, and filled for each evaluation."""

    program: str
    here: str
    arguments: tuple[Template, ...]
    decks: tuple[InputFile, ...]
    stdin: Template | None
    support: tuple[Support, ...]

    @property
    def templates(self) -> list[Template]:
        decks = [deck.template for deck in self.decks]
        return [*self.arguments, *decks, *([] if self.stdin is None else [self.stdin])]

    @property
    def name_results(self) -> bool:
        """Whether a placeholder gives the program the path of the results file."""
        return any("results" in template.names({}) for template in self.templates)

    def check(self, point: Iterable[str] | Mapping[str, Any], has_names: bool) -> None:
        """Raise ArgumentError if the parameters and the placeholders do not match.

        point: the names, or one point with values, which also shows which parameters are integers.
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
        """Write all input files into the directory; returns argv."""
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
            _copy_or_link(support, directory)
        return argv

    def is_old(self, file: str, directory: Path) -> bool:
        """Whether a copied file is unchanged: then it is not the program's answer."""
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
    """Return the point as {name: value}, by default with the names x0, x1, …; x: (d,)"""
    if names is None:
        return {f"x{i}": value for i, value in enumerate(x.tolist())}
    if len(x) != len(names):
        raise ArgumentError(f"names: found {len(names)} for a point of {len(x)} coordinates")
    return dict(zip(names, x.tolist(), strict=True))


def read_inputs(command: Command) -> Inputs:
    """Read the templates. Raises ArgumentError for a missing or invalid template or support file."""
    here = str(command.here)
    decks = []
    support = []
    for argument, path in files_of(command):
        if argument == "templates":
            template, mode = _read_template(argument, here, path)
            decks.append(InputFile(target_of(argument, path), template, mode))
        else:
            support.append(Support(os.path.join(here, path), target_of(argument, path), argument))
            _check_support(support[-1], str(command.directory or tempfile.gettempdir()))
    stdin = None if command.stdin is None else _read_template("stdin", here, str(command.stdin))[0]
    arguments = tuple(parse_argument(element) for element in command.argv[1:])
    return Inputs(find_program(command), here, arguments, tuple(decks), stdin, tuple(support))


def check_targets(command: Command) -> None:
    """Raise ArgumentError for two files with one name in the evaluation's directory, or a reserved name.

    The same for an answer inside a link: all evaluations would write to one file.
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
    """Return the name of a file in the evaluation's directory."""
    name = os.path.basename(os.path.normpath(path))
    target = name.removesuffix(".in") if argument == "templates" else name
    if target in ("", ".", "..", os.sep):
        raise ArgumentError(f"{argument}: found {path!r}, wanted a file with a name such as deck.inp.in")
    return target


def files_of(command: Command) -> list[tuple[str, str]]:
    """Return the user's files, each with the argument that names it."""
    arguments = {"templates": command.templates, "copy": command.copy, "link": command.link}
    return [(argument, str(path)) for argument, paths in arguments.items() for path in paths]


def _json(task: Task, point: Mapping[str, Any], has_names: bool) -> str:
    """Return one point as JSON, with its names if it has them; numbers keep all digits."""
    said = {"x": list(point.values()), **({"params": point} if has_names else {})}
    restart, *others = task.id._asdict().items()
    return json.dumps(said | dict([*others, restart])) + "\n"


def _read_template(argument: str, here: str, path: str) -> tuple[Template, int]:
    """Read a template and its permissions."""
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


def _copy_or_link(support: Support, directory: Path) -> None:
    """Copy or link a support file; OSErrors name the file."""
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
        if isinstance(error, shutil.Error):  # a list of all errors in a folder
            words = str(error.args[0][0][2])
        number = getattr(error, "errno", None) or errno.EIO
        raise OSError(number, f"{support.how} of {support.source!r}: {words}") from None
