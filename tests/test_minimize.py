"""`minimize`: whatever the objective does, the run ends with a result or with an error that says why."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import (
    CMAES,
    FMNES,
    LOST,
    XNES,
    Infeasible,
    Lost,
    ObjectiveError,
    Resampling,
    Result,
    StopReason,
    minimize,
)
from fmnes.run.evaluate import Work
from tests.rows import through

X0 = [1.0, 2.0, 3.0]


def sphere(x: np.ndarray) -> float:
    return float(x @ x)


def spheres(X: np.ndarray) -> np.ndarray:
    return np.array([float(x @ x) for x in X])  # the same sums as `sphere`, bit for bit


def failing(fail: Callable[[], Any], where: Callable[[np.ndarray], bool] | None = None) -> Any:
    """A sphere that calls `fail` in part of the space."""

    def fun(x: np.ndarray) -> Any:
        if (where or (lambda x: x[0] < 0.5))(x):
            return fail()
        return sphere(x)

    return fun


def raising(error: type[BaseException], *arguments: Any) -> Callable[[], Any]:
    def fail() -> None:
        raise error(*arguments)

    return fail


def same(a: Result, b: Result) -> bool:
    """The same run, number for number; times and tracebacks aside."""
    columns = [name for name in a.history if name != "seconds"]
    return (
        a.fun == b.fun
        and np.array_equal(a.x, b.x)
        and np.array_equal(a.x_mean, b.x_mean)
        and (a.nfev, a.nit, a.n_infeasible, a.stop_reason) == (b.nfev, b.nit, b.n_infeasible, b.stop_reason)
        and all(np.array_equal(a.history[c], b.history[c], equal_nan=True) for c in columns)
    )


class Counted:
    """An objective that counts its calls."""

    def __init__(self, fun: Any = sphere) -> None:
        self.fun, self.calls = fun, 0

    def __call__(self, x: np.ndarray) -> Any:
        self.calls += 1
        return self.fun(x)


# -- an objective that fails ------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no message")


class Unpicklable(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.lock = threading.Lock()


def recurse() -> float:
    return recurse() + 1


FAILURES: dict[str, tuple[Callable[[], Any], str]] = {
    "NaN": (lambda: math.nan, "returned NaN"),
    "inf": (lambda: math.inf, "returned inf"),
    "-inf": (lambda: -math.inf, "returned -inf"),
    "None": (lambda: None, "returned None"),
    "array of NaN": (lambda: np.array([np.nan]), "returned NaN"),
    "a huge integer": (lambda: 10**400, "too large"),
    "ValueError": (raising(ValueError, "bad mesh"), "ValueError: bad mesh"),
    "no message": (raising(KeyError), "KeyError"),
    "Infeasible": (raising(Infeasible, "mesh failed"), "mesh failed"),
    "Infeasible, no reason": (raising(Infeasible), "infeasible"),
    "sys.exit": (lambda: sys.exit(3), "SystemExit: 3"),
    "RecursionError": (recurse, "RecursionError"),
    "MemoryError": (raising(MemoryError), "MemoryError"),
    "StopIteration": (raising(StopIteration), "StopIteration"),
    "AssertionError": (raising(AssertionError, "x"), "AssertionError: x"),
    "ZeroDivisionError": (lambda: 1 / 0, "ZeroDivisionError"),
    "unprintable": (raising(Unprintable), "Unprintable"),
    "unpicklable": (raising(Unpicklable, 1, 2), "Unpicklable"),
    "FloatingPointError": (lambda: np.float64(1) / _raising_zero(), "FloatingPointError"),
}


def warns_of_minus_infinity(reason: str = "returned -inf") -> contextlib.AbstractContextManager[Any]:
    """It would be the best value of all, and is more likely a logarithm of zero: that must be said."""
    if reason != "returned -inf":
        return contextlib.nullcontext()
    return pytest.warns(RuntimeWarning, match="returned -inf; taken for a failed evaluation")


def _raising_zero() -> float:
    with np.errstate(divide="raise"):
        return float(np.float64(1) / np.float64(0))


@pytest.mark.parametrize(("fail", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_failed_evaluation_is_ranked_last_and_noted(fail: Any, reason: str) -> None:
    seen: list[np.ndarray] = []

    def where(x: np.ndarray) -> bool:
        bad = bool(x[0] < 0.5)
        if bad:
            seen.append(x.copy())
        return bad

    with warns_of_minus_infinity(reason):
        result = minimize(failing(fail, where), X0, 0.7, rng=1, max_evaluations=300, surrogate=False)
    plain = minimize(failing(lambda: math.nan), X0, 0.7, rng=1, max_evaluations=300, surrogate=False)
    assert same(result, plain)
    assert 0 < result.n_infeasible < 300 == result.nfev
    (failure,) = result.failures
    assert reason in failure.reason
    assert failure.count == result.n_infeasible == len(seen)
    np.testing.assert_array_equal(failure.x, np.array(seen[:100]))
    assert result.x is not None and result.x[0] >= 0.5
    assert result.fun == sphere(result.x)


def test_failures_come_with_the_traceback_of_the_first() -> None:
    counter = itertools.count()

    def fail() -> None:
        raise ValueError(f"bad input {next(counter) // 1000}")

    (failure,) = minimize(failing(fail), X0, 0.7, rng=1, max_evaluations=100).failures
    assert "Traceback" in failure.detail and "in fail" in failure.detail and "bad input 0" in failure.detail
    assert len(failure.detail) <= 2000


def test_the_ledger_keeps_reasons_apart_and_the_most_frequent_first() -> None:
    def fun(x: np.ndarray) -> float:
        if x[0] < 0.5:
            raise Infeasible("left")
        if x[1] < 1.9:
            raise Infeasible("low")
        if x[2] > 3.2:
            return math.nan
        return sphere(x)

    result = minimize(fun, X0, 0.7, rng=1, max_evaluations=400, surrogate=False)
    counts = {failure.reason: failure.count for failure in result.failures}
    assert set(counts) == {"left", "low", "returned NaN"}
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    assert sum(counts.values()) == result.n_infeasible
    for failure in result.failures:
        assert failure.x.shape == (min(100, failure.count), 3)


def test_the_ledger_stays_small() -> None:
    counter = itertools.count()

    def fail() -> None:
        raise Infeasible(f"number {next(counter)}")

    often = failing(fail, lambda x: x.view(np.int64)[0] % 2 == 0)
    result = minimize(often, X0, 0.7, rng=1, max_evaluations=3000, xtol=None, ftol=None)
    assert result.n_infeasible > 1100
    assert len(result.failures) <= 1001
    assert sum(failure.count for failure in result.failures) == result.n_infeasible
    often = failing(raising(Infeasible, "again"), lambda x: x.view(np.int64)[0] % 2 == 0)
    (failure,) = minimize(often, X0, 0.7, rng=1, max_evaluations=400).failures
    assert failure.count > 150 and failure.x.shape == (100, 3)


def test_an_objective_that_always_fails_ends_with_no_feasible() -> None:
    counted = Counted(lambda x: math.nan)
    result = minimize(counted, X0, 0.7, rng=1)
    assert result.stop_reason is StopReason.NO_FEASIBLE
    assert result.x is None and result.fun == math.inf and result.success is False
    assert result.nfev == result.n_infeasible == counted.calls < 2000
    assert "no feasible point" in str(result)
    assert (result.history["best"] == math.inf).all()


def test_on_error_raise_lets_exceptions_through_and_only_those() -> None:
    with pytest.raises(ZeroDivisionError):
        minimize(failing(lambda: 1 / 0), X0, 0.7, rng=1, on_error="raise", max_evaluations=300)
    with pytest.raises(SystemExit):
        minimize(failing(lambda: sys.exit(3)), X0, 0.7, rng=1, on_error="raise", max_evaluations=300)
    plain = minimize(failing(lambda: math.nan), X0, 0.7, rng=1, max_evaluations=300, surrogate=False)
    for fail in (lambda: None, lambda: math.nan, raising(Infeasible, "bad")):
        assert same(
            minimize(failing(fail), X0, 0.7, rng=1, on_error="raise", max_evaluations=300, surrogate=False),
            plain,
        )


def test_on_error_raise_names_a_stop_iteration() -> None:
    """It cannot pass through an iterator as it is, so it comes as the cause of an error of ours."""
    with pytest.raises(ObjectiveError, match="StopIteration"):
        minimize(failing(raising(StopIteration)), X0, 0.7, rng=1, on_error="raise", max_evaluations=300)


def test_an_infeasible_whose_message_cannot_be_read_is_still_infeasible() -> None:
    class Bad(Infeasible):
        __str__ = Unprintable.__str__

    assert minimize(failing(raising(Bad)), X0, 0.7, rng=1, max_evaluations=100).nfev == 100


# -- an objective that is broken --------------------------------------------------------------------------


@through("on_error", ["infeasible", "raise"])
@through("wrong", ["text", 1j, [1.0, 2.0], np.ones((2, 2)), {}, object(), [], b"1"])
def test_a_wrong_type_at_the_first_evaluation_stops_at_once(wrong: Any, on_error: Any) -> None:
    counted = Counted(lambda x: wrong)
    with pytest.raises(ObjectiveError, match=rf"returned {type(wrong).__name__}.*wanted one real number"):
        minimize(counted, X0, 0.7, rng=1, on_error=on_error)
    assert counted.calls == 1


def test_an_uneven_list_is_a_wrong_type_too() -> None:
    counted = Counted(lambda x: [[1.0], [2.0, 3.0]])
    with pytest.raises(ObjectiveError, match="returned list"):
        minimize(counted, X0, 0.7, rng=1)
    assert counted.calls == 1


def test_a_masked_value_is_not_a_number() -> None:
    result = minimize(failing(lambda: np.ma.masked), X0, 0.7, rng=1, max_evaluations=100)
    assert result.fun > 0


def wrong_at(call: int) -> Any:
    counter = itertools.count(1)

    def fun(x: np.ndarray) -> Any:
        return "oops" if next(counter) >= call else sphere(x)

    return fun


def test_a_wrong_type_later_is_a_failed_evaluation_with_one_warning() -> None:
    with pytest.warns(RuntimeWarning, match="returned str.*taken for a failed evaluation") as caught:
        result = minimize(wrong_at(20), X0, 0.7, rng=1, population_size=8, max_evaluations=40)
    assert len(caught) == 1
    assert result.nfev == 40 and result.n_infeasible == 21
    assert "returned str" in result.failures[0].reason
    with pytest.raises(ObjectiveError, match="returned str"):
        minimize(wrong_at(20), X0, 0.7, rng=1, population_size=8, max_evaluations=40, on_error="raise")


def test_a_wrong_type_after_good_values_of_the_first_generation_is_later() -> None:
    with pytest.warns(RuntimeWarning, match="returned str"):
        result = minimize(wrong_at(4), X0, 0.7, rng=1, population_size=8, max_evaluations=40)
    assert result.nfev == 40 and result.n_infeasible == 37


def test_a_wrong_type_in_a_restart_does_not_lose_the_run_before() -> None:
    first = minimize(sphere, X0, 0.7, rng=1)
    with pytest.warns(RuntimeWarning, match="returned str"):
        result = minimize(
            wrong_at(first.nfev + 3), X0, 0.7, rng=1, restarts=1, max_evaluations=first.nfev + 40
        )
    assert result.fun <= first.fun


def test_a_first_generation_of_one_and_the_same_exception_is_a_bug() -> None:
    def fun(x: np.ndarray) -> float:
        return sphere(x) + undefined_name  # type: ignore[name-defined] # noqa: F821

    counted = Counted(fun)
    with pytest.raises(ObjectiveError, match="looks like a bug in the objective") as caught:
        minimize(counted, X0, 0.7, rng=1, population_size=10)
    assert counted.calls == 1 + 10
    message = str(caught.value)
    assert "NameError" in message and "undefined_name" in message
    assert "Traceback" in message and "in fun" in message


@pytest.mark.parametrize("fail", [raising(Infeasible, "bad"), lambda: math.nan], ids=["Infeasible", "NaN"])
def test_a_first_generation_that_says_it_is_infeasible_is_not_a_bug(fail: Any) -> None:
    result = minimize(lambda x: fail(), X0, 0.7, rng=1, max_evaluations=40)
    assert result.nfev == 40 and result.stop_reason is StopReason.MAX_EVALUATIONS


@pytest.mark.parametrize("settings", [{}, {"evaluate_start": False}, {"workers": 2}, {"vectorized": True}])
def test_a_first_generation_of_none_is_a_forgotten_return(settings: Any) -> None:
    with pytest.raises(ObjectiveError, match=r"(?s)returned None.*[Dd]id you forget `return`\?"):
        minimize(forgets_to_return, X0, 0.7, rng=1, **settings)


def forgets_to_return(x: np.ndarray) -> None:
    np.sum(x * x)


def test_none_beside_another_answer_is_a_failed_evaluation() -> None:
    """The start returned NaN, or one point of the first generation did."""
    for other in (0, 3):
        counter = itertools.count()

        def fun(x: np.ndarray, counter: Any = counter, other: int = other) -> float | None:
            return math.nan if next(counter) == other else None

        result = minimize(fun, X0, 0.7, rng=1, max_evaluations=40)
        assert result.nfev == result.n_infeasible == 40


def test_a_run_of_a_function_that_forgot_to_return_goes_on_when_it_is_mended(tmp_path: Path) -> None:
    answers = False

    def fun(x: np.ndarray) -> float | None:
        return sphere(x) if answers else None

    with pytest.raises(ObjectiveError, match="forget `return`"):
        minimize(fun, X0, 0.7, rng=1, max_evaluations=40, run_dir=tmp_path / "run")
    answers = True
    result = fmnes.resume(tmp_path / "run", fun)
    assert same(result, minimize(sphere, X0, 0.7, rng=1, max_evaluations=40))


def test_different_exceptions_in_the_first_generation_are_not_a_bug() -> None:
    counter = itertools.count()

    def fun(x: np.ndarray) -> float:
        raise (ValueError if next(counter) % 2 else ZeroDivisionError)("bad")

    result = minimize(fun, X0, 0.7, rng=1, max_evaluations=40)
    assert result.nfev == result.n_infeasible == 40
    assert {failure.reason for failure in result.failures} == {"ValueError: bad", "ZeroDivisionError: bad"}


def test_one_good_value_in_the_first_generation_is_enough() -> None:
    counter = itertools.count()

    def fun(x: np.ndarray) -> float:
        if next(counter) % 10:
            raise ValueError("bad")
        return sphere(x)

    assert minimize(fun, X0, 0.7, rng=1, population_size=10, max_evaluations=40).n_infeasible == 36


def test_failing_redraws_after_good_values_are_not_a_bug() -> None:
    counted = Counted(failing(raising(ValueError, "bad"), lambda x: x[0] < 1.5))
    result = minimize(counted, [1.0, 2.0], 1.0, rng=2, method=Resampling(XNES()), max_evaluations=100)
    assert result.nfev == counted.calls == 100


def test_failing_retries_after_good_values_are_not_a_bug() -> None:
    counter = itertools.count(1)

    def fun(x: np.ndarray) -> float:
        call = next(counter)
        if call <= 2:
            raise Lost("busy")
        if 8 < call <= 10:
            raise ValueError("bad")
        return sphere(x)

    assert minimize(fun, X0, 0.7, rng=1, population_size=8, max_evaluations=40).n_infeasible == 2


# -- what the objective must not be able to change --------------------------------------------------------


def test_an_objective_may_write_to_its_point() -> None:
    def vandal(x: np.ndarray) -> float:
        value = sphere(x)
        x[:] = 1e9
        return value

    def vandals(X: np.ndarray) -> np.ndarray:
        values = spheres(X)
        X[:] = 1e9
        return values

    settings: dict[str, Any] = {"rng": 1, "max_evaluations": 200, "surrogate": False}
    plain = minimize(sphere, X0, 0.7, **settings)
    assert same(minimize(vandal, X0, 0.7, **settings), plain)
    assert same(minimize(vandals, X0, 0.7, vectorized=True, **settings), plain)


def test_an_objective_may_keep_its_points() -> None:
    kept: list[np.ndarray] = []

    def fun(x: np.ndarray) -> float:
        kept.append(x)
        return sphere(x)

    result = minimize(fun, X0, 0.7, rng=1, max_evaluations=60, noise=False)
    assert len({x.tobytes() for x in kept}) == 60
    assert min(map(sphere, kept)) == result.fun


def test_global_random_state_is_the_objectives_own() -> None:
    def reseeding(x: np.ndarray) -> float:
        np.random.seed(0)  # noqa: NPY002
        np.random.rand(3)  # noqa: NPY002
        return sphere(x)

    plain = minimize(sphere, X0, 0.7, rng=1, max_evaluations=200)
    assert same(minimize(reseeding, X0, 0.7, rng=1, max_evaluations=200), plain)


def test_numpy_error_settings_of_the_caller_are_kept() -> None:
    with np.errstate(all="raise"):
        before = np.geterr()
        result = minimize(failing(lambda: math.nan), X0, 0.7, rng=1)
        assert np.geterr() == before
    assert same(result, minimize(failing(lambda: math.nan), X0, 0.7, rng=1))


# -- vectorized -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fm-nes", "dx-nes-ic", "xnes", "cma-es", Resampling(CMAES())], ids=str)
def test_vectorized_equals_serial(method: Any) -> None:
    def values(X: np.ndarray) -> np.ndarray:
        return np.where(X[:, 0] < 0.5, np.nan, spheres(X))

    settings = dict(rng=1, method=method, max_evaluations=333)
    for extra in ({}, {"target": 1.0}, {"bounds": (0.2, 5.0)}, {"sigma0": [0.1, 0.7, 2.0]}):
        extra = {"sigma0": 0.7, **extra}
        serial = minimize(failing(lambda: math.nan), X0, **extra, **settings)
        together = minimize(values, X0, **extra, **settings, vectorized=True)
        assert same(serial, together)
        for a, b in zip(serial.failures, together.failures, strict=True):
            assert (a.reason, a.count) == (b.reason, b.count)
            if not isinstance(method, Resampling):
                np.testing.assert_array_equal(a.x, b.x)


def test_vectorized_failures_stand_in_the_same_order_with_resampling() -> None:
    settings = dict(sigma0=0.7, rng=1, method=Resampling(CMAES()), max_evaluations=333)
    (serial,) = minimize(failing(lambda: math.nan), X0, **settings).failures
    (together,) = minimize(
        lambda X: np.where(X[:, 0] < 0.5, np.nan, spheres(X)), X0, vectorized=True, **settings
    ).failures
    np.testing.assert_array_equal(serial.x, together.x)


def test_no_point_is_evaluated_twice_after_minus_infinity() -> None:
    rows: list[bytes] = []

    def values(X: np.ndarray) -> np.ndarray:
        rows.extend(x.tobytes() for x in X)
        return np.where(X[:, 0] < 0.5, -np.inf, spheres(X))

    with warns_of_minus_infinity():
        result = minimize(
            values, X0, 0.7, vectorized=True, rng=1, max_evaluations=333, target=-1.0, noise=False
        )
    assert result.n_infeasible > 0
    assert len(rows) == len(set(rows)) == result.nfev


@pytest.mark.parametrize(
    "error", [ValueError("v"), Infeasible("i"), Lost("l"), SystemExit(1), ObjectiveError("o")], ids=repr
)
def test_an_exception_of_a_vectorized_objective_is_raised(error: BaseException) -> None:
    def fun(X: np.ndarray) -> np.ndarray:
        raise error

    with pytest.raises(type(error)) as caught:
        minimize(fun, X0, 0.7, rng=1, vectorized=True)
    assert caught.value is error


@through(
    "wrong",
    [
        lambda X: 1.0,
        lambda X: np.ones((len(X), 1)),
        lambda X: np.ones(len(X) - 1),
        lambda X: np.ones(len(X), dtype=complex),
        lambda X: [None] * len(X),
        lambda X: ["1"] * len(X),
        lambda X: None,
    ],
)
def test_a_vectorized_objective_of_the_wrong_shape_or_type_is_an_error(wrong: Any) -> None:
    counted = Counted(wrong)
    with pytest.raises(
        ObjectiveError, match=r"vectorized objective returned .* wanted real numbers of shape"
    ):
        minimize(counted, X0, 0.7, rng=1, vectorized=True)
    assert counted.calls == 1


# -- callback, time, interrupts ---------------------------------------------------------------------------


def stop_iteration(view: fmnes.View) -> None:
    if view.generation == 5:
        raise StopIteration


@pytest.mark.parametrize("callback", [lambda view: view.generation == 5, stop_iteration])
def test_a_callback_can_stop_the_run(callback: Any) -> None:
    result = minimize(sphere, X0, 0.7, rng=1, callback=callback)
    assert result.stop_reason is StopReason.CALLBACK and result.nit == 5
    assert result.success is False and "generation 5" in result.message
    assert len(result.history["generation"]) == 5


@through("answer", [None, False, 0, 1, "yes", np.float64(1)])
def test_a_callback_that_returns_something_else_does_not_stop_it(answer: Any) -> None:
    result = minimize(sphere, X0, 0.7, rng=1, max_evaluations=100, callback=lambda view: answer)
    assert result.stop_reason is StopReason.MAX_EVALUATIONS


def test_a_callback_may_return_a_numpy_bool() -> None:
    result = minimize(sphere, X0, 0.7, rng=1, max_evaluations=100, callback=lambda v: v.mean[0] < 99)
    assert result.stop_reason is StopReason.CALLBACK


def test_an_exception_of_the_callback_is_not_swallowed() -> None:
    error = RuntimeError("mine")

    def callback(view: fmnes.View) -> None:
        raise error

    with pytest.raises(RuntimeError) as caught:
        minimize(sphere, X0, 0.7, rng=1, callback=callback)
    assert caught.value is error


def test_ctrl_c_in_the_callback_returns_the_result_so_far() -> None:
    def callback(view: fmnes.View) -> None:
        if view.generation == 3:
            raise KeyboardInterrupt

    result = minimize(sphere, X0, 0.7, rng=1, population_size=10, callback=callback)
    assert result.stop_reason is StopReason.INTERRUPTED
    assert result.nfev == 1 + 30 and result.nit == 3 and math.isfinite(result.fun)


def test_the_callback_sees_every_generation_and_can_change_nothing() -> None:
    views: list[fmnes.View] = []
    means: list[np.ndarray] = []

    def callback(view: fmnes.View) -> None:
        views.append(view)
        means.append(view.mean.copy())
        for array in (view.mean, view.axis_lengths):
            if array.flags.writeable:
                array[:] = 7.0

    settings: dict[str, Any] = {"rng": 1, "max_evaluations": 200, "surrogate": False}
    plain = minimize(failing(lambda: math.nan), X0, 0.7, **settings)
    result = minimize(failing(lambda: math.nan), X0, 0.7, callback=callback, **settings)
    assert same(result, plain)
    assert [view.generation for view in views] == list(range(1, result.nit + 1))
    np.testing.assert_array_equal(result.history["evaluations"], [view.evaluations for view in views])
    assert all(view.best.fun == min(v.best.fun for v in views[: i + 1]) for i, view in enumerate(views))
    assert len({mean.tobytes() for mean in means}) == len(means)
    with pytest.raises(AttributeError):
        views[0].sigma = 1.0  # type: ignore[misc]


def test_max_seconds_ends_the_run_in_the_middle_of_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the objective advances, however slow the machine is."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def slow(x: np.ndarray) -> float:
        nonlocal now
        now += 0.25
        return sphere(x)

    result = minimize(slow, X0, 0.7, rng=1, max_seconds=2.0, population_size=1000)
    assert result.stop_reason is StopReason.MAX_SECONDS
    assert result.nfev == 8 and result.nit == 0
    assert result.x is not None and math.isfinite(result.fun) and result.success is False


def test_a_jump_of_the_clock_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = itertools.count(0, 1e7)
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    result = minimize(sphere, X0, 0.7, rng=1, max_seconds=60.0, max_evaluations=200, surrogate=False)
    assert result.stop_reason is StopReason.MAX_EVALUATIONS
    assert (np.diff(result.history["seconds"]) >= 0).all() and result.history["seconds"][-1] < 1e6


@pytest.mark.parametrize("method", ["fm-nes", Resampling(CMAES())], ids=str)
def test_ctrl_c_returns_the_result_so_far(method: Any) -> None:
    counter = itertools.count(1)
    seen: list[float] = []

    def fun(x: np.ndarray) -> float:
        if next(counter) == 45:
            raise KeyboardInterrupt
        seen.append(sphere(x))
        return seen[-1]

    result = minimize(fun, X0, 0.7, rng=1, population_size=10, method=method)
    assert result.stop_reason is StopReason.INTERRUPTED
    assert result.nfev == 44 and result.nit == 4
    assert result.fun == min(seen) and result.success is False
    assert len(result.history["generation"]) == 4


def test_ctrl_c_in_a_vectorized_objective() -> None:
    counter = itertools.count(1)

    def fun(X: np.ndarray) -> np.ndarray:
        if next(counter) == 5:  # the start is the first
            raise KeyboardInterrupt
        return spheres(X)

    result = minimize(fun, X0, 0.7, rng=1, population_size=10, vectorized=True)
    assert result.stop_reason is StopReason.INTERRUPTED and result.nfev == 1 + 30


def test_ctrl_c_at_the_very_first_evaluation() -> None:
    result = minimize(lambda x: raising(KeyboardInterrupt)(), X0, 0.7, rng=1)
    assert result.stop_reason is StopReason.INTERRUPTED
    assert result.nfev == 0 and result.x is None and result.fun == math.inf


def test_ctrl_c_after_some_failures_is_an_interrupt_and_not_a_bug() -> None:
    counter = itertools.count(1)

    def fun(x: np.ndarray) -> float:
        raise ValueError("bad") if next(counter) < 4 else KeyboardInterrupt

    result = minimize(fun, X0, 0.7, rng=1, population_size=10)
    assert result.stop_reason is StopReason.INTERRUPTED and result.nfev == 3


def test_the_message_of_an_interrupt_counts_all_evaluations() -> None:
    counter = itertools.count(1)

    def fun(x: np.ndarray) -> float:
        if next(counter) == 15:
            raise KeyboardInterrupt
        return sphere(x)

    assert "evaluation 14" in minimize(fun, X0, 0.7, rng=1, population_size=10).message


# -- lost evaluations -------------------------------------------------------------------------------------


def test_a_lost_evaluation_is_tried_again_and_never_punished() -> None:
    counter = itertools.count(1)

    def fun(x: np.ndarray) -> Any:
        call = next(counter)
        if call in (3, 4, 40):
            raise Lost("licence server down")
        if call == 60:
            return LOST
        return sphere(x)

    plain = minimize(sphere, X0, 0.7, rng=1, max_evaluations=200)
    result = minimize(fun, X0, 0.7, rng=1, max_evaluations=200)
    assert result.n_infeasible == 0 and result.failures == []
    assert result.nfev == 200 and result.stop_reason is plain.stop_reason
    np.testing.assert_array_equal(result.history["sigma"], plain.history["sigma"])
    np.testing.assert_array_equal(result.x_mean, plain.x_mean)
    assert next(counter) - 1 == 204


@pytest.mark.parametrize("retries", [0, 1])
def test_an_evaluation_that_stays_lost_stops_the_run(retries: int) -> None:
    tries: dict[bytes, int] = {}

    def fun(x: np.ndarray) -> float:
        if x[0] < 0.5:
            tries[x.tobytes()] = tries.get(x.tobytes(), 0) + 1
            raise Lost("licence server down")
        return sphere(x)

    result = minimize(fun, X0, 0.7, rng=1, retries=retries)
    assert result.stop_reason is StopReason.LOST
    assert "licence server down" in result.message
    assert max(tries.values()) == retries + 1
    assert result.success is False and result.n_infeasible == 0 and result.failures == []


def test_waiting_before_a_retry_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Work, "pause", lambda self, seconds: waits.append(seconds))

    def fun(x: np.ndarray) -> float:
        raise Lost("busy")

    result = minimize(fun, [1.0], 0.7, rng=1, population_size=4, retries=2, evaluate_start=False)
    assert result.stop_reason is StopReason.LOST and result.nfev == 0
    assert len(waits) == 2 and 0 < waits[0] < waits[1]


# -- restarts ---------------------------------------------------------------------------------------------


def test_restarts_double_the_population_share_the_budget_and_keep_the_best() -> None:
    seen: list[float] = []

    def fun(x: np.ndarray) -> float:
        seen.append(float(np.abs(x).sum()) + 1)
        return seen[-1]

    sizes: list[tuple[int, int]] = []
    result = minimize(
        fun,
        X0,
        0.7,
        rng=1,
        restarts=2,
        population_size=6,
        ftol=1e-6,
        max_evaluations=5000,
        callback=lambda view: sizes.append((view.restart, view.population_size)),
    )
    assert sorted(set(sizes)) == [(0, 6), (1, 12), (2, 24)]
    assert result.nfev == len(seen) <= 5000
    assert result.fun == min(seen)
    history = result.history
    assert result.nit == len(history["restart"]) == len(sizes)
    np.testing.assert_array_equal(np.unique(history["restart"]), [0, 1, 2])
    assert (np.diff(history["evaluations"]) > 0).all()
    assert (np.diff(history["best"]) <= 0).all()
    assert history["evaluations"][-1] == result.nfev
    assert result.success is True and result.seed == 1


def test_restarts_stop_at_the_budget() -> None:
    first = minimize(sphere, X0, 0.7, rng=1)
    counted = Counted()
    result = minimize(counted, X0, 0.7, rng=1, restarts=5, max_evaluations=first.nfev + 33)
    assert counted.calls == result.nfev == first.nfev + 33
    assert result.stop_reason is StopReason.MAX_EVALUATIONS
    assert result.fun == first.fun  # the best of both, and 33 evaluations cannot beat it
    np.testing.assert_array_equal(result.x, first.x)


def test_the_best_of_an_earlier_run_makes_the_result() -> None:
    first = minimize(sphere, X0, 0.7, rng=1)
    counter = itertools.count(1)

    def fun(x: np.ndarray) -> float:
        return sphere(x) if next(counter) <= first.nfev else 5.0 + sphere(x)

    result = minimize(fun, X0, 0.7, rng=1, restarts=1, max_evaluations=first.nfev + 500)
    assert result.fun == first.fun
    np.testing.assert_array_equal(result.x, first.x)


def test_no_restart_after_the_target_or_without_need() -> None:
    hit = minimize(sphere, X0, 0.7, rng=1, restarts=3, target=1e-3)
    assert hit.stop_reason is StopReason.TARGET and (hit.history["restart"] == 0).all() and hit.success
    stopped = minimize(sphere, X0, 0.7, rng=1, restarts=3, callback=lambda view: view.generation == 3)
    assert stopped.nit == 3


def test_a_target_reached_in_a_restart_is_a_success() -> None:
    first = minimize(sphere, X0, 0.7, rng=1)
    counter = itertools.count(1)

    def fun(x: np.ndarray) -> float:
        return sphere(x) - (1e3 if next(counter) > first.nfev + 7 else 0.0)

    result = minimize(fun, X0, 0.7, rng=1, restarts=1, target=-1.0)
    assert result.success and result.stop_reason is StopReason.TARGET
    assert result.nfev == first.nfev + 8


def test_failures_of_all_runs_are_counted_together() -> None:
    counted = Counted(failing(lambda: math.nan))
    result = minimize(counted, X0, 0.7, rng=1, restarts=1, max_evaluations=4000)
    assert result.nfev == counted.calls
    assert result.n_infeasible == sum(failure.count for failure in result.failures)


def test_restarts_repeat_with_the_seed() -> None:
    settings = dict(restarts=1, max_evaluations=3000)
    a = minimize(sphere, X0, 0.7, **settings)
    assert a.seed is not None
    assert same(minimize(sphere, X0, 0.7, rng=a.seed, **settings), a)


@pytest.mark.parametrize("method", [FMNES(population_size=8), Resampling(CMAES(population_size=8))])
def test_a_population_given_in_the_settings_is_doubled_too(method: Any) -> None:
    sizes: set[int] = set()
    result = minimize(
        sphere,
        X0,
        [0.7, 0.1, 2.0],
        rng=1,
        method=method,
        restarts=1,
        max_evaluations=8000,
        callback=lambda view: sizes.add(view.population_size),
    )
    assert sizes == {8, 16}
    assert same(
        minimize(sphere, X0, [0.7, 0.1, 2.0], rng=1, method=method, restarts=1, max_evaluations=8000), result
    )


# -- the result -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fm-nes", "dx-nes-ic", "xnes", "cma-es"])
def test_it_finds_the_minimum(method: str) -> None:
    counted = Counted(failing(lambda: math.nan, lambda x: x[0] < -0.1))
    result = minimize(counted, X0, 0.7, rng=1, method=method)
    assert result.success is True and result.stop_reason in (StopReason.XTOL, StopReason.FTOL)
    assert result.fun < 1e-14 and np.abs(result.x).max() < 1e-7 and np.abs(result.x_mean).max() < 1e-7
    assert result.nfev == counted.calls
    assert result.message.startswith(result.stop_reason.value)


def test_success_needs_the_target_where_there_is_one() -> None:
    assert minimize(sphere, X0, 0.7, rng=1, target=1e-3).success is True
    missed = minimize(sphere, X0, 0.7, rng=1, target=-1.0)
    assert missed.stop_reason is StopReason.XTOL and missed.success is False
    assert minimize(sphere, X0, 0.7, rng=1, max_evaluations=50).success is False
    assert minimize(lambda x: 3.0, X0, 0.7, rng=1).success is False  # FLAT


def test_the_target_is_counted_at_its_evaluation() -> None:
    counted = Counted()
    result = minimize(counted, X0, 0.7, rng=1, target=1.0, population_size=20)
    assert result.nfev == counted.calls and result.fun <= 1.0
    assert result.nfev % 20 != 0, "choose another seed: the hit should come in the middle"
    batch = minimize(spheres, X0, 0.7, rng=1, target=1.0, population_size=20, vectorized=True)
    assert same(batch, result)


def test_the_history_has_one_row_per_generation() -> None:
    count: dict[str, Any] = {"method": "fm-nes", "population_size": 10, "evaluate_start": False}
    result = minimize(failing(lambda: math.nan), X0, 0.7, rng=1, max_evaluations=405, **count)
    history = result.history
    assert list(history) == [
        "restart",
        "generation",
        "evaluations",
        "best",
        "generation_best",
        "sigma",
        "longest_axis",
        "shortest_axis",
        "feasible_share",
        "seconds",
    ]
    assert result.nit == 40 and {len(column) for column in history.values()} == {40}
    np.testing.assert_array_equal(history["generation"], np.arange(1, 41))
    np.testing.assert_array_equal(history["evaluations"], 10 * np.arange(1, 41))
    np.testing.assert_array_equal(history["best"], np.minimum.accumulate(history["generation_best"]))
    assert history["generation"].dtype.kind == "i"
    assert (history["longest_axis"] >= history["shortest_axis"]).all()
    assert history["feasible_share"].min() >= 0 and history["feasible_share"].max() <= 1
    assert 0 < history["feasible_share"].mean() < 1
    complete = minimize(failing(lambda: math.nan), X0, 0.7, rng=1, max_evaluations=400, **count)
    assert (1 - history["feasible_share"]).sum() * 10 == pytest.approx(complete.n_infeasible)
    long = minimize(sphere, [1.0], 0.7, rng=1, xtol=None, ftol=None, max_evaluations=1201, noise=False)
    np.testing.assert_array_equal(long.history["generation"], np.arange(1, 301))  # beyond one doubling


def test_the_seed_of_an_unseeded_run_repeats_it() -> None:
    result = minimize(sphere, X0, 0.7, max_evaluations=100)
    assert same(minimize(sphere, X0, 0.7, rng=result.seed, max_evaluations=100), result)
    assert not same(minimize(sphere, X0, 0.7, max_evaluations=100), result)
    assert minimize(sphere, X0, 0.7, rng=0, max_evaluations=100).seed == 0
    assert minimize(sphere, X0, 0.7, rng=np.random.default_rng(1), max_evaluations=100).seed is None


def test_the_loop_is_what_a_user_can_do_by_hand() -> None:
    fun = failing(lambda: math.nan)
    plain: dict[str, Any] = {"evaluate_start": False, "second_look": False, "noise": False}
    result = minimize(fun, X0, 0.7, rng=1, bounds=(-9.0, 9.0), **plain)
    opt = fmnes.Optimizer(X0, 0.7, rng=1, bounds=(-9.0, 9.0))
    while opt.stop_reason is None:
        opt.tell([fun(x) for x in opt.ask()])
    by_hand = opt.result()
    assert by_hand.message == result.message and by_hand.fun == result.fun
    assert (by_hand.nfev, by_hand.nit, by_hand.n_infeasible) == (result.nfev, result.nit, result.n_infeasible)
    np.testing.assert_array_equal(by_hand.x, result.x)


def test_x0_may_be_infeasible() -> None:
    result = minimize(failing(lambda: math.nan, lambda x: x[0] < 1.05), X0, 0.7, rng=1, max_evaluations=400)
    assert result.x is not None and result.x[0] >= 1.05


def test_nothing_is_printed_or_written(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    minimize(failing(raising(ValueError, "bad")), X0, 0.7, rng=1, restarts=1, max_evaluations=2000)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert os.listdir(tmp_path) == []


def test_progress_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    result = minimize(failing(lambda: math.nan), X0, 0.7, rng=1, max_evaluations=200, progress=True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "200" in captured.err and "best" in captured.err and f"{result.fun:.6g}" in captured.err
    plain = minimize(failing(lambda: math.nan), X0, 0.7, rng=1, max_evaluations=200)
    assert same(result, plain)
    minimize(lambda x: math.nan, X0, 0.7, rng=1, max_evaluations=20, progress=True)
    assert "none yet" in capfd.readouterr().err


def test_the_best_of_all_restarts_is_counted_from_the_first_evaluation() -> None:
    values: list[float] = []
    views: list[Any] = []

    def bumpy(x: np.ndarray) -> float:
        values.append(float(x @ x + 10 * np.sum(1 - np.cos(5 * x))))
        return values[-1]

    minimize(
        bumpy, [2.5, 2.5], 0.3, rng=2, restarts=4, max_evaluations=6000, ftol=1e-6, callback=views.append
    )
    later = [view for view in views if view.restart and view.best.fun < min(values[: views[0].evaluations])]
    assert later  # a restart has found something better
    for view in later:
        assert values[view.best.evaluation - 1] == view.best.fun == min(values[: view.evaluations])


# -- what a script may rely on ----------------------------------------------------------------------------


def in_a_process(script: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


TERMINATED = """
import os, signal, sys
import fmnes
calls = 0
def fun(x):
    global calls
    calls += 1
    if calls == 20:
        os.kill(os.getpid(), signal.SIGTERM)
    return float(x @ x)
run_dir = sys.argv[1] or None
result = fmnes.minimize(fun, [1.0, 2.0], 0.5, rng=1, max_evaluations=60, run_dir=run_dir)
print(result.stop_reason.name)
"""


def test_sigterm_ends_a_script_whose_run_is_not_kept(tmp_path: Path) -> None:
    """It is meant for the script. A run that is kept ends with what it has, and can be resumed."""
    assert in_a_process(TERMINATED, "").returncode == -signal.SIGTERM
    assert in_a_process(TERMINATED, tmp_path / "run").stdout == "INTERRUPTED\n"


WARNED = """
import fmnes


def fun(x):
    return -float("inf") if x[0] > 1.0 else float(x @ x)


fmnes.minimize(fun, [1.0, 2.0], 0.5, rng=1, max_evaluations=30, run_dir=None)  # line 8
"""


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_warnings_point_at_the_users_line(kept: bool, workers: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    text = (
        WARNED.replace("run_dir=None", f"run_dir={str(tmp_path / 'run')!r}, workers={workers}")
        if kept
        else WARNED
    )
    script.write_text(text.removeprefix("\n"))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and f"{script}:8: RuntimeWarning: the objective returned -inf" in done.stderr


def test_a_strategy_that_is_not_registered_is_refused_with_a_run_directory(tmp_path: Path) -> None:
    class Mine(FMNES):
        pass

    assert minimize(sphere, X0, 1.0, rng=1, method=Mine(), max_evaluations=20).nfev == 20
    with pytest.raises(fmnes.ArgumentError, match=r"method: found .*Mine.*not registered.*run_dir"):
        minimize(sphere, X0, 1.0, rng=1, method=Mine(), max_evaluations=20, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_target_after_restarts_is_told_by_the_number_of_all_evaluations() -> None:
    calls = 0

    def fun(x: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        return 1.0 if calls < 200 else 0.0

    result = minimize(fun, [1.0, 2.0], 0.5, rng=1, population_size=8, restarts=2, target=0.5)
    assert result.nfev == 200 and "at evaluation 200" in result.message


def test_as_many_workers_as_cores(tmp_path: Path) -> None:
    minimize(square_of, [1.0, 2.0], 0.5, rng=1, max_evaluations=10, workers=-1, run_dir=tmp_path / "run")
    assert fmnes.resume(tmp_path / "run", square_of, max_evaluations=20, workers=-1).nfev == 20
    assert fmnes.resume(tmp_path / "run", square_of, max_evaluations=30).nfev == 30


def square_of(x: np.ndarray) -> float:
    return float(x @ x)


@pytest.mark.parametrize("change", [{"names": ["b", "a"]}, {"names": None}])
def test_a_command_with_other_names_is_another_objective(change: dict[str, Any], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"names": ["a", "b"]}
    command = fmnes.Command(["/bin/echo", "1"], **settings)
    minimize(command, [1.0, 2.0], 0.5, rng=1, max_evaluations=2, run_dir=tmp_path / "run")
    with pytest.raises(fmnes.RunError, match="another objective"):
        fmnes.resume(tmp_path / "run", fmnes.Command(["/bin/echo", "1"], **{**settings, **change}))
    assert fmnes.resume(tmp_path / "run", command, max_evaluations=4).nfev == 4
