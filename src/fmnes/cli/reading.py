"""A run directory as the command line reads it. It may come from elsewhere: all of it is doubted."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fmnes.arguments import is_number
from fmnes.cli.next_steps import Ending, can_be_named
from fmnes.errors import ArgumentError, FmnesError, RunError
from fmnes.result import Result, StopReason
from fmnes.run.reading import Run
from fmnes.run.words import space_of
from fmnes.storage.directory import PREVIOUS, SNAPSHOT, RunDirectory, read_config
from fmnes.storage.rows import MAX_STORED_DIMENSION

#: What data of another shape than ours raises.
_UNUSABLE = (FmnesError, LookupError, TypeError, ValueError, AttributeError, OverflowError)

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


def read_begun(run: Path) -> Begun:
    """What the run was asked to do."""
    return _begun(run, read_config(run))


def read_program(run: Path) -> Begun:
    """The same of a run that can go on from here: one of a program."""
    begun = read_begun(run)
    if begun.function is not None:
        call = f"fmnes.resume({str(run)!r}, {begun.function})"
        how = f"; from Python:  {call}" if can_be_named(begun.function) else ""
        raise ArgumentError(f"{run}: found a run of a Python function, wanted one of a program{how}")
    from fmnes.run.settings import command_from

    try:
        command_from(begun.objective)
    except _UNUSABLE as error:
        raise RunError(f"{run}: found an unusable configuration ({error})") from None
    return begun


def ending_of(result: Result, begun: Begun) -> Ending:
    found, failed = result.x is not None, result.n_infeasible > 0
    return _ending(
        begun, result.stop_reason, success=result.success, found=found, failed=failed, evaluations=result.nfev
    )


def names_of(result: Result, begun: Begun) -> Callable[[Any], Point]:
    """A point of the result in the user's names and units, which of named parameters it has already."""
    names = result.parameters
    if names is None:  # arrays
        return begun.named
    return lambda x: x if isinstance(x, dict) else dict(zip(names, x.tolist(), strict=True))


def _ending(
    begun: Begun,
    reason: StopReason | None,
    *,
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


def ending_now(run: Run, path: Path) -> Ending:
    """How a run stands that was read from this path, as its user wrote it."""
    result = run.result
    return _ending(
        read_begun(path),
        None if result is None else result.stop_reason,
        success=result is not None and result.success,
        found=run.best.x is not None,
        failed=run.failed > 0,
        evaluations=run.answered,
    )


def unshown(run: Run) -> str:
    """Why there is no best point although there is a best value; empty if there is one."""
    if run.best.x is not None or not math.isfinite(run.best.fun):
        return ""
    return (
        f"the best point is not shown: the log keeps none of more than {MAX_STORED_DIMENSION} "
        "coordinates; it is in the result as soon as the run has ended"
    )


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
