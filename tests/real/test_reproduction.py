"""The reproduction at work: trials repeat, interrupted runs go on; the report in a browser."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fmnes_bench.reproduction import reproduce, run_trials
from fmnes_bench.reproduction.cells import Cell, published, read_trials
from tests.browser import open_browser

SPHERE = Cell("FM-NES", "sphere", 8)

COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction"


def test_a_trial_is_the_same_alone_and_among_others(tmp_path: Path) -> None:
    cells = [SPHERE, Cell("CMA-ES", "sphere", 8)]
    wanted = [(cell, number) for cell in cells for number in range(2)]
    one = run_trials(wanted, workers=1)
    two = run_trials(wanted[::-1], workers=2)
    assert one == two[::-1]
    assert len({trial.evaluations for trial in one}) == len(one)  # each has its own random numbers
    assert all(trial.success for trial in one)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    reproduce("table-4", trials=2, method="FM-NES", out=tmp_path / "whole", workers=2)
    whole = {(t.cell, t.number): t for t in read_trials(tmp_path / "whole" / "trials.csv")}
    assert len(whole) == 2

    # A run that was killed while it wrote its second line.
    torn = tmp_path / "torn"
    torn.mkdir()
    text = (tmp_path / "whole" / "trials.csv").read_text()
    (torn / "trials.csv").write_text("\n".join(text.splitlines()[:2]) + "\nFM-NES,ic-sp")
    (torn / "configuration.json").write_text((tmp_path / "whole" / "configuration.json").read_text())
    before = read_trials_bytes(torn, lines=2)
    reproduce("table-4", trials=2, method="FM-NES", out=torn, workers=2)
    assert {(t.cell, t.number): t for t in read_trials(torn / "trials.csv")} == whole
    assert read_trials_bytes(torn, lines=2) == before  # what was done was not done again
    assert (torn / "results.csv").read_text() == (tmp_path / "whole" / "results.csv").read_text()


def read_trials_bytes(folder: Path, lines: int) -> list[str]:
    return (folder / "trials.csv").read_text().splitlines()[:lines]


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path) -> None:
    import signal
    import time

    options = {"--trials": "50", "--method": "FM-NES", "--out": str(tmp_path / "out"), "--workers": "1"}
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "fmnes",
            "reproduce",
            "table-2",
            *(word for pair in options.items() for word in pair),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    results = tmp_path / "out" / "trials.csv"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and (not results.exists() or len(results.read_text().splitlines()) < 2):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "the same command goes on" in output
    assert len(read_trials(results)) >= 1


def test_resampling_draws_until_enough_are_feasible() -> None:
    """The block-wise trial needs as many evaluations as the paper's point-wise one."""
    cell = Cell("CMA-ES/R", "ic-sphere", 4)
    blocks = np.array([t.evaluations for t in run_trials([(cell, number) for number in range(2)], workers=2)])
    assert abs(blocks.mean() - 25_200) < 4 * 945 * math.sqrt(1 / 2 + 1 / 50)


@pytest.mark.skipif(not (COMMITTED / "trials.csv").exists(), reason="no results are committed yet")
def test_committed_trials_repeat() -> None:
    """A sample of the committed trials, run again in the pinned arithmetic: the very same numbers."""
    import platform

    committed = {(t.cell, t.number): t for t in read_trials(COMMITTED / "trials.csv")}
    sample = [(Cell("FM-NES", "sphere", 8), 7), (Cell("FM-NES", "ic-sphere", 12), 3)]
    sample += [(Cell("DX-NES-IC", "cigar", 20), 11), (Cell("CMA-ES", "sphere", 8), 30)]
    found = run_trials(sample, workers=2)
    made_with = json.loads((COMMITTED / "configuration.json").read_text())
    if (made_with["numpy"], made_with["machine"]) == (np.__version__, platform.machine()):
        assert found == [committed[key] for key in sample]
    else:  # another NumPy rounds differently, and the runs are chaotic: only the statistics must agree
        published_sd = {row.cell: (row.mean, row.sd) for row in published()}
        for trial in found:
            mean, sd = published_sd[trial.cell]
            assert trial.success and abs(trial.evaluations - mean) < 6 * sd  # type: ignore[operator]


@pytest.fixture(scope="module")
def made_anew(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the committed trials."""
    folder = tmp_path_factory.mktemp("made") / "reproduction"
    folder.mkdir()
    for name in ("trials.csv", "configuration.json"):
        shutil.copy(COMMITTED / name, folder)
    reproduce("all", out=folder, workers=1)
    return folder


def test_the_committed_report_is_that_of_the_committed_trials(made_anew: Path) -> None:
    for name in ("trials.csv", "results.csv", "report.md"):
        assert (made_anew / name).read_text() == (COMMITTED / name).read_text()


NARROW = """
[...document.querySelectorAll('.wide:has(table)')].map((box) => {
  box.scrollLeft = 1e6;
  const row = box.querySelector('tbody tr'), edge = box.getBoundingClientRect();
  return [box.tabIndex, box.scrollLeft, row.firstChild.getBoundingClientRect().left - edge.left,
          edge.right - row.lastChild.getBoundingClientRect().right];
})
"""
"""Of each table, scrolled to its end: whether it takes the focus, where its first and last columns are."""


def test_the_page_can_be_read_at_any_width_in_light_and_dark(made_anew: Path) -> None:
    with open_browser() as browser, browser.page((made_anew / "report.html").as_uri()) as page:
        for width, dark in itertools.product((1200, 500, 400), (False, True)):
            page.show(width, dark)
            assert page.evaluate("innerWidth") == width
            assert page.sideways() == 0
            assert page.faint() == []
            background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            assert background == ("rgb(22, 22, 22)" if dark else "rgb(255, 255, 255)")
        assert page.evaluate("document.querySelectorAll('tbody tr').length") == len(published())
        tables = page.evaluate(NARROW)
        assert page.complaints == []
        assert page.foreign_requests() == []
    assert len(tables) == 4
    for focus, scrolled, first, last in tables:
        assert focus == 0  # the keyboard gets there
        assert scrolled > 0 and first == 0  # the method stays in sight
        assert abs(last) < 1  # and the mark comes into it
