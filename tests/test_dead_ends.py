"""No dead ends: whatever a user meets on the command line, it says what to do, and doing it works."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmnes import Infeasible, Optimizer, read_run
from fmnes import minimize as minimize_in_python
from fmnes.__main__ import _run
from fmnes._text import literal
from fmnes.cli import app
from fmnes.cli.reading import changes, read_run_config
from fmnes.storage.directory import RunDirectory, _read_json, _write_json
from fmnes.strategies import METHODS
from fmnes_bench import peers
from fmnes_bench.speed import Contestant, one_round, run

SIMULATOR = """#!/bin/sh
awk -v a=$1 -v b=$2 'BEGIN { if (a < 0) print "FAIL negative"; else print (a - 1)^2 + (log(b) - 2)^2 }'
"""


def fmnes(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """As `fmnes ARGUMENTS` in a shell, but in this process, which is much quicker."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["fmnes", *arguments])
        code = _run()
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def paste(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line of a hint, as a shell takes it."""
    program, *arguments = shlex.split(line)
    assert program == "fmnes"
    return fmnes(*arguments, cwd=cwd)


def hint(text: str, words: str) -> str:
    """The command after these words."""
    (found,) = re.findall(rf"{re.escape(words)}.*?:  (fmnes .*)", text)
    return str(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "simulate.sh").write_text(SIMULATOR)
    (tmp_path / "simulate.sh").chmod(0o755)
    (tmp_path / "problem.toml").write_text(
        'command = ["./simulate.sh", "{a}", "{b}"]\n'
        "[parameters.a]\nstart = 2.0\nsigma = 3.0\nlower = -4\nupper = 4\n"
        "[parameters.b]\nstart = 100.0\nsigma = 3.0\nlog = true\n"
        "[run]\nmax_evaluations = 20\nseed = 1\npopulation_size = 6\n"
    )
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def evaluations(run: Path) -> int:
    return int(json.loads(fmnes("show", str(run), "--json", cwd=run.parent).stdout)["evaluations"])


# -- a run is there already -------------------------------------------------------------------------------


def test_each_way_out_of_a_taken_directory_works(folder: Path) -> None:
    assert fmnes("minimize", "problem.toml", cwd=folder).returncode == 0
    refused = fmnes("minimize", "problem.toml", "--seed", "2", cwd=folder)
    assert refused.returncode == 2 and "found a run, wanted a new or empty directory" in refused.stderr
    for words in (
        "to keep both",
        "to start over (it becomes problem.run.1)",
        "to go on with it",
    ):
        done = paste(hint(refused.stderr, words), folder)
        assert done.returncode == 0, done.stderr
    runs = {path.name: path for path in folder.glob("*.run*")}
    assert runs.keys() == {"problem.run", "problem.run.1", "problem-2.run"}
    seeds = {name: _read_json(run / "result.json")["seed"] for name, run in runs.items()}
    assert seeds == {"problem.run": 2, "problem.run.1": 1, "problem-2.run": 2}


def test_a_changed_problem_file_after_a_failed_first_try(folder: Path) -> None:
    edit(folder / "problem.toml", '"./simulate.sh"', '"/bin/false"')
    broken = fmnes("minimize", "problem.toml", cwd=folder)
    assert broken.returncode == 2 and "looks like a bug" in broken.stderr
    assert hint(broken.stderr, "to see one evaluation by itself") == "fmnes try problem.toml"
    assert hint(broken.stderr, "when the program is repaired") == "fmnes resume problem.run"
    edit(folder / "problem.toml", '"/bin/false"', '"./simulate.sh"')
    edit(folder / "problem.toml", "upper = 4", "upper = 5")
    refused = fmnes("minimize", "problem.toml", cwd=folder)
    assert "command is ['./simulate.sh', '{a}', '{b}'], was ['/bin/false', '{a}', '{b}']" in refused.stderr
    assert re.search(r"a\.upper is 5(\.0)?, was 4(\.0)?\b", refused.stderr)
    done = paste(hint(broken.stderr, "when the problem file is"), folder)
    assert done.returncode == 0 and "the earlier run is now problem.run.1\n" in done.stderr
    assert evaluations(folder / "problem.run") == 20


def test_a_mended_program_goes_on(folder: Path) -> None:
    (folder / "simulate.sh").write_text("#!/bin/sh\necho no licence file >&2\nexit 3\n")
    broken = fmnes("minimize", "problem.toml", cwd=folder)
    shown = fmnes("show", "problem.run", "--failures", cwd=folder)
    assert "0 evaluations, 0 of them failed\n7 more are made again" in shown.stdout
    assert "7 × exited with code 3\n" in shown.stdout and "    no licence file\n" in shown.stdout
    (folder / "simulate.sh").write_text(SIMULATOR)
    done = paste(hint(broken.stderr, "when the program is repaired"), folder)
    assert done.returncode == 0, done.stderr
    assert evaluations(folder / "problem.run") == 20


def test_a_program_that_breaks_midway_pauses_and_goes_on(folder: Path) -> None:
    assert fmnes("minimize", "problem.toml", cwd=folder).returncode == 0
    (folder / "simulate.sh").write_text("#!/bin/sh\necho no licence file >&2\nexit 3\n")
    broken = fmnes("resume", "problem.run", "--max-evaluations", "100", cwd=folder)
    assert broken.returncode == 2 and "each of the last 6 failed" in broken.stderr
    assert "no licence file" in broken.stderr
    assert evaluations(folder / "problem.run") == 20
    (folder / "simulate.sh").write_text(SIMULATOR)
    done = paste(hint(broken.stderr, "when the program is repaired"), folder)
    assert done.returncode == 0, done.stderr
    assert evaluations(folder / "problem.run") == 100


def test_a_missing_library_stops_the_run_as_lost(folder: Path) -> None:
    assert fmnes("minimize", "problem.toml", cwd=folder).returncode == 0
    (folder / "simulate.sh").write_text("#!/bin/sh\necho libfoo.so: not found >&2\nexit 127\n")
    broken = fmnes("resume", "problem.run", "--max-evaluations", "40", "--retries", "0", cwd=folder)
    assert broken.returncode == 1 and "LOST" in broken.stdout and "exited with code 127" in broken.stdout
    assert "libfoo.so: not found" in paste(hint(broken.stdout, "what was lost"), folder).stdout
    (folder / "simulate.sh").write_text(SIMULATOR)
    assert paste(hint(broken.stdout, "when the machine works again"), folder).returncode == 0
    assert evaluations(folder / "problem.run") == 40


FORGETTING = ["--forget-failures", "--forget-failures=no mesh", "--forget-failures=2000-01-01"]


@pytest.mark.parametrize("option", FORGETTING)
def test_failures_are_taken_back_where_the_run_was_a_dead_end(folder: Path, option: str) -> None:
    fmnes("minimize", "problem.toml", "--run-dir", "whole.run", "--max-evaluations", "50", cwd=folder)
    (folder / "simulate.sh").write_text("#!/bin/sh\necho FAIL no mesh\n")
    dead = fmnes("minimize", "problem.toml", "--max-evaluations", "10000", cwd=folder)
    assert dead.returncode == 1 and "NO_FEASIBLE" in dead.stdout
    assert hint(dead.stdout, "when the cause is repaired") == "fmnes resume problem.run --forget-failures"
    (folder / "simulate.sh").write_text(SIMULATOR)
    with pytest.warns(RuntimeWarning, match="fmnes resume RUN --forget-failures"):
        again = fmnes("resume", "problem.run", "--max-evaluations", "20000", cwd=folder)
    assert again.returncode == 1
    for arguments in (["problem.run", option], [option, "problem.run"]):
        done = fmnes("resume", *arguments, "--max-evaluations", "50", cwd=folder)
        assert done.returncode == 0, done.stderr
    wanted = read_run(folder / "whole.run")
    found = read_run(folder / "problem.run")
    assert (found.answered, found.failed, found.best.fun) == (50, wanted.failed, wanted.best.fun)
    wrong = fmnes("resume", "problem.run", "--forget-failures=no such", cwd=folder)
    assert wrong.returncode == 2 and "the reasons of this run are: " in wrong.stderr


def test_archive_existing_checks_the_arguments_before_anything_is_moved(folder: Path) -> None:
    fmnes("minimize", "problem.toml", cwd=folder)
    for wrong in (["--population-size", "1"], ["--method", "fmnes"], ["--retries", "-1"]):
        assert fmnes("minimize", "--archive-existing", "problem.toml", *wrong, cwd=folder).returncode == 2
    assert [path.name for path in folder.glob("*.run*")] == ["problem.run"]
    old = fmnes("minimize", "problem.toml", "--again", cwd=folder)
    assert old.returncode == 2 and old.stderr == "fmnes: --again: this option is now --archive-existing\n"
    theirs = fmnes("minimize", "--param", "a=0..1", "--", "no such program", "--again", cwd=folder)
    assert "archive" not in theirs.stderr


def test_archive_existing_starts_where_nothing_is_and_refuses_what_is_not_ours(folder: Path) -> None:
    assert fmnes("minimize", "--archive-existing", "problem.toml", cwd=folder).returncode == 0
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.tex").write_text("mine")
    refused = fmnes("minimize", "--archive-existing", "problem.toml", "--run-dir", "mine", cwd=folder)
    assert refused.returncode == 2 and "thesis.tex" in refused.stderr
    assert [path.name for path in (folder / "mine").iterdir()] == ["thesis.tex"]
    assert not (folder / "mine.1").exists()


def test_a_run_goes_on_as_it_began_and_says_so(folder: Path) -> None:
    fmnes("minimize", "problem.toml", cwd=folder)
    quiet = fmnes("resume", "problem.run", "--max-evaluations", "25", cwd=folder)
    assert quiet.returncode == 0 and "has changed" not in quiet.stderr
    edit(folder / "problem.toml", "upper = 4", "upper = 5")
    done = fmnes("resume", "problem.run", "--max-evaluations", "30", "--json", cwd=folder)
    assert json.loads(done.stdout)["nfev"] == 30
    assert "problem.toml has changed (a.upper is 5" in done.stderr
    assert "to start over:  fmnes minimize --archive-existing problem.toml\n" in done.stderr


def test_a_budget_that_is_already_used_is_refused(folder: Path) -> None:
    fmnes("minimize", "problem.toml", cwd=folder)
    refused = fmnes("resume", "problem.run", "--max-evaluations", "10", cwd=folder)
    assert refused.returncode == 2 and refused.stdout == ""
    assert "found 10, but problem.run has used 20 evaluations already; wanted more than 20" in refused.stderr
    assert fmnes("resume", "problem.run", "--max-evaluations", "25", cwd=folder).returncode == 0


def test_reproduce_refuses_before_it_draws_its_bar(tmp_path: Path) -> None:
    refused = fmnes("reproduce", "nope", cwd=tmp_path)
    assert refused.returncode == 2 and refused.stderr.startswith("fmnes: what: found 'nope'")
    assert not list(tmp_path.iterdir())


def test_changes_are_told_as_far_as_they_are_known() -> None:
    was: dict[str, Any] = {"objective": {"argv": ["a"], "keep": "all", "old": 1}, "parameters": None}
    now: dict[str, Any] = {"objective": {"argv": ("a",), "keep": "failed", "new": 1}, "parameters": []}
    assert changes(was, now) == ["keep is 'failed', was 'all'"]
    was["objective"]["problem_file"], now["objective"]["problem_file"] = "/a", "/b"
    assert len(changes(was, now)) == 1
    was["parameters"] = [{"name": "a", "lower": 1}, {"name": "b", "log": True}]
    now["parameters"] = [{"name": "a", "lower": 1, "upper": 2}, {"name": "c"}]
    assert changes(was, now)[1:] == ["c is new", "b is gone", "a.upper is 2, was not set"]
    many = {"parameters": [{"name": "a", **{str(i): i for i in range(9)}}]}
    assert changes(many, {"parameters": [{"name": "a"}]})[-1] == "and 4 more"
    for odd in ({}, {"objective": 5, "parameters": 5}, {"parameters": [5, {"nam": 1}]}):
        assert changes(odd, now) == []


def test_the_problem_file_of_a_run_is_beside_it_or_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("p.run")
    minimize_in_python(lambda x: float(x @ x), [1.0, 2.0], 0.5, rng=1, max_evaluations=5, run_dir=run)
    assert read_run_config(run).problem is None
    for place, remembered in (("sub/q.toml", "sub/q.toml"), ("p.toml", "p.toml")):
        Path(place).parent.mkdir(exist_ok=True)
        Path(place).write_text("")
        config = _read_json(run / "config.json")
        config["objective"]["problem_file"] = str(tmp_path / "sub" / "q.toml")
        _write_json(run / "config.json", config)
        assert read_run_config(run).problem == Path(remembered)


# -- after a run ------------------------------------------------------------------------------------------


def test_after_ctrl_c_resume_alone_goes_on(folder: Path) -> None:
    edit(folder / "problem.toml", "max_evaluations = 20", "max_evaluations = 100000")
    process = subprocess.Popen(
        [sys.executable, "-m", "fmnes", "minimize", "problem.toml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and not list(folder.glob("problem.run/snapshot.previous.npz")):
        time.sleep(0.05)
    used = fmnes("minimize", "--archive-existing", "problem.toml", cwd=folder)
    assert used.returncode == 2 and f"in use by process {process.pid}" in used.stderr
    used = fmnes("minimize", "problem.toml", cwd=folder)
    assert f"found a run in use by process {process.pid}" in used.stderr
    assert hint(used.stderr, "to look at it") == "fmnes show problem.run"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert hint(output, "to go on") == "fmnes resume problem.run" and "--max-evaluations" not in output
    assert hint(fmnes("show", "problem.run", cwd=folder).stdout, "to go on") == "fmnes resume problem.run"


def test_a_run_that_was_ended_before_its_first_snapshot_begins_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "write_snapshot", interrupted)
        done = fmnes("minimize", "problem.toml", cwd=folder)
    assert done.returncode == 130
    assert paste(hint(done.stdout, "to begin it again"), folder).returncode == 0
    assert evaluations(folder / "problem.run") == 20


def test_after_the_budget_the_hint_doubles_it_and_after_a_success_there_is_none(folder: Path) -> None:
    done = fmnes("minimize", "problem.toml", cwd=folder)
    line = hint(done.stdout, "to go on")
    assert line == "fmnes resume problem.run --max-evaluations 40"
    assert paste(line, folder).returncode == 0
    assert evaluations(folder / "problem.run") == 40
    done = fmnes("resume", "problem.run", "--target", "1", "--max-evaluations", "500", cwd=folder)
    assert "TARGET" in done.stdout and "to go on" not in done.stdout
    assert hint(done.stdout, "to see it again") == "fmnes show problem.run"
    assert "to go on" not in fmnes("show", "problem.run", cwd=folder).stdout


def test_a_run_in_which_nothing_succeeds_says_where_to_look(folder: Path) -> None:
    (folder / "simulate.sh").write_text("#!/bin/sh\necho FAIL no mesh\n")
    done = fmnes("minimize", "problem.toml", cwd=folder)
    assert hint(done.stdout, "what failed") == "fmnes show problem.run --failures"
    assert hint(done.stdout, "to see one evaluation by itself") == "fmnes try problem.toml"


def test_a_lost_run_goes_on_when_the_machine_is_well(folder: Path) -> None:
    (folder / "simulate.sh").write_text("#!/bin/sh\necho no licence >&2\nexit 75\n")
    done = fmnes("minimize", "problem.toml", "--retries", "0", cwd=folder)
    assert done.returncode == 1 and "LOST" in done.stdout
    shown = paste(hint(done.stdout, "what was lost"), folder).stdout
    assert "lost: exited with code 75\n" in shown and "    no licence\n" in shown
    (folder / "simulate.sh").write_text(SIMULATOR)
    assert paste(hint(done.stdout, "when the machine works again"), folder).returncode == 0


# -- show ---------------------------------------------------------------------------------------------------


def test_failures_are_shown_with_point_output_and_directory(folder: Path) -> None:
    (folder / "simulate.sh").write_text(
        "#!/bin/sh\n"
        "echo 'meshing [red] part' >&2; echo $1 $2 > input.txt\n"
        "awk -v a=$1 'BEGIN { exit !(a < 2) }' && { echo 'FAIL negative'; exit; }\necho 1\n"
    )
    fmnes("minimize", "problem.toml", cwd=folder)
    shown = fmnes("show", "problem.run", "--failures", cwd=folder)
    plain = re.sub(r"\n +", "\n", shown.stdout)
    found = re.search(
        r"^(\d+) × negative\nfirst: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, generation 0\nat: a = (\S+), b = (\S+)\n"
        r"output:\nmeshing \[red\] part\n(?:FAIL negative\n)?directory: (\S+)$",
        plain,
        re.MULTILINE,
    )
    assert found, shown.stdout
    report = json.loads(fmnes("show", "problem.run", "--json", cwd=folder).stdout)
    (failure,) = report["failures"]
    assert (failure["reason"], failure["count"]) == ("negative", int(found[1])) and failure["count"] > 1
    assert report["failed"] == failure["count"] == report["statuses"]["infeasible"]
    a, b = (float(word) for word in (folder / found[4] / "input.txt").read_text().split())
    assert (failure["parameters"]["a"], failure["parameters"]["b"]) == (a, b)  # in the program's own units
    assert math.isclose(float(found[2]), a, rel_tol=1e-7) and math.isclose(float(found[3]), b, rel_tol=1e-7)
    assert failure["kept"] == found[4] and "meshing" in failure["detail"]
    (folder / "problem.run").rename(folder / "moved")
    moved = json.loads(fmnes("show", "moved", "--json", cwd=folder).stdout)["failures"][0]
    assert moved["kept"] == f"moved/kept/{Path(found[4]).name}" and (folder / moved["kept"]).is_dir()
    (folder / moved["kept"] / "input.txt").unlink()
    for path in sorted((folder / moved["kept"]).iterdir()):
        path.unlink()
    (folder / moved["kept"]).rmdir()
    assert json.loads(fmnes("show", "moved", "--json", cwd=folder).stdout)["failures"][0]["kept"] is None


def test_results_in_json_have_names_and_units_for_failures_too(folder: Path) -> None:
    result = json.loads(fmnes("minimize", "problem.toml", "--json", cwd=folder).stdout)
    (failure,) = result["failures"]
    assert failure["parameters"].keys() == result["parameters"].keys() == {"a", "b"}
    assert failure["parameters"]["a"] < 0 < failure["parameters"]["b"]


def test_what_a_program_printed_commands_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "\x1b]0;owned\x07 [/b] :bomb:"

    def fails(x: object) -> float:
        error = Infeasible(words)
        error.add_note(f"{words}\nkept: /etc\x1b[2J\0")
        raise error

    run = tmp_path / "run"
    minimize_in_python(fails, [1.0, 2.0], 0.5, rng=1, max_evaluations=5, run_dir=run)
    app(["show", str(run), "--failures"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert literal(words) in shown and "\x1b" not in shown


# -- paths that are not what was meant ---------------------------------------------------------------------


def test_a_wrong_path_says_which_was_meant(folder: Path) -> None:
    fmnes("minimize", "problem.toml", cwd=folder)
    (folder / "empty").mkdir()
    for arguments, wanted in {
        ("show", "problem.toml"): "found a file, wanted a run directory; did you mean 'problem.run'?",
        ("resume", "problm.run"): "found nothing there, wanted a run directory; did you mean 'problem.run'?",
        ("show", "."): "wanted a run directory; did you mean 'problem.run'?",
        ("export", "."): "wanted a run directory; did you mean 'problem.run'?",
        ("check", "problm.toml"): "wanted a problem file; did you mean 'problem.toml'?",
        ("try", "."): "found a folder, wanted a problem file; did you mean 'problem.toml'?",
        ("resume", "empty"): "found no config.json in it, wanted a run directory",
        (
            "minimize",
            "problm.toml",
        ): "wanted a problem file; did you mean 'problem.toml'?",
        ("minimize", "problem.run"): "to go on with it:  fmnes resume problem.run",
        ("minimize", "."): "did you mean:  fmnes minimize problem.toml",
        ("minimize", "empty/x.toml"): "to write one:  fmnes init",
    }.items():
        done = fmnes(*arguments, cwd=folder)
        assert done.returncode == 2 and wanted in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_what_is_left_out_or_too_much_is_named(folder: Path) -> None:
    for arguments, wanted in {
        ("problem.toml", "more"): "more: found after a problem file, wanted nothing more",
        ("--", "./simulate.sh", "{a}"): "param: found none, wanted one for each parameter, such as --param",
        ("problem.toml", "--max-evaluations", "1.5"): "found '1.5', wanted a whole number",
        ("problem.toml", "--max-evaluations", "many"): "found 'many', wanted a whole number",
    }.items():
        done = fmnes("minimize", *arguments, cwd=folder)
        assert done.returncode == 2 and wanted in " ".join(done.stderr.replace("│", "").split()), done.stderr
    assert not list(folder.glob("*.run"))
    done = fmnes("minimize", "problem.toml", "--max-evaluations", "1.2e1", "--json", cwd=folder)
    assert json.loads(done.stdout)["nfev"] == 12


@pytest.mark.parametrize("command", [["demo"], ["minimize", "problem.toml"]])
def test_a_wrong_method_is_answered_with_all_of_them(folder: Path, command: list[str]) -> None:
    done = fmnes(*command, "--method", "fmnes", cwd=folder)
    assert done.returncode == 2 and not done.stdout
    assert f"wanted one of {', '.join(METHODS)}; did you mean 'fm-nes'?" in done.stderr
    edit(folder / "problem.toml", "[run]\n", '[run]\nmethod = "cmaes"\n')
    done = fmnes("minimize", "problem.toml", cwd=folder)
    assert done.returncode == 2 and f"{', '.join(METHODS)}; did you mean 'cma-es'?" in done.stderr.replace(
        "'", ""
    ).replace("cma-es?", "'cma-es'?")
    assert not list(folder.glob("*.run"))


# -- completion ---------------------------------------------------------------------------------------------


def in_bash(script: str, cwd: Path) -> str:
    """What a real bash prints that has the completion script of `fmnes`."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",  # so that the shell can be named
    }
    words = ["bash", "-c", f'eval "$(fmnes --show-completion bash)"\n{script}']
    done = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


def test_a_real_bash_completes_commands_options_methods_and_paths(tmp_path: Path) -> None:
    complete = """
    offer() {
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        _fmnes_completion fmnes "${COMP_WORDS[COMP_CWORD]}" ""; echo "${COMPREPLY[*]}"
    }
    complete -p fmnes
    offer fmnes ""; offer fmnes minimize --max-e
    offer fmnes demo --method ""; offer fmnes minimize --method c
    offer fmnes init --template p
    offer fmnes show pro
    """
    how, commands, option, all_methods, some, templates, path = in_bash(complete, tmp_path).splitlines()
    assert {"minimize", "resume", "show", "demo", "bench"} <= set(commands.split())
    assert option == "--max-evaluations"
    assert sorted(all_methods.split()) == sorted(METHODS)
    assert some.split() == [method for method in METHODS if method.startswith("c")]
    assert templates.split() == ["program", "python"]
    assert path == "" and " -o default " in how  # where we have nothing to offer, bash offers files


# -- what is not there --------------------------------------------------------------------------------------


def test_bench_leaves_out_the_columns_of_peers_that_are_not_there(tmp_path: Path) -> None:
    hide = "import sys\nsys.modules.update(dict.fromkeys(['cma', 'cmaes', 'fcmaes', 'crfmnes']))\n"
    script = f"{hide}from fmnes_bench.speed import main\nmain(['2', '20', '0.01', {str(tmp_path)!r}])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("Not installed")] == [
        'Not installed, so left out: cma, cmaes, fcmaes, crfmnes; pip install "fmnes[bench]" brings them.'
    ]
    assert "| d | λ | failing | afm-nes µs | fm-nes µs | floor µs |" in lines
    assert "| d | λ | cr-fm-nes µs |" in lines
    tables = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 2 and "nan" not in done.stdout
    row = json.loads((tmp_path / "speed.json").read_text())["full_matrix"][0]
    assert row.keys() == {"d", "lambda", "failing", "afm-nes", "fm-nes", "floor"}


def test_bench_beside_the_peers_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cmaes")
    run((2,), (), 0.01)
    head = capsys.readouterr().out.splitlines()
    assert any("| cmaes µs |" in line and "| afm-nes / best Python |" in line for line in head)


def test_bench_counts_the_evaluations_of_a_population_that_grows() -> None:
    opt = Optimizer([3.0] * 5, 1.0, population_size=8, rng=1)
    timed = Contestant(opt.ask, lambda x, f: opt.tell(f))
    seconds, evaluations = one_round(timed, 5, 0.6, 60, np.random.default_rng(0))
    assert seconds > 0 and evaluations == opt.evaluations > 60 * 8


def test_bench_search_without_peers_runs_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    arguments = [
        "bench",
        "search",
        "--problems",
        "sphere",
        "--dimensions",
        "2",
        "--seeds",
        "1",
        "--workers",
        "1",
    ]
    done = fmnes(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 'not installed, so left out: cma; pip install "fmnes[bench]" brings them\n' in done.stderr
    assert "| afm-nes | fm-nes | cma-es |" in (tmp_path / "search" / "search.md").read_text()
    done = fmnes(*arguments, "--methods", "fm-nes,cma", cwd=tmp_path)
    assert done.returncode == 2 and "the peer 'cma'" in done.stderr  # who asks for one wants it


def test_bench_with_wrong_dimensions_is_said_in_words(tmp_path: Path) -> None:
    for wrong in ("2,x", "0", "1.5"):
        done = fmnes("bench", "--full", wrong, cwd=tmp_path)
        assert done.returncode == 2 and "full: found" in done.stderr


@pytest.mark.parametrize("goal", ["run", "test"])
def test_make_with_an_older_python_says_so_and_stops(tmp_path: Path, goal: str) -> None:
    root = Path(__file__).parent.parent
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    older = tmp_path / "bin" / "python3"
    older.parent.mkdir()
    # A Python that calls itself 3.10.
    code = "import sys; sys.version_info = (3, 10, 4); del sys.argv[0]; exec(sys.argv[1])"
    older.write_text(f'#!/bin/sh\ntest "$1" = -c && exec "{sys.executable}" -c "{code}" "$@"\nexit 9\n')
    older.chmod(0o755)
    environment = {**os.environ, "PATH": f"{older.parent}:{os.environ['PATH']}"}
    environment.pop("MAKEFLAGS", None)
    done = subprocess.run(
        ["make", goal],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    wanted = "found Python 3.10 as python3, wanted 3.11 or later; if there is one:  make PYTHON=python3.12"
    assert done.stderr.splitlines()[0] == f"fmnes: {wanted} {goal}"
    assert done.returncode == 2 and not (tmp_path / ".venv").exists()


def test_show_and_read_run_name_the_same_best_point_also_one_known_before(tmp_path: Path) -> None:
    result = minimize_in_python(
        lambda x: float(x @ x) + 1, [1.0, 1.0], 0.3, rng=1, max_evaluations=20,
        known=[([0.5, 0.5], -3.0)], run_dir=tmp_path / "run",
    )  # fmt: skip
    shown = json.loads(fmnes("show", "run", "--json", cwd=tmp_path).stdout)
    best = read_run(tmp_path / "run").best
    assert shown["fun"] == best.fun == result.fun == -3.0
    assert list(shown["parameters"].values()) == best.x.tolist() == [0.5, 0.5]
