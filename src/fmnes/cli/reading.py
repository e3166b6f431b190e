"""A run directory as the command line reads it. It may come from elsewhere: all of it is doubted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fmnes.arguments import is_number
from fmnes.cli.next_steps import Ending
from fmnes.errors import ArgumentError, FmnesError, RunError
from fmnes.evaluation.programs.workspace import KEPT_LINE, kept_directory
from fmnes.result import Result, StopReason
from fmnes.run.settings import command_from
from fmnes.run.words import space_of
from fmnes.storage.directory import KEPT, PREVIOUS, SNAPSHOT, RunDirectory, read_config
from fmnes.storage.log import EvaluationLog
from fmnes.storage.rows import MAX_STORED_DIMENSION, Logged

#: What data of another shape than ours raises.
_UNUSABLE = (FmnesError, LookupError, TypeError, ValueError, AttributeError, OverflowError)
#: The fault of a row that is no evaluation: it takes back the one before it.
_FORGOTTEN = "forgotten"

Point = dict[str, Any]


class Begun(NamedTuple):
    """What a run was asked to do."""

    run: Path
    objective: dict[str, Any]
    settings: dict[str, Any]
    problem: Path | None
    """Its problem file, if there is one."""
    named: Callable[[Sequence[float]], Point]
    """A point of the search in the user's names and units."""
    as_kept: dict[str, Any]
    """All of it, as the run directory has it."""

    @property
    def max_evaluations(self) -> int | None:
        found = self.settings.get("max_evaluations")
        return found if isinstance(found, int) else None

    @property
    def function(self) -> str | None:
        """The name of the Python function it minimises; None for a program."""
        return str(self.objective["name"]) if self.objective["kind"] == "function" else None


@dataclass(frozen=True)
class Reason:
    """All evaluations that failed, or were lost, for one reason."""

    reason: str
    count: int
    started: float
    """When the first of them began, in seconds since the epoch."""
    generation: int
    parameters: Point | None
    """The first of them; None where points are too long to be kept."""
    detail: str
    """Its output, or its traceback."""
    kept: Path | None
    """Its directory, if it is still there."""


class Shown(NamedTuple):
    """A run in the user's names and units."""

    begun: Begun
    state: str
    message: str | None
    reason: StopReason | None
    success: bool
    running: bool
    evaluations: int
    """Those that have an answer, a failed one or another."""
    failed: int
    made_again: int
    """Evaluations besides that a resumed run makes again, as the objective looked broken."""
    statuses: dict[str, int]
    failures: list[Reason]
    lost: list[Reason]
    fun: float | None
    """The best value; None while there is none."""
    best: Point | None
    """Its point; None while there is none, or where it is not kept."""
    note: str | None
    """Why there is no point although there is a best value."""

    def ending(self) -> Ending:
        found, failed = self.best is not None, self.failed > 0
        return _ending(self.begun, self.reason, self.success, found, failed, self.evaluations)


def read_begun(run: Path) -> Begun:
    """What the run was asked to do."""
    return _begun(run, read_config(run))


def read_program(run: Path) -> Begun:
    """The same of a run that can go on from here: one of a program."""
    begun = read_begun(run)
    if begun.function is not None:
        call = f"fmnes.resume({str(run)!r}, {begun.function})"
        raise ArgumentError(
            f"{run}: found a run of a Python function, wanted one of a program; from Python:  {call}"
        )
    try:
        command_from(begun.objective)
    except _UNUSABLE as error:
        raise RunError(f"{run}: found an unusable configuration ({error})") from None
    return begun


def ending_of(result: Result, begun: Begun) -> Ending:
    found, failed = result.x is not None, result.n_infeasible > 0
    return _ending(begun, result.stop_reason, result.success, found, failed, result.nfev)


def names_of(result: Result, begun: Begun) -> Callable[[Any], Point]:
    """A point of the result in the user's names and units, which of named parameters it has already."""
    names = result.parameters
    if names is None:  # arrays, or a run of version 0.2
        return begun.named
    return lambda x: x if isinstance(x, dict) else dict(zip(names, x.tolist(), strict=True))


def _ending(
    begun: Begun,
    reason: StopReason | None,
    success: bool,
    found: bool,
    failed: bool,
    evaluations: int,
) -> Ending:
    seconds = begun.settings.get("max_seconds")
    return Ending(
        begun.run,
        reason,
        success=success,
        found=found,
        failed=failed,
        evaluations=evaluations,
        max_seconds=seconds if is_number(seconds) else None,
        problem=begun.problem,
        resumable=any((begun.run / name).exists() for name in (SNAPSHOT, PREVIOUS)),
        function=begun.function,
    )


def count_evaluations(run: Path) -> int:
    with RunDirectory.open(run, read_only=True) as directory:
        return directory.log.count()


def read_run(run: Path) -> Shown:
    """The run at this moment, also while it is running."""
    with RunDirectory.open(run, read_only=True) as directory:
        summary, ended, user = directory.log.summary(), directory.result, directory.in_use_by
        begun = _begun(run, directory.config)
        first = _firsts(run, directory.log, begun)
    best = summary.best
    try:
        x = None if best is None or best.x is None else best.x.tolist()
        point = None if x is None else begun.named(x)
        fun = None if best is None else best.outcome.value
        if ended and ended["x"] is not None and (fun is None or ended["fun"] <= fun):
            # It has points that the log does not: those too long for it, and those known before the run.
            point, fun = _whole_point(ended["x"], begun), float(ended["fun"])
        state = f"running ({user})" if user else str(ended["stop_reason"]) if ended else "stopped"
        message = str(ended["message"]) if ended and not user else None
        reason = StopReason.__members__.get(state) if ended else None
        success = bool(ended and ended.get("success") is True)
    except _UNUSABLE as error:
        raise RunError(f"{run}: found an unusable result or configuration ({error})") from None
    note = None
    if best is not None and point is None:
        note = (
            f"the best point is not shown: the log keeps none of more than {MAX_STORED_DIMENSION} "
            "coordinates; it is in the result as soon as the run has ended"
        )
    statuses = summary.statuses
    again = sum(one.count for fault, one in first if fault == _FORGOTTEN)
    return Shown(
        begun,
        state,
        message,
        reason,
        success and not user,
        bool(user),
        statuses.get("value", 0) + statuses.get("infeasible", 0) - again,
        statuses.get("infeasible", 0) - again,
        again,
        statuses,
        [one for fault, one in first if fault is None],
        [one for fault, one in first if fault is not None and fault != _FORGOTTEN],
        fun,
        point,
        note,
    )


def _firsts(run: Path, log: EvaluationLog, begun: Begun) -> list[tuple[str | None, Reason]]:
    """Each reason; before it None of failed evaluations, and the fault of those that were lost."""
    try:
        return [
            (row.outcome.fault if row.outcome.status == "lost" else None, _reason(run, count, row, begun))
            for count, row in log.firsts()
        ]
    except RunError:
        raise
    except _UNUSABLE as error:
        raise RunError(f"{run}: found an unusable configuration ({error})") from None


def _reason(run: Path, count: int, row: Logged, begun: Begun) -> Reason:
    kept = kept_directory(run / KEPT, row.key, row.outcome.detail)
    lines = row.outcome.detail.splitlines()
    if lines and lines[-1].startswith(KEPT_LINE):  # which is said by itself
        lines.pop()
    detail = "\n".join(lines)
    point = None if row.x is None else begun.named(row.x.tolist())
    return Reason(row.outcome.reason, count, row.started, row.key.generation, point, detail, kept)


def _begun(run: Path, config: dict[str, Any]) -> Begun:
    objective, settings = config.get("objective"), config.get("settings")
    wanted = {"command": "argv", "function": "name"}
    if not isinstance(objective, dict) or wanted.get(str(objective.get("kind"))) not in objective:
        raise RunError(f"{run}: found an unusable configuration (no objective)")
    try:
        named = _names(config)
    except _UNUSABLE as error:
        raise RunError(f"{run}: found an unusable configuration ({error})") from None
    settings = settings if isinstance(settings, dict) else {}
    return Begun(run, objective, settings, _problem(run, objective), named, config)


def _problem(run: Path, objective: dict[str, Any]) -> Path | None:
    """The problem file: the one beside the run and of its name, or the one that it remembers."""
    paths = [run.with_suffix(".toml")] if run.suffix == ".run" else []
    remembered = objective.get("problem_file")
    if isinstance(remembered, str) and "\0" not in remembered:
        near = os.path.relpath(remembered)
        paths.append(Path(remembered if near.startswith("..") else near))
    return next((path for path in paths if os.path.isfile(path)), None)


def _names(config: dict[str, Any]) -> Callable[[Sequence[float]], Point]:
    space = space_of(config)
    if space is not None:
        return lambda x: space.named(np.asarray(x, dtype=float))
    names = [str(name) for name in config["objective"].get("names") or ()]

    def named(x: Sequence[float]) -> Point:
        values = [float(v) for v in x]
        words = names or [f"x{i}" for i in range(len(values))]
        if len(words) != len(values):
            raise RunError(f"found {len(words)} names for points of {len(values)} coordinates")
        return dict(zip(words, values, strict=True))

    return named


def _whole_point(x: Any, begun: Begun) -> Point:
    return {str(name): value for name, value in x.items()} if isinstance(x, dict) else begun.named(x)
