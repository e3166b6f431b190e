"""The page that drives XFOIL, step by step, as a reader would."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.site.pages import ROOT, run_page

pytestmark = pytest.mark.skipif(
    shutil.which("xfoil") is None and os.environ.get("FMNES_SIMULATORS") != "required",
    reason="there is no xfoil here",
)


def test_its_code_runs() -> None:
    assert run_page(ROOT / "docs" / "programs.md") == []
