"""The comparison on the real problems: budgets are kept, rows are kept, and the table is right."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.real.methods import METHODS, PACKAGES
from benchmarks.real.rows import read_rows, table
from benchmarks.real.tasks import TASKS, Counted, Spent
from benchmarks.real.trial import run
from fmnes.problems.real import lens

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_to_the_budget_and_finds_something(method: str) -> None:
    package = PACKAGES.get(method)
    if package and not find_spec(package):
        pytest.skip(f"{package} is not installed")
    row = run("lens", method, 1, budget=230)
    assert row["evaluations"] == 230 and 0 < row["failed"] < 230
    problem = lens.triplet()
    if method != "random":  # all others begin at the start
        assert row["best"] <= problem.fun(problem.start)
    again = run("lens", method, 1, budget=230)
    assert again["best"] == row["best"] and again["failed"] == row["failed"]
    if method != "nomad":  # which has drawn nothing so early
        assert run("lens", method, 2, budget=230)["best"] != row["best"]


def test_what_is_counted_is_what_was_evaluated() -> None:
    counted = Counted(TASKS["lens"]()._replace(budget=5))
    problem = lens.triplet()
    points = np.array([counted.x0, counted.x0 * 0.9, counted.upper, counted.upper + 1])
    values = counted(points)
    assert values[0] == problem.fun(problem.start)
    assert counted.evaluations == 4 and counted.failed == np.isinf(values).sum() == 2
    with pytest.raises(Spent):
        counted(points)
    assert counted.evaluations == 5 and counted.best == values.min()


def test_glasses_are_whole_numbers_to_the_problem_whoever_searches() -> None:
    counted = Counted(TASKS["lens-glasses"]())
    assert np.isfinite(counted([counted.x0 + np.array([0.0] * 10 + [0.3, -0.2, 0.1])])).all()


def test_rows_are_kept_and_not_run_again(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "benchmarks.real", "lens", "--methods", "afm-nes", "random"]
    command += ["--seeds", "2", "--budget", "50", "--workers", "1", "--out", str(out)]
    first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert first.returncode == 0, first.stderr
    rows = read_rows(out)
    assert {(row["method"], row["seed"]) for row in rows} == {
        (method, seed) for method in ("afm-nes", "random") for seed in (0, 1)
    }
    kept = out.read_bytes()
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert out.read_bytes() == kept and second.stdout == first.stdout
    assert "| `afm-nes` |" in first.stdout


def test_the_table_has_medians_and_shares_with_the_best_method_first() -> None:
    def row(method: str, best: float | None, failed: int) -> dict[str, object]:
        return {"problem": "lens", "method": method, "best": best, "failed": failed} | {
            "evaluations": 100,
            "seconds": 1.0,
            "seed": 0,
            "budget": 100,
        }

    rows = [row("a", best, 30) for best in (5.0, 7.0, None)] + [
        row("b", best, 10) for best in (1.0, 2.0, 9.0)
    ]
    lines = table([*rows, {**row("c", 0.0, 0), "problem": "other"}], "lens").splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == ["`b`", "`a`"]
    assert [line.split("|")[2].strip() for line in lines] == ["2", "7"]
    assert [line.split("|")[5].strip() for line in lines] == ["10%", "30%"]


def test_the_rows_that_are_kept_with_the_docs_are_what_the_command_gives() -> None:
    rows = read_rows(ROOT / "docs" / "benchmarks" / "real.jsonl")
    assert len({(row["problem"], row["method"], row["seed"], row["budget"]) for row in rows}) == len(rows)
    assert {"afm-nes", "fm-nes", "cma-es", "cma", "random"} <= {row["method"] for row in rows}
    assert all(row["evaluations"] <= row["budget"] == 5000 for row in rows)
    assert all(0 <= row["failed"] < row["evaluations"] and row["best"] > 5 for row in rows)
