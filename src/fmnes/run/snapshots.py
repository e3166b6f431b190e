"""Snapshots of a run: their content, how often they are written, and how they are restored.

Each part of a run dumps and restores itself; this module combines them. Evaluations after the last snapshot
are in the log, so a snapshot only shortens the replay.
"""

from __future__ import annotations

import time
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np

from fmnes.errors import FmnesError, RunError, SnapshotError, StorageError, logger
from fmnes.run.history import History, Ledger
from fmnes.run.state import Answer, Searches, StartPoint, Streak, Totals
from fmnes.search.optimizer import Optimizer
from fmnes.storage.directory import RunDirectory
from fmnes.storage.snapshot import Arrays

#: Minimum seconds between snapshots (0: one per generation), …
SNAPSHOT_SECONDS = 1.0
#: … and the minimum as a multiple of the time the last one took: at most 5 % of a run.
SNAPSHOT_REST = 20.0


@dataclass
class RunState:
    """A run in progress: everything that a resumed run needs."""

    opt: Optimizer
    totals: Totals = field(default_factory=Totals)
    history: History = field(default_factory=History)
    failures: Ledger = field(default_factory=Ledger)
    seconds: float = 0.0
    """The time of the sessions before this one."""
    seed: int | None = None
    start: StartPoint = field(default_factory=StartPoint)
    streak: Streak = field(default_factory=Streak)
    answer: Answer | None = None
    """With noise: the best point of the searches that have ended, evaluated several times."""
    last_answers: int = 0
    """Evaluations of the answer at the end of the budget. Not saved: with a larger budget the run goes on."""
    began_with: InitVar[Searches | None] = None
    """None: with the search that `opt` is."""

    def __post_init__(self, began_with: Searches | None) -> None:
        self._began = time.monotonic()
        self.seed = self.opt.seed if self.seed is None else self.seed
        self.searches = began_with or Searches.of(self.opt)

    @property
    def evaluations(self) -> int:
        return self.totals.evaluations + self.opt.evaluations

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        metadata, arrays = self.opt.dump()
        totals, best = self.totals.dump()
        history, rows = self.history.dump()
        failures, points = self.failures.dump()
        searches, more = self.searches.dump()
        metadata["run"] = {
            "seconds": self.seconds + time.monotonic() - self._began,
            "seed": None if self.seed is None else str(self.seed),
            "totals": totals,
            "history": history,
            "failures": failures,
            "start": self.start.dump(),
            "streak": self.streak.dump(),
            **({} if self.answer is None else {"answer": self.answer.dump()}),
            **searches,
        }
        if self.answer is not None:
            arrays["answer.x"] = self.answer.x
        return metadata, {**arrays, **best, **more, "history": rows, "failures": points}

    @classmethod
    def restore(cls, metadata: dict[str, Any], arrays: Arrays) -> RunState:
        """Raises SnapshotError for what `dump` cannot have written."""
        try:
            run = metadata["run"]
            if not 0 <= run["seconds"] < np.inf:
                raise ValueError(f"{run['seconds']} seconds")
            opt = Optimizer.restore(metadata, arrays)
            totals = Totals.restore(run["totals"], arrays)
            return cls(
                opt,
                totals,
                History.restore(run["history"], np.asarray(arrays["history"], dtype=float)),
                Ledger.restore(run["failures"], np.asarray(arrays["failures"], dtype=float)),
                float(run["seconds"]),
                None if run["seed"] is None else int(run["seed"]),
                StartPoint.restore(run["start"]),
                Streak.restore(run["streak"]),
                Answer.restore(run["answer"], arrays["answer.x"], len(opt.x0)) if "answer" in run else None,
                began_with=Searches.restore(run, arrays, opt, totals.restarts),
            )
        except (FmnesError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise SnapshotError(f"found an unusable snapshot ({type(error).__name__}: {error})") from None


class Snapshots:
    """Writes snapshots of a run at intervals."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._due = -np.inf

    def take(self, state: RunState) -> None:
        """Write a snapshot if it is due, at the beginning of a generation. Raises StorageError."""
        began = time.monotonic()
        if began < self._due:
            return
        try:
            self._directory.write_snapshot(*state.dump())
        except (RunError, SnapshotError) as error:
            raise StorageError(str(error)) from error
        now = time.monotonic()
        logger.debug("snapshot written at evaluation %d, in %.3g s", state.evaluations, now - began)
        self._due = now + max(SNAPSHOT_SECONDS, SNAPSHOT_REST * (now - began) if SNAPSHOT_SECONDS else 0.0)
