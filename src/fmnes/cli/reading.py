"""A run directory as `fmnes show` and `resume` read it. It may come from elsewhere: all of it is doubted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fmnes.errors import FmnesError, RunError
from fmnes.evaluation.programs.command import Command
from fmnes.run.settings import command_from
from fmnes.storage.directory import RunDirectory
from fmnes.storage.questions import Summary
from fmnes.storage.rows import MAX_STORED_DIMENSION

#: What data of another shape than ours raises.
_UNUSABLE = (FmnesError, LookupError, TypeError, ValueError, AttributeError, OverflowError)


class Shown(NamedTuple):
    """A run in the user's names and units."""

    state: str
    message: str | None
    summary: Summary
    fun: float | None
    """The best value; None while there is none."""
    names: list[str]
    values: list[float] | None
    """The best point; None while there is none, or where it is not kept."""
    note: str | None
    """Why there are no values although there is a best value."""


def read_run(run: Path) -> Shown:
    """The run at this moment, also while it is running."""
    with RunDirectory.open(run, read_only=True) as directory:
        summary, ended, user = directory.log.summary(), directory.result, directory.in_use_by
        objective = objective_of(directory)
    best = summary.best
    try:
        x = None if best is None or best.x is None else best.x.tolist()
        if best is not None and x is None and ended and ended["x"] is not None:
            x = [float(v) for v in ended["x"]]  # the result has it whole
        if objective["kind"] == "command":
            command_of(run, objective)  # raises RunError for what is none
        values = x
        names = [str(name) for name in objective.get("names") or ()]
        names = names or [f"x{i}" for i in range(len(values or ()))]
        if values is not None and len(names) != len(values):
            raise ValueError(f"{len(names)} names for {len(values)} coordinates")
        state = f"running ({user})" if user else str(ended["stop_reason"]) if ended else "stopped; resume it"
        message = str(ended["message"]) if ended and not user else None
    except RunError:
        raise
    except _UNUSABLE as error:
        raise RunError(f"{run}: found an unusable result or configuration ({error})") from None
    note = None
    if best is not None and values is None:
        note = (
            f"the best point is not shown: the log keeps none of more than {MAX_STORED_DIMENSION} "
            "coordinates; it is in the result as soon as the run has ended"
        )
    fun = None if best is None else best.outcome.value
    return Shown(state, message, summary, fun, names, values, note)


def objective_of(directory: RunDirectory) -> dict[str, Any]:
    """What the run remembers of its objective, with the entries that are read here."""
    objective = directory.config.get("objective")
    wanted = {"command": "argv", "function": "name"}
    if isinstance(objective, dict) and wanted.get(str(objective.get("kind"))) in objective:
        return objective
    raise RunError(f"{directory.path}: found an unusable configuration (no objective)")


def command_of(run: Path, objective: dict[str, Any]) -> Command:
    """The Command that the run remembers."""
    try:
        return command_from(objective)
    except _UNUSABLE as error:
        raise RunError(f"{run}: found an unusable configuration ({error})") from None
