"""Evaluations in the processes of an MPI job: `executor=fmnes.integrations.mpi.executor()`.

    mpiexec -n 17 python -m mpi4py.futures script.py

runs the script in one process, and the evaluations in the other sixteen.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from fmnes.arguments import shown
from fmnes.errors import ArgumentError, MissingExtra


def executor(pool: Any = None, **options: Any) -> MPIExecutor:
    """Return an executor for `minimize` and `resume` that evaluates in the processes of an MPI job.

    Each evaluation is isolated and timed in its MPI process.

    Parameters
    ----------
    pool : mpi4py.futures.MPIPoolExecutor, optional
        A pool, such as what `MPICommExecutor` gives; by default an `MPIPoolExecutor` with these options.
    **options
        Options of `MPIPoolExecutor`, such as max_workers=16.

    Returns
    -------
    MPIExecutor
        For `executor=`.

    Raises
    ------
    MissingExtra
        mpi4py is not installed.
    ArgumentError
        `pool` is not one.

    Examples
    --------
    >>> from fmnes.integrations import mpi
    >>> fmnes.minimize(simulate, x0, sigma0, executor=mpi.executor())  # doctest: +SKIP
    """
    try:
        from mpi4py import futures
    except ImportError as error:
        raise MissingExtra("fmnes.integrations.mpi", "mpi") from error
    if pool is None:
        return MPIExecutor(futures.MPIPoolExecutor(**options), owns_pool=True)
    if not isinstance(pool, futures.MPIPoolExecutor) or options:
        raise ArgumentError(f"pool: found {shown(pool)}, wanted an MPIPoolExecutor, or options for one")
    return MPIExecutor(pool)


class MPIExecutor(Executor):
    """Evaluations in the processes of an MPI job; made by `executor`."""

    isolates = True

    def __init__(self, pool: Any, *, owns_pool: bool = False) -> None:
        self._pool = pool
        self._owns_pool = owns_pool

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = self._pool.submit(fn, *args, **kwargs)
        return future

    def n_workers(self) -> int | None:
        return int(self._pool.num_workers) or None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._owns_pool:
            self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
