"""Many trials on all cores, with the same numbers whatever the number of workers.

Trials run in processes of their own whose arithmetic is pinned: one BLAS thread, and the instruction set that
every x86-64 machine of the last decade has. So a trial needs as many evaluations on another such machine.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

PINNED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}

Key = TypeVar("Key", bound=tuple[Any, ...])
Trial = TypeVar("Trial")


def run_all(
    run: Callable[..., Trial],
    wanted: Sequence[Key],
    done: Mapping[Key, Trial],
    *,
    work: Callable[[Key], float],
    keep: Callable[[Trial], None] | None = None,
    workers: int | None = None,
    progress: Callable[[float, float], None] | None = None,
) -> list[Trial]:
    """`run(*key)` for every wanted key, those already done included, in the order asked for.

    run: a function of a module; a trial depends on its key alone.
    work: about how much a trial costs, for the order and the time left.
    keep: called with each trial as it finishes.
    progress: called with the work done and the work in all.
    """
    found = dict(done)
    total = sum(map(work, wanted))
    finished = sum(work(key) for key in wanted if key in found)
    # The longest first, so that no long trial is left alone at the end.
    queue = sorted((key for key in dict.fromkeys(wanted) if key not in found), key=lambda key: -work(key))
    if progress:
        progress(finished, total)
    if queue:
        with _pinned_pool(min(workers or os.cpu_count() or 1, len(queue))) as pool:
            pending: dict[Future[Trial], Key] = {pool.submit(run, *key): key for key in queue}
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    key = pending.pop(future)
                    found[key] = trial = future.result()
                    if keep:
                        keep(trial)
                    finished += work(key)
                    if progress:
                        progress(finished, total)
    return [found[key] for key in wanted]


@contextmanager
def _pinned_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes, which read the pinned settings before they load NumPy."""
    before = {name: os.environ.get(name) for name in PINNED}
    os.environ.update(PINNED)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_the_parent)
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


def _end_with_the_parent() -> None:
    """A worker whose parent was killed would wait for its next trial for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
