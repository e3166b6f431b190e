"""The site: every public name and every field of a state is described, and what is broken stops the build."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.plain_docstrings import as_restructured_text

import fmnes
from tests.site.pages import ROOT

DOCS = ROOT / "docs"
API = "".join(page.read_text("utf-8") for page in sorted((DOCS / "api").glob("*.md")))


def test_every_public_name_is_described() -> None:
    described = set(re.findall(r"auto\w+:: (?:fmnes\.)?([\w.]+)", API))
    assert set(fmnes.__all__) - described == set()


def test_every_field_of_a_state_has_its_meaning_and_shape() -> None:
    states, fields = 0, 0
    for path in (ROOT / "src" / "fmnes" / "strategies").glob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("State"):
                states += 1
                assert f"{path.stem}.{node.name}()" in API
                for field, said in zip(node.body[1:], node.body[2:], strict=False):
                    if isinstance(field, ast.AnnAssign):
                        fields += 1
                        where = f"{node.name}.{ast.unparse(field.target)}"
                        assert isinstance(said, ast.Expr) and len(ast.unparse(said)) > 15, where
    assert states == 4 and fields > 20


def test_plain_docstrings_become_markup() -> None:
    plain = """Looks *up* `x`.

    code(*args)

lower, upper: bounds, whose further lines
    are indented.

Parameters
----------
fun : callable
    Takes a point *or* `many`.
**options
    Others.

Examples
--------
>>> f(*args)
"""
    assert as_restructured_text(plain.splitlines()) == [
        r"Looks \*up\* ``x``.",
        "",
        "::",
        "",
        "        code(*args)",
        "",
        "- **lower**, **upper**: bounds, whose further lines",
        "  are indented.",
        "",
        "Parameters",
        "----------",
        "fun : callable",
        r"    Takes a point \*or\* ``many``.",
        "**options",
        "    Others.",
        "",
        "Examples",
        "--------",
        ">>> f(*args)",
        "",
    ]


def test_a_dead_link_stops_the_build_with_the_page(tmp_path: Path) -> None:
    for name in ("conf.py", "plain_docstrings.py"):
        shutil.copy(DOCS / name, tmp_path)
    (tmp_path / "_static").mkdir()
    links = ["conf.py", "#a-page", "gone.md", "gone.csv", "#gone"]
    text = "# A page\n\n" + "\n\n".join(f"[There]({link})" for link in links) + "\n"
    (tmp_path / "index.md").write_text(text)
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", tmp_path, tmp_path / "site"]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert {int(line) for line in re.findall(r"index\.md:(\d+): WARNING", done.stderr)} == {7, 9, 11}


def test_who_cites_it_names_this_version() -> None:
    assert f"\nversion: {fmnes.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
