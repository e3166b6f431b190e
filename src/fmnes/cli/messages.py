"""Messages of the command line: results, next steps, and the one place that prints users' text."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fmnes._text import literal, moment, near, number
from fmnes.errors import telling
from fmnes.progress import Progress, QuietStream, Rate, best_value, failed, speed
from fmnes.result import Result, StopReason, View
from fmnes.summary import limits_in_lines, noise_of

if TYPE_CHECKING:
    from fmnes.cli.reading import Point
    from fmnes.constraints import ConstraintResult
    from fmnes.reading.next_steps import Step
    from fmnes.reading.run import Reason


# -- Library messages, translated from Python to the syntax of problem files and of the command line.


_KEYS = "lower|upper|start|sigma|log|multiple_of|choices"
#: (pattern in a Python message, replacement).
_WORDS = (
    (r"^(\S+: )?(?:Real|Integer|Categorical): ", r"\1"),
    (r"^(\S+: )?Real \(log\): found ", r"\1found log = "),
    (rf"\b({_KEYS})=(?=[ ,;)]|$)", r"\1"),
    (rf"\b({_KEYS})=", r"\1 = "),
    (r"= True\b", "= true"),
    (r"= False\b", "= false"),
    (r"\bTrue or False\b", "true or false"),
    (r",? or None\b", ""),
    (r" or settings such as AFMNES\(\)", ""),
    (r"as fmnes\.Integer\(0, n - 1\)", "as a whole number (integer = true)"),
    (r"as fmnes\.Categorical\((\[.*?\])\)", r"as choices = \1"),
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
    """The message with the option as it was typed, if it is about one of `typed`."""
    argument = argument_of(message)
    option = f"--{argument.replace('_', '-')}"
    return plain_words(option + message[len(argument) :] if argument in typed else message)


# -- Results on the command line, and the only place that prints untrusted text.


#: Exit codes: 0 the run ended as asked, 1 it could not, 2 wrong input, 130 interrupted.
_FAILED = {StopReason.NO_FEASIBLE, StopReason.LOST, StopReason.NUMERICAL, StopReason.STORAGE}
#: A longer table shows only its first and last rows.
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
    """A table of untrusted text; in a narrow terminal only the first column wraps."""
    made = Table()
    for i, title in enumerate(head):
        made.add_column(title, overflow="fold", no_wrap=i > 0)
    for row in rows:
        made.add_row(*(Text(literal(cell)) for cell in row))
    return made


def show_point(console: Console, point: Point | None, fun: float | None, note: str = "") -> None:
    """Print a point and its value; note: why there is no point, other than that nothing has succeeded."""
    if point is None:
        say(console, note or "no evaluation has succeeded yet")
    else:
        _show_values(console, [(name, number(value)) for name, value in point.items()])
    if fun is not None and math.isfinite(fun):
        console.print(Text.assemble("value: ", (f"{fun:.10g}", "bold")))


def show_noise(console: Console, result: Result | None) -> None:
    """Print the standard error of the value, and how much values at the same point differ; else nothing."""
    if result is None or result.noise is None:
        return
    if result.fun_error is not None:
        say(console, f"its standard error: {result.fun_error:.2g}")
    say(console, noise_of(result))


def show_limits(console: Console, constraints: dict[str, ConstraintResult] | None) -> None:
    """Print each output with limits: its value, and whether the limits hold."""
    for line in limits_in_lines(constraints or {}):
        say(console, line)


def _show_values(console: Console, rows: list[tuple[str, str]]) -> None:
    many = len(rows) > MAX_ROWS
    shown = [*rows[:_ENDS], ("...", "..."), *rows[-_ENDS:]] if many else rows
    console.print(table(("parameter", "best"), shown))
    if many:
        say(console, f"{len(rows)} parameters; only the first and last {_ENDS} are shown, --json has all")


def show_ending(console: Console, result: Result) -> None:
    """Print why the run stopped, and what failed."""
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
    """Print each reason with its first evaluation: time, point, output and directory."""
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


# -- The live display: a small table on a terminal, plain lines elsewhere


class LiveDisplay:
    """A display on stderr, silent if it cannot be written. A context manager; `update` is a callback for
    `fmnes.minimize`."""

    def __init__(self, max_evaluations: int | None = None, made_before: int = 0) -> None:
        """made_before: evaluations of earlier sessions."""
        self._max_evaluations = max_evaluations
        self._rate = Rate(made_before)
        self._view: View | None = None
        stream = QuietStream(sys.stderr)
        console = Console(file=cast(IO[str], stream))
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._lines = None if self._live else Progress(stream, made_before)
        self._shown = 0.0
        self._telling = telling(self._say)

    def __enter__(self) -> LiveDisplay:
        self._telling.__enter__()
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._telling.__exit__(kind, error, trace)
        if self._live:
            if self._view:
                self._live.update(self._table(self._view), refresh=True)
            self._live.__exit__(kind, error, trace)
        elif self._lines and self._view:
            self._lines.close(self._view)

    def update(self, view: View) -> None:
        self._view = view
        if self._lines:
            self._lines.add(view)
        elif self._live and time.monotonic() - self._shown > 0.1:
            self._shown = time.monotonic()
            self._live.update(self._table(view), refresh=True)

    def _say(self, text: str) -> None:
        if self._live:
            self._live.console.print(Text(literal(text)), soft_wrap=True)
        elif self._lines:
            self._lines.say(text)

    def end(self, result: Result) -> None:
        """The last frame has the numbers of the result: a generation that was cut short has no view."""
        self._max_evaluations = None  # no time is left, or all of it
        if self._view:
            self._view = replace(
                self._view,
                evaluations=result.nfev,
                n_infeasible=result.n_infeasible,
                best=self._view.best._replace(x=result.x, fun=result.fun),
            )

    def _table(self, view: View) -> Table:
        rate = self._rate(view.evaluations)
        table = Table.grid(padding=(0, 2))
        rows = {
            "best value": best_value(view),
            "evaluations": f"{view.evaluations}  {speed(rate)}",
            "failed": failed(view),
            "step size": f"{view.sigma:.3g}",
        }
        if view.restart:
            rows["restart"] = f"{view.restart}, population {view.population_size}"
        if self._max_evaluations and rate > 0:
            left = max(0, self._max_evaluations - view.evaluations) / rate
            rows["time left"] = f"at most {left:.0f} s"
        for name, value in rows.items():
            table.add_row(f"[dim]{name}[/]", value)
        return table
