"""What to do next: after a run, and where one cannot begin. Each step is a line to paste into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fmnes.report.terminal import literal
from fmnes.result import StopReason


class Step(NamedTuple):
    words: str
    command: str


@dataclass(frozen=True)
class Ending:
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
    function: str | None = None
    """The Python function it minimises, which no shell can call; None for a program."""


def next_steps(ending: Ending) -> list[Step]:
    """The most sensible one first."""
    reason = ending.reason
    if ending.success:
        return [_show(ending)]
    if reason in (None, StopReason.INTERRUPTED, StopReason.CALLBACK):
        return [_resume(ending)]
    if reason is StopReason.STORAGE:
        return [_resume(ending, "when there is room on the disk")]
    if reason is StopReason.LOST:
        return [_failures(ending, "what was lost"), _resume(ending, "when the machine is well again")]
    if reason is StopReason.NO_FEASIBLE:
        return _nothing_found(ending)
    if reason is StopReason.MAX_EVALUATIONS:
        more = _resume(ending, max_evaluations=2 * ending.evaluations)
        return [more] if ending.found else [*_nothing_found(ending), more]
    if reason is StopReason.MAX_SECONDS:
        more = _resume(ending, max_seconds=2 * ending.max_seconds if ending.max_seconds else None)
        return [more] if ending.found else [*_nothing_found(ending), more]
    # It came to an end by itself, and not where it was meant to.
    steps = [_failures(ending, "what failed")] if ending.failed else []
    if ending.problem and not ending.function:
        again = f"fmnes minimize {as_argument(ending.problem)} --again --restarts 5"
        steps.append(Step("to search again, with larger populations", again))
    return steps or [_show(ending)]


def _show(ending: Ending) -> Step:
    return Step("to see it again", f"fmnes show {as_argument(ending.run)}")


def _failures(ending: Ending, words: str) -> Step:
    return Step(words, f"fmnes show {as_argument(ending.run)} --failures")


def _nothing_found(ending: Ending) -> list[Step]:
    steps = [_failures(ending, "what failed")]
    if ending.problem and not ending.function:
        steps.append(Step("one evaluation by itself", f"fmnes try {as_argument(ending.problem)}"))
    return steps


def _resume(ending: Ending, words: str = "to go on", **more: float | None) -> Step:
    options = {name: value for name, value in more.items() if value is not None}
    if ending.function:
        given = "".join(f", {name}={value:g}" for name, value in options.items())
        call = f"fmnes.resume({str(ending.run)!r}, {ending.function}{given})"
        return Step(f"{words}, from Python", literal(call))
    flags = "".join(f" --{name.replace('_', '-')} {value:.15g}" for name, value in options.items())
    return Step(words, f"fmnes resume {as_argument(ending.run)}{flags}")


def where_a_run_is(arguments: Sequence[str], run: Path, aside: Path, other: Path) -> list[Step]:
    """What to do where `fmnes minimize ARGUMENTS` finds a run in its directory."""
    began = list(arguments)
    elsewhere = ["--run-dir", str(other), *_without_run_dir(began)]
    return [
        Step("to go on with it", f"fmnes resume {as_argument(run)}"),
        Step(f"to begin anew (it becomes {literal(str(aside))})", as_line("minimize", "--again", *began)),
        Step("to begin another one beside it", as_line("minimize", *elsewhere)),
    ]


def _without_run_dir(arguments: list[str]) -> list[str]:
    """A second --run-dir would win over the first. What comes after -- is the program's."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept, skip = [], False
    for word in arguments[:end]:
        if not skip and word != "--run-dir" and not word.startswith("--run-dir="):
            kept.append(word)
        skip = not skip and word == "--run-dir"
    return kept + arguments[end:]


def as_argument(path: Path) -> str:
    """As one would type it."""
    text = str(path)
    return as_words("./" + text if text.startswith("-") else text)


def as_line(*words: str) -> str:
    return f"fmnes {as_words(*words)}"


def as_words(*words: str) -> str:
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    """What a terminal would obey is written as an escape, which a shell reads back."""
    if literal(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(c if c.isprintable() and c not in "\\'" else _escaped(c) for c in word) + "'"


def _escaped(c: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape"))


def as_lines(steps: Sequence[Step]) -> str:
    return "\n".join(f"  {step.words}:  {step.command}" for step in steps)
