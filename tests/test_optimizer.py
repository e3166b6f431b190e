"""Ask and tell: slots, counting, limits, errors that change nothing, seeds, and what is reported."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import (
    CMAES,
    DXNESIC,
    FMNES,
    LOST,
    XNES,
    ArgumentError,
    Bounds,
    Optimizer,
    Resampling,
    StopReason,
    UsageError,
)
from fmnes.search.advance import again as begin_again
from tests.rows import through
from tests.variants import ONE_OF_EACH, STRATEGIES, VARIANTS

WITHOUT_REDRAWS = {name: method for name, method in ONE_OF_EACH.items() if name in STRATEGIES}
each_without_redraws = pytest.mark.parametrize("method", WITHOUT_REDRAWS.values(), ids=WITHOUT_REDRAWS)
each_method = pytest.mark.parametrize("method", ONE_OF_EACH.values(), ids=ONE_OF_EACH)


def sphere(X: np.ndarray) -> np.ndarray:
    return (X**2).sum(axis=1)


def snapshot(opt: Optimizer) -> tuple[Any, dict[str, bytes]]:
    """All that `save` would write."""
    metadata, arrays = opt.dump()
    return metadata, {name: np.asarray(array).tobytes() for name, array in arrays.items()}


def advance(opt: Optimizer, generations: int, fun: Any = sphere) -> Optimizer:
    wanted = opt.generation + generations
    while opt.generation < wanted:
        opt.tell(fun(opt.ask()))
    return opt


# -- slots ------------------------------------------------------------------------------------------------


@each_method
def test_ask_gives_the_same_points_until_they_have_values(method: Any) -> None:
    opt = Optimizer([1.0, 2.0, 3.0], 0.5, method=method, population_size=8, rng=1)
    X = opt.ask()
    assert X.shape == (8, 3)
    np.testing.assert_array_equal(opt.ask(), X)
    assert (opt.generation, opt.evaluations) == (0, 0)
    opt.tell(sphere(X))
    assert (opt.generation, opt.evaluations) == (1, 8)
    assert not np.isin(opt.ask(), X).any()


@each_without_redraws
def test_a_lost_point_is_asked_again_and_changes_nothing_else(method: Any) -> None:
    start = dict(method=method, population_size=8, rng=1)
    plain, lossy = (Optimizer([1.0, 2.0, 3.0], 0.5, **start) for _ in range(2))
    rng = np.random.default_rng(0)
    for _ in range(10):
        X = plain.ask()
        f = np.where(X[:, 0] > 1.2, np.nan, sphere(X))
        values = dict(zip(map(bytes, X), f, strict=True))
        plain.tell(f)
        told, generation = 0, lossy.generation
        while told < len(X):
            Y = lossy.ask()
            assert len(Y) == len(X) - told
            keep = rng.random(len(Y)) < 0.5
            lossy.tell([values[bytes(y)] if k else LOST for y, k in zip(Y, keep, strict=True)])
            told += int(keep.sum())
            assert lossy.evaluations == plain.evaluations - len(X) + told
            if told < len(X):
                assert lossy.generation == generation
    assert same_but_best_evaluation(lossy, plain)


def same_but_best_evaluation(a: Optimizer, b: Optimizer) -> bool:
    """Told in another order, the best one may have another number; nothing else may differ."""
    (one, arrays), (two, other_arrays) = snapshot(a), snapshot(b)
    one.pop("best_evaluation"), two.pop("best_evaluation")
    return one == two and arrays == other_arrays


def test_all_lost_changes_nothing_at_all() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1)
    X = opt.ask()
    before = snapshot(opt)
    for _ in range(3):
        opt.tell([LOST] * len(X))
        assert snapshot(opt) == before
        np.testing.assert_array_equal(opt.ask(), X)


def test_a_lost_point_is_never_ranked() -> None:
    """If it were told as failed, the first generation would reset the shape and h_unconst would be gone."""
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6)
    X = opt.ask()
    opt.tell([*sphere(X)[:-1], LOST])
    assert opt.generation == 0 and opt.n_infeasible == 0
    assert opt._distribution.state.unconstrained
    opt.tell(sphere(opt.ask()))
    assert opt.generation == 1 and opt.n_infeasible == 0
    assert opt._distribution.state.unconstrained


def test_the_names_of_the_asked_points() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=4, method=Resampling(XNES()))
    assert opt.asked == []
    opt.ask()
    assert opt.asked == [(0, 0, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 2, 0, 0), (0, 0, 3, 0, 0)]
    opt.tell([1.0, None, LOST, math.nan])
    assert opt.asked == []
    opt.ask()
    assert opt.asked == [(0, 0, 2, 0, 0)]  # new draws wait until all points of the generation are known
    opt.tell([2.0])
    opt.ask()
    assert opt.asked == [(0, 0, 1, 1, 0), (0, 0, 3, 1, 0)]


def test_points_are_read_only_and_a_copy() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1)
    X = opt.ask()
    with pytest.raises(ValueError, match="read-only"):
        X[0, 0] = 0.0
    X = X.copy()
    kept = opt.ask()
    X[:] = 1e9
    np.testing.assert_array_equal(opt.ask(), kept)


@each_method
def test_the_users_arrays_are_neither_kept_nor_changed(method: Any) -> None:
    x0, sigma0 = np.array([1.0, 2.0]), np.array([0.5, 0.7])
    lower, upper = np.array([-5.0, -5.0]), np.array([5.0, 5.0])
    start = dict(method=method, rng=1)
    opt = Optimizer(x0, sigma0, bounds=Bounds(lower, upper), **start)
    for array in (x0, lower, upper):
        array[:] = np.nan
    other = Optimizer([1.0, 2.0], [0.5, 0.7], bounds=[(-5.0, 5.0)] * 2, **start)
    for i in range(9):
        np.testing.assert_array_equal(opt.ask(), other.ask())
        f = sphere(other.ask())
        if i % 3 == 0:
            f[0] = np.nan  # with resampling the other values wait in their slots
        told = f.copy()
        opt.tell(told)
        np.testing.assert_array_equal(told, f)
        told[:] = -1.0
        other.tell(f.tolist())
    assert snapshot(opt) == snapshot(other)


def test_the_users_sigma0_is_not_kept() -> None:
    sigma0 = np.array([0.5, 0.7])
    opt = Optimizer([1.0, 2.0], sigma0, rng=1)
    before = snapshot(opt)
    sigma0[:] = np.nan
    assert snapshot(opt) == before


@each_method
def test_a_list_that_is_told_keeps_its_order(method: Any) -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, method=method)
    values = sphere(opt.ask()).tolist()
    kept = list(values)
    opt.tell(values)
    assert values == kept


TELLABLE = {
    "list": lambda f: list(f),
    "tuple": lambda f: tuple(f),
    "generator": lambda f: (v for v in f),
    "column": lambda f: np.asarray(f)[:, None],
    "float32 exact": lambda f: np.asarray(f, dtype=np.float32),
    "python ints": lambda f: [int(v) for v in f],
    "fractions": lambda f: [Fraction(int(v)) for v in f],
    "0-d arrays": lambda f: [np.asarray(v) for v in f],
    "1-element arrays": lambda f: [np.asarray([v]) for v in f],
    "objects": lambda f: np.array(list(f), dtype=object),
}


@through("kind", TELLABLE.values())
def test_values_may_come_in_many_forms(kind: Any) -> None:
    values = [7.0, 3.0, 9.0, 1.0, 4.0, 8.0]
    plain, other = (Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6) for _ in range(2))
    for opt, told in ((plain, np.array(values)), (other, kind(values))):
        opt.ask()
        opt.tell(told)
    assert snapshot(other) == snapshot(plain)
    assert other.best.fun == 1.0 and other.best.evaluation == 4


FAILED_VALUES = {
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "None": None,
    "an integer beyond floats": 10**400,
    "float32": np.float32("nan"),
    "array": np.array([np.nan]),
}


@through("failed", FAILED_VALUES.values())
def test_every_failed_value_counts_as_failed(failed: Any) -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=4)
    opt.ask()
    opt.tell([5.0, failed, 3.0, failed])
    assert (opt.evaluations, opt.n_infeasible, opt.generation) == (4, 2, 1)
    assert opt.best.fun == 3.0 and opt.best.evaluation == 3
    assert not opt._distribution.state.unconstrained
    assert opt.view().feasible_share == 0.5
    assert opt.view().generation_best == 3.0


# -- errors leave everything as it was --------------------------------------------------------------------

BAD_VALUES: dict[str, tuple[Any, str]] = {
    "too few": ([1.0] * 5, r"tell: found 5 values, wanted 6"),
    "too many": ([1.0] * 7, r"tell: found 7 values, wanted 6"),
    "none": ([], r"tell: found 0 values, wanted 6"),
    "a number": (1.0, r"wanted 6"),
    "nothing": (None, r"tell: found None, wanted a sequence of 6 values"),
    "a string": ("abcdef", r"tell: found str, wanted a sequence of 6 values"),
    "bytes": (b"abcdef", r"tell: found bytes, wanted a sequence of 6 values"),
    "a set": ({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, r"tell: found set, wanted a sequence of 6 values"),
    "a string among numbers": ([1.0, 2.0, 3.0, "4", 5.0, 6.0], r"tell: value 0|tell: value 3: .*str"),
    "complex": ([1.0, 2.0, 3j, 4.0, 5.0, 6.0], r"tell: value \d: .*complex"),
    "an object": ([1.0, 2.0, object(), 4.0, 5.0, 6.0], r"tell: value 2: .*object"),
    "nested": ([[1.0, 2.0]] * 6, r"tell: found an array of shape \(6, 2\), wanted 6"),
    "a row": (np.ones((1, 6)), r"tell: found an array of shape \(1, 6\), wanted 6"),
    "uneven": ([[1.0], [1.0, 2.0], 1.0, 1.0, 1.0, 1.0], r"tell: value 1: .*list"),
    "dates": (np.zeros(6, dtype="datetime64[s]"), r"tell: value 0: .*datetime64"),
}


@through(("values", "message"), BAD_VALUES.values())
def test_a_wrong_tell_is_refused_and_changes_nothing(values: Any, message: str) -> None:
    opt = advance(Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6), 3)
    X = opt.ask()
    before = snapshot(opt)
    with pytest.raises(ArgumentError, match=message):
        opt.tell(values)
    assert snapshot(opt) == before
    np.testing.assert_array_equal(opt.ask(), X)
    with pytest.raises(ArgumentError, match=message):
        opt.tell(values)
    opt.tell(sphere(X))  # and the right values are still welcome, without asking again
    assert opt.generation == 4


def test_an_uneven_nested_value_is_refused_like_other_wrong_values() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6)
    opt.ask()
    with pytest.raises(ArgumentError, match="tell: value 2"):
        opt.tell([1.0, 2.0, [[1.0], [2.0, 3.0]], 4.0, 5.0, 6.0])


def test_a_mapping_is_not_taken_for_its_keys() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=4)
    opt.ask()
    with pytest.raises(ArgumentError, match="tell"):
        opt.tell({0: 7.0, 1: 8.0, 2: 9.0, 3: 10.0})


def test_tell_before_ask_and_tell_twice_are_refused() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6)
    before = snapshot(opt)
    with pytest.raises(UsageError, match=r"tell: found no open points; wanted ask\(\) first"):
        opt.tell([1.0] * 6)
    assert snapshot(opt) == before
    X = opt.ask()
    opt.tell(sphere(X))
    before = snapshot(opt)
    with pytest.raises(UsageError, match="tell"):
        opt.tell(sphere(X))
    assert snapshot(opt) == before
    # In the middle of a generation too.
    X = opt.ask()
    opt.tell([LOST, *sphere(X)[1:]])
    before = snapshot(opt)
    with pytest.raises(UsageError, match="tell"):
        opt.tell([1.0])
    assert snapshot(opt) == before
    opt.tell(sphere(opt.ask()))
    assert opt.generation == 2


# -- limits -----------------------------------------------------------------------------------------------


@each_method
def test_a_budget_that_cuts_a_generation_evaluates_its_first_points_and_makes_no_update(method: Any) -> None:
    start = dict(method=method, population_size=6, rng=1)
    plain = advance(Optimizer([1.0, 2.0], 0.5, **start), 2)
    opt = advance(Optimizer([1.0, 2.0], 0.5, max_evaluations=16, **start), 2)
    X = opt.ask()
    np.testing.assert_array_equal(X, plain.ask()[:4])
    state = opt._distribution.state
    assert opt.stop_reason is None
    opt.tell(sphere(X))
    assert opt.stop_reason is StopReason.MAX_EVALUATIONS
    assert (opt.evaluations, opt.generation) == (16, 2)
    assert opt._distribution.state is state
    assert "16" in opt.result().message
    # Advice only: the other two points are still there to be asked for.
    np.testing.assert_array_equal(opt.ask(), plain.ask()[4:])
    opt.tell(sphere(opt.ask()))
    plain.tell(sphere(plain.ask()))
    assert as_arrays(opt) == as_arrays(plain)


def as_arrays(opt: Optimizer) -> dict[str, bytes]:
    return {name: np.asarray(leaf).tobytes() for name, leaf in opt._distribution.state._asdict().items()}


def test_a_budget_that_ends_with_a_generation() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6, max_evaluations=12)
    advance(opt, 2)
    assert opt.stop_reason is StopReason.MAX_EVALUATIONS
    assert (opt.evaluations, opt.generation) == (12, 2)
    assert len(opt.ask()) == 6


def test_the_target_is_counted_in_slot_order() -> None:
    opt = advance(Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6, target=-5.0), 2)
    X, state = opt.ask(), opt._distribution.state
    opt.tell([3.0, math.nan, -5.0, -9.0, math.nan, -7.0])
    assert opt.stop_reason is StopReason.TARGET
    assert (opt.evaluations, opt.generation, opt.n_infeasible) == (15, 2, 1)
    assert opt.best.fun == -5.0 and opt.best.evaluation == 15
    np.testing.assert_array_equal(opt.best.x, X[2])
    assert opt._distribution.state is state
    result = opt.result()
    assert result.success and result.nfev == 15 and result.fun == -5.0 and result.n_infeasible == 1
    np.testing.assert_array_equal(opt.ask(), X[3:])


def test_the_target_is_at_most_and_not_below() -> None:
    for told, stop in ((1.0, StopReason.TARGET), (math.nextafter(1.0, 2), None)):
        opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=4, target=1.0)
        opt.ask()
        opt.tell([told, 5.0, 6.0, 7.0])
        assert opt.stop_reason is stop


def test_a_target_hit_beside_a_lost_point_counts_only_what_is_known() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6, target=0.0)
    opt.ask()
    opt.tell([LOST, 4.0, -1.0, 5.0, 5.0, 5.0])
    assert opt.stop_reason is StopReason.TARGET
    assert opt.evaluations == 2 and opt.best.evaluation == 2


@pytest.mark.parametrize("as_array", [True, False])
def test_minus_infinity_does_not_hide_what_was_told_after_it(as_array: bool) -> None:
    told = [4.0, -math.inf, 3.0, -1.0, 5.0, 5.0]
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=6, target=0.0)
    opt.ask()
    opt.tell(np.array(told) if as_array else told)
    assert opt.evaluations == 4
    assert opt.stop_reason is StopReason.TARGET
    assert opt.best.fun == -1.0


def test_a_target_changes_nothing_while_it_is_not_reached() -> None:
    plain, aimed = (Optimizer([1.0, 2.0], 0.5, rng=1, target=target) for target in (None, -1e9))
    for _ in range(5):
        X = plain.ask()
        np.testing.assert_array_equal(aimed.ask(), X)
        f = np.where(X[:, 0] > 1.2, -np.inf, sphere(X))
        plain.tell(f)
        aimed.tell(f)
    assert as_arrays(plain) == as_arrays(aimed)


def test_best_is_the_first_of_equals_and_knows_its_evaluation() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, population_size=4)
    assert opt.best == (None, math.inf, 0)
    X = opt.ask()
    opt.tell([math.nan, 2.0, 1.0, 1.0])
    assert opt.best.evaluation == 3
    np.testing.assert_array_equal(opt.best.x, X[2])
    opt.ask()
    opt.tell([1.0, 5.0, 5.0, 5.0])
    assert opt.best.evaluation == 3
    Y = opt.ask()
    opt.tell([5.0, 5.0, math.nan, 0.5])
    assert opt.best.evaluation == 12 and opt.best.fun == 0.5
    np.testing.assert_array_equal(opt.best.x, Y[3])


@each_method
def test_best_after_many_generations_is_the_minimum_of_all_that_was_told(method: Any) -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1, method=method)
    points, told = [], []
    for _ in range(30):
        X = opt.ask()
        f = np.where(X[:, 1] < 0.1, np.nan, sphere(X))
        points.extend(X)
        told.extend(f)
        opt.tell(f)
    i = int(np.nanargmin(told))
    assert opt.best.fun == told[i] and opt.best.evaluation == i + 1
    np.testing.assert_array_equal(opt.best.x, points[i])
    assert opt.evaluations == len(told)
    assert opt.n_infeasible == np.isnan(told).sum()


# -- bounds -----------------------------------------------------------------------------------------------


@each_without_redraws
def test_points_outside_the_bounds_are_never_asked_for_and_cost_nothing(method: Any) -> None:
    start = dict(bounds=[(0.0, 1.0), (None, 1.0)], bounds_as="failure", population_size=20)
    opt = Optimizer([0.5, 0.5], 0.5, rng=1, method=method, **start)
    asked = 0
    for _ in range(10):
        X = opt.ask()
        assert (X[:, 0] >= 0).all() and (X <= 1).all()
        asked += len(X)
        opt.tell(sphere(X))
    assert 0 < asked < 200
    assert opt.evaluations == asked and opt.n_infeasible == 0
    assert opt.generation == 10


def test_steps_of_very_different_size_give_no_warning() -> None:
    opt = Optimizer([1.7e308, 0.0], [5e307, 1e-120], rng=1, population_size=20)
    assert np.isfinite(opt.ask()).all()


def test_a_point_on_a_bound_is_inside() -> None:
    def points(bounds: Any) -> np.ndarray:
        return Optimizer([1.0, 2.0], 0.5, rng=3, population_size=4, bounds=bounds, bounds_as="failure").ask()

    X = points(None)
    np.testing.assert_array_equal(points(Bounds(X.min(axis=0), X.max(axis=0))), X)
    assert len(points(Bounds(-9.0, np.nextafter(X.max(axis=0), 0)))) < 4


@each_without_redraws
def test_a_long_row_of_generations_without_an_evaluation_stops(method: Any) -> None:
    opt = Optimizer(np.zeros(6), 1e6, rng=1, bounds=(-1e-9, 1e-9), bounds_as="failure", method=method)
    X = opt.ask()
    if opt.strategy.mirrored:  # these shrink on failures, and may come home
        while opt.generation < 2000 and not opt.stop_reason and not len(X):
            opt.tell([])
            X = opt.ask()
        assert opt.evaluations == 0
    assert X.shape[1] == 6
    if len(X) == 0:
        assert opt.stop_reason is StopReason.NO_FEASIBLE
        assert "bounds" in opt.result().message
        assert opt.result().success is False and opt.result().x is None and opt.result().fun == math.inf
        generation = opt.generation
        opt.tell([])
        opt.ask()
        assert opt.generation > generation  # advice only


def test_without_one_evaluation_the_run_ends_with_no_feasible() -> None:
    opt = Optimizer(np.zeros(6), 1e6, rng=1, bounds=(-1e-9, 1e-9), bounds_as="failure", method="xnes")
    assert opt.ask().shape == (0, 6)
    assert opt.stop_reason is StopReason.NO_FEASIBLE
    assert opt.generation >= 50


@pytest.mark.parametrize("bounds", [(None, None), (0, None), (-np.inf, np.inf)])
def test_an_infinite_point_is_never_asked_for(bounds: Any) -> None:
    opt = Optimizer([1.5e308, 1.5e308], 2e307, rng=1, bounds=bounds, population_size=40)
    assert np.isfinite(opt.ask()).all()


def test_an_infinite_point_is_never_asked_for_without_bounds() -> None:
    opt = Optimizer([1.5e308, 1.5e308], 2e307, rng=1, population_size=40)
    X = opt.ask()
    assert np.isfinite(X).all()
    assert 0 < len(X) < 40


# -- resampling -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [XNES(), CMAES(), CMAES(parameters="2006")])
def test_resampling_redraws_failed_points_until_they_succeed(inner: Any) -> None:
    opt = Optimizer([0.0, 0.0], 1.0, rng=1, population_size=8, method=Resampling(inner))
    told = failed = 0
    while opt.generation < 10:
        state = opt._distribution.state
        X = opt.ask()
        f = np.where(X[:, 0] < 0.3, np.nan, sphere(X - 1))
        told += len(f)
        failed += int(np.isnan(f).sum())
        generation = opt.generation
        opt.tell(f)
        # A generation ends exactly when nothing that was told has failed, and then all of it is feasible.
        assert (opt.generation > generation) == np.isfinite(f).all()
        assert (opt._distribution.state is state) == (opt.generation == generation)
        if opt.generation > generation:
            assert opt.view().feasible_share == 1.0
        else:
            assert len(opt.ask()) == np.isnan(f).sum()
            assert not np.isin(opt.ask(), X).any()
    assert failed > 10
    assert (opt.evaluations, opt.n_infeasible) == (told, failed)
    assert opt.evaluations - opt.n_infeasible == 80


def test_resampling_gives_up_at_its_cap() -> None:
    opt = Optimizer([0.0, 0.0], 1.0, rng=1, population_size=8, method=Resampling(XNES(), max_redraws=20))
    tells = 0
    while opt.stop_reason is None:
        opt.tell([math.nan] * len(opt.ask()))
        tells += 1
        assert tells < 10
    assert opt.stop_reason is StopReason.NO_FEASIBLE
    assert tells == 3  # 8 + 8 + 8 redraws are the first that make 20
    assert opt.evaluations == 24 and opt.generation == 0
    assert "24" in opt.result().message
    opt.tell(sphere(opt.ask()))
    assert opt.generation == 1 and opt.stop_reason is None


def test_the_cap_counts_one_generation_only() -> None:
    opt = Optimizer([0.0, 0.0], 1.0, rng=1, population_size=8, method=Resampling(XNES(), max_redraws=20))
    for _ in range(10):
        for _ in range(2):
            opt.tell([math.nan] * len(opt.ask()))
            assert opt.stop_reason is None
        opt.tell(sphere(opt.ask()))
    assert opt.generation == 10 and opt.n_infeasible == 160


def test_resampling_redraws_points_outside_the_bounds_too() -> None:
    start = dict(population_size=8, bounds=(0.0, 1.0), bounds_as="failure")
    opt = Optimizer([0.5, 0.5], 0.5, rng=1, method=Resampling(CMAES()), **start)
    for _ in range(5):
        X = opt.ask()
        assert len(X) == 8
        opt.tell(sphere(X))
        assert opt.view().feasible_share == 1.0


def test_resampling_outside_reachable_bounds_ends() -> None:
    method = Resampling(XNES(), max_redraws=1000)
    opt = Optimizer(np.zeros(3), 1e6, rng=1, bounds=(-1e-9, 1e-9), bounds_as="failure", method=method)
    for _ in range(20):
        X = opt.ask()
        if opt.stop_reason:
            break
        opt.tell(sphere(X))
    assert opt.stop_reason is StopReason.NO_FEASIBLE


# -- one step size per coordinate, and what is reported ---------------------------------------------------


@each_method
def test_a_vector_sigma0_equals_scaling_the_problem_by_hand(method: Any) -> None:
    scale = np.array([0.25, 1.0, 4.0])  # geometric mean 1, powers of two: exact
    start = dict(method=method, population_size=8, rng=1)
    vector = Optimizer([1.0, 2.0, 3.0], 0.5 * scale, bounds=(-9.0, 9.0), **start)
    by_hand = Optimizer([4.0, 2.0, 0.75], 0.5, bounds=Bounds(-9.0 / scale, 9.0 / scale), **start)
    for _ in range(25):
        X, Y = vector.ask(), by_hand.ask()
        np.testing.assert_allclose(X, Y * scale, rtol=1e-14)
        f = np.where(X[:, 0] < 0.4, np.nan, sphere(X))
        vector.tell(f)
        by_hand.tell(f)
        np.testing.assert_allclose(vector.mean, by_hand.mean * scale, rtol=1e-14)
        np.testing.assert_allclose(
            vector.covariance, by_hand.covariance * np.outer(scale, scale), rtol=1e-13, atol=1e-300
        )
        assert vector.stop_reason == by_hand.stop_reason
    np.testing.assert_allclose(vector.view().mean, by_hand.view().mean * scale, rtol=1e-14)
    np.testing.assert_allclose(vector.result().x_mean, by_hand.mean * scale, rtol=1e-14)


def test_a_vector_sigma0_of_equal_entries_is_the_number() -> None:
    plain = Optimizer([1.0, 2.0, 3.0], 0.5, rng=1)
    vector = Optimizer([1.0, 2.0, 3.0], [0.5, 0.5, 0.5], rng=1)
    advance(plain, 20), advance(vector, 20)
    np.testing.assert_allclose(vector.mean, plain.mean, rtol=1e-9)
    assert vector.sigma == pytest.approx(plain.sigma, rel=1e-9)


def shape_matrix() -> np.ndarray:
    return np.array([[2.0, 0.0, 0.0], [1.5, 0.5, 0.0], [-0.7, 0.2, 1.0]])


SAMPLERS = STRATEGIES | {
    f"{name}, B0": VARIANTS[name].with_shape(shape_matrix()) for name in ("fm-nes", "dx-nes-ic", "xnes")
}


@through("method", SAMPLERS.values())
def test_mean_and_covariance_are_those_of_the_points(method: Any) -> None:
    """20,000 points in each of four generations, within 5 standard errors."""
    n = 20_000
    opt = Optimizer([1.0, -2.0, 3.0], [0.5, 2.0, 1.0], method=method, population_size=n, rng=1)
    for _ in range(4):
        X = opt.ask()
        mean, C = opt.mean, opt.covariance
        independent = n // 2 if opt.strategy.mirrored else n
        assert (np.abs(X.mean(axis=0) - mean) <= 5 * np.sqrt(np.diag(C) / independent)).all()
        found = np.cov(X.T)
        error = np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / independent)
        assert (np.abs(found - C) < 5 * error).all()
        np.testing.assert_array_equal(C, C.T)
        opt.tell(X @ [1.0, 0.3, -2.0] + sphere(X))
    np.testing.assert_array_equal(opt.view().mean, opt.mean)
    np.testing.assert_array_equal(opt.result().x_mean, opt.mean)
    assert opt.view().sigma == opt.sigma


def test_sigma_and_axis_lengths_describe_the_covariance() -> None:
    for method in (FMNES(refresh=1), XNES(), CMAES()):
        opt = advance(
            Optimizer([1.0, -2.0, 3.0], 0.5, method=method, rng=1), 30, lambda X: sphere(X * [1, 9, 99])
        )
        lengths = np.sort(opt.sigma * opt.view().axis_lengths)
        np.testing.assert_allclose(lengths, np.sqrt(np.linalg.eigvalsh(opt.covariance)), rtol=1e-7)
        assert lengths[-1] > 2 * lengths[0]
        if not isinstance(method, CMAES):
            assert np.linalg.det(opt.covariance) == pytest.approx(opt.sigma**6, rel=1e-8)


@pytest.mark.parametrize("settings", [FMNES, DXNESIC, XNES])
def test_b0_counts_in_one_dimension_too(settings: Any) -> None:
    opt = Optimizer([1.0], 2.0, method=settings(B0=[[3.0]]), rng=1)
    assert opt.covariance[0, 0] == pytest.approx(36.0)


def test_b0_is_the_initial_shape_whatever_its_sign_and_size() -> None:
    for B0 in (shape_matrix(), -shape_matrix(), 1e100 * shape_matrix(), shape_matrix()[[1, 0, 2]]):
        for settings in (FMNES, XNES):
            sigma0 = 0.25 / np.abs(B0).max()
            opt = Optimizer(np.zeros(3), sigma0, method=settings(B0=B0), rng=1)
            B = B0 * sigma0
            np.testing.assert_allclose(opt.covariance, B @ B.T, rtol=1e-12)


@each_method
def test_a_view_cannot_reach_the_optimizer(method: Any) -> None:
    opt, plain = (advance(Optimizer([1.0, 2.0], 0.5, rng=1, method=method), 3) for _ in range(2))
    view = opt.view()
    for array in (view.mean, view.axis_lengths, opt.mean, opt.covariance):
        if array.flags.writeable:
            array[:] = 1e6
    np.testing.assert_array_equal(opt.ask(), plain.ask())


def test_the_best_point_that_is_handed_out_cannot_be_edited() -> None:
    opt = advance(Optimizer([1.0, 2.0], 0.5, rng=1), 3)
    kept = opt.best.x.copy()
    for array in (opt.best.x, opt.view().best.x, opt.result().x):
        if array.flags.writeable:
            array[:] = 1e6
    np.testing.assert_array_equal(opt.best.x, kept)


def test_the_result_so_far() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=7)
    result = opt.result()
    assert result.x is None and result.fun == math.inf and result.success is False
    assert result.stop_reason is None and result.message == "still running" and result.seed == 7
    advance(opt, 3)
    result = opt.result()
    assert (result.nfev, result.nit) == (opt.evaluations, 3)
    assert f"{result.fun:.8g}" in str(result) and f"{opt.evaluations} evaluations" in str(result)


def test_success_is_a_plain_bool() -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=1)
    while opt.stop_reason is None:
        opt.tell(sphere(opt.ask()))
    assert opt.result().success is True


@pytest.mark.parametrize("size", [1e160, 1e307])
def test_a_state_of_huge_finite_numbers_is_not_a_numerical_fault(size: float) -> None:
    opt = Optimizer(np.full(4, size), size / 10, rng=1)
    advance(opt, 5, lambda X: X[:, 0] / size)
    assert opt.stop_reason is None
    assert opt.generation == 5 and (opt.mean != size).all()


# -- random numbers ---------------------------------------------------------------------------------------


def test_the_same_seed_is_the_same_run_and_zero_is_a_seed() -> None:
    runs = {}
    for seed in (0, 1, np.int64(0), None):
        opt = advance(Optimizer([1.0, 2.0], 0.5, rng=seed), 5)
        runs[repr(seed)] = opt.mean.tobytes()
        assert opt.seed is not None
        assert type(opt.seed) is int
        again = advance(Optimizer([1.0, 2.0], 0.5, rng=opt.seed), 5)
        assert again.mean.tobytes() == runs[repr(seed)]
    assert runs["0"] == runs[repr(np.int64(0))]
    assert len(set(runs.values())) == 3


def test_two_runs_without_a_seed_differ() -> None:
    assert Optimizer([1.0], 0.5).seed != Optimizer([1.0], 0.5).seed


def test_a_seed_gives_the_numbers_of_numpys_default_generator() -> None:
    """Number for number, for ever: the draw for a random start, then those of the first generation."""
    opt = Optimizer([1.0, 2.0], 0.5, rng=5, population_size=6, method="xnes")
    rng = np.random.default_rng(5)
    rng.standard_normal(2)
    np.testing.assert_array_equal(opt.ask(), np.array([1.0, 2.0]) + 0.5 * rng.standard_normal((6, 2)))


GENERATORS: dict[str, Callable[[], np.random.Generator]] = {
    "PCG64": lambda: np.random.default_rng(5),
    "MT19937": lambda: np.random.Generator(np.random.MT19937(5)),
    "Philox": lambda: np.random.Generator(np.random.Philox(5)),
    # Their seed sequences are not what decides their numbers.
    "jumped": lambda: np.random.Generator(np.random.PCG64(5).jumped(3)),
    "legacy": lambda: np.random.Generator(np.random.RandomState(5)._bit_generator),
}


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_a_generator_is_a_seed_and_nobody_elses_draws_matter(make: Callable[[], np.random.Generator]) -> None:
    plain = advance(Optimizer([1.0, 2.0], 0.5, rng=make()), 5)
    assert plain.seed is None
    shared = make()
    opt = Optimizer([1.0, 2.0], 0.5, rng=shared)

    def noisy(X: np.ndarray) -> np.ndarray:
        shared.standard_normal(7)
        return sphere(X)

    assert advance(opt, 5, noisy).mean.tobytes() == plain.mean.tobytes()
    # The same generator again is another run, and so is one that has been drawn from.
    again, later = Optimizer([1.0, 2.0], 0.5, rng=shared), make()
    later.random()
    starts = {o.ask().tobytes() for o in (Optimizer([1.0, 2.0], 0.5, rng=r) for r in (make(), later))}
    assert len({*starts, again.ask().tobytes()}) == 3


def test_a_generator_shared_with_the_objective_makes_a_run_that_can_be_saved(tmp_path: Path) -> None:
    """It could not be resumed: the objective's draws had moved the search's own."""
    shared = np.random.default_rng(5)

    def noisy(X: np.ndarray) -> np.ndarray:
        return sphere(X) + 1e-9 * shared.standard_normal(len(X))

    opt = advance(Optimizer([1.0, 2.0], 0.5, rng=shared), 3, noisy)
    opt.save(tmp_path / "state.npz")
    loaded = Optimizer.load(tmp_path / "state.npz")
    told = [noisy(opt.ask()) for _ in range(4)]
    for f in told:
        np.testing.assert_array_equal(loaded.ask(), opt.ask())
        opt.tell(f)
        loaded.tell(f)
    assert snapshot(loaded) == snapshot(opt)


def test_a_search_that_begins_again_goes_on_with_the_same_random_numbers() -> None:
    opt = advance(Optimizer([1.0, 2.0], 0.5, rng=5, population_size=6, method="xnes"), 1)
    rng = np.random.default_rng(5)
    for shape in (2, (6, 2), 2):
        rng.standard_normal(shape)
    doubled = begin_again(opt, opt.x0, opt.sigma0, 12, None)
    X = np.array([1.0, 2.0]) + 0.5 * rng.standard_normal((12, 2))
    np.testing.assert_array_equal(doubled.ask(), X)
    assert doubled.restart == 1


# -- nothing to tell --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, tuple, iter, np.array])
def test_any_form_of_no_values_is_told_where_there_are_no_points(kind: Any) -> None:
    """A long row of generations outside the bounds; a generator raised a TypeError of NumPy's."""
    opt = Optimizer([0.0] * 60, 1.0, bounds=(0.0, 1e-9), bounds_as="failure", rng=1)
    X = opt.ask()
    assert X.shape == (0, 60) and opt.stop_reason is StopReason.NO_FEASIBLE
    generation = opt.generation
    opt.tell(kind([float(x @ x) for x in X]))
    assert opt.generation == generation + 1
    opt.tell(float(x @ x) for x in opt.ask())
    assert opt.generation == generation + 2


@each_method
def test_global_random_state_is_neither_used_nor_changed(method: Any) -> None:
    def run() -> bytes:
        return advance(Optimizer([1.0, 2.0], 0.5, rng=3, method=method), 5).mean.tobytes()

    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    first = run()
    after = np.random.get_state()  # noqa: NPY002
    assert before[2] == after[2] and np.array_equal(before[1], after[1])
    np.random.seed(2)  # noqa: NPY002
    assert run() == first


@each_method
def test_the_first_points_are_around_x0_which_is_not_among_them(method: Any) -> None:
    opt = Optimizer([1.0, 2.0], 0.5, rng=3, method=method, population_size=10)
    X = opt.ask()
    assert not (X == [1.0, 2.0]).all(axis=1).any()
    if opt.strategy.mirrored:
        np.testing.assert_allclose(X[0::2] + X[1::2], np.tile([2.0, 4.0], (5, 1)), rtol=1e-15)


def test_lost_is_one_and_the_same() -> None:
    assert fmnes.LOST is LOST and "lost" in repr(LOST)


def corner_values(X: np.ndarray) -> np.ndarray:
    """Falls towards a corner of what can be evaluated, along one axis more than along the other."""
    return np.where((X < 0).any(axis=1), np.nan, X @ np.array([1.0, 30.0]))


def test_where_points_fail_and_axes_part_there_are_more_of_them_up_to_the_limit() -> None:
    sizes = {}
    for most in (None, 9, 6):
        opt = Optimizer([1.0, 1.0], 0.5, method=fmnes.AFMNES(max_population_size=most), rng=1)
        sizes[most] = []
        for _ in range(60):
            X = opt.ask()
            assert len(X) <= opt.view().population_size
            sizes[most].append(len(X))
            opt.tell(corner_values(X))
    assert sizes[None][0] == sizes[9][0] == 6 and set(sizes[6]) == {6}
    assert 6 < max(sizes[None]) <= 24 and max(sizes[9]) == 8  # pairs: the limit is 9, so 8
    fixed = Optimizer([1.0, 1.0], 0.5, method="fm-nes", rng=1)
    for _ in range(60):
        assert len(fixed.ask()) == 6
        fixed.tell(corner_values(fixed.ask()))


def test_a_saved_generation_of_another_size_goes_on(tmp_path: Path) -> None:
    opt = Optimizer([1.0, 1.0], 0.5, rng=1)
    while opt.view().population_size == opt.population_size:
        opt.tell(corner_values(opt.ask()))
    opt.ask()
    opt.save(tmp_path / "opt.npz")
    again = Optimizer.load(tmp_path / "opt.npz")
    for _ in range(5):
        np.testing.assert_array_equal(opt.ask(), again.ask())
        for each in (opt, again):
            each.tell(corner_values(each.ask()))


@pytest.mark.parametrize("most", [3, 2.5, "many"])
def test_a_limit_of_the_population_that_makes_no_sense_is_refused(most: Any) -> None:
    with pytest.raises(ArgumentError, match="max_population_size: found"):
        fmnes.AFMNES(max_population_size=most)
    with pytest.raises(ArgumentError, match="wanted at least 12"):
        fmnes.AFMNES(population_size=12, max_population_size=10)
