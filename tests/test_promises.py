"""The table of promises names tests that exist and breaks that can be made, and its page is current."""

from __future__ import annotations

import ast

import fmnes
from tests.promises import PAGE, PROMISES, ROOT, page


def test_every_promise_names_a_test_that_exists() -> None:
    missing = []
    for promise in PROMISES:
        file, _, name = promise.test.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if name.partition("[")[0] not in functions:
            missing.append(promise.test)
    assert not missing


def test_every_break_can_still_be_made() -> None:
    """Once the lines have changed, the break has to follow them: see `python -m tests.promises`."""
    source = ROOT / "src" / fmnes.__name__
    gone = [p for p in PROMISES if p.old not in (source / p.file).read_text(encoding="utf-8")]
    assert not gone
    assert all(p.old != p.new for p in PROMISES)


def test_no_promise_twice() -> None:
    assert len({p.says for p in PROMISES}) == len({(p.file, p.old) for p in PROMISES}) == len(PROMISES)


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.promises --page"
