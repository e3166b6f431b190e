"""The pages that drive XFOIL, step by step, as a reader would."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.site.pages import ROOT, blocks, run, run_page

pytestmark = pytest.mark.skipif(
    shutil.which("xfoil") is None and os.environ.get("FMNES_SIMULATORS") != "required",
    reason="there is no xfoil here",
)


def test_a_program_of_ones_own() -> None:
    assert run_page(ROOT / "docs" / "programs.md") == []


def test_a_wing_section(tmp_path: Path) -> None:
    """In a copy of the repository, whose problem file has a smaller budget."""
    problem = tmp_path / "repository" / "examples" / "airfoil" / "problem.toml"
    shutil.copytree(ROOT / "examples" / "airfoil", problem.parent)
    text = problem.read_text("utf-8")
    assert "max_evaluations = 500" in text
    problem.write_text(text.replace("max_evaluations = 500", "max_evaluations = 20"))
    [block] = blocks(ROOT / "docs" / "airfoil.md")
    assert run(block, tmp_path / "repository") == ""
