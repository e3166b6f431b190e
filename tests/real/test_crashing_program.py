"""The program of docs/crashing-program.md, compiled and left to crash and hang."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import fmnes
from examples.__main__ import main as examples
from examples.crashing_program.run import QUICK, build, main
from fmnes.cli.problem_file import ProblemFile, read_problem
from fmnes.evaluation.programs.inputs import find_program

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "crashing-program.md"
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None and os.environ.get("FMNES_SIMULATORS") != "required",
    reason="there is no C compiler here",
)


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> ProblemFile:
    folder = tmp_path_factory.mktemp("program")
    build(folder)
    return read_problem(folder / "problem.toml")


@needs_compiler
@pytest.mark.parametrize(
    ("flow", "coolant", "reason"),
    [
        (300, 315, "died: SIGSEGV"),
        (60, 315, "timed out after 1 s"),
        (100, 330, "returned NaN"),
        (30, 282, r"found no number in the output by '^cost = +(\S+)': '******'"),
    ],
)
def test_each_death_has_its_reason(problem: ProblemFile, flow: float, coolant: float, reason: str) -> None:
    with pytest.raises(fmnes.Infeasible) as died:
        timeout = 1 if "timed out" in reason else 60
        replace(problem.command, timeout=timeout, keep="none")({"flow": flow, "coolant": coolant})
    assert str(died.value) == reason
    assert f"`{reason}`" in PAGE.read_text(encoding="utf-8")


@needs_compiler
def test_where_it_works_it_is_right(problem: ProblemFile) -> None:
    """At rest what flows in is what flows out and what reacts, of the substance and of the heat."""
    done = subprocess.run(
        [find_program(problem.command), "100", "315"], capture_output=True, text=True, check=True
    )
    temperature, converted = (float(done.stdout.split()[i]) for i in (2, 4))
    heat = (temperature - 350) + 2.09 * (temperature - 315)  # K a minute, that 209 K for all of it provide
    assert converted / 100 == pytest.approx(heat / 209, abs=2e-3)


@needs_compiler
def test_it_is_the_time_step_that_crashes(tmp_path: Path) -> None:
    """What the page says of another step."""
    source = tmp_path / "shorter.c"
    text = (ROOT / "examples" / "crashing_program" / "simulate.c").read_text()
    assert "#define STEP 0.005 " in text
    source.write_text(text.replace("#define STEP 0.005 ", "#define STEP 0.002 "))
    subprocess.run(["cc", "-O2", "-o", "shorter", "shorter.c", "-lm"], cwd=tmp_path, check=True)
    shorter = fmnes.Command(["./shorter", "{x0}", "{x1}"], value={"regex": r"cost = +(\S+)"}, here=tmp_path)
    assert shorter([200, 300]) == pytest.approx(2.359, abs=0.002)


@needs_compiler
def test_it_runs_as_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples(["crashing_program", "--quick", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "start: flow 80, coolant 320, cost 3.873" in said
    run = fmnes.read_run(tmp_path / "crashing_program.run")
    assert len(run.evaluations) == QUICK and run.best.fun <= 3.873
    picture = (tmp_path / "crashing_program.svg").read_text()
    assert all(word in picture for word in ("crashes", "hangs", "prints nan", "prints ******"))


@needs_compiler
def test_the_python_of_the_page_runs_beside_the_program(problem: ProblemFile) -> None:
    block = PAGE.read_text(encoding="utf-8").partition("```py\n")[2].partition("```")[0]
    assert "fmnes.Command" in block
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=problem.command.here, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "died: SIGSEGV" in done.stdout


def test_without_a_compiler_the_line_that_installs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="apt-get install gcc"):
        main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
