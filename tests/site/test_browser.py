"""The site in a browser: readable on a phone and on a desktop, in both colour schemes, without errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import Browser, open_browser
from tests.site.build import build_site

PAGES = (
    "index",
    "tutorial",
    "glossary",
    "failures",
    "constraints",
    "an-expensive-simulation",
    "categories",
    "programs",
    "recipes",
    "benchmarks/index",
    "api/minimize",
    "search",
)
#: Blocks of code whose lines end outside of their box; on a narrow screen they scroll.
CUT_OFF = """
[...document.querySelectorAll("article pre")].filter((block) => block.scrollWidth > block.clientWidth + 1)
    .map((block) => block.innerText.slice(0, 80))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_readable(browser: Browser, name: str) -> None:
    address = (build_site() / f"{name}.html").as_uri()
    for width in (390, 1280):
        for dark in (False, True):
            with browser.page(address, width, dark) as page:
                seen = f"{width} px{', dark' * dark}"
                assert page.complaints == [], seen
                assert page.sideways() == 0, seen
                assert page.faint() == [], seen
                if width == 1280:
                    assert page.evaluate(CUT_OFF) == [], seen


def test_code_has_a_button_that_copies_it(browser: Browser) -> None:
    with browser.page((build_site() / "tutorial.html").as_uri(), 1280) as page:
        blocks = page.evaluate("document.querySelectorAll('div.highlight pre').length")
        assert page.evaluate("document.querySelectorAll('button.copybtn').length") == blocks > 5


def test_the_search_page_shows_what_it_finds(browser: Browser) -> None:
    with browser.page((build_site() / "search.html").as_uri() + "?q=surrogate", 1280) as page:
        page.wait_for("document.querySelectorAll('#search-results li').length > 2")
