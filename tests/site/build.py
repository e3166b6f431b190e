"""The site, built as `make site` does: `make docs` then has nothing to build again."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.site.pages import ROOT

SITE = ROOT / "build" / "site"
#: The processes of one test run have the same id.
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))


@cache
def build_site() -> Path:
    """The folder of the site. The first process of a test run builds it, the others wait for that."""
    SITE.parent.mkdir(exist_ok=True)
    with (SITE.parent / "site.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        # A second build writes files that a browser is reading.
        if lock.read() == RUN:
            return SITE
        command = [
            sys.executable,
            "-m",
            "sphinx",
            "-b",
            "html",
            "-W",
            "--keep-going",
            "-q",
            "docs",
            str(SITE),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lock.truncate(0)
        lock.write(RUN)
    return SITE


@cache
def search_index() -> dict[str, Any]:
    text = (build_site() / "searchindex.js").read_text("utf-8")
    index: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    return index


def pages_with(word: str) -> set[str]:
    """The pages that the search box of the site finds for a word, by the rules of Sphinx."""
    from sphinx.search.en import SearchEnglish

    stem, index = SearchEnglish({}).stem(word.lower()), search_index()
    found: set[str] = set()
    for numbers in (index["terms"].get(stem, []), index["titleterms"].get(stem, [])):
        found |= {index["docnames"][i] for i in (numbers if isinstance(numbers, list) else [numbers])}
    return found
