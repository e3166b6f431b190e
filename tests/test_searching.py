"""Regular expressions that do not end: they cost one evaluation, and never the driver."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmnes import Command
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.programs import runner
from fmnes.evaluation.programs.matching import Match, Matcher, Search, last_match
from fmnes.evaluation.programs.runner import run_once
from fmnes.outcome import EvaluationId, Outcome
from tests.batches import CommandEvaluator
from tests.rows import through

pytestmark = pytest.mark.usefixtures("own_directory")

#: Does not end on what PRINTS prints, unless x0 is 1.
ENDLESS = r"(?:a+)+$|\d$"
PRINTS = f'if [ "$1" = 1.0 ]; then echo 7; else echo {"a" * 60}!; fi'


def prints(**settings: Any) -> Command:
    value = settings.pop("value", {"regex": ENDLESS})
    return Command(["/bin/sh", "-c", PRINTS, "sh", "{x0}"], value=value, keep="none", **settings)


def task(x: float, slot: int = 0) -> Task:
    return Task(np.array([x]), EvaluationId(0, 0, slot))


def busy_matchers(driver: int) -> set[int]:
    """The processes that search for this driver and have used a processor for a while."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            if entry.name.isdigit() and b"matching.py" in (entry / "cmdline").read_bytes():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == driver and int(fields[11]) > 20:
                    found.add(int(entry.name))
    return found


def wait_until(true: Any, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come to pass"
        time.sleep(0.01)


@pytest.mark.parametrize("where", ["value", "outputs", "file"])
def test_a_search_that_does_not_end_fails_at_the_timeout(where: str) -> None:
    endless = {"regex": "(?:a+)+$"}
    if where == "value":
        command = prints(value=endless, timeout=3)
    elif where == "outputs":
        command = Command(
            ["/bin/sh", "-c", f"echo 3; {PRINTS}", "sh", "{x0}"],
            value={"regex": r"^3$"},
            outputs={"mass": endless},
            timeout=3,
            keep="none",
        )
    else:
        argv = ["/bin/sh", "-c", f"{PRINTS} > out.txt", "sh", "{x0}"]
        command = Command(argv, value={"file": "out.txt", **endless}, timeout=3, keep="none")
    outcome = run_once(command, task(2.0))
    assert (outcome.status, outcome.fault) == ("infeasible", "timeout")
    place = "out.txt" if where == "file" else "the output"
    assert outcome.reason == (
        f"the search for the regular expression '(?:a+)+$' in {place} did not end before the timeout of 3 s"
    )
    if where == "value":
        assert outcome.detail.endswith("aaaa!")


def test_without_a_timeout_a_search_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MOST_SECONDS", 1.0)
    for timeout in (None, 1000.0):
        outcome = run_once(prints(timeout=timeout), task(2.0))
        assert outcome.reason.endswith("in the output did not end within 1 s")


def test_a_program_that_took_nearly_all_its_time_has_its_output_searched() -> None:
    value = {"regex": r"f=(\d)"}
    command = Command(["/bin/sh", "-c", "sleep 1.4; echo f=7"], value=value, timeout=1.5, keep="none")
    outcome = run_once(command, task(2.0))
    assert outcome == Outcome("value", 7.0) or outcome.reason == "timed out after 1.5 s"


def test_others_go_on_beside_a_search_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have a process of their own."""
    monkeypatch.setattr(runner, "MOST_SECONDS", 1e6)
    tasks = [task(2.0), *(task(1.0, slot) for slot in range(1, 30))]
    with closing(CommandEvaluator(prints(), 2)) as evaluator, closing(evaluator(tasks)) as finished:
        found = [next(finished) for _ in tasks[1:]]
        assert sorted(found) == [(i, Outcome("value", 7.0)) for i in range(1, 30)]


def test_one_process_serves_many_evaluations() -> None:
    with closing(CommandEvaluator(prints(timeout=60.0), 1)) as evaluator:
        pids = set()
        for _ in range(5):
            assert [outcome.value for _, outcome in evaluator([task(1.0)])] == [7.0]
            pids |= {matcher.pid for matcher in evaluator._matchers}
        assert len(pids) == 1
        [pid] = pids
        os.kill(pid, signal.SIGKILL)  # while it is idle: the next one has another
        assert [outcome.value for _, outcome in evaluator([task(1.0)])] in ([7.0], [np.inf])
        assert [outcome.value for _, outcome in evaluator([task(1.0)])] == [7.0]
    assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGKILL, "infeasible"), (signal.SIGTERM, "lost"), (signal.SIGSEGV, "infeasible")],
)
def test_a_search_whose_process_is_killed(number: signal.Signals, status: str) -> None:
    with closing(CommandEvaluator(prints(), 1)) as evaluator:

        def kill() -> None:
            wait_until(lambda: any(matcher.began for matcher in evaluator._matchers))
            os.kill(evaluator._matchers[0].pid, number)

        killer = threading.Thread(target=kill)
        killer.start()
        [(_, outcome)] = evaluator([task(2.0)])
        killer.join()
    assert outcome.status == status and outcome.reason.startswith("the search for the regular expression")
    assert number.name in outcome.reason


def test_max_seconds_ends_a_search() -> None:
    with closing(CommandEvaluator(prints(), 1)) as evaluator:
        assert list(evaluator([task(2.0)], time.monotonic() + 1.0)) == []
        assert [outcome.value for _, outcome in evaluator([task(1.0)])] == [7.0]


DRIVER = """
import sys
import fmnes
command = fmnes.Command(["/bin/echo", "a" * 60 + "!"], value={"regex": "(?:a+)+$"})
print("ready", flush=True)
found = fmnes.minimize(command, [0.5], 0.2, rng=1, run_dir=sys.argv[1], workers=int(sys.argv[2]))
print(found.stop_reason.name)
"""


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="no /proc, which lists the processes of the driver")
@pytest.mark.parametrize("how", ["SIGINT", "stop", "SIGKILL"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_driver_whose_search_does_not_end_can_be_ended(how: str, workers: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, run, str(workers)], stdout=subprocess.PIPE, text=True
    )

    wait_until(lambda: busy_matchers(driver.pid))
    pids = busy_matchers(driver.pid)
    if how == "stop":
        done = subprocess.run([sys.executable, "-m", "fmnes", "stop", run], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    else:
        driver.send_signal(getattr(signal, how))
    words, _ = driver.communicate(timeout=240)
    assert words.split()[1:] == {"SIGINT": ["INTERRUPTED"], "stop": ["INTERRUPTED"], "SIGKILL": []}.get(how)
    wait_until(lambda: not any(map(alive, pids)))


def test_a_natural_quadratic_expression_ends() -> None:
    """It would take minutes on a file of blanks."""
    Path("blanks").write_bytes(b" " * 4_000_000)
    value = {"file": "out.txt", "regex": r"\s*CD\s*=\s*(\S+)"}
    command = Command(["/bin/cp", "{here}/blanks", "out.txt"], value=value, timeout=3.0, keep="none")
    assert run_once(command, task(2.0)).reason.startswith("the search for the regular expression")


def test_a_long_text_comes_through_whole() -> None:
    Path("long").write_bytes(b"x = 1 \xff\n" * 1_500_000 + "σ = 2.5 µ\n".encode() + b"y\n" * 1000)
    value = {"file": "out.txt", "regex": r"^σ = (\S+) µ$"}
    command = Command(["/bin/cp", "{here}/long", "out.txt"], value=value, keep="none")
    assert run_once(command, task(2.0)) == Outcome("value", 2.5)


@through(
    ("regex", "text", "found"),
    [
        (r"a(b)?", "ab a", Match("a", 1, None)),
        (r"(.*)", "x\ny\n", Match("y", 1, "y")),
        (r"^\d+$", "1\n22\nx", Match("22", 0, None)),
        ("z", "", None),
        ("\ud800?a", "a\ufffd", Match("a", 0, None)),
        (r"(?s)a.*b", "a\nb" * 50_000, Match("a\nb" * 50_000, 0, None)),
    ],
)
def test_the_process_finds_what_re_finds(regex: str, text: str, found: Match | None) -> None:
    assert last_match(regex, text) == found
    with selectors.DefaultSelector() as selector:
        matcher = Matcher(selector)
        for _ in range(2):
            matcher.begin(Search(regex, text, ""))
            while not matcher.answered():
                assert not matcher.ended
                for key, _ in selector.select():
                    key.data()
            assert matcher.answer() == found
        matcher.close()
        matcher.close()
        assert not selector.get_map()


def test_a_worker_of_a_queue_outlives_a_search(tmp_path: Path) -> None:
    Path("problem.toml").write_text(
        f"""command = ["/bin/sh", "-c", '''{PRINTS}''', "sh", "1"]
[parameters]
x = {{ lower = 0.0, upper = 1.0 }}
[program]
value = {{ regex = '(?:a+)+$' }}
[run]
timeout = 1.0
"""
    )
    worker = subprocess.Popen(
        [sys.executable, "-m", "fmnes", "worker", "queue", "problem.toml", "--quiet", "--idle", "60"]
    )
    driver = subprocess.run(
        [
            sys.executable,
            "-m",
            "fmnes",
            "minimize",
            "problem.toml",
            "--queue",
            "queue",
            "--max-evaluations",
            "3",
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "did not end before the timeout of 1 s" in re.sub(r"\s+", " ", driver.stdout + driver.stderr)
    worker.terminate()
    worker.wait(timeout=240)
