"""Real simulators, driven by a problem file and templates alone: what `fmnes init` writes for them.

    apt-get install ngspice xfoil

Where FMNES_SIMULATORS=required is set, as in .ci/run, a program that is missing is a failure and not a skip.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.templates import KNOWN
from fmnes.cli import app
from fmnes.cli.problem import template_files
from fmnes.cli.problem_file import read_problem

ROOT = Path(__file__).parents[2]
SIMULATORS = ("ngspice", "xfoil")

#: The best one.
SECTION = ["camber=4", "position=5", "thickness=8", "strip=0.61"]
#: Too thin and too straight to lift so much.
STALLED = ["camber=1", "position=2", "thickness=8", "strip=0.5"]


def need(program: str) -> None:
    if shutil.which(program) is None:
        line = f"{program} is not installed: apt-get install {program}"
        if os.environ.get("FMNES_SIMULATORS") == "required":
            pytest.fail(line)
        pytest.skip(line)


def begun(template: str, folder: Path) -> Path:
    """The problem file of a new folder."""
    need(template)
    assert not app(["init", str(folder / "new"), "--template", template], standalone_mode=False)
    return folder / "new" / "problem.toml"


class Tried(NamedTuple):
    exit_status: int
    said: dict[str, Any]


@pytest.fixture
def tried(capsys: pytest.CaptureFixture[str]) -> Callable[..., Tried]:
    def run(problem: Path, *values: str) -> Tried:
        capsys.readouterr()
        status = app(["try", str(problem), *values, "--json"], standalone_mode=False)
        return Tried(status or 0, json.loads(capsys.readouterr().out))

    return run


def found(problem: Path, enough: float, seed: int) -> dict[str, Any]:
    """What the default method finds with the file's own budget; it ends as soon as that is enough."""
    words = ["minimize", str(problem), "--json", "--seed", str(seed), "--target", str(enough)]
    done = subprocess.run(
        [sys.executable, "-m", "fmnes", *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_ngspice_finds_the_filter_of_the_textbooks(tmp_path: Path) -> None:
    least = KNOWN["ngspice"]()
    result = found(begun("ngspice", tmp_path), 1.05 * least, seed=1)
    assert result["stop_reason"] == "TARGET"
    assert least * (1 - 1e-5) <= result["fun"] <= 1.05 * least  # nothing beats it
    assert result["n_infeasible"] > 0
    assert [failure["reason"] for failure in result["failures"]] == ["out of interval"]


def loss(c1: float, l2: float, c3: float, megahertz: float) -> float:
    """In dB, of the ladder between 50 Ω, by hand: current and voltage from the output back to the source."""
    s = 2j * math.pi * megahertz * 1e6
    current = 1 / 50 + s * c3 * 1e-12
    voltage = 1 + s * l2 * 1e-9 * current
    current += s * c1 * 1e-12 * voltage
    return 20 * math.log10(abs(voltage + 50 * current) / 2)


def test_ngspice_at_one_point(tmp_path: Path, tried: Callable[..., Tried]) -> None:
    status, trial = tried(begun("ngspice", tmp_path), "c1=600", "l2=900", "c3=500")
    assert status == 0
    assert trial["value"] == pytest.approx(loss(600, 900, 500, 10), rel=1e-4)
    assert loss(600, 900, 500, trial["outputs"]["f20dB"] / 1e6) == pytest.approx(20, rel=1e-4)
    deck = Path(trial["directory"], "filter.cir").read_text()
    assert "R1 source in {resistance}\nC1 in 0 600.0p\n" in deck  # ngspice's own braces, and ours


def test_a_measurement_that_ngspice_cannot_make_is_a_failure_with_its_own_words(
    tmp_path: Path, tried: Callable[..., Tried]
) -> None:
    status, trial = tried(begun("ngspice", tmp_path), "c1=60", "l2=110", "c3=60")
    assert status == 1
    assert trial["status"] == "infeasible" and trial["value"] is None
    assert trial["reason"] == "out of interval"
    assert "meas ac f20db when vdb(out)=-20 fall=1 failed!" in trial["stdout"]


def test_xfoil_finds_the_best_section(tmp_path: Path) -> None:
    least = KNOWN["xfoil"]()
    result = found(begun("xfoil", tmp_path), 1.01 * least, seed=5)
    assert result["stop_reason"] == "TARGET"
    assert 0.99 * least < result["fun"] <= 1.01 * least
    assert {failure["reason"] for failure in result["failures"]} <= {"VISCAL: Convergence failed"}


def test_xfoil_at_one_point(tmp_path: Path, tried: Callable[..., Tried]) -> None:
    status, trial = tried(begun("xfoil", tmp_path), *SECTION)
    assert status == 0
    assert trial["value"] == pytest.approx(KNOWN["xfoil"](), rel=0.01)
    assert 3 < trial["outputs"]["alpha"] < 7
    assert -0.2 < trial["outputs"]["moment"] < -0.05


def test_a_flow_that_does_not_converge_is_a_failure_with_xfoils_own_words(
    tmp_path: Path, tried: Callable[..., Tried]
) -> None:
    status, trial = tried(begun("xfoil", tmp_path), *STALLED)
    assert status == 1
    assert trial["status"] == "infeasible"
    assert trial["reason"] == "VISCAL: Convergence failed"


def test_a_drag_on_the_way_to_convergence_is_no_value(tmp_path: Path, tried: Callable[..., Tried]) -> None:
    # As when XFOIL dies in the middle: drags are printed, but none of a flow that has converged.
    problem = begun("xfoil", tmp_path)
    edit(problem.parent / "commands.in", "ITER 40", "ITER 2")
    edit(problem, 'fail_if = "VISCAL:  Convergence failed"', "")
    status, trial = tried(problem, *SECTION)
    assert " CD = " in trial["stdout"]
    assert status == 1
    assert trial["status"] == "infeasible"


def test_where_they_are_required_a_missing_simulator_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FMNES_SIMULATORS", "required")
    with pytest.raises(pytest.fail.Exception, match="apt-get install xfoil"):
        need("xfoil")
    monkeypatch.delenv("FMNES_SIMULATORS")
    with pytest.raises(pytest.skip.Exception, match="apt-get install xfoil"):
        need("xfoil")
    assert "export FMNES_SIMULATORS=required\n" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    "folder", ["examples/calculix", *(f"src/fmnes/cli/templates/{s}" for s in SIMULATORS)]
)
def test_the_files_fit_each_other(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("gmsh", *SIMULATORS):
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    read_problem(ROOT / folder / "problem.toml")


def test_the_page_shows_the_template_as_it_is() -> None:
    page = (ROOT / "docs" / "programs.md").read_text()
    files = template_files("xfoil")
    assert f"```text\n{files['commands.in']}```" in page
    shown = page.partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(shown) == tomllib.loads(files["problem.toml"])
