"""Supervised workers against real faults: what one evaluation does is never another one's loss."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError, ObjectiveError, UsageError
from fmnes.evaluation import supervision
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.workers.worker import State
from fmnes.outcome import EvaluationId, Outcome
from tests import faults
from tests.batches import Workers, choose_evaluator
from tests.rows import through

TIMEOUT = 3.0
#: Seconds that a loaded machine may take for what is a matter of milliseconds.
PATIENCE = 240.0


def tasks(n: int = 8, second: float = 0.0) -> list[Task]:
    return [Task(np.array([float(i), second, 0.3]), EvaluationId(0, 0, i)) for i in range(n)]


def processes(tag: str) -> list[int]:
    """All living processes that have inherited `tag` in their environment, wherever they have gone."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if tag.encode() in environment:
                found.append(int(entry.name))
    return found


def left_after(
    tag: str, seconds: float, *, but: tuple[int, ...] = (), of: list[str] | None = None
) -> list[int]:
    """Those that are still there: without `but`, and of these alone where `of` is given."""
    end = time.monotonic() + seconds
    while True:
        found = [p for p in processes(tag) if p not in but and (of is None or str(p) in of)]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.02)


@pytest.fixture(scope="module")
def module_tag() -> Iterator[str]:
    tag = f"fmnes-test-{os.getpid()}-module"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FMNES_TEST_TAG", tag)
        yield tag


@pytest.fixture
def tag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Inherited by the workers that the test starts, so that they can be found."""
    tag = f"fmnes-test-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("FMNES_TEST_TAG", tag)
    monkeypatch.setenv("FMNES_TEST_PIDS", str(tmp_path / "pids"))
    return tag


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults") / "pids"


@pytest.fixture(scope="module")
def pool(module_tag: str, notes: Path) -> Iterator[Workers]:
    """One pool for all faults: it must survive them one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FMNES_TEST_PIDS", str(notes))
        workers = Workers(faults.faulty, 2, timeout=TIMEOUT)
    with workers:
        yield workers
    assert left_after(module_tag, 0.0) == []


def both_ready(workers: Workers) -> None:
    """A time is only measured fairly when no worker is still starting."""
    for _ in range(500):
        list(workers(tasks(2)))
        if sum(worker.state is State.IDLE for worker in workers._workers) == 2:
            return
        time.sleep(0.01)
    raise AssertionError("the workers do not start")


@pytest.mark.parametrize("name", faults.FAULTS)
def test_a_fault_costs_one_evaluation(
    name: str,
    pool: Workers,
    notes: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "SUSPENDED_TIMES", 0.0)  # or who stops itself is waited for
    fault = faults.FAULTS[name]
    both_ready(pool)
    batch = tasks(second=list(faults.FAULTS).index(name))
    outcomes = dict(pool(batch))
    bad = outcomes.pop(faults.BAD)
    assert (bad.status, bad.fault) == (fault.status, fault.fault)
    assert bad.reason.startswith(fault.reason)
    assert fault.detail in bad.detail
    assert len(bad.detail) <= 2000
    innocent = [i for i in range(8) if i != faults.BAD]
    assert outcomes == {i: Outcome("value", faults.right(batch[i].x)) for i in innocent}
    if notes.exists():
        assert [pid for pid in map(int, notes.read_text().split()) if Path(f"/proc/{pid}").exists()] == []

    again = dict(pool([task._replace(x=task.x + 10) for task in batch]))
    assert again == {i: Outcome("value", faults.right(batch[i].x + 10)) for i in range(8)}
    assert capfd.readouterr() == ("", "")


# Numbers


@pytest.mark.parametrize("value", [-0.0, 5e-324, 2.2250738585072014e-308, -1e308, 0.1, np.pi])
def test_values_survive_bit_for_bit(value: float, echo: Workers) -> None:
    ((_, outcome),) = echo([Task(np.array([value]), EvaluationId(0, 0, 0))])
    assert outcome.status == "value"
    assert struct.pack("<d", outcome.value) == struct.pack("<d", value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_infeasible(value: float, echo: Workers) -> None:
    ((_, outcome),) = echo([Task(np.array([value]), EvaluationId(0, 0, 0))])
    assert outcome.status == "infeasible"
    assert outcome.reason.startswith("returned")


@pytest.fixture(scope="module")
def echo() -> Iterator[Workers]:
    with Workers(faults.echo, 1) as workers:
        yield workers


def test_points_survive_bit_for_bit_and_stay_as_they_are() -> None:
    small = np.array([-0.0, 5e-324, np.nan, -np.inf, 1e308, 1 / 3])
    large = np.random.default_rng(1).standard_normal(1_000_000)  # more than a socket takes at once
    points = [small, large, large[::-2], small]
    wanted = {i: Outcome("value", faults.digest(x.copy())) for i, x in enumerate(points)}
    kept = [x.copy() for x in points]
    for x in points:
        x.flags.writeable = False
    with Workers(faults.digest, 2, timeout=60) as workers:
        assert dict(workers([Task(x, EvaluationId(0, 0, i)) for i, x in enumerate(points)])) == wanted
    for x, copy in zip(points, kept, strict=True):
        np.testing.assert_array_equal(x, copy)


def test_random_state_of_the_driver_is_its_own() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    with Workers(faults.seeds, 1) as workers:
        list(workers(tasks(3)))
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


# The life of a worker


def test_started_at_first_use_and_reused(tag: str) -> None:
    with Workers(faults.pid, 2) as workers:
        assert processes(tag) == []
        used = {outcome.value for _ in range(5) for _, outcome in workers(tasks())}
        assert len(used) == 2
        assert len(processes(tag)) == 4  # each with its guard
    assert processes(tag) == []


def test_no_more_workers_than_tasks(tag: str) -> None:
    with Workers(faults.echo, 8) as workers:
        assert list(workers([])) == []
        assert len(list(workers(tasks(1)))) == 1
        assert len(processes(tag)) == 2


def test_no_input_and_the_environment_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads than the driver's would mean other last digits than without workers."""
    with Workers(faults.reads_input, 1) as workers:
        assert [o.value for _, o in workers(tasks(1))] == [0.0]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with Workers(faults.threads, 1) as workers:
        assert [o.value for _, o in workers(tasks(1))] == [0.0]
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    with Workers(faults.threads, 1) as workers:
        assert [o.value for _, o in workers(tasks(1))] == [3.0]


def test_what_a_success_leaves_running_is_gone_after_close(tag: str, tmp_path: Path) -> None:
    with Workers(faults.leaves_running, 1) as workers:
        assert [o.status for _, o in workers(tasks(2))] == ["value", "value"]
        left = [Path("/proc", pid) for pid in (tmp_path / "pids").read_text().split()]
        assert [path.exists() for path in left] == [True, True]
    assert [path.exists() for path in left] == [False, False]
    assert processes(tag) == []


def test_exit_handlers_are_run(tag: str, tmp_path: Path) -> None:
    with Workers(faults.has_exit_handler, 1) as workers:
        list(workers(tasks(1)))
        assert not (tmp_path / "pids").exists()
    assert (tmp_path / "pids").exists()


def test_a_death_between_batches_is_nobodys_fault(tag: str, tmp_path: Path) -> None:
    pids, sign = tmp_path / "pids", tmp_path / "pids.end"
    with Workers(faults.dies_later, 2) as workers:
        for _ in range(3):
            assert {outcome.status for _, outcome in workers(tasks(2))} == {"value"}
            sign.touch()
            assert left_after(tag, PATIENCE, of=pids.read_text().split()) == []
            sign.unlink()


def test_a_talkative_interpreter_does_not_drown_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # fills stderr from the start
    with Workers(faults.faulty, 1) as workers:
        outcomes = dict(workers(tasks(3, second=list(faults.FAULTS).index("os._exit(1)"))))
    assert [outcomes[i].reason for i in range(3)] == ["", "", "exited with code 1"]


def test_a_fork_in_the_objective_does_not_answer_twice() -> None:
    with Workers(faults.forks, 2) as workers:
        for _ in range(3):
            assert dict(workers(tasks())) == {
                i: Outcome("value", faults.right(tasks()[i].x)) for i in range(8)
            }


def test_a_pool_outlives_the_thread_that_started_it() -> None:
    with Workers(faults.pid, 1) as workers:
        first: list[tuple[int, Outcome]] = []
        thread = threading.Thread(target=lambda: first.extend(workers(tasks(1))))
        thread.start()
        thread.join()
        time.sleep(0.1)
        assert list(workers(tasks(1))) == first


def test_an_interrupt_of_a_worker_is_ignored() -> None:
    with Workers(faults.pid, 1) as workers:
        ((_, outcome),) = workers(tasks(1))
        os.kill(int(outcome.value), signal.SIGINT)
        assert list(workers(tasks(1))) == [(0, outcome)]


# Suspended processes


def noted(path: Path, count: int = 1) -> list[list[int]]:
    """The first lines that the objectives have noted, as soon as there are that many."""
    end = time.monotonic() + PATIENCE
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < end
        time.sleep(0.01)
    return [list(map(int, line.split())) for line in path.read_text().splitlines()[:count]]


def in_background(act: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_the_time_that_it_was_suspended_is_not_its_own(tag: str, tmp_path: Path) -> None:
    def suspend() -> None:
        ((evaluator, _),) = noted(tmp_path / "pids")
        os.kill(evaluator, signal.SIGSTOP)
        time.sleep(4.5)
        os.kill(evaluator, signal.SIGCONT)

    thread = in_background(suspend)
    with Workers(faults.naps, 1, timeout=4.0) as workers:
        ((_, outcome),) = workers(tasks(1, second=0.5))
    thread.join()
    assert outcome.status == "value", outcome


def test_one_that_stays_suspended_is_timed_out_in_the_end(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "SUSPENDED_TIMES", 2.0)
    thread = in_background(lambda: os.kill(noted(tmp_path / "pids")[0][0], signal.SIGSTOP))
    with Workers(faults.sleeps_and_notes, 1, timeout=2.0) as workers:
        ((_, outcome),) = workers(tasks(1, second=600))
    thread.join()
    assert outcome.fault == "timeout"
    assert processes(tag) == []


SUSPENDED = """
import numpy as np
from tests.batches import Workers
from fmnes.evaluation.evaluator import Task
from fmnes.outcome import EvaluationId
from tests import faults

with Workers(faults.naps, 2, timeout=4.0) as workers:
    for _, outcome in workers([Task(np.array([1.0, 0.6]), EvaluationId(0, 0, i)) for i in range(2)]):
        print(outcome.status)
"""


def test_a_suspended_job_is_not_timed_out(tag: str, tmp_path: Path) -> None:
    """As a batch system suspends it: the driver, the guards and the evaluators."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    with subprocess.Popen(
        [sys.executable, "-c", SUSPENDED], env=environment, stdout=subprocess.PIPE, text=True
    ) as driver:
        noted(tmp_path / "pids", 2)
        job = processes(tag)
        assert len(job) == 5
        for pid in job:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4.5)
        for pid in job:
            os.kill(pid, signal.SIGCONT)
        assert driver.communicate()[0].split() == ["value", "value"]


#: Runs in place of the guard: takes one point as an evaluator does, then ends with an invalid report.
BROKEN_GUARD = """
import os, socket, struct
channel = socket.socket(fileno=0)
stream = channel.makefile("rb")
def read():
    return stream.read(*struct.unpack("<Q", stream.read(8)))
stream.readline()
read()
ready = b"r%d" % os.getpid()
channel.sendall(struct.pack("<Q", len(ready)) + ready)
read()
os.write(2, b"\\n" + {report!r})
"""


@pytest.mark.parametrize(
    "report",
    [
        b"{}",
        b"[]",
        b"7",
        b'{"status": 0, "killed": false}',
        b'{"status": 0, "killed": false, "time": 1.0}',
        b'{"status": "none", "killed": false, "time": 1e9, "output": []}',
        b'{"status": 0, "killed": 1, "time": 1e9, "output": []}',
        b'{"status": 0, "killed": false, "time": "late", "output": []}',
        b'{"status": 0, "killed": false, "time": 1e9, "output": [["x"]]}',
        b'{"status": 0, "killed": false, "time": 1e9, "output": {"1": 2}}',
        b"[" * 50_000,
    ],
    ids=lambda report: report[:60].decode(),
)
def test_an_invalid_report_of_a_guard_is_a_lost_evaluation(
    report: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "guard.py"
    script.write_text(BROKEN_GUARD.format(report=report))
    monkeypatch.setattr("fmnes.evaluation.workers.guard.__file__", str(script))
    with Workers(faults.right, 1) as workers:
        ((_, outcome),) = workers(tasks(1))
    assert (outcome.status, outcome.fault) == ("lost", ""), outcome
    assert outcome.detail.endswith(report.decode()[-100:])


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_guard_that_reports_late_is_not_the_points_fault(
    comes_back: bool, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = PATIENCE if comes_back else 3.0
    monkeypatch.setattr("fmnes.evaluation.workers.worker._REPORT_SECONDS", patience)
    over = threading.Event()

    def end() -> None:
        ((evaluator, guard),) = noted(tmp_path / "pids")
        os.kill(guard, signal.SIGSTOP)
        os.kill(evaluator, signal.SIGTERM)
        if comes_back:
            time.sleep(1.5)
        with suppress(ProcessLookupError):
            while not (comes_back or over.wait(0.001)):
                os.kill(guard, signal.SIGSTOP)  # it is told to go on, and does not
            os.kill(guard, signal.SIGCONT)

    thread = in_background(end)
    with Workers(faults.sleeps_and_notes, 1, timeout=120) as workers:
        ((_, outcome),) = workers(tasks(1, second=100))
    left = left_after(tag, PATIENCE)
    over.set()
    thread.join()
    assert outcome.status == "lost", outcome
    assert comes_back == (outcome.reason == "ended from outside (SIGTERM)")
    assert left == []


@pytest.mark.parametrize("timeout", [0.5, None])
def test_a_stopped_guard_is_not_left_behind(timeout: float | None, tag: str, tmp_path: Path) -> None:
    """Neither when its evaluation is timed out nor when the workers are closed."""
    with Workers(faults.sleeps_and_notes, 1, timeout=timeout) as workers:
        thread = in_background(lambda: os.kill(noted(tmp_path / "pids")[0][1], signal.SIGSTOP))
        ((_, outcome),) = workers(tasks(1, second=600 if timeout else 0.3))
        thread.join()
        assert outcome.fault == ("timeout" if timeout else "")
    assert left_after(tag, PATIENCE) == []


def test_timeouts_and_deadlines_of_many_days() -> None:
    """Longer than what a system call can wait for: 2**31 milliseconds."""
    days = time.monotonic() + 30 * 86_400
    for timeout, deadline in [(1e7, None), (None, days), (1e300, days)]:
        with Workers(faults.echo, 1, timeout=timeout) as workers:
            assert len(list(workers(tasks(2), deadline))) == 2


# File descriptors


@pytest.mark.parametrize(
    "fun",
    [
        faults.leaks,
        faults.leaks_and_wraps,
        faults.leaks_and_blames_the_point,
        faults.leaks_and_returns_nan,
    ],
)
def test_an_evaluator_out_of_files_is_replaced_and_its_point_tried_again(fun: Any) -> None:
    with Workers(fun, 1, timeout=30) as workers:
        assert dict(workers(tasks(16))) == {
            i: Outcome("value", faults.right(task.x)) for i, task in enumerate(tasks(16))
        }


def test_a_point_that_needs_more_files_than_there_are_has_failed(tag: str, tmp_path: Path) -> None:
    with Workers(faults.needs_too_many_files, 1) as workers:
        outcomes = dict(workers(tasks(4)))
    assert [outcomes[i].status for i in range(4)] == ["value", "value", "infeasible", "value"]
    assert outcomes[faults.BAD].reason.startswith("OSError: [Errno 24] Too many open files")
    assert (tmp_path / "pids").read_text().split() == ["0", "1", "2", "2", "3"]


# Ended from outside, or by itself?


RUN: dict[str, Any] = dict(x0=[1.0, 1.0], sigma0=0.5, rng=1, workers=2)


def test_a_simulation_that_ends_its_own_process_group_has_failed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "SETTLE_SECONDS", 0.3)
    result = fmnes.minimize(
        faults.ends_its_process_group, max_evaluations=18, run_dir=tmp_path / "run", **RUN
    )
    assert result.stop_reason is fmnes.StopReason.MAX_EVALUATIONS
    bad = [failure for failure in result.failures if failure.reason == "ended by SIGTERM at each of 3 tries"]
    assert len(bad) == len(result.failures) == 1
    assert result.n_infeasible == bad[0].count > 0


def test_who_is_ended_while_it_waits_blames_no_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch system that ends the processes of a job one by one has come to the driver."""
    monkeypatch.setattr(supervision, "SETTLE_SECONDS", 60.0)
    log = tmp_path / "run" / "evaluations.sqlite"

    def end_the_driver() -> None:
        before, since = 0, time.monotonic()
        while before == 0 or time.monotonic() < since + 1.5:  # the last try is not logged before the wait
            with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as found:
                query = "select count(*) from evaluations where status = 'lost'"
                lost = found.execute(query).fetchone()[0]
                before, since = lost, since if lost == before else time.monotonic()
            assert time.monotonic() < since + PATIENCE
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = in_background(end_the_driver)
    result = fmnes.minimize(
        lambda x: faults.dies(signal.SIGTERM) if x[0] > 1.2 else float(x @ x),
        max_evaluations=12,
        run_dir=tmp_path / "run",
        **RUN,
    )
    thread.join()
    assert result.stop_reason is fmnes.StopReason.INTERRUPTED
    assert result.n_infeasible == 0


def test_a_worker_ended_from_outside_once_costs_nothing(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "SETTLE_SECONDS", 0.0)
    thread = in_background(lambda: os.kill(noted(tmp_path / "pids")[0][0], signal.SIGTERM))
    evaluator = choose_evaluator(faults.sleeps_the_first_time, 3, workers=2, retries=1)
    with closing(evaluator):
        outcomes = dict(evaluator(tasks()))
        thread.join()
        lost = outcomes[faults.BAD]
        assert (lost.status, lost.reason) == ("lost", "ended from outside (SIGTERM)")
        assert lost.fault == ""  # with one, a first generation that was ended would look like a bug
        ((_, outcomes[faults.BAD]),) = evaluator([tasks()[faults.BAD]])
    assert outcomes == {i: Outcome("value", faults.right(task.x)) for i, task in enumerate(tasks())}


def test_what_the_objective_calls_lost_never_becomes_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "SETTLE_SECONDS", 0.0)
    batch = tasks(second=list(faults.FAULTS).index("raises Lost"))
    with closing(choose_evaluator(faults.faulty, 3, workers=2, retries=1)) as evaluator:
        for _ in range(4):
            assert dict(evaluator(batch))[faults.BAD].status == "lost"


# Ending early


def test_closing_the_iterator_kills_what_is_running(tag: str) -> None:
    batch = tasks(3, second=600.0)
    batch[1] = batch[1]._replace(x=np.zeros(2))
    with Workers(faults.sleeps, 2) as workers:
        both_ready(workers)
        outcomes = workers(batch)
        assert next(outcomes) == (1, Outcome("value", 0.1))
        outcomes.close()
        assert len(processes(tag)) == 2  # the worker that was idle stays: its guard and itself
        assert len(list(workers(tasks()))) == 8


def test_the_deadline_ends_the_iterator(tag: str) -> None:
    batch = [*tasks(2), *tasks(4, second=600.0)]
    with Workers(faults.sleeps, 2) as workers:
        both_ready(workers)
        assert {position for position, _ in workers(batch, time.monotonic() + 4)} == {0, 1}
        assert processes(tag) == []
        assert list(workers(batch, time.monotonic() - 1)) == []


def test_one_batch_at_a_time_and_none_after_close() -> None:
    workers = Workers(faults.echo, 1)
    outcomes = workers(tasks(2))
    next(outcomes)
    with pytest.raises(UsageError, match="busy with another batch"):
        next(workers(tasks(2)))
    workers.close()
    assert list(outcomes) == []
    workers.close()
    with pytest.raises(UsageError, match="closed"):
        next(workers(tasks(2)))


DRIVER = """
import os, sys, time
import numpy as np
from tests.batches import Workers
from fmnes.evaluation.evaluator import Task
from fmnes.outcome import EvaluationId
from tests import faults

number = float(list(faults.FAULTS).index(sys.argv[1]))
workers = Workers(faults.faulty, 2)
list(workers([Task(np.array([0.0, 0.0]), EvaluationId(0, 0, 0))] * 8))
fork = os.fork() if sys.argv[2] == "fork" else 0
if sys.argv[2] == "fork" and fork == 0:
    time.sleep(600)  # holds copies of all that the driver has open
    os._exit(0)
print(fork, flush=True)
for _ in workers([Task(np.array([faults.BAD, number]), EvaluationId(0, 0, 0))] * 2):
    pass
"""


@pytest.mark.parametrize(
    ("name", "fork", "number"),
    [
        ("leaves a child and hangs", "", signal.SIGKILL),
        ("hang in C", "", signal.SIGKILL),
        ("hang ignoring SIGTERM", "fork", signal.SIGKILL),
        ("leaves a child and hangs", "", signal.SIGINT),
    ],
)
def test_nothing_outlives_the_driver(name: str, fork: str, number: int, tag: str, tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    # A suite started in the background ignores SIGINT, and its children inherit that.
    restore = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script.write_text(restore + DRIVER)
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    with subprocess.Popen(
        [sys.executable, str(script), name, fork],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as driver:
        assert driver.stdout is not None
        forked = int(driver.stdout.readline())
        if "leaves" in name:
            noted(tmp_path / "pids", 2)
        end = time.monotonic() + PATIENCE
        while len(processes(tag)) < 5:  # the driver, two workers and their guards
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.3)  # the evaluations under way
        send = os.killpg if number == signal.SIGINT else os.kill  # as the terminal does for Ctrl-C
        send(driver.pid, number)
    try:
        assert driver.returncode == -number
        assert left_after(tag, PATIENCE, but=(forked,)) == []
    finally:
        if forked:
            os.kill(forked, signal.SIGKILL)


# What cannot be sent, loaded or started


@pytest.mark.parametrize("timeout", [0, -1.0, np.nan, "2", True])
def test_bad_timeout(timeout: Any) -> None:
    with pytest.raises(ArgumentError, match="timeout: found"):
        Workers(faults.echo, 2, timeout=timeout)


@through("workers", [0, -1, 1.5, None, "2", True])
def test_bad_number_of_workers(workers: Any) -> None:
    with pytest.raises(ArgumentError, match="workers: found"):
        Workers(faults.echo, workers)


def test_not_a_function() -> None:
    with pytest.raises(ArgumentError, match="fun: found 3, wanted a function"):
        Workers(3, 2)  # type: ignore[arg-type]


def test_a_closure() -> None:
    offset = 5.0
    with Workers(lambda x: float(x[0]) + offset, 2) as workers:
        assert {i: o.value for i, o in workers(tasks())} == {i: i + 5.0 for i in range(8)}
    lock = threading.Lock()
    with pytest.raises(ArgumentError, match=r"cannot be sent to a worker process .*lock"):
        Workers(lambda x: lock.locked(), 2)


def run_script(tmp_path: Path, code: str, *arguments: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SCRIPT = """
import sys
import numpy as np
assert "cloudpickle" not in sys.modules
from tests.batches import Workers
from fmnes.evaluation.evaluator import Task
from fmnes.outcome import EvaluationId
assert "cloudpickle" not in sys.modules  # it is loaded when workers start

class Value:
    def __init__(self, x):
        self.value = float(x[0])
    def __float__(self):
        return self.value

def fun(x):
    return Value(x).value

class Callable:
    def __call__(self, x):
        return float(Value(x))

for what in (fun, Callable(), lambda x: fun(x)):
    with Workers(what, 1) as workers:
        print([outcome.value for _, outcome in workers([Task(np.array([7.0]), EvaluationId(0, 0, 0))])])
"""


def test_a_function_of_the_script_itself(tmp_path: Path) -> None:
    assert run_script(tmp_path, SCRIPT) == "[7.0]\n" * 3


POOL_IN_OBJECTIVE = """
import multiprocessing, sys
import numpy as np
from concurrent.futures import ProcessPoolExecutor
from tests.batches import Workers
from fmnes.evaluation.evaluator import Task
from fmnes.outcome import EvaluationId

def square(v):
    return v * v

def simulate(x):
    with ProcessPoolExecutor(2, multiprocessing.get_context(METHOD)) as pool:
        return sum(pool.map(square, x.tolist()))

class Problem:
    def part(self, v):
        return v * v
    def __call__(self, x):
        with ProcessPoolExecutor(2, multiprocessing.get_context(METHOD)) as pool:
            return sum(pool.map(self.part, x.tolist()))

METHOD = "fork"
if __name__ == "__main__":
    METHOD = sys.argv[1]
    for fun in (simulate, Problem()):
        with Workers(fun, 1) as workers:
            for _, outcome in workers([Task(np.array([3.0, 4.0]), EvaluationId(0, 0, 0))]):
                print(outcome.value, outcome.reason)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_objective_of_the_script_that_uses_multiprocessing_itself(method: str, tmp_path: Path) -> None:
    assert run_script(tmp_path, POOL_IN_OBJECTIVE, method) == "25.0 \n25.0 \n"


def test_a_script_without_a_main_guard_does_not_multiply(tmp_path: Path, tag: str) -> None:
    """What its objective starts imports the script, and comes to the line that starts workers."""
    code = POOL_IN_OBJECTIVE.replace('if __name__ == "__main__":', "if True:")
    assert "BrokenProcessPool" in run_script(tmp_path, code, "spawn")
    assert left_after(tag, PATIENCE) == []


def test_a_function_that_the_worker_cannot_import(monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    ghost = ModuleType("ghost_of_fmnes")
    exec("def fun(x): return 0.0", ghost.__dict__)
    monkeypatch.setitem(sys.modules, "ghost_of_fmnes", ghost)
    with Workers(ghost.fun, 2) as workers:
        for _ in range(2):
            with pytest.raises(ObjectiveError, match="No module named 'ghost_of_fmnes'"):
                list(workers(tasks()))
    assert processes(tag) == []


def test_a_function_that_cannot_be_imported_any_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It could be once, so the machine is to blame, and the points are not."""
    module = tmp_path / "vanishing.py"
    module.write_text("import os\ndef fun(x): return os._exit(1) if x[0] == 2 else 0.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    fun = importlib.import_module("vanishing").fun
    try:
        with Workers(fun, 1) as workers:
            outcomes = workers(tasks(5))
            assert [next(outcomes)[1].status for _ in range(2)] == ["value", "value"]
            module.unlink()
            assert next(outcomes)[1].fault == "exit 1"
            rest = [outcome for _, outcome in outcomes]
    finally:
        del sys.modules["vanishing"]
    assert [outcome.status for outcome in rest] == ["lost", "lost"]
    assert "could not be loaded again" in rest[0].reason
    assert "No module named 'vanishing'" in rest[0].detail


def test_no_process_can_be_started() -> None:
    with Workers(faults.echo, 2) as workers:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            outcomes = dict(workers(tasks(3)))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert [outcomes[i].status for i in range(3)] == ["lost"] * 3
        assert "no worker process could be started" in outcomes[0].reason
        assert "Too many open files" in outcomes[0].reason
        assert {outcome.status for _, outcome in workers(tasks(3))} == {"value"}
