"""`fmnes.resume`: continue a run, or read the result of a finished one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from fmnes.arguments import Default, check_callback, check_flag, check_path, suggest_options
from fmnes.errors import ArgumentError, RunError, SnapshotError, logger, one_line, warn
from fmnes.evaluation.evaluator import Evaluator, Outcomes, TaskSource
from fmnes.evaluation.objective import Objective, check_same_objective, stored_objective
from fmnes.result import Result, StopReason, View
from fmnes.run.forgetting import take_back_meant
from fmnes.run.history import read_whole_result
from fmnes.run.loop import check_origin
from fmnes.run.session import BrokenByTheLog, run_session, table_of
from fmnes.run.settings import RunConfig, Settings
from fmnes.run.state import RunState
from fmnes.storage.directory import RESULT, RunDirectory

_UNCHANGED: Any = Default("unchanged")
#: Stop reasons after which a resumed run has more to do.
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


@suggest_options
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
    forget_failures: bool | str | datetime = False,
    executor: Any = None,
    keep_evaluations: bool = False,
    callback: Callable[[View], Any] | None = None,
    progress: bool = False,
) -> Result:
    """Continue the run in `run_dir` as if it had never stopped.

    The settings come from the directory; those given here replace them, for example a larger
    `max_evaluations`. No finished evaluation is repeated, and an unfinished generation is completed. If the
    run has ended for good, its result is returned.

    Parameters
    ----------
    run_dir : path
        The run directory, as given to `fmnes.minimize`.
    fun : callable or Command, optional
        The same objective as before. A `fmnes.Command` may be left out: the directory has it.
    max_evaluations : int or None, optional
        Replaces the budget of evaluations of the whole run.
    max_seconds : float or None, optional
        Replaces the budget of time, which starts again.
    target : float or None, optional
        Replaces the target.
    workers : int, optional
        Replaces the number of worker processes.
    timeout : float or None, optional
        Replaces the timeout of an evaluation, in seconds.
    retries : int, optional
        Replaces how often a lost evaluation is repeated.
    forget_failures : True, str or datetime, optional
        Take failed evaluations back because their cause is mended: True for all since the last success, a
        part of their reason or output ("libfoo.so"), or a time for all since then (a datetime, or
        "2026-05-01T12:00"). The search goes back to the first of them and continues as if they had not
        happened.
    executor : Executor or FileQueue, optional
        As in `fmnes.minimize`; it is never stored.
    keep_evaluations : bool, optional
        Keep every evaluation, from the first one on, in `result.evaluations`.
    callback : callable, optional
        As in `fmnes.minimize`.
    progress : bool, optional
        Show a progress line on stderr.

    Returns
    -------
    Result
        The result of the whole run. `x` is a dict if the run has named parameters, otherwise an array.

    Raises
    ------
    ArgumentError
        An argument is wrong, or `fun` is missing.
    ObjectiveError
        The objective seems to have stopped working: evaluations fail in one way that is new in this run.
    RunError
        The directory holds no run, a run of another objective, a damaged one, or one that another process is
        using.

    Examples
    --------
    >>> import os, tempfile
    >>> import fmnes
    >>> def simulate(x):
    ...     return float(x @ x)
    >>> run_dir = os.path.join(tempfile.mkdtemp(), "run")
    >>> first = fmnes.minimize(simulate, [3.0, 2.0], 0.5, rng=1, run_dir=run_dir, max_evaluations=20)
    >>> fmnes.resume(run_dir, simulate, max_evaluations=50).nfev
    50
    """
    check_callback(callback)
    check_flag("progress", progress)
    check_flag("keep_evaluations", keep_evaluations)
    check_path("run_dir", run_dir)
    given = {"max_evaluations": max_evaluations, "max_seconds": max_seconds, "workers": workers}
    given |= {"timeout": timeout, "retries": retries, "target": target}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not _UNCHANGED}
    if forget_failures is False:
        result = _read_finished(run_dir, fun, changes, keep_evaluations)
        if result is not None:
            return result
    with RunDirectory.open(run_dir) as directory:
        config = RunConfig.read(directory.path, directory.config)
        settings, space = replace(config.settings, **changes), config.space
        objective = stored_objective(directory.path, config.objective, fun)
        ending = _ending(directory)
        ended = settings == config.settings and _has_ended(ending)
        if objective is None and (not ended or forget_failures is not False):
            name = config.objective["name"]
            raise ArgumentError(f"fun: found none, wanted the run's objective, {name!r}, to go on with it")
        if forget_failures is False:
            _refuse_used_budget(settings.max_evaluations, ending)

        logger.info("the run in %s is taken up again", one_line(str(directory.path)))
        if forget_failures is not False and take_back_meant(directory, forget_failures).failures:
            ended, ending = False, None

        def go_on() -> Result:
            state = _state(directory, settings)
            if space is not None and len(space.names) != len(state.opt.x0):
                raise RunError(
                    f"{directory.path}: found {len(space.names)} parameters for points of "
                    f"{len(state.opt.x0)} coordinates, wanted as many: an unusable configuration"
                )
            evaluator: Evaluator = _NothingLeft(directory)
            if not ended:
                d, limits = len(state.opt.x0), state.opt.limits
                whole = Objective(objective, d, space, settings.vectorized, limits)
                evaluator = settings.evaluator(whole, executor, run_dir, state.opt.overlap)
                directory.finish(None)  # the old result is no longer valid
            directory.update_config(replace(config, settings=settings).as_json())
            return run_session(
                state,
                settings,
                evaluator,
                directory=directory,
                space=space,
                callback=callback,
                progress=progress,
                kept_as=config.coordinates(len(state.opt.x0)) if keep_evaluations else None,
            )

        try:
            result = go_on()
        except BrokenByTheLog:  # these failures are cancelled now
            result = go_on()
    if ending is not None and ending.get("nfev") == result.nfev:
        _warn_of_failures(result)
    return result


def _read_finished(
    run_dir: str | os.PathLike[str], fun: Any, changes: dict[str, Any], keep_evaluations: bool
) -> Result | None:
    """The stored result of a run that has ended for good; None if there is more to do, or to replay."""
    if not os.path.exists(os.path.join(run_dir, RESULT)):
        return None
    with RunDirectory.open(run_dir, read_only=True) as directory:
        config = RunConfig.read(directory.path, directory.config)
        data = _ending(directory)
        if replace(config.settings, **changes) != config.settings or data is None or not _has_ended(data):
            return None
        result = read_whole_result(directory, data)
        if result is None or directory.in_use_by:
            return None
        if fun is not None:
            check_same_objective(directory.path, config.objective, fun)
        logger.info("the run in %s has ended: its result is read", one_line(str(directory.path)))
        if keep_evaluations:
            coordinates = config.coordinates(len(result.x_mean))
            result = replace(result, evaluations=table_of(directory.log, coordinates))
    _warn_of_failures(result)
    return result if config.space is None else config.space.result(result)


def _warn_of_failures(result: Result) -> None:
    """Nothing was evaluated now: if every evaluation had failed, say how to go on."""
    if result.stop_reason is StopReason.NO_FEASIBLE:
        warn(
            "the run had ended with NO_FEASIBLE and nothing was evaluated now: when the cause of the "
            "failures is mended, resume it with forget_failures=True (fmnes resume RUN --forget-failures)"
        )


def _refuse_used_budget(max_evaluations: int | None, ending: dict[str, Any] | None) -> None:
    """A result of fewer evaluations would replace the stored one, with a best point that may be worse."""
    used = 0 if ending is None else ending.get("nfev")
    if max_evaluations is not None and isinstance(used, int) and max_evaluations < used:
        raise ArgumentError(
            f"max_evaluations: found {max_evaluations}, but the run has used {used} evaluations already; "
            f"wanted more than {used}: it is the budget of the whole run"
        )


def _has_ended(ending: dict[str, Any] | None) -> bool:
    """Whether a run with this stored result has ended for good."""
    return ending is not None and ending.get("stop_reason") not in _OPEN_ENDINGS


def _ending(directory: RunDirectory) -> dict[str, Any] | None:
    """The stored result; None if it is damaged, as it follows from the log."""
    try:
        return directory.result
    except RunError:
        return None


def _state(directory: RunDirectory, settings: Settings) -> RunState:
    """The run as of its last snapshot, with the present budgets."""
    saved = directory.read_snapshot()
    if saved is None:
        evaluations = directory.log.count()
        if evaluations:
            raise RunError(
                f"{directory.path}: found {evaluations} evaluations but no snapshot.npz, wanted it back: it "
                "says where the run had begun"
            )
        raise RunError(
            f"{directory.path}: found no snapshot, so nothing was evaluated; begin the run again: minimize "
            "takes this directory as it is"
        )
    metadata, arrays = saved
    try:
        state = RunState.restore(metadata, arrays)
    except SnapshotError as error:
        raise RunError(f"{directory.path}: {error}") from None
    try:
        check_origin(state.opt, settings.restart_from)
    except ArgumentError as error:
        raise RunError(f"{directory.path}: found an unusable configuration ({error})") from None
    state.opt.target = settings.target
    limit = settings.max_evaluations
    state.opt.max_evaluations = None if limit is None else max(limit - state.totals.evaluations, 1)
    if metadata.get("numpy") != np.__version__:
        warn(
            f"the run was made with NumPy {metadata.get('numpy')}, this is {np.__version__}: it goes on, but "
            "perhaps not bit for bit (not bitwise)"
        )
    return state


class _NothingLeft:
    """The evaluator of a run that has ended: the log has every evaluation."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    def __call__(self, tasks: TaskSource, deadline: float | None = None) -> Outcomes:
        if tasks.take() is not None:
            raise RunError(
                f"{self._directory.path}: found evaluations missing from the log; pass fun= to make them"
            )
        yield from ()

    def close(self) -> None:
        pass
