"""The report of the committed trials, made anew, and looked at in a browser."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from fmnes.reproduction import reproduce
from fmnes.reproduction.cells import published
from tests.browser import open_browser

COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction"


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
