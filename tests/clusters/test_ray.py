"""Ray alone: its options, and a head that dies."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fmnes
from fmnes import ArgumentError
from fmnes.evaluation.executor import count_workers
from fmnes.integrations import ray as ours
from tests.clusters.objectives import kills_the_head_once, notes, valley
from tests.clusters.test_engines import RUN

ROOT = Path(__file__).parents[2]


def test_options_are_those_of_a_task(ray: Any) -> None:
    executor = ours.executor(num_cpus=2)
    assert count_workers(executor) == 1
    assert fmnes.minimize(valley, **RUN, executor=executor) == fmnes.minimize(valley, **RUN)
    assert count_workers(ours.executor(resources={"licence": 1})) is None
    with pytest.raises(ArgumentError, match="max_retries: found it, wanted retries="):
        ours.executor(max_retries=3)


DRIVER = """
import sys, functools, ray, fmnes, fmnes.integrations.ray
from tests.clusters.objectives import kills_the_head_once
from tests.clusters.test_engines import RUN
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False,
         configure_logging=False, _system_config={"gcs_rpc_server_reconnect_timeout_s": 1})
fun = functools.partial(kills_the_head_once, folder=sys.argv[1])
fmnes.minimize(fun, **RUN, executor=fmnes.integrations.ray.executor(), run_dir=sys.argv[1] + "/run")
"""


def test_after_a_dead_head_the_run_resumes(tmp_path: Path) -> None:
    """Ray itself ends the driver then, some time after its head (its GCS) has gone."""
    quiet = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env={**os.environ, **quiet},
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    before = len(notes(tmp_path))
    assert 12 <= before < 60
    result = fmnes.resume(tmp_path / "run", partial(kills_the_head_once, folder=str(tmp_path)))
    assert result == fmnes.minimize(valley, **RUN)
    assert len(notes(tmp_path)) <= 60 + 2
