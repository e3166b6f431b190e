"""docs/architecture.md names files that exist and every folder; one generation goes through few files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fmnes

SOURCE = Path(fmnes.__file__).parent
ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: The most files of the package that one generation may go through.
MOST_FILES = 30


def test_every_file_and_folder_that_the_page_names_exists() -> None:
    named = set(re.findall(r"(?<![\w/])(?:\w+/)*\w+\.py\b|(?<![\w/])(?:\w+/)+(?![\w.])", TEXT))
    assert len(named) > 60
    assert not [
        name for name in sorted(named) if not any((place / name).exists() for place in (SOURCE, ROOT))
    ]


def test_every_folder_of_the_package_is_in_the_tree() -> None:
    tree = TEXT.partition("```text")[2].partition("```")[0]
    folders = {
        path.parent.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if path.parent != SOURCE and "templates" not in path.parts
    }
    assert len(folders) > 15
    listed = {line.split()[0].rstrip("/") for line in tree.splitlines() if line.strip()}
    assert not folders - listed


def sphere(x: np.ndarray) -> float:
    return float(x @ x)


@pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX")
def test_one_generation_with_workers_goes_through_few_files() -> None:
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            files.add(path.relative_to(SOURCE).as_posix())

    def callback(view: fmnes.View) -> bool:
        if view.generation == 2:  # what is loaded or computed once is behind it
            sys.setprofile(note)
        elif view.generation == 3:
            sys.setprofile(None)
        return view.generation == 3

    try:
        result = fmnes.minimize(
            sphere, [1.0, 1.0], 1.0, population_size=6, workers=2, rng=1, callback=callback
        )
    finally:
        sys.setprofile(None)
    assert result.nit == 3
    assert {"run/evaluate.py", "search/optimizer.py", "evaluation/workers/pool.py"} <= files
    assert len(files) <= MOST_FILES, " ".join(sorted(files))
