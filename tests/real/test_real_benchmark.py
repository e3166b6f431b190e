"""The comparison on the real problems: budgets are kept, rows are kept, and the table is right."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.real.__main__ import main
from benchmarks.real.methods import METHODS, search
from benchmarks.real.report import compared, kept_rows, page
from benchmarks.real.rows import read_rows, table
from benchmarks.real.tasks import TASKS, Counted
from benchmarks.real.trial import run
from benchmarks.real.words import PROBLEMS
from fmnes_bench import lens
from fmnes_bench.peers import PEERS, Finished, is_installed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_to_the_budget_and_finds_something(method: str) -> None:
    if method in PEERS and not is_installed(method):
        pytest.skip(f"{method} is not installed")
    row = run("lens", method, 1, budget=230)
    assert row["evaluations"] == 230 and 0 < row["failed"] < 230
    problem = lens.triplet()
    if method != "random":  # all others begin at the start
        assert row["best"] <= problem.fun(problem.start)
    again = run("lens", method, 1, budget=230)
    assert again["best"] == row["best"] and again["failed"] == row["failed"]
    assert run("lens", method, 2, budget=230)["best"] != row["best"]


def test_what_is_counted_is_what_was_evaluated() -> None:
    counted = Counted(TASKS["lens"]()._replace(budget=5))
    problem = lens.triplet()
    points = np.array([counted.x0, counted.x0 * 0.9, counted.upper, counted.upper + 1])
    values = counted(points)
    assert values[0] == problem.fun(problem.start)
    assert counted.evaluations == 4 and counted.failed == np.isinf(values).sum() == 2
    with pytest.raises(Finished):
        counted(points)
    assert counted.evaluations == 5 and counted.best == values.min()


def test_integers_are_rounded_to_the_nearest() -> None:
    counted = Counted(TASKS["lens-glasses"]())
    assert counted.integers == [10, 11, 12]
    near = counted([counted.x0 + np.array([0.0] * 10 + [0.3, -0.4, 0.1])])
    assert np.isfinite(near).all() and near == counted([counted.x0])


@pytest.mark.parametrize(
    "method", [method for method in METHODS if method not in ("afm-nes", "fm-nes", "cma-es")]
)
def test_every_peer_knows_which_parameters_are_integers(method: str) -> None:
    if method in PEERS and not is_installed(method):
        pytest.skip(f"{method} is not installed")

    class Watched(Counted):
        """Keeps the integer parameters as the method proposes them."""

        def __call__(self, x: Any) -> np.ndarray:
            proposed.extend(np.asarray(x, dtype=float)[:, self.integers].ravel())
            return super().__call__(x)

    proposed: list[float] = []
    task = TASKS["lens-glasses"]()._replace(budget=60)
    with suppress(Finished):
        search(method, task, Watched(task), 1)
    assert len(proposed) >= 3 * 60 and len(set(proposed)) > 3
    assert proposed == np.rint(proposed).tolist()


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
    folder = ROOT / "docs" / "benchmarks"
    rows = [row for file in folder.glob("real*.jsonl") for row in read_rows(file)]
    assert len(rows) == len(kept_rows(folder))  # none is there twice
    assert {"afm-nes", "fm-nes", "cma-es", "cma", "random"} <= {row["method"] for row in rows}
    budgets = {problem: TASKS[problem]().budget for problem in {row["problem"] for row in rows}}
    assert all(row["evaluations"] <= row["budget"] == budgets[row["problem"]] for row in rows)
    # Where all of the first points fail a method may end, and has found nothing.
    assert all((row["best"] is None) == (row["failed"] == row["evaluations"]) for row in rows)
    assert all(row["best"] > 0 for row in rows if row["best"] is not None)


def test_the_page_is_what_the_rows_say() -> None:
    folder = ROOT / "docs" / "benchmarks"
    rows = kept_rows(folder)
    assert page(rows) == (folder / "real.md").read_text(encoding="utf-8"), "python -m benchmarks.real.report"
    worse = [row | {"best": 2 * row["best"]} if row["method"] == "afm-nes" else row for row in rows]
    assert page(worse) != page(rows)


def test_every_problem_has_its_words_and_its_page() -> None:
    for words in (PROBLEMS[problem] for problem in TASKS):
        assert (ROOT / "docs" / "benchmarks" / words.page.partition("#")[0]).is_file(), words.page
        assert not any(character.isdigit() for character in words.why), words.why  # those are the rows'


def test_better_and_worse_are_told_in_words() -> None:
    assert [compared(mine, 10.0) for mine in (10.04, 11.0, 8.0)] == ["equal", "10% worse", "20% better"]


def test_other_seeds_can_be_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    asked = ["lens", "--methods", "random", "--budget", "20", "--workers", "1", "--out", str(out)]
    main([*asked, "--seeds", "2", "--first-seed", "7"])
    assert sorted(row["seed"] for row in read_rows(out)) == [7, 8]  # kept as they finish
