"""The table of promises names tests that exist and breaks that can be made, and its page is current."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tests.promises import PAGE, PROMISES, ROOT, break_code, locate, page


def test_every_promise_names_a_test_that_exists() -> None:
    missing = []
    for promise in PROMISES:
        file, _, name = promise.test.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if name.partition("[")[0] not in functions:
            missing.append(promise.test)
    assert not missing


def test_every_break_can_still_be_made(tmp_path: Path) -> None:
    """When a symbol is renamed or its lines change, adapt the break in `tests/promises.py`."""
    source = ROOT / "src"
    for promise in PROMISES:
        original, *_ = locate(promise.symbol, source)
        copy = tmp_path / original.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(original, copy)
        break_code(promise, tmp_path)
        assert copy.read_text(encoding="utf-8") != original.read_text(encoding="utf-8"), promise.says
        ast.parse(copy.read_text(encoding="utf-8"))


def test_a_symbol_is_found_in_the_file_that_defines_it(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "m.py").write_text("def f(): ...\n\nclass A:\n    def f(self):\n        return 2\n")
    path, start, end = locate("p.m.A.f", tmp_path)
    assert path == package / "m.py"
    assert path.read_text()[start:end] == "    def f(self):\n        return 2\n"
    assert locate("p.m", tmp_path)[1:] == (0, len(path.read_text()))
    with pytest.raises(LookupError, match=r"m.py defines no g"):
        locate("p.m.A.g", tmp_path)
    with pytest.raises(LookupError, match="no module"):
        locate("q.m", tmp_path)


def test_no_promise_twice() -> None:
    assert len({p.says for p in PROMISES}) == len({(p.symbol, p.old) for p in PROMISES}) == len(PROMISES)


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.promises --page"
