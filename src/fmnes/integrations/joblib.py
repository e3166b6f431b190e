"""Evaluations in joblib's own worker processes (loky): `executor=fmnes.integrations.joblib.executor(8)`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from fmnes.arguments import check_number, is_number
from fmnes.errors import MissingExtra

#: Seconds after which idle joblib processes end.
_IDLE_SECONDS = 300


def executor(n_jobs: int = -1) -> JoblibExecutor:
    """Return an executor for `minimize` and `resume` that evaluates in joblib's worker processes.

    They are those that `joblib.Parallel` uses in this process, too. If one of them dies, joblib ends all of
    them; the evaluations in progress are repeated in new ones.

    Parameters
    ----------
    n_jobs : int, optional
        Number of processes, as joblib counts them (-1: all cores).

    Returns
    -------
    JoblibExecutor
        For `executor=`.

    Raises
    ------
    MissingExtra
        joblib is not installed.
    ArgumentError
        `n_jobs` is not a whole number, or 0.

    Examples
    --------
    >>> from fmnes.integrations import joblib
    >>> fmnes.minimize(simulate, x0, sigma0, executor=joblib.executor(8))  # doctest: +SKIP
    """
    try:
        import joblib
    except ImportError as error:
        raise MissingExtra("fmnes.integrations.joblib", "joblib") from error
    if not (is_number(n_jobs, whole=True) and n_jobs < 0):
        check_number("n_jobs", n_jobs, above=0, whole=True)
    return JoblibExecutor(joblib.effective_n_jobs(int(n_jobs)))


class JoblibExecutor(Executor):
    """Evaluations in joblib's worker processes; made by `executor`."""

    isolates = True

    def __init__(self, n_jobs: int) -> None:
        self._n_jobs = n_jobs

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        from joblib.externals.loky import get_reusable_executor

        # A fresh one, if the one before is broken.
        pool = get_reusable_executor(max_workers=self._n_jobs, timeout=_IDLE_SECONDS)
        future: Future[Any] = pool.submit(fn, *args, **kwargs)
        return future

    def n_workers(self) -> int | None:
        return self._n_jobs
