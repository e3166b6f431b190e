"""One session of a run: from arguments to a loop, with or without a run directory under it.

`minimize` begins a run and `resume` goes on with one; both end up here.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fmnes.errors import RunError, StorageError
from fmnes.evaluation.evaluator import Evaluator
from fmnes.report.history import COLUMNS
from fmnes.report.progress import Progress
from fmnes.result import Best, Result, View
from fmnes.run.loop import Loop
from fmnes.run.replay import Remembering
from fmnes.run.settings import Settings
from fmnes.search.optimizer import Optimizer
from fmnes.storage.directory import RunDirectory

#: Seconds between snapshots. What was evaluated since then is in the log, so this only saves replaying.
SNAPSHOT_SECONDS = 1.0


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
    evaluator = evaluator or settings.evaluator(fun, executor, len(opt.mean))
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
        metadata, arrays = loop.opt.dump()
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
