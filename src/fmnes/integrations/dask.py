"""Evaluations on a Dask cluster: `executor=fmnes.integrations.dask.executor(client)`."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from fmnes.arguments import shown
from fmnes.errors import ArgumentError, MissingExtra
from fmnes.evaluation import remote

#: Between two looks at a client that has lost its scheduler and looks for it.
_LOOK_SECONDS = 0.05


def executor(cluster: Any, **options: Any) -> DaskExecutor:
    """Return an executor for `minimize` and `resume` that evaluates on a Dask cluster.

    Each evaluation is isolated and timed in a Dask worker.

    Parameters
    ----------
    cluster : distributed.Client or str or cluster
        A client, the address of a scheduler, or a cluster such as dask-jobqueue's `SLURMCluster`.
    **options
        Options of `Client.get_executor`, such as resources={"GPU": 1}.

    Returns
    -------
    DaskExecutor
        For `executor=`.

    Raises
    ------
    MissingExtra
        Dask is not installed.
    ArgumentError
        `cluster` is not one.

    Examples
    --------
    >>> from fmnes.integrations import dask
    >>> fmnes.minimize(simulate, x0, sigma0, executor=dask.executor(client))  # doctest: +SKIP
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtra("fmnes.integrations.dask", "dask") from error
    if isinstance(cluster, Client):
        return DaskExecutor(cluster, options)
    if isinstance(cluster, str) or hasattr(cluster, "scheduler_address"):
        return DaskExecutor(Client(cluster, set_as_default=False), options, owns_client=True)
    raise ArgumentError(
        f"cluster: found {shown(cluster)}, wanted a distributed.Client, an address or a cluster of Dask"
    )


class DaskExecutor(Executor):
    """Evaluations in the workers of a Dask cluster; made by `executor`."""

    isolates = True

    def __init__(self, client: Any, options: dict[str, Any], *, owns_client: bool = False) -> None:
        # Not pure: Dask would make equal points one evaluation, and a second try of one none at all.
        self._executor = client.get_executor(**{**options, "pure": False})
        self._client = client
        self._owns_client = owns_client

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        while self._client.status == "connecting":  # what is sent meanwhile may never be heard of again
            time.sleep(_LOOK_SECONDS)
        if self._client.status != "running":
            raise ConnectionError(f"the client of Dask is {self._client.status}")
        future: Future[Any] = self._executor.submit(_run, fn, *args, **kwargs)
        return future

    def put(self, data: bytes) -> Any:
        """Large data goes from worker to worker, not through the scheduler."""
        return self._client.scatter(data, hash=False)

    def is_gone(self) -> bool:
        return self._client.status in ("closing", "closed")

    def n_workers(self) -> int | None:
        """The tasks that it runs at a time now; None while it has no workers yet."""
        return sum(self._client.nthreads().values()) or None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._owns_client:
            self._client.close()


def _run(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run in a child process, which is ended when the task is cancelled: a worker cannot stop its threads."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        try:
            task = worker.state.tasks.get(key)
            return task is not None and task.state not in ("cancelled", "released", "forgotten")
        except AttributeError:  # another Dask
            return True

    with remote.cancel_unless(is_wanted):
        return fn(*args, **kwargs)
