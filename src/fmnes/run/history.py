"""What a run records for its user: a row per generation, failures by reason, the result, and log messages."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fmnes._text import MAX_ALIKE, kind_of
from fmnes.constraints import read_constraint_results
from fmnes.errors import FmnesError, RunError, SnapshotError, logger, one_line, warn
from fmnes.outcome import START, EvaluationId, Outcome, from_number
from fmnes.result import Best, Columns, Failure, Noise, Result, Stop, StopReason, Vector, View
from fmnes.run.settings import BOX
from fmnes.storage.directory import RunDirectory
from fmnes.storage.snapshot import Arrays

if TYPE_CHECKING:
    from fmnes.run.restarts import Plan
    from fmnes.run.state import RunState
    from fmnes.search.optimizer import Optimizer

# -- The history: one row per generation, thinned out in very long runs, as it is part of every snapshot

#: Snapshots have the columns in this order.
COLUMNS = tuple(Columns.__annotations__)
_WHOLE = ("restart", "generation", "evaluations")
#: Maximum number of rows; when it is reached, every second one is dropped.
MAX_ROWS = 2**15


class History:
    def __init__(self) -> None:
        self._rows = np.empty((64, len(COLUMNS)))
        self._length = 0
        self._seen = 0
        """Generations so far. The rows are those of generations 0, `_stride`, 2 `_stride`, … and the last."""
        self._stride = 1
        self._started = time.monotonic()

    def has(self, view: View) -> bool:
        """True if this generation's row is there already."""
        if not self._length:
            return False
        restart, generation = self._rows[self._length - 1, :2]
        return bool((restart, generation) >= (view.restart, view.generation))

    def add(self, view: View) -> None:
        if self._length and (self._seen - 1) % self._stride:
            self._length -= 1  # it was there only because it was the last
        if self._length == MAX_ROWS:
            self._length = MAX_ROWS // 2
            self._rows[: self._length] = self._rows[:MAX_ROWS:2]
            self._stride *= 2
        if self._length == len(self._rows):
            self._rows = np.concatenate((self._rows, np.empty_like(self._rows)))
        self._rows[self._length] = (
            view.restart,
            view.generation,
            view.evaluations,
            view.best.fun,
            view.generation_best,
            view.sigma,
            view.axis_lengths.max(),
            view.axis_lengths.min(),
            view.feasible_share,
            time.monotonic() - self._started,
        )
        self._length += 1
        self._seen += 1

    @property
    def rows(self) -> NDArray[np.float64]:
        return self._rows[: self._length]

    def dump(self) -> tuple[list[int], NDArray[np.float64]]:
        """[generations so far, generations from row to row], and the rows."""
        return [self._seen, self._stride], self.rows

    @classmethod
    def restore(cls, counts: list[int], rows: NDArray[np.float64]) -> History:
        """Go on from the rows of a saved run, and from its time."""
        history = cls()
        seen, stride = counts
        if stride < 1:
            raise ValueError(f"a history of every {stride} generations")
        wanted = -(-seen // stride) + ((seen - 1) % stride > 0)
        if rows.shape != (wanted, len(COLUMNS)):
            raise ValueError(f"a history of shape {rows.shape} for {seen} generations by {stride}")
        history._length, history._seen, history._stride = len(rows), seen, stride
        history._rows = np.concatenate((rows, np.empty((64, len(COLUMNS)))))
        if len(rows):
            history._started = time.monotonic() - float(rows[-1, COLUMNS.index("seconds")])
        return history

    def columns(self) -> Columns:
        rows = self.rows
        columns = {
            name: rows[:, i].astype(np.int64) if name in _WHOLE else rows[:, i].copy()
            for i, name in enumerate(COLUMNS)
        }
        return cast(Columns, columns)


# -- Failures by reason

#: Reasons kept apart, and points of each; the rest is only counted, as this is part of every snapshot.
MAX_REASONS = 1000
MAX_POINTS = 100
#: Coordinates kept in all; of a reason's first point there may be more, up to the second number.
MAX_NUMBERS, MAX_FIRST_NUMBERS = 250_000, 1_000_000
#: Characters of details kept in all, and of each one after that.
MAX_CHARACTERS, SHORT_DETAIL = 250_000, 200
OTHER = "(other reasons)"


@dataclass
class _Entry:
    detail: str
    count: int = 0
    points: list[Vector] = field(default_factory=list)


class Ledger:
    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._kinds: Counter[str] = Counter()
        """How many reasons there are of each kind."""
        self._numbers = self._characters = 0

    def has(self, reason: str) -> bool:
        """Whether a failure with this reason was noted, alone or as one of many that are alike."""
        return any(name in self._entries for name in (reason, kind_of(reason), OTHER))

    def add(self, outcome: Outcome, x: Vector) -> None:
        """Note an evaluation if it failed."""
        if outcome.status != "infeasible":
            return
        reason = outcome.reason
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("evaluation failed: %s", one_line(reason))
        if reason not in self._entries:
            reason = self._entry_name(reason)
        if reason not in self._entries:
            self._entries[reason] = _Entry(self._affordable(outcome.detail))
        entry = self._entries[reason]
        entry.count += 1
        most = MAX_NUMBERS if entry.points else MAX_FIRST_NUMBERS
        if len(entry.points) < MAX_POINTS and self._numbers + len(x) <= most:
            entry.points.append(np.array(x))
            self._numbers += len(x)

    def _entry_name(self, reason: str) -> str:
        """The entry of a new reason: itself, its kind if many reasons differ only in numbers, or the rest."""
        kind = kind_of(reason)
        if kind in self._entries:
            return kind
        if self._kinds[kind] == MAX_ALIKE:
            self._merge(kind)
            return kind
        if len(self._entries) >= MAX_REASONS:
            return OTHER
        self._kinds[kind] += 1
        return reason

    def _merge(self, kind: str) -> None:
        """All reasons of this kind become one, in the place of the first."""
        first, *others = [reason for reason in self._entries if kind_of(reason) == kind]
        merged = self._entries[first]
        if not merged.detail:  # its words, which the kind no longer has
            merged.detail = self._affordable(first)
        for reason in others:
            entry = self._entries.pop(reason)
            merged.count += entry.count
            kept = entry.points[: MAX_POINTS - len(merged.points)]
            merged.points += kept
            self._numbers -= sum(map(len, entry.points[len(kept) :]))
            self._characters -= len(entry.detail)
        self._entries = {kind if reason == first else reason: e for reason, e in self._entries.items()}

    def _affordable(self, detail: str) -> str:
        """The end of it, shorter when much is kept already."""
        if self._characters + len(detail) > MAX_CHARACTERS:
            detail = detail[-SHORT_DETAIL:]
        self._characters += len(detail)
        return detail

    def add_values(self, f: NDArray[np.float64], x: NDArray[np.float64]) -> None:
        """Note the failed ones of many values. f: (n,), x: (n, d)."""
        for i in np.flatnonzero(~np.isfinite(f)):
            self.add(from_number(float(f[i])), x[i])

    def dump(self) -> tuple[list[list[Any]], NDArray[np.float64]]:
        """[reason, count, detail, number of points] of each entry, and all points one after another."""
        entries = [[reason, e.count, e.detail, len(e.points)] for reason, e in self._entries.items()]
        points = [x for e in self._entries.values() for x in e.points]
        return entries, np.array(points) if points else np.empty((0, 0))

    @classmethod
    def restore(cls, entries: list[list[Any]], points: NDArray[np.float64]) -> Ledger:
        ledger, begin = cls(), 0
        for reason, count, detail, n in entries:
            own = points[begin : begin + n]
            if len(own) != n or count < n:
                raise ValueError(f"{len(own)} points of {n} for a reason that was met {count} times")
            ledger._entries[str(reason)] = _Entry(str(detail), int(count), list(own))
            ledger._numbers += own.size
            ledger._characters += len(detail)
            begin += n
        ledger._kinds.update(map(kind_of, ledger._entries))
        return ledger

    def failures(self) -> list[Failure]:
        """Most frequent first."""
        entries = sorted(self._entries.items(), key=lambda item: -item[1].count)
        return [Failure(reason, e.count, np.array(e.points), e.detail) for reason, e in entries]


# -- Reading both without loading the search


def read_records(metadata: dict[str, Any], arrays: Arrays) -> tuple[History, Ledger]:
    """The history and the failures of a snapshot or `result.npz`. Raises SnapshotError."""
    try:
        run = metadata["run"]
        history = History.restore(run["history"], np.asarray(arrays["history"], dtype=float))
        return history, Ledger.restore(run["failures"], np.asarray(arrays["failures"], dtype=float))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise SnapshotError(f"found an unusable snapshot ({type(error).__name__}: {error})") from None


# -- The stored result of a run: how `result.json` and `result.npz` are written and read.

#: Longer points are not stored in the result, which would become too large to be read; snapshots have them.
MAX_RESULT_DIMENSION = 1_000_000


def store_result(directory: RunDirectory, result: Result, history: History, failures: Ledger) -> None:
    """Store the result, which is in the search's numbers. A full disk only causes a warning."""
    data = result.as_json()
    if len(result.x_mean) > MAX_RESULT_DIMENSION:
        data |= {
            "x": None,
            "x_mean": None,
            "best_seen": None,
            "failures": [{**f, "first_x": None} for f in data["failures"]],
        }
    ending = None
    if result.stop_reason is not StopReason.STORAGE:  # a full disk needs its last bytes for the rest
        covariance = result.covariance
        if covariance is None or np.isfinite(covariance).all():
            data["covariance"] = None if covariance is None else covariance.tolist()
        rows, points = history.dump(), failures.dump()
        metadata = {"run": {"history": rows[0], "failures": points[0]}}
        arrays = {"history": rows[1], "failures": points[1], "sigma0": np.asarray(result.sigma0)}
        ending = metadata, arrays
    try:
        directory.finish(data, ending)
    except RunError as error:
        warn(f"the result could not be saved: {error}")


def read_whole_result(directory: RunDirectory, data: dict[str, Any]) -> Result | None:
    """The result in the search's numbers; None if it is damaged or incomplete. data: `directory.result`."""
    try:
        ending = directory.read_ending()
        if ending is None or data["x_mean"] is None or "covariance" not in data:
            return None
        history, failures = read_records(*ending)
        result = result_from_json(data, len(data["x_mean"]))
        return replace(
            result,
            failures=failures.failures(),
            history=history.columns(),
            sigma0=float(ending[1]["sigma0"]),
        )
    except (FmnesError, LookupError, TypeError, ValueError, OverflowError):
        return None


def result_from_json(data: dict[str, Any], d: int | None) -> Result:
    """What `result.json` holds: no history, no `sigma0`, no failures."""
    return Result(
        x=_array(data["x"], d),
        fun=np.inf if data["fun"] is None else float(data["fun"]),
        success=bool(data["success"]),
        stop_reason=None if data["stop_reason"] is None else StopReason[data["stop_reason"]],
        message=str(data["message"]),
        nfev=int(data["nfev"]),
        nit=int(data["nit"]),
        n_infeasible=int(data["n_infeasible"]),
        x_mean=_array(data["x_mean"], d),
        seed=None if data["seed"] is None else int(data["seed"]),
        second_looks=int(data["second_looks"]),
        covariance=_square(data.get("covariance"), d),
        n_repeated=int(data["n_repeated"]),
        constraints=read_constraint_results(data.get("constraints")),
        noise=_noise(data.get("noise")),
        fun_error=None if data.get("fun_error") is None else float(data["fun_error"]),
        best_seen=_best(data.get("best_seen"), d),
    )


def _noise(found: Any) -> Noise | None:
    if found is None:
        return None
    deviation, level = found["standard_deviation"], found["level"]
    return Noise(
        standard_deviation=np.nan if deviation is None else float(deviation),
        level=None if level is None else float(level),
        compared=int(found["compared"]),
        found=str(found["found"]),
    )


def _best(found: Any, d: int | None) -> Best | None:
    if found is None:
        return None
    return Best(_array(found["x"], d), float(found["fun"]), int(found["evaluation"]))


def _array(found: Any, *shape: int | None) -> NDArray[np.float64] | None:
    array = None if found is None else np.array(found, dtype=float)
    if array is not None and array.shape != shape:
        raise ValueError(f"an array of shape {array.shape}, wanted {shape}")
    return array


def _square(found: Any, d: int | None) -> NDArray[np.float64] | None:
    """A covariance: of all coordinates, or of those that are numbers."""
    n = None if found is None else len(found)
    if n is not None and d is not None and n > d:
        raise ValueError(f"a covariance of {n} coordinates, wanted at most {d}")
    return _array(found, n, n)


# -- The log messages of a run; see errors.py.

_ORIGIN_WORDS: dict[Any, str] = {
    "best": "the best point",
    "uniform": "a random point",
    ("small", BOX): "a basin that no search was in",
}


def log_begin(state: RunState, max_evaluations: int | None) -> None:
    opt = state.opt
    logger.info(
        "run begins at evaluation %d: %s, d = %d, population %d, %s",
        state.evaluations,
        opt.strategy.name,
        len(opt.mean),
        opt.population_size,
        f"at most {max_evaluations} evaluations" if max_evaluations else "evaluations without a limit",
    )


def log_restart(plan: Plan, stop: Stop, evaluations: int) -> None:
    logger.info(
        "search ended at evaluation %d: %s; %s begins at %s, population %d",
        evaluations,
        one_line(stop.message),
        "a second look" if plan.kind == "look" else f"a restart ({plan.kind})",
        _ORIGIN_WORDS.get((plan.kind, plan.origin)) or _ORIGIN_WORDS.get(plan.origin, "the start"),
        plan.population_size,
    )


def log_generation(view: View) -> None:
    """After each generation."""
    logger.debug(
        "generation %d: %d evaluations, %d failed, best %g, sigma %g",
        view.generation,
        view.evaluations,
        view.n_infeasible,
        view.best.fun,
        view.sigma,
    )


def log_noise(opt: Optimizer) -> None:
    noise = opt.noise
    assert noise is not None and noise.found is not None
    size = max(abs(noise.found.first), abs(noise.found.again))
    logger.info(
        "the objective is noisy: values at the same point differ by about %.2g (%.2g %%): %.9g and %.9g, at "
        "evaluation %d",
        noise.deviation,
        100 * noise.deviation / size if size else 0.0,
        *noise.found,
        noise.found_at,
    )


def log_lost(id: EvaluationId, tries: int, retries: int, reason: str) -> None:
    where = "of the start" if id.generation == START else f"of generation {id.generation}, point {id.slot},"
    left = "it is tried again" if tries <= retries else "no tries are left"
    logger.warning("evaluation %s lost, try %d: %s; %s", where, tries, one_line(reason), left)


def log_end(result: Result) -> None:
    logger.info(
        "run ended with fun = %g after %d evaluations, %d failed: %s",
        result.fun,
        result.nfev,
        result.n_infeasible,
        one_line(result.message),
    )
