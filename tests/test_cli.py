"""The command line as a user meets it: real processes, their output and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys


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
