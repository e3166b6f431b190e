"""Messages of the command line: results, next steps, and the one place that prints users' text."""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fmnes.display.terminal import literal
from fmnes.result import Result, StopReason

# -- Messages of the library in the words of problem files and of the command line, which know no Python.


_KEYS = "lower|upper|start|sigma|log|multiple_of"
#: (what Python's users read, what stands in a problem file).
_WORDS = (
    (r"^(\S+: )?(?:Real|Integer): ", r"\1"),
    (r"^(\S+: )?Real \(log\): found ", r"\1found log = "),
    (rf"\b({_KEYS})=(?=[ ,;)]|$)", r"\1"),
    (rf"\b({_KEYS})=", r"\1 = "),
    (r"= True\b", "= true"),
    (r"= False\b", "= false"),
    (r"\bTrue or False\b", "true or false"),
    (r",? or None\b", ""),
    (r" or settings such as AFMNES\(\)", ""),
    (r"as fmnes\.Integer\(0, n - 1\)", "as a whole number (integer = true)"),
    (r"\{'(\w+)': r?('[^']*')\}", r"{ \1 = \2 }"),
    (r"\{'(\w+)': r?('[^']*'), '(\w+)': r?('[^']*')\}", r"{ \1 = \2, \3 = \4 }"),
    (r"^argv\b|(?<=placeholder of )argv\b", "command"),
    (r"\bcopy=", "copy"),
)


def plain_words(message: str) -> str:
    for python, plain in _WORDS:
        message = re.sub(python, plain, message)
    return message


def argument_of(message: str) -> str:
    """The argument that a message is about: its first word."""
    return re.split(r"\W", message, maxsplit=1)[0]


def as_option(message: str, typed: Container[str]) -> str:
    """The same with the option as it was typed, if the message is about one of these."""
    argument = argument_of(message)
    option = f"--{argument.replace('_', '-')}"
    return plain_words(option + message[len(argument) :] if argument in typed else message)


# -- How results look on the command line, and the one place that prints users' words.


if TYPE_CHECKING:
    from fmnes.cli.reading import Point
    from fmnes.reading.run import Reason

#: Exit codes: 0 the run ended as asked, 1 it could not, 2 wrong input, 130 interrupted.
_FAILED = {StopReason.NO_FEASIBLE, StopReason.LOST, StopReason.NUMERICAL, StopReason.STORAGE}
#: A longer table is cut to its first and last rows.
MAX_ROWS = 40
_ENDS = 10
#: Reasons that are shown, without --failures; and parameters of a failed point.
_MAX_REASONS = 10
_MAX_PARAMETERS = 20


def exit_code(result: Result) -> int:
    if result.stop_reason is StopReason.INTERRUPTED:
        return 130
    return 1 if result.stop_reason in _FAILED else 0


def say(console: Console, text: str, *, bold: str = "") -> None:
    """One line, `bold` first. Nothing in it is markup, the name of an emoji, or a command to the terminal."""
    console.print(Text.assemble((literal(bold), "bold"), literal(text)), soft_wrap=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The words of each row as they are; in a narrow terminal names take several lines, numbers do not."""
    made = Table()
    for i, title in enumerate(head):
        made.add_column(title, overflow="fold", no_wrap=i > 0)
    for row in rows:
        made.add_row(*(Text(literal(cell)) for cell in row))
    return made


def show_point(console: Console, point: Point | None, fun: float | None, note: str = "") -> None:
    """note: why there is no point, if it is not that nothing has succeeded."""
    if point is None:
        say(console, note or "no evaluation has succeeded yet")
    else:
        _show_values(console, [(name, number(value)) for name, value in point.items()])
    if fun is not None and math.isfinite(fun):
        console.print(Text.assemble("value: ", (f"{fun:.10g}", "bold")))


def number(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"{value:.8g}"


def _show_values(console: Console, rows: list[tuple[str, str]]) -> None:
    many = len(rows) > MAX_ROWS
    shown = [*rows[:_ENDS], ("...", "..."), *rows[-_ENDS:]] if many else rows
    console.print(table(("parameter", "best"), shown))
    if many:
        say(console, f"{len(rows)} parameters, of which the first and last {_ENDS} are shown; --json has all")


def show_ending(console: Console, result: Result) -> None:
    """Why it stopped, and what failed."""
    reason = result.stop_reason.name if result.stop_reason else "running"
    say(console, f": {result.message}", bold=reason)
    say(console, counted(result.nfev, result.n_infeasible))
    show_reasons(console, [(failure.reason, failure.count) for failure in result.failures])


def counted(evaluations: int, failed: int) -> str:
    return f"{evaluations} evaluations, {failed} of them failed"


def show_reasons(console: Console, reasons: Sequence[tuple[str, int]], prefix: str = "") -> None:
    """The most frequent ones."""
    for reason, count in reasons[:_MAX_REASONS]:
        say(console, f"  {count:6d} × {prefix}{reason}")
    if len(reasons) > _MAX_REASONS:
        say(console, f"  and {len(reasons) - _MAX_REASONS} other reasons")


def show_in_full(console: Console, reasons: Sequence[Reason], prefix: str = "") -> None:
    """Each reason with its first evaluation: when it was, where, what it said, and what is left of it."""
    for one in reasons:
        console.print()
        say(console, f" × {prefix}{one.reason}", bold=f"{one.count:8d}")
        which = "the start itself" if one.generation < 0 else f"generation {one.generation}"
        say(console, f"  first: {moment(one.started)}, {which}")
        if one.point is not None:
            values = [f"{name} = {number(value)}" for name, value in one.point.items()]
            more = f", and {len(values) - _MAX_PARAMETERS} more" if len(values) > _MAX_PARAMETERS else ""
            say(console, f"  at: {', '.join(values[:_MAX_PARAMETERS])}{more}")
        if one.detail:
            say(console, "  output:")
            for line in one.detail.expandtabs().splitlines():
                say(console, f"    {line}")
        if one.directory:
            say(console, f"  directory: {near(one.directory)}")


def near(path: Path) -> str:
    """As one would type it here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def moment(seconds: float) -> str:
    """The user's time; whatever is no time is left out."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "unknown"


def show_steps(console: Console, steps: Sequence[Step]) -> None:
    for step in steps:
        say(console, f"{step.words}:  {step.command}")


def as_json(result: Result, named: Callable[[Any], Point]) -> dict[str, Any]:
    """named: a point of the result in the user's names and units."""
    data = result.as_json()
    pairs = zip(data["failures"], result.failures, strict=True)
    failures = [{**shown, "parameters": named(f.x[0]) if len(f.x) else None} for shown, f in pairs]
    return {**data, "failures": failures, "parameters": None if result.x is None else named(result.x)}


def reason_as_json(one: Reason) -> dict[str, Any]:
    return {
        "reason": one.reason,
        "count": one.count,
        "started": one.started,
        "generation": one.generation,
        "parameters": one.point,
        "detail": one.detail,
        "kept": None if one.directory is None else near(one.directory),
    }


# -- What to do next: after a run, and where one cannot begin. Each step is a line to paste into a shell.


#: The option of `minimize` that moves an existing run out of the way.
ARCHIVE = "--archive-existing"


class Step(NamedTuple):
    words: str
    command: str


@dataclass(frozen=True)
class RunOutcome:
    """How a run stands, as far as the next step depends on it."""

    run: Path
    reason: StopReason | None
    """None: it was killed, or the machine was."""
    success: bool = False
    found: bool = True
    """Has an evaluation succeeded?"""
    failed: bool = False
    """Has one failed?"""
    evaluations: int = 0
    max_seconds: float | None = None
    problem: Path | None = None
    """Its problem file, if it is there."""
    resumable: bool = True
    """False where it was ended before its first snapshot: then it can only begin again."""
    function: str | None = None
    """The Python function it minimises, which no shell can call; None for a program."""


def next_steps(ending: RunOutcome) -> list[Step]:
    """The most sensible one first; none after a success."""
    return [step for step in _steps(ending) if step.command]


def can_be_named(function: str) -> bool:
    """Is a line of Python with this name of a function sure to mean it? Not of a method or a lambda."""
    return function.isidentifier()


def _steps(ending: RunOutcome) -> list[Step]:
    reason = ending.reason
    if ending.success:
        return []
    if not ending.resumable:
        if ending.problem is None or ending.function:
            return []
        return [Step("to begin it again", _begin(ending.run, ending.problem))]
    if reason in (None, StopReason.INTERRUPTED, StopReason.CALLBACK):
        return [_resume(ending)]
    if reason is StopReason.STORAGE:
        return [_resume(ending, "when there is room on the disk")]
    if reason is StopReason.LOST:
        return [_failures(ending, "what was lost"), _resume(ending, "when the machine works again")]
    if reason is StopReason.NO_FEASIBLE:
        return [*_nothing_found(ending), _resume(ending, "when the cause is repaired", forget_failures=True)]
    if reason is StopReason.MAX_EVALUATIONS:
        more = _resume(ending, max_evaluations=2 * ending.evaluations)
        return [more] if ending.found else [*_nothing_found(ending), more]
    if reason is StopReason.MAX_SECONDS:
        more = _resume(ending, max_seconds=2 * ending.max_seconds if ending.max_seconds else None)
        return [more] if ending.found else [*_nothing_found(ending), more]
    # It came to an end by itself, and not where it was meant to.
    steps = [_failures(ending, "what failed")] if ending.failed else []
    if ending.problem and not ending.function:
        again = start_over(ending.run, ending.problem, "--restarts", "5")
        steps.append(Step("to search again, with larger populations", again))
    return steps


def _failures(ending: RunOutcome, words: str) -> Step:
    return Step(words, as_line("show", ending.run, "--failures"))


def _nothing_found(ending: RunOutcome) -> list[Step]:
    steps = [_failures(ending, "what failed")]
    if ending.problem and not ending.function:
        steps.append(Step("to see one evaluation by itself", as_line("try", ending.problem)))
    return steps


def _resume(ending: RunOutcome, words: str = "to go on", **more: float | None) -> Step:
    """more: options of the resume; True for one without a value on the command line."""
    options = {n: f"{v}" if v is True else f"{v:.15g}" for n, v in more.items() if v is not None}
    if ending.function:
        if not can_be_named(ending.function):
            return Step(words, "")
        given = "".join(f", {name}={value}" for name, value in options.items())
        call = f"fmnes.resume({str(ending.run)!r}, {ending.function}{given})"
        return Step(f"{words}, from Python", literal(call))
    flags: list[str | Path] = []
    for name, value in options.items():
        flags += [f"--{name.replace('_', '-')}", *([] if more[name] is True else [value])]
    return Step(words, as_line("resume", ending.run, *flags))


def where_a_run_is(
    arguments: Sequence[str], run: Path, aside: Path, other: Path, resumable: bool = True
) -> list[Step]:
    """What to do where `fmnes minimize ARGUMENTS` finds a run in its directory."""
    began = list(arguments)
    steps = [
        Step("to go on with it", as_line("resume", run)),
        Step(f"to start over (it becomes {aside.name})", as_line("minimize", ARCHIVE, *began)),
        Step("to keep both", as_line("minimize", "--run-dir", other, *_without_run_dir(began))),
    ]
    return steps if resumable else steps[1:]


def when_broken(run: Path, problem: Path | None) -> list[Step]:
    """What to do where the program looks broken."""
    steps = [Step("when the program is repaired", as_line("resume", run)), as_page(run)]
    if problem is not None:
        steps.insert(0, Step("to see one evaluation by itself", as_line("try", problem)))
        steps.append(Step("when the problem file is corrected", start_over(run, problem)))
    return steps


def as_page(run: Path) -> Step:
    return Step("as a page with pictures", as_line("report", run))


def start_over(run: Path, problem: Path, *options: str) -> str:
    return _begin(run, problem, ARCHIVE, *options)


def _begin(run: Path, problem: Path, *options: str) -> str:
    place: list[str | Path] = [] if run == problem.with_suffix(".run") else ["--run-dir", run]
    return as_line("minimize", *options, *place, problem)


def _without_run_dir(arguments: list[str]) -> list[str]:
    """A second --run-dir would win over the first. What comes after -- is the program's."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept, skip = [], False
    for word in arguments[:end]:
        if not skip and word != "--run-dir" and not word.startswith("--run-dir="):
            kept.append(word)
        skip = not skip and word == "--run-dir"
    return kept + arguments[end:]


def as_lines(steps: Sequence[Step]) -> str:
    return "\n".join(f"  {step.words}:  {step.command}" for step in steps)


def as_line(*words: str | Path) -> str:
    """A command of ours, to paste into a shell."""
    return " ".join(["fmnes", *(as_argument(w) if isinstance(w, Path) else _quoted(w) for w in words)])


def as_argument(path: Path) -> str:
    """As one would type it."""
    text = str(path)
    return _quoted("./" + text if text.startswith("-") else text)  # else it would be taken for an option


def _quoted(word: str) -> str:
    """What a terminal would obey is written as an escape, which a shell reads back."""
    if literal(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(c if c.isprintable() and c not in "\\'" else _escaped(c) for c in word) + "'"


def _escaped(c: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape"))
