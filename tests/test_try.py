"""`fmnes try`: one evaluation of a problem file, with all that can be seen of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fmnes import ArgumentError
from fmnes.cli import app

PROGRAM = """\
echo "n=$2 in $PWD" >&2
echo "$1" > made.txt
mkdir deep && echo 12345 > deep/er.txt
echo "colour is $COLOUR"
{end}
"""


def problem(folder: Path, end: str = "echo 2.5", more: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "simulate.sh").write_text(PROGRAM.replace("{end}", end))
    path = folder / "problem.toml"
    path.write_text(
        f"""
command = ["/bin/sh", "{{here}}/simulate.sh", "{{width}}", "{{layers}}"]
[parameters.width]
lower = 0.1
upper = 10
log = true
[parameters.layers]
lower = 1
upper = 12
integer = true
[parameters.pitch]
lower = 0
upper = 5
multiple_of = 0.25
[program]
environment = {{ COLOUR = "red" }}
{more}
""".replace('"{layers}"', '"{layers}", "{pitch}"')
    )
    return path


def try_(*arguments: Any) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "fmnes", "try", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=environment)


def test_the_start_is_evaluated_and_all_of_it_is_shown(tmp_path: Path) -> None:
    path = problem(tmp_path)
    done = try_(path)
    assert done.returncode == 0, done.stderr
    kept = tmp_path / "problem.try" / "1"
    ran = shlex.join(["/bin/sh", str(tmp_path / "simulate.sh"), "1.0", "6", "2.5"])
    assert f"ran {ran}\n" in done.stdout and f"in {kept}\n" in done.stdout
    assert "COLOUR=red" in done.stdout
    assert "made.txt (4 bytes)" in done.stdout and "deep/er.txt (6 bytes)" in done.stdout
    assert "stdout:\n  colour is red\n  2.5\n" in done.stdout
    assert f"stderr:\n  n=6 in {kept}\n" in done.stdout
    assert "value 2.5\n" in done.stdout and re.search(r"time \S+ s\n", done.stdout)
    assert (kept / "made.txt").read_text() == "1.0\n"


def test_the_line_that_is_shown_can_be_run_again(tmp_path: Path) -> None:
    done = try_(problem(tmp_path))
    line = re.search(r"^ran (.*)$", done.stdout, re.MULTILINE)
    assert line
    (tmp_path / "again").mkdir()
    again = subprocess.run(["/bin/sh", "-c", line[1]], cwd=tmp_path / "again", capture_output=True, text=True)
    assert again.stdout.splitlines()[-1] == "2.5"


def test_named_values_and_json(tmp_path: Path) -> None:
    path = problem(tmp_path)
    done = try_(path, "width=0.1", "pitch=0.75", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["status"] == "value" and found["value"] == 2.5
    assert found["parameters"] == {"width": 0.1, "layers": 6, "pitch": 0.75}
    assert found["argv"][2:] == ["0.1", "6", "0.75"] and found["environment"]["COLOUR"] == "red"
    assert found["files"]["made.txt"] == 4 and found["stdout"].endswith("2.5\n")
    assert "n=6" in found["stderr"] and found["seconds"] > 0 and found["outputs"] == {}
    assert Path(found["directory"]) == tmp_path / "problem.try" / "1"


def test_every_try_has_a_directory_of_its_own_and_touches_nothing_else(tmp_path: Path) -> None:
    path = problem(tmp_path)
    mine = tmp_path / "problem.try" / "1" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    for number in ("2", "3"):
        assert json.loads(try_(path, "--json").stdout)["directory"].endswith(f"problem.try/{number}")
    assert [p.name for p in mine.parent.iterdir()] == ["mine.txt"] and mine.read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["problem.toml", "problem.try", "simulate.sh"]


def test_it_runs_where_the_file_says(tmp_path: Path) -> None:
    path = problem(tmp_path / "here", more='directory = "../fast"\nkeep = "none"')
    found = json.loads(try_(path, "--json").stdout)
    assert Path(found["directory"]).resolve() == tmp_path / "fast" / "problem.try" / "1"
    assert (tmp_path / "fast" / "problem.try" / "1" / "made.txt").exists()  # whatever `keep` says


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        ("echo FAIL the mesh folded", "infeasible", "the mesh folded"),
        ("exit 3", "infeasible", "exited with code 3"),
        ("echo nothing", "infeasible", "printed no number"),
        ("kill -SEGV $$", "infeasible", "SIGSEGV"),
        ("exit 75", "lost", "75"),
        ("sleep 60", "infeasible", "timed out after 0.5 s"),
    ],
)
def test_what_gives_no_value_ends_with_1_and_its_reason(
    tmp_path: Path, end: str, status: str, reason: str
) -> None:
    path = problem(tmp_path, end, more="[run]\ntimeout = 0.5" if "sleep" in end else "")
    done = try_(path)
    assert done.returncode == 1, done.stderr
    said = "lost" if status == "lost" else "failed"
    assert re.search(rf"^{said}: .*{reason}", done.stdout, re.MULTILINE) and "made.txt" in done.stdout
    done = try_(path, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["status"] == status and reason in found["reason"]
    assert found["value"] is None


def test_a_failure_is_explained_as_far_as_we_can(tmp_path: Path) -> None:
    path = tmp_path / "problem.toml"
    path.write_text(
        'command = ["cat", "model.py"]\n[parameters.a]\nlower = 0\nupper = 1\n'
        "[program]\nvalue = { file = 'out.txt', regex = 'CD (.*)' }\n"
    )
    (tmp_path / "model.py").write_text("")
    done = try_(path)
    assert done.returncode == 1 and "\n  'model.py' is a file in" in done.stdout, done.stdout
    assert "kept:" not in done.stdout and done.stdout.count("No such file") == 1
    path.write_text(path.read_text().replace('"cat", "model.py"', '"sh", "-c", "echo CL 5 > out.txt"'))
    assert "\n  out.txt ends with:\n  CL 5\n" in try_(path).stdout


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("widht=1", "widht: found no parameter of this name.*did you mean 'width'?"),
        ("width=11", r"width: found 11\.0 outside of its bounds"),
        ("width=-1", r"width: found -1\.0 on a log scale"),
        ("layers=2.5", r"layers: found 2\.5, wanted one of its whole numbers, such as 2 or 3"),
        ("pitch=0.3", r"pitch: found 0\.3, wanted one of its multiples of 0\.25"),
        ("width=wide", "width: found 'wide', wanted a number"),
        ("width=nan", "width: found 'nan', wanted a number"),
        ("width", "values: found 'width', wanted such as width=1.5"),
        ("=1", "values: found '=1'"),
    ],
)
def test_a_wrong_value_is_named_and_nothing_is_run(tmp_path: Path, value: str, wanted: str) -> None:
    path = problem(tmp_path)
    with pytest.raises(ArgumentError, match=wanted):
        app(["try", str(path), value], standalone_mode=False)
    with pytest.raises(ArgumentError, match="width: found two values"):
        app(["try", str(path), "width=1", "width=2"], standalone_mode=False)
    assert not (tmp_path / "problem.try").exists()
    if value == "widht=1":
        assert try_(path, value).returncode == 2


def test_where_no_directory_can_be_made_it_says_so(tmp_path: Path) -> None:
    path = problem(tmp_path)
    (tmp_path / "problem.try").write_text("a file")
    done = try_(path)
    assert done.returncode == 2 and "problem.try: a directory cannot be made there" in done.stderr


def test_a_program_s_output_does_not_command_the_terminal(tmp_path: Path) -> None:
    path = problem(tmp_path, r"printf '\033[2J[red]x[/] :bomb:\n'; echo > $(printf 'a\033b'); echo 1")
    done = try_(path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and r"  \x1b[2J[red]x[/] :bomb:" in done.stdout
    assert r"a\x1bb (1 bytes)" in done.stdout


def test_long_output_is_cut_and_strange_files_are_not_read(tmp_path: Path) -> None:
    path = problem(tmp_path, "seq 30000; rm stderr.txt; mkfifo stderr.txt; ln -s /etc/passwd link; echo 1")
    found = json.loads(try_(path, "--json").stdout)
    assert found["value"] == 1 and len(found["stdout"]) <= 10_000 and found["stderr"] == ""
    shown = try_(path).stdout
    assert "stdout, its last 20 lines:\n  29982\n" in shown and "29981" not in shown
