"""Single decisions that whole runs hardly show: each of these tests fails where its comparison is another."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import StopReason, _files
from fmnes.backends import NUMPY
from fmnes.evaluation.evaluator import Task
from fmnes.outcome import EvaluationId, Outcome
from fmnes.result import Stop
from fmnes.run import recording
from fmnes.run.recording import Recorder
from fmnes.run.state import Totals
from fmnes.search.overlap import shortened
from fmnes.search.stopping import fails_at
from fmnes.steps.adaptation import TAU_NOISE, axis_factors, parents_of
from fmnes.storage.log import EvaluationLog
from tests.batches import Workers
from tests.updates import after_update


def test_only_axes_that_grow_by_more_than_noise_expand() -> None:
    tau = np.array([-1.0, 0.0, TAU_NOISE / 10, TAU_NOISE, 2 * TAU_NOISE, 1.0])
    factors, log_det = axis_factors(np.float64(2.0), tau, np.True_, NUMPY)
    assert factors.tolist() == [1, 1, 1, 1, 2, 2]
    assert log_det == pytest.approx(2 * math.log(2) / 6)


@pytest.mark.parametrize(
    ("feasible", "d", "parents"),
    [(0, 2, 6), (1, 2, 6), (2, 2, 2), (3, 2, 3), (2, 4, 4), (5, 2, 5), (6, 2, 6), (3, 6, 6), (3, 7, 6)],
)
def test_the_parents_are_half_of_those_that_succeed(feasible: int, d: int, parents: int) -> None:
    assert parents_of(np.int64(feasible), d, 6, NUMPY) == parents


def test_the_step_of_cma_es_grows_by_a_factor_e_at_most() -> None:
    method = fmnes.CMAES()
    opt = fmnes.Optimizer(np.zeros(3), 1.0, method=method, rng=1)
    for path, wanted in ((1e3, math.e), (0.0, None)):
        opt._distribution.state = opt._distribution.state._replace(sigma=1.0, p_sigma=np.full(3, path))
        x = opt.ask()
        opt.tell([float(row @ row) for row in x])
        assert opt.sigma == pytest.approx(wanted) if wanted else opt.sigma < math.e


def test_a_stretched_coordinate_moves_its_mean_as_far_as_without_the_stretching() -> None:
    opt = fmnes.Optimizer([100.2, 99.7], 5.0, integers=True, bounds=(-1e4, 1e4), rng=1, method="fm-nes")
    drawn = opt._distribution
    drawn.scale = scale = np.array([4.0, 0.5])
    before, z = drawn.state, np.random.default_rng(1).standard_normal((6, 2))
    f = np.arange(6.0)
    after = after_update(opt.strategy, before, z, f)
    drawn.update(z, f, before.mean + z)
    wanted = before.mean * scale + (after.mean - before.mean) * np.array([1.0, 0.5])
    np.testing.assert_allclose(drawn.state.mean * drawn.scale, wanted, rtol=1e-9)


def test_points_fail_where_it_ended() -> None:
    opt = fmnes.Optimizer([1.0, 2.0], 0.5, rng=1)
    opt.evaluations, opt.n_infeasible = 100, 6
    elongated, settled = Stop(StopReason.ILL_CONDITIONED), Stop(StopReason.FTOL)
    assert fails_at(opt, elongated) and not fails_at(opt, settled)
    opt.n_infeasible = 5
    assert not fails_at(opt, elongated)
    opt._recent.failed.extend([0.0] * 9 + [0.6])
    assert fails_at(opt, elongated) and fails_at(opt, settled)


def test_repeated_points_of_all_searches_are_counted_together() -> None:
    opt = fmnes.Optimizer([0, 0], 1.0, integers=True, bounds=(-1, 1), rng=1)
    while opt.n_repeated < 3:
        opt.tell([float(x @ x) for x in opt.ask()])
    totals = Totals()
    totals.take(opt)
    totals.take(opt)
    assert totals.repeated == 2 * opt.n_repeated > 0


@pytest.mark.parametrize(
    ("age", "fresh", "length"),
    [
        (1, 0.0, math.sqrt(2)),
        (1, 0.5, math.sqrt(2) + 0.5),
        (1, 1.0, math.sqrt(2) + 1),
        (2, 1.0, math.sqrt(2)),
    ],
)
def test_points_from_before_are_shortened(age: int, fresh: float, length: float) -> None:
    z = shortened(np.array([[6.0, 8.0], [0.3, 0.4]]), np.array([age, age]), fresh)
    assert np.linalg.norm(z[0]) == pytest.approx(length) and z[1].tolist() == [0.3, 0.4]


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    fsync, replace = os.fsync, _files.replace_file

    def watched_fsync(descriptor: int) -> None:
        fsync(descriptor)
        done.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))

    def watched_replace(temporary: str, path: Any) -> None:
        done.append("renamed")
        replace(temporary, path)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(_files, "replace_file", watched_replace)
    with _files.atomic_write(tmp_path / "a") as file:
        file.write(b"12345")
    written = (tmp_path / "a").stat()
    assert done[:2] == [(written.st_ino, 5), "renamed"]


@pytest.mark.parametrize("clock", [[100.0] * 9, [100.0 - i for i in range(9)]], ids=["stands", "goes back"])
def test_evaluations_are_in_order_whatever_the_clock_does(
    clock: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(clock)
    monkeypatch.setattr(recording.time, "time", lambda: next(times))
    log = EvaluationLog(tmp_path / "log.sqlite")
    recorder = Recorder(log)
    tasks = [Task(np.array([float(i)]), EvaluationId(0, 0, i)) for i in range(4)]
    for task in tasks:
        recorder.record(task, Outcome("value", 1.0, seconds=0.0))
    rows = sorted(log.since(0, 0), key=lambda row: row.key)
    ends = [row.started + row.duration for row in rows]
    assert ends[0] == pytest.approx(100.0) and all(a < b for a, b in itertools.pairwise(ends))
    log.close()


def pid_unless(x: Any) -> float:
    if x[0] == 1.0:
        raise MemoryError
    if x[0] == 2.0:
        raise ValueError
    return float(os.getpid())


@pytest.mark.parametrize(("wrong", "another"), [(1.0, True), (2.0, False)])
def test_after_a_memory_error_comes_another_process(wrong: float, another: bool) -> None:
    workers = Workers(pid_unless, 1)
    try:
        tasks = [Task(np.array([value]), EvaluationId(0, 0, i)) for i, value in enumerate((0.0, wrong, 0.0))]
        outcomes = dict(workers(tasks))
        assert outcomes[1].status == "infeasible"
        assert (outcomes[0].value != outcomes[2].value) is another
    finally:
        workers.close()
