"""One session of a run: the set-up around the loop that `minimize` and `resume` share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fmnes.errors import ObjectiveError, RunError, telling, warn
from fmnes.evaluation.evaluator import Evaluator
from fmnes.evaluations import Evaluations
from fmnes.progress import Progress
from fmnes.result import Result, View
from fmnes.run.forgetting import take_back
from fmnes.run.history import store_result
from fmnes.run.interrupts import StopRequestWatcher, sigterm_interrupts
from fmnes.run.loop import Loop
from fmnes.run.recording import MemoryLog, Recorder
from fmnes.run.settings import Settings
from fmnes.run.state import RunState, Snapshots, StoppedWorking
from fmnes.space import Space
from fmnes.storage.directory import RunDirectory
from fmnes.storage.log import EvaluationLog


def run_session(
    state: RunState,
    settings: Settings,
    evaluator: Evaluator,
    *,
    directory: RunDirectory | None,
    space: Space | None,
    callback: Callable[[View], Any] | None,
    progress: bool,
    kept_as: Space | None,
) -> Result:
    """Run to the end, store the result in the directory, and close the evaluator.

    space: named parameters, in which the callback and the result are expressed.
    kept_as: names and units of `result.evaluations`; None: without them.
    """
    log: EvaluationLog | MemoryLog | None = directory.log if directory else MemoryLog() if kept_as else None
    left = None if settings.max_seconds is None else settings.max_seconds - state.seconds
    with contextlib.ExitStack() as around:
        around.callback(evaluator.close)
        recorder = None if log is None else Recorder(log, outputs=state.opt.limits is not None)
        if directory and recorder:
            around.enter_context(_cancelled_in(directory, recorder))
            around.enter_context(sigterm_interrupts())
        shown = Progress(made_before=directory.log.count() if directory else 0) if progress else None
        if shown:
            around.enter_context(telling(shown.say))
        loop = Loop(
            state,
            settings,
            evaluator,
            recorder,
            deadline=None if left is None else time.monotonic() + left,
            callback=_in_words(callback, space),
            progress=shown,
            snapshots=Snapshots(directory) if directory else None,
            stop_requests=StopRequestWatcher(directory.path) if directory else None,
        )
        result = loop.run()
    if directory:
        store_result(directory, result, state.history, state.failures)
    if kept_as and log:
        result = replace(result, evaluations=table_of(log, kept_as))
    return result if space is None else space.result(result)


def _in_words(callback: Callable[[View], Any] | None, space: Space | None) -> Callable[[View], Any] | None:
    if callback is None or space is None:
        return callback
    return lambda view: callback(space.view(view))


def table_of(log: EvaluationLog | MemoryLog, words: Space) -> Evaluations | None:
    try:
        return Evaluations.of(log.batches(), words)
    except RunError as error:  # a failing disk must not lose the result
        warn(f"the evaluations cannot be given: {error}")
        return None


class BrokenByTheLog(ObjectiveError):
    """The objective looked broken by the log alone, without a new evaluation: it may work again."""


@contextlib.contextmanager
def _cancelled_in(directory: RunDirectory, recorder: Recorder) -> Iterator[None]:
    """Cancel failures in the log that end the run with an error."""
    try:
        yield
    except ObjectiveError as error:
        # A full disk must not hide the error of the objective.
        with contextlib.suppress(RunError):
            if isinstance(error, StoppedWorking):
                _forget(directory, error.reason)
            else:
                recorder.forget_suspects()
        if not recorder.evaluated:
            raise BrokenByTheLog(*error.args) from None
        raise


def _forget(directory: RunDirectory, reason: str) -> None:
    """Cancel all evaluations that failed with this reason, which was new: they are the streak."""
    take_back(directory, lambda row: row.outcome.reason == reason)
