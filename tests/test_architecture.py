"""docs/architecture.md names files that exist and every folder; one generation goes through few files."""

from __future__ import annotations

import json
import re
import subprocess
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
#: The most files of the package that one generation may go through, …
MOST_FILES = 25
#: … and with a run directory and named parameters, too.
MOST_FILES_IN_ALL = 32


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


def by_name(p: dict[str, Any]) -> float:
    return p["a"] ** 2 + p["b"] ** 2


@pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX")
@pytest.mark.parametrize("in_all", [False, True], ids=["arrays", "names and directory"])
def test_one_generation_with_workers_goes_through_few_files(
    in_all: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow run writes a snapshot in this generation.
    monkeypatch.setattr("fmnes.run.state.SNAPSHOT_SECONDS", 1e9)
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

    settings: dict[str, Any] = {"population_size": 6, "workers": 2, "rng": 1, "callback": callback}
    try:
        if in_all:
            space = {"a": fmnes.Real(-1, 2), "b": fmnes.Real(-1, 2)}
            result: Any = fmnes.minimize(by_name, space, run_dir=tmp_path / "run", **settings)
        else:
            result = fmnes.minimize(sphere, [1.0, 1.0], 1.0, **settings)
    finally:
        sys.setprofile(None)
    assert result.nit == 3
    assert {"run/evaluate.py", "search/optimizer.py", "evaluation/workers/pool.py"} <= files
    assert len(files) <= (MOST_FILES_IN_ALL if in_all else MOST_FILES), " ".join(sorted(files))


READS = """
import collections, json, os, sys
import fmnes

def sphere(x):
    return float(x @ x)

run = os.path.abspath("run")
fmnes.minimize(sphere, [1.0, 2.0], 0.5, rng=1, max_evaluations=40, run_dir=run)
opened = []

def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and os.path.dirname(arguments[0]) == run:
        opened.append(os.path.basename(arguments[0]))

sys.addaudithook(note)
counts = []
for read in (lambda: fmnes.resume(run, sphere), lambda: fmnes.read_run(run).result):
    opened.clear()
    read()
    counts.append(collections.Counter(opened))
print(json.dumps(counts))
"""


def test_each_file_of_a_finished_run_is_read_once(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", READS], cwd=tmp_path, capture_output=True, check=True)
    for counts in json.loads(done.stdout):
        assert counts == dict.fromkeys(["config.json", "result.json", "result.npz", "lock"], 1)
