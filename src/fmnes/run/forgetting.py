"""`forget_failures`: cancel failures that were not caused by their points.

The log keeps every row; a further row for each point cancels the earlier ones, all in one transaction. Later
evaluations depend on the first of these failures, so they are cancelled too, and the run is replayed from a
snapshot before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from fmnes.arguments import shown
from fmnes.errors import ArgumentError, RunError, SnapshotError, logger
from fmnes.outcome import START
from fmnes.run.recording import taken_back, uncounted
from fmnes.run.snapshots import RunState
from fmnes.storage.directory import RunDirectory
from fmnes.storage.log import EvaluationLog
from fmnes.storage.log_reader import Logged

Matches = Callable[[Logged], bool]
#: Reasons shown in the error if none matches.
_SHOWN = 5


class Forgotten(NamedTuple):
    failures: int
    others: int
    """Evaluations after the first of them."""


def take_back_meant(directory: RunDirectory, meant: object) -> Forgotten:
    """Take back what `resume(forget_failures=meant)` means. Raises ArgumentError if there never was such."""
    matches = _matches(directory.log, meant)
    found = take_back(directory, matches)
    if not found.failures and meant is not True and not any(map(matches, directory.log.infeasible())):
        known = [f"{reason!r}" for reason in directory.log.summary().reasons["infeasible"]]
        more = ", ..." if known[_SHOWN:] else ""
        raise ArgumentError(
            f"forget_failures: found no failed evaluation for {shown(meant)}, wanted part of a reason or of "
            f"an output, or a time; the reasons of this run are: {', '.join(known[:_SHOWN]) or 'none'}{more}"
        )
    if found.failures:
        logger.info("%d failures and %d evaluations after them are taken back", *found)
    return found


def take_back(directory: RunDirectory, matches: Matches) -> Forgotten:
    """The failed evaluations that match, and all that depends on them."""
    log = directory.log
    state = _restore(directory)
    in_order = state.opt.overlap_scheduler is None

    def moment(row: Logged) -> tuple[float, ...]:
        # Generation by generation; points that are handed out ahead count in the order in which they come.
        return row.key[:2] if in_order else (row.started + row.duration,)

    def is_meant(row: Logged) -> bool:
        return row.outcome.status == "infeasible" and matches(row)

    meant = (moment(row) for row in _counting(log) if is_meant(row))
    first = min(meant, default=None)
    if first is None:
        return Forgotten(0, 0)
    directory.finish(None)
    if not in_order or _position(state) > first:
        directory.rewind()
        if in_order and _position(_restore(directory)) > first:
            raise RunError(
                f"{directory.path}: found no snapshot from before these failures, wanted the first one of "
                "the run (an older fmnes kept none): begin the run again"
            )

    def depends(row: Logged) -> bool:
        # Points drawn again in the same generation depend on which of the others had failed.
        return moment(row) > first or (in_order and moment(row) == first and row.key.redraw > 0)

    rows = [row for row in _counting(log) if is_meant(row) or depends(row)]
    log.supersede((row, taken_back(row.outcome)) for row in rows)
    failures = sum(map(is_meant, rows))
    return Forgotten(failures, sum(row.outcome.status != "lost" for row in rows) - failures)


def _matches(log: EvaluationLog, meant: object) -> Matches:
    if meant is True:
        succeeded = (row.key[:2] for row in _counting(log) if row.outcome.status == "value")
        last = max(succeeded, default=(0, START))
        return lambda row: row.key[:2] >= last
    if isinstance(meant, str) and meant.strip():
        text = meant
        try:
            meant = datetime.fromisoformat(text)
        except ValueError:
            return lambda row: text in row.outcome.reason or text in row.outcome.detail
    if isinstance(meant, datetime):
        try:
            since = meant.timestamp()
        except (ValueError, OverflowError, OSError):
            raise ArgumentError(f"forget_failures: found {meant}, wanted the time of an evaluation") from None
        return lambda row: row.started + row.duration >= since
    raise ArgumentError(
        f"forget_failures: found {shown(meant)}, wanted True (those since the last success), a part of a "
        'reason, or a time such as "2026-05-01T12:00"'
    )


def _counting(log: EvaluationLog) -> Iterator[Logged]:
    """The last row of each point, unless it was taken back."""
    for _, rows in groupby(log.rows(), key=lambda row: row.key.point):
        *_, last = rows
        if not uncounted(last.outcome):
            yield last


def _restore(directory: RunDirectory) -> RunState:
    saved = directory.read_snapshot()
    if saved is None:
        raise RunError(f"{directory.path}: found no snapshot, wanted that of a run that has begun")
    try:
        return RunState.restore(*saved)
    except SnapshotError as error:
        raise RunError(f"{directory.path}: {error}") from None


def _position(state: RunState) -> tuple[int, int]:
    """Where it goes on: restart and generation, as in the log."""
    return state.totals.restarts, START if state.start.open else state.opt.generation
