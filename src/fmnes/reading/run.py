"""`fmnes.read_run`: the settings, progress and evaluations of a run directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fmnes._text import group_reasons
from fmnes.arguments import check_path
from fmnes.constraints import ConstraintResult, Limits
from fmnes.errors import RunError
from fmnes.evaluation.programs.workspace import KEPT_LINE, kept_directory
from fmnes.evaluations import Evaluations
from fmnes.outcome import Outcome
from fmnes.parameters import Parameter
from fmnes.result import Best, Columns, Failure, Result, Vector
from fmnes.run.history import History, Ledger, read_records, result_from_json
from fmnes.run.recording import FORGOTTEN, FORGOTTEN_VALUE, uncounted
from fmnes.run.settings import UNUSABLE, RunConfig
from fmnes.space import Space
from fmnes.storage.directory import KEPT, LOG, RunDirectory
from fmnes.storage.log import EvaluationLog
from fmnes.storage.log_reader import Logged, Summary
from fmnes.storage.snapshot import Arrays


@dataclass(frozen=True, eq=False)
class Reason:
    """All evaluations that failed, or were lost, for one reason.

    Attributes
    ----------
    reason : str
        The reason.
    count : int
        The number of evaluations.
    lost : bool
        Whether they were lost rather than failed.
    made_again : bool
        Whether they do not count: the objective looked broken, and a resumed run repeats them.
    started : float
        When the first of them began, in seconds since the epoch.
    generation : int
        Generation of the first of them; -1: it was the start itself.
    point : dict or None
        The first of them by name, in the user's units; None if points are too long to be stored.
    detail : str
        The output or the traceback of the first.
    directory : Path or None
        What is left of it, if it was a program's and still exists.

    Examples
    --------
    >>> import os, tempfile
    >>> import fmnes
    >>> def simulate(x):
    ...     return float(x @ x) if x[0] < 1 else None
    >>> run_dir = os.path.join(tempfile.mkdtemp(), "run")
    >>> options = {"rng": 1, "max_evaluations": 50, "run_dir": run_dir}
    >>> result = fmnes.minimize(simulate, [0.8, 1.0], 0.5, **options)
    >>> [reason] = fmnes.read_run(run_dir).reasons
    >>> reason.reason, reason.count == result.n_infeasible
    ('returned None', True)
    """

    reason: str
    count: int
    lost: bool
    made_again: bool
    started: float
    generation: int
    point: dict[str, Any] | None
    detail: str
    directory: Path | None


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run as it was when `fmnes.read_run` read it, in the user's names and units.

    Attributes
    ----------
    path : Path
        The run directory.
    state : str
        "running (process 17 on node3)", the name of a `fmnes.StopReason`, or "stopped; resume it".
    message : str or None
        Why it ended, with the numbers; None if it has not ended.
    settings : dict
        The settings of `minimize` other than those of the search itself.
    search : dict
        The method, the first population size, the seed and so on; empty for older runs.
    versions : dict of str to str
        Versions of fmnes, NumPy and Python when it began; empty for older runs.
    objective : dict
        The function's name, or the fields of a Command.
    parameters : dict of str to Parameter or None
        {name: fmnes.Real or fmnes.Integer}; None with arrays.
    names : tuple of str
        Names of the coordinates: x0, x1, … with arrays. Empty before the first evaluation, if none were
        given.
    result : Result or None
        What `minimize` returned; None while the run is in progress, and if it was ended from outside.
    best : Best
        The best point so far; `evaluation` counts in the order of the log.
    summary : Summary
        The number of evaluations by status and by reason; when the first began and the last ended.
    history : Columns
        One array per column, one entry per generation, as `Result.history`. For a run in progress it is
        as old as the last snapshot: some seconds.
    constraints : dict of str to ConstraintResult or None
        As `Result.constraints`, at the best point; None without limits, or while no point is within them.

    Examples
    --------
    >>> import os, tempfile
    >>> import fmnes
    >>> run_dir = os.path.join(tempfile.mkdtemp(), "run")
    >>> result = fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, rng=1, run_dir=run_dir, target=1e-3)
    >>> run = fmnes.read_run(run_dir)
    >>> run.state, run.names, run.result.nfev == result.nfev
    ('TARGET', ('x0', 'x1'), True)
    >>> len(run.evaluations["value"]) == run.answered
    True
    """

    path: Path
    state: str
    message: str | None
    settings: dict[str, Any]
    search: dict[str, Any]
    versions: dict[str, str]
    objective: dict[str, Any]
    parameters: dict[str, Parameter] | None
    names: tuple[str, ...]
    result: Result | None
    best: Best
    summary: Summary
    history: Columns
    constraints: dict[str, ConstraintResult] | None = None
    _limits: Limits | None = field(default=None)
    _space: Space | None = field(default=None)

    @property
    def running(self) -> bool:
        """Whether a process is working on it."""
        return self.result is None and self.state.startswith("running")

    @property
    def answered(self) -> int:
        """The number of evaluations that have a value or have failed, and count."""
        return self.summary.statuses.get("value", 0) - self._taken_back(FORGOTTEN_VALUE) + self.failed

    @property
    def failed(self) -> int:
        """The number of evaluations that failed, and count."""
        return self.summary.failed - self.made_again

    @property
    def made_again(self) -> int:
        """The number of failed evaluations that a resumed run repeats (the objective looked broken)."""
        return self._taken_back(FORGOTTEN)

    def _taken_back(self, by: Outcome) -> int:
        return self.summary.reasons["lost"].get(by.reason, 0)

    def named(self, x: Any) -> dict[str, Any]:
        """Return a point by name and in the user's units.

        Parameters
        ----------
        x : ndarray or dict
            A point of the search, or of the result.

        Returns
        -------
        dict
            {name: value}; empty before the first evaluation.
        """
        if isinstance(x, dict):
            return x
        return {} if self._space is None else self._space.named(np.asarray(x, dtype=float))

    def __repr__(self) -> str:
        counts = f"{self.summary.evaluations} evaluations, {self.summary.failed} failed"
        return f"Run({str(self.path)!r}: {self.state}; {counts}; best {self.best.fun:.6g})"

    @cached_property
    def evaluations(self) -> Evaluations:
        """Every evaluation as a table, each row checked; read on first use."""
        with _log(self.path) as log:
            return Evaluations.of(log.batches(), self._space)

    def tables(self) -> Iterator[Evaluations]:
        """Yield the evaluations in parts, for runs that are too large for the memory; at least one part.

        Yields
        ------
        Evaluations
            The next rows.
        """
        with _log(self.path) as log:
            kinds = log.tally().kinds()
            yield Evaluations.of([], self._space, kinds)
            for batch in log.batches():
                yield Evaluations.of([batch], self._space, kinds)

    @cached_property
    def failures(self) -> list[Failure]:
        """The reasons for failed evaluations, most frequent first; read on first use.

        Each has its first points, the detail of the first one, and the directory that was kept of a program.
        """
        ledger = Ledger()
        with _log(self.path) as log:
            for row in log.infeasible():
                ledger.add(row.outcome, np.empty(0) if row.x is None else row.x)
            firsts = {one.reason: row for one, row in self._reasons(log) if not one.lost}
        found = [replace(f, directory=self._kept(firsts.get(f.reason))) for f in ledger.failures()]
        return [_failure_in_units(failure, self._space) for failure in found]

    @cached_property
    def reasons(self) -> list[Reason]:
        """The reasons for failed and lost evaluations, most frequent first, each with its first evaluation.

        Read on first use; it is quick, as only these rows are read.
        """
        with _log(self.path, check_pages=False) as log:
            return [reason for reason, _ in self._reasons(log)]

    def _reasons(self, log: EvaluationLog) -> list[tuple[Reason, Logged]]:
        """Each reason with its first row; many reasons that differ only in numbers become one."""
        firsts = log.firsts()
        groups = {
            status: group_reasons(row.outcome.reason for _, row in firsts if row.outcome.status == status)
            for status in ("infeasible", "lost")
        }
        alike: dict[tuple[str, str], list[tuple[int, Logged]]] = {}
        for count, row in firsts:
            status = row.outcome.status
            alike.setdefault((status, groups[status][row.outcome.reason]), []).append((count, row))
        found = [
            (sum(count for count, _ in rows), reason, min((row for _, row in rows), key=lambda row: row.key))
            for (_, reason), rows in alike.items()
        ]
        found.sort(key=lambda one: -one[0])
        return [(self._reason(reason, count, row), row) for count, reason, row in found]

    def _reason(self, reason: str, count: int, row: Logged) -> Reason:
        """The summary of evaluations with this reason; row: the first of them."""
        lines = row.outcome.detail.splitlines()
        if lines and lines[-1].startswith(KEPT_LINE):  # `directory` has it
            lines.pop()
        kept = kept_directory(self.path / KEPT, row.key, row.outcome.detail)
        return Reason(
            reason=reason,
            count=count,
            lost=row.outcome.status == "lost",
            made_again=uncounted(row.outcome),
            started=row.started,
            generation=row.key.generation,
            point=None if row.x is None else self.named(row.x),
            detail="\n".join(lines) or (row.outcome.reason if row.outcome.reason != reason else ""),
            directory=kept,
        )

    def _kept(self, first: Logged | None) -> str | None:
        found = None if first is None else kept_directory(self.path / KEPT, first.key, first.outcome.detail)
        return None if found is None else str(found)


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read the run in a directory as it is now, also while it is running or after it was copied elsewhere.

    Nothing is written, and no file stays open.

    Parameters
    ----------
    path : path
        The run directory.

    Returns
    -------
    Run
        The run. `run.evaluations` has every evaluation; `run.result` is None until the run has ended.

    Raises
    ------
    ArgumentError
        `path` is not a path.
    RunError
        The directory holds no run, or a damaged one.

    Examples
    --------
    >>> import os, tempfile
    >>> import fmnes
    >>> run_dir = os.path.join(tempfile.mkdtemp(), "run")
    >>> result = fmnes.minimize(lambda x: float(x @ x), [3.0, 2.0], 0.5, rng=1, run_dir=run_dir, target=1e-3)
    >>> fmnes.read_run(run_dir).best.fun == result.fun
    True
    """
    path = Path(check_path("path", path)).absolute()
    with RunDirectory.open(path, read_only=True) as directory:
        user = directory.in_use_by
        ended = None if user else directory.result
        summary = directory.log.summary()
        config = RunConfig.read(path, directory.config)
        if config.limits is not None:
            summary = summary._replace(best=_best_within(config.limits, directory.log))
        position = 0 if summary.best is None else directory.log.position(summary.best.key)
        saved = None if ended is None else directory.read_ending()
        last = saved or directory.read_snapshot()
    try:
        d = _dimension(config, summary, ended, last)
        space = None if d is None else config.coordinates(d)
        named = None if space is None else config.space
        parameters = None if named is None else named.parameters
        history, ledger = (History(), Ledger()) if last is None else read_records(*last)
        result, shown, state = None, None, f"running ({user})" if user else "stopped; resume it"
        if ended is not None:
            sigma0 = np.nan if saved is None else float(saved[1]["sigma0"])
            result = result_from_json(ended, d)
            result = replace(result, failures=ledger.failures(), history=history.columns(), sigma0=sigma0)
            shown = replace(_in_units(result, space, named), parameters=parameters)
            state = str(ended["stop_reason"])
        best = _best(summary, position, result)
        constraints = None if result is None else result.constraints
        if config.limits is not None and result is None and summary.best is not None:
            row = config.limits.row(summary.best.outcome)
            constraints = config.limits.report(row, np.zeros(config.limits.size))
        return Run(
            path=path,
            state=state,
            message=None if result is None else result.message,
            settings=config.settings.as_json(),
            search=config.search,
            versions=config.versions,
            objective=config.objective,
            parameters=parameters,
            names=() if space is None else space.names,
            result=shown,
            best=best if best.x is None else best._replace(x=_point(best.x, space, named)),
            summary=summary._replace(best=None),
            history=history.columns(),
            constraints=constraints,
            _limits=config.limits,
            _space=space,
        )
    except UNUSABLE as error:
        raise RunError(f"{path}: found an unusable result or configuration ({error})") from None


@contextmanager
def _log(path: Path, *, check_pages: bool = True) -> Iterator[EvaluationLog]:
    log = EvaluationLog(path / LOG, read_only=True, check_pages=check_pages)
    try:
        yield log
    finally:
        log.close()


def _dimension(
    config: RunConfig,
    summary: Summary,
    ended: Mapping[str, Any] | None,
    last: tuple[dict[str, Any], Arrays] | None,
) -> int | None:
    """The dimension; None if it is not known yet."""
    if last is not None and "x0" in last[1]:
        return len(last[1]["x0"])
    if summary.best is not None and summary.best.x is not None:
        return len(summary.best.x)
    said = (ended or {}).get("x_mean") or config.names
    return len(said) if said else None


def _best_within(limits: Limits, log: EvaluationLog) -> Logged | None:
    """The best evaluation within the limits, the first of several."""
    best: Logged | None = None
    for row in log.rows(outputs=True):
        if row.outcome.status != "value" or (best is not None and row.outcome.value >= best.outcome.value):
            continue
        if limits.check(row.outcome) is row.outcome:
            g = limits.excess(limits.row(row.outcome)[None])
            best = row if limits.satisfied(g)[0] else best
    return best


def _best(summary: Summary, position: int, result: Result | None) -> Best:
    """Of the log, or of the result: that one knows what was known before, and points that are too long."""
    found = summary.best
    logged = Best(None, np.inf, 0) if found is None else Best(found.x, found.outcome.value, position)
    if result is not None and result.x is not None and result.noise is not None:
        return Best(result.x, result.fun, 0)  # an average, and not the luckiest value
    if result is None or result.x is None or result.fun > logged.fun:
        return logged
    return logged._replace(x=result.x) if result.fun == logged.fun else Best(result.x, result.fun, 0)


def _point(x: Vector, space: Space | None, named: Space | None) -> Any:
    if named is not None:
        return named.named(x)
    return x if space is None else space.table(x[None])[0]


def _in_units(result: Result, space: Space | None, named: Space | None) -> Result:
    if named is not None and result.x_mean is not None:
        return named.result(result)
    seen: Any = result.best_seen
    return replace(
        result,
        x=None if result.x is None else _point(result.x, space, named),
        x_mean=None if result.x_mean is None else _point(result.x_mean, space, named),
        failures=[_failure_in_units(failure, space) for failure in result.failures],
        best_seen=None if seen is None else seen._replace(x=_point(seen.x, space, named)),
    )


def _failure_in_units(failure: Failure, space: Space | None) -> Failure:
    if space is None or failure.x.size == 0:
        return replace(failure, x=np.empty((0, 0 if space is None else len(space.names))))
    return replace(failure, x=space.table(failure.x))
