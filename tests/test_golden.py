"""The golden trajectories are the same in every process, and a comparison sees what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Some of each kind: methods, restarts, names, overlap, resume, saving.
WORDS = [
    "afm-nes, d=2",
    "cr-fm-nes, d=5",
    "cma-es R",
    "known",
    "ask by id saved",
    "executor",
    "named, resume",
]


def golden(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.golden", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


def test_another_process_follows_the_same_trajectories_and_a_difference_is_found(tmp_path):
    file = tmp_path / "golden.json"
    recorded = golden("record", str(file), *WORDS)
    assert recorded.returncode == 0, recorded.stderr
    compared = golden("compare", str(file))
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert compared.stdout.endswith(" 0 differences\n")

    content = json.loads(file.read_text())
    assert len(content["cases"]) > 30
    name = "afm-nes, d=2, constrained"
    evaluations = content["cases"][name]["evaluations"]
    evaluations[6:] = ["000000"] * len(evaluations[6:])
    content["cases"][name]["nit"] += 1
    file.write_text(json.dumps(content))
    compared = golden("compare", str(file), "afm-nes, d=2")
    assert compared.returncode == 1
    assert f"{name}: evaluations: the first that differs is number 7 of {len(evaluations)}" in compared.stdout
    assert f"{name}: nit: " in compared.stdout and compared.stdout.endswith(" 2 differences\n")


def test_a_file_of_another_environment_is_not_compared(tmp_path):
    file = tmp_path / "golden.json"
    assert golden("record", str(file), "budget 3").returncode == 0
    content = json.loads(file.read_text())
    content["environment"]["numpy"] = "0.1"
    file.write_text(json.dumps(content))
    compared = golden("compare", str(file))
    assert compared.returncode == 2 and "another environment" in compared.stderr
