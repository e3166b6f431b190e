"""The trials of a reproduction, those already kept included."""

from __future__ import annotations

from collections.abc import Callable

from fmnes.reproduction.cells import MAX_EVALUATIONS, Cell, published
from fmnes.reproduction.store import Store
from fmnes.reproduction.trial import Trial, run_trial
from fmnes.trials.pool import run_all


def expected_evaluations(cell: Cell) -> float:
    """How much work a trial is, for the order and for the time left."""
    for row in published():
        if row.cell == cell:
            return row.mean or MAX_EVALUATIONS
    return next((r.mean or MAX_EVALUATIONS for r in published() if r.cell[:2] == cell[:2]), MAX_EVALUATIONS)


def run_trials(
    wanted: list[tuple[Cell, int]],
    store: Store | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> list[Trial]:
    """All wanted trials, in the order asked for.

    progress: called with the work done and the work in all, in expected evaluations.
    """
    return run_all(
        run_trial,
        wanted,
        store.trials if store else {},
        work=lambda key: expected_evaluations(key[0]),
        keep=store.add if store else None,
        workers=workers,
        progress=progress,
    )
