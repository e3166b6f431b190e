"""One session of a run: what a process needs around the loop, with or without a run directory under it.

`minimize` begins a run and `resume` goes on with one; both end up here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fmnes._logging import telling
from fmnes.display.progress import Progress
from fmnes.errors import ObjectiveError, RunError, warn
from fmnes.evaluation.evaluator import Evaluator
from fmnes.evaluations import Evaluations
from fmnes.result import Result, View
from fmnes.run.forgetting import take_back
from fmnes.run.interrupts import StopRequestWatcher, sigterm_interrupts
from fmnes.run.loop import Loop
from fmnes.run.recording import MemoryRecorder, RecordingEvaluator
from fmnes.run.settings import Settings
from fmnes.run.snapshots import RunState, Snapshots
from fmnes.run.state import StoppedWorking
from fmnes.run.stored_result import store_result
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
    """Run to the end, and leave the result in the directory. Closes the evaluator.

    Inside, a run of named parameters is all numbers; its user is told in the words of `space`.
    kept_as: the evaluations stay in the result, in these words.
    """
    kept: EvaluationLog | MemoryRecorder | None = directory.log if directory else None
    left = None if settings.max_seconds is None else settings.max_seconds - state.seconds
    with contextlib.ExitStack() as around:
        around.callback(evaluator.close)
        if directory:
            evaluator = around.enter_context(_remembering(evaluator, directory))
            around.enter_context(sigterm_interrupts())
        elif kept_as:
            evaluator = kept = MemoryRecorder(evaluator)
        shown = Progress(made_before=directory.log.count() if directory else 0) if progress else None
        if shown:
            around.enter_context(telling(shown.say))
        loop = Loop(
            state,
            settings,
            evaluator,
            deadline=None if left is None else time.monotonic() + left,
            callback=_in_words(callback, space),
            progress=shown,
            snapshots=Snapshots(directory) if directory else None,
            wishes=StopRequestWatcher(directory.path) if directory else None,
        )
        result = loop.run()
    if directory:
        store_result(directory, result, state.history, state.failures)
    if kept_as and kept:
        result = replace(result, evaluations=table_of(kept, kept_as))
    return result if space is None else space.result(result)


def _in_words(callback: Callable[[View], Any] | None, space: Space | None) -> Callable[[View], Any] | None:
    if callback is None or space is None:
        return callback
    return lambda view: callback(space.view(view))


def table_of(kept: EvaluationLog | MemoryRecorder, words: Space) -> Evaluations | None:
    try:
        return Evaluations.of(kept.batches(), words)
    except RunError as error:  # a disk that fails now must not take the result from the caller
        warn(f"the evaluations cannot be given: {error}")
        return None


class BrokenByTheLog(ObjectiveError):
    """The objective looked broken, and nothing new was evaluated to say so: it may have been mended."""


@contextlib.contextmanager
def _remembering(evaluator: Evaluator, directory: RunDirectory) -> Iterator[Evaluator]:
    """An evaluator that remembers; what breaks the run is not remembered."""
    remembering = RecordingEvaluator(evaluator, directory.log)
    try:
        yield remembering
    except ObjectiveError as error:
        # A full disk must not hide what is wrong with the objective.
        with contextlib.suppress(RunError):
            if isinstance(error, StoppedWorking):
                _forget(directory, error.reason)
            else:
                remembering.forget_faults()
        if not remembering.evaluated:
            raise BrokenByTheLog(*error.args) from None
        raise


def _forget(directory: RunDirectory, reason: str) -> None:
    """All evaluations that failed with this reason: it was new, so that they are those of the streak."""
    take_back(directory, lambda row: row.outcome.reason == reason)
