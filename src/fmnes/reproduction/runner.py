"""Many trials on all cores, resumable, with the same numbers whatever the number of workers.

Trials run in processes of their own whose arithmetic is pinned: one BLAS thread, and the instruction set that
every x86-64 machine of the last decade has. So a trial needs as many evaluations on another such machine.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager

from fmnes.reproduction.cells import MAX_EVALUATIONS, Cell, published
from fmnes.reproduction.store import Store
from fmnes.reproduction.trial import Trial, run_trial

PINNED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}


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
    """All wanted trials, those already in the store included, in the order asked for.

    progress: called with the work done and the work in all, in expected evaluations.
    """
    done = dict(store.trials) if store else {}
    total = sum(expected_evaluations(cell) for cell, _ in wanted)
    finished = sum(expected_evaluations(key[0]) for key in wanted if key in done)
    # The longest first, so that no long trial is left alone at the end.
    queue = sorted((key for key in wanted if key not in done), key=lambda key: -expected_evaluations(key[0]))
    if progress:
        progress(finished, total)
    with _pinned_pool(min(workers or os.cpu_count() or 1, max(len(queue), 1))) as pool:
        pending: set[Future[Trial]] = {pool.submit(run_trial, *key) for key in queue}
        while pending:
            ready, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in ready:
                trial = future.result()
                done[trial.cell, trial.number] = trial
                if store:
                    store.add(trial)
                finished += expected_evaluations(trial.cell)
                if progress:
                    progress(finished, total)
    return [done[key] for key in wanted]


@contextmanager
def _pinned_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes, which read the pinned settings before they load NumPy."""
    before = {name: os.environ.get(name) for name in PINNED}
    os.environ.update(PINNED)
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool
    except BaseException:
        running = list((pool._processes or {}).values())  # shutdown forgets them, but does not end them
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()
        raise
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        pool.shutdown(wait=True, cancel_futures=True)
