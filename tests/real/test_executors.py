"""Any executor: the objective's own failures are the point's, all others are lost evaluations."""

from __future__ import annotations

import asyncio
import functools
import importlib
import math
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmnes import ArgumentError, Command, MissingExtra, ObjectiveError, Real, minimize, read_run
from fmnes.evaluation import remote
from fmnes.evaluation.evaluator import Task
from fmnes.evaluation.executor import LinkedFuture, count_workers
from fmnes.outcome import EvaluationId, Outcome
from tests import faults
from tests.batches import ExecutorEvaluator, executor_evaluator


def tasks(n: int = 8, second: float = 0.0) -> list[Task]:
    return [Task(np.array([float(i), second, 0.3]), EvaluationId(0, 0, i)) for i in range(n)]


def processes(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


@pytest.fixture(scope="module")
def process_pool() -> Iterator[Executor]:
    with processes(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def thread_pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture(params=["process_pool", "thread_pool"])
def executor(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


class Inline(Executor):
    """Runs it at once, in this thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


REPORTED = [
    "ValueError",
    "exception that cannot be unpickled",
    "exception without words",
    "BaseException",
    "sys.exit(3)",
    "MemoryError",
    "recursion",
    "returns NaN",
    "returns str",
    "returns what cannot be pickled",
    "raises Lost",
]


@pytest.mark.parametrize("name", REPORTED)
def test_what_the_objective_reports_is_the_points(name: str, executor: Executor) -> None:
    fault = faults.FAULTS[name]
    batch = tasks(second=list(faults.FAULTS).index(name))
    outcomes = dict(ExecutorEvaluator(faults.faulty, executor)(batch))
    bad = outcomes.pop(faults.BAD)
    assert (bad.status, bad.fault) == (fault.status, fault.fault)
    assert bad.reason.startswith(fault.reason)
    assert outcomes == {
        i: Outcome("value", faults.right(batch[i].x)) for i in range(len(batch)) if i != faults.BAD
    }


def test_a_broken_pool_loses_evaluations_and_blames_no_point() -> None:
    batch = tasks(second=list(faults.FAULTS).index("os._exit(1)"))
    with processes(2) as executor:
        evaluator = ExecutorEvaluator(faults.faulty, executor)
        outcomes = dict(evaluator(batch))
        again = dict(evaluator(batch))  # now submit itself fails
    assert outcomes.keys() == again.keys() == set(range(8))
    assert {outcome.status for outcome in outcomes.values()} <= {"value", "lost"}
    assert outcomes[faults.BAD].status == "lost"
    assert "BrokenProcessPool" in outcomes[faults.BAD].reason
    assert {outcome.status for outcome in again.values()} == {"lost"}


def test_a_function_that_cannot_be_sent(process_pool: Executor) -> None:
    lock = threading.Lock()
    for fun in (lambda x: 0.0, lambda x: float(lock.locked())):
        with pytest.raises(ArgumentError, match=r"fun: found <function .*cannot send"):
            list(ExecutorEvaluator(fun, process_pool)(tasks(2)))


def test_the_objective_gets_a_copy(thread_pool: Executor) -> None:
    batch = tasks(2)
    list(ExecutorEvaluator(faults.digest, thread_pool)(batch))
    assert batch[1].x[0] == 1.0


def test_the_deadline_cancels_what_has_not_begun() -> None:
    begun, over = [], threading.Event()

    def fun(x: Any) -> float:
        begun.append(x[0])
        if x[1]:
            over.wait(120)
        return 0.0

    batch = [*tasks(1), *tasks(5, second=1.0)]
    with ThreadPoolExecutor(1) as executor:
        outcomes = list(ExecutorEvaluator(fun, executor)(batch, time.monotonic() + 2))
        assert not over.is_set()
        over.set()
    assert outcomes == [(0, Outcome("value", 0.0))]
    assert len(begun) == 2


def test_a_deadline_further_away_than_a_lock_can_wait(thread_pool: Executor) -> None:
    assert len(list(ExecutorEvaluator(faults.echo, thread_pool)(tasks(), time.monotonic() + 1e300))) == 8


def test_closing_the_iterator_cancels_what_has_not_begun() -> None:
    begun, over = [], threading.Event()
    with ThreadPoolExecutor(1) as executor:
        evaluator = ExecutorEvaluator(
            lambda x: begun.append(x[0]) or float(x[0] > 0 and over.wait(240)), executor
        )
        outcomes = evaluator(tasks(10))
        next(outcomes)
        outcomes.close()
        over.set()
        evaluator.close()
        assert executor.submit(os.getpid).result() == os.getpid()  # the pool is the caller's, and lives
    assert len(begun) <= 2


def test_an_interrupt_passes_through() -> None:
    batch = tasks(second=list(faults.FAULTS).index("KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        list(ExecutorEvaluator(faults.faulty, Inline())(batch))


def test_bad_arguments(thread_pool: Executor) -> None:
    for wrong in (3, map, ThreadPoolExecutor):
        with pytest.raises(ArgumentError, match=r"executor: found .* wanted an object with a submit method"):
            ExecutorEvaluator(faults.echo, wrong)
    with pytest.raises(ArgumentError, match="fun: found 3"):
        ExecutorEvaluator(3, thread_pool)


class Client:
    """Of Dask: it has `submit`, and is no executor."""

    __module__ = "distributed.client"

    def submit(self, fn: Any, *args: Any) -> Any:
        raise AssertionError

    scatter = submit


def test_a_client_of_dask_is_refused_in_words() -> None:
    with pytest.raises(ArgumentError, match=r"write executor=fmnes\.integrations\.dask\.executor\(client\)"):
        ExecutorEvaluator(faults.echo, Client())


def failing(error: BaseException) -> Any:
    """An executor whose futures all fail in this way."""

    class Failing(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    return Failing()


@pytest.mark.parametrize("timeout", [None, 1.0])
def test_whatever_fails_between_us_and_the_objective_is_lost(timeout: float | None) -> None:
    for error in (
        asyncio.CancelledError(),
        SystemExit(3),
        ConnectionError("the scheduler is gone"),
        Exception(),
    ):
        evaluator = ExecutorEvaluator(faults.echo, failing(error), timeout=timeout)
        ((_, outcome),) = evaluator(tasks(1))
        assert outcome.status == "lost" and type(error).__name__ in outcome.reason and not outcome.fault


def test_workers_without_this_library_are_told_of() -> None:
    error = ModuleNotFoundError("No module named 'fmnes'", name="fmnes")
    with pytest.raises(ArgumentError, match=r"executor: found workers without fmnes.*installed there"):
        list(ExecutorEvaluator(faults.echo, failing(error), timeout=1.0)(tasks(1)))


def test_the_number_of_workers(thread_pool: Executor) -> None:
    class Told(Inline):
        def n_workers(self) -> int | None:
            return 7

    assert count_workers(thread_pool) == 2
    assert count_workers(Told()) == 7
    assert count_workers(Inline()) is None


# -- isolated where the executor runs it -----------------------------------------------------------------

ISOLATED = [
    "ValueError",
    "KeyboardInterrupt",
    "returns NaN",
    "returns str",
    "raises Lost",
    "segfault",
    "SIGKILL",
    "os._exit(0)",
    "SIGTERM from a scheduler",
    "kills its guard",
    "hang",
    "hang in C",
    "prints 50 MB",
    "leaves a child and hangs",
]


@pytest.fixture(scope="module")
def isolated(thread_pool: Executor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExecutorEvaluator]:
    """One for all faults: its processes are there already, but for the one that the last fault has ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FMNES_TEST_PIDS", str(tmp_path_factory.mktemp("isolated") / "pids"))
        evaluator = ExecutorEvaluator(faults.faulty, thread_pool, timeout=4.0)
        yield evaluator
        evaluator.close()


@pytest.mark.parametrize("name", ISOLATED)
def test_with_a_timeout_each_evaluation_is_isolated(name: str, isolated: ExecutorEvaluator) -> None:
    fault = faults.FAULTS[name]
    batch = tasks(second=list(faults.FAULTS).index(name))
    outcomes = dict(isolated(batch))
    bad = outcomes.pop(faults.BAD)
    # What was ended from outside is lost without a mark: a cluster's losses are never the point's.
    assert (bad.status, bad.fault) == (fault.status, "" if fault.status == "lost" else fault.fault)
    assert bad.reason.startswith(fault.reason) and fault.detail in bad.detail
    assert outcomes == {
        i: Outcome("value", faults.right(batch[i].x)) for i in range(len(batch)) if i != faults.BAD
    }


def test_isolated_in_processes_the_pool_lives_on(process_pool: Executor) -> None:
    evaluator = ExecutorEvaluator(faults.faulty, process_pool, timeout=60.0)
    batch = tasks(second=list(faults.FAULTS).index("segfault"))
    for _ in range(2):
        outcomes = dict(evaluator(batch))
        assert outcomes[faults.BAD].fault == "SIGSEGV"
        assert sum(outcome.status == "value" for outcome in outcomes.values()) == 7


def test_the_child_is_kept_for_the_next_task_and_ends_with_the_evaluator() -> None:
    with ThreadPoolExecutor(1) as executor:
        evaluator = ExecutorEvaluator(faults.pid, executor, timeout=60.0)
        pids = {int(outcome.value) for n in (3, 2) for _, outcome in evaluator(tasks(n))}
        assert len(pids) == 1 and pids != {os.getpid()}
        assert all(map(is_running, pids))
        evaluator.close()
    assert not any(map(is_running, pids))


def test_an_idle_child_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver may have gone, and the executor's worker live on."""
    monkeypatch.setattr(remote, "IDLE_SECONDS", 0.4)
    monkeypatch.setattr(remote, "_reaper", None)  # one of before may be asleep
    with ThreadPoolExecutor(1) as executor:
        ((_, outcome),) = ExecutorEvaluator(faults.pid, executor, timeout=60.0)(tasks(1))
    end = time.monotonic() + 240
    while is_running(int(outcome.value)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(int(outcome.value)) and time.monotonic() < end


def test_a_forked_worker_has_children_of_its_own() -> None:
    context = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this process has threads
        evaluator = ExecutorEvaluator(faults.pid, Inline(), timeout=60.0)
        ((_, here),) = evaluator(tasks(1))
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            ((_, there),) = ExecutorEvaluator(faults.pid, pool, timeout=60.0)(tasks(1))
    assert here.status == there.status == "value" and here.value != there.value
    assert next(iter(evaluator(tasks(1))))[1] == here
    evaluator.close()


class Counting(Inline):
    """Each task as a process would get it, and how large that is."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        sent = pickle.dumps((fn, args, kwargs))
        self.sizes.append(len(sent))
        fn, args, kwargs = pickle.loads(sent)
        return super().submit(fn, *args, **kwargs)


def test_a_large_objective_is_sent_where_it_is_not_known_and_never_again() -> None:
    table = np.arange(100_000.0)
    executor = Counting()
    evaluator = ExecutorEvaluator(lambda x: float(table[int(x[0])]), executor, timeout=60.0)
    for _ in range(2):
        assert {i: outcome.value for i, outcome in evaluator(tasks(5))} == {i: float(i) for i in range(5)}
    assert sum(size > table.nbytes for size in executor.sizes) == 5  # those that were out before one was back
    assert all(size < 2000 for size in executor.sizes[-5:])
    remote.forget()  # such as in a new worker
    assert len(dict(evaluator(tasks(1)))) == 1
    assert executor.sizes[-1] > table.nbytes
    evaluator.close()


def test_a_small_objective_goes_with_its_task() -> None:
    executor = Counting()
    evaluator = ExecutorEvaluator(faults.echo, executor, timeout=60.0)
    assert len(dict(evaluator(tasks(3)))) == len(executor.sizes) == 3
    evaluator.close()


def abandoned(executor: Executor, path: Path) -> int:
    """The process number of an evaluation that is running when its batch is closed."""
    evaluator = ExecutorEvaluator(
        functools.partial(sleeps_after_telling, path=str(path)), executor, timeout=500
    )
    outcomes = evaluator([*tasks(1), *tasks(3, second=1.0)])
    next(outcomes)
    end = time.monotonic() + 240
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    outcomes.close()
    return int(path.read_text())


def sleeps_after_telling(x: Any, path: str) -> float:
    if x[1]:
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)
    return 0.0


def test_what_is_abandoned_is_ended_where_it_runs(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(remote, "_ABANDON_SECONDS", math.inf)  # only the worker's confirmation ends the wait
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(abandoned(executor, tmp_path / "pid")), daemon=True)
    thread.start()
    thread.join(400)
    assert len(pids) == 1 and not is_running(pids[0])
    assert not list(tmp_path.glob("fmnes-*"))  # nothing is left behind


def test_the_deadline_goes_with_the_task(tmp_path: Path) -> None:
    """Where nobody can tell a worker that it is over, it knows."""
    path = tmp_path / "pid"
    evaluator = ExecutorEvaluator(
        functools.partial(sleeps_after_telling, path=str(path)), Inline(), timeout=500
    )
    list(evaluator(tasks(1)))  # its child is there
    ((_, outcome),) = evaluator(tasks(1, second=1.0), time.monotonic() + 5.0)
    assert outcome.status == "lost"
    assert not is_running(int(path.read_text()))


def test_an_objective_that_cannot_be_loaded_is_an_error_and_later_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluator = ExecutorEvaluator(cannot_be_loaded, Inline(), timeout=60.0)
    with pytest.raises(
        ObjectiveError, match=r"cannot evaluate the objective, on [\s\S]*RuntimeError: not here"
    ):
        list(evaluator(tasks(1)))
    evaluator = ExecutorEvaluator(faults.echo, Inline(), timeout=60.0)
    list(evaluator(tasks(1)))
    remote.forget()
    monkeypatch.setattr(pickle, "loads", lambda data: 1 / 0)  # a node where something is missing
    ((_, outcome),) = evaluator(tasks(1))
    assert outcome.status == "lost" and "division by zero" in outcome.detail
    evaluator.close()


class _CannotBeLoaded:
    def __reduce__(self) -> Any:
        return refuse, ()

    def __call__(self, x: Any) -> float:
        return 0.0


def refuse() -> Any:
    raise RuntimeError("not here")


cannot_be_loaded = _CannotBeLoaded()


def test_a_program_by_an_executor(thread_pool: Executor, tmp_path: Path) -> None:
    script = "import sys; print('FAIL: too far' if float(sys.argv[1]) > 1.2 else float(sys.argv[2]) ** 2)"
    command = Command([sys.executable, "-c", script, "{a}", "{b}"], directory=tmp_path / "kept")
    space = {"a": Real(0, 2, start=1), "b": Real(-1, 1, start=0.5)}
    settings: dict[str, Any] = {"rng": 1, "max_evaluations": 12, "surrogate": False}
    result = minimize(command, space, **settings, executor=thread_pool, run_dir=tmp_path / "run")
    expected = minimize(command, space, **settings)
    assert (result.x, result.fun, result.nfev) == (expected.x, expected.fun, expected.nfev)
    assert result.n_infeasible == expected.n_infeasible > 0 and list((tmp_path / "kept").iterdir())
    slow = Command([sys.executable, "-c", "import time; time.sleep(60)", "{x0}"], keep="none")
    ((_, outcome),) = executor_evaluator(thread_pool, slow, 1, timeout=0.5)(
        [Task(np.zeros(1), EvaluationId(0, 0, 0))]
    )
    assert (outcome.status, outcome.fault) == ("infeasible", "timeout")


def test_a_program_that_is_missing_there_is_an_error(thread_pool: Executor) -> None:
    with pytest.raises(ObjectiveError, match=r"on .*argv: found no program 'no-such-program'"):
        minimize(Command(["no-such-program", "{x0}"]), [1.0], 1.0, executor=thread_pool)
    with pytest.raises(ArgumentError, match="wid"):  # that can be seen here
        minimize(Command([sys.executable, "{wid}"]), [1.0], 1.0, executor=thread_pool)


def test_a_run_with_a_timeout_is_the_serial_one(thread_pool: Executor) -> None:
    settings: dict[str, Any] = {"rng": 1, "max_evaluations": 60, "surrogate": False}
    result = minimize(faults.right, [1.0, 2.0], 0.5, **settings, executor=thread_pool, timeout=30)
    assert result == minimize(faults.right, [1.0, 2.0], 0.5, **settings)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


# -- adapters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "package", "arguments"),
    [("dask", "distributed", (None,)), ("ray", "ray", ()), ("mpi", "mpi4py", ()), ("joblib", "joblib", (2,))],
)
def test_a_missing_extra_names_the_install_line(
    name: str, package: str, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    adapter = importlib.import_module(f"fmnes.integrations.{name}")
    with pytest.raises(MissingExtra, match=rf'pip install "fmnes\[{name}\]"'):
        adapter.executor(*arguments)


def test_a_linked_future_follows_and_is_cancelled_once() -> None:
    ended: list[str] = []
    future, theirs = LinkedFuture(lambda: ended.append("end")), Future[Any]()
    theirs.set_result(3)
    future.follow(theirs)
    assert future.result() == 3 and not future.cancel() and not ended
    future = LinkedFuture(lambda: ended.append("end"))
    assert future.cancel() and ended == ["end"]
    future.follow(theirs)  # too late
    assert future.cancelled()
    failed, theirs = LinkedFuture(lambda: None), Future[Any]()
    theirs.set_exception(ValueError("no"))
    failed.follow(theirs)
    with pytest.raises(ValueError, match="no"):
        failed.result()


def test_an_engine_that_ends_without_a_word_loses_what_it_was_running(tmp_path: Path) -> None:
    """As a client of Dask may, whose futures then never hear of it; this one even speaks up later."""

    def sphere(x: Any) -> float:
        return float(x @ x)

    class Engine:
        def __init__(self) -> None:
            self.submitted, self.over = 0, False

        def submit(self, fn: Any, /, *args: Any) -> Future[Any]:
            self.submitted += 1
            future: Future[Any] = Future()
            if self.submitted <= 5 or self.over:
                future.set_result(fn(*args))
            else:
                threading.Timer(0.2, setattr, (self, "over", True)).start()
                threading.Timer(1.5, future.set_result, [fn(*args)]).start()
            return future

        def is_gone(self) -> bool:
            return self.over

    engine = Engine()
    options: dict[str, Any] = {"rng": 1, "max_evaluations": 30}
    result = minimize(sphere, [1.0, 1.0], 0.5, executor=engine, **options, run_dir=tmp_path / "run")
    assert result == minimize(sphere, [1.0, 1.0], 0.5, **options)
    assert read_run(tmp_path / "run").summary.statuses["lost"] > 0
