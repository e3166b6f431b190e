"""Going on with a run: after a crash, a power cut, Ctrl-C, or with a larger budget."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmnes.arguments import check_callback, names_options
from fmnes.errors import ArgumentError, FmnesError, RunError
from fmnes.evaluation.evaluator import Evaluator, Task
from fmnes.outcome import Outcome
from fmnes.result import Result, StopReason, View
from fmnes.run.session import finish, run_session
from fmnes.run.settings import Settings, command_from, describe_objective
from fmnes.search.optimizer import Optimizer
from fmnes.storage.directory import RunDirectory

_UNCHANGED: Any = object()
#: Endings after which there is more to do, as soon as the run is taken up again.
_OPEN_ENDINGS = {
    reason.name
    for reason in (
        StopReason.INTERRUPTED,
        StopReason.CALLBACK,
        StopReason.LOST,
        StopReason.STORAGE,
        StopReason.MAX_SECONDS,
    )
}


@names_options
def resume(
    run_dir: str | os.PathLike[str],
    fun: Callable[[Any], Any] | None = None,
    *,
    max_evaluations: int | None = _UNCHANGED,
    max_seconds: float | None = _UNCHANGED,
    target: float | None = _UNCHANGED,
    workers: int = _UNCHANGED,
    timeout: float | None = _UNCHANGED,
    retries: int = _UNCHANGED,
    executor: Any = None,
    callback: Callable[[View], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Go on with the run in `run_dir` as if it had never stopped.

    Its settings come from the directory; those given here replace them, such as a larger `max_evaluations`.
    No finished evaluation is made again, and a half-finished generation is completed. A run that has ended
    for good just returns its result.

    fun: the objective, the same as before. A `fmnes.Command` need not be given: the directory remembers it.
    """
    check_callback(callback)
    given = {"max_evaluations": max_evaluations, "max_seconds": max_seconds, "workers": workers}
    given |= {"timeout": timeout, "retries": retries, "target": target}
    changes = {name: value for name, value in given.items() if value is not _UNCHANGED}
    with RunDirectory.open(run_dir) as directory:
        settings = _settings(directory, changes)
        objective = _objective(directory, fun)
        saved = directory.read_snapshot()
        if saved is None:
            raise RunError(f"{directory.path}: found no snapshot, so nothing was evaluated; begin a new run")
        opt = _optimizer(directory, saved, settings)
        ended = not changes and _has_ended(directory)
        evaluator: Evaluator
        if ended:
            evaluator = _NothingLeft(directory)
        elif objective is None:
            name = directory.config["objective"]["name"]
            raise ArgumentError(f"fun: found none, wanted the run's objective, {name!r}, to go on with it")
        else:
            evaluator = settings.evaluator(objective, executor, len(opt.mean))
            directory.finish(None)  # it goes on: the old result is not its result any more
        directory.update_config({**directory.config, "settings": settings.as_json()})
        result = run_session(
            objective,
            opt,
            settings,
            directory=directory,
            saved=saved,
            callback=callback,
            progress=progress,
            evaluator=evaluator,
            ended=ended,
        )
        finish(directory, result)
        return result


def _has_ended(directory: RunDirectory) -> bool:
    """For good. A result that cannot be read says nothing: all that is in it follows from the log."""
    try:
        result = directory.result
    except RunError:
        return False
    return result is not None and result.get("stop_reason") not in _OPEN_ENDINGS


def _optimizer(directory: RunDirectory, saved: Any, settings: Settings) -> Optimizer:
    metadata, arrays = saved
    try:
        opt = Optimizer.restore(metadata, arrays)
        spent = int(metadata["loop"]["evaluations"])
    except (FmnesError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RunError(f"{directory.path}: found an unusable snapshot ({error})") from None
    opt.target = settings.target
    limit = settings.max_evaluations
    opt.max_evaluations = None if limit is None else max(limit - spent, 1)
    if metadata.get("numpy") != np.__version__:
        warnings.warn(
            f"the run was made with NumPy {metadata.get('numpy')}, this is {np.__version__}: it goes on, but "
            "perhaps not bit for bit (not bitwise)",
            RuntimeWarning,
            stacklevel=4,
        )
    return opt


def _settings(directory: RunDirectory, changes: dict[str, Any]) -> Settings:
    try:
        settings = Settings(**directory.config["settings"])
    except (KeyError, TypeError) as error:
        raise RunError(f"{directory.path}: found an unusable configuration ({error})") from None
    return replace(settings, **changes)


def _objective(directory: RunDirectory, fun: Any) -> Any:
    """The objective to go on with, or None if it is not known."""
    remembered = directory.config.get("objective")
    if not isinstance(remembered, dict) or remembered.get("kind") not in ("command", "function"):
        raise RunError(f"{directory.path}: found an unusable configuration (no objective)")
    if fun is None:
        if remembered["kind"] == "function":
            return None
        if remembered.get("environment_names"):
            raise ArgumentError(
                "fun: found none, but the command has an environment of its own "
                f"({remembered['environment_names']}), which is not kept; wanted the Command again"
            )
        return command_from(remembered)
    found = describe_objective(fun)
    for key in ("kind", "name", "argv"):
        if found.get(key) != remembered.get(key) and list(found.get(key) or ()) != remembered.get(key):
            theirs, ours = (d.get("name") or d.get("argv") for d in (remembered, found))
            raise RunError(
                f"{directory.path}: found a run of {theirs!r}, wanted one of {ours!r}: another objective"
            )
    return fun


class _NothingLeft:
    """Stands for the objective of a run that has ended: everything it needs is in the log."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    def __call__(self, tasks: Sequence[Task], deadline: float | None = None) -> Iterator[tuple[int, Outcome]]:
        raise RunError(
            f"{self._directory.path}: found evaluations missing from the log; pass fun= to make them"
        )

    def close(self) -> None:
        pass
