"""The pages that drive XFOIL, step by step, as a reader would."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.site.pages import ROOT, blocks, run

pytestmark = pytest.mark.skipif(
    shutil.which("xfoil") is None and os.environ.get("FMNES_SIMULATORS") != "required",
    reason="there is no xfoil here",
)


def shorten(problem: Path, budget: int) -> None:
    """What the whole searches find is the business of test_simulators.py and of benchmarks/airfoil.py."""
    text = problem.read_text("utf-8")
    assert f"max_evaluations = {budget}\n" in text
    problem.write_text(text.replace(f"max_evaluations = {budget}\n", "max_evaluations = 10\n"), "utf-8")


def test_a_program_of_ones_own(tmp_path: Path) -> None:
    first, *steps, script = blocks(ROOT / "docs" / "programs.md")
    (tmp_path / "reader").mkdir()
    assert run(first, tmp_path / "reader") == ""
    shorten(tmp_path / "reader" / "glider" / "problem.toml", 200)
    for block in steps:
        assert block.language == "sh" and run(block, tmp_path / "reader") == ""
    (tmp_path / "python").mkdir()
    assert script.language == "python" and run(script, tmp_path / "python") == ""


def test_a_wing_section(tmp_path: Path) -> None:
    """In a copy of the repository."""
    problem = tmp_path / "repository" / "examples" / "airfoil" / "problem.toml"
    shutil.copytree(ROOT / "examples" / "airfoil", problem.parent)
    shorten(problem, 500)
    [block] = blocks(ROOT / "docs" / "airfoil.md")
    assert run(block, tmp_path / "repository") == ""
