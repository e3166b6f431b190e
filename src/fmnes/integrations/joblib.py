"""Evaluations in joblib's own worker processes (loky): `executor=fmnes.integrations.joblib.executor(8)`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from fmnes.arguments import check_number, is_number
from fmnes.errors import MissingExtra

#: Processes that joblib has no work for end after so many seconds.
_IDLE_SECONDS = 300


def executor(n_jobs: int = -1) -> JoblibExecutor:
    """An executor for `minimize` and `resume`: `n_jobs` processes, as joblib counts them (-1: all cores).

    They are those that `joblib.Parallel` uses in this process, too. When one of them dies, joblib ends them
    all; what was running is made again in new ones.
    """
    try:
        import joblib
    except ImportError as error:
        raise MissingExtra("fmnes.integrations.joblib", "joblib") from error
    if not (is_number(n_jobs, whole=True) and n_jobs < 0):
        check_number("n_jobs", n_jobs, above=0, whole=True)
    return JoblibExecutor(joblib.effective_n_jobs(int(n_jobs)))


class JoblibExecutor(Executor):
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
