"""Every block of every page runs, every command that a page names exists, every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.site.pages import (
    ELSEWHERE,
    ROOT,
    blocks,
    broken_commands,
    commands,
    dead_links,
    failing_gallery,
    figures_elsewhere,
    missing_commands,
    pages,
    pictures_without_words,
    run_page,
    same_output,
    sentences,
    unmade_pictures,
    unusual_words,
)

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
WITH_CODE = [case for case in PAGES if case.id not in ELSEWHERE and blocks(Path(str(case.values[0])))]


@pytest.mark.parametrize("page", WITH_CODE)
def test_its_code_runs(page: Path) -> None:
    assert run_page(page) == []


@pytest.mark.parametrize("where", ELSEWHERE.values())
def test_who_runs_the_code_of_other_pages_is_there(where: str) -> None:
    assert (ROOT / where).exists()


def test_links_commands_and_pictures() -> None:
    others = [ROOT / name for name in ("CONTRIBUTING.md", "RELEASING.md", "CHANGELOG.md")]
    tests = (dead_links, missing_commands)
    wrong = [said for page in [*pages(), *others] for test in tests for said in test(page)]
    assert wrong == []
    assert [said for page in pages() for said in unmade_pictures(page)] == []
    assert [said for page in pages() for said in pictures_without_words(page)] == []


@pytest.mark.parametrize(
    "page", [case for case in PAGES if "![" in Path(str(case.values[0])).read_text("utf-8")]
)
def test_the_commands_of_its_pictures_start(page: Path) -> None:
    assert list(broken_commands(page)) == []


def test_the_pictures_of_the_plots_are_made(tmp_path: Path) -> None:
    assert list(failing_gallery(ROOT / "docs" / "plots.md", tmp_path)) == []


def test_a_failing_command_of_a_picture_is_said_with_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.site.pages.NAMED_FROM", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("![A picture](plots/other.svg) by `python -m benchmarks.nothing`")
    [said] = broken_commands(page)
    assert said.startswith("page.md: python -m benchmarks.nothing ended with 1:") and "No module" in said
    [said] = failing_gallery(page, tmp_path, "python -m benchmarks.nothing")
    assert said.startswith("page.md: python -m benchmarks.nothing ended with 1:")
    assert list(failing_gallery(page, tmp_path, "python -m benchmarks.gallery")) == [
        "page.md: python -m benchmarks.gallery has not made plots/other.svg"
    ]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 110


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_sentences_are_short(name: str) -> None:
    assert [sentence for sentence in sentences(ROOT / name) if len(sentence.split()) > 35] == []


def test_words_are_the_usual_ones(tmp_path: Path) -> None:
    unusual, words = unusual_words([*pages(), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"])
    assert words > 30_000 and unusual <= words / 1000
    page = tmp_path / "page.md"
    page.write_text("Nobody is told `anew` what\n```\nbeforehand\n```\nis no word.")
    assert unusual_words([page]) == (3, 7)


def test_long_sentences_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n\nOne [two](page.md)\nthree. Four!\n- five\n- six\n\n```sh\nseven\n```\n| a | b |\n"
    )
    assert [found for found in sentences(page) if found] == [
        "# A title",
        "One two three.",
        "Four!",
        "- five",
        "- six",
        "a",
        "b",
    ]


def test_the_figures_of_the_readme_are_on_the_pages_it_names() -> None:
    assert list(figures_elsewhere(ROOT / "README.md")) == []


def test_a_figure_without_a_source_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.site.pages.NAMED_FROM", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("| [Speed](there.md), d = 7 | 1.5 | 2.5e-3 | 12 of 12 | - |\n")
    (tmp_path / "there.md").write_text("1.55 12.5 2.5e-3 12.")
    assert list(figures_elsewhere(page)) == ["page.md: 1.5 is not in there.md"]


BAD = """# A page

![A picture](picture.svg)

See [there](nowhere.md), [here](page.md#a-page) and [below](page.md#below).
`python -m benchmarks.nothing` and `python -m benchmarks.lens --nothing`.

```python
open("made", "w").close()
```

```sh
test -e made
pip install "fmnes[nothing]"
```

```python
raise SystemExit("gone wrong")
```
"""


def test_what_is_wrong_with_a_page_is_said_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.site.pages.NAMED_FROM", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(BAD)
    first, second = run_page(page)
    assert first.startswith("page.md, block 2 (sh) ended with 1:") and "no extra 'nothing'" in first
    assert second.startswith("page.md, block 3 (python) ended with 1:") and "gone wrong" in second
    assert list(dead_links(page)) == [
        "page.md: no such file: picture.svg",
        "page.md: no such file: nowhere.md",
        "page.md: no such heading: page.md#below",
    ]
    assert list(missing_commands(page)) == [
        "page.md: no such command: python -m benchmarks.nothing",
        "page.md: python -m benchmarks.lens --nothing: no option --nothing",
    ]
    assert len(commands(page)) == 2 and list(unmade_pictures(page)) == []
    page.write_text("![A picture](picture.svg)")
    assert list(pictures_without_words(page)) == ["page.md: picture.svg has no text that says what it shows"]
    assert list(unmade_pictures(page)) == ["page.md: it has a picture, and no command that makes it"]


@pytest.mark.parametrize("word", ["Pareto", "multi-objective", "multi-fidelity", "gradients", "instead"])
def test_what_is_not_supported_has_the_words_that_people_search_for(word: str) -> None:
    text = (ROOT / "docs" / "choosing.md").read_text()
    assert word in text.partition("\n## Not supported\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("README.md", 2),
        ("docs/tutorial.md", 2),
        ("docs/tutorial.md", 3),
        ("docs/an-expensive-simulation.md", 1),
    ],
)
def test_the_first_pages_show_what_their_code_prints(name: str, number: int, tmp_path: Path) -> None:
    page = ROOT / name
    [code] = [block.text for block in blocks(page) if block.number == number]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    shown = re.findall(r"^```text\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert any(same_output(text, done.stdout) for text in shown), done.stdout


def test_output_that_differs_is_seen() -> None:
    assert same_output("fun 0.500028 (38 failed)\n", "fun 0.500001 (40 failed)\n")
    assert not same_output("fun 0.5 (38 failed)\n", "fun 0.5 (60 failed)\n")
    assert not same_output("fun 0.5\n", "value 0.5\n")
