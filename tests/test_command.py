"""External programs: every fault is a real one, and nothing a program starts survives it."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fmnes
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs import process
from fmnes.evaluation.programs.command import Command
from fmnes.evaluation.programs.runner import CommandEvaluator
from fmnes.outcome import Outcome

PROGRAMS = Path(__file__).parent / "programs"
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
    assert not wait_until(lambda: not tagged(value), 2), [cmdline(pid) for pid in tagged(value)]


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


def wait_until(condition, seconds: float) -> bool:
    """True if it did not come true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


def task(x, slot: int = 0) -> Task:
    return Task(np.atleast_1d(np.asarray(x, dtype=float)), 3, slot, 0, 1)


def shell(script: str, *arguments: str, **settings) -> Command:
    """A command of a few words, for braces in `arguments` only."""
    return Command(
        ["/bin/sh", "-c", script.replace("{", "{{").replace("}", "}}"), "sh", *arguments], **settings
    )


def fault(name: str, extra: str = "{results}", **settings) -> Command:
    return Command(["/bin/sh", FAULT, name, "{x0}", extra], **settings)


def run(command: Command, x=2.0) -> Outcome:
    return command.run(task(x))


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


def test_results_file_of_several_lines(tmp_path):
    assert run(shell('printf "step 1\\n2.5\\n" > "$1"; echo 9', "{results}")).value == 2.5
    assert run(shell('printf "FAIL mesh\\n12 cells" > "$1"', "{results}")).reason == "mesh 12 cells"
    assert run(shell(': > "$1"; echo 9', "{results}")).reason == "wrote no number; nothing at all"
    assert run(shell("mkdir results results.txt; echo 9")).value == 9  # not asked for: the program's own


@pytest.mark.parametrize("name", ["results-pipe", "results-link", "results-directory"])
def test_results_file_is_no_plain_file(name):
    outcome = run(fault(name, keep="none"))
    assert (outcome.status, outcome.fault) == ("infeasible", "garbled output")
    assert "root" not in outcome.reason


# How a program ends


@pytest.mark.parametrize(
    ("name", "reason", "fault_name"),
    [
        ("exit", "exited with code 2", "exit 2"),
        ("segfault", "died: SIGSEGV", "SIGSEGV"),
        ("shell-segfault", "exited with code 139 (a shell's word for SIGSEGV)", "exit 139"),
        ("sigkill", "died: SIGKILL (out of memory?)", "SIGKILL"),
        ("hang", "timed out after 0.3 s", "timeout"),
        ("hang-in-child", "timed out after 0.3 s", "timeout"),
        ("stubborn", "timed out after 0.3 s", "timeout"),
        ("endless", "timed out after 0.3 s", "timeout"),
        ("nan", "returned NaN", ""),
        ("inf", "returned -inf", ""),
        ("nothing", "printed no number; nothing at all", "garbled output"),
        ("garbled", "printed no number; last line: 'segmentation of the mesh: done'", "garbled output"),
        ("escape", "printed no number; last line: 'bad ?[2J line'", "garbled output"),
        ("binary", "printed no number; last line: ", "garbled output"),
        ("fail", "solver diverged", ""),
        ("daemon-with-stdout", "exited with code 3", "exit 3"),
        ("tempfail", "exited with code 75", "lost"),
        ("grandchild", "4.5", "value"),
        ("daemon", "5.5", "value"),
    ],
)
def test_one_bad_program_in_a_batch(name, reason, fault_name, segfault, tag):
    """The other seven are right, and no process is left."""
    timeout = 0.3 if "timed out" in reason else 20
    command = fault(name, segfault, environment={"FMNES_TEST_TAG": tag}, timeout=timeout, keep="none")
    evaluator = CommandEvaluator(command, workers=2)
    start = time.monotonic()
    outcomes = dict(evaluator([task(i, i) for i in range(8)]))
    assert time.monotonic() - start < 5
    assert not wait_until(lambda: not tagged(tag), 0.5)  # at the end of the batch, not only of the evaluator
    evaluator.close()
    bad = outcomes.pop(2)
    assert outcomes == {i: Outcome("value", float(i)) for i in (0, 1, 3, 4, 5, 6, 7)}
    if fault_name == "value":
        assert bad == Outcome("value", float(reason))
    elif fault_name == "lost":
        assert (bad.status, bad.reason, bad.detail) == ("lost", reason, "no licence")
    else:
        assert (bad.status, bad.fault) == ("infeasible", fault_name)
        assert bad.reason.startswith(reason)


def test_killed_within_a_second_of_the_timeout(tag):
    for name in ("hang", "stubborn"):
        start = time.monotonic()
        outcome = run(fault(name, timeout=0.5, environment={"FMNES_TEST_TAG": tag}, keep="none"))
        assert outcome.fault == "timeout"
        assert 0.5 <= time.monotonic() - start < 1.5
    assert outcome.detail == "will not go"


def test_exit_codes_are_the_users():
    assert run(shell("echo 1; exit 3", success_exit_codes=[0, 3])).value == 1
    assert run(shell("echo 1; exit 4", lost_exit_codes=[4, 5])).status == "lost"
    assert run(shell("echo nan; exit 1", keep="none")).fault == "exit 1"
    assert run(shell("echo 1; exit 75", lost_exit_codes=[], keep="none")).reason == "exited with code 75"


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
    assert len(kept) == 4 and set(tmp_path.iterdir()) == set(kept[1:])
    assert run(command, 5.0).status == "infeasible"  # by hand: they count together
    assert len(list(tmp_path.iterdir())) == 3 and not kept[1].exists()
    assert run(replace(command, max_kept=0), 5.0).detail == ""


def test_default_directory_leaves_nothing_after_success(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("fmnes.evaluation.programs.runner._workspace", unshared)
    assert run(shell("echo 1")).value == 1
    assert not list(tmp_path.iterdir())
    assert run(shell("echo 1; exit 75")).status == "lost"
    assert len(list(tmp_path.glob("fmnes-*/g3-s0-a1-*/stdout.txt"))) == 1


def unshared(directory, max_kept, process):
    from fmnes.evaluation.programs.runner import _Workspace

    return _Workspace(directory, max_kept)


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


# What is wrong before anything is spent


@pytest.mark.parametrize(
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
        ({"argv": ["sim", "{"]}, "argv: found a lonely '{'"),
        ({"argv": ["sim", "a}"]}, "argv: found a lonely '}'"),
        ({"names": ["a", "a"]}, "names: found"),
        ({"names": ["a", "params"]}, "names: found"),
        ({"names": "ab"}, "names: found one string"),
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
        Command(**{"argv": ["/bin/echo", "1"], **settings})


def test_program_that_cannot_run(tmp_path, monkeypatch):
    def refused(name, message):
        command = Command([name])
        for attempt in (command.check, lambda: command([0]), lambda: CommandEvaluator(command)):
            with pytest.raises(fmnes.ArgumentError, match=message):
                attempt()

    monkeypatch.chdir(tmp_path)
    script = tmp_path / "sim"
    refused("./sim", "found no program './sim'")
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
        Command(["/bin/echo"], directory="/no/such/place").check()


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
        shell("echo 1", "{x2}").check(2)
    with pytest.raises(fmnes.ArgumentError, match="found 2 for a point of 3"):
        shell("echo 1", names=["a", "b"])([1, 2, 3])
    with pytest.raises(fmnes.ArgumentError, match="x: found"):
        shell("echo 1")([1, np.nan])
    shell("echo 1", "{x2}").check(3)


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
    start = time.monotonic()
    outcomes.close()
    assert time.monotonic() - start < 1  # all at once
    assert not wait_until(lambda: not tagged(tag), 0.5)
    assert dict(evaluator([task(1)])) == {0: Outcome("value", 1.0)}  # it still works
    evaluator.close()


def test_deadline_ends_the_batch(tag, tmp_path):
    command = fault("hang", environment={"FMNES_TEST_TAG": tag}, directory=tmp_path)
    evaluator = CommandEvaluator(command, workers=2)
    start = time.monotonic()
    outcomes = dict(evaluator([task(2, 0), task(1, 1), task(2, 2), task(3, 3)], start + 0.5))
    assert time.monotonic() - start < 1.5
    assert outcomes == {1: Outcome("value", 1.0)}
    assert dict(evaluator([task(1)], time.monotonic() - 1)) == {}
    evaluator.close()
    assert not list(tmp_path.iterdir())
    assert command.run(task(2), time.monotonic() + 0.1).status == "lost"


def test_ctrl_c_passes_and_kills(tag):
    def interrupt(*_):
        raise KeyboardInterrupt

    evaluator = CommandEvaluator(fault("hang-in-child", environment={"FMNES_TEST_TAG": tag}, keep="none"))
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            list(evaluator([task(2)]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        evaluator.close()
    assert not wait_until(lambda: not tagged(tag), 0.5)


@pytest.mark.parametrize("name", ["hang-in-child", "stubborn", "grandchild", "daemon"])
def test_kill_9_of_the_driver_leaves_no_process(name, tag, tmp_path):
    argv = [sys.executable, str(PROGRAMS / "driver.py"), tag, name]
    driver = subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert not wait_until(lambda: len(tagged(tag)) >= 2, 20), driver.poll()
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    driver.kill()
    driver.wait()
    assert not wait_until(lambda: not tagged(tag), 3), [cmdline(pid) for pid in tagged(tag)]
    assert not wait_until(lambda: not any(is_alive(pid) for pid in children), 3)  # nor the guard


def test_without_pidfd_it_polls(monkeypatch, tag):
    monkeypatch.delattr(os, "pidfd_open")
    command = fault("hang", environment={"FMNES_TEST_TAG": tag}, timeout=0.3, keep="none")
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


def test_exit_code_taken_by_somebody_else():
    """A program that ignores its children: nobody knows how they end, so it is not taken for success."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        outcome = run(shell("echo 1; exit 3", keep="none"))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert outcome.status == "lost" and "exit code was taken" in outcome.reason
