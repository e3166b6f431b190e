"""The command line as a user meets it: real processes, their output and their exit codes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmnes import ArgumentError, FmnesError, Infeasible, ObjectiveError, Optimizer, View
from fmnes import minimize as minimize_in_python
from fmnes._text import literal
from fmnes.cli import app
from fmnes.cli.problem import template_files
from fmnes.cli.problem_file import PROGRAM, RUN, TOP
from fmnes.evaluation.programs.command import MAX_BYTES
from fmnes.parameters import KEYS as PARAMETER
from fmnes.progress import Progress, QuietStream, Rate, describe, speed, spelt_out
from fmnes.storage.directory import _read_json, _write_json
from fmnes.strategies import METHODS


def fmnes(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fmnes", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )


def test_an_unknown_method_is_named_with_the_nearest() -> None:
    done = fmnes("demo", "--method", "fmnes")
    assert done.returncode != 0
    assert "did you mean 'fm-nes'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_version() -> None:
    import fmnes as package

    assert fmnes("--version").stdout.strip() == package.__version__


@pytest.mark.parametrize("missing", ["typer", "rich"])
@pytest.mark.parametrize("words", [[], ["--help"], ["demo"], ["minimize", "problem.toml"], ["--version"]])
def test_without_the_extra_it_says_what_to_install(missing: str, words: list[str]) -> None:
    import fmnes as package

    script = f"import sys; sys.modules[{missing!r}] = None; from fmnes.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=300, check=False
    )
    if words == ["--version"]:
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, package.__version__, "")
        return
    assert done.returncode == 1 and done.stdout == ""
    install = 'pip install "fmnes[cli]"'
    assert done.stderr == f"fmnes: the command line needs an optional dependency: {install}\n"


def problem(folder: Path, **changes: str) -> Path:
    """A small problem file whose program is the shell's own arithmetic."""
    text = (
        'command = ["{here}/simulate.sh", "{params}", "{a}", "{b}"]\n'
        "[parameters.a]\nstart = 2.0\nsigma = 0.5\nlower = -4\nupper = 4\n"
        "[parameters.b]\nstart = 100.0\nsigma = 3.0\nlog = true\n"
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
        ("start = 2.0\n", "lower = 1\n", "line 5: found a key for the second time"),
        ("upper = 4\n", "upper = -5\n", "a: found lower = -4.0 and upper = -5.0 (crossed)"),
        ("sigma = 3.0", "sigma = 0.5", "wanted a factor above 1"),
        ("log = true", 'scale = "log"', "line 10: b: found the key 'scale'"),
        ("{a}", "{alpha}", "unknown placeholder {alpha}"),
        ("simulate.sh", "simulator.sh", "found no program"),
        ("command = [", "command [", "wanted TOML"),
    ],
)
def test_a_wrong_problem_file_is_named_before_anything_runs(
    tmp_path: Path, old: str, new: str, wanted: str
) -> None:
    path = problem(tmp_path, **{old: new})
    with pytest.raises(ArgumentError) as caught:
        app(["minimize", str(path)], standalone_mode=False)
    assert wanted in str(caught.value)
    assert not (tmp_path / "problem.run").exists()


def test_a_wrong_problem_file_on_the_command_line(tmp_path: Path) -> None:
    done = fmnes("minimize", str(problem(tmp_path, lower="lowest")))
    assert done.returncode == 2
    assert done.stderr.startswith("fmnes: ") and "line 5" in done.stderr and "Traceback" not in done.stderr


def test_a_program_that_always_crashes_is_shown_as_a_bug(tmp_path: Path) -> None:
    path = problem(tmp_path)
    (tmp_path / "simulate.sh").write_text("#!/bin/sh\necho no licence file >&2\nexit 3\n")
    done = fmnes("minimize", str(path))
    assert done.returncode == 2
    assert "looks like a bug" in done.stderr and "no licence file" in done.stderr


def logged(log: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as database:
            return bool(database.execute("SELECT count(*) FROM evaluations").fetchone()[0])
    except sqlite3.Error:  # not made yet
        return False


def test_ctrl_c_keeps_the_run(tmp_path: Path) -> None:
    path = problem(tmp_path, **{"max_evaluations = 60": "max_evaluations = 100000"})
    process = subprocess.Popen(
        [sys.executable, "-m", "fmnes", "minimize", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "problem.run" / "evaluations.sqlite"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and not logged(log):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "INTERRUPTED" in output and "fmnes resume" in output
    assert json.loads(fmnes("show", str(tmp_path / "problem.run"), "--json").stdout)["evaluations"] > 0
    assert fmnes("show", str(tmp_path / "nothing")).returncode == 2


# -- users' words -----------------------------------------------------------------------------------------

HOSTILE_WORDS = "[/mesh] [bold]x[/] :bomb: \x1b]0;owned\x07\x1b[2J\x9b31m \u202eright to left\r\nnext line"


def test_users_words_are_no_markup_and_no_commands(tmp_path: Path) -> None:
    path = tmp_path / "q.toml"
    names = ["width[mm]", "[/b]", ":bomb:", "\x1b[31mred", "[link=x]y"]
    tables = "".join(f"[parameters.{json.dumps(name)}]\nstart = 1.0\nsigma = 1.0\n" for name in names)
    program = r"echo 'FAIL cannot open [/opt/mesh/a.dat] [red]x[/] :bomb:'"
    path.write_text(
        f'command = ["/bin/sh", "-c", {json.dumps(program)}]\n{tables}[run]\nmax_evaluations = 9\n'
    )
    outputs = [fmnes("minimize", str(path)), fmnes("show", str(tmp_path / "q.run"))]
    path.write_text(
        path.read_text().replace("echo 'FAIL", "echo 1 'FAIL").replace(":bomb:'", ":bomb:'; echo 1")
    )
    outputs += [fmnes("minimize", str(path), "--run-dir", str(tmp_path / "r.run"))]
    outputs += [fmnes("resume", str(tmp_path / "r.run")), fmnes("show", str(tmp_path / "r.run"))]
    for done in outputs:
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr and "\x1b" not in done.stdout + done.stderr
    for failed in outputs[:2]:
        assert "9 × cannot open [/opt/mesh/a.dat] [red]x[/] :bomb:\n" in failed.stdout
    for done in outputs[2:]:
        for name in names:
            assert f"│ {literal(name)} " in done.stdout
    assert "\\x1b[31mred" in outputs[2].stdout


def test_a_run_from_elsewhere_does_not_command_the_terminal(tmp_path: Path) -> None:
    def fails(x: np.ndarray) -> float:
        raise Infeasible(HOSTILE_WORDS)

    fails.__qualname__ = HOSTILE_WORDS
    run = tmp_path / "run \x1b[31m"
    minimize_in_python(fails, [1.0, 2.0], 0.5, rng=1, max_evaluations=12, run_dir=run)
    shown = fmnes("show", str(run))
    assert shown.returncode == 0 and f"12 × {literal(HOSTILE_WORDS)}\n" in shown.stdout
    assert json.loads(fmnes("show", str(run), "--json").stdout)["failures"][0]["reason"] == HOSTILE_WORDS
    for refused in (fmnes("resume", str(run)), fmnes("show", str(run / "no"))):
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
        assert not {*"\x1b\x07\x9b\r\u202e"} & {*refused.stdout, *refused.stderr, *shown.stdout}
        assert "\\x1b[31m" in refused.stderr


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"objective": None}),
        ("config.json", {"objective": {"kind": "command"}}),
        ("config.json", {"objective": {"kind": "command", "argv": 5}}),
        ("config.json", {"objective": {"kind": "command", "argv": ["a"], "surprise": 1}}),
        ("config.json", {"objective": {"kind": "command", "argv": ["a"], "names": ["a", "b", "c"]}}),
        ("config.json", {"objective": {"kind": "command", "argv": ["a"], "names": 5}}),
        ("result.json", {"stop_reason": {"a": [1]}, "message": ["[/b]"]}),
        ("result.json", None),
    ],
)
def test_a_run_of_another_shape_is_refused_in_words_or_shown(
    tmp_path: Path, file: str, change: dict[str, Any] | None
) -> None:
    run = tmp_path / "run"
    minimize_in_python(lambda x: float(x @ x), [1.0, 2.0], 0.5, rng=1, max_evaluations=12, run_dir=run)
    _write_json(run / file, {} if change is None else {**_read_json(run / file), **change})
    for command in ("show", "resume"):
        with pytest.raises(FmnesError):
            app([command, str(run)], standalone_mode=False)
            assert command == "show"  # which shows what there is, and needs no program
            raise FmnesError


def test_literal_shows_what_a_terminal_would_obey() -> None:
    assert literal("a\x1b[2J\x00\x7f\x9b\u202e\ud800\n\t") == r"a\x1b[2J\x00\x7f\x9b\u202e\ud800\n\t"
    assert literal("a\nb\x1b", lines=True) == "a\nb\\x1b"
    assert literal("größe 直径 5\u202fmm\u00a0می\u200cخواهم 🦀") == "größe 直径 5 mm می\u200cخواهم 🦀"


# -- terminals and files that do not take what is written ----------------------------------------------------

WITH_PROGRESS = """
import sys
import fmnes
result = fmnes.minimize(lambda x: float(x @ x), [1.0, 1.0], 0.5, rng=1, max_evaluations=40, progress=True)
open(sys.argv[1], "w").write(str(result.nfev))
"""


@contextlib.contextmanager
def unwritable(kind: str) -> Any:
    """A descriptor that cannot be written; None: it is closed."""
    if kind == "closed":
        yield None
        return
    if kind == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    elif kind == "pipe":
        reader, descriptor = os.pipe()
        os.close(reader)
    else:
        reader, descriptor = pty.openpty()
        # Until the first thing is shown, so that it still looks like a terminal at the beginning.
        threading.Thread(target=lambda: (os.read(reader, 1), os.close(reader))).start()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def run_with(stream: str, kind: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python process one of whose streams cannot be written; the other one is caught."""
    number = {"stdout": 1, "stderr": 2}[stream]
    with unwritable(kind) as descriptor:
        close = f"exec {number}>&-; " if descriptor is None else ""
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: descriptor}
        return subprocess.run(
            ["/bin/sh", "-c", close + 'exec "$0" "$@"', sys.executable, *arguments],
            **streams,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.mark.parametrize("kind", ["closed", "full", "pipe", "terminal"])
def test_a_progress_line_that_cannot_be_written_does_not_end_a_run(tmp_path: Path, kind: str) -> None:
    slow = WITH_PROGRESS.replace("float(x @ x)", "time.sleep(0.01) or float(x @ x)").replace(
        "sys\n", "sys, time\n"
    )
    done = run_with("stderr", kind, "-c", slow, str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "40"
    assert done.returncode == 0


@pytest.mark.parametrize("kind", ["closed", "full", "pipe", "terminal"])
def test_a_display_that_cannot_be_written_does_not_end_a_run(tmp_path: Path, kind: str) -> None:
    path = problem(tmp_path, **{"= 60": "= 12"})
    done = run_with("stderr", kind, "-m", "fmnes", "minimize", str(path), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["nfev"] == 12


@pytest.mark.parametrize(("kind", "code"), [("closed", 0), ("full", 1), ("pipe", 0)])
def test_output_that_cannot_be_written_ends_quietly_after_the_run_was_saved(
    tmp_path: Path, kind: str, code: int
) -> None:
    path = problem(tmp_path, **{"= 60": "= 12"})
    done = run_with("stdout", kind, "-m", "fmnes", "minimize", str(path))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
    assert ("fmnes: the output could not be written" in done.stderr) == (kind == "full")
    assert _read_json(tmp_path / "problem.run" / "result.json")["nfev"] == 12
    done = run_with("stdout", kind, "-m", "fmnes", "show", str(tmp_path / "problem.run"))
    assert done.returncode == code and "Traceback" not in done.stderr


def test_a_stream_falls_silent_at_its_first_failure(tmp_path: Path) -> None:
    class Moody:
        encoding = "utf-8"
        written = ""

        def write(self, text: str) -> None:
            if text == "fail":
                raise RuntimeError("no")
            self.written += text

        def flush(self) -> None:
            pass

    moody = Moody()
    stream = QuietStream(moody)  # type: ignore[arg-type]
    for text in ("a", "fail", "b"):
        stream.write(text)
    assert moody.written == "a" and isinstance(stream.failure, RuntimeError) and not stream.isatty()
    with open(tmp_path / "closed", "w") as file:
        pass
    for dead in (file, None):
        progress = Progress(QuietStream(dead))
        progress.close(Optimizer([1.0], 1.0, rng=1).view())


def test_a_progress_line_fits_its_terminal() -> None:
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 30))
    with open(writer, "w") as stream:
        progress = Progress(stream)
        progress.close(Optimizer([1.0], 1.0, rng=1).view())
    shown = os.read(reader, 1000).decode()
    os.close(reader)
    assert shown.startswith("\revaluations 0  best none yet") and len(shown.rstrip("\r\n")) == 30


# -- displays ------------------------------------------------------------------------------------------------


def on_a_terminal(*arguments: str, columns: int = 100) -> str:
    """What a real terminal is sent while `fmnes` runs; the last thing shown is what stays."""
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (40, columns))
    shown = b""
    process = subprocess.Popen(
        [sys.executable, "-m", "fmnes", *arguments],
        stdin=writer,
        stdout=writer,
        stderr=writer,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(writer)
    with contextlib.suppress(OSError):  # what Linux says when the last writer has gone
        while part := os.read(reader, 10_000):
            shown += part
    os.close(reader)
    assert process.wait(240) == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def test_the_last_frame_agrees_with_the_last_line() -> None:
    demo = ("demo", "--seed", "3", "--max-evaluations", "400")
    shown = on_a_terminal(*demo)
    frames = re.findall(r"best value +(\S+)\s+evaluations +(\d+) .*\s+failed +(\d+) of (\d+)", shown)
    evaluations, failed = re.findall(r"(\d+) evaluations, (\d+) of them failed", shown)[-1]
    assert frames[-1][1:] == (evaluations, failed, evaluations)
    result = json.loads(fmnes(*demo, "--json").stdout)
    assert frames[-1][0] == f"{result['fun']:.6g}"


def test_the_last_progress_line_agrees_with_the_result(tmp_path: Path) -> None:
    done = fmnes("minimize", str(problem(tmp_path, **{"= 60": "= 57"})))
    failed = re.findall(r"^57 evaluations, (\d+) of them failed", done.stdout, re.MULTILINE)
    assert re.fullmatch(
        rf"evaluations 57  best \S+  sigma \S+  failed {failed[0]} of 57  \d+/s", done.stderr.splitlines()[-1]
    )


@pytest.mark.parametrize("bounds_as", ["map", "failure"])
def test_points_outside_the_bounds_are_counted_nowhere(bounds_as: Any) -> None:
    failed: list[bool] = []
    shares: list[float] = []

    def fails_at_the_right(x: np.ndarray) -> float:
        failed.append(bool(x[0] > 0.9))
        return math.nan if failed[-1] else float(x @ x)

    def check(view: View) -> None:
        assert (view.evaluations, view.n_infeasible) == (len(failed), sum(failed))
        assert f"failed {sum(failed)} of {len(failed)}" in describe(view, 1.0)
        shares.append(view.feasible_share)

    result = minimize_in_python(
        fails_at_the_right,
        [0.5, 0.5],
        0.8,
        bounds=(0.0, 1.0),
        bounds_as=bounds_as,
        rng=1,
        max_evaluations=200,
        xtol=1e-2,
        restarts=5,
        callback=check,
    )
    assert result.history["restart"].max() > 0
    assert result.n_infeasible == sum(failed) > 0
    if bounds_as == "failure":
        assert min(shares) < 1 - sum(failed) / len(failed)  # which counts them, and is not shown any more


def test_the_rate_after_a_resume_is_that_of_the_session(tmp_path: Path) -> None:
    script = (
        "import fmnes, sys, time\n"
        "def f(x):\n    time.sleep(float(sys.argv[1]))\n    return float(x @ x)\n"
        "if sys.argv[1] == '0':\n"
        "    fmnes.minimize(f, [1.0] * 3, 0.5, rng=1, max_evaluations=2000, xtol=None, run_dir='r')\n"
        "else:\n    fmnes.resume('r', f, max_evaluations=2040, progress=True)\n"
    )
    for seconds in ("0", "0.01"):
        words = [sys.executable, "-c", script, seconds]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    assert "evaluations 2040 " in done.stderr
    assert 1 <= int(re.findall(r"(\d+)/s$", done.stderr.strip())[-1]) <= 100


def test_a_slow_rate_is_told_by_the_minute_or_the_hour() -> None:
    told = [speed(rate) for rate in (0.0, 1e-5, 1 / 600, 0.05, 0.999, 1.0, 1234.4)]
    assert told == ["", "0.0/h", "6.0/h", "3.0/min", "59.9/min", "1/s", "1234/s"]


def test_a_rate_counts_what_the_session_made() -> None:
    rate = Rate(made_before=1000)
    time.sleep(0.1)
    assert rate(900) == rate(1000) == 0.0
    assert 0 < rate(1010) <= 100


@pytest.mark.parametrize("encoding", ["ascii:strict", "latin-1"])
def test_terminals_that_lack_characters(tmp_path: Path, encoding: str) -> None:
    path = problem(tmp_path, **{"[parameters.a]": '[parameters."σ直"]', "{a}": "{σ直}", "= 60": "= 6"})
    (tmp_path / "simulate.sh").write_text("#!/bin/sh\necho 'FAIL größe × 直径'\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    run = str(tmp_path / "problem.run")

    def output(*arguments: str) -> str:
        words = [sys.executable, "-m", "fmnes", *arguments]
        done = subprocess.run(words, capture_output=True, timeout=300, check=False, env=environment)
        assert b"Traceback" not in done.stderr, done.stderr
        return (done.stdout + done.stderr).decode(encoding.partition(":")[0])

    failed = {"ascii:strict": r"6 x gr\xf6\xdfe x \u76f4\u5f84", "latin-1": r"6 x größe x \u76f4\u5f84"}[
        encoding
    ]
    assert failed in output("minimize", str(path))
    assert failed in output("show", run)
    shown = json.loads(output("show", run, "--json"))
    assert [(one["reason"], one["count"]) for one in shown["failures"]] == [("größe × 直径", 6)]
    assert r"\u76f4\u5f84" in output("show", "größe-直径")


def test_what_an_encoding_lacks_is_spelt_out() -> None:
    assert spelt_out("12 × σ ≤ 3 直 …", "ascii") == r"12 x sigma <= 3 \u76f4 ..."
    assert spelt_out("12 × größe", "latin-1") == "12 × größe"
    assert spelt_out("12 × σ", "utf-8") == "12 × σ"
    assert spelt_out("a\udcff", "utf-8") == r"a\udcff"


def test_the_result_is_readable_in_a_narrow_terminal(tmp_path: Path) -> None:
    long = "a" * 60
    path = problem(
        tmp_path, **{"[parameters.a]": f"[parameters.{long}]", "{a}": f"{{{long}}}", "= 60": "= 6"}
    )
    done = fmnes("minimize", str(path), COLUMNS="30")
    names, values = zip(
        *(line.strip("│").split("│") for line in done.stdout.splitlines() if "│" in line), strict=True
    )
    assert "".join(name.strip() for name in names) == long + "b"
    assert all(float(value) for value in values if value.strip())


# -- many parameters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [10_000, 10_001])
def test_show_with_many_parameters(tmp_path: Path, d: int, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    settings: dict[str, Any] = {"method": "cr-fm-nes", "rng": 1, "max_evaluations": 40, "vectorized": True}
    result = minimize_in_python(lambda x: (x * x).sum(axis=1), np.ones(d), 0.5, run_dir=run, **settings)
    assert result.x is not None
    for ended in (True, False):
        if not ended:  # as a run that is still running, or was killed
            (run / "result.json").unlink()
        app(["show", str(run)], standalone_mode=False)
        shown = capsys.readouterr().out
        app(["show", str(run), "--json"], standalone_mode=False)
        report = json.loads(capsys.readouterr().out)
        assert f"value: {result.fun:.10g}" in shown and report["fun"] == result.fun
        assert "no evaluation has succeeded" not in shown
        if ended or d == 10_000:
            assert list(report["parameters"].values()) == result.x.tolist() and report["note"] is None
            assert f"│ x{d - 1} " in shown and f"{d} parameters" in shown
            assert len(shown.splitlines()) < 40
        else:
            assert report["parameters"] is None and "10000 coordinates" in report["note"]
            assert report["note"] in shown


# -- hostile problem files -----------------------------------------------------------------------------------

#: The right-hand side of a key, in TOML.
HOSTILE_TOML = [
    *(
        "5",
        "-1",
        "0",
        "nan",
        "inf",
        "true",
        '""',
        '"text"',
        '"a\\u0000b"',
        "[]",
        "[5]",
    ),
    *("{}", "1979-05-27", '["/bin/echo", 5]', '["/bin/echo", "1"]'),
    *("1" + "0" * 400, "-1" + "0" * 400, "0x" + "f" * 5000, "1e400", "[" * 500 + "]" * 500),
]


def toml(changes: dict[tuple[str, str], str]) -> str:
    """A problem file that runs, with the values of some (table, key) changed."""
    tables: dict[str, dict[str, str]] = {
        "": {"command": '["/bin/echo", "1"]'},
        "parameters.a": {"start": "1.0", "sigma": "1.5", "lower": "0.5"},
        "run": {"max_evaluations": "2", "seed": "1"},
        "program": {},
    }
    for (table, key), value in changes.items():
        tables[table][key] = value
    if ("", "parameters") in changes:
        del tables["parameters.a"]
    for name in ("run", "program"):
        if ("", name) in changes:
            del tables[name]
    lines = [
        f"[{table}]" * bool(table) + "\n" + "\n".join(f"{k} = {v}" for k, v in keys.items())
        for table, keys in tables.items()
    ]
    return "\n".join(lines) + "\n"


KEYS = [("", key) for key in TOP] + [("parameters.a", key) for key in PARAMETER]
KEYS += [("run", key) for key in RUN] + [("program", key) for key in PROGRAM]


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_whatever_a_problem_file_says_it_runs_or_is_refused_in_our_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, key: str
) -> None:
    # Every fifth value for one key, others for the next: each kind of key meets them all.
    for i, value in list(enumerate(HOSTILE_TOML))[KEYS.index((table, key)) % 5 :: 5]:
        folder = tmp_path / str(i)
        folder.mkdir()
        monkeypatch.chdir(folder)
        Path("p.toml").write_text(toml({(table, key): value}))
        try:
            app(["minimize", "p.toml", "--json"], standalone_mode=False)
        except ObjectiveError:
            assert key == "success_exit_codes" and value in ("[]", "[5]", '""', "{}")  # so the program fails
        except FmnesError as error:
            assert "found" in str(error) and len(str(error)) < 800, value
            assert [path.name for path in folder.iterdir()] == ["p.toml"], value
        except Exception as error:
            raise AssertionError(f"{key} = {value[:20]}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"\xff\xfe", "found a byte that is not UTF-8"),
        (b"a = " + b"[" * 100_000, "wanted TOML"),
        (b"a = " + b"{a = " * 50_000, "wanted TOML"),
        (b"a" + b".a" * 100_000 + b" = 1", "found"),
        (b"a = 1" + b"0" * 10_000, "wanted TOML"),
        (b"\0", "wanted TOML"),
        (b"", "found an empty file"),
        ("directory", "found a folder, wanted a problem file"),
        ("pipe", "not a plain file"),
        ("/dev/zero", "not a plain file"),
        ("/dev/full", "not a plain file"),
        ("large", "bytes"),
        ("nothing", "found nothing there"),
    ],
    ids=range(13),
)
def test_what_is_no_problem_file(tmp_path: Path, content: bytes | str, wanted: str) -> None:
    path = tmp_path / "p.toml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "directory":
        path.mkdir()
    elif content == "pipe":
        os.mkfifo(path)
    elif content == "large":
        with path.open("wb") as file:
            file.truncate(MAX_BYTES + 1)
    elif content != "nothing":
        path.symlink_to(content)
    with pytest.raises(FmnesError, match=wanted) as caught:
        app(["minimize", str(path)], standalone_mode=False)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 1000
    assert len(list(tmp_path.iterdir())) == (content != "nothing")


def test_wrong_words_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    huge, words = "1" + "0" * 400, ["--", "/bin/echo", "1"]
    for arguments in (
        ["minimize", "problem.txt"],
        ["minimize", "--param", f"a={huge},1", *words],
        ["minimize", "--param", "a=1,1,2", *words],
        ["minimize", "--param", "a=1,1", "--max-evaluations", huge, *words],
        ["minimize", "--param", "a=1,1", "--timeout", huge, *words],
        ["minimize", "--param", "a=1,1", "--seed", "-1", *words],
        ["minimize", "--param", "a=1,1", "--population-size", huge, *words],
        ["minimize", "--param", "=1,1", *words],
        ["init", "/dev/null"],
        ["init", "a" * 300],
    ):
        with pytest.raises(FmnesError, match=r"found|cannot"):
            app(arguments, standalone_mode=False)
    assert not list(tmp_path.iterdir())


def test_restarts_and_what_comes_before_and_after_a_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = 'restarts = "bipop"\nrestart_from = "best"\nsecond_look = false\nevaluate_start = false\n'
    path = problem(tmp_path, **{"seed = 1\n": f"seed = 1\n{more}"})
    kept = {"restarts": "bipop", "restart_from": "best", "second_look": False, "evaluate_start": False}
    for name, flags in (("file", []), ("flag", ["--restarts", "2"]), ("word", ["--restarts", "bipop"])):
        run = tmp_path / name
        with contextlib.suppress(SystemExit):
            app(["minimize", str(path), "--run-dir", str(run), *flags, "--json"], standalone_mode=False)
        assert json.loads(capsys.readouterr().out)["nfev"] == 60
        wanted = kept if name != "flag" else {**kept, "restarts": 2}
        found = _read_json(run / "config.json")["settings"]
        assert {key: found[key] for key in wanted} == wanted
    with pytest.raises(ArgumentError, match="restarts: found 'many'"):
        app(["minimize", str(path), "--restarts", "many"], standalone_mode=False)


def test_all_methods_are_offered(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for command in ("minimize", "demo"):
        app([command, "--help"], standalone_mode=False)
        text = capsys.readouterr().out
        assert all(method in text for method in METHODS)
    problem = template_files("program")["problem.toml"]
    assert all(method in problem for method in METHODS)
