"""What the page on JAX shows, and its example, run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.site.pages import ROOT, blocks

pytest.importorskip("jax")

#: Without what conftest.py tells XLA.
AS_USERS_DO = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


def test_the_code_on_the_page_runs() -> None:
    shown = blocks(ROOT / "docs" / "jax.md")
    assert len(shown) == 7
    names: dict[str, Any] = {}
    for block in shown:  # each goes on where the one before it ended
        exec(compile(block.text, "docs/jax.md", "exec"), names)
    assert float(names["state"].sigma) < 0.01
    assert int(names["result"].nfev.min()) > 0
    assert names["split"].mean.sharding.num_devices == len(names["jax"].devices())


def test_the_example_runs() -> None:
    command = [sys.executable, ROOT / "examples" / "jax_control.py"]
    done = subprocess.run(command, env=AS_USERS_DO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    costs = [float(line.split()[0]) for line in done.stdout.splitlines() if " evaluations, " in line]
    assert len(costs) == 8 and max(costs) < 0.06
    assert "melts at 1.25" in done.stdout


def test_the_benchmark_runs_at_toy_size(tmp_path: Path) -> None:
    out = tmp_path / "gpu"
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu.py", "--toy", "--runs", "4", "--out", out],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table = out.with_suffix(".md").read_text()
    assert out.with_suffix(".json").exists()
    assert "| c | " in table and "| d | " in table and "| failed |" not in table


def test_the_compiled_search_is_compared(tmp_path: Path) -> None:
    pytest.importorskip("fmnes_bench.search.suite")
    out = tmp_path / "compiled.md"
    options = ["--problems", "sphere", "--dimensions", "2", "--runs", "4", "--seeds", "4", "--out", out]
    command = [sys.executable, "-m", "benchmarks.compiled_search", *options]
    done = subprocess.run(command, cwd=ROOT, env=AS_USERS_DO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row = out.read_text().splitlines()[-1]
    assert row.startswith("| 2 | sphere | ") and "of 4" not in row
