"""A queue of files: real workers in processes of their own, killed, suspended, refused and told to stop."""

from __future__ import annotations

import copy
import functools
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError, FileQueue, Result, RunError, StopReason, minimize
from fmnes.cli import app
from fmnes.cli.messages import LiveDisplay
from fmnes.evaluation import supervision
from fmnes.evaluation.evaluator import Evaluator, Task
from fmnes.evaluation.queue import driver as boards
from fmnes.evaluation.queue import files
from fmnes.evaluation.queue.driver import VANISHED, LiveWorkers, QueueDriver
from fmnes.evaluation.queue.file_queue import differences, fingerprint
from fmnes.evaluation.queue.files import (
    Job,
    Name,
    dump_answer,
    dump_task,
    load_answer,
    load_task,
    new_worker,
    read_claim,
    read_job,
    read_task,
    write_job,
)
from fmnes.evaluation.queue.worker import Claims
from fmnes.evaluation.supervision import AwakeClock
from fmnes.outcome import EvaluationId, Outcome, infeasible
from fmnes.space import Space
from tests import queue_model
from tests.batches import Batches

ROOT = Path(__file__).parents[2]
#: In which a worker, on a machine that is busy with other tests, has given a sign of life.
LEASE = 8.0
MODEL = "tests.queue_model"


def wait_until(true: Callable[[], Any], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come to pass"
        time.sleep(0.01)


class Crowd:
    """Workers of one queue, real processes."""

    def __init__(self, queue: Path, calls: Path) -> None:
        self.queue, self.calls = queue, calls
        self.all: list[subprocess.Popen[str]] = []

    def start(
        self, function: str, n: int = 1, *, idle: float | None = None, sleep: float = 0.0
    ) -> subprocess.Popen[str]:
        """Without the command line, which takes its time."""
        code = (
            f"from pathlib import Path; from fmnes.evaluation.queue.worker import work; import {MODEL} as m; "
            f"print(*work(Path({str(self.queue)!r}), m.{function}, idle={idle}, say=print))"
        )
        environment = {**os.environ, "CALLS": str(self.calls), "SLEEP": str(sleep)}
        for _ in range(n):
            self.all.append(
                subprocess.Popen(
                    [sys.executable, "-c", code],
                    cwd=ROOT,
                    env={**environment, "OPENBLAS_NUM_THREADS": "1"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        return self.all[-1]

    def claims(self) -> list[str]:
        return [name for name in listed(self.queue / files.CLAIMED) if read_claim(name)]

    def holding(self) -> list[subprocess.Popen[str]]:
        """Those with a point in their hands."""
        pids = {int(name.split("-")[-2]) for name in self.claims()}
        return [worker for worker in self.all if worker.pid in pids and worker.poll() is None]

    def counted(self) -> Counter[str]:
        """How often each point was evaluated."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return Counter(line.split()[0] for line in lines)


def listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    crowd = Crowd(tmp_path / "queue", tmp_path / "calls")
    yield crowd
    for worker in crowd.all:
        worker.send_signal(signal.SIGCONT)
        worker.kill()
        worker.wait()
        assert worker.stdout
        worker.stdout.close()


@contextmanager
def evaluator(queue: FileQueue, fun: Any, d: int = 2, **options: Any) -> Iterator[Evaluator]:
    given: Any = {"timeout": None, "retries": 2, "kept_in": None, "space": None, **options}
    with closing(queue.make_evaluator(fun, d, **given)) as made:
        yield Batches(made)


def tasks(*firsts: float, d: int = 2) -> list[Task]:
    return [
        Task(np.array([first] + [0.5] * (d - 1)), EvaluationId(0, 0, slot))
        for slot, first in enumerate(firsts)
    ]


def same(a: Result, b: Result) -> None:
    assert a.x is not None and a.x.tolist() == b.x.tolist()
    assert (a.fun, a.nfev, a.n_infeasible, a.message) == (b.fun, b.nfev, b.n_infeasible, b.message)
    assert a.x_mean.tolist() == b.x_mean.tolist()
    assert [f.count for f in a.failures] == [f.count for f in b.failures]


# -- a run --------------------------------------------------------------------------------------------------

SEARCH: dict[str, Any] = {"population_size": 20, "max_evaluations": 200, "rng": 5, "max_seconds": 600}
START = np.array([1.0, -0.5, 0.8])


def test_ten_workers_some_killed_and_some_suspended_give_the_serial_run(crowd: Crowd) -> None:
    crowd.start("bumpy", 10, sleep=0.1)
    done = threading.Event()
    killed: list[subprocess.Popen[str]] = []
    suspended: list[subprocess.Popen[str]] = []

    def havoc() -> None:
        wait_until(lambda: len(crowd.holding()) >= 6 or done.is_set())
        for victims, number in (
            (killed, signal.SIGKILL),
            (suspended, signal.SIGSTOP),
            (killed, signal.SIGKILL),
        ):
            for _ in range(2 if victims is suspended else 1):
                wait_until(lambda: set(crowd.holding()) - {*killed, *suspended} or done.is_set())
                for victim in [w for w in crowd.holding() if w not in killed and w not in suspended][:1]:
                    victim.send_signal(number)
                    victims.append(victim)
        done.wait(LEASE + 1.5)
        for worker in suspended:
            worker.send_signal(signal.SIGCONT)

    trouble = threading.Thread(target=havoc, daemon=True)
    trouble.start()
    try:
        found = minimize(
            queue_model.bumpy, START, 0.6, executor=FileQueue(crowd.queue, lease=LEASE), **SEARCH
        )
    finally:
        done.set()
        trouble.join()
    same(found, minimize(queue_model.bumpy, START, 0.6, **SEARCH))
    assert len(killed) == 2 and len(suspended) == 2
    made = crowd.counted()
    assert len(made) == found.nfev
    assert made.total() - len(made) <= len(killed) + len(suspended)
    # Nothing is left, and those who live have nothing in their hands.
    for folder in (files.OPEN, files.CLAIMED, files.ANSWERS):
        assert listed(crowd.queue / folder) == []


DRIVER = """
import sys, fmnes
from tests import queue_model
from tests.real import test_file_queue as t
fmnes.minimize(queue_model.bumpy, t.START, 0.6, run_dir=sys.argv[2],
    executor=fmnes.FileQueue(sys.argv[1], lease=t.LEASE), **t.SEARCH)
"""


def test_after_a_killed_driver_no_evaluation_is_made_again(crowd: Crowd, tmp_path: Path) -> None:
    crowd.start("bumpy", 3, sleep=0.05)
    run = tmp_path / "run"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(crowd.queue), str(run)], cwd=ROOT)
    wait_until(lambda: crowd.counted().total() >= 50)
    driver.kill()
    driver.wait()
    # Its workers do what it has left; their answers wait for the next driver.
    wait_until(lambda: not listed(crowd.queue / files.OPEN) and not crowd.claims())
    assert listed(crowd.queue / files.ANSWERS)
    found = fmnes.resume(run, queue_model.bumpy, executor=FileQueue(crowd.queue, lease=LEASE))
    same(found, minimize(queue_model.bumpy, START, 0.6, **SEARCH))
    assert set(crowd.counted().values()) == {1} and crowd.counted().total() == found.nfev


def test_a_new_run_takes_no_answer_of_an_old_one(tmp_path: Path) -> None:
    """The same points, the same names: but what they called may have changed."""
    queue = FileQueue(tmp_path / "queue", lease=1)
    with evaluator(queue, queue_model.other, kept_in=str(tmp_path / "run" / "kept")) as first:
        batch = first(tasks(1.0), time.monotonic() + 0.2)
        assert list(batch) == []
    made = fake_board(queue.directory, run=str(tmp_path.resolve() / "run"))
    made.submit(KEY, X)
    answer(queue.directory, claim(queue.directory, new_worker()), 7.0)
    del made  # killed, so to speak
    with evaluator(queue, queue_model.other, kept_in=str(tmp_path / "run" / "kept")) as second:
        assert listed(queue.directory / files.ANSWERS) == []
        assert list(second(tasks(1.0), time.monotonic() + 0.2)) == []


def test_a_second_driver_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    queue = FileQueue(tmp_path / "queue")
    with evaluator(queue, queue_model.other):
        for second in (queue, FileQueue(tmp_path / "queue")):
            with pytest.raises(RunError, match=f"in use by process {os.getpid()} on"):
                minimize(queue_model.other, [1.0, 1.0], 0.1, executor=second, max_seconds=1)
    with evaluator(queue, queue_model.other):
        pass


def test_a_driver_that_finds_another_where_locks_do_nothing_stops(tmp_path: Path) -> None:
    one = fake_board(tmp_path / "queue")
    one.submit((0, 0, 0, 0, 0), np.zeros(2))
    fake_board(tmp_path / "queue")
    with pytest.raises(RunError, match="another driver"):
        for _ in range(100):
            one.poll()
            time.sleep(0.05)
    before = (tmp_path / "queue" / files.JOB).read_bytes()
    one.close()
    assert (tmp_path / "queue" / files.JOB).read_bytes() == before


def test_named_parameters_come_to_the_workers_by_name(crowd: Crowd) -> None:
    crowd.start("named", 2)
    space = {"width": fmnes.Real(0.1, 10, log=True), "layers": fmnes.Integer(1, 12)}
    found = minimize(
        queue_model.named, space, rng=2, max_evaluations=60, max_seconds=600, executor=FileQueue(crowd.queue)
    )
    assert found.x == minimize(queue_model.named, space, rng=2, max_evaluations=60).x


def test_without_any_worker_the_run_waits_and_says_what_to_type(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(boards, "ALONE_SECONDS", 0.1)
    queue = FileQueue(tmp_path / "my queue", lease=1)
    assert queue.n_workers() is None

    def waits(heard: Callable[[], Any], **options: Any) -> Any:
        """Wait for workers until the message has come, longer each time on a busy machine."""
        for seconds in (1.5, 15, 150):
            found = minimize(
                queue_model.other, [1.0, 1.0], 0.1, executor=queue, max_seconds=seconds, **options
            )
            assert found.stop_reason is StopReason.MAX_SECONDS
            if heard_now := heard():
                return heard_now
        raise AssertionError("no message")

    def warned() -> list[str]:
        return [record.getMessage() for record in caplog.records if "no worker" in record.getMessage()]

    with caplog.at_level(logging.WARNING, "fmnes"):
        (said,) = waits(warned)
    assert queue.n_workers() == 0
    assert f"fmnes worker '{tmp_path}/my queue' --function {MODEL}:other" in said
    for folder in (files.OPEN, files.CLAIMED, files.ANSWERS):
        assert listed(queue.directory / folder) == []
    assert capsys.readouterr() == ("", "")
    # The progress line and the live display say it, too.
    assert waits(lambda: "no worker is there" in capsys.readouterr().err, progress=True)
    with LiveDisplay():
        assert waits(lambda: "no worker is there" in capsys.readouterr().err)
    minimize(queue_model.other, [1.0, 1.0], 0.1, executor=queue, max_seconds=2.0)
    assert capsys.readouterr() == ("", "")


def test_a_queue_that_vanishes_stops_the_run_which_can_be_resumed(tmp_path: Path, crowd: Crowd) -> None:
    import shutil

    def destroy(view: Any) -> None:
        if view.generation == 2:
            shutil.move(crowd.queue, tmp_path / "moved")

    crowd.start("bumpy", 2)
    options: Any = {"run_dir": tmp_path / "run", "callback": destroy, **SEARCH}
    found = minimize(queue_model.bumpy, START, 0.6, executor=FileQueue(crowd.queue), **options)
    assert found.stop_reason is StopReason.STORAGE and "queue" in found.message
    found = fmnes.resume(tmp_path / "run", queue_model.bumpy)
    same(found, minimize(queue_model.bumpy, START, 0.6, **SEARCH))


FULL_QUEUE = """
import sys, threading, time
from pathlib import Path
import fmnes
from tests import queue_model
from tests.real.test_file_queue import Crowd, wait_until
disk, run = Path(sys.argv[1]), Path(sys.argv[2])
crowd = Crowd(disk / "queue", run.parent / "calls")
worker = crowd.start("bumpy", sleep=0.02)
def fill():
    wait_until(lambda: crowd.counted().total() > 30)
    with open(disk / "big", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
threading.Thread(target=fill, daemon=True).start()
options = dict(population_size=20, max_evaluations=200, rng=5)
queue = fmnes.FileQueue(disk / "queue", lease=8)
found = fmnes.minimize(queue_model.bumpy, [1.0, -0.5, 0.8], 0.6, run_dir=run, executor=queue, **options)
(disk / "big").unlink()
print(found.stop_reason.name, found.message)
worker.kill()
worker.wait()
found = fmnes.resume(run, queue_model.bumpy)
plain = fmnes.minimize(queue_model.bumpy, [1.0, -0.5, 0.8], 0.6, **options)
print(found.stop_reason.name, found.fun == plain.fun)
"""


FULL_BEFORE_IT = """
import sys
from pathlib import Path
import fmnes
from fmnes.evaluation.queue.worker import work
from tests import queue_model
from tests.real.test_file_queue import evaluator
disk = Path(sys.argv[1])
with evaluator(fmnes.FileQueue(disk / "queue"), queue_model.other):
    try:
        with open(disk / "big", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        pass
    try:
        work(disk / "queue", queue_model.other, idle=60)
    except fmnes.RunError as error:
        print(error)
"""


def test_a_worker_that_finds_a_full_disk_says_so(tmp_path: Path, with_small_disk: list[str]) -> None:
    command = [*with_small_disk, sys.executable, "-c", FULL_BEFORE_IT, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    wanted = f"{tmp_path}/queue: the worker could not be registered ([Errno 28] No space left on device)"
    assert done.stdout.strip() == wanted, done


def test_a_full_disk_stops_a_run_that_waits_for_answers(tmp_path: Path, with_small_disk: list[str]) -> None:
    """The driver itself has nothing to write: all points of its generation are handed out."""
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [*with_small_disk, sys.executable, "-c", FULL_QUEUE, tmp_path, f"{elsewhere}/run"],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=ROOT,
        )
    first, second = done.stdout.splitlines() or [done.stderr] * 2
    assert first.startswith("STORAGE ") and "No space left on device" in first, done
    assert second == "MAX_EVALUATIONS True"


def test_a_probe_leaves_nothing_and_fails_where_nothing_can_be_written(tmp_path: Path) -> None:
    files.probe(tmp_path, 65_536)
    assert listed(tmp_path) == []
    with pytest.raises(OSError):
        files.probe(tmp_path / "gone", 1)


# -- what happens to a point --------------------------------------------------------------------------------


def test_whatever_a_point_does_is_told_and_its_worker_lives_on(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "SETTLE_SECONDS", 0.1)
    worker = crowd.start("troubled")
    with evaluator(FileQueue(crowd.queue), queue_model.troubled, timeout=3.0, retries=1) as evaluate:
        found = dict(evaluate(tasks(0.1, 1, 2, 3, 4, 5, 6, 7, 8), time.monotonic() + 240))
        by_sigterm = [task._replace(id=task.id._replace(attempt=1)) for task in tasks(*[0.1] * 8, 8)[8:]]
        found[9] = dict(evaluate(by_sigterm))[0]
    got = {i: (o.status, o.fault) for i, o in found.items()}
    assert got == {
        0: ("value", ""),
        1: ("infeasible", "SIGSEGV"),
        2: ("infeasible", "timeout"),
        3: ("infeasible", "ValueError"),
        4: ("infeasible", "SystemExit"),
        5: ("infeasible", ""),
        6: ("lost", ""),
        7: ("value", ""),
        8: ("lost", ""),
        9: ("infeasible", "SIGTERM"),  # at each of its tries, alone, with its worker well
    }
    assert found[0].value == 0.1 and "about to crash" in found[1].detail and "mesh" in found[3].detail
    assert found[2].reason == "timed out after 3 s" and found[6].reason == "no licence"
    assert found[7].outputs == {"mass": float("inf"), "note": "ü"} and found[7].value == 7.5
    assert found[0].seconds > 0 and found[2].seconds > 0
    assert worker.poll() is None


def test_a_worker_that_is_told_to_end_gives_its_point_back_at_once(crowd: Crowd) -> None:
    """With a lease that never ends."""
    first = crowd.start("once_endless")
    with evaluator(FileQueue(crowd.queue, lease=3600), queue_model.once_endless) as evaluate:
        found: list[tuple[int, Outcome]] = []
        thread = threading.Thread(target=lambda: found.extend(evaluate(tasks(-3.0))), daemon=True)
        thread.start()
        marker = Path(f"{crowd.calls}.3.0")
        wait_until(lambda: marker.exists() and marker.read_text())
        first.terminate()
        text = first.communicate(timeout=300)[0]
        assert "0 " in text and "ended by SIGTERM" in text
        assert len(listed(crowd.queue / files.OPEN)) == 1 and not listed(crowd.queue / files.WORKERS)
        with pytest.raises(ProcessLookupError):
            os.kill(int(marker.read_text()), 0)
        crowd.start("once_endless")
        thread.join(120)
    assert found == [(0, Outcome("value", -3.0))]


def test_a_point_that_nobody_wants_any_more_is_stopped(crowd: Crowd) -> None:
    crowd.start("once_endless", 2)
    marker = Path(f"{crowd.calls}.3.0")
    with evaluator(FileQueue(crowd.queue, lease=LEASE), queue_model.once_endless) as evaluate:
        # One has an answer, and then the consumer has enough.
        with closing(evaluate(tasks(1.0, -3.0))) as batch:
            assert next(batch)[0] == 0
            wait_until(marker.exists)
        assert not crowd.claims()
        pid = int(marker.read_text())
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
        assert dict(evaluate(tasks(2.0)))[0].value == 2.0
        # The time is up.
        assert list(evaluate(tasks(-4.0), time.monotonic() + 1.0)) == []
        assert not crowd.claims() and not listed(crowd.queue / files.OPEN)
    assert [worker.poll() for worker in crowd.all] == [None, None]


# -- the board by itself: the files of workers are made by hand ---------------------------------------------

KEY = (0, 0, 0, 0, 0)
X = np.array([1.0, 0.5])


def fake_board(directory: Path, lease: float = 0.3, run: str = "run", **options: Any) -> QueueDriver:
    files.make_queue(directory)
    clock = AwakeClock()
    job = Job(fingerprint(queue_model.other), 2, None, lease, None, run=run, driver=new_worker())
    return QueueDriver(directory, job, LiveWorkers(directory, lease, clock), clock, **options)


def claim(directory: Path, worker: str) -> Name:
    """As a worker does, and without a sign of life."""
    (name,) = [read_task(text) for text in listed(directory / files.OPEN)]
    assert name
    claimed = name._replace(worker=worker)
    os.rename(directory / files.OPEN / str(name), directory / files.CLAIMED / str(claimed))
    return claimed


def answer(directory: Path, name: Name, value: float, x: Any = X, **changes: Any) -> None:
    job = read_job(directory)
    assert job
    text = json.loads(dump_answer(job.id, name.key, x, Outcome("value", value))) | changes
    text["value"] = text.pop("told", text["value"])
    files.write(directory / files.ANSWERS, str(name), json.dumps(text).encode())
    files.remove(directory / files.CLAIMED / str(name))


def polled(board: QueueDriver, seconds: float = 30.0) -> list[Any]:
    """What comes next."""
    end = time.monotonic() + seconds
    while not (found := board.poll()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def handed_out(board: QueueDriver, directory: Path, handout: int) -> None:
    def again() -> bool:
        assert board.poll() == []
        return listed(directory / files.OPEN) == [str(Name(KEY, handout))]

    wait_until(again)


def test_a_late_answer_counts_if_it_is_the_first_and_is_dropped_if_not(tmp_path: Path) -> None:
    board = fake_board(tmp_path)
    board.submit(KEY, X)
    first = claim(tmp_path, new_worker())
    handed_out(board, tmp_path, 1)
    assert listed(tmp_path / files.CLAIMED) == []
    second = claim(tmp_path, new_worker())
    answer(tmp_path, first, 7.0)  # it was only suspended
    assert polled(board) == [(KEY, Outcome("value", 7.0))]
    board.forget(KEY)
    answer(tmp_path, second, 8.0)
    board.submit((0, 1, 0, 0, 0), X)
    assert polled(board, 0.4) == []
    assert listed(tmp_path / files.ANSWERS) == [] and len(listed(tmp_path / files.OPEN)) == 1


def test_who_works_on_a_point_that_has_an_answer_is_told_to_stop(tmp_path: Path) -> None:
    board = fake_board(tmp_path)
    board.submit(KEY, X)
    first = claim(tmp_path, new_worker())
    handed_out(board, tmp_path, 1)
    claim(tmp_path, new_worker())
    answer(tmp_path, first, 7.0)
    assert polled(board)
    board.forget(KEY)
    polled(board, 0.4)
    assert listed(tmp_path / files.CLAIMED) == []


def test_signs_of_life_keep_a_claim_for_ever(tmp_path: Path) -> None:
    board = fake_board(tmp_path)
    board.submit(KEY, X)
    name = claim(tmp_path, new_worker())
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert board.poll() == []
        # By a clock that has nothing to do with ours, and goes backwards.
        os.utime(tmp_path / files.CLAIMED / str(name), (1e6 - time.monotonic(), 1e6 - time.monotonic()))
        time.sleep(0.05)
    assert listed(tmp_path / files.CLAIMED) == [str(name)]


@pytest.mark.parametrize(
    "changes",
    [
        {"x": np.array([1.0, 0.25])},
        {"job": "another"},
        {"key": [0, 0, 1, 0, 0]},
        {"told": "nan"},
        {"told": "1.5 or so"},
        {"told": None},
        {"status": "excellent"},
        {"status": None},
    ],
    ids=str,
)
def test_an_answer_to_another_question_is_no_answer(tmp_path: Path, changes: dict[str, Any]) -> None:
    board = fake_board(tmp_path, lease=600)
    board.submit(KEY, X)
    answer(tmp_path, claim(tmp_path, new_worker()), 7.0, **changes)
    assert board.poll() == []
    assert listed(tmp_path / files.OPEN) == [str(Name(KEY, 1))]
    answer(tmp_path, claim(tmp_path, new_worker()), 7.0)
    assert polled(board) == [(KEY, Outcome("value", 7.0))]


def test_a_point_that_takes_its_workers_down_is_lost_in_the_end_and_never_failed(tmp_path: Path) -> None:
    board = fake_board(tmp_path)
    board.submit(KEY, X)
    for n in range(VANISHED):
        handed_out(board, tmp_path, n)
        claim(tmp_path, new_worker())
    ((key, outcome),) = polled(board)
    assert key == KEY and (outcome.status, outcome.fault) == ("lost", "")
    assert f"{VANISHED} workers vanished" in outcome.reason
    assert listed(tmp_path / files.OPEN) == [] and listed(tmp_path / files.CLAIMED) == []


def test_one_worker_may_be_suspended_many_times(tmp_path: Path) -> None:
    board, worker = fake_board(tmp_path), new_worker()
    board.submit(KEY, X)
    for n in range(VANISHED + 1):
        handed_out(board, tmp_path, n)
        name = claim(tmp_path, worker)
    answer(tmp_path, name, 7.0)
    assert polled(board) == [(KEY, Outcome("value", 7.0))]


def test_a_task_that_somebody_has_deleted_is_handed_out_again(tmp_path: Path) -> None:
    board = fake_board(tmp_path)
    board.submit(KEY, X)
    os.unlink(tmp_path / files.OPEN / str(Name(KEY, 0)))
    handed_out(board, tmp_path, 1)


def test_while_the_driver_sleeps_no_lease_runs_out(tmp_path: Path) -> None:
    board = fake_board(tmp_path)
    board.submit(KEY, X)
    name = claim(tmp_path, new_worker())
    assert board.poll() == []
    time.sleep(1.0)
    assert board.poll() == [] and listed(tmp_path / files.CLAIMED) == [str(name)]


def test_what_a_killed_driver_has_left_is_used_by_the_next_one_of_its_run(tmp_path: Path) -> None:
    killed = fake_board(tmp_path, lease=600)
    keys = [(0, 0, slot, 0, 0) for slot in range(4)]
    for slot, key in enumerate(keys):
        killed.submit(key, X + slot)
    worker = new_worker()
    for slot in (0, 1, 2):
        os.rename(
            tmp_path / files.OPEN / str(Name(keys[slot], 0)),
            tmp_path / files.CLAIMED / str(Name(keys[slot], 0, worker)),
        )
    answer(tmp_path, Name(keys[0], 0, worker), 7.0, X)
    next_one = fake_board(tmp_path, lease=600, resumed=True)
    assert listed(tmp_path / files.OPEN) == []
    next_one.submit(keys[0], X)
    next_one.submit(keys[1], X + 1)
    next_one.submit(keys[2], X + 0.125)  # another point of the same name
    next_one.submit(keys[3], X + 3)
    assert sorted(listed(tmp_path / files.OPEN)) == [str(Name(key, 0)) for key in keys[2:]]
    assert listed(tmp_path / files.CLAIMED) == [str(Name(keys[1], 0, worker))]
    assert polled(next_one) == [(keys[0], Outcome("value", 7.0))]
    next_one.forget(keys[0])
    answer(tmp_path, Name(keys[1], 0, worker), 8.0, X + 1)
    assert polled(next_one) == [(keys[1], Outcome("value", 8.0))]


def test_an_answer_stays_on_disk_until_its_outcome_is_safe(crowd: Crowd) -> None:
    crowd.start("other")
    with evaluator(FileQueue(crowd.queue), queue_model.other) as evaluate:
        batch = evaluate(tasks(1.0, 2.0))
        position, _ = next(batch)
        assert any(f".{position}.0.0.h0@" in name for name in listed(crowd.queue / files.ANSWERS))
        assert len(list(batch)) == 1
        assert listed(crowd.queue / files.ANSWERS) == []


def test_a_worker_taken_for_dead_goes_on_with_its_point_if_nobody_else_has_it(tmp_path: Path) -> None:
    board = fake_board(tmp_path, lease=600)
    withdrawn: list[Name] = []
    claims = Claims(tmp_path, new_worker(), 0.02, withdrawn.append)
    claims.begin()
    try:
        board.submit(KEY, X)
        name = claims.claim()
        assert name == Name(KEY, 0, claims.worker)
        files.remove(tmp_path / files.CLAIMED / str(name))
        files.remove(tmp_path / files.WORKERS / claims.worker)
        files.write(tmp_path / files.OPEN, str(Name(KEY, 1)), b"")
        wait_until(lambda: listed(tmp_path / files.CLAIMED) == [str(Name(KEY, 1, claims.worker))])
        wait_until(lambda: listed(tmp_path / files.WORKERS) == [claims.worker])
        assert withdrawn == []
        files.remove(tmp_path / files.CLAIMED / str(Name(KEY, 1, claims.worker)))
        wait_until(lambda: withdrawn == [Name(KEY, 1, claims.worker)])
        assert claims.let_go() is None
    finally:
        claims.end()
    assert listed(tmp_path / files.WORKERS) == []


def test_two_workers_never_claim_the_same_point(tmp_path: Path) -> None:
    board = fake_board(tmp_path, lease=600)
    for slot in range(300):
        board.submit((0, 0, slot, 0, 0), X)
    crew = [Claims(tmp_path, new_worker(), 60.0, lambda name: None) for _ in range(4)]
    got: list[Name] = []

    def work(claims: Claims) -> None:
        while name := claims.claim():
            got.append(name)

    threads = [threading.Thread(target=work, args=(claims,)) for claims in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 300 and len({name.key for name in got}) == 300
    assert sorted(map(str, got)) == sorted(listed(tmp_path / files.CLAIMED))


def test_workers_are_counted_and_the_dead_struck_off(tmp_path: Path) -> None:
    queue = FileQueue(tmp_path / "queue", lease=1)
    with evaluator(queue, queue_model.other):
        claims = Claims(queue.directory, new_worker(), 0.1, lambda name: None)
        claims.begin()
        dead = new_worker()
        files.write(queue.directory / files.WORKERS, dead, b"")
        (queue.directory / files.WORKERS / "notes.txt").write_text("mine")
        assert queue.n_workers() == 2
        wait_until(lambda: (time.sleep(0.1), queue.n_workers() == 1)[1])
        assert dead not in listed(queue.directory / files.WORKERS)
        claims.end()
        assert queue.n_workers() == 0
    assert listed(queue.directory / files.WORKERS) == ["notes.txt"]


# -- other people's files -----------------------------------------------------------------------------------


def test_only_a_directory_of_our_own_is_used(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    file = tmp_path / "file"
    file.write_text("mine")
    marked = tmp_path / "marked"
    marked.mkdir()
    (marked / files.MARK).write_text('{"format": "another"}')
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / files.MARK).write_text('{"format": "fmnes-queue", "version": 2}')
    piped = tmp_path / "piped"
    piped.mkdir()
    os.mkfifo(piped / files.MARK)
    linked = tmp_path / "linked"
    files.make_queue(linked)
    os.rmdir(linked / files.ANSWERS)
    os.symlink(mine, linked / files.ANSWERS)
    for directory, words in {
        mine: r"found 'thesis.tex' and no fmnes-queue.json, wanted an empty directory",
        file: "found a file, wanted a directory",
        marked: "found a file that is not ours",
        newer: "version 2, wanted 1",
        piped: "cannot be read",
        linked: "found something else, wanted a folder",
    }.items():
        before = sorted(map(str, directory.rglob("*")))
        with pytest.raises(RunError, match=words):
            minimize(queue_model.other, X, 0.1, executor=FileQueue(directory), max_seconds=1)
        assert sorted(map(str, directory.rglob("*"))) == before
    assert (mine / "thesis.tex").read_text() == "years of work"


def test_what_is_not_called_as_ours_is_left_alone(tmp_path: Path) -> None:
    files.make_queue(tmp_path / "queue")
    foreign = [
        tmp_path / "queue" / folder / name
        for folder in (files.OPEN, files.CLAIMED, files.ANSWERS)
        for name in ("notes.txt", "0.0.0.0.0", "00.0.0.0.0.h0", "0.0.0.0.0.h0@me", ".swp")
    ]
    for path in foreign:
        path.write_text("mine")
    board = fake_board(tmp_path / "queue")
    board.submit(KEY, X)
    polled(board, 0.8)
    board.close()
    assert all(path.read_text() == "mine" for path in foreign)


def test_hostile_answers_cost_nothing_but_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "queue"
    secret = tmp_path / "secret"
    board = fake_board(directory, lease=600)
    board.submit(KEY, X)
    job = read_job(directory)
    assert job
    secret.write_bytes(dump_answer(job.id, KEY, X, Outcome("value", -1e9)))

    def put(make: Callable[[Path], Any]) -> None:
        make(directory / files.ANSWERS / str(Name(KEY, 0, new_worker())))

    for make in (
        os.mkfifo,
        lambda path: os.symlink("/dev/zero", path),
        lambda path: os.symlink(secret, path),
        lambda path: path.write_bytes(b"["),
        lambda path: path.write_bytes(b"[" * 500_000),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: os.truncate(path, 10**12) if path.write_bytes(b"") is None else None,
    ):
        board.forget(KEY)
        board.submit(KEY, X)
        put(make)
        assert board.poll() == []
        assert listed(directory / files.ANSWERS) == []
    put(os.mkdir)  # which cannot be removed so easily, and is told once
    board.forget(KEY)
    board.submit(KEY, X)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fmnes"):
        assert [board.poll() for _ in range(20)] == [[]] * 20
    assert len(caplog.records) == 1 and "cannot be used" in caplog.records[0].getMessage()
    worker = new_worker()
    answer(directory, Name(KEY, 1, worker), 7.0)
    assert polled(board) == [(KEY, Outcome("value", 7.0))]
    assert secret.exists()


@pytest.mark.parametrize("what", ["fifo", "link", "words", "other job", "other key", "dimension", "nan"])
def test_a_task_that_is_none_is_not_evaluated(crowd: Crowd, what: str) -> None:
    """It comes back after a lease, as the driver has it."""
    board = fake_board(crowd.queue, lease=600)
    job = read_job(crowd.queue)
    assert job
    path = crowd.queue / files.OPEN / str(Name(KEY, 0))
    data = {
        "words": b"x",
        "other job": dump_task("another", KEY, X),
        "other key": dump_task(job.id, (0, 0, 1, 0, 0), X),
        "dimension": dump_task(job.id, KEY, np.zeros(3)),
        "nan": dump_task(job.id, KEY, np.array([1.0, np.nan])),
    }
    if what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        (crowd.queue / "notes").write_bytes(dump_task(job.id, KEY, X))
        os.symlink(crowd.queue / "notes", path)
    else:
        path.write_bytes(data[what])
    board.submit((0, 0, 7, 0, 0), X)
    worker = crowd.start("other")
    ((key, outcome),) = polled(board)
    assert key == (0, 0, 7, 0, 0) and outcome.value == queue_model.other(X)
    wait_until(lambda: not os.path.lexists(path))
    board.forget(key)
    polled(board, 0.2)
    assert not crowd.claims() and listed(crowd.queue / files.ANSWERS) == []
    assert crowd.counted().total() == 1
    assert worker.poll() is None


# -- workers ------------------------------------------------------------------------------------------------


def command_line(*words: Any, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fmnes", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
    )


def test_a_worker_with_another_objective_is_refused_in_words(tmp_path: Path) -> None:
    with evaluator(FileQueue(tmp_path / "queue"), queue_model.bumpy):
        done = command_line("worker", tmp_path / "queue", "--function", f"{MODEL}:other")
        assert listed(tmp_path / "queue" / files.WORKERS) == []
    ours, theirs = fingerprint(queue_model.other).hash[:12], fingerprint(queue_model.bumpy).hash[:12]
    assert done.returncode == 2
    assert f"objective: found 'other' (hash {ours}), wanted 'bumpy' (hash {theirs})" in done.stderr
    assert "another source" in done.stderr and "start the worker with the driver's own" in done.stderr


def test_a_worker_is_refused_when_the_next_run_has_another_objective(crowd: Crowd) -> None:
    worker = crowd.start("other")
    with evaluator(FileQueue(crowd.queue), queue_model.other) as evaluate:
        assert dict(evaluate(tasks(2.0)))[0].value == 4.25
    with evaluator(FileQueue(crowd.queue), queue_model.bumpy) as evaluate:
        assert list(evaluate(tasks(2.0), time.monotonic() + 2.0)) == []
        assert "another source" in worker.communicate(timeout=300)[0]
    assert worker.returncode


def test_a_worker_serves_one_run_after_another_and_ends_soon_after_the_last(crowd: Crowd) -> None:
    """The second run has another time limit: its worker is told."""
    worker = crowd.start("troubled", idle=6)
    for timeout in (60.0, 3.0):
        with evaluator(FileQueue(crowd.queue), queue_model.troubled, timeout=timeout) as evaluate:
            assert dict(evaluate(tasks(0.25)))[0].value == 0.25
    with evaluator(FileQueue(crowd.queue), queue_model.troubled, timeout=3.0) as evaluate:
        found = dict(evaluate(tasks(2), time.monotonic() + 240))
        assert found[0].reason == "timed out after 3 s"
    text = worker.communicate(timeout=300)[0]
    assert text.splitlines()[-1] == "the run has ended 3 0" and worker.returncode == 0
    assert listed(crowd.queue / files.WORKERS) == []


def test_a_worker_without_a_driver_waits_for_one_and_not_for_ever(tmp_path: Path) -> None:
    done = command_line("worker", tmp_path / "queue", "--function", f"{MODEL}:other", "--idle", "0.3")
    assert done.returncode == 0 and done.stdout == ""
    assert "waits for work" in done.stderr
    assert "0 evaluations; no driver gave a sign of life for 0.3 s" in done.stderr
    assert listed(tmp_path) == []


def test_a_driver_that_only_waits_keeps_its_workers(crowd: Crowd) -> None:
    """There is nothing to do for far longer than `idle`."""
    crowd.start("once_endless", 2, idle=4.0)
    with evaluator(FileQueue(crowd.queue, lease=1), queue_model.once_endless) as evaluate:
        assert list(evaluate(tasks(-3.0), time.monotonic() + 8.0)) == []
        assert [worker.poll() for worker in crowd.all] == [None, None]


@pytest.mark.parametrize(
    "words, found",
    [
        ([], "found neither a problem file nor --function"),
        (["--function", "nothing"], "found 'nothing', wanted module:name"),
        (["--function", "no_such_module:f"], "cannot be imported.*is it in this directory"),
        (["--function", f"{MODEL}:missing"], "found no 'missing' in 'tests.queue_model'"),
        (["--function", f"{MODEL}:MODEL.x"], "found no 'MODEL.x'"),
        (["--function", f"{MODEL}:np.pi"], "fun: found 3.14.*, wanted a function"),
        (["problem.toml", "--function", f"{MODEL}:other"], "found both"),
        (["no-such.toml"], "found nothing there, wanted a problem file"),
    ],
)
def test_a_worker_says_what_is_wrong_with_its_arguments(words: list[str], found: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=found):
        app(["worker", str(tmp_path / "queue"), *words], standalone_mode=False)
    assert listed(tmp_path) == []


def test_a_worker_refuses_a_directory_that_is_no_queue(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match=r"found 'thesis.tex' and no fmnes-queue.json"):
        app(["worker", str(tmp_path), "--function", f"{MODEL}:other"], standalone_mode=False)
    fake_board(tmp_path / "queue")
    os.unlink(tmp_path / "queue" / files.JOB)
    for make in (os.mkfifo, lambda path: path.write_text("[]"), lambda path: path.write_text('{"d": 1e400}')):
        make(tmp_path / "queue" / files.JOB)
        with pytest.raises(RunError, match=r"job\.json: found a file that"):
            app(["worker", str(tmp_path / "queue"), "--function", f"{MODEL}:other"], standalone_mode=False)
        os.unlink(tmp_path / "queue" / files.JOB)


PROBLEM = r"""
command = ["{here}/simulate", "deck.txt"]
[program]
templates = ["deck.txt.in"]
value = {regex = 'value (\S+)'}
[parameters.width]
lower = 0.5
upper = 8.0
log = true
[parameters.layers]
lower = 1
upper = 9
integer = true
[run]
max_evaluations = 30
population_size = 6
seed = 3
workers = 2
"""
SIMULATE = r"""#!/bin/sh
read width layers < "$1"
[ $layers = 5 ] && exit 3
awk "BEGIN { printf \"value %.17g\n\", ($width - 3) ^ 2 + $layers }"
"""


def test_a_problem_file_with_templates_goes_through_a_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problem.toml").write_text(PROBLEM)
    (tmp_path / "deck.txt.in").write_text("{width} {layers}\n")
    (tmp_path / "simulate").write_text(SIMULATE)
    (tmp_path / "simulate").chmod(0o755)
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "fmnes", "worker", "queue", "problem.toml", "--idle", "20"],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        words = ("minimize", "problem.toml", "--json", "--run-dir")
        by_queue = command_line(*words, "by-queue.run", "--queue", "queue", cwd=tmp_path)
        assert by_queue.returncode == 0, by_queue.stderr
        assert not app([*words, "here.run"], standalone_mode=False)
        here = capsys.readouterr().out
        # Whoever has another template is refused.
        (tmp_path / "deck.txt.in").write_text("{layers} {width}\n")
        with evaluator_of_problem(tmp_path, "{width} {layers}\n"):
            refused = command_line("worker", "queue", "problem.toml", "--idle", "1", cwd=tmp_path)
    finally:
        for worker in workers:
            worker.terminate()
        ends = [worker.communicate(timeout=300)[1] for worker in workers]
    found, wanted = json.loads(by_queue.stdout), json.loads(here)
    for name in ("x", "fun", "nfev", "n_infeasible", "message"):
        assert found[name] == wanted[name]
    assert found["n_infeasible"] > 0
    run = fmnes.read_run(tmp_path / "by-queue.run")
    assert sum(int(end.splitlines()[-1].split()[0]) for end in ends) == 30 == len(run.evaluations)
    assert not app(["show", "by-queue.run", "--failures"], standalone_mode=False)
    assert "directory: queue/kept/g" in capsys.readouterr().out
    assert refused.returncode == 2 and "another the template deck.txt.in" in refused.stderr


@contextmanager
def evaluator_of_problem(folder: Path, template: str) -> Iterator[Evaluator]:
    """A driver whose template is this one."""
    from fmnes.cli.problem_file import read_problem

    path = folder / "deck.txt.in"
    now = path.read_text()
    path.write_text(template)
    problem = read_problem(folder / "problem.toml")
    with evaluator(FileQueue(folder / "queue"), problem.command, 2, space=problem.space) as made:
        path.write_text(now)
        yield made


# -- by what an objective is known --------------------------------------------------------------------------


def made_with(constant: Any) -> Callable[[Any], float]:
    def inner(x: Any) -> float:
        return float(x[0] * constant[0])

    return inner


def with_default(constant: Any) -> Callable[[Any], float]:
    def inner(x: Any, factor: Any = constant) -> float:
        return float(x[0] * factor)

    return inner


def typed(module: str) -> Any:
    """A function without a source."""
    names: dict[str, Any] = {"__name__": module}
    exec("def typed(x): return 1.0", names)
    return names["typed"]


def recursive() -> Callable[[Any], float]:
    def again(x: Any) -> float:
        return again(x - 1) if x else 0.0

    return again


class Model:
    def __init__(self, stiffness: float) -> None:
        self.stiffness = stiffness

    def __call__(self, x: Any) -> float:
        return self.stiffness

    def energy(self, x: Any) -> float:
        return self.stiffness


def test_the_same_objective_has_the_same_hash_and_another_one_has_not() -> None:
    different: list[Any] = [
        queue_model.other,
        queue_model.scaled,
        queue_model.twice,
        queue_model.thrice,
        made_with([1.0]),
        made_with([1.0 + 2**-52]),
        made_with(np.array([1.0])),
        made_with({1.0: "a"}),
        with_default(1.0),
        with_default(2.0),
        Model(1.0),
        Model(2.0),
        Model(1.0).energy,
        recursive(),
        np.sum,
        len,
        fmnes.Command(["true", "{x0}"]),
        fmnes.Command(["true", "{x1}"]),
        fmnes.Command(["true", "{x0}"], value={"regex": "a"}),
        fmnes.Command(["true", "{x0}"], success_exit_codes=[1]),
        fmnes.Command(["true", "{x0}"], environment={"TOKEN": "1"}),
    ]
    hashes = [fingerprint(fun).hash for fun in different]
    assert len(set(hashes)) == len(hashes)
    assert hashes == [fingerprint(fun).hash for fun in different]
    equal: list[tuple[Any, Any]] = [
        (made_with([1.0]), made_with([1.0])),
        (functools.partial(queue_model.scaled, factor=2.0), queue_model.twice),
        (Model(3.0), Model(3.0)),
        (typed("__main__"), typed("script")),
        (
            fmnes.Command(["true", "{x0}"], timeout=3, keep="none", here="/", environment={"TOKEN": "1"}),
            fmnes.Command(["true", "{x0}"], environment={"TOKEN": "2"}),
        ),
    ]
    for one, two in equal:
        assert fingerprint(one).hash == fingerprint(two).hash and not differences(
            fingerprint(one), fingerprint(two)
        )
    assert differences(fingerprint(queue_model.twice), fingerprint(queue_model.thrice)) == (
        "arguments of its partial"
    )
    assert differences(fingerprint(Model(1.0)), fingerprint(Model(2.0))) == "its object"


def test_a_script_is_the_same_to_its_workers_that_import_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import functools, fmnes\n"
        "class Model:\n    def __init__(self): self.a = 1.5\n    def __call__(self, x): return self.a\n"
        "model = Model()\n"
        "@functools.lru_cache\ndef table(n): return n\n"
        "def make(a):\n    def fun(x): return a + table(1) + model(x)\n    return fun\n"
        "def wrapped(f):\n    @functools.wraps(f)\n    def g(x): return f(x)\n    return g\n"
        "@wrapped\ndef h(x): return 1.0\n"
        "fun = functools.partial(make((model, table, h)))\n"
        "from fmnes.evaluation.queue.file_queue import fingerprint\n"
        "if __name__ == '__main__': print(*(fingerprint(f).hash for f in (fun, model, h, table)))\n"
    )
    code = "from script import *; print(*(fingerprint(f).hash for f in (fun, model, h, table)))"
    outputs = [
        subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
        ).stdout
        for words in (["script.py"], ["-c", code])
    ]
    assert outputs[0] == outputs[1] and len(set(outputs[0].split())) == 4


# -- what is written ----------------------------------------------------------------------------------------


def test_points_and_values_are_exact() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(100_000) * 10.0 ** rng.integers(-300, 300, 100_000)
    x[:4] = [-0.0, 5e-324, 1.7976931348623157e308, 0.1]
    job, back = load_task(dump_task("job", KEY, x), KEY, len(x))
    assert job == "job" and back.tobytes() == x.tobytes()
    for outcome in (
        Outcome("value", 0.1 + 0.2, outputs={"a": 1, "b": None, "c": float("nan")}),
        Outcome("value", -0.0),
        infeasible("mesh \ud800", fault="ValueError", detail="\x1b[31m"),
        Outcome("lost", reason="SIGTERM", fault="SIGTERM"),
    ):
        found = load_answer(dump_answer("job", KEY, x, outcome), "job", KEY, x)
        assert repr(found) == repr(outcome)
    assert np.isnan(load_answer(dump_answer("job", KEY, x, Outcome("value", 1.0)), "job", KEY, x).seconds)


VALID = dump_answer("job", KEY, X, Outcome("value", 1.5, seconds=2.5, outputs={"mass": 3.0, "word": "a"}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"0x1.8000000000000p+0"', '"0x1p99999"'),
        ('"0x1.8000000000000p+0"', '"0x1.8p0"'),
        ('"0x1.8000000000000p+0"', '"nan"'),
        ('"0x1.8000000000000p+0"', '"inf"'),
        ('"0x1.8000000000000p+0"', "1.5"),
        ('"0x1.8000000000000p+0"', '["0x1.8000000000000p+0"]'),
        ("2.5", "NaN"),
        ("2.5", "1e999"),
        ("2.5", "-1.0"),
        ("2.5", "true"),
        ("2.5", "[1]"),
        ("2.5", "1" + "0" * 400),
        ("2.5", "1" + "0" * 5000),
        ('"value",', '["value"],'),
        ('"fault": ""', '"fault": null'),
        ('"reason": ""', '"reason": {}'),
        ('"detail": ""', '"detail": "\\ud800"'),
        ('"detail": ""', f'"detail": "{"a" * 3000}"'),
        ('"detail": ""', '"detail": "", "detail": "twice"'),
        ('"detail": ""', '"detail": "", "more": 1'),
        ('"status"', '"standing"'),
        ("[0, 0, 0, 0, 0]", "[0, false, 0, 0.0, 0]"),
        ("[0, 0, 0, 0, 0]", "[" * 100_000 + "]" * 100_000),
        ("3.0", "1" + "0" * 400),
        ("3.0", "1e999"),
        ("3.0", str(2**63)),
        ("3.0", "[1.0]"),
        ("3.0", '{"number": "1.0"}'),
        ("3.0", '{"number": "nan", "more": 1}'),
        ('"mass"', '"\\ud800"'),
        ('"mass"', '" "'),
        ('"word": "a"', '"mass": 4.0'),
        ('"word": "a"', ", ".join(f'"{i}": 1' for i in range(1001))),
        ('"word": "a"', f'"word": "{"a" * 50_000}"'),
        ('"a"', '"\\udfff"'),
    ],
)
def test_an_answer_that_no_worker_writes_is_a_value_error(old: str, new: str) -> None:
    text = VALID.decode()
    assert load_answer(VALID, "job", KEY, X).outputs == {"mass": 3.0, "word": "a"}
    assert old in text
    with pytest.raises(ValueError):
        load_answer(text.replace(old, new, 1).encode(), "job", KEY, X)


#: What is put in the place of a part of a message.
ODD: list[Any] = [None, True, 0, -1, 1.0, 10**400, 2**63, 1e308, "", "0x1p99999", "\ud800", "nan", "../../x"]
ODD += ["a" * 3000, "\0", [], [[]] * 3, {}, {"number": "nan"}, {"a": {"a": {}}}, "-inf", {"": 1}, "1" * 5000]


def mutated(rng: np.random.Generator, valid: bytes) -> bytes:
    """A message that is almost as it was."""
    if rng.random() < 0.6:  # of the parts one is another, missing, or somewhere else
        plain = json.loads(valid)
        for _ in range(rng.integers(1, 3)):
            inner = plain
            while True:
                names = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
                if not names:
                    break
                name = names[rng.integers(len(names))]
                if isinstance(inner[name], (dict, list)) and inner[name] and rng.random() < 0.7:
                    inner = inner[name]
                    continue
                odd = copy.deepcopy(ODD[rng.integers(len(ODD))])
                if rng.random() < 0.2:
                    inner.pop(name)
                elif isinstance(inner, dict) and rng.random() < 0.3:
                    inner[odd if isinstance(odd, str) else "more"] = inner[name]
                else:
                    inner[name] = odd
                break
        data = bytearray(json.dumps(plain).encode())
    else:
        data = bytearray(valid)
    for _ in range(rng.integers(0, 4)):  # and some bytes are
        where = int(rng.integers(len(data) + 1))
        kind = rng.integers(4)
        if kind == 0 and where < len(data):
            data[where] = rng.integers(256)
        elif kind == 1:
            del data[where : where + int(rng.integers(1, 20))]
        elif kind == 2:
            data[where:where] = rng.bytes(3)
        else:
            parts = (b"[", b'{"a":', b"1e999", b"NaN", b"\\ud800", b"9" * 400, b"\x00", b'"mass": 1,')
            data[where:where] = parts[rng.integers(len(parts))]
    return bytes(data)


def test_mutated_messages_are_read_or_refused_with_a_value_error() -> None:
    rng = np.random.default_rng(4)
    failed = dump_answer("job", KEY, X, infeasible("mesh", fault="F", detail="at node 7"))
    accepted = 0
    for i in range(6000):
        valid = failed if i % 4 == 0 else VALID
        try:
            outcome = load_answer(mutated(rng, valid), "job", KEY, X)
        except ValueError:
            continue
        accepted += 1  # then it can be logged and sent on
        again = load_answer(dump_answer("job", KEY, X, outcome), "job", KEY, X)
        assert again == outcome or again.outputs is not None
        repr(outcome).encode()
    assert 0 < accepted < 3000
    task = dump_task("job", KEY, X)
    for _ in range(2000):
        try:
            assert np.isfinite(load_task(mutated(rng, task), KEY, 2)[1]).all()
        except ValueError:
            continue


@pytest.mark.parametrize("name", [files.JOB, files.MARK])
def test_a_mutated_file_of_the_queue_is_an_error_of_ours(tmp_path: Path, name: str) -> None:
    files.make_queue(tmp_path)
    space = Space({"width": fmnes.Real(0.1, 10, log=True), "layers": fmnes.Integer(1, 12)})
    write_job(tmp_path, Job(fingerprint(queue_model.other), 2, 60.0, 30.0, space, "run", "driver"))
    valid = (tmp_path / name).read_bytes()
    rng = np.random.default_rng(4)
    accepted = 0
    for _ in range(2000):
        (tmp_path / name).write_bytes(mutated(rng, valid))
        try:
            job = read_job(tmp_path)
            assert files.is_queue(tmp_path)
            accepted += 1
            assert job
            assert job.id and repr(job).encode()
        except RunError:
            continue
    assert accepted < 1500


def test_names_are_read_as_they_are_written() -> None:
    for name in (Name((0, -1, 0, 0, 0), 0), Name((3, 12, 999, 2, 1), 7)):
        assert read_task(str(name)) == name and read_claim(str(name)) is None
        held = name._replace(worker=new_worker())
        assert read_claim(str(held)) == held and read_task(str(held)) is None
    for text in (
        "0.0.0.0.h0",
        "0.-2.0.0.0.h0",
        "0.0.0.0.0.h0@",
        "0.0.0.0.0.h0@a/b-1-00000000",
        "٣.0.0.0.0.h0",
    ):
        assert read_task(text) is None and read_claim(text) is None


def test_arguments_are_checked() -> None:
    with pytest.raises(ArgumentError, match="directory: found 3, wanted a path"):
        FileQueue(3)  # type: ignore[arg-type]
    for lease in (0, 0.5, float("nan"), "1"):
        with pytest.raises(ArgumentError, match="lease: found"):
            FileQueue("q", lease=lease)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="found the option 'timeout'"):
        FileQueue("q", timeout=3)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="executor: found together with workers"):
        minimize(queue_model.other, X, 0.1, executor=FileQueue("q"), workers=2)
    for fun in (3, None):
        with pytest.raises(ArgumentError, match="fun: found"):
            minimize(fun, X, 0.1, executor=FileQueue("q"))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"found \{x7\}"):
        minimize(fmnes.Command(["true", "{x7}"]), X, 0.1, executor=FileQueue("q"))
    assert not Path("q").exists() and repr(FileQueue("/q")) == "FileQueue('/q')"
