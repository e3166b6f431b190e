"""Evaluations on a Ray cluster: `executor=fmnes.integrations.ray.executor()`. Ray itself has no executor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from fmnes.errors import ArgumentError, MissingExtra
from fmnes.evaluation.executor import LinkedFuture


def executor(**options: Any) -> RayExecutor:
    """Return an executor for `minimize` and `resume` that evaluates on a Ray cluster.

    Each evaluation is isolated and timed in a Ray worker. The Ray of `ray.init(...)` is used; without that,
    Ray looks for a cluster or starts one on this machine.

    Parameters
    ----------
    **options
        Options of `ray.remote` for one evaluation, such as num_cpus=4 or resources={"licence": 1}.

    Returns
    -------
    RayExecutor
        For `executor=`.

    Raises
    ------
    MissingExtra
        Ray is not installed.
    ArgumentError
        `max_retries` is given.

    Examples
    --------
    >>> from fmnes.integrations import ray
    >>> fmnes.minimize(simulate, x0, sigma0, executor=ray.executor(num_cpus=4))  # doctest: +SKIP
    """
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("fmnes.integrations.ray", "ray") from error
    if "max_retries" in options:
        raise ArgumentError(
            "max_retries: found it, wanted retries= of minimize: what is lost is counted there"
        )
    if not ray.is_initialized():
        ray.init()
    return RayExecutor(options)


class RayExecutor(Executor):
    """Evaluations in the workers of a Ray cluster; made by `executor`."""

    isolates = True

    def __init__(self, options: dict[str, Any]) -> None:
        import ray

        self._ray = ray
        self._options = options
        # Ray's own retries would hide from us what is lost, and how often.
        self._function = ray.remote(**{**options, "max_retries": 0})(_run)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        reference = self._function.remote(fn, *args, **kwargs)
        # A task that runs is interrupted, and our child ends with it.
        future = LinkedFuture(lambda: self._ray.cancel(reference))
        reference.future().add_done_callback(future.follow)
        return future

    def put(self, data: bytes) -> Any:
        return self._ray.put(data)

    def n_workers(self) -> int | None:
        """The evaluations that all nodes together can run at a time."""
        there = self._ray.cluster_resources()
        options = self._options
        wanted = {"CPU": options.get("num_cpus", 1), "GPU": options.get("num_gpus", 0)}
        wanted |= options.get("resources") or {}
        return min((int(there.get(name, 0) / n) for name, n in wanted.items() if n), default=0) or None


def _run(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)
