"""Each stop criterion at its threshold, with values of every scale, alone and in whole runs."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fmnes import Optimizer, SnapshotError, StopReason, View, minimize
from fmnes.result import Best
from fmnes.search.stopping import (
    Recent,
    budget_spent,
    flat,
    ill_conditioned,
    nothing_feasible,
    search_ended,
    step_size_out_of_range,
    steps_vanished,
    target_reached,
    values_settled,
)
from tests.rows import through
from tests.variants import ONE_OF_EACH, STRATEGIES

inf = math.inf
BELOW = math.nextafter(1, 0)


def view(**changes: Any) -> View:
    plain = View(
        generation=10,
        evaluations=100,
        population_size=10,
        mean=np.array([1.0, 2.0]),
        sigma=1.0,
        axis_lengths=np.array([1.0, 0.5]),
        phase="",
        feasible_share=1.0,
        generation_best=1.0,
        best=Best(np.zeros(2), 1.0, 5),
    )
    return replace(plain, **changes)


def recent(bests: Any = (), window: int = 5, **changes: Any) -> Recent:
    return Recent(window, deque(bests, maxlen=window), **changes)


# -- one criterion at a time ------------------------------------------------------------------------------


@through("target", [0.0, 1.0, -3.5, 1e-300, -1e300, 5e-324])
def test_target(target: float) -> None:
    assert target_reached(Best(np.zeros(1), target, 7), target).reason is StopReason.TARGET
    assert target_reached(Best(np.zeros(1), math.nextafter(target, -inf), 7), target)
    assert target_reached(Best(np.zeros(1), math.nextafter(target, inf), 7), target) is None
    assert target_reached(Best(None, inf, 0), target) is None
    assert target_reached(Best(np.zeros(1), target, 7), None) is None
    assert "evaluation 7" in target_reached(Best(np.zeros(1), target, 7), target).message


def test_budget() -> None:
    assert budget_spent(99, 100) is None
    assert budget_spent(100, 100).reason is StopReason.MAX_EVALUATIONS
    assert budget_spent(101, 100) and "101 of 100" in budget_spent(101, 100).message
    assert budget_spent(10**9, None) is None


def test_nothing_feasible_waits_for_a_long_row() -> None:
    for window, patience in ((5, 50), (80, 80)):
        for counter in ("infeasible", "unevaluated"):
            assert nothing_feasible(recent(window=window, **{counter: patience - 1})) is None
            stop = nothing_feasible(recent(window=window, **{counter: patience}))
            assert stop.reason is StopReason.NO_FEASIBLE and str(patience) in stop.message
    assert "bounds" in nothing_feasible(recent(unevaluated=50, infeasible=50)).message
    assert "failed" in nothing_feasible(recent(infeasible=50)).message


def test_flat_waits_for_its_window() -> None:
    assert flat(recent([3.0] * 5, flat=4)) is None
    stop = flat(recent([3.0] * 5, flat=5))
    assert stop.reason is StopReason.FLAT and "3" in stop.message and "5" in stop.message


@pytest.mark.parametrize("scale", [1.0, 1e300, 1e-280, -1.0, -1e300])
def test_ftol_at_its_threshold_on_every_scale(scale: float) -> None:
    ftol = 2.0**-20
    near, far = scale * (1 - ftol * 0.99), scale * (1 - ftol * 1.01)
    assert values_settled(recent([scale, near, near, scale, near]), ftol).reason is StopReason.FTOL
    assert values_settled(recent([scale, near, far, scale, near]), ftol) is None
    assert values_settled(recent([scale] * 5), 1e-300).reason is StopReason.FTOL
    assert values_settled(recent([scale] * 4), ftol) is None, "the window is not full"
    assert values_settled(recent([scale] * 5), None) is None


def test_ftol_is_never_poisoned() -> None:
    assert values_settled(recent([inf] * 5), 1e-3) is None
    assert values_settled(recent([1.0, 1.0, inf, 1.0, 1.0]), 1e-3) is None
    assert values_settled(recent([inf, 1.0, 1.0, 1.0, 1.0, 1.0]), 1e-3), "inf has left the window"
    assert values_settled(recent([1.7e308, -1.7e308, 1.7e308, -1.7e308, 1e308]), 1e-3) is None
    assert values_settled(recent([1.7e308] * 5), 1e-3)
    assert values_settled(recent([0.0] * 5), 1e-12), "values that have arrived at 0"
    assert values_settled(recent([0.0, 0.0, 1e-200, 0.0, 0.0]), 1e-12) is None


@pytest.mark.parametrize("sigma0", [1.0, 1e-100, 1e100])
def test_xtol_at_its_threshold(sigma0: float) -> None:
    xtol = 2.0**-40
    at_zero = view(mean=np.zeros(2))
    edge = xtol * sigma0
    # The longest axis counts, whatever the order of the axes.
    for lengths in ([2.0, 0.5], [0.5, 2.0]):
        v = replace(at_zero, axis_lengths=np.array(lengths))
        assert steps_vanished(replace(v, sigma=edge / 2 * BELOW), sigma0, xtol).reason is StopReason.XTOL
        assert steps_vanished(replace(v, sigma=edge / 2), sigma0, xtol) is None
    assert steps_vanished(replace(at_zero, sigma=edge * 1e-9), sigma0, None) is None


def test_steps_below_the_resolution_of_every_coordinate_have_vanished() -> None:
    mean = np.array([1e8, -1e10])
    resolution = float(np.spacing(1e8))
    steps = view(mean=mean, axis_lengths=np.ones(2))
    assert steps_vanished(replace(steps, sigma=resolution * BELOW), 1e8, 1e-30).reason is StopReason.XTOL
    assert steps_vanished(replace(steps, sigma=resolution), 1e8, 1e-30) is None
    # One coordinate near zero can still move.
    assert steps_vanished(replace(steps, sigma=1e-30, mean=np.array([0.0, 1e10])), 1.0, 1e-40) is None


def test_ill_conditioned_is_a_ratio_of_variances() -> None:
    edge = 1e7  # of standard deviations; 1e14 of variances
    for short, long in ((1.0, edge), (1e-7, 1.0), (1e-100, 1e-93)):
        stop = ill_conditioned(view(axis_lengths=np.array([long * (1 + 1e-9), short, short])))
        assert stop.reason is StopReason.ILL_CONDITIONED and "1e+14" in stop.message
        assert ill_conditioned(view(axis_lengths=np.array([short, long * (1 - 1e-9), short]))) is None
    assert ill_conditioned(view(axis_lengths=np.array([1.0, 0.0])))
    assert ill_conditioned(view(axis_lengths=np.array([3.0]))) is None


def test_step_size_out_of_range() -> None:
    for sigma0 in (1.0, 1e-50, 1e50):
        edge = 1e20 * sigma0
        grown = view(axis_lengths=np.array([0.5, 2.0]), sigma=edge / 2 * (1 + 1e-9))
        assert step_size_out_of_range(grown, sigma0).reason is StopReason.SIGMA_OVERFLOW
        assert step_size_out_of_range(replace(grown, sigma=edge / 2 * (1 - 1e-9)), sigma0) is None
    tiny = view(axis_lengths=np.array([0.5, 2.0]), sigma=5e-151 * (1 - 1e-9))
    assert step_size_out_of_range(tiny, 1e-149).reason is StopReason.SIGMA_UNDERFLOW
    assert step_size_out_of_range(replace(tiny, sigma=5e-151 * (1 + 1e-9)), 1e-149) is None


def test_a_healthy_search_goes_on() -> None:
    going = recent([9.0, 7.0, 6.0, 4.0, 1.0])
    assert search_ended(view(), going, 1.0, xtol=1e-12, ftol=1e-12) is None


def test_the_criteria_together_and_switched_off() -> None:
    settled = recent([3.0] * 5)
    assert search_ended(view(), settled, 1.0, xtol=1e-12, ftol=1e-12).reason is StopReason.FTOL
    assert search_ended(view(), settled, 1.0, xtol=1e-12, ftol=None) is None
    small = view(sigma=1e-13, mean=np.zeros(2))
    going = recent([9.0, 7.0, 6.0, 4.0, 1.0])
    assert search_ended(small, going, 1.0, xtol=1e-12, ftol=1e-12).reason is StopReason.XTOL
    assert search_ended(small, going, 1.0, xtol=None, ftol=1e-12) is None
    thin = view(axis_lengths=np.array([1.0, 1e-8]))
    assert search_ended(thin, going, 1.0, xtol=1e-12, ftol=1e-12).reason is StopReason.ILL_CONDITIONED


def test_every_reason_has_its_own_words() -> None:
    words = [reason.value for reason in StopReason]
    assert all(isinstance(word, str) and len(word) > 8 for word in words)
    assert len(set(words)) == len(words)
    assert {reason.name for reason in StopReason} == {
        "TARGET",
        "MAX_EVALUATIONS",
        "MAX_SECONDS",
        "XTOL",
        "FTOL",
        "FLAT",
        "ILL_CONDITIONED",
        "SIGMA_OVERFLOW",
        "SIGMA_UNDERFLOW",
        "NO_FEASIBLE",
        "LOST",
        "NUMERICAL",
        "STORAGE",
        "CALLBACK",
        "INTERRUPTED",
        "REPEATED",
        "STALLED",
        "HOPELESS",
        "NOISE",
    }
    assert {reason.name for reason in StopReason if reason.converged} == {"XTOL", "FTOL", "REPEATED"}


# -- whole runs -------------------------------------------------------------------------------------------

METHODS = {name: method for name, method in ONE_OF_EACH.items() if name in STRATEGIES}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def run(fun: Any, x0: Any, sigma0: Any = 1.0, *, generations: int = 20_000, **settings: Any) -> Optimizer:
    opt = Optimizer(x0, sigma0, rng=1, **settings)
    while opt.stop_reason is None:
        opt.tell(fun(opt.ask()))
        assert opt.generation < generations, "it does not stop"
    return opt


def still_works(opt: Optimizer, fun: Any) -> None:
    """A stop is advice: ask and tell go on, and the state stays finite."""
    generation, evaluations = opt.generation, opt.evaluations
    for _ in range(5):
        X = opt.ask()
        assert np.isfinite(X).all()
        opt.tell(fun(X))
    assert opt.generation > generation
    assert opt.evaluations >= evaluations
    assert np.isfinite(opt.mean).all() and math.isfinite(opt.sigma) and np.isfinite(opt.covariance).all()
    opt.result()


def spheres(X: np.ndarray) -> np.ndarray:
    return (X**2).sum(axis=1)


@each_method
@pytest.mark.parametrize("d", [1, 3])
def test_a_sphere_ends_with_xtol(method: Any, d: int) -> None:
    opt = run(spheres, np.full(d, 2.0), method=method)
    assert opt.stop_reason is StopReason.XTOL and opt.result().success
    assert "1e-08" in opt.result().message
    longest = opt.sigma * opt.view().axis_lengths.max()
    assert 1e-11 < longest < 1e-8
    still_works(opt, spheres)


def test_smaller_tolerances_give_more_digits() -> None:
    opt = run(spheres, np.full(3, 2.0), xtol=1e-12, ftol=1e-12)
    assert opt.stop_reason is StopReason.XTOL and "1e-12" in opt.result().message
    assert opt.sigma * opt.view().axis_lengths.max() < 1e-12 and opt.best.fun < 1e-22


@each_method
@pytest.mark.parametrize("d", [1, 3])
def test_a_sphere_above_zero_ends_with_ftol(method: Any, d: int) -> None:
    def fun(X: np.ndarray) -> np.ndarray:
        return 1 + spheres(X)

    opt = run(fun, np.full(d, 2.0), method=method)
    assert opt.stop_reason is StopReason.FTOL and opt.result().success
    assert opt.best.fun == pytest.approx(1, abs=1e-10)
    still_works(opt, fun)


@each_method
@pytest.mark.parametrize("value", [0.0, 7.5, -1e300, 1e-300, 5e-324])
def test_a_flat_objective_ends_without_drift(method: Any, value: float) -> None:
    def fun(X: np.ndarray) -> np.ndarray:
        return np.full(len(X), value)

    opt = run(fun, np.full(3, 2.0), method=method)
    assert opt.stop_reason is StopReason.FLAT and not opt.result().success
    assert opt.generation == 10 + math.ceil(90 / opt.population_size)
    assert np.abs(opt.mean - 2).max() < 100 and 1e-3 < opt.sigma < 1e3
    still_works(opt, fun)


@each_method
def test_a_flat_objective_that_fails_now_and_then(method: Any) -> None:
    def fun(X: np.ndarray) -> np.ndarray:
        return np.where(X[:, 0] > 2.5, np.nan, 3.0)

    assert run(fun, np.full(3, 2.0), method=method).stop_reason in (StopReason.FLAT, StopReason.FTOL)


@each_method
def test_the_scale_of_the_values_does_not_matter(method: Any) -> None:
    def values(X: np.ndarray) -> np.ndarray:
        return np.where(X[:, 0] < 0.5, np.nan, 1 + spheres(X))

    plain = run(values, np.full(3, 2.0), method=method)
    for change in (1e-300, 1e300):
        scaled = run(lambda X, change=change: change * values(X), np.full(3, 2.0), method=method)
        assert (scaled.generation, scaled.stop_reason) == (plain.generation, plain.stop_reason)
        np.testing.assert_array_equal(scaled.mean, plain.mean)


@each_method
def test_an_offset_that_hides_the_differences_ends_the_run(method: Any) -> None:
    opt = run(lambda X: 1e17 + spheres(X), np.full(3, 2.0), method=method)
    assert opt.stop_reason in (StopReason.FTOL, StopReason.FLAT)
    assert opt.generation < 60 and np.isfinite(opt.mean).all()


@each_method
@pytest.mark.parametrize("d", [1, 3])
def test_a_slope_without_end_stops(method: Any, d: int) -> None:
    def slope(X: np.ndarray) -> np.ndarray:
        return X.sum(axis=1)

    opt = run(slope, np.zeros(d), method=method)
    assert opt.stop_reason in (StopReason.SIGMA_OVERFLOW, StopReason.ILL_CONDITIONED)
    assert d > 1 or opt.stop_reason is StopReason.SIGMA_OVERFLOW
    assert not opt.result().success and math.isfinite(opt.best.fun)
    still_works(opt, slope)


@each_method
@pytest.mark.parametrize("d", [3])
def test_steps_that_underflow_stop(method: Any, d: int) -> None:
    def fun(X: np.ndarray) -> np.ndarray:
        return np.abs(X).sum(axis=1)

    opt = run(fun, np.full(d, 2.0), method=method, xtol=None, ftol=None)
    assert opt.stop_reason is StopReason.SIGMA_UNDERFLOW and not opt.result().success
    assert "1e-150" in opt.result().message
    still_works(opt, fun)


@pytest.mark.parametrize("method", ["fm-nes", "xnes", "cma-es"])
def test_a_needle_ends_ill_conditioned(method: str) -> None:
    def needle(X: np.ndarray) -> np.ndarray:
        return X[:, 0] ** 2 + 1e20 * X[:, 1] ** 2

    opt = run(needle, [1.0, 1.0], method=method, xtol=None, ftol=None, generations=100_000)
    assert opt.stop_reason is StopReason.ILL_CONDITIONED
    lengths = opt.view().axis_lengths
    assert (lengths.max() / lengths.min()) ** 2 >= 1e14
    still_works(opt, needle)


@each_method
def test_failing_without_end_stops(method: Any) -> None:
    def fun(X: np.ndarray) -> np.ndarray:
        return np.full(len(X), np.nan)

    opt = run(fun, np.full(3, 2.0), method=method)
    assert opt.stop_reason is StopReason.NO_FEASIBLE and opt.generation == 50
    still_works(opt, fun)


@each_method
def test_one_feasible_value_starts_the_row_anew(method: Any) -> None:
    opt = Optimizer(np.full(3, 2.0), 1.0, rng=1, method=method)
    for generation in range(120):
        X = opt.ask()
        f = np.full(len(X), np.nan)
        if generation % 49 == 48:
            f[0] = 1.0 + generation
        opt.tell(f)
        assert opt.stop_reason is not StopReason.NO_FEASIBLE


@each_method
def test_failures_do_not_keep_a_run_from_settling(method: Any) -> None:
    """A failed evaluation in every generation: no difference is ever taken with it."""

    def fun(X: np.ndarray) -> np.ndarray:
        f = 1 + spheres(X)
        f[::4] = np.inf
        return f

    opt = run(fun, np.full(2, 2.0), method=method, population_size=16)
    assert opt.stop_reason is StopReason.FTOL


def test_a_generation_that_failed_as_a_whole_delays_ftol_by_a_window() -> None:
    opt = Optimizer([2.0, 2.0], 1.0, rng=1, xtol=None)
    for generation in range(40):
        X = opt.ask()
        opt.tell(np.full(len(X), np.nan) if generation == 15 else 1 + 1e-14 * spheres(X))
        if opt.stop_reason is not None:
            break
    assert opt.stop_reason is StopReason.FTOL
    assert opt.generation == 16 + 10 + math.ceil(60 / opt.population_size)


def test_a_far_optimum_ends_at_the_resolution_of_x() -> None:
    opt = run(lambda X: spheres(X - 1e9), np.full(2, 1e9 + 5), xtol=1e-30, ftol=None)
    assert opt.stop_reason is StopReason.XTOL and "resolution" in opt.result().message
    assert np.abs(opt.mean - 1e9).max() < 1e-6


def test_the_resolution_of_x_is_judged_in_the_units_of_the_steps() -> None:
    units = np.array([2.0**-20, 2.0**20])
    plain = run(lambda X: spheres(X - 1e9), np.full(2, 1e9 + 5), xtol=1e-30, ftol=None)
    vector = run(lambda X: spheres(X / units - 1e9), (1e9 + 5) * units, units, xtol=1e-30, ftol=None)
    assert vector.result().message == plain.result().message and "resolution" in plain.result().message
    assert vector.generation == plain.generation


def test_a_state_that_would_not_be_finite_is_not_taken() -> None:
    """Steps of 1e307 down a slope: the update overflows, the last good state stays, and the run says so."""

    def slope(X: np.ndarray) -> np.ndarray:
        return (X / 10).sum(axis=1)

    opt = Optimizer([0.0], 1e307, rng=1, method="xnes", bounds=(-1.7e308, 1.7e308), bounds_as="failure")
    while opt.stop_reason is None:
        state = opt._distribution.state
        opt.tell(slope(opt.ask()))
        assert opt.generation < 20
    assert opt.stop_reason is StopReason.NUMERICAL and not opt.result().success
    assert opt._distribution.state is state and math.isfinite(state.sigma)
    assert opt.evaluations > 0 and math.isfinite(opt.best.fun)
    for _ in range(5):
        opt.tell(slope(opt.ask()))
        assert np.isfinite(opt.mean).all() and math.isfinite(opt.sigma)


def test_sigma0_per_coordinate_and_scale_are_relative() -> None:
    """The same run in other units stops at the same generation."""
    plain = run(spheres, np.full(3, 2.0))
    for factor in (2.0**-100, 2.0**100):
        scaled = run(lambda X, k=factor: spheres(X / k), np.full(3, 2.0 * factor), factor)
        assert (scaled.generation, scaled.stop_reason) == (plain.generation, plain.stop_reason)
    units = np.array([2.0**-60, 1.0, 2.0**60])
    vector = run(lambda X: spheres(X / units), 2 * units, units)
    assert vector.stop_reason is StopReason.XTOL
    assert abs(vector.generation - plain.generation) < 5


def test_minimize_stops_where_the_optimizer_says() -> None:
    result = minimize(lambda x: 3.0, [1.0, 2.0], 1.0, rng=1)
    assert result.stop_reason is StopReason.FLAT and result.fun == 3.0 and not result.success
    assert result.message.startswith(StopReason.FLAT.value)


def test_steps_may_shrink_as_far_as_successes_say() -> None:
    supported, chance = Recent.for_problem(3, 6), Recent.for_problem(3, 6)
    for _ in range(200):
        supported.add([1.0] * 6, True, 6, shrinkage=0.3)
        chance.add([1.0], True, 6, shrinkage=0.1)  # one value leaves nothing to choose from
    assert supported.supported and supported.unsupported == 0
    assert not chance.supported
    metadata, arrays = chance.dump()
    again = Recent.for_problem(3, 6)
    again.restore(metadata, arrays)
    assert again.unsupported == chance.unsupported
    with pytest.raises(SnapshotError):
        again.restore({**metadata, "unsupported": math.nan}, arrays)
