"""The rules of CONTRIBUTING that a reader of the source can check, and that a type checker cannot."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


def parts_of_a_generation(path: Path) -> bool:
    return path.relative_to(SOURCE).parts[:2] in (("fmnes", "steps"), ("fmnes", "strategies"))


@cache
def nodes(wanted: bool) -> list[tuple[str, ast.AST]]:
    """Of the files that are (or are not) parts of a generation, with where they stand."""
    return [
        (f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}", node)
        for path in sorted(SOURCE.rglob("*.py"))
        if parts_of_a_generation(path) is wanted
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.arg | ast.Call | ast.MatMult)
    ]


def test_a_part_of_a_generation_is_given_the_backend_and_takes_its_arrays_from_it() -> None:
    arguments = [(where, node.arg) for where, node in nodes(True) if isinstance(node, ast.arg)]
    assert len([name for _, name in arguments if name == "backend"]) > 50
    assert [where for where, name in arguments if name == "xp"] == []


def test_a_part_of_a_generation_multiplies_by_dot_and_all_else_by_the_operator() -> None:
    def operators(wanted: bool) -> list[str]:
        return [where for where, node in nodes(wanted) if isinstance(node, ast.MatMult)]

    def methods(wanted: bool) -> list[str]:
        found = [(where, node.func) for where, node in nodes(wanted) if isinstance(node, ast.Call)]
        return [where for where, f in found if isinstance(f, ast.Attribute) and f.attr == "dot"]

    assert len(methods(True)) > 50
    assert operators(True) == []
    assert len(operators(False)) > 10
    assert [
        where for where in methods(False) if not where.startswith(("fmnes/problems/", "fmnes_bench/"))
    ] == []
