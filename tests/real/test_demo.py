"""`fmnes demo` in real processes: what it says, what it leaves behind, and that it overwrites nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fmnes_bench import lens


def demo(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """before: what runs in the process before it."""
    script = f"import sys; sys.argv[0] = 'fmnes'\n{before}\nfrom fmnes.__main__ import main\nmain()"
    command = [sys.executable, "-c", script, "demo", "--max-evaluations", "60", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_it_says_what_was_found_and_what_failed_and_where_the_drawing_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = demo("--out", str(tmp_path / "new" / "folder"), "--seed", "2")
    assert done.returncode == 0, done.stderr
    assert "RMS spot 386 µm → " in done.stdout and "N-SK16" in done.stdout
    assert "60 evaluations, " in done.stdout and " × a ray misses surface" in done.stdout
    assert "failed" in done.stderr  # the progress
    assert "\x1b" not in done.stdout + done.stderr  # no terminal, so no control codes
    page = Path(done.stdout.splitlines()[-2].split("page:")[1].strip())
    assert page == tmp_path / "new" / "folder" / "lens.html"
    told = page.read_text(encoding="utf-8")
    assert "The lens before and after" in told and "before: RMS spot 385.7 µm" in told and "656 nm" in told
    assert told.index("The lens before and after") < told.index("The best point")

    kept = page.stat().st_mtime_ns, sorted(page.parent.iterdir())
    again = demo("--out", str(page.parent))
    assert again.returncode == 2 and "found lens.run in it, wanted a folder without one" in again.stderr
    assert kept == (page.stat().st_mtime_ns, sorted(page.parent.iterdir()))


@pytest.mark.parametrize("wrong", [("--max-evaluations", "0"), ("--seed", "-1")])
def test_a_wrong_number_is_told_before_anything_is_said_or_made(
    wrong: tuple[str, str], tmp_path: Path
) -> None:
    done = demo("--out", str(tmp_path / "new"), *wrong)
    assert done.returncode == 2 and f"found {wrong[1]}, wanted a whole number" in done.stderr
    assert not done.stdout and not list(tmp_path.iterdir())


def test_json_is_json_and_nothing_else(tmp_path: Path) -> None:
    done = demo("--json", before=f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}")
    result = json.loads(done.stdout)
    assert result["stop_reason"] == "MAX_EVALUATIONS" and result["nfev"] == 60
    assert lens.triplet().fun(result["parameters"]) == result["fun"]
    assert sum(failure["count"] for failure in result["failures"]) == result["n_infeasible"] > 0
    assert not list(tmp_path.iterdir())  # who asks for JSON has asked for no files


def test_without_matplotlib_it_says_how_to_get_the_drawing(tmp_path: Path) -> None:
    hide = f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}; sys.modules['matplotlib'] = None"
    done = demo(before=hide)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2].endswith('pip install "fmnes[plot]"')
    (folder,) = tmp_path.iterdir()  # a new one, whose name is told
    assert [path.name for path in folder.iterdir()] == ["lens.run"] and str(folder) in done.stdout


@pytest.mark.parametrize("on_the_path", [False, True])
def test_its_last_line_is_a_command_that_works_as_typed(tmp_path: Path, on_the_path: bool) -> None:
    """Also as `make run` starts it: by its path, in an environment that is not activated."""
    program = Path(sys.executable).with_name("fmnes")
    places = f"{program.parent}:/usr/bin:/bin" if on_the_path else "/usr/bin:/bin"
    if shutil.which("fmnes", path="/usr/bin:/bin"):
        pytest.skip("fmnes is installed for all users")
    environment = {**os.environ, "PATH": places, "TMPDIR": str(tmp_path)}
    command = [program, "demo", "--max-evaluations", "60"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True)
    typed = done.stdout.splitlines()[-1].partition(":  ")[2]
    assert typed.startswith("fmnes show " if on_the_path else f"{program} show ")
    shown = subprocess.run(
        ["sh", "-c", typed], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert shown.returncode == 0 and "60 evaluations" in shown.stdout, shown.stderr
