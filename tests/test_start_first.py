"""`minimize` evaluates its start before all else, and what is known already is not evaluated at all."""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError, Infeasible, Lost, ObjectiveError, Optimizer, StopReason, minimize, resume
from fmnes.search.advance import again as begin_again
from fmnes.storage.directory import RunDirectory
from tests.rows import through
from tests.torture import differences, portrait, watching

X0 = [1.0, 2.0, 3.0]


class Sphere:
    """Notes its points; the start does what `act` says."""

    def __init__(self, act: Any = None) -> None:
        self.points: list[Any] = []
        self._act = act

    def __call__(self, x: Any) -> Any:
        self.points.append(x.copy())
        if self._act is not None and np.array_equal(x, X0):
            return self._act()
        return float(np.sum(x * x))


def failing(kind: Any, *words: str) -> Any:
    def act() -> Any:
        raise kind(*words)

    return act


def test_it_comes_first_counts_and_changes_nothing_else() -> None:
    fun = Sphere()
    seen: list[fmnes.View] = []
    settings: Any = {"rng": 1, "population_size": 8}
    result = minimize(fun, X0, 0.5, max_evaluations=101, callback=seen.append, **settings)
    np.testing.assert_array_equal(fun.points[0], X0)
    assert len(fun.points) == result.nfev == 101
    without = Sphere()
    plain = minimize(without, X0, 0.5, max_evaluations=100, evaluate_start=False, **settings)
    np.testing.assert_array_equal(fun.points[1:], without.points)
    np.testing.assert_array_equal(result.x, plain.x)
    assert (result.nit, seen[0].evaluations) == (plain.nit, 9)


def test_the_result_is_never_worse_than_the_start() -> None:
    result = minimize(lambda x: 0.0 if np.array_equal(x, X0) else 1.0 + x[0] ** 2, X0, 0.5, rng=1)
    assert result.fun == 0.0
    np.testing.assert_array_equal(result.x, X0)


def test_a_budget_of_one_and_a_target_at_the_start() -> None:
    fun = Sphere()
    one = minimize(fun, X0, 0.5, max_evaluations=1)
    assert (one.stop_reason, one.nfev, one.fun, len(fun.points)) == (StopReason.MAX_EVALUATIONS, 1, 14.0, 1)
    there = minimize(fun, X0, 0.5, target=14.0)
    assert (there.stop_reason, there.nfev, there.success) == (StopReason.TARGET, 1, True)
    assert "at evaluation 1" in there.message


@pytest.mark.parametrize(
    "act", [failing(Infeasible, "no mesh"), failing(ValueError, "no mesh"), lambda: math.nan, lambda: None]
)
def test_a_start_that_fails_is_noted_and_the_run_goes_on(act: Any) -> None:
    result = minimize(Sphere(act), X0, 0.5, rng=1)
    assert result.success and result.fun < 1e-16 and result.n_infeasible == 1
    assert result.failures[0].count == 1
    np.testing.assert_array_equal(result.failures[0].x, [X0])


def test_a_bug_is_a_start_and_a_generation_that_raise_the_same() -> None:
    fun = Sphere()

    def broken(x: Any) -> float:
        fun(x)
        raise NameError("undefined")

    with pytest.raises(ObjectiveError, match="each of the first 9 evaluations"):
        minimize(broken, X0, 0.5, population_size=8)
    assert len(fun.points) == 9

    def narrow(x: Any) -> float:
        if not np.array_equal(x, X0):
            raise ValueError("outside of the tables")
        return 1.0

    assert minimize(narrow, X0, 0.5, max_evaluations=30).fun == 1.0  # it works where it should


def test_a_wrong_type_at_the_start_is_raised_at_once() -> None:
    fun = Sphere(lambda: "text")
    with pytest.raises(ObjectiveError, match="str"):
        minimize(fun, X0, 0.5)
    assert len(fun.points) == 1


def test_a_lost_start_is_tried_again() -> None:
    tries: list[int] = []

    def act() -> float:
        tries.append(1)
        if len(tries) < 3:
            raise Lost("licence")
        return 14.0

    result = minimize(Sphere(act), X0, 0.5, rng=1, max_evaluations=20)
    assert len(tries) == 3 and result.nfev == 20 and result.n_infeasible == 0
    gone = minimize(Sphere(failing(Lost, "licence")), X0, 0.5, retries=1)
    assert (gone.stop_reason, gone.nfev, gone.x) == (StopReason.LOST, 0, None)


def test_a_vectorized_objective_gets_a_batch_of_one() -> None:
    shapes: list[Any] = []

    def fun(x: Any) -> Any:
        shapes.append(x.shape)
        return np.sum(x * x, axis=1)

    result = minimize(fun, X0, 0.5, rng=1, population_size=8, max_evaluations=17, vectorized=True)
    assert shapes == [(1, 3), (8, 3), (8, 3)] and result.nfev == 17
    serial = minimize(Sphere(), X0, 0.5, rng=1, population_size=8, max_evaluations=17)
    np.testing.assert_array_equal(result.x, serial.x)


def test_workers_executors_and_programs() -> None:
    settings: Any = {"rng": 1, "population_size": 8, "max_evaluations": 17}
    wanted = minimize(Sphere(), X0, 0.5, **settings)
    with ThreadPoolExecutor(2) as pool:
        by_pool = minimize(Sphere(), X0, 0.5, executor=pool, **settings)
    program = "import sys; print(sum(float(x) ** 2 for x in sys.argv[1:]))"
    command = fmnes.Command([sys.executable, "-ISc", program, "{x0}", "{x1}", "{x2}"])
    by_program = minimize(command, X0, 0.5, workers=2, **settings)
    by_workers = minimize(Sphere(), X0, 0.5, workers=2, **settings)
    for found in (by_pool, by_program, by_workers):
        assert found.nfev == 17 and found.fun == pytest.approx(wanted.fun, rel=1e-12)


def test_the_optimizer_does_not_ask_for_it() -> None:
    opt = Optimizer(X0, 0.5, rng=1)
    assert not any(np.array_equal(x, X0) for x in opt.ask())


class Interrupted(Sphere):
    def __init__(self, at: int) -> None:
        super().__init__(failing(Infeasible, "no mesh"))
        self._at = at
        self.__qualname__ = "fun"

    def __call__(self, x: Any) -> Any:
        if len(self.points) + 1 == self._at:
            self._at = 0
            raise KeyboardInterrupt
        return super().__call__(x)


@pytest.mark.parametrize("at", [1, 2, 5, 12])
@pytest.mark.parametrize("often", [0.0, 1e9])
def test_a_resumed_run_does_not_evaluate_it_again(
    at: int, often: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmnes.run.snapshots.SNAPSHOT_SECONDS", often)
    settings: Any = {"rng": 1, "population_size": 6, "max_evaluations": 20}
    with watching() as seen:
        whole = portrait(minimize(Interrupted(0), X0, 0.5, **settings), *seen)
    fun = Interrupted(at)
    first = minimize(fun, X0, 0.5, run_dir=tmp_path / "run", **settings)
    assert (first.stop_reason, first.nfev) == (StopReason.INTERRUPTED, at - 1)
    with watching() as seen:
        found = portrait(resume(tmp_path / "run", fun), *seen)
    assert differences(found, whole) == []
    assert len(fun.points) == 20
    with RunDirectory.open(tmp_path / "run", read_only=True) as directory:
        (row,) = directory.log.infeasible()
    assert (row.key.generation, row.key.slot) == (-1, 0)


# -- known ------------------------------------------------------------------------------------------------


def test_what_is_known_counts_as_best_and_costs_nothing() -> None:
    fun = Sphere()
    known = [([0.1, 0.0, 0.0], 0.01), ([5.0, 5.0, 5.0], 75), ([0.2, 0.0, 0.0], None)]
    settings: Any = {"rng": 1, "max_evaluations": 15, "surrogate": False}
    result = minimize(fun, X0, 0.5, known=known, **settings)
    assert result.fun == 0.01 and result.nfev == len(fun.points) == 15
    np.testing.assert_array_equal(result.x, [0.1, 0.0, 0.0])
    plain = Sphere()
    minimize(plain, X0, 0.5, **settings)
    np.testing.assert_array_equal(fun.points, plain.points)  # not ranked: the search is the same


def test_a_known_start_is_not_evaluated() -> None:
    fun = Sphere()
    result = minimize(fun, X0, 0.5, rng=1, max_evaluations=10, known=[(X0, 14.0)])
    assert result.nfev == 10 and not any(np.array_equal(x, X0) for x in fun.points)
    failed = minimize(Sphere(), X0, 0.5, rng=1, max_evaluations=10, known=[(X0, math.nan)])
    assert failed.nfev == 10 and failed.n_infeasible == 0


def test_a_target_that_is_known_to_be_reached() -> None:
    for evaluate_start in (True, False):
        settings: Any = {"target": 1.0, "evaluate_start": evaluate_start}
        result = minimize(Sphere(), X0, 0.5, known=[([0.0, 0.0, 1.0], 1.0)], **settings)
        assert (result.stop_reason, result.nfev, result.success) == (StopReason.TARGET, 0, True)


def test_it_is_saved_and_survives_a_restart(tmp_path: Path) -> None:
    known = [([0.1, 0.0, 0.0], 0.01), ([0.2, 0.0, 0.0], None)]
    opt = Optimizer(X0, 0.5, rng=1, known=known)
    opt.tell([float(x @ x) for x in opt.ask()])
    opt.save(tmp_path / "saved.npz")
    loaded = Optimizer.load(tmp_path / "saved.npz")
    again = begin_again(loaded, loaded.x0, loaded.sigma0, 8, None)
    for found in (opt, loaded, again):
        assert found.known(np.array([0.1, 0.0, -0.0])) == 0.01
        assert math.isnan(found.known(np.array([0.2, 0.0, 0.0])))  # type: ignore[arg-type]
        assert found.known(np.array([0.3, 0.0, 0.0])) is None
    assert loaded.best.fun == 0.01 and loaded.best.evaluation == 0


@through(
    ("known", "words"),
    [
        (None, "wanted pairs"),
        ("text", "wanted pairs"),
        ([1.0], "wanted pairs"),
        ([([1.0, 2.0], 1.0)], r"shape \(2,\) at 0"),
        ([([1.0, 2.0, math.inf], 1.0)], "finite"),
        ([([1.0, 2.0, 30.0], 1.0)], "inside the bounds"),
        ([(X0, "text")], "value 0"),
        ([(X0, 1.0), (X0, fmnes.LOST)], "LOST at 1"),
    ],
)
def test_what_makes_no_sense_is_refused(known: Any, words: str) -> None:
    for begin in (Optimizer, lambda *a, **k: minimize(lambda x: 1 / 0, *a, **k)):
        with pytest.raises(ArgumentError, match=f"known: .*{words}"):
            begin(X0, 0.5, known=known, bounds=(-9.0, 9.0))  # type: ignore[operator]


# -- a start that fails -------------------------------------------------------------------------------------


def half(x: Any) -> float:
    """Most of what lies about the start fails."""
    if x[0] < 3.0:
        raise Infeasible("too low")
    return float(np.sum(x * x))


def test_from_a_start_that_fails_it_looks_as_far_as_at_first_until_something_succeeds() -> None:
    seen: list[fmnes.View] = []
    result = minimize(half, X0[:2], 1.0, rng=2, callback=seen.append)
    waited = [view for view in seen if not np.isfinite(view.best.fun)]
    assert len(waited) >= 2, "another seed is needed for this test"
    assert {(view.sigma, *view.mean) for view in waited} == {(1.0, *X0[:2])}
    assert seen[len(waited)].sigma != 1.0 and result.success
    assert result.x == pytest.approx([3, 0], abs=1e-4)


@pytest.mark.parametrize("other", [{"evaluate_start": False}, {"method": "fm-nes"}])
def test_a_start_of_which_nothing_is_known_and_published_methods_learn_from_failures(other: Any) -> None:
    seen: list[fmnes.View] = []
    minimize(half, X0[:2], 0.5, rng=3, callback=seen.append, max_evaluations=60, **other)
    assert not np.isfinite(seen[1].best.fun) and seen[1].sigma != 0.5


@pytest.mark.parametrize("cut", [5, 13, 40])
def test_a_run_that_waits_for_a_success_goes_on_as_if_it_had_not_been_cut(cut: int, tmp_path: Path) -> None:
    settings: Any = {"rng": 2, "restarts": 1, "surrogate": False}
    minimize(half, X0[:2], 1.0, max_evaluations=cut, run_dir=tmp_path / "run", **settings)
    result = resume(tmp_path / "run", half, max_evaluations=500)
    whole = minimize(half, X0[:2], 1.0, max_evaluations=500, run_dir=tmp_path / "whole", **settings)
    assert result == whole and result.nfev > cut


def test_a_start_known_to_fail_is_one_that_fails() -> None:
    seen: list[fmnes.View] = []
    minimize(half, X0[:2], 1.0, rng=2, callback=seen.append, known=[(X0[:2], None)], max_evaluations=30)
    assert not np.isfinite(seen[0].best.fun) and seen[0].sigma == 1.0
