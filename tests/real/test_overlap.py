"""Overlapping generations: no worker waits for the slowest evaluation, and the search stays a right one."""

from __future__ import annotations

import heapq
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import LOST, ArgumentError, ObjectiveError, Optimizer, SnapshotError, UsageError
from fmnes.evaluation import supervision
from fmnes.run import state
from fmnes.search.overlap import OverlapScheduler, shortened
from fmnes.strategies.base import Shape, Strategy
from tests.rows import through
from tests.updates import after_update
from tests.variants import STRATEGIES

METHODS = ["afm-nes", "fm-nes", "dx-nes-ic", "xnes", "cma-es", "cr-fm-nes"]


def ellipsoid(x: Any) -> float:
    return float(np.sum(np.arange(1, len(x) + 1) * np.square(x)))


def rosenbrock(x: Any) -> float:
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def optimizer(d: int = 5, overlap: float = 0.5, **options: Any) -> Optimizer:
    return Optimizer(np.full(d, 3.0), 2.0, overlap=overlap, rng=1, **{"population_size": 10, **options})


def moved(opt: Optimizer) -> Optimizer:
    """After some generations with failures, so that its shape is not round."""
    while opt.generation < 15:
        for id, x in opt.ask(1):
            opt.tell(id, np.nan if x[0] < 0 else ellipsoid(x))
    return opt


# -- points from elsewhere ----------------------------------------------------------------------------------


@through("strategy", STRATEGIES.values())
def test_draws_of_points_are_those_that_gave_them(strategy: Any) -> None:
    opt = moved(optimizer(method=strategy))
    state = opt._distribution.state
    rows = opt._distribution.draw_rows(10)
    x = opt._distribution.points(rows)
    np.testing.assert_allclose(strategy.coordinates(state, x), rows, atol=1e-8)


@through("strategy", STRATEGIES.values())
@through("failed", [0, 3])
def test_pairs_told_as_single_points_make_the_same_update(strategy: Any, failed: int) -> None:
    opt = moved(optimizer(method=strategy))
    state, rng = opt._distribution.state, np.random.default_rng(3)
    rows = opt._distribution.draw_rows(10)
    f = rng.standard_normal(10)
    f[:failed] = np.inf
    alone = after_update(strategy, state, rows, f)
    pairs = after_update(strategy, state, rows[0::2] if strategy.mirrored else rows, f)
    for one, other in zip(alone, pairs, strict=True):
        if one is not None:
            np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=1e-8, atol=1e-9)


@through("method", METHODS)
def test_the_number_of_single_points_may_be_odd(method: str) -> None:
    opt = moved(optimizer(method=method))
    rows = opt._distribution.draw_rows(11)
    state = after_update(opt.strategy, opt._distribution.state, rows, np.arange(11.0))
    assert all(np.isfinite(np.asarray(leaf, float)).all() for leaf in state if leaf is not None)


def test_older_points_are_shortened_more() -> None:
    d = 8
    z = np.stack([np.full(d, 0.1), *[np.full(d, 100.0)] * 2, np.full(d, np.inf)])
    for fresh in (0.0, 0.5, 1.0):
        lengths = np.linalg.norm(shortened(z, np.array([2, 1, 2, 1]), fresh), axis=1)
        np.testing.assert_allclose(lengths, [0.1 * d**0.5, d**0.5 + fresh * 2 * d / (d + 2), d**0.5, 0])


class Recording(fmnes.XNES):
    """xNES that records its updates."""

    seen: list[Any] = []  # noqa: RUF012

    def update(self, state: Any, z: Any, order: Any, *more: Any) -> Any:
        self.seen.append((state, z.copy(), order.copy()))
        return super().update(state, z, order, *more)


def test_a_point_handed_out_ahead_counts_where_it_is_in_the_new_distribution() -> None:
    Recording.seen.clear()
    opt = optimizer(method=Recording(), overlap=1.0)
    points = opt.ask(20)
    assert len(points) == 20
    for id, x in points[5:15]:
        opt.tell(id, ellipsoid(x))
    assert opt.generation == 1
    late = [*points[:5], *points[15:]]
    for id, x in late:
        opt.tell(id, ellipsoid(x))
    assert opt.generation == 2
    state, z, order = Recording.seen[1]
    np.testing.assert_array_equal(order, np.argsort([ellipsoid(x) for _, x in late], stable=True))
    x = opt.strategy.sample(state, z)
    short = np.linalg.norm(z, axis=1) < 0.999 * 5**0.5  # none is fresh
    assert short.sum() >= 3
    np.testing.assert_allclose(x[short], np.array([x for _, x in late])[short], rtol=1e-10)
    assert not np.allclose(z, opt_draws()[[*range(5), *range(15, 20)]])


def opt_draws() -> Any:
    return optimizer(method="xnes", overlap=1.0)._distribution.draw_rows(20)


# -- generations --------------------------------------------------------------------------------------------


def test_a_generation_ends_with_its_first_values_whichever_they_are() -> None:
    opt = optimizer()
    points = opt.ask(100)
    assert len(points) == 15 and opt.ask(1) == []
    for id, x in reversed(points[6:]):
        opt.tell(id, ellipsoid(x))
    assert opt.generation == 0
    opt.tell(points[0].id, ellipsoid(points[0].x))
    assert (opt.generation, opt.evaluations) == (1, 10)
    assert len(opt.ask(100)) == 10  # beside the five that are still out
    assert opt.ask(1) == []


def test_no_more_than_the_share_is_ever_under_way() -> None:
    opt, rng = optimizer(overlap=0.3), np.random.default_rng(0)
    out: list[Any] = []
    for _ in range(500):
        out += opt.ask(100)
        assert len(out) <= 13
        id, x = out.pop(rng.integers(len(out)))
        opt.tell(id, ellipsoid(x))
    assert opt.generation == 50


def test_without_it_nothing_has_changed() -> None:
    opt = optimizer(overlap=0)
    assert opt.overlap_scheduler is None
    assert len(opt.ask(100)) == 10


def test_the_order_of_one_generation_does_not_matter() -> None:
    means = []
    for order in (1, -1):
        opt = optimizer()
        for id, x in opt.ask(10)[::order]:
            opt.tell(id, ellipsoid(x))
        means.append(opt.mean)
    np.testing.assert_array_equal(*means)


def test_a_budget_is_never_exceeded() -> None:
    opt = optimizer(max_evaluations=17)
    told = 0
    while points := opt.ask(100):
        for id, x in points:
            opt.tell(id, ellipsoid(x))
            told += 1
    assert told == opt.evaluations == 17
    assert opt.stop_reason is fmnes.StopReason.MAX_EVALUATIONS


def test_lost_points_are_handed_out_again_and_late_answers_ignored() -> None:
    opt = optimizer()
    (id, x), *rest = opt.ask(15)
    opt.tell(id, LOST)
    assert opt.ask(100)[0].id == id
    for one, point in rest:
        opt.tell(one, ellipsoid(point))
    opt.tell(id, ellipsoid(x))
    evaluations = opt.evaluations
    opt.tell(id, -1.0)
    assert (opt.evaluations, opt.best.fun > 0) == (evaluations, True)
    with pytest.raises(ArgumentError, match="another search"):
        opt.tell("0-7-0-0-00000000", 1.0)
    again = opt.ask(1)[0].id
    with pytest.raises(ArgumentError, match="another search"):
        opt.tell(again[:-8] + "01234567", 1.0)


def simulated(opt: Optimizer, fun: Any, workers: int, target: float, limit: int, slow: float = 1.0) -> bool:
    """With so many workers, in virtual time; those of negative x[0] - 1 are slow. Is the target reached?"""
    rng = np.random.default_rng(5)
    flow = opt.overlap_scheduler
    assert flow is not None
    under_way: list[Any] = []
    clock, free = 0.0, workers
    while opt.evaluations < limit:
        while free and (found := flow.take()) is not None:
            name, x = found
            seconds = np.exp(0.5 * rng.standard_normal()) * (slow if x[0] < 1 else 1)
            heapq.heappush(under_way, (clock + seconds, name, fun(x)))
            free -= 1
        clock, name, f = heapq.heappop(under_way)
        free += 1
        flow.tell(name, f)
        if f <= target:
            return True
    return False


def test_it_does_not_collapse_where_all_points_are_of_the_generation_before() -> None:
    for seed in range(3):
        opt = Optimizer([-1.0, 2.0], 0.5, population_size=6, overlap=1.0, rng=seed)
        assert simulated(opt, rosenbrock, 6, 1e-6, 5000)


@through("method", METHODS)
def test_it_converges_with_every_method(method: str) -> None:
    opt = optimizer(method=method, overlap=1.0, population_size=20)
    assert simulated(opt, ellipsoid, 20, 1e-8, 6000)


def test_it_converges_where_half_of_the_space_is_slow() -> None:
    opt = optimizer(d=5, overlap=0.5, population_size=40)
    assert simulated(opt, rosenbrock, 40, 1e-6, 12_000, slow=5.0)


def test_it_does_not_collapse_where_most_points_are_old() -> None:
    for seed in range(2):
        opt = Optimizer(np.full(10, 30.0), 20.0, population_size=50, rng=seed)
        opt.overlap_scheduler = OverlapScheduler(opt, 2.0)  # more than anybody may ask for
        assert simulated(opt, lambda x: float(x @ x), 100, 1e-6, 15_000)


def test_points_stay_inside_the_bounds_and_find_an_optimum_there() -> None:
    opt = Optimizer(np.full(4, 1.5), 0.5, bounds=(1, 2), overlap=0.5, population_size=12, rng=1)
    lowest = []

    def fun(x: Any) -> float:
        assert ((x >= 1) & (x <= 2)).all()
        lowest.append(x.min())
        return ellipsoid(x)

    assert simulated(opt, fun, 12, 10 + 1e-6, 4000)


def test_steps_of_several_lengths_and_named_parameters() -> None:
    space = {"a": fmnes.Real(1e-6, 1, log=True), "b": fmnes.Real(-5, 5)}
    opt = Optimizer(space, overlap=0.5, population_size=12, rng=1)
    while opt.best.fun > 1e-6 and opt.evaluations < 3000:
        for id, x in opt.ask(5)[::-1]:
            opt.tell(id, np.log10(x["a"] / 1e-3) ** 2 + (x["b"] - 1) ** 2)
    assert opt.best.fun <= 1e-6
    opt = Optimizer([1.0, 100.0], [1.0, 100.0], overlap=0.5, population_size=12, rng=1)
    assert simulated(opt, lambda x: float(x[0] ** 2 + (x[1] / 100) ** 2), 12, 1e-8, 3000)
    rows = opt._distribution.draw_rows(6)
    np.testing.assert_allclose(opt._distribution.coordinates(opt._distribution.points(rows)), rows, atol=1e-8)


def test_bounds_that_fail_are_not_evaluated() -> None:
    opt = Optimizer(
        [0.1, 0.1], 1.0, bounds=(0, 3), bounds_as="failure", overlap=0.5, population_size=12, rng=1
    )
    assert simulated(opt, lambda x: 1 / (x >= 0).all() * ellipsoid(x), 12, 1e-6, 4000)
    tiny = [(0, 1e-9)] * 10
    opt = Optimizer(np.zeros(10), 1.0, bounds=tiny, bounds_as="failure", overlap=0.5, rng=1)
    assert opt.ask(1) == [] and opt.stop_reason is fmnes.StopReason.NO_FEASIBLE


def test_a_point_that_the_log_has_is_not_handed_out_beside_one_outside() -> None:
    for seed in range(20):
        opt = Optimizer([0.1, 0.1], 1.0, bounds=(0, 3), bounds_as="failure", overlap=1.0, rng=seed)
        scheduler = opt.overlap_scheduler
        assert scheduler is not None
        block = scheduler._draw()
        later = [i for i in range(1, len(block.x)) if block.is_evaluated(i) and not block.is_evaluated(i - 1)]
        scheduler.expect(later)
        taken = []
        while (found := scheduler.take()) is not None:
            taken.append(found[0].slot)
        assert not set(taken) & set(later) and len(taken) == len(set(taken))


@pytest.mark.parametrize("told", [0, 4, 13, 47])
def test_a_saved_one_goes_on_as_if_it_had_never_stopped(told: int, tmp_path: Path) -> None:
    opt, rng = optimizer(), np.random.default_rng(2)
    out: list[Any] = []
    for _ in range(told):
        out += opt.ask(100)
        id, x = out.pop(rng.integers(len(out)))
        opt.tell(id, np.nan if x[1] > 4 else ellipsoid(x))
    opt.save(tmp_path / "saved")
    other = Optimizer.load(tmp_path / "saved")
    for id, x in out[::2]:
        for one in (opt, other):
            one.tell(id, ellipsoid(x))
    assert {id for id, _ in other.ask(100)} == {id for id, _ in [*out[1::2], *opt.ask(100)]}
    for one in (opt, other):
        one.overlap_scheduler.take_back()  # type: ignore[union-attr]
        while one.generation < 12:
            for id, x in sorted(one.ask(100)):
                one.tell(id, ellipsoid(x))
    np.testing.assert_array_equal(opt.mean, other.mean)
    assert opt.evaluations == other.evaluations


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    opt = optimizer()
    for id, x in opt.ask(15)[3:15]:
        opt.tell(id, ellipsoid(x))
    opt.ask(100)
    metadata, arrays = opt.dump()
    for name, bad in (
        ("overlap.names", arrays["overlap.names"] + 99),
        ("overlap.names", arrays["overlap.names"] - 99),
        ("overlap.y", arrays["overlap.y"] * np.nan),
        ("overlap.z", arrays["overlap.z"][:3]),
        ("overlap.values", arrays["overlap.values"][:2]),
    ):
        with pytest.raises(SnapshotError):
            Optimizer.restore(metadata, {**arrays, name: bad})
    with pytest.raises(SnapshotError):
        Optimizer.restore({**metadata, "overlap_out": -1}, arrays)


class Foreign(Strategy):
    """A strategy without `coordinates`."""

    name, matrices = "foreign", 1

    def init(self, x0: Any, sigma0: Any, z0: Any, *more: Any) -> Any:
        return fmnes.XNES().init(x0, sigma0, z0)

    def sample(self, state: Any, z: Any, *more: Any) -> Any:
        return fmnes.XNES().sample(state, z)

    def update(self, state: Any, z: Any, order: Any, n_feasible: Any, *more: Any) -> Any:
        return fmnes.XNES().update(state, z, order, n_feasible)

    def shape(self, state: Any, *more: Any) -> Shape:
        return fmnes.XNES().shape(state)

    def covariance(self, state: Any, *more: Any) -> Any:
        return fmnes.XNES().covariance(state)


@through(
    ("options", "words"),
    [
        ({"overlap": 1.5}, "overlap: found 1.5, wanted a share"),
        ({"overlap": -0.1}, "overlap: found -0.1"),
        ({"overlap": True}, "overlap: found True"),
        ({"overlap": "yes"}, "overlap: found 'yes'"),
        ({"overlap": float("nan")}, "overlap: found nan"),
        ({"overlap": 0.5, "integers": [True, False]}, "together with integers"),
        ({"overlap": 0.5, "method": fmnes.Resampling(fmnes.XNES())}, "together with fmnes.Resampling"),
        ({"overlap": 0.5, "method": Foreign()}, "takes its own points only"),
        ({"overlap": 0.5, "vectorized": True}, "evaluated together"),
    ],
)
def test_what_it_does_not_go_together_with(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        fmnes.minimize(lambda x: 1 / 0, [1.0, 1.0], 1.0, **options)


def test_points_are_asked_for_one_by_one() -> None:
    with pytest.raises(UsageError, match=r"wanted ask\(n\)"):
        optimizer().ask()


# -- the loop -----------------------------------------------------------------------------------------------

#: The first evaluation waits until more have started than a generation of 8 has points.
WAITS = """
import os, time

def wait_if_first(name):
    folder = os.environ["FMNES_TEST_STARTED"]
    open(os.path.join(folder, name), "w").close()
    try:
        os.mkdir(folder + ".first")
    except FileExistsError:
        return
    end = time.monotonic() + float(os.environ.get("FMNES_TEST_PATIENCE", 240))
    while (started := len(os.listdir(folder))) <= 8:
        if time.monotonic() > end:
            raise ValueError(f"{started} evaluations have started, and the first one has not ended")
        time.sleep(0.01)
"""

SOURCE = (
    WAITS
    + '''
import itertools, os, signal, time, zlib
import numpy as np
import fmnes

def told(x):
    if "FMNES_TEST_CALLS" in os.environ:
        with open(os.environ["FMNES_TEST_CALLS"], "a") as file:
            file.write(x.tobytes().hex() + "\\\\n")

def uneven(x):
    """One of eight takes long."""
    told(x)
    time.sleep(0.15 if zlib.crc32(x.tobytes()) % 8 == 0 else 0.005)
    if x[0] < 0:
        raise fmnes.Infeasible("negative")
    return float(np.sum(np.arange(1, len(x) + 1) * x * x))

def number_of(x):
    """Which point of the run this is, the same at each try: which points there are depends on the timing."""
    folder = os.environ["FMNES_TEST_MARKS"]
    known = os.path.join(folder, "point-" + x.tobytes().hex())
    if os.path.exists(known):
        return int(open(known).read())
    for number in itertools.count():
        try:
            os.mkdir(os.path.join(folder, f"number-{number}"))
        except FileExistsError:
            continue
        with open(known, "w") as file:
            file.write(str(number))
        return number

def first_waits(x):
    wait_if_first(x.tobytes().hex())
    return float(x @ x)

def crashes(x):
    if number_of(x) % 8 == 7:
        os._exit(3)
    return float(x @ x)

def lost_at_first(x):
    mark = os.path.join(os.environ["FMNES_TEST_MARKS"], str(zlib.crc32(x.tobytes())))
    if number_of(x) % 4 == 3 and not os.path.exists(mark):
        open(mark, "w").close()
        raise fmnes.Lost("licence server down")
    return float(x @ x)

def always_lost(x):
    if number_of(x) % 4 == 3 and not os.environ.get("FMNES_TEST_WELL"):
        raise fmnes.Lost("licence server down")
    return float(x @ x)

def ends_itself(x):
    if number_of(x) % 16 == 7:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    time.sleep(0.1)
    return float(x @ x)

def broken(x):
    return float(x @ x) / 0 if os.environ.get("FMNES_TEST_BROKEN") else float(x @ x)
'''
)


@pytest.fixture
def objectives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "objectives_overlap.py").write_text(textwrap.dedent(SOURCE).replace("\\\\n", "\\n"))
    (tmp_path / "marks").mkdir()
    count_started(tmp_path / "started", monkeypatch)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FMNES_TEST_MARKS", str(tmp_path / "marks"))
    sys.modules.pop("objectives_overlap", None)
    import objectives_overlap  # type: ignore[import-not-found]

    return objectives_overlap


def count_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to count the evaluations that `wait_if_first` sees."""
    folder.mkdir()
    monkeypatch.setenv("FMNES_TEST_STARTED", str(folder))


def minimized(fun: Any, **options: Any) -> fmnes.Result:
    usual: dict[str, Any] = {"workers": 2, "population_size": 8, "rng": 1, "overlap": 0.5}
    return fmnes.minimize(fun, np.full(4, 2.0), 1.0, **{**usual, **options})


def check_overlap(result: fmnes.Result) -> None:
    """With `first_waits`: points of the next generation were evaluated beside the first one."""
    assert [failure.reason for failure in result.failures] == []
    assert result.nit > 1


def check_no_overlap(fun: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    count_started(folder, monkeypatch)
    monkeypatch.setenv("FMNES_TEST_PATIENCE", "0.3")
    result = minimized(fun, max_evaluations=25, overlap=0, evaluate_start=False, **options)
    (failure,) = result.failures
    assert "the first one has not ended" in failure.reason and failure.count == 1


def test_workers_go_on_while_the_slowest_is_still_out(
    objectives: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = minimized(objectives.first_waits, max_evaluations=60, evaluate_start=False)
    assert result.nfev == 60
    check_overlap(result)
    check_no_overlap(objectives.first_waits, tmp_path / "patient", monkeypatch)


def test_one_at_a_time_nothing_is_old_and_the_target_ends_it() -> None:
    result = minimized(ellipsoid, workers=1, target=1e-6, keep_evaluations=True)
    assert result.stop_reason is fmnes.StopReason.TARGET and result.success
    assert result.nfev == len(result.evaluations) and result.nfev < 1000
    generations = result.evaluations.generation
    assert (np.diff(generations) >= 0).all()


def test_it_ends_by_itself_as_others_do() -> None:
    result = minimized(ellipsoid, workers=1)
    assert result.success and result.fun < 1e-15
    assert len(result.history["generation"]) == result.nit


def test_a_crash_costs_one_evaluation(objectives: Any) -> None:
    result = minimized(objectives.crashes, max_evaluations=30)
    assert result.nfev == 30
    (failure,) = [f for f in result.failures if "exited with code 3" in f.reason]
    assert 0 < failure.count == result.n_infeasible < 15


def test_lost_points_are_tried_again_and_never_ranked(objectives: Any, tmp_path: Path) -> None:
    result = minimized(objectives.lost_at_first, max_evaluations=60, run_dir=tmp_path / "run")
    assert result.nfev == 60 and result.n_infeasible == 0
    rows = fmnes.read_run(tmp_path / "run").evaluations
    lost = rows.status == "lost"
    assert lost.sum() > 5
    tried = list(zip(rows.generation[~lost], rows.slot[~lost], strict=True))
    assert len(set(tried)) == len(tried)
    again = set(zip(rows.generation[lost], rows.slot[lost], strict=True))
    assert len(again & set(tried)) >= len(again) - 5  # all but those of the end


def test_what_stays_lost_stops_the_run_which_can_be_resumed(
    objectives: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    result = minimized(objectives.always_lost, retries=1, run_dir=run)
    assert result.stop_reason is fmnes.StopReason.LOST and "licence server down" in result.message
    monkeypatch.setenv("FMNES_TEST_WELL", "1")
    result = fmnes.resume(run, objectives.always_lost, target=1e-6)
    assert result.success


def test_a_point_that_ends_its_own_process_is_tried_alone_and_fails(
    objectives: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "SETTLE_SECONDS", 0.05)
    result = minimized(objectives.ends_itself, max_evaluations=30, keep_evaluations=True)
    assert result.nfev == 30 and result.n_infeasible > 0
    assert "ended by SIGTERM at each of 3 tries" in result.failures[0].reason
    table = result.evaluations
    for i in np.flatnonzero(table.attempt > 0):
        begins, ends = table.started[i], table.started[i] + table.seconds[i]
        beside = (table.started < ends - 0.03) & (table.started + table.seconds > begins + 0.03)
        assert beside.sum() <= 1, "it was not alone"


def test_a_bug_in_the_first_generation_is_one(
    objectives: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FMNES_TEST_BROKEN", "1")
    with pytest.raises(ObjectiveError, match="looks like a bug"):
        minimized(objectives.broken, run_dir=tmp_path / "run", target=1e-6)
    with pytest.raises(ObjectiveError, match="looks like a bug"):
        fmnes.resume(tmp_path / "run", objectives.broken)
    monkeypatch.delenv("FMNES_TEST_BROKEN")
    assert fmnes.resume(tmp_path / "run", objectives.broken).success


def test_programs_are_handed_points_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_started(tmp_path / "started", monkeypatch)
    script = tmp_path / "simulate.py"
    script.write_text(
        f"{WAITS}\nimport json, sys\n"
        "x = json.load(sys.stdin)['x']\n"
        "wait_if_first('_'.join(map(repr, x)))\n"
        "print(sum(number * number for number in x))\n"
    )
    command = fmnes.Command([sys.executable, "-S", str(script)])
    result = minimized(command, workers=4, max_evaluations=60, evaluate_start=False)
    assert result.nfev == 60
    check_overlap(result)


def test_restarts_and_second_looks_begin_anew() -> None:
    result = minimized(lambda x: ellipsoid(x) if x[0] >= 1 else None, workers=1, max_evaluations=6000)
    assert result.success and result.second_looks >= 1
    assert result.fun == pytest.approx(1.0, abs=1e-6)


def test_an_interrupt_returns_what_there_is(objectives: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def interrupt() -> None:
        wait_for(run, 5)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = minimized(objectives.uneven, run_dir=run, xtol=None, ftol=None)
    thread.join()
    assert result.stop_reason is fmnes.StopReason.INTERRUPTED
    assert fmnes.resume(tmp_path / "run", objectives.uneven, target=1e-4).success


def test_time_limits_hold(objectives: Any) -> None:
    result = minimized(objectives.uneven, max_seconds=0.7)
    assert result.stop_reason is fmnes.StopReason.MAX_SECONDS


# -- resuming -----------------------------------------------------------------------------------------------


def test_the_log_alone_brings_the_run_back(
    objectives: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told again in the order in which they came, the same values give the same run: bit for bit."""
    monkeypatch.setattr(state, "SNAPSHOT_SECONDS", 1e9)  # the first one only
    run, calls = tmp_path / "run", tmp_path / "calls"
    first = minimized(objectives.uneven, max_evaluations=100, run_dir=run)
    finished = fmnes.resume(run)
    assert (finished.nfev, finished.nit, finished.fun) == (100, first.nit, first.fun)
    np.testing.assert_array_equal(finished.x_mean, first.x_mean)
    monkeypatch.setenv("FMNES_TEST_CALLS", str(calls))
    second = fmnes.resume(run, objectives.uneven, max_evaluations=101)
    assert (first.nfev, second.nfev) == (100, 101)
    assert len(calls.read_text().splitlines()) <= 2  # of these one was abandoned
    for name in set(first.history) - {"seconds"}:
        column = first.history[name]
        np.testing.assert_array_equal(second.history[name][: len(column)], column)
    assert first.nit >= 10


DRIVER = """
import sys
import numpy as np
import fmnes
from objectives_overlap import uneven

if __name__ == "__main__":
    fmnes.minimize(uneven, np.full(4, 2.0), 1.0, workers=2, population_size=8, rng=1, overlap=0.5,
                   xtol=None, ftol=None, run_dir=sys.argv[1])
"""


def test_after_a_kill_nothing_that_is_in_the_log_is_evaluated_again(
    objectives: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    run, calls = tmp_path / "run", tmp_path / "calls"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(fmnes.__file__).parents[1]}"}
    process = subprocess.Popen([sys.executable, str(tmp_path / "driver.py"), str(run)], env=environment)
    wait_for(run, 20)
    process.kill()
    process.wait()
    before = points(run)
    assert len(before) > 10
    monkeypatch.setenv("FMNES_TEST_CALLS", str(calls))
    result = fmnes.resume(run, objectives.uneven, target=1e-3, max_evaluations=3000)
    assert result.success
    assert before.isdisjoint(calls.read_text().splitlines())
    assert result.nfev == logged(run) or result.nfev > len(before)
    # All that was logged counts, but for the points of a generation that nobody knew to be out.
    assert result.nfev >= logged(run) - 4


def logged(run: Path) -> int:
    with sqlite3.connect(f"file:{run / 'evaluations.sqlite'}?mode=ro", uri=True) as db:
        return int(db.execute("SELECT count(*) FROM evaluations WHERE status <> 'lost'").fetchone()[0])


def wait_for(run: Path, evaluations: int) -> None:
    end = time.monotonic() + 240
    while not (run / "snapshot.npz").exists() or logged(run) < evaluations:
        assert time.monotonic() < end, "the run does not come to its evaluations"
        time.sleep(0.05)


def points(run: Path) -> set[str]:
    with sqlite3.connect(f"file:{run / 'evaluations.sqlite'}?mode=ro", uri=True) as db:
        return {x.hex() for (x,) in db.execute("SELECT x FROM evaluations WHERE status <> 'lost'")}


def test_answers_to_other_points_are_only_remembered(tmp_path: Path) -> None:
    """As of another version of NumPy: no answer is taken for another point's, and none is lost."""
    one, other = tmp_path / "one", tmp_path / "other"
    best = minimized(ellipsoid, workers=1, max_evaluations=300, run_dir=one)
    minimized(ellipsoid, workers=1, max_evaluations=30, rng=2, run_dir=other)
    shutil.copy(one / "evaluations.sqlite", other / "evaluations.sqlite")
    result = fmnes.resume(other, ellipsoid, max_evaluations=60)
    assert result.nfev == 60
    assert result.fun == best.fun
    assert fmnes.resume(other, ellipsoid, target=1e-6, max_evaluations=2000).success


# -- as many points as workers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"workers": 1}, 8),
        ({"workers": 9}, 10),
        ({"workers": 2000}, 200),
        ({"executor": ThreadPoolExecutor(13), "workers": 1}, 14),
    ],
)
def test_as_many_points_as_workers(options: dict[str, Any], expected: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    views = []
    options = {"population_size": "workers", "overlap": 0, "max_evaluations": 1, "run_dir": run, **options}
    minimized(ellipsoid, evaluate_start=True, **options)
    result = fmnes.resume(run, ellipsoid, workers=1, max_evaluations=401, callback=lambda v: views.append(v))
    assert result.nfev == 401
    assert {view.population_size for view in views} == {expected}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"vectorized": True, "workers": 1}, "together with vectorized"),
        ({"executor": type("Mine", (), {"submit": None})(), "workers": 1}, "does not say how many"),
        ({"method": fmnes.AFMNES(population_size=12), "workers": 40}, "in the method's settings"),
    ],
)
def test_where_there_is_no_number_of_workers(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        minimized(ellipsoid, population_size="workers", overlap=0, **options)


@pytest.mark.parametrize("timeout", [None, 600.0])
def test_executors_are_handed_points_ahead(
    objectives: Any, timeout: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 2 if timeout else 4  # with one each of them has a process
    with ThreadPoolExecutor(n) as pool:
        options: dict[str, Any] = {"workers": 1, "timeout": timeout, "executor": pool}
        result = minimized(
            objectives.first_waits,
            max_evaluations=60,
            evaluate_start=False,
            keep_evaluations=True,
            **options,
        )
        assert result.nfev == 60
        check_overlap(result)
        began = result.evaluations.started
        ended = began + result.evaluations.seconds
        under_way = [int(((began <= moment) & (ended > moment)).sum()) for moment in began]
        assert max(under_way) <= n  # what waits in the pool was drawn too early
        check_no_overlap(objectives.first_waits, tmp_path / "patient", monkeypatch, **options)


def test_a_queue_of_files_is_handed_points_ahead(objectives: Any, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fmnes.evaluation.queue.worker import work; "
        "import objectives_overlap as o; work(Path(sys.argv[1]), o.first_waits)"
    )
    queue = fmnes.FileQueue(tmp_path / "queue")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    crew = [
        subprocess.Popen([sys.executable, "-c", code, str(queue.directory)], env=environment)
        for _ in range(2)
    ]
    try:
        result = minimized(
            objectives.first_waits,
            workers=1,
            executor=queue,
            max_evaluations=60,
            evaluate_start=False,
            run_dir=tmp_path / "run",
        )
    finally:
        for worker in crew:
            worker.terminate()
        codes = [worker.wait(120) for worker in crew]
    assert result.nfev == 60 and len(codes) == 2
    table = fmnes.read_run(tmp_path / "run").evaluations
    check_overlap(result)
    assert len(set(zip(table.restart, table.generation, table.slot, table.attempt, strict=True))) == len(
        table
    )
