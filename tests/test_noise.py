"""Noise: it is seen at almost no cost, the search converges in spite of it, and the result says so."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError, Optimizer, Result, SnapshotError, StopReason, minimize, resume
from fmnes.run.answering import evaluations_for
from fmnes.search.noise_watch import BLOCKS, Course, NoiseWatch

START, SIGMA = [3.0, -2.0, 1.0], 1.0


def sphere(x: Any) -> float:
    return float(np.dot(x, x))


class Noisy:
    """A function with noise that depends on the number of the call."""

    def __init__(self, size: float = 1.0, f: Callable[[Any], float] = sphere, calls: int = 0) -> None:
        self.size, self.f, self.calls = size, f, calls
        self.points: list[bytes] = []

    def __call__(self, x: Any) -> float:
        self.calls += 1
        self.points.append(np.asarray(x).tobytes())
        return self.f(x) + self.size * float(np.random.default_rng([self.calls, 5]).standard_normal())


def hashed(x: Any) -> float:
    """A noisy value that depends on the point and on the process alone, for workers in any order.

    The same point has another value each time: the noise is drawn from the generator of this process.
    """
    return sphere(x) + 0.01 * math.sin(1e6 * float(x[0]))


# -- detection


def test_a_deterministic_search_is_the_same_but_for_the_repeated_points() -> None:
    plain, watched = Noisy(0.0), Noisy(0.0)
    a = minimize(plain, START, SIGMA, rng=1, noise=False)
    b = minimize(watched, START, SIGMA, rng=1)
    repeats = [i for i, point in enumerate(watched.points) if point in watched.points[:i]]
    rest = [point for i, point in enumerate(watched.points) if i not in repeats]
    assert rest == plain.points
    assert len(repeats) == b.nfev - a.nfev
    assert a.nit == b.nit and 40 < a.nit < 320
    assert len(repeats) in (3, 4, 5)  # after 10, 20, 40, … generations
    assert b.noise is None and b.fun_error is None and b.best_seen is None
    np.testing.assert_array_equal(a.x, b.x)
    assert (a.fun, a.success, a.stop_reason) == (b.fun, b.success, b.stop_reason)


def test_ten_thousand_evaluations_have_at_most_ten_repeated_ones() -> None:
    f = Noisy(0.0)
    options: dict[str, Any] = {"max_evaluations": 10_000, "xtol": None, "ftol": None}
    minimize(f, [3.0], SIGMA, rng=1, **options)
    assert 5 <= len(f.points) - len(set(f.points)) <= 10 or len(set(f.points)) < 9000


def test_noise_is_seen_measured_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fmnes")
    f = Noisy(0.5)
    result = minimize(f, START, SIGMA, rng=1, max_evaluations=3000)
    assert result.nfev == f.calls == 3000
    assert result.noise is not None and result.fun_error is not None and result.best_seen is not None
    assert 0.3 < result.noise.standard_deviation < 0.8
    assert result.noise.level is not None and 0.2 < result.noise.level <= 1
    assert result.best_seen.fun < result.fun and result.best_seen.fun < -0.5
    assert sphere(result.x) < 0.1
    assert abs(result.fun - sphere(result.x)) < 5 * result.fun_error
    assert "differ by about" in result.message and "±" in str(result)
    assert sum("the objective is noisy" in message for message in caplog.messages) == 1
    data = result.as_json()
    assert data["noise"]["compared"] == result.noise.compared and data["fun_error"] == result.fun_error


def test_the_search_converges_in_spite_of_noise() -> None:
    def last(noise: Any) -> float:
        options: dict[str, Any] = {"max_evaluations": 6000, "noise": noise}
        found = [minimize(Noisy(), [3.0] * 10, 2.0, rng=seed, **options) for seed in range(3)]
        return float(np.median([sphere(result.x) for result in found]))

    assert last("auto") < 0.3 * last(False)


def test_true_samples_from_the_start_and_false_never() -> None:
    f = Noisy()
    result = minimize(f, START, SIGMA, rng=1, max_evaluations=30, noise=True)
    assert result.noise is not None
    f = Noisy()
    result = minimize(f, START, SIGMA, rng=1, max_evaluations=2000, noise=False)
    assert result.noise is None and len(set(f.points)) == 2000


def test_known_points_are_not_compared() -> None:
    f = Noisy(0.0)
    known = [([0.0, 0.0, 0.0], -5.0)]  # measured elsewhere, and of no use here
    result = minimize(f, START, SIGMA, rng=1, known=known, max_evaluations=1000)
    assert result.noise is None
    assert np.zeros(3).tobytes() not in f.points


def test_rounding_is_no_noise() -> None:
    calls = [0]

    def fun(x: Any) -> float:
        calls[0] += 1
        return (1 + sphere(x)) * (1 + 1e-15 * (calls[0] % 3))

    assert minimize(fun, START, SIGMA, rng=1, max_evaluations=2000, noise=True).noise is None


def test_a_budget_of_few_evaluations_is_spent_exactly() -> None:
    for budget in (5, 60, 61, 77, 95, 113, 200):
        f = Noisy()
        result = minimize(f, START, SIGMA, rng=2, max_evaluations=budget, noise=True)
        assert f.calls == result.nfev == budget
        assert not result.success


def test_a_search_with_models_sees_noise_and_evaluates_its_answer_again() -> None:
    f = Noisy(1.0)
    result = minimize(f, START, SIGMA, rng=1, max_evaluations=150, surrogate=True)
    assert result.noise is not None and result.fun_error is not None
    assert f.calls == result.nfev == 150 and not result.success
    exact = Noisy(0.0)
    minimize(exact, START, SIGMA, rng=1, max_evaluations=150, surrogate=True)
    assert len(exact.points) - len(set(exact.points)) <= 2


@pytest.mark.parametrize("noise", ["auto", True])
def test_models_step_aside_where_noise_hides_the_order(noise: Any) -> None:
    f = Noisy(1.0)
    search = Optimizer(START, SIGMA, rng=1, noise=noise, surrogate=True)
    while search.evaluations < 200:
        search.tell([f(x) for x in search.ask()])
    assert not search.surrogate and search.noise is not None
    # What the models evaluated is known to the response surface; points that were evaluated again are not.
    assert search.noise.record.n == search.evaluations - search.noise.compared
    exact = Noisy(0.0)
    search = Optimizer(START, SIGMA, rng=1, noise=noise, surrogate=True)
    while search.evaluations < 100:
        search.tell([exact(x) for x in search.ask()])
    assert search.surrogate
    small = Noisy(1e-6)
    search = Optimizer(START, SIGMA, rng=1, noise=noise, surrogate=True)
    while search.evaluations < 70:
        search.tell([small(x) for x in search.ask()])
    assert search.surrogate


def test_models_and_noise_together_are_better_than_either() -> None:
    def last(**options: Any) -> float:
        def f(x: Any) -> float:
            return float(x[0] ** 2 + 1e4 * x[1] ** 2 + 1e6 * x[2] ** 2)

        found = [
            minimize(Noisy(1.0, f, 1000 * seed), [3.0] * 3, 2.0, rng=seed, max_evaluations=300, **options)
            for seed in range(3)
        ]
        return float(np.median([f(result.x) for result in found]))

    both = last(surrogate=True)
    assert both < last(surrogate=True, noise=False) and both < last(surrogate=False)


# -- what excludes it


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "fm-nes"}, "published methods"),
        ({"integers": True}, "every coordinate is discrete"),
        ({"overlap": 0.5, "workers": 2}, "overlap"),
        ({"constraints": {"g": (None, 1.0)}}, "constraints"),
    ],
)
def test_what_excludes_it_is_refused_or_left_off(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        minimize(sphere, START, SIGMA, noise=True, **options)
    if words not in ("overlap", "constraints"):
        f = Noisy(0.1)
        assert minimize(f, START, SIGMA, rng=1, max_evaluations=400, **options).noise is None


@pytest.mark.parametrize("noise", [2, "yes", None, 1.0])
def test_anything_else_is_refused(noise: Any) -> None:
    with pytest.raises(ArgumentError, match="noise: found"):
        minimize(sphere, START, SIGMA, noise=noise)


def test_restarts_bounds_and_some_integers_work() -> None:
    f = Noisy(0.3)
    result = minimize(f, START, SIGMA, rng=1, bounds=(-5, 5), restarts=2, max_evaluations=6000)
    assert f.calls == result.nfev <= 6000 and result.noise is not None and sphere(result.x) < 0.5
    f = Noisy(0.3)
    result = minimize(f, START, SIGMA, rng=1, integers=[True, False, False], max_evaluations=4000)
    assert f.calls == result.nfev == 4000 and result.x[0] == 0 and sphere(result.x) < 0.3


def test_categories_and_a_vectorised_objective_work() -> None:
    f = Noisy(0.1)
    space = {"x": fmnes.Real(-5, 5, start=3), "kind": fmnes.Categorical(["a", "b", "c"], start="c")}
    result = minimize(lambda p: f([p["x"], "abc".index(p["kind"])]), space, rng=1, max_evaluations=1500)
    assert result.noise is not None and f.calls == result.nfev == 1500
    assert result.x["kind"] == "a" and abs(result.x["x"]) < 0.5
    options: dict[str, Any] = {"rng": 1, "max_evaluations": 700}
    one = minimize(Noisy(0.5), START, SIGMA, **options)
    f = Noisy(0.5)
    assert minimize(lambda X: [f(x) for x in X], START, SIGMA, vectorized=True, **options) == one


def test_values_that_settle_with_long_steps_are_checked() -> None:
    claims = [minimize(Noisy(0.0, coin(seed)), START, SIGMA, rng=seed).success for seed in range(20)]
    assert sum(claims) <= 1


def coin(seed: int) -> Callable[[Any], float]:
    chance = np.random.default_rng([seed, 3])
    return lambda x: float(chance.random() < 0.5)


def test_named_parameters_have_the_luckiest_point_by_name() -> None:
    f = Noisy(0.5)
    space = {"a": fmnes.Real(-5, 5, start=3), "b": fmnes.Real(0.1, 10, log=True)}
    result = minimize(lambda p: f([p["a"], math.log(p["b"])]), space, rng=1, max_evaluations=1500)
    assert result.best_seen is not None and set(result.best_seen.x) == set(result.x) == {"a", "b"}


def test_the_target_is_that_of_the_average() -> None:
    lucky = minimize(Noisy(1.0), START, SIGMA, rng=1, max_evaluations=5000, target=-1.0, noise=True)
    assert lucky.stop_reason is StopReason.MAX_EVALUATIONS and not lucky.success
    assert lucky.best_seen is not None and lucky.best_seen.fun < -1.0
    reached = minimize(Noisy(1.0), START, SIGMA, rng=1, max_evaluations=20_000, target=1.0, noise=True)
    assert reached.stop_reason is StopReason.TARGET and reached.nfev < 20_000
    assert sphere(reached.x) < 2.0
    assert reached.success == (reached.fun <= 1.0)


# -- only a target is a success


def test_without_a_limit_it_ends_where_nothing_is_gained() -> None:
    result = minimize(Noisy(0.3), START, SIGMA, rng=3)
    assert result.stop_reason is StopReason.NOISE and not result.success
    assert result.fun_error is not None and sphere(result.x) <= 3 * result.fun_error


def drift(n: int) -> Callable[[Any], float]:
    calls = [0]

    def fun(x: Any) -> float:
        calls[0] += 1
        return sphere(x) + n * 0.01 * calls[0]

    return fun


CHANCE = np.random.default_rng(11)

BAD: dict[str, Callable[[], Callable[[Any], float]]] = {
    "only noise": lambda: Noisy(1.0, lambda x: 0.0),
    "noise far above all differences": lambda: Noisy(1e6),
    "noise that depends on the point": lambda: Noisy(0.0, lambda x: sphere(x) * (1 + CHANCE.random())),
    "quantised": lambda: lambda x: float(round(sphere(x) + CHANCE.standard_normal())),
    "two values": lambda: Noisy(0.0, lambda x: float(CHANCE.random() < 0.5)),
    "heavy tails": lambda: Noisy(0.0, lambda x: sphere(x) + CHANCE.standard_cauchy()),
    "huge": lambda: Noisy(0.0, lambda x: 1.7e308 if CHANCE.random() < 0.5 else -1.7e308),
    "rising with each call": lambda: drift(1),
    "falling with each call": lambda: drift(-1),
    "failing by chance": lambda: Noisy(0.5, lambda x: sphere(x) if CHANCE.random() < 0.7 else math.nan),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("noise", ["auto", True])
def test_bad_input_ends_without_an_exception_or_a_claim(name: str, noise: Any) -> None:
    result = minimize(BAD[name](), START, SIGMA, rng=1, max_evaluations=1500, noise=noise)
    assert result.nfev <= 1500
    assert result.x is not None and math.isfinite(result.fun)
    assert not result.success


@pytest.mark.parametrize("name", BAD)
def test_bad_input_with_models_ends_without_an_exception_or_a_claim(name: str) -> None:
    result = minimize(BAD[name](), START, SIGMA, rng=1, max_evaluations=150, noise=True, surrogate=True)
    assert result.nfev <= 150
    assert result.x is not None and math.isfinite(result.fun)
    assert not result.success


def test_restarts_after_the_models_have_stepped_aside() -> None:
    f = Noisy(0.5)
    options: dict[str, Any] = {"bounds": (-5, 5), "restarts": 2, "surrogate": True, "noise": True}
    result = minimize(f, START, SIGMA, rng=1, max_evaluations=1200, **options)
    assert f.calls == result.nfev <= 1200 and sphere(result.x) < 0.5


@pytest.mark.parametrize("name", ["only noise", "noise far above all differences", "two values"])
def test_noise_alone_ends_without_a_limit_and_without_success(name: str) -> None:
    result = minimize(BAD[name](), START, SIGMA, rng=1)
    assert not result.success


# -- the same run, however it is made


def run_on(path: Path, f: Noisy, budget: int | None = None, **options: Any) -> Result:
    """Continue a run to its end; f gives the values that the uninterrupted run has."""
    return resume(path, f, **({} if budget is None else {"max_evaluations": budget}), **options)


class Stopping:
    """Values that depend on the number of the evaluation, and an interrupt before one of them."""

    def __init__(self, last: int, made: int = 0) -> None:
        self.last, self.made = last, made

    def __call__(self, x: Any) -> float:
        if self.made == self.last:
            self.last = -1
            raise KeyboardInterrupt
        self.made += 1
        return sphere(x) + 0.5 * float(np.random.default_rng([self.made, 5]).standard_normal())


@pytest.mark.parametrize("models", [False, True])
def test_a_run_that_is_interrupted_anywhere_ends_as_one_that_is_not(tmp_path: Path, models: bool) -> None:
    budget = 130
    options: dict[str, Any] = {"rng": 1, "max_evaluations": budget, "surrogate": models}
    options |= {} if models else {"noise": True}
    whole = minimize(Stopping(-1), START, SIGMA, run_dir=tmp_path / "whole", **options)
    assert whole.nfev == budget and whole.noise is not None and whole.fun_error is not None
    for last in range(1, budget, 31 if models else 7):
        path = tmp_path / f"{last}"
        f = Stopping(last)
        stopped = minimize(f, START, SIGMA, run_dir=path, **options)
        assert stopped.stop_reason is StopReason.INTERRUPTED
        assert resume(path, f) == whole, last
        assert f.made == budget


def test_a_larger_budget_continues_the_same_search(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rng": 1, "noise": True}
    minimize(Stopping(-1), START, SIGMA, run_dir=tmp_path / "run", max_evaluations=200, **options)

    # The values depend on the point here: those of the first answer are not made again.
    def fun(x: Any) -> float:
        return hashed(x)

    minimize(fun, START, SIGMA, run_dir=tmp_path / "a", max_evaluations=200, **options)
    longer = resume(tmp_path / "a", fun, max_evaluations=400)
    assert longer == minimize(fun, START, SIGMA, run_dir=tmp_path / "b", max_evaluations=400, **options)
    found = resume(tmp_path / "run", Stopping(-1, 200), max_evaluations=203)
    assert found.nfev == 203


def test_workers_and_the_serial_loop_agree() -> None:
    options: dict[str, Any] = {"rng": 1, "max_evaluations": 300, "noise": True, "surrogate": False}
    serial = minimize(hashed, START, SIGMA, **options)
    assert minimize(hashed, START, SIGMA, workers=2, **options) == serial


def test_a_finished_run_is_read_as_it_ended(tmp_path: Path) -> None:
    result = minimize(Noisy(0.5), START, SIGMA, rng=1, max_evaluations=400, run_dir=tmp_path / "run")
    assert result.noise is not None
    assert resume(tmp_path / "run") == result
    run = fmnes.read_run(tmp_path / "run")
    assert run.result is not None and run.result.noise == result.noise
    assert run.result.fun_error == result.fun_error and run.result.best_seen == result.best_seen


# -- the optimizer


def test_the_optimizer_watches_only_if_asked_and_saves_what_it_knows(tmp_path: Path) -> None:
    def values(opt: Optimizer, f: Noisy, generations: int) -> Optimizer:
        for _ in range(generations):
            opt.tell([f(x) for x in opt.ask()])
        return opt

    assert Optimizer(START, SIGMA, rng=1).noise is None
    whole = values(Optimizer(START, SIGMA, rng=1, noise="auto"), Noisy(), 60)
    assert whole.noise is not None and whole.noise.seen and whole.result().noise is not None
    assert not whole.result().success
    f = Noisy()
    parts = Optimizer(START, SIGMA, rng=1, noise="auto")
    for _ in range(6):
        values(parts, f, 10)
        some = parts.ask(3)  # and within a generation
        parts.save(tmp_path / "search.npz")
        assert some[0].id
        parts = Optimizer.load(tmp_path / "search.npz")
    assert parts.result() == whole.result()
    np.testing.assert_array_equal(parts.ask(), whole.ask())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise.numbers", [0.5, math.nan, 1.0]),
        ("noise.numbers", [0.5, 1.0]),
        ("noise.differences", [math.inf]),
        ("noise.course", [1.0, 2.0]),
        ("rates.numbers", [0.0, 1.0, 1.0, 1.0]),
        ("rates.mean", [0.0]),
    ],
)
def test_a_damaged_snapshot_is_refused(name: str, value: list[float]) -> None:
    opt, f = Optimizer(START, SIGMA, rng=1, noise=True), Noisy()
    for _ in range(80):
        opt.tell([f(x) for x in opt.ask()])
    metadata, arrays = opt.dump()
    assert name in arrays
    Optimizer.restore(metadata, arrays)
    with pytest.raises(SnapshotError):
        Optimizer.restore(metadata, {**arrays, name: np.array(value)})


# -- the parts


def test_the_course_settles_where_nothing_falls_and_not_on_a_slope() -> None:
    def settled(slope: float) -> float:
        """In how many of 40 cases."""
        n = 0
        for seed in range(40):
            rng, course = np.random.default_rng(seed), Course()
            for i in range(1000):
                course.add(-slope * i + rng.standard_normal(), 8, True)
            n += course.settled
        return n / 40

    assert settled(0.0) > 0.6
    assert settled(0.003) == 0.0  # a fall by 0.75 in a quarter, with a standard error of 0.09
    short = Course()
    for _ in range(100):
        short.add(1.0, 8, True)
    assert not short.settled


def test_the_course_keeps_averages_of_equal_length_and_is_restored() -> None:
    course, values = Course(), np.random.default_rng(1).standard_normal(777)
    for i, value in enumerate(values):
        course.add(float(value), 8, i >= 7)
    assert course.length == 16 and len(course.blocks) < BLOCKS and course.generations == 770
    expected = values[7 : 7 + 16 * len(course.blocks)].reshape(-1, 16).mean(axis=1)
    np.testing.assert_allclose(course.blocks, expected, rtol=1e-12)
    again = Course.restore(course.counts, course.numbers)
    assert again == course
    assert course.recent.mean == pytest.approx(values[-10:].mean())


def test_the_deviation_is_that_of_one_evaluation() -> None:
    watch, rng = NoiseWatch(), np.random.default_rng(2)
    assert math.isnan(watch.deviation)
    estimates = []
    for _ in range(400):
        watch.differences.append(float(rng.standard_normal() - rng.standard_normal()))
        estimates.append(watch.deviation**2)
    assert np.mean(estimates[20:]) == pytest.approx(1.0, abs=0.15)


def test_the_answer_gets_two_percent_of_the_evaluations() -> None:
    assert [evaluations_for(n) for n in (0, 100, 1000, 4000, 10**6)] == [10, 10, 20, 80, 100]
