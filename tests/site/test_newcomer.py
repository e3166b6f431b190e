"""A newcomer finds the answer: by two clicks from the first page, or by the search box."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.build import pages_with
from tests.site.pages import LINK, ROOT

DOCS = ROOT / "docs"
CLICKS = 2
#: A question, the word to look for in a link's line, and what its answer says.
QUESTIONS = [
    ("my program crashes", ("program", "crashes"), "died: SIGSEGV"),
    ("limit on stress", ("limit", "stress"), 'constraints={"stress"'),
    ("100 evaluations", ("100 evaluations",), "max_evaluations=100"),
    ("choose a material", ("material",), "fmnes.Categorical("),
    ("values are noisy", ("nois",), "result.fun_error"),
    ("I know NOMAD", ("nomad",), "MAX_BB_EVAL"),
    ("can it use gradients", ("cannot",), "gradients"),
]
TERMS = {
    "categorical": "categories",
    "Pareto": "constraints",
    "surrogate": "an-expensive-simulation",
    "constraint": "constraints",
    "noise": "recipes",
    "checkpoint": "resume",
    "timeout": "failures",
    "crash": "failures",
    "NaN": "failures",
    "hidden": "failures",
    "NOMAD": "coming-from",
    "Dakota": "coming-from",
    "multi": "choosing",
}


def links(page: Path, words: tuple[str, ...]) -> Iterator[Path]:
    """The pages that are linked in a line with these words."""
    for line in page.read_text("utf-8").splitlines():
        if all(word in line.lower() for word in words):
            yield from ((page.parent / link).resolve() for link, _ in LINK.findall(line) if ":" not in link)


def clicks_to_the_answer(first: Path, words: tuple[str, ...], answer: str) -> int | None:
    """How many links lead to the answer; none where it is not found."""
    reached = {first}
    for clicks in range(CLICKS + 1):
        if any(answer in page.read_text("utf-8") for page in reached if page != first):
            return clicks
        reached = {
            link for page in reached for link in links(page, words) if link.suffix == ".md" and link.exists()
        }
    return None


@pytest.mark.parametrize(
    ("words", "answer"), [case[1:] for case in QUESTIONS], ids=[case[0] for case in QUESTIONS]
)
def test_the_answer_is_two_clicks_from_the_first_page(words: tuple[str, ...], answer: str) -> None:
    assert clicks_to_the_answer(DOCS / "index.md", words, answer) in (1, 2)


def test_an_answer_that_is_too_far_is_seen(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.md").write_text(
            f"My question: [next]({number + 1}.md)\n\nAnother: [first](0.md)\n"
        )
    (tmp_path / "2.md").write_text("Here is the answer.")
    words = ("question",)
    assert clicks_to_the_answer(tmp_path / "0.md", words, "the answer") == 2
    assert clicks_to_the_answer(tmp_path / "0.md", ("another",), "the answer") is None
    (tmp_path / "2.md").write_text("My question: [next](3.md)")
    (tmp_path / "3.md").write_text("Here is the answer.")
    assert clicks_to_the_answer(tmp_path / "0.md", words, "the answer") is None


@pytest.mark.parametrize(("term", "page"), TERMS.items())
def test_the_search_box_finds_a_standard_term(term: str, page: str) -> None:
    assert page in pages_with(term)


def test_the_search_box_does_not_find_everything() -> None:
    assert pages_with("zeppelin") == set() and "op-amp" not in pages_with("categorical")
