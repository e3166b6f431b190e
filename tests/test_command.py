"""External programs: every fault is a real one, and nothing a program starts survives it."""

from __future__ import annotations

import os
import pickle
import re
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fmnes
from fmnes import Command
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs import guard, process
from fmnes.evaluation.programs.answer import read_answer
from fmnes.evaluation.programs.command import check_runnable
from fmnes.evaluation.programs.inputs import read_inputs
from fmnes.evaluation.programs.runner import outcome_of, run_once
from fmnes.evaluation.programs.workspace import by_hand, kept_directory
from fmnes.outcome import EvaluationId, Outcome
from tests.batches import CommandEvaluator, choose_evaluator
from tests.rows import through

PROGRAMS = Path(__file__).parent / "programs"
#: Seconds that a loaded machine may take for what is a matter of milliseconds.
PATIENCE = 240.0
FAULT = str(PROGRAMS / "fault.sh")


@pytest.fixture(autouse=True, scope="module")
def temporary_files(tmp_path_factory):
    """What is kept by default goes where pytest cleans up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture
def tag():
    """A mark in the environment of a test's programs; when the test is over, none of them is alive."""
    value = uuid.uuid4().hex
    yield value
    assert not wait_until(lambda: not tagged(value)), [cmdline(pid) for pid in tagged(value)]


@pytest.fixture(scope="session")
def segfault(tmp_path_factory):
    """A C program that really does it; where there is no compiler, a script that sends itself the signal."""
    path = tmp_path_factory.mktemp("c") / "segfault"
    if shutil.which("cc"):
        subprocess.run(["cc", "-O0", "-o", path, PROGRAMS / "segfault.c"], check=True)
    else:
        path.write_text("#!/bin/sh\nkill -SEGV $$\n")
        path.chmod(0o700)
    return str(path)


def tagged(value: str) -> list[int]:
    """The processes alive with this mark."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and value.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return "(gone)"


def is_alive(pid: str) -> bool:
    """Not gone, and not dead and waiting for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, seconds: float = PATIENCE) -> bool:
    """True if it did not come true, however slow the machine."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


def task(x, slot: int = 0) -> Task:
    return Task(np.atleast_1d(np.asarray(x, dtype=float)), EvaluationId(0, 3, slot, 0, 1))


def shell(script: str, *arguments: str, **settings) -> Command:
    """A command of a few words, for braces in `arguments` only."""
    return Command(
        ["/bin/sh", "-c", script.replace("{", "{{").replace("}", "}}"), "sh", *arguments], **settings
    )


def fault(name: str, extra: str = "{results}", **settings) -> Command:
    return Command(["/bin/sh", FAULT, name, "{x0}", extra], **settings)


def run(command: Command, x=2.0) -> Outcome:
    return run_once(command, task(x))


# What a program says


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5", 1.5),
        ("hello\n1.5\n\n  \n", 1.5),
        ("  -3e-5  ", -3e-5),
        ("10%\r20%\r1.5", 1.5),
        ("1.5D+03", 1500.0),
        ("+.5", 0.5),
        ("7", 7.0),
        ('{"f": 2}', 2.0),
        ('{"value": 2.5, "steps": 9}', 2.5),
        ('{"fail": false, "f": 1}', 1.0),
    ],
)
@pytest.mark.parametrize("where", ["stdout", "results"])
def test_value(text, value, where, tmp_path):
    (tmp_path / "text").write_text(text)
    target = {"stdout": "/dev/stdout", "results": "{results}"}[where]
    assert run(shell('cat "$1" > "$2"', str(tmp_path / "text"), target)) == Outcome("value", value)


@pytest.mark.parametrize(
    ("text", "reason", "fault"),
    [
        ("FAIL", "reported FAIL", ""),
        ("1\nfail no convergence", "no convergence", ""),
        ("Fail: \x1b[1mmesh", "?[1mmesh", ""),
        ('{"fail": "mesh"}', "mesh", ""),
        ('{"fail": true, "f": 1}', "reported FAIL", ""),
        ('{"f": NaN}', "returned NaN", ""),
        ('{"f": null}', "returned NaN", ""),
        ("FAIL\n", "reported FAIL", ""),
        ("nan", "returned NaN", ""),
        ("-nan", "returned NaN", ""),
        ("-inf", "returned -inf", ""),
        ("1e999", "returned inf", ""),
        ("1_000", "printed no number; last line: '1_000'", "garbled output"),
        ("failure", "printed no number; last line: 'failure'", "garbled output"),
        ("1 2", "printed no number; last line: '1 2'", "garbled output"),
        ('{"f": "1"}', 'printed no number; last line: \'{"f": "1"}\'', "garbled output"),
        ('{"f": true}', "printed no number; last line: '{\"f\": true}'", "garbled output"),
        ('{"f": 1', "printed no number; last line: '{\"f\": 1'", "garbled output"),
        ('{"a":' * 3000, "printed no number; last line: ", "garbled output"),
        ('{"f": ' + "9" * 400 + "}", "printed no number; last line: ", "garbled output"),
        ('{"f": ' + "9" * 5000 + "}", "printed no number; last line: ", "garbled output"),
        ("", "printed no number; nothing at all", "garbled output"),
    ],
)
def test_failure_in_words(text, reason, fault, tmp_path):
    (tmp_path / "text").write_text(text)
    outcome = run(shell('cat "$1"', str(tmp_path / "text")))
    assert outcome.status == "infeasible" and outcome.fault == fault
    assert outcome.reason.startswith(reason) and len(outcome.reason) < 300


LONG = process.TAIL + 5000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1" + "0" * LONG, "the last line is longer than 65536 bytes"),
        ("0." + "1" * LONG + "\n\n", "the last line is longer than 65536 bytes"),
        ('{"a": "' + "b" * LONG + '", "f": 1}', "the last line is longer than 65536 bytes"),
        ("FAIL" + " 1" * LONG, "the last line is longer than 65536 bytes"),
        ("1.5" + "\n" * LONG, "the last 65536 bytes are blank"),
        ('{"a":\n' + "0,\n" * LONG + '"f": 1}', "last line: '\"f\": 1}'"),
    ],
)
@pytest.mark.parametrize("where", ["stdout", "results"])
def test_no_number_is_read_from_a_part_of_a_line(text, found, where, tmp_path):
    (tmp_path / "text").write_text(text)
    target = {"stdout": "/dev/stdout", "results": "{results}"}[where]
    outcome = run(shell('cat "$1" > "$2"', str(tmp_path / "text"), target, keep="none"))
    assert (outcome.status, outcome.fault) == ("infeasible", "garbled output")
    assert outcome.reason == f"{'printed' if where == 'stdout' else 'wrote'} no number; {found}"


@pytest.mark.parametrize("where", ["stdout", "results"])
def test_a_whole_line_after_a_long_one(where, tmp_path):
    (tmp_path / "text").write_text("9" * LONG + "\n1.5\n")
    target = {"stdout": "/dev/stdout", "results": "{results}"}[where]
    assert run(shell('cat "$1" > "$2"', str(tmp_path / "text"), target)).value == 1.5


def test_many_garbled_digits_are_read():
    """In no time: a pattern that goes back and forth in them would take hours."""
    assert read_answer("9" * 60_000 + "x") is None
    assert read_answer("9" * 60_000 + ".") == np.inf


def test_results_file_of_several_lines(tmp_path):
    assert run(shell('printf "step 1\\n2.5\\n" > "$1"; echo 9', "{results}")).value == 2.5
    assert run(shell('printf "FAIL mesh\\n12 cells" > "$1"', "{results}")).reason == "mesh 12 cells"
    assert run(shell(': > "$1"; echo 9', "{results}")).reason == "wrote no number; nothing at all"
    assert run(shell("mkdir results results.txt; echo 9")).value == 9  # not asked for: the program's own


@pytest.mark.parametrize("name", ["results-pipe", "results-link", "results-directory"])
def test_results_file_is_no_plain_file(name):
    outcome = run(fault(name, keep="none"))
    assert (outcome.status, outcome.fault) == ("infeasible", "garbled output")
    assert outcome.reason == "wrote no number; results.txt is no plain file"


# How a program ends


@pytest.mark.parametrize(
    ("name", "reason", "fault_name"),
    [
        ("exit", "exited with code 2", "exit 2"),
        ("segfault", "died: SIGSEGV", "SIGSEGV"),
        ("shell-segfault", "exited with code 139 (a shell's word for SIGSEGV)", "exit 139"),
        ("sigkill", "killed (SIGKILL), maybe out of memory", "SIGKILL"),
        ("hang", "timed out after 3 s", "timeout"),
        ("hang-in-child", "timed out after 3 s", "timeout"),
        ("stubborn", "timed out after 3 s", "timeout"),
        ("endless", "timed out after 3 s", "timeout"),
        ("nan", "returned NaN", ""),
        ("inf", "returned -inf", ""),
        ("nothing", "printed no number; nothing at all", "garbled output"),
        ("garbled", "printed no number; last line: 'segmentation of the mesh: done'", "garbled output"),
        ("escape", "printed no number; last line: 'bad ?[2J line'", "garbled output"),
        ("binary", "printed no number; last line: ", "garbled output"),
        ("fail", "solver diverged", ""),
        ("daemon-with-stdout", "exited with code 3", "exit 3"),
        ("tempfail", "exited with code 75", "lost"),
        ("sigterm", "ended from outside (SIGTERM)", "lost"),
        ("grandchild", "4.5", "value"),
        ("daemon", "5.5", "value"),
    ],
)
def test_one_bad_program_in_a_batch(name, reason, fault_name, segfault, tag):
    """The other seven are right, and no process is left."""
    timeout = 3 if "timed out" in reason else 60
    command = fault(name, segfault, environment={"FMNES_TEST_TAG": tag}, timeout=timeout, keep="none")
    evaluator = CommandEvaluator(command, workers=2)
    outcomes = dict(evaluator([task(i, i) for i in range(8)]))
    assert not wait_until(lambda: not tagged(tag))  # at the end of the batch, not only of the evaluator
    evaluator.close()
    bad = outcomes.pop(2)
    assert outcomes == {i: Outcome("value", float(i)) for i in (0, 1, 3, 4, 5, 6, 7)}
    if fault_name == "value":
        assert bad == Outcome("value", float(reason))
    elif fault_name == "lost":
        assert (bad.status, bad.reason) == ("lost", reason)
        assert bad.detail == ("no licence" if name == "tempfail" else "")
    else:
        assert (bad.status, bad.fault) == ("infeasible", fault_name)
        assert bad.reason.startswith(reason)


def test_killed_after_the_timeout(tag):
    for name in ("hang", "stubborn"):
        outcome = run(fault(name, timeout=2, environment={"FMNES_TEST_TAG": tag}, keep="none"))
        assert outcome.fault == "timeout"
        assert not wait_until(lambda: not tagged(tag))
    assert outcome.detail == "will not go"


def test_suspended_program_is_not_timed_out(tmp_path):
    """Alone: its time stands still."""
    pid_file = tmp_path / "pid"
    command = shell('echo $$ > "$1.new"; mv "$1.new" "$1"; sleep 0.3; echo 1', str(pid_file), timeout=4)

    def suspend():
        assert not wait_until(pid_file.exists)
        group = int(pid_file.read_text())
        os.killpg(group, signal.SIGSTOP)
        time.sleep(4.5)
        os.killpg(group, signal.SIGCONT)

    thread = threading.Thread(target=suspend)
    thread.start()
    outcome = run(command)
    thread.join()
    assert outcome.value == 1, outcome


@pytest.mark.skipif(not shutil.which("cc"), reason="no compiler")
def test_suspended_while_it_starts_another(tmp_path, tag):
    subprocess.run(["cc", "-w", "-o", tmp_path / "vfork", PROGRAMS / "vfork.c"], check=True)
    command = Command([str(tmp_path / "vfork")], timeout=4, environment={"FMNES_TEST_TAG": tag})

    def stopped():
        states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in tagged(tag)]
        return "T" in states

    def resume():
        assert not wait_until(stopped)
        time.sleep(4.5)
        for pid in tagged(tag):
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=resume)
    thread.start()
    outcome = run(command)
    thread.join()
    assert outcome.value == 1, outcome


def test_a_program_that_stops_itself_for_good_is_timed_out_in_the_end() -> None:
    with pytest.raises(fmnes.Infeasible, match="timed out"):
        Command(["/bin/sh", "-c", "kill -STOP $$; echo 1"], timeout=0.3)([1.0])


def test_suspended_driver_and_program(tmp_path):
    """The whole job, as a batch system does it."""
    code = """
import sys
from fmnes import Command
script = 'echo $$ > "$1.new"; mv "$1.new" "$1"; sleep 0.5; echo 1'
print(Command(["/bin/sh", "-c", script, "sh", sys.argv[1]], timeout=3)([1]))
"""
    pid_file = tmp_path / "pid"
    driver = subprocess.Popen([sys.executable, "-c", code, pid_file], stdout=subprocess.PIPE, text=True)
    assert not wait_until(pid_file.exists)
    os.kill(driver.pid, signal.SIGSTOP)
    os.killpg(int(pid_file.read_text()), signal.SIGSTOP)
    time.sleep(4.5)
    os.kill(driver.pid, signal.SIGCONT)
    os.killpg(int(pid_file.read_text()), signal.SIGCONT)
    assert driver.communicate()[0] == "1.0\n"


def test_times_beyond_what_a_selector_takes():
    """24.8 days are 2³¹ ms."""
    assert run(shell("echo 1", timeout=1e7)).value == 1
    assert run(shell("echo 1", timeout=1e300)).value == 1
    month = time.monotonic() + 30 * 86_400
    assert run_once(shell("echo 1"), task(1), month).value == 1
    assert run_once(shell("echo 1"), task(1), 1e300).value == 1


def test_exit_codes_are_the_users():
    assert run(shell("echo 1; exit 3", success_exit_codes=[0, 3])).value == 1
    assert run(shell("echo 1; exit 4", lost_exit_codes=[4, 5])).status == "lost"
    assert run(shell("echo nan; exit 1", keep="none")).fault == "exit 1"
    assert run(shell("echo 1; exit 75", lost_exit_codes=[], keep="none")).reason == "exited with code 75"


@pytest.mark.parametrize(
    ("script", "code"),
    [("no-such-program-at-all 2>&1", 127), ("exec /etc/passwd", 126), ("echo FAIL; exit 127", 127)],
)
def test_a_program_or_library_that_is_missing_says_nothing_about_the_point(script, code):
    outcome = run(shell(script, keep="none"))
    assert outcome.status == "lost" and outcome.fault == ""
    assert outcome.reason.startswith(f"exited with code {code}: it, ")
    assert run(shell(f"echo 1; exit {code}", success_exit_codes=[0, code])).value == 1


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_ended_from_outside_is_lost(name):
    """As when a batch system ends all processes of a job: the point must not be punished."""
    number = int(signal.Signals[name])
    code = f"import os, signal; signal.signal({number}, signal.SIG_DFL); os.kill(os.getpid(), {number})"
    killed = run(Command([sys.executable, "-I", "-S", "-c", code], keep="none"))
    shells = run(shell(f"echo FAIL interrupted; exit {128 + number}", keep="none"))
    for outcome in (killed, shells):
        assert (outcome.status, outcome.reason) == ("lost", f"ended from outside ({name})")
    script = f"echo 1; exit {128 + number}"
    assert run(shell(script, success_exit_codes=[0, 128 + number])).value == 1
    assert run(shell(script, lost_exit_codes=[128 + number], keep="none")).fault == ""


def test_a_job_whose_processes_are_ended_one_by_one(tmp_path):
    """The programs first, then the driver: no point is punished, and the run goes on."""
    code = """
import fmnes, sys
command = fmnes.Command(["/bin/sh", "-c", "sleep 0.2; echo 1"], timeout=60)
fmnes.minimize(command, [1.0, 1.0], 0.5, rng=1, workers=2, max_evaluations=400, run_dir=sys.argv[1])
"""
    driver = subprocess.Popen([sys.executable, "-c", code, tmp_path / "run"])
    log = tmp_path / "run" / "evaluations.sqlite"
    assert not wait_until(lambda: log.exists() and logged(log))
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    for pid in [*sorted(map(int, children), reverse=True), driver.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.05)
    driver.wait(PATIENCE)
    assert "value" in logged(log) and "infeasible" not in logged(log)


def logged(log: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as database:
        try:
            return [status for (status,) in database.execute("select status from evaluations")]
        except sqlite3.OperationalError:  # not made yet
            return []


def test_a_program_that_ends_its_own_group_fails_in_the_end(monkeypatch, tag):
    monkeypatch.setattr("fmnes.evaluation.supervision.SETTLE_SECONDS", 0.05)
    command = fault("own-group", environment={"FMNES_TEST_TAG": tag}, keep="none")
    evaluator = choose_evaluator(command, 1, workers=2, retries=2)
    first = dict(evaluator([task(i, i) for i in range(4)]))
    assert [first[i].status for i in range(4)] == ["value", "value", "lost", "value"]
    again = [dict(evaluator([replace_attempt(task(2, 2), a)]))[0] for a in (1, 2)]
    evaluator.close()
    assert [outcome.status for outcome in again] == ["lost", "infeasible"]
    assert again[1].reason == "ended by SIGTERM at each of 3 tries"


def replace_attempt(made: Task, attempt: int) -> Task:
    return made._replace(id=made.id._replace(attempt=attempt))


def test_stderr_tail_is_the_detail(tmp_path):
    outcome = run(shell("seq 10000 >&2; exit 1", directory=tmp_path))
    *lines, kept = outcome.detail.splitlines()
    assert lines[-1] == "10000" and 1500 < len(outcome.detail) <= 2000
    assert kept.startswith(f"kept: {tmp_path}/g3-s0-a1-")


def test_a_lot_of_output(tmp_path):
    """500 MB: neither a deadlock nor a full disk, and the value on its last line is read."""
    assert run(fault("flood", directory=tmp_path, keep="all")).value == 3.5
    kept = next(tmp_path.glob("g*/stdout.txt"))
    size = kept.stat().st_size
    assert process.OUTPUT_LIMIT < size < process.OUTPUT_LIMIT + 2 * process.TAIL
    with open(kept, "rb") as file:
        file.seek(-2 * process.TAIL, os.SEEK_END)
        end = file.read()
    assert b"bytes left out here" in end and end.endswith(b"y\n3.5\n")


def test_a_lot_of_errors():
    assert run(fault("flood-stderr")).value == 3.5


def test_output_on_a_full_disk(tmp_path):
    """The file cannot be written (here: for a limit on its size); the value counts all the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        outcome = run(shell("yes | head -c 1000000; echo 2.5", directory=tmp_path, keep="all"))
        unable = run(shell("echo 1", directory=tmp_path / "new"), np.arange(1e5))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (unable.status, unable.reason) == ("lost", "could not start the program: File too large")
    assert not list((tmp_path / "new").iterdir())
    assert outcome.value == 2.5
    assert next(tmp_path.glob("g*/stdout.txt")).stat().st_size <= 100_000


# What a program gets


def test_point_as_json_and_as_arguments(tmp_path):
    x = [0.1 + 0.2, -1e-300, -0.0, 1 / 3, 1.7976931348623157e308 / 1e200]
    argv = [sys.executable, "-I", "-S", str(PROGRAMS / "sphere.py"), "{params}", "{results}"]
    assert Command([*argv, "{x0}", "{x1}", "{x2}", "{x3}", "{x4}"])(x) == sum(v * v for v in x)
    named = Command([*argv, "{a}", "{b c}"], names=["a", "b c"], directory=tmp_path, keep="all")
    assert named([3, 4]) == 25
    params = next(tmp_path.glob("g*/params.json")).read_text()
    assert params == (
        '{"x": [3.0, 4.0], "params": {"a": 3.0, "b c": 4.0}, '
        '"generation": 0, "slot": 0, "redraw": 0, "attempt": 0, "restart": 0}\n'
    )


def test_point_of_a_hundred_thousand_coordinates():
    """Nobody reads the standard input, and nothing blocks."""
    x = np.arange(1e5)
    assert run(shell("echo 1"), x).value == 1
    assert run(shell("wc -c < /dev/stdin"), x).value > 5e5
    assert run(shell("exec <&-; sleep 0.1; echo $1", "{x99999}"), x).value == 99999


def test_nothing_is_read_by_a_shell(tmp_path):
    names = ["a; touch pwned", "$(touch pwned)", "`touch pwned` | ' \" &"]
    place = tmp_path / "a place; touch pwned $(touch pwned) {x0}"
    script = tmp_path / "my program; echo.sh"
    script.write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\npwd\necho 1\n')
    script.chmod(0o700)
    command = Command(
        [
            str(script).replace("{", "{{"),
            *(f"{{{name}}}" for name in names),
            "*",
            "a b",
            "$HOME",
            "{{x0}}",
            "",
        ],
        names=names,
        directory=place,
        keep="all",
    )
    assert command([1, 2, 3]) == 1
    (kept,) = place.iterdir()
    said = (kept / "stdout.txt").read_text().splitlines()
    assert said == ["<1.0>", "<2.0>", "<3.0>", "<*>", "<a b>", "<$HOME>", "<{x0}>", "<>", str(kept), "1"]
    assert not list(tmp_path.rglob("pwned"))


def test_environment(monkeypatch):
    monkeypatch.setenv("FMNES_SECRET", "s")
    monkeypatch.setenv("FMNES_SEEN", "7")
    assert (
        run(shell('test -z "$FMNES_SECRET" && echo $FMNES_SEEN', environment={"FMNES_SECRET": None})).value
        == 7
    )
    assert run(shell("echo $FMNES_SEEN", environment={"FMNES_SEEN": "8"})).value == 8


def test_relative_paths_start_where_it_was_made(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "one"
    script.write_text('#!/bin/sh\ncat "$1"\n')
    script.chmod(0o700)
    (tmp_path / "value").write_text("1.5\n")
    monkeypatch.chdir(tmp_path)
    commands = [Command([name, "{here}/value"]) for name in ("bin/one", "./bin/one", "{here}/bin/one")]
    forgot = Command(["bin/one", "value"], keep="none")
    monkeypatch.chdir("/")
    assert len(set(commands)) == 3 and "secret" not in repr(replace(forgot, environment={"KEY": "secret"}))
    for command in [*commands, *(pickle.loads(pickle.dumps(c)) for c in commands)]:
        assert command([0]) == 1.5
        assert replace(command, timeout=9)([0]) == 1.5
    assert "write '{here}/value'" in run(forgot).detail


# Directories


def test_directories_are_private_fresh_and_removed(tmp_path):
    command = shell("ls -A | tr '\\n' ' ' >&2; stat -c %a . >&2; echo 1", directory=tmp_path, keep="all")
    assert run(command).value == run(command).value == 1
    one, two = tmp_path.iterdir()
    assert stat.S_IMODE(one.stat().st_mode) == 0o700
    for directory in (one, two):
        assert (directory / "stderr.txt").read_text() == "params.json stderr.txt stdout.txt 700\n"
    assert run(shell("echo 1", directory=tmp_path / "new")).value == 1
    assert run(shell("exit 1", directory=tmp_path / "new", keep="none")).detail == ""
    assert not list((tmp_path / "new").iterdir())


def test_failed_directories_are_kept_up_to_a_number(tmp_path):
    command = shell('test "$1" = 0.0 && echo 1', "{x0}", directory=tmp_path, max_kept=3)
    evaluator = CommandEvaluator(command)
    outcomes = [o for _, o in evaluator([task(x) for x in (0, 1, 2, 0, 3, 4, 0)])]
    evaluator.close()
    kept = [Path(o.detail.rpartition("kept: ")[2]) for o in outcomes if o.status != "value"]
    assert len(kept) == 4 and set(tmp_path.iterdir()) == {kept[0], kept[2], kept[3]}
    for _ in range(4):  # by hand: they count together, and leave alone what the run has kept
        assert run(command, 5.0).status == "infeasible"
    assert len(list(tmp_path.iterdir())) == 6 and all(kept[i].exists() for i in (0, 2, 3))
    assert run(replace(command, max_kept=0), 5.0).detail == ""


def kept_by(evaluator: CommandEvaluator, points, generation: int = 3) -> list[Path | None]:
    """Where the evaluations say that they were kept."""
    tasks = [Task(task(x).x, EvaluationId(0, generation, i)) for i, x in enumerate(points)]
    outcomes = dict(evaluator(tasks))
    evaluator.close()
    found = [outcomes[i].detail.partition("kept: ")[2] for i in range(len(points))]
    return [Path(path) if path else None for path in found]


def test_first_of_each_reason_stays(tmp_path):
    command = shell('echo "FAIL $1"', "{x0}", directory=tmp_path, max_kept=4)
    kept = kept_by(CommandEvaluator(command), [1, 1, 1, 2, 1, 3, 1, 1])
    stay = {kept[i] for i in (0, 3, 5, 7)}
    assert set(tmp_path.iterdir()) == stay
    more = kept_by(CommandEvaluator(command), [4, 5, 6, 7, 8, 4])
    assert more[4:] == [None, None]  # as many reasons as may be kept
    assert set(tmp_path.iterdir()) == stay | set(more[:4])  # another run's are not touched


def test_kept_below_the_run_directory(tmp_path):
    kept_in = tmp_path / "run" / "kept"
    kept_in.parent.mkdir()
    command = shell('test "$1" = 1.0 && echo 1 || echo "FAIL $1"', "{x0}", max_kept=4)
    assert kept_by(CommandEvaluator(command, kept_in=str(kept_in)), [1, 1]) == [None, None]
    assert not kept_in.exists()  # made when it is needed
    first = kept_by(CommandEvaluator(command, kept_in=str(kept_in)), [1, 2, 3, 3, 3])[1:]
    assert set(kept_in.iterdir()) == set(first)
    assert (first[0] / "stdout.txt").read_text() == "FAIL 2.0\n"
    (kept_in / "mine").mkdir()
    resumed = kept_by(CommandEvaluator(command, kept_in=str(kept_in)), [3, 4], generation=4)
    assert set(kept_in.iterdir()) == {*first[:2], *resumed, kept_in / "mine"}  # never more than max_kept
    elsewhere = replace(command, directory=tmp_path / "elsewhere")
    (kept,) = kept_by(CommandEvaluator(elsewhere, kept_in=str(kept_in)), [5])
    assert kept.parent == tmp_path / "elsewhere"


def test_the_first_of_each_reason_is_so_by_its_name_and_not_by_its_end(tmp_path):
    """The slots of a generation end in any order; a result tells of the first slot of each reason."""
    script = 'sleep "$2"; echo "FAIL $1"'
    command = shell(script, "{x0}", "{x1}", directory=tmp_path, max_kept=3)
    evaluator = CommandEvaluator(command, workers=4)
    # Ends: slots 2, 1, 3, then 0; reasons 1, 2, 2, 1.
    tasks = [task(x, i) for i, x in enumerate([(1, 0.6), (2, 0.2), (1, 0), (2, 0.4)])]
    outcomes = dict(evaluator(tasks))
    later = dict(evaluator([Task(task((x, 0)).x, EvaluationId(0, 4, i)) for i, x in enumerate((1, 2, 1))]))
    evaluator.close()
    kept = [Path(outcomes[i].detail.rpartition("kept: ")[2]) for i in range(4)]
    last = Path(later[2].detail.rpartition("kept: ")[2])
    assert [path.exists() for path in kept] == [True, True, False, False]
    assert set(tmp_path.iterdir()) == {kept[0], kept[1], last}


def test_what_a_result_says_is_kept_is_there(tmp_path):
    """With workers, more failures than may be kept, restarts, a resume, and the directory moved."""
    script = """
import json, sys, time
x = float(sys.argv[1])
time.sleep(0.05 * (3 - json.load(sys.stdin)["slot"] % 4))  # the first ends last
print("FAIL left" if x < -0.3 else "FAIL right" if x > 0.3 else x * x)
"""
    command = Command([sys.executable, "-ISc", script, "{x0}"], max_kept=4)
    settings = {"rng": 3, "workers": 4, "restarts": 1, "population_size": 8, "second_look": False}
    first = fmnes.minimize(
        command, [0.1, 1.0], 2.0, max_evaluations=60, run_dir=tmp_path / "run", xtol=0.5, **settings
    )
    resumed = fmnes.resume(tmp_path / "run", max_evaluations=100)
    for result in (first, resumed):
        assert len(result.failures) == 2 and result.n_infeasible > 20
        for failure in result.failures:
            path = Path(failure.detail.rpartition("kept: ")[2])
            assert (path / "stdout.txt").read_text() == f"FAIL {failure.reason}\n"
    assert len(list((tmp_path / "run" / "kept").iterdir())) == 4
    os.rename(tmp_path / "run", tmp_path / "moved")
    found = {}
    with closing(sqlite3.connect(tmp_path / "moved" / "evaluations.sqlite")) as database:
        query = "select restart, generation, slot, redraw, attempt, reason, detail from evaluations"
        for *key, reason, detail in database.execute(f"{query} order by 1, 2, 3, 4, 5"):
            found[tuple(key)] = reason, kept_directory(tmp_path / "moved" / "kept", tuple(key), detail)
    for reason in ("left", "right"):
        _, path = next(value for value in found.values() if value[0] == reason)
        assert path.parent == tmp_path / "moved" / "kept"
        assert (path / "stdout.txt").read_text() == f"FAIL {reason}\n"
    there = [path for _, path in found.values() if path is not None]
    assert len(there) == len(set(there)) == 4


def test_names_of_directories_tell_their_evaluations_apart(tmp_path):
    folder = tmp_path / "kept"
    evaluator = CommandEvaluator(shell("exit 3"), kept_in=str(folder))
    keys = [
        (0, -1, 0, 0, 0),
        (0, 3, 1, 0, 0),
        (2, 3, 1, 0, 0),
        (0, 3, 1, 5, 0),
        (0, 3, 1, 0, 4),
        (0, 31, 1, 0, 0),
    ]
    for key in keys:
        list(evaluator([Task(np.zeros(1), EvaluationId(*key))]))
    evaluator.close()
    paths = [kept_directory(folder, key) for key in keys]
    assert None not in paths and len(set(paths)) == len(keys) == len(list(folder.iterdir()))
    assert kept_directory(folder, (1, 3, 1, 0, 0)) is None
    assert paths[2].name.startswith("r2-g3-s1-a0-") and paths[3].name.startswith("g3-s1-w5-a0-")
    assert kept_directory(tmp_path / "none", keys[0], f"words\nkept: {tmp_path}") == tmp_path
    again = folder / (paths[1].name[:-9] + "x" + paths[1].name[-9:])
    again.mkdir()
    for path in (paths[1], again):
        assert kept_directory(folder, keys[1], f"words\nkept: /old/place/{path.name}") == path
    for detail in ("", "kept: ", "kept: kept", f"kept: {tmp_path / 'gone'}"):
        assert kept_directory(tmp_path / "none", keys[0], detail) is None


def test_a_look_into_a_kept_directory_changes_nothing(tmp_path):
    """A file of the user's in the first one does not make it the latest."""
    command, kept_in = shell("echo FAIL a", max_kept=2), str(tmp_path / "kept")
    first, second = kept_by(CommandEvaluator(command, kept_in=kept_in), [1, 2])
    (first / "notes").write_text("seen")
    (third,) = kept_by(CommandEvaluator(command, kept_in=kept_in), [3], generation=4)
    assert set((tmp_path / "kept").iterdir()) == {first, third} and not second.exists()


def test_the_evaluator_of_a_run_gets_the_place(tmp_path):
    evaluator = choose_evaluator(shell("exit 3"), 1, kept_in=str(tmp_path / "kept"))
    ((_, outcome),) = evaluator([task(1)])
    evaluator.close()
    (kept,) = (tmp_path / "kept").iterdir()
    assert outcome.detail == f"kept: {kept}"


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no second file system")
def test_kept_on_another_file_system(tmp_path, monkeypatch):
    """Small, plain things are copied; all else stays where it is, and is told so."""
    if os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("one file system")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        monkeypatch.setattr("tempfile.tempdir", shared)
        script = 'mkdir a; echo 1 > a/b; ln -s /etc/passwd link; test "$1" = 1.0 || mkfifo pipe; exit 3'
        command = shell(script, "{x0}")
        plain, odd = kept_by(CommandEvaluator(command, kept_in=str(tmp_path / "kept")), [1, 2])
        assert plain.parent == tmp_path / "kept" and (plain / "a" / "b").read_text() == "1\n"
        assert (plain / "link").is_symlink() and (plain / "stdout.txt").exists()
        assert str(odd).startswith(shared) and (odd / "pipe").is_fifo()
        assert len(list(Path(shared).glob("fmnes-*/g*"))) == 1


def test_kept_folder_is_a_link(tmp_path):
    """A run directory from elsewhere may have one: nothing is put or removed where it leads."""
    theirs = [tmp_path / "mine" / f"g0-s{i}-a0-abcdefgh-01234567" for i in range(3)]
    for path in theirs:
        path.mkdir(parents=True)
    (tmp_path / "kept").symlink_to(tmp_path / "mine")
    command = shell("exit 3", max_kept=1)
    (kept,) = kept_by(CommandEvaluator(command, kept_in=str(tmp_path / "kept")), [1])
    assert kept.is_dir() and tmp_path not in kept.parents
    assert sorted((tmp_path / "mine").iterdir()) == theirs


def test_default_directory_leaves_nothing_after_success(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    by_hand.cache_clear()
    assert run(shell("echo 1")).value == 1
    assert not list(tmp_path.iterdir())
    assert run(shell("echo 1; exit 75")).status == "lost"
    assert len(list(tmp_path.glob("fmnes-*/g3-s0-a1-*/stdout.txt"))) == 1


def test_links_are_not_followed_when_removing(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").write_text("")
    assert run(fault("links", str(mine), directory=tmp_path / "runs", keep="none")).fault == "exit 1"
    swap = shell(
        'd=$(pwd); cd /; rm -r "$d"; ln -s "$1" "$d"; echo 1', str(mine), directory=tmp_path / "runs"
    )
    assert run(swap).value == 1
    assert (mine / "precious").exists()
    assert not list((tmp_path / "runs").iterdir())


def test_deep_tree_is_removed(tmp_path):
    """Deeper than Python's recursion, longer than a path may be, with more levels than open files."""
    code = "import os\nfor i in range(1500): os.mkdir('d' * 9); os.chdir('d' * 9)\nprint(1)"
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path  # a disk may take its time
    with tempfile.TemporaryDirectory(dir=quick) as directory:
        assert run(Command([sys.executable, "-I", "-S", "-c", code], directory=directory)).value == 1
        assert not os.listdir(directory)


READ_ONLY = """
import os, sys, warnings
from fmnes import Command, minimize
warnings.simplefilter("error")
script = "mkdir -p a/b/c; : > a/b/c/f; ln -s $1 a/b/link; chmod 0 a/b/c a/b; chmod 500 a; chmod 0 .; echo 1"
command = Command(["/bin/sh", "-c", script, "sh", sys.argv[2]], directory=sys.argv[1])
minimize(command, [1.0, 1.0], 0.5, rng=1, max_evaluations=6)
"""
NOT_OURS = """
import os, sys
from fmnes import Command, minimize
script = "mkdir -m 700 a; echo 1 > a/file; chown 12345 a; echo 1"
command = Command(["/bin/sh", "-c", script], directory=sys.argv[1])
print(minimize(command, [1.0, 1.0], 0.5, rng=1, max_evaluations=6).nfev)
"""


def without_powers(*powers: str) -> list[str]:
    """What to put before a command so that it runs like any user's."""
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("root may write anywhere")
    return ["setpriv", "--bounding-set=" + ",".join(f"-{power}" for power in powers), "--inh-caps=-all"]


def test_read_only_leftovers_are_removed(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o555)
    argv = [*without_powers("dac_override", "dac_read_search"), sys.executable, "-c", READ_ONLY]
    subprocess.run([*argv, tmp_path / "runs", mine], check=True, timeout=300)
    assert not list((tmp_path / "runs").iterdir())
    assert stat.S_IMODE(mine.stat().st_mode) == 0o555


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_leftovers_that_cannot_be_removed_are_told_once(tmp_path):
    argv = [*without_powers("dac_override", "dac_read_search", "fowner"), sys.executable, "-c", NOT_OURS]
    done = subprocess.run([*argv, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.stdout == "6\n"
    assert done.stderr.count("Warning") == 1
    assert f"{tmp_path}/g" in done.stderr and "cannot be removed: Operation not permitted" in done.stderr
    assert done.stderr.startswith("<string>:6: ")  # the user's line


def test_what_is_mounted_is_not_emptied(tmp_path):
    """A program may leave a mount: what it shows is not the program's own."""
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("only root can mount")
    for name in ("mine", "tree/a/mount", "tree/mount"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "mine" / "precious").write_text("")
    code = (
        "import os, sys; from pathlib import Path; from fmnes.evaluation.programs.workspace import remove\n"
        "print(remove(Path('tree')).strerror)"
    )
    script = 'for m in tree/mount tree/a/mount; do mount --bind mine $m || exit 9; done; "$0" -c "$1"'
    argv = ["unshare", "-m", "/bin/sh", "-c", script, sys.executable, code]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    if done.returncode == 9 or "unshare" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert done.stdout == "Device or resource busy\n", done.stderr
    assert (tmp_path / "mine" / "precious").exists()


# What is wrong before anything is spent


@through(
    ("settings", "message"),
    [
        ({"argv": "./sim {x0}"}, r"argv: found one string, wanted a list such as \['./sim', '{x0}'\]"),
        ({"argv": []}, "argv: found an empty list"),
        ({"argv": ["sim", 1]}, "argv: found .*wanted a list of strings"),
        ({"argv": ["sim", "a\0b"]}, "argv: found 'a.x00b'"),
        ({"argv": ["sim", "{parms}"]}, "unknown placeholder {parms}; did you mean 'params'"),
        ({"argv": ["sim", "{x}"]}, "unknown placeholder {x}; did you mean 'x"),
        ({"argv": ["sim", "{wdth}"], "names": ["width", "length"]}, "did you mean 'width'"),
        ({"argv": ["sim", "{x0}"], "names": ["width", "length"]}, "unknown placeholder {x0}"),
        ({"argv": ["sim", '{"a": 1}']}, "write it twice"),
        ({"argv": ["sim", "{"]}, "argv: found a single '{'"),
        ({"argv": ["sim", "a}"]}, "argv: found a single '}'"),
        ({"names": ["a", "a"]}, "names: found"),
        ({"names": ["a", "params"]}, "names: found"),
        ({"names": "ab"}, "names: found one string"),
        ({"scales": ["log", "log"]}, r"found the option 'scales'.*fmnes.Real\(0.1, 10, log=True\)"),
        ({"timeout": 0}, "timeout: found 0"),
        ({"timeout": float("nan")}, "timeout: found nan"),
        ({"keep": "some"}, "keep: found 'some'"),
        ({"max_kept": -1}, "max_kept: found -1"),
        ({"lost_exit_codes": 75}, "lost_exit_codes: found 75"),
        ({"success_exit_codes": [0, 256]}, "success_exit_codes: found"),
        ({"success_exit_codes": [75]}, "lost_exit_codes: found .75."),
        ({"environment": {"A=B": "1"}}, "environment: found 'A=B'"),
        ({"environment": {"A": 1}}, "environment: found"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(fmnes.ArgumentError, match=message):
        check_runnable(Command(**{"argv": ["/bin/echo", "1"], **settings}), 2)


def test_program_that_cannot_run(tmp_path, monkeypatch):
    def refused(name, message):
        command = Command([name])
        for attempt in (check_runnable, lambda c: c([0]), CommandEvaluator):
            with pytest.raises(fmnes.ArgumentError, match=message):
                attempt(command)

    monkeypatch.chdir(tmp_path)
    script = tmp_path / "sim"
    for name in ("./sim", "{here}/sim"):
        refused(name, re.escape(f"found no program '{name}', wanted one at {script}"))
    refused("no-such-program-anywhere", "found no program 'no-such-program-anywhere', wanted one on the PATH")
    script.write_text("#!/no/such/interpreter -x\necho 1\n")
    refused("./sim", "not executable; run chmod")
    script.chmod(0o755)
    refused("./sim", "interpreter '/no/such/interpreter' is missing")
    refused("sim", "did you mean './sim'")
    script.write_bytes(b"#!/bin/sh\r\necho 1\r\n")
    refused("./sim", "Unix line ends")
    refused(str(tmp_path), "found the directory")
    refused("{x0}", "in the program's name")
    script.write_text("echo 1\n")
    with pytest.raises(
        fmnes.ArgumentError, match="does not start: Exec format error; a script starts with #!"
    ):
        Command(["./sim"])([0])
    with pytest.raises(fmnes.ArgumentError, match="does not start: Argument list too long"):
        Command(["/bin/echo", "1" * 200_000])([0])
    with pytest.raises(fmnes.ArgumentError, match="directory: found '/no/such'"):
        check_runnable(Command(["/bin/echo"], directory="/no/such/place"))


def test_program_that_disappears(tmp_path):
    script = tmp_path / "sim"
    script.write_text('#!/bin/sh\nrm "$0"\necho 1\n')
    script.chmod(0o700)
    evaluator = CommandEvaluator(Command([str(script)]))
    outcomes = evaluator([task(1), task(2)])
    assert next(outcomes)[1].value == 1
    with pytest.raises(fmnes.ArgumentError, match="found no program"):
        next(outcomes)
    evaluator.close()


def test_points_that_do_not_fit():
    with pytest.raises(fmnes.ArgumentError, match="points have 2 coordinates"):
        check_runnable(shell("echo 1", "{x2}"), 2)
    with pytest.raises(fmnes.ArgumentError, match="found 2 for a point of 3"):
        shell("echo 1", names=["a", "b"])([1, 2, 3])
    with pytest.raises(fmnes.ArgumentError, match="x: found"):
        shell("echo 1")([1, np.nan])
    check_runnable(shell("echo 1", "{x2}"), 3)


def test_a_point_by_name(tmp_path):
    """Whoever knows the names gives them; the program sees the same in its arguments and in the JSON."""
    command = shell('cat "$1"; echo "$2"', "{params}", "{b}", directory=tmp_path, keep="all")
    evaluator = CommandEvaluator(command, named=lambda x: {"a": int(x[0]), "b": 10 ** float(x[1])})
    assert [outcome.value for _, outcome in evaluator([task([2, -1])])] == [0.1]
    evaluator.close()
    said = next(tmp_path.glob("g*/stdout.txt")).read_text()
    assert said.startswith('{"x": [2, 0.1], "params": {"a": 2, "b": 0.1}, "generation": 3,')
    assert command({"a": 2, "b": 0.5}) == 0.5
    check_runnable(command, names=["a", "b"])
    for names in (["a", "c"], ["a"]):
        with pytest.raises(fmnes.ArgumentError, match=r"argv: found the unknown placeholder \{b\}"):
            check_runnable(command, names=names)
    with pytest.raises(fmnes.ArgumentError, match="wanted those of the parameters"):
        check_runnable(replace(command, names=["a", "b"]), names=["b", "a"])
    for point in ({"a": 1, "b": np.nan}, {"a": 1, "b": "2"}, {"a": 1, 3: 2}):
        with pytest.raises(fmnes.ArgumentError, match="x: found"):
            command(point)


def test_by_hand():
    assert shell("echo $1", "{x0}")([1.5, 2]) == 1.5
    with pytest.raises(fmnes.Infeasible, match="exited with code 2") as caught:
        fault("exit", keep="none")([2])
    assert caught.value.__notes__ == ["mesh: 3 cells inverted"]
    with pytest.raises(fmnes.Lost, match="exited with code 75"):
        fault("tempfail", keep="none")([2])


# Ends that are not the program's


def test_closing_early_kills_what_runs(tag):
    command = fault("stubborn", environment={"FMNES_TEST_TAG": tag}, keep="none")
    evaluator = CommandEvaluator(command, workers=3)
    outcomes = evaluator([task(2, 0), task(1, 1), task(2, 2), task(2, 3)])
    assert next(outcomes) == (1, Outcome("value", 1.0))
    assert len(tagged(tag)) >= 2
    outcomes.close()
    assert not wait_until(lambda: not tagged(tag))
    assert dict(evaluator([task(1)])) == {0: Outcome("value", 1.0)}  # it still works
    evaluator.close()


def test_deadline_ends_the_batch(tag, tmp_path):
    command = fault("hang", environment={"FMNES_TEST_TAG": tag}, directory=tmp_path)
    evaluator = CommandEvaluator(command, workers=2)
    batch = [task(2, 0), task(1, 1), task(2, 2), task(3, 3)]
    for seconds in (2, 20, 200):  # as long as the program needs that does not hang
        if outcomes := dict(evaluator(batch, time.monotonic() + seconds)):
            break
    assert outcomes == {1: Outcome("value", 1.0)}
    assert not wait_until(lambda: not tagged(tag))
    assert dict(evaluator([task(1)], time.monotonic() - 1)) == {}
    evaluator.close()
    assert not list(tmp_path.iterdir())
    assert run_once(command, task(2), time.monotonic() + 0.1).status == "lost"


def test_ctrl_c_passes_and_kills(tag):
    def interrupt(*_):
        raise KeyboardInterrupt

    evaluator = CommandEvaluator(fault("hang-in-child", environment={"FMNES_TEST_TAG": tag}, keep="none"))
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            list(evaluator([task(2)]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        evaluator.close()
    assert not wait_until(lambda: not tagged(tag))


@pytest.mark.parametrize("name", ["hang-in-child", "stubborn", "grandchild", "daemon"])
def test_kill_9_of_the_driver_leaves_no_process(name, tag, tmp_path):
    argv = [sys.executable, str(PROGRAMS / "driver.py"), tag, name]
    driver = subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert not wait_until(lambda: len(tagged(tag)) >= 2), driver.poll()
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    driver.kill()
    driver.wait()
    assert not wait_until(lambda: not tagged(tag)), [cmdline(pid) for pid in tagged(tag)]
    assert not wait_until(lambda: not any(is_alive(pid) for pid in children))  # nor the guard


def test_daemon_that_forks_as_its_program_ends(tag):
    """A long chain of processes, each gone in no time: none of them is missed."""
    code = """
import os, time
print(1.5, flush=True)
if os.fork() == 0:
    os.setsid()
    for _ in range(40):
        if os.fork():
            os._exit(0)
    time.sleep(300)
"""
    command = Command([sys.executable, "-I", "-S", "-c", code], environment={"FMNES_TEST_TAG": tag})
    evaluator = CommandEvaluator(command, workers=2)
    for _ in range(8):
        assert [o.value for _, o in evaluator([task(1), task(2)])] == [1.5, 1.5]
        assert not wait_until(lambda: not tagged(tag)), [cmdline(pid) for pid in tagged(tag)]
    evaluator.close()


def test_process_without_environment_is_looked_at_for_long_only_once(monkeypatch):
    bare = subprocess.Popen(["/bin/sleep", "300"], env={})
    known: set = set()
    looks: list[str] = []
    kind = guard._kind
    monkeypatch.setattr(guard, "_kind", lambda name, mark: looks.append(name) or kind(name, mark))
    counts = []
    try:
        assert not wait_until(lambda: Path(f"/proc/{bare.pid}/environ").read_bytes() == b"")
        for _ in range(3):
            looks.clear()
            assert not guard.sweep("0" * 32, known)
            counts.append(looks.count(str(bare.pid)))
    finally:
        bare.kill()
        bare.wait()
    assert str(bare.pid) in {name for name, _ in known}
    assert counts == [guard._PASSES, 1, 1]


KILLALL = {
    "Command": """
import fmnes
fmnes.minimize(fmnes.Command(["sleep", "300"]), [1.0, 1.0], 0.5, workers=2, evaluate_start=False)
""",
    "workers": """
import fmnes, subprocess
def f(x): subprocess.run(["sleep", "300"]); return 1.0
fmnes.minimize(f, [1.0, 1.0], 0.5, rng=1, workers=2, timeout=900, evaluate_start=False)
""",
}


@pytest.mark.parametrize("kind", KILLALL)
def test_killall_python_leaves_no_process(kind, tag, tmp_path):
    """All processes of that name at once, as `killall -9 python3` does; here by their numbers."""
    (tmp_path / "script.py").write_text(KILLALL[kind])
    environment = {**os.environ, "TMPDIR": str(tmp_path), "FMNES_TEST_TAG": tag}
    driver = subprocess.Popen([sys.executable, tmp_path / "script.py"], env=environment)

    def named(*starts: str) -> list[int]:
        return [pid for pid in tagged(tag) if name_of(pid).startswith(starts)]

    assert not wait_until(lambda: len(named("sleep")) == 2), driver.poll()
    wait_until(lambda: named("fmnes-guard"), 3)
    ours = named("python")
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none sees another's end
        for pid in ours:
            with suppress(ProcessLookupError):  # one that was about to become another program
                os.kill(pid, number)
    driver.wait()
    try:
        assert not wait_until(lambda: not tagged(tag)), [cmdline(pid) for pid in tagged(tag)]
    finally:
        for pid in tagged(tag):
            os.kill(pid, signal.SIGKILL)


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_without_pidfd_it_polls(monkeypatch, tag):
    monkeypatch.delattr(os, "pidfd_open")
    command = fault("hang", environment={"FMNES_TEST_TAG": tag}, timeout=3, keep="none")
    evaluator = CommandEvaluator(command, workers=2)
    outcomes = dict(evaluator([task(i, i) for i in range(4)]))
    evaluator.close()
    assert [outcomes[i].value for i in range(4)] == [0, 1, np.inf, 3]
    assert outcomes[2].fault == "timeout"


def test_machine_that_cannot_start_it_loses_the_evaluation():
    """No file descriptors left: not the point's fault."""
    evaluator = CommandEvaluator(shell("echo 1"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(16):
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, hard))
        try:
            ((_, outcome),) = evaluator([task(1)])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if spare == 0:
            assert outcome.status == "lost"
            assert outcome.reason == "could not start the program: Too many open files"
        assert outcome.status in ("lost", "value")
    assert outcome.value == 1
    evaluator.close()


def test_more_programs_than_file_descriptors(tmp_path):
    """They wait for each other, and the run's own files have room."""
    code = """
import resource, sys, fmnes
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
command = fmnes.Command(["/bin/sh", "-c", "sleep 0.1; echo $1", "sh", "{x0}"])
many = dict(population_size=64, workers=64, max_evaluations=64)
found = fmnes.minimize(command, [1.0], 0.5, rng=1, run_dir=sys.argv[1], **many)
print(found.stop_reason.name, found.nfev, found.failures)
"""
    argv = [sys.executable, "-c", code, tmp_path / "run"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("MAX_EVALUATIONS 64 []\n", "")
    assert logged(tmp_path / "run" / "evaluations.sqlite") == ["value"] * 64


def test_results_that_we_cannot_read_are_lost(tmp_path):
    """No file descriptors left for the file itself: not the point's fault."""
    (tmp_path / "results.txt").write_text("1")
    ending = process.ExitReport(0, False, "", "", False)
    command = shell("", "{results}")
    inputs = read_inputs(command)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(StopIteration) as end:  # it asks for no search
            next(outcome_of(command, inputs, ending, tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    outcome = end.value.value
    assert outcome.reason == "could not read results.txt: Too many open files"
    assert outcome.status == "lost"


def test_exit_code_taken_by_somebody_else():
    """A program that ignores its children: nobody knows how they end, so it is not taken for success."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        outcome = run(shell("echo 1; exit 3", keep="none"))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert outcome.status == "lost" and "exit code was taken" in outcome.reason
