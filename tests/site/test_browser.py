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
    "coming-from",
    "benchmarks/index",
    "benchmarks/real",
    "benchmarks/search",
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


@pytest.mark.parametrize(
    ("words", "page_found"),
    [
        ("categorical", "categories.html"),
        ("Pareto", "constraints.html"),
        ("surrogate", "an-expensive-simulation.html"),
        ("hidden constraint", "failures.html"),
        ("multi-objective", "choosing.html"),
        ("Dakota", "coming-from.html"),
    ],
)
def test_the_search_page_shows_what_it_finds(browser: Browser, words: str, page_found: str) -> None:
    address = (build_site() / "search.html").as_uri() + f"?q={words.replace(' ', '+')}"
    with browser.page(address, 1280) as page:
        page.wait_for(f"!!document.querySelector('#search-results li a[href*=\"{page_found}\"]')", seconds=60)


def test_the_search_page_finds_nothing_where_there_is_nothing(browser: Browser) -> None:
    with browser.page((build_site() / "search.html").as_uri() + "?q=zeppelin", 1280) as page:
        page.wait_for("document.body.innerText.includes('did not match any documents')")
