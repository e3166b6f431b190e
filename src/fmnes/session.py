"""One session of a run: from arguments to a loop, with or without a run directory under it.

`minimize` begins a run and `resume` goes on with one; both end up here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from fmnes import checkpoint
from fmnes.arguments import check_number
from fmnes.errors import ArgumentError, RunError, StorageError
from fmnes.evaluation.command import Command
from fmnes.evaluation.serial import Evaluator, Serial, Vectorized
from fmnes.loop import Loop
from fmnes.optimizer import Optimizer
from fmnes.report.history import COLUMNS
from fmnes.report.progress import Progress
from fmnes.result import Best, Result, View
from fmnes.runs.directory import RunDirectory
from fmnes.runs.replay import Remembering
from fmnes.strategies.checks import check_choice

#: Seconds between snapshots. What was evaluated since then is in the log, so this only saves replaying.
SNAPSHOT_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do besides the search itself; plain data, kept in the run directory."""

    max_evaluations: int | None
    max_seconds: float | None
    workers: int
    vectorized: bool
    timeout: float | None
    retries: int
    on_error: Literal["infeasible", "raise"]
    restarts: int
    target: float | None = None

    def __post_init__(self) -> None:
        check_number("target", self.target)
        check_choice("on_error", self.on_error, ("infeasible", "raise"))
        check_number("max_evaluations", self.max_evaluations, above=0, whole=True)
        check_number("max_seconds", self.max_seconds, above=0)
        check_number("timeout", self.timeout, above=0)
        for name in ("retries", "restarts", "workers"):
            least = 1 if name == "workers" else 0
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ArgumentError(f"{name}: found {value!r}, wanted a whole number of at least {least}")

    def as_json(self) -> dict[str, Any]:
        """NumPy's numbers as Python's, which JSON knows."""
        return {k: v.item() if isinstance(v, np.generic) else v for k, v in asdict(self).items()}


def choose_evaluator(fun: Any, settings: Settings, executor: Any, d: int) -> Evaluator:
    """Whoever calls the objective, by what was asked for. Processes are POSIX's: loaded only where wanted."""
    if isinstance(fun, Command):
        if executor is not None or settings.vectorized:
            raise ArgumentError("fun: found a Command together with executor or vectorized; wanted workers=")
        command = fun if settings.timeout is None else replace(fun, timeout=settings.timeout)
        command.check(d)
        from fmnes.evaluation.programs import CommandEvaluator

        return CommandEvaluator(command, settings.workers)
    if not callable(fun):
        raise ArgumentError(f"fun: found {fun!r}, wanted a function of one point, or a Command")
    if executor is not None:
        if settings.workers != 1 or settings.vectorized:
            raise ArgumentError("executor: found together with workers or vectorized; wanted one of them")
        from fmnes.evaluation.executors import ExecutorEvaluator

        return ExecutorEvaluator(fun, executor, timeout=settings.timeout)
    if settings.vectorized:
        if settings.workers != 1 or settings.timeout is not None:
            raise ArgumentError("vectorized: found together with workers or timeout; wanted one of them")
        return Vectorized(fun)
    if settings.workers > 1 or settings.timeout is not None:
        from fmnes.evaluation.processes import Workers

        return Workers(fun, settings.workers, timeout=settings.timeout)
    return Serial(fun, settings.on_error)


def run_session(
    fun: Any,
    opt: Optimizer,
    settings: Settings,
    *,
    executor: Any = None,
    directory: RunDirectory | None = None,
    saved: tuple[dict[str, Any], dict[str, Any]] | None = None,
    callback: Callable[[View], Any] | None = None,
    progress: bool = False,
    evaluator: Evaluator | None = None,
    ended: bool = False,
) -> Result:
    """Run to the end. `saved` is the snapshot that `opt` comes from, if any; `ended`: see `Remembering`."""
    evaluator = evaluator or choose_evaluator(fun, settings, executor, len(opt.mean))
    if directory:
        evaluator = Remembering(
            evaluator, directory.log, forget_faults=settings.on_error == "raise", ended=ended
        )
    left = settings.max_seconds
    if left is not None and saved is not None:
        left -= saved[0]["loop"]["seconds"]
    snapshots = Snapshots(directory, saved) if directory else None
    loop = Loop(
        opt,
        evaluator,
        retries=settings.retries,
        restarts=settings.restarts,
        max_evaluations=settings.max_evaluations,
        deadline=None if left is None else time.monotonic() + left,
        raise_errors=settings.on_error == "raise",
        callback=callback,
        progress=Progress() if progress else None,
        checkpoint=snapshots,
    )
    if saved and directory:
        restore_loop(loop, *saved, directory)
    try:
        with _sigterm_interrupts():
            return loop.run()
    finally:
        evaluator.close()


class Snapshots:
    """Writes the loop to the run directory, at most once a second."""

    def __init__(self, directory: RunDirectory, saved: Any) -> None:
        self._directory = directory
        self._seconds_before = saved[0]["loop"]["seconds"] if saved else 0.0
        self._started = time.monotonic()
        self._last = -np.inf

    def __call__(self, loop: Loop) -> None:
        now = time.monotonic()
        if now - self._last < SNAPSHOT_SECONDS:
            return
        self._last = now
        metadata, arrays = checkpoint.dump(loop.opt)
        totals = loop.totals
        metadata["loop"] = {
            "restarts": totals.restarts,
            "evaluations": totals.evaluations,
            "generations": totals.generations,
            "infeasible": totals.infeasible,
            "best_evaluation": totals.best.evaluation,
            "seconds": self._seconds_before + now - self._started,
            "seed": None if loop.seed is None else str(loop.seed),
        }
        metadata["ledger"], points = loop.ledger.dump()
        arrays.update(points)
        if totals.best.x is not None:
            arrays["loop.best.x"], arrays["loop.best.fun"] = totals.best.x, np.asarray(totals.best.fun)
        arrays["loop.history"] = loop.history.rows
        try:
            self._directory.write_snapshot(metadata, arrays)
        except RunError as error:
            raise StorageError(str(error)) from error


def restore_loop(
    loop: Loop, metadata: dict[str, Any], arrays: dict[str, Any], directory: RunDirectory
) -> None:
    try:
        saved, totals = metadata["loop"], loop.totals
        for name in ("restarts", "evaluations", "generations", "infeasible"):
            setattr(totals, name, int(saved[name]))
        if "loop.best.x" in arrays:
            best_fun = float(arrays["loop.best.fun"])
            totals.best = Best(arrays["loop.best.x"], best_fun, int(saved["best_evaluation"]))
        rows = np.asarray(arrays["loop.history"], dtype=float).reshape(-1, len(COLUMNS))
        loop.history.restore(rows)
        loop.seed = None if saved["seed"] is None else int(saved["seed"])
        loop.ledger.restore(metadata["ledger"], arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{directory.path}: found an unusable snapshot ({error})") from None


def finish(directory: RunDirectory, result: Result) -> None:
    """Leave the result in the directory; a disk that is full must not take it from the caller."""
    try:
        directory.finish(result.as_json())
    except RunError as error:
        warnings.warn(f"the result could not be saved: {error}", RuntimeWarning, stacklevel=3)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Batch systems end a job with SIGTERM: taken like Ctrl-C, so that the run ends with what it has."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # somebody else cares for it
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def describe_objective(fun: Any) -> dict[str, Any]:
    """What the run directory remembers: enough to run a Command again, or to know a function."""
    if isinstance(fun, Command):
        fields = {k: v for k, v in asdict(fun).items() if k != "environment"}
        plain = {k: os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in fields.items()}
        # Only the names: values may be secrets.
        return {"kind": "command", **plain, "environment_names": sorted(fun.environment or {})}
    module = getattr(fun, "__module__", None)
    name = getattr(fun, "__qualname__", None) or type(fun).__qualname__
    return {"kind": "function", "module": module, "name": name}
