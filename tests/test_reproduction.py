"""The reproduction: single trials repeat exactly, interrupted runs go on, the report says what it should."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from fmnes import ArgumentError
from fmnes_bench.reproduction import reproduce
from fmnes_bench.reproduction.cells import (
    METHODS,
    Cell,
    Published,
    Row,
    Summary,
    Trial,
    open_store,
    published,
    share_chance,
    summarise,
    sweep_cells,
    t_chance,
)
from fmnes_bench.reproduction.report import as_printed, thousands

SPHERE = Cell("FM-NES", "sphere", 8)
COMMITTED = Path(__file__).parents[1] / "docs" / "reproduction"


def test_published_numbers_are_the_papers() -> None:
    """Spot checks against the paper's text: its factors 1.71, 1.78, 1.67 and 1.42 over DX-NES-IC."""
    mean = {row.cell[:2]: row.mean for row in published() if row.table in ("table-2", "table-3")}
    for problem, factor in {
        "rosenbrock": 1.71,
        "cigar": 1.78,
        "ic-rosenbrock": 1.67,
        "ic-cigar": 1.42,
    }.items():
        ratio = mean["DX-NES-IC", problem] / mean["FM-NES", problem]  # type: ignore[operator]
        assert ratio == pytest.approx(factor, abs=0.01)
    assert sum(row.table == "table-2" for row in published()) == 16
    assert sum(row.table == "table-3" for row in published()) == 24
    assert sum(row.table == "table-4" for row in published()) == 4
    assert {row.cell.method for row in published()} <= set(METHODS)


def test_the_sweep_covers_the_papers_population_sizes() -> None:
    cells = set(sweep_cells())
    for row in published():
        if row.table in ("table-2", "table-3") and row.cell.method != "xNES/R":
            assert row.cell in cells


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="did you mean 'table-2'"):
        reproduce("table2", out=tmp_path / "a")
    with pytest.raises(ArgumentError, match="wanted one of FM-NES"):
        reproduce("table-2", method="FMNES", out=tmp_path / "a")
    with pytest.raises(ArgumentError, match="trials"):
        reproduce("table-2", trials=0, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("")
    with pytest.raises(ArgumentError, match="other files"):
        reproduce("table-2", out=tmp_path / "b")
    open_store(tmp_path / "c")
    configuration = json.loads((tmp_path / "c" / "configuration.json").read_text())
    (tmp_path / "c" / "configuration.json").write_text(json.dumps({**configuration, "dimension": 80}))
    with pytest.raises(ArgumentError, match="dimension = 80, wanted 40"):
        reproduce("table-2", out=tmp_path / "c")


def row(mean: float, sd: float = 50.0, successes: int = 50, trials: int = 50) -> Row:
    """Beside a paper that has 1000 ± 50 over 50 trials."""
    return Row(Published(SPHERE, "table-2", 50, 1000.0, 50.0), Summary(trials, successes, mean, sd))


def test_a_mark_needs_three_per_cent_and_more_than_chance() -> None:
    assert row(1000).mark == ""
    assert row(1029, sd=1.0).mark == ""  # beyond chance, and too small to matter
    assert row(1034).mark == "*"  # the standard error is 1 %, and 3.16 of them are beyond chance
    assert row(1034, sd=200.0).mark == ""
    assert row(1000, successes=45).mark == ""  # 5.6 %, and there are 50 rows
    assert row(1000, successes=30).mark == "s"
    assert row(1200, successes=30).mark == "*s"
    assert row(1200, sd=0.0, successes=3, trials=3).mark == "*"
    never = Row(Published(SPHERE, "table-3", 0, None, None), Summary(50, 0, math.nan, math.nan))
    assert math.isnan(never.ratio) and never.mark == ""
    assert Row(never.published, Summary(50, 50, 1000.0, 50.0)).mark == "s"


def test_two_trials_are_too_few_for_a_mark() -> None:
    assert row(2000, sd=1.0, successes=2, trials=2).mark == ""
    assert row(math.nan, sd=math.nan, successes=0, trials=2).mark == ""
    assert row(2000, sd=1.0, successes=3, trials=3).mark == "*"
    assert row(math.nan, sd=math.nan, successes=0, trials=3).mark == "s"


@pytest.mark.parametrize("trials", [2, 3, 5, 10, 50])
def test_the_papers_own_distribution_is_hardly_ever_marked(trials: int) -> None:
    """Of few trials as of many, once in 370. Three standard errors would mark one in fifteen, of three."""
    drawn = np.random.default_rng(1).normal(1000, 200, (2, 2000, 50))
    ours, theirs = drawn[0, :, :trials], drawn[1]
    marked = 0
    for some, their in zip(ours, theirs, strict=True):
        paper = Published(SPHERE, "table-2", 50, float(their.mean()), float(their.std(ddof=1)))
        summary = Summary(trials, trials, float(some.mean()), float(some.std(ddof=1)))
        marked += Row(paper, summary).mark != ""
    assert marked <= 12  # 5.4 are expected


def test_the_chances_are_those_of_the_books() -> None:
    for freedom, t in {2: 4.302653, 4: 2.776445, 10: 2.228139, 98: 1.984467}.items():
        assert t_chance(10 * t, 10, freedom) == pytest.approx(0.05, abs=1e-5)
        assert t_chance(-t, 1, freedom) == t_chance(t, 1, freedom)
    assert t_chance(0.0, 1.0, 5) == pytest.approx(1)
    assert t_chance(5.0, 0.0, 5) == 0
    assert share_chance(3, 4, 1, 4) == pytest.approx(34 / 70)  # the lady who tasted tea
    assert share_chance(0, 50, 0, 50) == 1


def test_a_mean_and_its_deviation_have_one_unit_and_as_many_decimals() -> None:
    assert thousands(19_080, 535) == "19.08k ± 0.54k"
    assert thousands(588_111, 31_400) == "588k ± 31k"
    assert thousands(4844.4, 195.1) == "4.84k ± 0.20k"
    assert thousands(800, 12) == "0.800k ± 0.012k"
    assert thousands(23_000, math.nan) == "23.00k"  # one trial has no deviation
    assert thousands(23_000, 0.0) == "23.00k ± 0k"
    assert thousands(math.nan, math.nan) == "–"
    assert as_printed(122_000, 750) == "122k ± 0.750k"
    assert as_printed(None, None) == "–"


def test_summary_counts_successes_only() -> None:
    trials = [Trial(SPHERE, i, i > 0, 100 * (i + 1), 0.0) for i in range(4)]
    summary = summarise(trials)[SPHERE]
    assert (summary.trials, summary.successes, summary.mean) == (4, 3, 300.0)


def test_the_committed_sweep_is_that_of_its_trials(tmp_path: Path) -> None:
    folder = shutil.copytree(COMMITTED / "sweep-fm-nes", tmp_path / "sweep")
    (folder / "sweep.md").unlink()
    reproduce("sweep", trials=10, method="FM-NES", out=folder, workers=1)
    for name in ("sweep.md", "trials.csv"):
        assert (folder / name).read_text() == (COMMITTED / "sweep-fm-nes" / name).read_text()
