"""The command line as a user meets it: real processes, their output and their exit codes."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def fmnes(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fmnes", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_demo_finds_the_true_rates_and_says_what_failed() -> None:
    done = fmnes("demo")
    assert done.returncode == 0, done.stderr
    assert "TARGET" in done.stdout
    assert "a species died out" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # no terminal, so no control codes


def test_demo_json_is_json_and_nothing_else() -> None:
    done = fmnes("demo", "--json", "--seed", "3")
    result = json.loads(done.stdout)
    assert result["success"] is True
    assert result["stop_reason"] == "TARGET"
    assert abs(result["parameters"]["predation"] - 0.1) < 1e-3
    assert sum(failure["count"] for failure in result["failures"]) == result["n_infeasible"] > 0


def test_an_unknown_method_is_named_with_the_nearest() -> None:
    done = fmnes("demo", "--method", "fmnes")
    assert done.returncode != 0
    assert "did you mean 'fm-nes'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_version() -> None:
    import fmnes as package

    assert fmnes("--version").stdout.strip() == package.__version__


def test_without_the_extra_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['typer'] = None; from fmnes.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert 'pip install "fmnes[cli]"' in done.stderr
    assert "Traceback" not in done.stderr


def problem(folder: Path, **changes: str) -> Path:
    """A small problem file whose program is the shell's own arithmetic."""
    text = (
        'command = ["{here}/simulate.sh", "{params}", "{a}", "{b}"]\n'
        "[parameters.a]\nstart = 2.0\nstep = 0.5\nlower = -4\nupper = 4\n"
        '[parameters.b]\nstart = 100.0\nstep = 3.0\nscale = "log"\n'
        "[run]\nmax_evaluations = 60\nseed = 1\npopulation_size = 6\n"
    )
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    simulator = folder / "simulate.sh"
    program = 'BEGIN { if (a < 0) print "FAIL negative"; else print (a - 1)^2 + (log(b) - 2)^2 }'
    simulator.write_text(f"#!/bin/sh\nawk -v a=$2 -v b=$3 '{program}'\n")
    simulator.chmod(0o755)
    path = folder / "problem.toml"
    path.write_text(text)
    return path


def test_init_writes_a_problem_that_runs(tmp_path: Path) -> None:
    done = fmnes("init", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    done = fmnes(
        "minimize", str(tmp_path / "new" / "problem.toml"), "--max-evaluations", "60", "--json", "--seed", "1"
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["nfev"] == 60
    assert result["parameters"].keys() == {"width", "height", "density"}
    assert 100 <= result["parameters"]["density"] <= 20000  # in the user's units, not the logarithm
    assert fmnes("init", str(tmp_path / "new")).returncode == 2  # nothing is overwritten


def test_minimize_show_and_resume(tmp_path: Path) -> None:
    path = problem(tmp_path)
    done = fmnes("minimize", str(path), "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert "MAX_EVALUATIONS" in done.stdout and "60 evaluations" in done.stdout
    shown = json.loads(fmnes("show", str(tmp_path / "problem.run"), "--json").stdout)
    assert shown["evaluations"] == 60
    assert shown["state"] == "MAX_EVALUATIONS"
    assert abs(shown["parameters"]["b"] - math.exp(2)) < 2
    plain = fmnes("show", str(tmp_path / "problem.run"))
    assert "MAX_EVALUATIONS" in plain.stdout and "60 evaluations" in plain.stdout

    again = fmnes("minimize", str(path))
    assert again.returncode == 2
    assert "resume" in again.stderr

    went_on = fmnes("resume", str(tmp_path / "problem.run"), "--max-evaluations", "90", "--json")
    whole = fmnes(
        "minimize", str(path), "--max-evaluations", "90", "--json", "--run-dir", str(tmp_path / "other")
    )
    assert json.loads(went_on.stdout) == json.loads(whole.stdout)


def test_the_same_by_flags(tmp_path: Path) -> None:
    path = problem(tmp_path)
    by_file = fmnes("minimize", str(path), "--json", "--run-dir", str(tmp_path / "one"))
    by_flags = fmnes(
        *("minimize", "--param", "a=2,0.5,-4,4", "--param", "b=100,3,log", "--max-evaluations", "60"),
        *("--seed", "1", "--population-size", "6", "--run-dir", str(tmp_path / "two"), "--json"),
        *("--", str(tmp_path / "simulate.sh"), "{params}", "{a}", "{b}"),
    )
    assert by_flags.returncode == 0, by_flags.stderr
    one, two = json.loads(by_file.stdout), json.loads(by_flags.stdout)
    assert one == two


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("max_evaluations", "max_evaluation", "line 12: found the key 'max_evaluation'"),
        ("max_evaluations", "max_evaluation", "did you mean 'max_evaluations'?"),
        ("lower", "lowest", "line 5"),
        ("start = 2.0\n", "", "found no start in [parameters.a]"),
        ("upper = 4\n", "upper = -5\n", "a: found start 2"),
        ("step = 3.0", "step = 0.5", "wanted a factor above 1"),
        ('scale = "log"', 'scale = "ln"', "wanted 'linear' or 'log'"),
        ("{a}", "{alpha}", "unknown placeholder {alpha}"),
        ("simulate.sh", "simulator.sh", "found no program"),
        ("command = [", "command [", "wanted TOML"),
    ],
)
def test_a_wrong_problem_file_is_named_before_anything_runs(
    tmp_path: Path, old: str, new: str, wanted: str
) -> None:
    path = problem(tmp_path, **{old: new})
    done = fmnes("minimize", str(path))
    assert done.returncode == 2
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "problem.run").exists()


def test_a_program_that_always_crashes_is_shown_as_a_bug(tmp_path: Path) -> None:
    path = problem(tmp_path)
    (tmp_path / "simulate.sh").write_text("#!/bin/sh\necho no licence file >&2\nexit 3\n")
    done = fmnes("minimize", str(path))
    assert done.returncode == 2
    assert "looks like a bug" in done.stderr and "no licence file" in done.stderr


def test_ctrl_c_keeps_the_run(tmp_path: Path) -> None:
    path = problem(tmp_path, **{"max_evaluations = 60": "max_evaluations = 100000"})
    process = subprocess.Popen(
        [sys.executable, "-m", "fmnes", "minimize", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "problem.run" / "evaluations.sqlite"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not log.exists():
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "INTERRUPTED" in output and "fmnes resume" in output
    assert json.loads(fmnes("show", str(tmp_path / "problem.run"), "--json").stdout)["evaluations"] > 0
    assert fmnes("show", str(tmp_path / "nothing")).returncode == 2
