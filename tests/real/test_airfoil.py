"""The wing section of least drag: its shape, XFOIL's answers and failures, the example, the benchmark.

Where FMNES_SIMULATORS=required is set, a missing XFOIL is a failure and not a skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from math import comb
from pathlib import Path

import numpy as np
import pytest

import fmnes
from benchmarks.airfoil import FLOWS, outcome, row
from benchmarks.real.tasks import TASKS
from examples.__main__ import main as examples
from examples.airfoil import run
from examples.airfoil.shape import section
from fmnes.cli import app

PROBLEM = Path(run.__file__).with_name("problem.toml")
#: A nose that points down, and a lower surface that crosses the upper one before the tail.
STALLED = ["u1=0.1", "u2=0.09", "u3=0.29", "u4=0.39", "l1=-0.35", "l2=-0.14", "l3=-0.05", "l4=-0.16"]
CROSSED = ["u1=0.22", "u2=0.37", "u3=0.09", "u4=0", "l1=-0.16", "l2=-0.08", "l3=0.18", "l4=0.08"]


@pytest.fixture
def xfoil() -> None:
    if shutil.which("xfoil") is None:
        line = "xfoil is not installed: apt-get install xfoil"
        if os.environ.get("FMNES_SIMULATORS") == "required":
            pytest.fail(line)
        pytest.skip(line)


@pytest.mark.parametrize("scale", (1.0, 3.0))
def test_a_section_is_as_thick_as_it_is_to_be_whatever_the_numbers(scale: float) -> None:
    upper, lower = scale * np.array([0.18, 0.23, 0.18, 0.22]), scale * np.array([-0.16, -0.07, -0.10, -0.07])
    x, y = np.array(section(upper.tolist(), lower.tolist(), 400)).T
    nose = int(np.argmin(x))
    assert (x[nose], y[nose]) == (0, 0) and np.allclose([x[0], y[0], x[-1], y[-1]], [1, 0, 1, 0], atol=1e-12)
    above, below = y[: nose + 1][::-1], y[nose:]
    assert np.max(above - below) == pytest.approx(0.12, abs=2e-5)
    # By the formula, once more: both surfaces in the proportion that the numbers say.
    basis = np.array([comb(3, i) * x[nose:] ** i * (1 - x[nose:]) ** (3 - i) for i in range(4)])
    formula = np.sqrt(x[nose:]) * (1 - x[nose:]) * np.array([upper @ basis, lower @ basis])
    stretch = 0.12 / np.max(formula[0] - formula[1])
    assert np.allclose([above, below], stretch * formula, atol=2e-5)


def tried(capsys: pytest.CaptureFixture[str], folder: Path, *values: str) -> tuple[int, dict[str, object]]:
    for path in PROBLEM.parent.iterdir():
        if path.suffix in (".toml", ".in", ".py"):
            shutil.copy(path, folder)  # `fmnes try` leaves what it did beside the file
    capsys.readouterr()
    status = app(["try", str(folder / "problem.toml"), *values, "--json"], standalone_mode=False)
    return status or 0, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("xfoil")
def test_xfoil_answers_where_it_can_and_says_why_where_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = tried(capsys, tmp_path)
    assert status == 0 and said["value"] == pytest.approx(0.00595, abs=5e-5)
    status, said = tried(capsys, tmp_path, *STALLED)
    assert status == 1 and said["reason"] == "VISCAL: Convergence failed"
    status, said = tried(capsys, tmp_path, *CROSSED)
    assert status == 1 and said["reason"] == "died: SIGFPE"


@pytest.mark.usefixtures("xfoil")
def test_the_example_finds_less_drag_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    examples(["airfoil", "--quick", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert f"{run.QUICK} evaluations" in out and "drag 59.5 →" in out and "VISCAL: Convergence failed" in out
    table = fmnes.read_run(tmp_path / "airfoil.run").evaluations
    assert len(table) == run.QUICK and np.nanmin(table.value) < 0.0055
    picture = (tmp_path / "airfoil.svg").read_text()
    assert picture.startswith("<svg") and len(picture) < 200_000 and 'class="failed"' in picture
    with pytest.raises(SystemExit, match="earlier run"):
        run.main(["--out", str(tmp_path)])


def test_without_xfoil_the_line_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt-get install xfoil"):
        run.main(["--out", str(tmp_path / "out")])
    assert not list(tmp_path.iterdir())
    words = [sys.executable, Path(run.__file__).with_name("shape.py"), *["0.2"] * 4, *["-0.1"] * 4]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 127  # which the problem file does not take for success
    assert done.stderr == "found no xfoil, wanted it on the PATH: apt-get install xfoil\n"


@pytest.mark.usefixtures("xfoil")
def test_the_benchmarks_task_is_the_problem_file_in_counts_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    task = TASKS["airfoil"]()
    names = list(task.parameters)
    start = [task.parameters[name].start for name in names]
    stalled = [float(text.partition("=")[2]) for text in STALLED]
    values = task.fun(dict(zip(names, np.array([start, stalled]).T, strict=True)))
    assert values[0] == pytest.approx(59.5, abs=0.5) and values[1] == np.inf
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("xfoil")
def test_another_flow_has_another_drag_and_the_same_one_the_same() -> None:
    problem = run.read()
    start = run.start(problem)
    same, calmer = (outcome(start, FLOWS[name], problem.command) for name in ("as searched", "Ncrit 11"))
    assert same is not None and calmer is not None
    assert same["drag"] == pytest.approx(1e4 * problem.command(start)) and calmer["drag"] < same["drag"]
    assert calmer["upper_turbulent"] > same["upper_turbulent"]  # laminar for longer
    assert row("calm", same, None) == "| calm | 59.5 | 0.52 | 0.96 | no answer |  |  |  |"
