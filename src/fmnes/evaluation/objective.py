"""The objective of a run: what the user passed, its description in `config.json`, and its evaluator."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import check_callable, check_one_argument, shown
from fmnes.constraints import Limits
from fmnes.errors import ArgumentError, RunError
from fmnes.evaluation.evaluator import Evaluator, Serial, Vectorized
from fmnes.evaluation.programs.command import Command, read_environment
from fmnes.space import Space

# -- The objective


@dataclass(frozen=True)
class Objective:
    """A function or a Command, and how it takes its points."""

    fun: Any
    d: int
    """Number of coordinates."""
    space: Space | None = None
    """The named parameters, if points are given by name."""
    vectorized: bool = False
    """The function takes all points of a generation at once."""
    limits: Limits | None = None
    """The limits on its outputs."""

    def evaluator(
        self,
        *,
        workers: int = 1,
        timeout: float | None = None,
        retries: int = 0,
        executor: Any = None,
        on_error: Literal["infeasible", "raise"] = "infeasible",
        kept_in: str | None = None,
        overlap: float = 0.0,
    ) -> Evaluator:
        """Return the evaluator for these options. Modules that need POSIX are imported only if they are used.

        kept_in: the folder for directories of a Command's failed evaluations, created when needed.
        """
        fun, space = self.fun, self.space
        self._check(workers, timeout, executor, overlap)
        if executor is not None:
            make = getattr(executor, "make_evaluator", None)
            if make is not None and not isinstance(executor, type):
                # Such as a FileQueue, which does more than submit.
                made: Evaluator = make(
                    fun, self.d, timeout=timeout, retries=retries, kept_in=kept_in, space=space
                )
                return made
            from fmnes.evaluation.executor import ExecutorEvaluator

            if isinstance(fun, Command):
                # The program need not be on this machine.
                return ExecutorEvaluator(self._command(timeout, elsewhere=True), executor, space=space)
            return ExecutorEvaluator(self._function(), executor, timeout=timeout)
        if self.vectorized:
            return Vectorized(self._function(), self.limits)
        from fmnes.evaluation.supervision import RetryKilled

        if isinstance(fun, Command):
            from fmnes.evaluation.programs.runner import CommandEvaluator

            named = None if space is None else space.named
            command = self._command(timeout)
            return RetryKilled(CommandEvaluator(command, workers, kept_in, named=named), retries)
        if workers > 1 or timeout is not None:
            from fmnes.evaluation.workers.pool import Workers

            return RetryKilled(Workers(self._function(), workers, timeout=timeout), retries)
        return Serial(self._function(), on_error)

    def _check(self, workers: int, timeout: float | None, executor: Any, overlap: float) -> None:
        """Raises ArgumentError for an objective that is none, and for options that exclude each other."""
        if overlap and self.vectorized:
            raise ArgumentError(
                f"overlap: found {shown(overlap)} where all points of a generation are evaluated together; "
                "wanted 0, or workers="
            )
        if not isinstance(self.fun, Command):
            check_callable(self.fun)
            check_one_argument(self.fun, self.d, None if self.space is None else self.space.names)
        listed = self.limits is not None and not self.limits.named
        if listed and (isinstance(self.fun, Command) or hasattr(executor, "make_evaluator")):
            raise ArgumentError(
                "constraints: found limits without names, wanted the names of outputs, such as "
                "{'stress': (None, 250.0)}: a program, and workers of a queue, report outputs by name"
            )
        if executor is not None and (workers != 1 or self.vectorized):
            raise ArgumentError("executor: found together with workers or vectorized; wanted one of them")
        if self.vectorized and isinstance(self.fun, Command):
            raise ArgumentError("fun: found a Command together with vectorized; wanted workers=")
        if self.vectorized and (workers != 1 or timeout is not None):
            raise ArgumentError("vectorized: found together with workers or timeout; wanted one of them")

    def _function(self) -> Callable[[Any], Any]:
        fun = self.fun if self.space is None else Named(self.fun, self.space, self.vectorized)
        if self.limits is None or self.limits.named or self.vectorized:
            return fun
        return ListedOutputs(fun, self.limits)

    def _command(self, timeout: float | None, elsewhere: bool = False) -> Command:
        """The Command with this timeout, checked. elsewhere: it runs on other machines."""
        from fmnes.evaluation.programs.command import check_runnable

        command: Command = self.fun if timeout is None else replace(self.fun, timeout=timeout)
        # Any point shows the names, and which of them are integers.
        point = None if self.space is None else self.space.named(np.zeros(self.d))
        check_runnable(command, self.d, point, elsewhere=elsewhere)
        return command


class Named:
    """Calls `fun` with {name: value} in the user's units; if it is `vectorized`, with {name: (n,)}."""

    def __init__(self, fun: Callable[[Any], Any], space: Space, vectorized: bool) -> None:
        self._fun = fun
        self._convert = space.columns if vectorized else space.named

    def __call__(self, x: NDArray[np.float64]) -> Any:
        return self._fun(self._convert(x))

    def __repr__(self) -> str:
        return repr(self._fun)


class ListedOutputs:
    """Calls `fun`, which returns its outputs as a list, and gives them their names."""

    def __init__(self, fun: Callable[[Any], Any], limits: Limits) -> None:
        self._fun, self._limits = fun, limits

    def __call__(self, x: NDArray[np.float64]) -> Any:
        return self._limits.name_outputs(self._fun(x))

    def __repr__(self) -> str:
        return repr(self._fun)


# -- Its description in `config.json`


def describe_objective(fun: Any) -> dict[str, Any]:
    """The objective as plain data: enough to run a Command again, or to recognise a function."""
    if isinstance(fun, Command):
        fields = {k: v for k, v in asdict(fun).items() if k != "environment"}
        plain = {k: os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in fields.items()}
        # Only the names: values may be secrets.
        return {"kind": "command", **plain, "environment_names": sorted(fun.environment or {})}
    module = getattr(fun, "__module__", None)
    name = getattr(fun, "__qualname__", None) or type(fun).__qualname__
    return {"kind": "function", "module": module, "name": name}


def read_description(found: Any) -> dict[str, Any]:
    """Check the description in a configuration. Raises ValueError."""
    if isinstance(found, dict):
        if found.get("kind") == "function" and isinstance(found.get("name"), str):
            return found
        if found.get("kind") == "command" and "argv" in found:
            return found
    raise ValueError("no objective")


def command_from(description: dict[str, Any]) -> Command:
    """The Command that was described, without its environment."""
    left_out = ("kind", "environment_names")
    return Command(**{name: value for name, value in description.items() if name not in left_out})


def stored_objective(path: Path, description: dict[str, Any], fun: Any) -> Any:
    """The objective with which the run at `path` goes on; None if it is a function that was not passed in."""
    if fun is not None:
        check_same_objective(path, description, fun)
        return fun
    return None if description["kind"] == "function" else _stored_command(path, description)


def check_same_objective(path: Path, description: dict[str, Any], fun: Any) -> None:
    """Raises RunError unless `fun` is the objective that the run at `path` began with."""
    given = describe_objective(fun)
    for key in ("kind", "name", "argv", "names"):
        theirs, ours = (_plain(d.get(key)) for d in (description, given))
        if theirs != ours:
            if key == "kind":
                theirs, ours = (_plain(d.get("name") or d.get("argv")) for d in (description, given))
            what = "the names " if key == "names" else ""
            raise RunError(
                f"{path}: found a run of {what}{theirs!r}, and {what}{ours!r} here, which is "
                "another objective; pass the function or Command that the run began with, or begin a new run"
            )


def _stored_command(path: Path, description: dict[str, Any]) -> Command:
    """The Command of the run; its environment, which is not stored, comes from the problem file."""
    try:
        command = command_from(description)
    except (ArgumentError, TypeError) as error:
        raise RunError(f"{path}: found an unusable configuration ({error})") from None
    names = description.get("environment_names")
    if not names:
        return command
    if command.problem_file is None:
        raise ArgumentError(
            f"fun: found none, but the command has an environment of its own ({names}), which is not kept; "
            "wanted the Command again"
        )
    environment = read_environment(command.problem_file)
    missing = sorted(set(names) - set(environment))
    if missing:
        raise ArgumentError(
            f"{command.problem_file}: found no {', '.join(missing)} in its environment, wanted it as when "
            "the run began"
        )
    return replace(command, environment=environment)


def _plain(value: Any) -> Any:
    """The value as JSON returns it."""
    return list(value) if isinstance(value, tuple) else value
