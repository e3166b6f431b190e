"""Whole numbers and steps: the grid, the margin, and searches on them."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import fmnes
from fmnes import ArgumentError, Optimizer, StopReason
from fmnes.search import archive as memory_module
from fmnes.search.archive import Archive
from fmnes.search.generation import Source, screen
from fmnes.search.grid import Grid, all_points, check_integers, grid_of, margin, neighbours, number_of_points
from tests import variants
from tests.reference.margin import margin as literal_margin
from tests.rows import through
from tests.updates import after_update

# -- the grid ---------------------------------------------------------------------------------------------


def one(width: float, lower: float = -math.inf, upper: float = math.inf) -> Grid:
    return grid_of(np.array([width]), np.array([lower]), np.array([upper]))


def all_values(grid: Grid) -> list[float]:
    return [float(grid.value(np.array([k]))[0]) for k in range(int(grid.first[0]), int(grid.last[0]) + 1)]


@through(
    ("width", "lower", "upper", "values"),
    [
        (1, 0, 3, [0, 1, 2, 3]),
        (1, -1.5, 2.9, [-1, 0, 1, 2]),
        (0.1, 0, 0.3, [0, 0.1, 0.2, 0.3]),
        (0.1, 0.1, 0.7, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
        (0.25, 1.1, 2.0, [1.1, 1.35, 1.6, 1.85]),
        (2, 1, 8, [1, 3, 5, 7]),
        (0.3, -0.3, 0.9, [-0.3, 0.0, 0.3, 0.6, 0.9]),
        (1e-3, 2, 2.002, [2, 2.001, 2.002]),
        (math.pi, 0, 7, [0, math.pi, 2 * math.pi]),
    ],
)
def test_values_as_a_user_would_write_them(
    width: float, lower: float, upper: float, values: list[float]
) -> None:
    assert all_values(one(width, lower, upper)) == values


def test_bounds_beyond_64_bits() -> None:
    grid = one(1, 0, 1e20)
    assert grid.value(grid.index(np.array([1e25, 2.4]))).tolist() == [1e20, 2.0]


def test_steps_without_a_lower_bound_are_counted_from_zero() -> None:
    grid = one(0.25, upper=1.1)
    assert grid.nearest(np.array([[-3.13], [0.4], [99.0]])).tolist() == [[-3.25], [0.5], [1.0]]


finite = st.floats(-1e6, 1e6)
widths = st.one_of(st.just(1.0), st.sampled_from([0.1, 0.25, 0.5, 2.0, 10.0]), st.floats(1e-3, 1e3))


@given(x=st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3), width=widths, lower=finite, span=finite)
@settings(max_examples=300, deadline=None)
def test_every_point_is_on_the_grid_and_inside(
    x: list[float], width: float, lower: float, span: float
) -> None:
    try:
        grid = one(width, lower, lower + abs(span))
    except ArgumentError:
        assert abs(span) < 2 * width
        return
    nearest = grid.nearest(np.array(x)[:, None])[:, 0]
    assert (nearest >= lower).all()
    assert (nearest <= lower + abs(span)).all()
    steps = (nearest - (0.0 if width == 1 else lower)) / width
    assert_allclose(steps, np.rint(steps), atol=1e-6 * max(1.0, abs(lower) / width * 1e-6))
    if width == 1:
        assert (nearest == np.rint(nearest)).all()
    least, most = (float(grid.nearest(np.array([[far]]))[0, 0]) for far in (-1e12, 1e12))
    assert most - least > 0.99 * width
    assert least - lower <= width
    assert lower + abs(span) - most <= width * (1 + 1e-6)
    assert (np.abs(nearest - np.clip(x, least, most)) <= width * (0.5 + 1e-6)).all()
    # A grid point is its own nearest one, to the last bit: so points can be recognised.
    assert (grid.nearest(nearest[:, None])[:, 0] == nearest).all()
    assert not np.signbit(nearest[nearest == 0]).any()


def test_real_coordinates_are_untouched() -> None:
    x = np.random.default_rng(0).normal(size=(5, 4))
    grid = grid_of(np.array([0.0, 1.0, 0.0, 0.5]), np.full(4, -np.inf), np.full(4, np.inf))
    nearest = grid.nearest(x)
    assert (nearest[:, [0, 2]] == x[:, [0, 2]]).all()
    assert grid.real.tolist() == [0, 2]
    assert not grid.covers_all


@through(
    ("given", "wanted"),
    [
        (None, None),
        ([False, False], None),
        ([0, None], None),
        ([True, False], [1, 0]),
        (np.array([True, True]), [1, 1]),
        ([1, 0.25], [1, 0.25]),
        (np.array([2, 0]), [2, 0]),
        (True, [1, 1]),
        (0.5, [0.5, 0.5]),
        ((None, True), [0, 1]),
    ],
)
def test_integers_argument(given: Any, wanted: Any) -> None:
    found = check_integers(given, 2)
    assert (None if found is None else found.tolist()) == wanted


@through(
    ("given", "says"),
    [
        ([True], "1 entries"),
        ([1, 0, 1], "3 entries"),
        ([1, -1], "-1 at coordinate 1"),
        ([math.nan, 1], "nan at coordinate 0"),
        ([1, math.inf], "inf at coordinate 1"),
        ([1, "1"], "'1' at coordinate 1"),
        ("11", "'11'"),
        ({0: 1, 1: 1}, "{0: 1, 1: 1}"),
        (object, "object"),
        (np.ones((2, 2)), "at coordinate 0"),
    ],
)
def test_integers_that_make_no_sense(given: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=r"integers: found .*wanted") as caught:
        check_integers(given, 2)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("width", "lower", "upper", "says"),
    [
        (1, 0.5, 1.5, "one whole number only, 1"),
        (1, 0.2, 0.8, "no room for one whole number"),
        (0.25, 0, 0.1, "no room for one step of 0.25"),
    ],
)
def test_bounds_too_narrow_for_the_grid(width: float, lower: float, upper: float, says: str) -> None:
    with pytest.raises(ArgumentError, match=r"bounds: found .* at coordinate 0") as caught:
        one(width, lower, upper)
    assert says in str(caught.value)


# -- the margin -------------------------------------------------------------------------------------------


@through("alpha", [1 / 8, 1 / 80, 1 / 4000])
@through(("width", "lower", "upper"), [(1, 0, 1), (1, -2, 3), (0.25, 0, 2), (3, -6, 6)])
def test_margin_is_the_papers(width: float, lower: float, upper: float, alpha: float) -> None:
    rng = np.random.default_rng(3)
    n = 400
    grid = grid_of(np.full(n, width), np.full(n, lower), np.full(n, upper))
    mean = rng.uniform(lower - width, upper + width, n)
    factor, deviation = rng.uniform(0.5, 2, n), width * 10 ** rng.uniform(-4, 1, n)
    z = all_values(one(width, lower, upper))
    wanted = [literal_margin(z, m, A, s, alpha) for m, A, s in zip(mean, factor, deviation, strict=True)]
    found = margin(grid, mean, factor * deviation, alpha)
    assert found is not None
    assert_allclose(found[0], [m for m, _ in wanted], rtol=1e-7, atol=1e-9 * width)
    assert_allclose(found[1] / deviation, [A for _, A in wanted], rtol=1e-7)


def test_margin_leaves_what_is_likely_enough() -> None:
    grid = grid_of(np.ones(3), np.array([0.0, -np.inf, -5.0]), np.array([1.0, np.inf, np.inf]))
    assert margin(grid, np.array([0.4, 7.1, -4.9]), np.array([0.5, 1.0, 2.0]), 1 / 60) is None


def test_both_sides_of_a_cell_are_drawn_as_often_as_promised() -> None:
    grid = one(1)
    corrected = margin(grid, np.array([3.2]), np.array([1e-9]), 1 / 50)
    assert corrected is not None
    x = np.random.default_rng(1).normal(corrected[0], corrected[1], 400_000)
    assert np.mean(x < 2.5) == pytest.approx(1 / 100, rel=0.05)
    assert np.mean(x > 3.5) == pytest.approx(1 / 100, rel=0.05)


# -- searches ---------------------------------------------------------------------------------------------

OPTIMUM = np.array([0.5, -0.3, 3.0, -7.0, 1.25])
MIXED: dict[str, Any] = {
    "x0": np.full(5, 1.0),
    "sigma0": 2.0,
    "integers": [0, None, 1, True, 0.25],
    "bounds": [(None, None), (-1, 2), (0, 10), (None, None), (0, 2)],
}
EGGS = np.array([3.0, -2.0, 6.0])
DISCRETE: dict[str, Any] = {"x0": [1.0, 1.0, 1.0], "sigma0": 2.0, "integers": [1, 1, 0.5]}


def mixed(x: np.ndarray) -> Any:
    return ((x - OPTIMUM) ** 2).sum(axis=-1)


def discrete(x: np.ndarray) -> Any:
    y = x - EGGS
    return (y * y).sum(axis=-1) + 0.7 * (y[..., 0] * y[..., 1]) ** 2


def failing(x: np.ndarray) -> Any:
    return np.where(x[..., 0] > 3, np.nan, discrete(x))


class Counting:
    """An objective that knows where it was called."""

    def __init__(self, fun: Any) -> None:
        self.fun = fun
        self.points: list[tuple[float, ...]] = []

    def __call__(self, x: np.ndarray) -> Any:
        self.points.append(tuple(x.tolist()))
        return self.fun(x)


def same(one: Any, two: Any) -> bool:
    fields = ("fun", "nfev", "nit", "n_infeasible", "n_repeated", "message")
    return one.x.tobytes() == two.x.tobytes() and all(getattr(one, f) == getattr(two, f) for f in fields)


@pytest.mark.parametrize("name", variants.ONE_OF_EACH)
def test_every_method_solves_a_mixed_problem(name: str) -> None:
    def fun(x: np.ndarray) -> Any:
        assert (x[:, 2:4] == np.rint(x[:, 2:4])).all() and (x[:, 4] * 4 == np.rint(x[:, 4] * 4)).all()
        assert (x[:, [1, 2, 4]] >= [-1, 0, 0]).all() and (x[:, [1, 2, 4]] <= [2, 10, 2]).all()
        return mixed(x)

    result = fmnes.minimize(
        fun, **MIXED, method=variants.METHODS[name], rng=3, target=1e-8, max_evaluations=9000, vectorized=True
    )
    assert result.success and result.n_repeated == 0
    assert result.x[2:].tolist() == OPTIMUM[2:].tolist()
    assert (result.x_mean[2:4] == np.rint(result.x_mean[2:4])).all()


@pytest.mark.parametrize("name", variants.ONE_OF_EACH)
def test_every_method_solves_a_discrete_problem_and_knows_when_it_is_over(name: str) -> None:
    # xNES with resampling goes where nearly all fails: nothing pulls its mean back.
    fun = Counting(discrete if name == "xnes /R" else failing)
    result = fmnes.minimize(fun, **DISCRETE, method=variants.ONE_OF_EACH[name], rng=3, max_evaluations=5000)
    assert result.success and result.stop_reason in (StopReason.FTOL, StopReason.REPEATED)
    assert result.x.tolist() == EGGS.tolist() and result.fun == 0
    assert result.nfev == len(fun.points) == len(set(fun.points))  # none was run twice
    assert result.n_repeated > 0
    assert f"{result.n_repeated} known points" in str(result)
    assert result.as_json()["n_repeated"] == result.n_repeated
    assert result.n_infeasible == sum(bool(np.isnan(fun.fun(np.array(x)))) for x in fun.points)


def test_a_run_without_integers_is_the_same_whatever_says_so() -> None:
    runs = [
        fmnes.minimize(mixed, np.ones(5), 1.0, rng=1, max_evaluations=300, integers=given)
        for given in (None, False, [0] * 5, np.zeros(5, bool))
    ]
    assert all(same(run, runs[0]) for run in runs)


def test_steps_vanish_when_those_of_the_real_coordinates_do() -> None:
    result = fmnes.minimize(mixed, **MIXED, rng=1, max_evaluations=9000, ftol=None)
    assert result.stop_reason is StopReason.XTOL and result.success
    assert result.fun < 1e-16


def test_discrete_coordinates_that_stay_wide_are_no_ill_condition() -> None:
    """xNES shrinks the real ones alone: the others differ from them by 10⁷ before the steps vanish."""
    result = fmnes.minimize(mixed, **MIXED, method="xnes", rng=1, max_evaluations=9000, ftol=None)
    assert result.stop_reason is StopReason.XTOL
    opt = Optimizer(**MIXED, method="xnes", rng=1)
    B = np.diag([1.0, 1e-8, 1e4, 1e4, 1e4]) @ np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    opt._distribution.state = opt._distribution.state._replace(B=B)
    opt._distribution.deviations = np.sqrt(np.diag(B @ B.T))
    assert opt.stop_reason is StopReason.ILL_CONDITIONED  # of the two real ones


def test_the_margin_does_not_touch_real_coordinates() -> None:
    opt = Optimizer(**{**MIXED, "bounds": None}, method="cma-es", rng=1)
    strategy, scales = opt.strategy, set()
    for _ in range(60):
        before = opt._distribution.state
        f = mixed(opt.ask())
        z = opt._current.z  # type: ignore[union-attr]
        opt.tell(f)
        plain, state = after_update(strategy, before, z, f), opt._distribution.state
        assert (state.mean[:2] == plain.mean[:2]).all()
        assert all((getattr(state, k) == getattr(plain, k)).all() for k in plain._fields if k != "mean")
        scales.add(opt._distribution.scale.tobytes())  # type: ignore[union-attr]
        assert (opt._distribution.scale[:2] == 1).all()  # type: ignore[index]
    assert len(scales) > 5


def test_every_generation_keeps_its_margin() -> None:
    opt = Optimizer(**MIXED, rng=1)
    grid, alpha = opt._start.grid, 1 / (5 * opt.population_size)
    assert grid is not None
    for _ in range(100):
        mean = opt._distribution._in_user_units(opt._distribution.state.mean)[grid.where]
        deviation = np.sqrt(np.diag(opt.covariance))[grid.where]
        left = margin(grid, mean, deviation, alpha * (1 - 1e-6))
        assert left is None
        opt.tell(mixed(opt.ask()))


@pytest.mark.parametrize("method", ["fm-nes", "cma-es", "xnes"])
def test_steps_do_not_outgrow_the_grid(method: str) -> None:
    """Beyond the last value further is never worse: a slope without end, on which a step size grows."""
    bounds = [(0, 1), (0, 3), (0, 7), (0, 15), (-5, 5)]
    opt = Optimizer(bounds=bounds, integers=[1, 1, 1, 1, 0], method=method, rng=1, target=-31 + 1e-6)
    while opt.stop_reason is None and opt.evaluations < 4000:
        opt.tell(-opt.ask().sum(axis=1))
        deviations = np.sqrt(np.diag(opt._distribution.start.strategy.covariance(opt._distribution.state)))
        assert (deviations * opt._distribution.scale <= np.array([1, 3, 7, 15, 10]) / 2.999).all()
    assert opt.stop_reason is StopReason.TARGET


def test_a_short_first_step_still_finds_other_values() -> None:
    result = fmnes.minimize(discrete, [1, 1, 1], 1e-3, integers=True, rng=1)
    assert result.success and result.x.tolist() == [3, -2, 6]


def test_steps_of_each_coordinate_and_whole_numbers() -> None:
    """A scale of its own for each coordinate, and the margin's factor on top of it."""
    result = fmnes.minimize(mixed, **{**MIXED, "sigma0": [1, 0.1, 3, 5, 0.5]}, rng=2, target=1e-9)
    assert result.success


# -- points that come again -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fm-nes", "cma-es", fmnes.Resampling(fmnes.XNES())])
def test_a_run_ends_when_all_points_are_known(method: Any) -> None:
    fun = Counting(lambda x: float(x @ [1, 2, -4]))
    bounds = [(0, 1), (-1, 1), (0, 1)]
    result = fmnes.minimize(
        fun, [1, 1, 0], 1.0, bounds=bounds, integers=True, method=method, rng=1, ftol=None
    )
    assert result.stop_reason is StopReason.REPEATED and result.success
    assert result.x.tolist() == [0, -1, 1]
    assert result.nfev == len(fun.points) == len(set(fun.points)) <= 12


@pytest.mark.parametrize("method", ["fm-nes", fmnes.Resampling(fmnes.CMAES(), max_redraws=300)])
def test_a_run_ends_when_all_points_are_known_to_fail(method: Any) -> None:
    fun = Counting(lambda _: np.nan)
    result = fmnes.minimize(fun, [1, 0], 1.0, bounds=(0, 1), integers=True, method=method, rng=1)
    assert result.stop_reason is StopReason.NO_FEASIBLE and not result.success
    assert result.nfev == len(fun.points) == len(set(fun.points)) <= 4


def test_one_point_of_a_generation_is_asked_once() -> None:
    opt = Optimizer([0.0], 0.7, integers=True, population_size=12, method="cma-es", rng=1)
    x = opt.ask()
    assert len(x) == len(np.unique(x)) < 12
    opt.tell((x[:, 0] - 2) ** 2)
    assert opt.generation == 1
    assert opt.evaluations == len(x) and opt.n_repeated == 12 - len(x)
    assert opt.view().n_repeated == opt.n_repeated


def test_a_lost_point_is_not_remembered_and_asked_again() -> None:
    opt = Optimizer([0.0, 0.0], 0.7, integers=True, rng=1)
    x = opt.ask()
    opt.tell([fmnes.LOST] * len(x))
    assert opt.evaluations == 0
    assert (opt.ask() == x).all()
    opt.tell([fmnes.LOST, *(None for _ in x[1:])])
    assert opt.ask().tolist() == x[:1].tolist()
    opt.tell([1.0])
    assert opt.generation == 1 and opt.n_infeasible == len(x) - 1


def test_one_by_one_is_the_same_search() -> None:
    whole, single = (Optimizer(**DISCRETE, rng=5) for _ in range(2))
    waiting: list[Any] = []
    rng = np.random.default_rng(0)
    while whole.stop_reason is None and len(x := whole.ask()):
        whole.tell(failing(x))
    while single.stop_reason is None:
        waiting += single.ask(2)
        for _ in range(min(len(waiting), 1 + int(rng.integers(3)))):
            point = waiting.pop(int(rng.integers(len(waiting))))
            single.tell(point.id, float(failing(point.x)))
    assert same(whole.result(), single.result())


@pytest.mark.parametrize("problem", [(MIXED, mixed), (DISCRETE, failing)], ids=["mixed", "discrete"])
@pytest.mark.parametrize("method", ["fm-nes", "cr-fm-nes", "cma-es", fmnes.Resampling(fmnes.CMAES())])
def test_saved_and_loaded_at_any_moment(problem: Any, method: Any, tmp_path: Path) -> None:
    given, fun = problem

    def run(save_every: int) -> Any:
        opt = Optimizer(**given, method=method, rng=7, population_size=12)
        for step in range(40):
            if opt.stop_reason is not None:
                break
            x = opt.ask()
            values = list(fun(x))
            if step % 3 == 0:  # half of a generation, and the rest later
                values[len(values) // 2 :] = [fmnes.LOST] * (len(values) - len(values) // 2)
            opt.tell(values)
            if step % save_every == 0:
                opt.save(tmp_path / "opt.npz")
                opt = Optimizer.load(tmp_path / "opt.npz")
        return opt

    one, two = run(10**9), run(1)
    assert same(one.result(), two.result())
    assert one.mean.tobytes() == two.mean.tobytes()
    assert one.covariance.tobytes() == two.covariance.tobytes()
    if given is DISCRETE:
        assert one._archive.dump()[1]["archive.x"].tobytes() == two._archive.dump()[1]["archive.x"].tobytes()


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    wanted = fmnes.minimize(failing, **DISCRETE, rng=11, restarts=1)
    fun = Counting(failing)
    result = fmnes.minimize(
        fun, **DISCRETE, rng=11, restarts=1, max_evaluations=15, surrogate=False, run_dir=tmp_path / "run"
    )
    for budget in (31, 60, None):
        assert result.stop_reason is StopReason.MAX_EVALUATIONS
        result = fmnes.resume(tmp_path / "run", fun, max_evaluations=budget)
    assert same(result, wanted)
    assert len(fun.points) == len(set(fun.points)) == wanted.nfev  # the restart knows them too


def test_the_start_is_evaluated_on_the_grid_and_once() -> None:
    fun = Counting(discrete)
    result = fmnes.minimize(fun, [1.4, 0.6, 0.9], 1e-3, integers=[1, 1, 0.5], rng=1)
    assert fun.points[0] == (1, 1, 1)
    assert len(fun.points) == len(set(fun.points)) == result.nfev


def test_points_known_before_are_not_evaluated() -> None:
    plain = Counting(failing)
    first = fmnes.minimize(plain, **DISCRETE, rng=3)
    known = [(x, failing(np.array(x))) for x in plain.points[:40]]
    fun = Counting(failing)
    result = fmnes.minimize(fun, **DISCRETE, rng=3, known=known)
    assert not set(fun.points) & set(plain.points[:40])
    assert result.x.tolist() == first.x.tolist()
    assert result.nfev == len(fun.points)
    assert result.n_repeated > 0


@pytest.mark.parametrize(
    ("x", "says"), [([1, 1.5, 1], "1.5 at coordinate 1"), ([1, 1, 0.3], "0.3 at coordinate 2")]
)
def test_points_known_before_are_on_the_grid(x: list[float], says: str) -> None:
    with pytest.raises(ArgumentError, match=r"known: found .* wanted one of its grid") as caught:
        Optimizer(**DISCRETE, known=[([1, 1, 1], 2.0), (x, 1.0)])
    assert says in str(caught.value)


@pytest.mark.parametrize("how", [{"vectorized": True}, {"workers": 2}, {"executor": 2}], ids=str)
def test_the_same_however_it_is_evaluated(how: dict[str, Any]) -> None:
    wanted = fmnes.minimize(failing, **DISCRETE, rng=4)
    if "executor" in how:
        with ThreadPoolExecutor(2) as executor:
            found = fmnes.minimize(failing, **DISCRETE, rng=4, executor=executor)
    else:
        found = fmnes.minimize(failing, **DISCRETE, rng=4, **how)
    assert same(wanted, found)


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "MAX_POINTS", 3)
    memory = Archive(2)
    for i in range(5):
        memory.add(np.array([i, 0.0]), float(i) if i < 4 else np.inf)
    assert memory.get(np.zeros(2)) == 0  # until a generation is complete
    memory.forget_oldest()
    assert [memory.get(np.array([i, -0.0])) for i in range(4)] == [None, None, 2, 3]
    assert math.isnan(memory.get(np.array([4.0, 0.0])) or 0.0)
    again = Archive(2)
    again.restore(memory.dump()[1])
    assert again.dump()[1]["archive.f"].tobytes() == memory.dump()[1]["archive.f"].tobytes()
    assert len(again) == 3
    fun = Counting(failing)
    result = fmnes.minimize(fun, **DISCRETE, rng=3, max_evaluations=5000)
    assert result.x.tolist() == EGGS.tolist()
    assert result.nfev == len(fun.points) > len(set(fun.points))


def test_each_slot_says_where_its_value_comes_from() -> None:
    archive = Archive(1)
    archive.add(np.array([1.0]), 5.0)
    archive.add(np.array([2.0]), np.nan)
    x = np.array([[0.0], [1.0], [2.0], [3.0], [0.0], [4.0], [9.0]])
    screened = screen(x, x[:, 0] < 9, archive, pending=[np.array([4.0])])
    assert screened is not None
    source = [Source(int(i)).name for i in screened.source]
    assert source == ["EVALUATED", "KNOWN", "KNOWN", "EVALUATED", "DUPLICATE", "DUPLICATE", "OUTSIDE"]
    assert screened.values[1] == 5 and np.isnan(np.delete(screened.values, 1)).all()
    assert np.flatnonzero(screened.failed).tolist() == [2, 6] and screened.n_known == 2
    assert screen(x, None, None) is None


@through("name", ["archive.x", "archive.f", "scale", "integers"])
@through("damage", [np.inf, -1.0, "shape", "gone"])
def test_a_damaged_file_is_refused(name: str, damage: Any) -> None:
    opt = Optimizer(**DISCRETE, rng=1)
    opt.tell(discrete(opt.ask()))
    metadata, arrays = opt.dump()
    array = arrays.pop(name)
    if damage == "shape":
        arrays[name] = np.concatenate((array, array))
    elif damage != "gone":
        arrays[name] = np.full_like(array, damage)
    if (name, damage) in {("archive.x", -1.0), ("archive.f", -1.0), ("integers", "gone")}:
        return  # what could have been written
    with pytest.raises(fmnes.SnapshotError):
        Optimizer.restore(metadata, arrays)


def test_a_slot_that_waits_for_nothing_is_refused() -> None:
    opt = Optimizer([0.0], 0.7, integers=True, population_size=12, method="cma-es", rng=1)
    opt.ask()
    metadata, arrays = opt.dump()
    duplicates = arrays["current.source"] == Source.DUPLICATE
    assert duplicates.any()
    moved = arrays["current.x"].copy()
    moved[duplicates] = 77.0
    with pytest.raises(fmnes.SnapshotError, match="duplicate"):
        Optimizer.restore(metadata, {**arrays, "current.x": moved})
    unknown = np.where(duplicates, 99, arrays["current.source"])
    with pytest.raises(fmnes.SnapshotError, match="99"):
        Optimizer.restore(metadata, {**arrays, "current.source": unknown})
    not_evaluated = np.full_like(arrays["current.source"], Source.OUTSIDE)
    with pytest.raises(fmnes.SnapshotError, match="not to be evaluated"):
        Optimizer.restore(metadata, {**arrays, "current.source": not_evaluated})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"integers": [True]}, "integers: found 1 entries"),
        ({"integers": [1, -2]}, "integers: found -2 at coordinate 1"),
        ({"integers": [1, 1e-200]}, "integers: found a width of 1e-200 at coordinate 1"),
        ({"integers": True, "bounds": [(0, 5), (0.5, 1.5)]}, "one whole number only, 1"),
        ({"integers": [0, 0.5], "bounds": [(0, 5), (0.8, 1.2)]}, "no room for one step of 0.5"),
    ],
)
def test_bad_input_is_refused_before_anything_is_evaluated(given: dict[str, Any], says: str) -> None:
    fun = Counting(discrete)
    with pytest.raises(ArgumentError) as caught:
        fmnes.minimize(fun, [1, 1], 1.0, **given)
    assert says in str(caught.value) and not fun.points


def test_a_strategy_that_does_not_know_its_spread() -> None:
    from fmnes.strategies.base import Strategy

    class Own(fmnes.XNES):
        covariance = Strategy.covariance  # as a strategy that does not define it

    with pytest.raises(ArgumentError, match="no covariance"):
        Optimizer([1.0, 2.0], 1.0, method=Own(), integers=[True, False])


# -- success -----------------------------------------------------------------------------------------------


def parabola(*optimum: int) -> Any:
    return lambda p: float(sum((value - best) ** 2 for value, best in zip(p.values(), optimum, strict=True)))


@through(
    ("last", "optimum", "seeds"),
    [
        (100, (99,), (1, 3, 4)),
        (100, (2,), (2, 3, 4)),
        (1000, (977,), (9,)),
        (10000, (9990,), (0, 1, 2, 3, 4)),
        (100, (99, 2), (1, 2, 3)),
        (100, (99, 2, 50), (4,)),
    ],
)
def test_success_beside_a_bound_is_the_optimum(
    last: int, optimum: tuple[int, ...], seeds: tuple[int, ...]
) -> None:
    """Most of these ended on the bound, where all draws beyond it have one value, and claimed success."""
    space = {name: fmnes.Integer(1, last) for name in "abc"[: len(optimum)]}
    for seed in seeds:
        result = fmnes.minimize(parabola(*optimum), space, rng=seed)
        assert result.success
        assert result.fun == 0


@through(("optimum", "seed"), [(9990, seed) for seed in range(5)])
def test_an_optimizer_does_not_stop_beside_a_better_neighbour(optimum: int, seed: int) -> None:
    opt = fmnes.Optimizer(bounds=[(1, 10000)], integers=True, rng=seed)
    while opt.stop_reason is None:
        opt.tell([float((x[0] - optimum) ** 2) for x in opt.ask()])
    assert opt.stop_reason.converged
    assert opt.result().x.tolist() == [optimum]


def test_a_search_that_polls_goes_on_bit_for_bit_from_every_save(tmp_path: Path) -> None:
    def make() -> Optimizer:
        return fmnes.Optimizer(bounds=[(1, 10000)], integers=True, rng=3)

    def points(save: bool) -> list[bytes]:
        opt, seen, polls = make(), [], 0
        while opt.stop_reason is None:
            x = opt.ask()
            polls += opt._current is not None and opt._current.poll is not None
            if save:
                opt.save(tmp_path / "search.npz")
                opt = Optimizer.load(tmp_path / "search.npz")
                assert opt.ask().tobytes() == x.tobytes()
            seen.append(x.tobytes())
            opt.tell([float((row[0] - 9990) ** 2) for row in x])
        assert polls > 0
        return seen

    assert points(save=False) == points(save=True)


def test_a_run_that_polls_is_the_same_with_workers_and_after_a_resume(tmp_path: Path) -> None:
    space = {"n": fmnes.Integer(1, 10000)}
    whole = fmnes.minimize(near_9990, space, rng=0)
    assert whole.success
    assert fmnes.minimize(near_9990, space, rng=0, workers=2) == whole
    for budget in range(20, whole.nfev, 5):
        run = tmp_path / str(budget)
        fmnes.minimize(near_9990, space, rng=0, max_evaluations=budget, surrogate=False, run_dir=run)
        resumed = fmnes.resume(run, near_9990, max_evaluations=100000)
        assert (resumed.x, resumed.nfev, resumed.nit, resumed.message) == (
            whole.x,
            whole.nfev,
            whole.nit,
            whole.message,
        )


def near_9990(p: dict[str, Any]) -> float:
    return float((p["n"] - 9990) ** 2)


def test_what_is_left_of_a_small_space_is_evaluated() -> None:
    """A hole of one point among equal values, which no search could find by its values."""
    for seed in range(5):
        calls: list[int] = []

        def hole(p: dict[str, Any], calls: list[int] = calls) -> float:
            calls.append(p["n"])
            return 0.0 if p["n"] == 17 else 1.0

        result = fmnes.minimize(hole, {"n": fmnes.Integer(1, 20)}, rng=seed)
        assert result.success
        assert result.x == {"n": 17}
        assert sorted(calls) == list(range(1, 21))  # each once
        assert result.stop_reason is StopReason.REPEATED


def test_a_small_space_where_all_fails_ends_when_all_of_it_has_failed() -> None:
    result = fmnes.minimize(lambda p: math.nan, {"n": fmnes.Integer(1, 20)}, rng=1)
    assert result.stop_reason is StopReason.NO_FEASIBLE
    assert result.nfev == 20


def test_the_neighbours_of_a_point_lie_on_the_grid_and_inside() -> None:
    grid = grid_of(np.array([1.0, 0.0, 0.5]), np.array([1.0, 0, 0]), np.array([3.0, 1, 1]))
    x = np.array([1.0, 0.25, 0.5])
    assert neighbours(grid, x).tolist() == [[2, 0.25, 0.5], [1, 0.25, 0], [1, 0.25, 1]]
    assert number_of_points(grid) == math.inf
    small = grid_of(np.array([1.0, 0.5]), np.array([1.0, 0]), np.array([2.0, 1]))
    assert all_points(small).tolist() == [[1, 0], [1, 0.5], [1, 1], [2, 0], [2, 0.5], [2, 1]]
    assert number_of_points(small) == 6
