"""Real clusters, started once. They mostly wait, so several run at a time: `pytest -n 3 tests/clusters`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import pytest

ENGINES = ("dask", "ray", "joblib")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All tests of a cluster go to one process of pytest, which starts it; all others to any."""
    from xdist.scheduler import LoadScopeScheduling

    class ByCluster(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((name for name in ENGINES if name in nodeid), nodeid)

    return ByCluster(config, log)


@pytest.fixture(scope="session")
def dask_client() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        # Any free port: at its usual one there may be somebody else's, which it warns of.
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def dask(dask_client: Any) -> Executor:
    from fmnes.integrations import dask

    return dask.executor(dask_client)


@pytest.fixture(scope="session")
def ray() -> Iterator[Executor]:
    import ray

    from fmnes.integrations import ray as ours

    patch = pytest.MonkeyPatch()
    for name, value in {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }.items():
        patch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, about its own
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=80_000_000,
            log_to_driver=False,
            configure_logging=False,
        )
        yield ours.executor()
        ray.shutdown()
    patch.undo()


@pytest.fixture(scope="session")
def joblib() -> Iterator[Executor]:
    from joblib.externals.loky import get_reusable_executor

    from fmnes.integrations import joblib

    yield joblib.executor(2)
    get_reusable_executor().shutdown(wait=True, kill_workers=True)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)
