"""Going on with a run: after a crash, a power cut, Ctrl-C, or with a larger budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fmnes import checkpoint
from fmnes.arguments import check_callback, names_options
from fmnes.errors import ArgumentError, RunError
from fmnes.evaluation.command import Command
from fmnes.evaluation.outcome import Outcome
from fmnes.evaluation.serial import Evaluator, Task
from fmnes.optimizer import Optimizer
from fmnes.result import Result, StopReason, View
from fmnes.runs.directory import RunDirectory
from fmnes.session import Settings, describe_objective, run_session

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
    given |= {"timeout": timeout, "retries": retries}
    changes = {name: value for name, value in given.items() if value is not _UNCHANGED}
    with RunDirectory.open(run_dir) as directory:
        settings = _settings(directory, changes)
        objective = _objective(directory, fun)
        saved = directory.read_snapshot()
        if saved is None:
            raise RunError(f"{directory.path}: found no snapshot, so nothing was evaluated; begin a new run")
        opt = checkpoint.restore(Optimizer, *saved)
        if target is not _UNCHANGED:
            opt.target = target
        if max_evaluations is not _UNCHANGED:
            spent = int(saved[0]["loop"]["evaluations"])
            opt.max_evaluations = None if max_evaluations is None else max(max_evaluations - spent, 1)
        evaluator: Evaluator | None = None
        if objective is None:
            before = directory.result
            if (
                before is None
                or before["stop_reason"] in _OPEN_ENDINGS
                or changes
                or target is not _UNCHANGED
            ):
                name = directory.config["objective"]["name"]
                raise ArgumentError(
                    f"fun: found none, wanted the run's objective, {name!r}, to go on with it"
                )
            evaluator = _NothingLeft(directory)
        directory.update_config({**directory.config, "settings": settings.as_json()})
        result = run_session(
            objective,
            opt,
            settings,
            executor=executor,
            directory=directory,
            saved=saved,
            callback=callback,
            progress=progress,
            evaluator=evaluator,
        )
        directory.finish(result.as_json())
        return result


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
        return Command(**{name: value for name, value in remembered.items() if name != "kind"})
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
