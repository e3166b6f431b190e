"""Every Python block of the page on clusters runs, as a script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clusters.test_mpi import MPIEXEC
from tests.site.pages import ROOT, blocks

BLOCKS = [block.text for block in blocks(ROOT / "docs" / "clusters.md")]
#: Slurm, as far as dask-jobqueue knows it: jobs are run, and ended.
SBATCH = """#!/bin/sh
cp "$1" job.sh  # dask-jobqueue removes its own
setsid bash job.sh > job.log 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
kill -TERM -"$1"
"""


@pytest.mark.parametrize("number", range(5))
def test_a_block_runs(number: int, tmp_path: Path) -> None:
    for name, text in {"sbatch": SBATCH, "scancel": SCANCEL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = tmp_path / "script.py"
    script.write_text(
        BLOCKS[number].replace("jobs=50", "jobs=1").replace("threads_per_worker=1", "dashboard_address=None")
    )
    assert MPIEXEC
    before = [MPIEXEC, "-n", "3"] if "mpiexec" in BLOCKS[number] else []
    module = ["-m", "mpi4py.futures"] if before else []
    done = subprocess.run(
        [*before, sys.executable, *module, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # At the end of the budget, or before it: models may have converged.
    assert re.search(r"stop_reason +(MAX_EVALUATIONS|XTOL|FTOL)", done.stdout)


def test_all_blocks_are_run() -> None:
    assert len(BLOCKS) == 5
