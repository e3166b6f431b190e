"""The notebook of examples/ runs from its first cell to its last, and is stored without outputs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import fmnes

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_steps.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """What the notebook would show below the cell: the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return None
    del tree.body[-1]
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [run_cell("".join(cell["source"]), names) for cell in CELLS]
    kinds = [type(value).__name__ for value in shown if value is not None]
    assert kinds == ["Result", "Figure", "Figure"]
    result = names["result"]
    assert {failure.reason for failure in result.failures} == {"buckled sideways", "returned NaN"}
    assert result.fun < 4.7  # at the edge of the failing region: 4.62
    assert result.x["height"] / result.x["width"] == pytest.approx(8, rel=0.02)
    assert names["light"].feasible and names["longer"].nfev == 80
    assert isinstance(names["longer"], fmnes.Result)


def test_it_is_stored_without_outputs() -> None:
    assert len(CELLS) > 5
    assert not [cell for cell in CELLS if cell["outputs"] or cell["execution_count"] is not None]
