"""Next steps after a run, or where one cannot start: shell commands for the terminal and the page."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fmnes._text import literal
from fmnes.arguments import is_number
from fmnes.reading.run import Run
from fmnes.result import StopReason
from fmnes.storage.directory import PREVIOUS, SNAPSHOT
from fmnes.storage.log_reader import MAX_STORED_DIMENSION

#: The option of `minimize` that moves an existing run out of the way.
ARCHIVE = "--archive-existing"


class Step(NamedTuple):
    words: str
    command: str


@dataclass(frozen=True)
class RunOutcome:
    """The state of a run, as far as the next steps depend on it."""

    run: Path
    reason: StopReason | None
    """None: it was killed, or is still running."""
    success: bool = False
    found: bool = True
    """Whether an evaluation has succeeded."""
    failed: bool = False
    """Whether one has failed."""
    evaluations: int = 0
    max_seconds: float | None = None
    problem: Path | None = None
    """Its problem file, if it exists."""
    resumable: bool = True
    """False if it ended before its first snapshot: then it can only start over."""
    function: str | None = None
    """The name of the Python function; None for a program."""


def run_outcome(
    path: Path,
    objective: dict[str, Any],
    settings: dict[str, Any],
    problem: Path | None,
    reason: StopReason | None,
    *,
    success: bool,
    found: bool,
    failed: bool,
    evaluations: int,
) -> RunOutcome:
    """The outcome of a run with this configuration."""
    seconds = settings.get("max_seconds")
    return RunOutcome(
        path,
        reason,
        success=success,
        found=found,
        failed=failed,
        evaluations=evaluations,
        max_seconds=seconds if is_number(seconds) else None,
        problem=problem,
        resumable=any((path / name).exists() for name in (SNAPSHOT, PREVIOUS)),
        function=str(objective["name"]) if objective["kind"] == "function" else None,
    )


def outcome_of(run: Run, path: Path) -> RunOutcome:
    """The outcome so far of a run that was read; `path` is its directory as the user wrote it."""
    result = run.result
    return run_outcome(
        path,
        run.objective,
        run.settings,
        find_problem(path, run.objective),
        None if result is None else result.stop_reason,
        success=result is not None and result.success,
        found=run.best.x is not None,
        failed=run.failed > 0,
        evaluations=run.answered,
    )


def find_problem(run: Path, objective: dict[str, Any]) -> Path | None:
    """The problem file: the one next to the run with its name, or the one that its configuration names."""
    paths = [run.with_suffix(".toml")] if run.suffix == ".run" else []
    recorded = objective.get("problem_file")
    if isinstance(recorded, str) and "\0" not in recorded:
        relative = os.path.relpath(recorded)
        paths.append(Path(recorded if relative.startswith("..") else relative))
    return next((path for path in paths if os.path.isfile(path)), None)


def why_hidden(run: Run) -> str:
    """Why a run with a best value has no best point; empty if it has one."""
    if run.best.x is not None or not math.isfinite(run.best.fun):
        return ""
    return (
        f"the best point is not shown: the log does not store points of more than {MAX_STORED_DIMENSION} "
        "coordinates; the result has it when the run has ended"
    )


def next_steps(ending: RunOutcome) -> list[Step]:
    """The most useful step first; none after a success."""
    return [step for step in _steps(ending) if step.command]


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
    if reason in (StopReason.MAX_EVALUATIONS, StopReason.NOISE):
        more = _resume(ending, max_evaluations=2 * ending.evaluations)
        return [more] if ending.found else [*_nothing_found(ending), more]
    if reason is StopReason.MAX_SECONDS:
        more = _resume(ending, max_seconds=2 * ending.max_seconds if ending.max_seconds else None)
        return [more] if ending.found else [*_nothing_found(ending), more]
    # It ended by itself without a success.
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
    """The command, or call, that resumes it; more: its options, True for one without a value."""
    options = {n: f"{v}" if v is True else f"{v:.15g}" for n, v in more.items() if v is not None}
    if ending.function:
        if not ending.function.isidentifier():  # a method or a lambda
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
    """Steps if `fmnes minimize ARGUMENTS` finds a run in its directory."""
    began = list(arguments)
    steps = [
        Step("to go on with it", as_line("resume", run)),
        Step(f"to start over (it becomes {aside.name})", as_line("minimize", ARCHIVE, *began)),
        Step("to keep both", as_line("minimize", "--run-dir", other, *_without_run_dir(began))),
    ]
    return steps if resumable else steps[1:]


def when_broken(run: Path, problem: Path | None) -> list[Step]:
    """Steps if the program looks broken."""
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
    """The arguments without --run-dir, up to --: a second one would override the first."""
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
    """A fmnes command to paste into a shell."""
    return " ".join(["fmnes", *(as_argument(w) if isinstance(w, Path) else _quoted(w) for w in words)])


def as_argument(path: Path) -> str:
    """A path as a shell argument."""
    text = str(path)
    return _quoted("./" + text if text.startswith("-") else text)  # else it would be taken for an option


def _quoted(word: str) -> str:
    """Quote a word; control characters become escapes that a shell reads back."""
    if literal(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(c if c.isprintable() and c not in "\\'" else _escaped(c) for c in word) + "'"


def _escaped(c: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape"))
