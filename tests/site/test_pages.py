"""Every block of every page runs, every command that a page names exists, every link leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.site.pages import (
    ELSEWHERE,
    ROOT,
    blocks,
    commands,
    dead_links,
    missing_commands,
    pages,
    run_page,
    unmade_pictures,
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
    wrong = [said for page in pages() for test in (dead_links, missing_commands) for said in test(page)]
    assert wrong == []
    assert [said for page in pages() for said in unmade_pictures(page)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


BAD = """# A page

![A picture](picture.svg)

See [there](nowhere.md). `python -m benchmarks.nothing` and `python -m benchmarks.lens --nothing`.

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
    ]
    assert list(missing_commands(page)) == [
        "page.md: no such command: python -m benchmarks.nothing",
        "page.md: python -m benchmarks.lens --nothing: no option --nothing",
    ]
    assert len(commands(page)) == 2 and list(unmade_pictures(page)) == []
    page.write_text("![A picture](picture.svg)")
    assert list(unmade_pictures(page)) == ["page.md: it has a picture, and no command that makes it"]


@pytest.mark.parametrize(("name", "number"), [("start.md", 2), ("an-expensive-simulation.md", 1)])
def test_the_first_pages_show_what_their_code_prints(name: str, number: int, tmp_path: Path) -> None:
    page = ROOT / "docs" / name
    [code] = [block.text for block in blocks(page) if block.number == number]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert f"```text\n{done.stdout}```" in page.read_text("utf-8")
