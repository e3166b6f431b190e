"""Bounds: how they may be written, and that the search stays inside them, whatever it does."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fmnes
from fmnes import CMAES, ArgumentError, Bounds, Optimizer, Resampling, StopReason, minimize, resume
from fmnes.search.stopping import redraws_failed
from tests.rows import through
from tests.variants import ONE_OF_EACH

INF = math.inf

# -- how they are written ---------------------------------------------------------------------------------

#: Forms of [0, 1] × (−∞, 10].
TWO: dict[str, Any] = {
    "pairs": [(0, 1), (None, 10)],
    "tuples": ((0.0, 1.0), (-INF, 10.0)),
    "lists": [[0, 1], [None, 10]],
    "mixed": [(0, np.float32(1)), np.array([-INF, 10]).tolist()],
    "matrix": np.array([[0, 1], [-INF, 10]]),
    "objects": np.array([[0, 1], [None, 10]], dtype=object),
    "zip": lambda: zip([0, None], [1, 10], strict=True),
    "generator": lambda: (pair for pair in [(0, 1), (None, 10)]),
    "lb and ub": SimpleNamespace(lb=np.array([0, -INF]), ub=[1, 10]),
    "sides": Bounds([0, None], [1, 10]),
    "sides of arrays": Bounds(np.array([0, -INF]), np.array([1, 10])),
}
#: Forms of [0.5, ∞) for each coordinate.
ALL: dict[str, Any] = {
    "pair": (0.5, None),
    "list": [0.5, INF],
    "array": np.array([0.5, INF]),
    "NumPy's numbers": (np.array(0.5), np.float64(INF)),
    "lb and ub": SimpleNamespace(lb=0.5, ub=INF),
    "sides": Bounds(0.5),
    "sides of keywords": Bounds(upper=None, lower=0.5),
    "a number and a list": Bounds(0.5, [None, INF]),
}


@through("bounds", TWO.values())
def test_bounds_of_each_coordinate(bounds: Any) -> None:
    bounds = bounds() if callable(bounds) else bounds
    found = Optimizer([0.5, 2.0], 0.5, bounds=bounds).bounds
    assert isinstance(found, Bounds)
    assert_array_equal(found.lower, [0, -INF])
    assert_array_equal(found.upper, [1, 10])


@through("bounds", ALL.values())
def test_bounds_of_all_coordinates(bounds: Any) -> None:
    found = Optimizer([0.5, 2.0], 0.5, bounds=bounds).bounds
    assert found is not None
    assert_array_equal(found.lower, [0.5, 0.5])
    assert_array_equal(found.upper, [INF, INF])


def test_two_pairs_are_two_coordinates() -> None:
    """As everybody writes them; up to 0.2 these were lower (0, 1) and upper (2, 10)."""
    found = Optimizer([0.5, 5.0], 0.5, bounds=[(0, 1), (2, 10)]).bounds
    assert found is not None
    assert_array_equal(found.lower, [0, 2])
    assert_array_equal(found.upper, [1, 10])


def test_a_list_of_more_arrays_than_two_is_one_of_pairs() -> None:
    found = Optimizer([0.5] * 3, 0.5, bounds=[np.array([0, 1])] * 3).bounds
    assert found is not None
    assert_array_equal(found.upper, [1, 1, 1])


def test_one_coordinate() -> None:
    for bounds in ([(0, 1)], (0, 1), np.array([[0, 1]]), Bounds(0, 1), Bounds([0], [1])):
        found = Optimizer(0.5, 0.5, bounds=bounds).bounds
        assert found is not None and (found.lower, found.upper) == ([0], [1])


def test_scipys_own() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    found = Optimizer([0.5, 2.0], 0.5, bounds=optimize.Bounds([0, -INF], 10)).bounds
    assert found is not None
    assert_array_equal(found.lower, [0, -INF])
    assert_array_equal(found.upper, [10, 10])


def test_bounds_are_no_tuple_and_do_not_change() -> None:
    bounds = Bounds([0, 0], 1)
    assert not isinstance(bounds, tuple) and not hasattr(bounds, "__iter__")
    with pytest.raises(AttributeError):
        bounds.lower = 3  # type: ignore[misc]
    with pytest.raises(ArgumentError, match="Bounds: found the option 'lb', wanted lower="):
        Bounds(lb=0)  # type: ignore[call-arg]
    found = Optimizer([0.5, 0.5], 0.1, bounds=bounds).bounds
    assert found is not None
    with pytest.raises(ValueError, match="read-only"):
        found.lower[0] = 3


def test_bounds_too_close_for_floating_point() -> None:
    for lower, upper in ((1.0, np.nextafter(1.0, 2.0)), (0.0, 1e-200)):
        with pytest.raises(ArgumentError, match=r"^bounds: found .* coordinate 0, too close.*wanted room"):
            Optimizer([lower], 0.5, bounds=(lower, upper))
    assert len(Optimizer([1e17], 1e10, bounds=(1e17, 1e17 + 64), rng=1).ask()) == 4


# -- a start that is left to them -------------------------------------------------------------------------


@pytest.mark.parametrize("bounds_as", ["map", "failure"])
def test_the_start_is_the_centre_and_the_steps_a_quarter_of_the_widths(bounds_as: Any) -> None:
    bounds, centre, quarters = [(0.0, 1.0), (2.0, 10.0)], [0.5, 6.0], [0.25, 2.0]
    settings = {"bounds": bounds, "bounds_as": bounds_as, "rng": 1}
    wanted = Optimizer(centre, quarters, **settings).ask()
    for start in ({}, {"x0": centre}, {"sigma0": quarters}, {"x0": centre, "sigma0": None}):
        assert_array_equal(Optimizer(**start, **settings).ask(), wanted)
    other = Optimizer([0.25, 3.0], **settings)
    assert_array_equal(other.mean, [0.25, 3.0])
    assert other.sigma == pytest.approx(math.sqrt(0.25 * 2.0))
    assert_array_equal(Optimizer(sigma0=0.1, **settings).mean, centre)


@pytest.mark.parametrize("d", [1, 10, 11, 40, 1000])
def test_in_more_than_ten_dimensions_the_first_points_lie_as_far_away_as_in_ten(d: int) -> None:
    named = Optimizer({f"x{i}": fmnes.Real(2.0, 10.0) for i in range(d)})
    for search in (Optimizer(bounds=[(2.0, 10.0)] * d), named):
        step = np.unique(search.sigma0).item()
        assert step == pytest.approx(2.0 if d <= 10 else 2.0 * (10 / d) ** 0.5, rel=1e-15)
    assert np.unique(Optimizer({f"x{i}": fmnes.Real(2.0, 10.0, sigma=2.0) for i in range(d)}).sigma0) == 2.0


def test_minimize_needs_nothing_but_bounds() -> None:
    result = minimize(lambda x: (x[0] - 0.2) ** 2 + (x[1] - 11) ** 2, bounds=[(0, 1), (2, 10)], rng=1)
    assert result.success
    assert_allclose(result.x, [0.2, 10.0], atol=1e-5)


def test_the_centre_of_huge_bounds() -> None:
    opt = Optimizer(bounds=[(-1.7e308, 1.7e308), (-1e308, 1.7e308)], rng=1)
    assert_allclose(opt.mean, [0.0, 0.35e308])
    X = opt.ask()
    assert len(X) and np.isfinite(X).all() and (X[:, 1] >= -1e308).all()


# -- inside, whatever happens -----------------------------------------------------------------------------

LOWER = np.array([0.0, -INF, 1.5, -INF])
UPPER = np.array([1.0, 2.0, INF, INF])
START = {"x0": [0.3, 1.0, 2.0, 0.0], "bounds": Bounds(LOWER, UPPER)}


def wild(X: np.ndarray) -> np.ndarray:
    """Wants to leave the bounds; fails here and there."""
    f = ((X - [2.0, 3.0, 0.0, 1.0]) ** 2 * [1, 10, 100, 1]).sum(axis=1)
    return np.where(np.sin(40 * X[:, 3]) > 0.9, np.nan, f)


@pytest.mark.parametrize("method", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
@pytest.mark.parametrize("sigma0", [0.2, 30.0, [1e-6, 2.0, 0.5, 1e3]], ids=["short", "long", "several"])
def test_all_that_is_seen_is_inside(method: Any, sigma0: Any) -> None:
    opt = Optimizer(sigma0=sigma0, rng=1, method=method, **START)

    def inside(x: np.ndarray) -> bool:
        return bool(((x >= LOWER) & (x <= UPPER) & np.isfinite(x)).all())

    for _ in range(25):
        size = opt.view().population_size
        X = opt.ask()
        assert len(X) and inside(X)
        if not redraws_failed(opt):
            assert len(X) == size  # nothing is lost to the bounds
        opt.tell(wild(X))
        assert inside(opt.mean) and inside(opt.view().mean) and inside(opt.result().x_mean)
        if opt.best.x is not None:
            assert inside(opt.best.x)
        assert (np.linalg.eigvalsh(opt.covariance) > -1e-9).all()


def test_bounds_that_are_never_reached_change_nothing() -> None:
    free, bounded = Optimizer([1.0, 2.0], 0.5, rng=1), Optimizer([1.0, 2.0], 0.5, rng=1, bounds=(-1e3, 1e3))
    for _ in range(30):
        X = free.ask()
        assert_array_equal(bounded.ask(), X)
        for opt in (free, bounded):
            opt.tell((X**2).sum(axis=1))
        assert_array_equal(bounded.covariance, free.covariance)
    assert bounded.stop_reason == free.stop_reason
    assert_array_equal(bounded.view().mean, free.view().mean)


def test_with_resampling_nothing_is_redrawn_for_the_bounds() -> None:
    opt = Optimizer([0.5, 0.5], 0.3, rng=1, bounds=(0, 1), method=Resampling(CMAES()), population_size=8)
    for _ in range(5):
        X = opt.ask()
        assert opt._current is not None and not opt._current.redraws.any()
        opt.tell((X**2).sum(axis=1))
    assert opt.evaluations == 40


# -- optima on the bounds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_an_optimum_on_bounds_of_all_kinds(method: Any) -> None:
    """Below, above, between, one-sided, and in a corner that the objective wants to cross."""
    centre = np.array([-0.4, 1.5, 0.3, 3.0, -2.0])
    bounds = [(0, 1), (0, 1), (0, 1), (None, 2), (-1, None)]
    optimum = np.array([0.0, 1.0, 0.3, 2.0, -1.0])

    def f(x: np.ndarray) -> float:
        return float((np.array([1, 3, 10, 30, 100]) * (x - centre) ** 2).sum())

    result = minimize(f, [0.5, 0.5, 0.5, 0.0, 0.0], 0.3, bounds=bounds, method=method, rng=1)
    assert result.success
    assert_allclose(result.x, optimum, atol=1e-4)
    assert_allclose(result.x_mean, optimum, atol=1e-4)
    assert result.fun - f(optimum) < 1e-6 and result.n_infeasible == 0


@pytest.mark.parametrize("method", ["fm-nes", "cma-es"])
@pytest.mark.parametrize("seed", [3, 14, 29, 77])
def test_steps_do_not_outgrow_the_box(method: str, seed: int) -> None:
    """In a periodic space steps wider than a period see noise only; FM-NES's then grew to 1e20."""
    rng = np.random.default_rng([seed, 2, 0])
    centre, weights = rng.uniform(-0.5, 1.5, 2), np.array([1.0, 100.0])[rng.permutation(2)]
    best = float((weights * (np.clip(centre, 0, 1) - centre) ** 2).sum())
    longest = 0.0

    def watch(view: fmnes.View) -> None:
        nonlocal longest
        longest = max(longest, view.sigma * view.axis_lengths.max())

    def f(x: np.ndarray) -> float:
        return float((weights * (x - centre) ** 2).sum())

    settings = {"bounds": (0, 1), "method": method, "rng": seed, "target": best + 1e-8}
    result = minimize(f, [0.5] * 2, 0.25, max_evaluations=3000, callback=watch, **settings)
    assert result.success and longest <= 1 / 3 * (1 + 1e-12)


def test_a_step_that_is_too_long_for_the_box_is_shortened() -> None:
    def f(x: np.ndarray) -> float:
        return float(((x - [2e-10, 40.0]) ** 2 * [1e20, 1.0]).sum())

    bounds = [(-1e-9, 1e-9), (0, 100)]
    result = minimize(f, [0.0, 50.0], 10.0, bounds=bounds, method="cma-es", rng=1)
    assert result.success
    assert_allclose(result.x, [2e-10, 40.0], rtol=1e-6)
    opt = Optimizer([0.0, 50.0], 10.0, bounds=bounds)
    assert opt._start.steps == 10.0
    assert_allclose(np.sqrt(np.diag(opt.covariance)), [2e-9 / 3, 10.0], rtol=0.2)  # the first one is bent


# -- a start on a bound -----------------------------------------------------------------------------------


@pytest.mark.parametrize("x0", [[0.0, 0.0], [1.0, 0.0], [1e-12, 1 - 1e-12]])
def test_a_start_in_a_corner_leaves_it(x0: list[float]) -> None:
    opt = Optimizer(x0, 0.1, bounds=(0, 1), rng=1)
    assert_array_equal(opt._start.x0, x0)
    assert_allclose(np.abs(opt.mean - np.round(x0)), [1e-4, 1e-4], rtol=1e-9)  # a thousandth of a tenth
    result = minimize(lambda x: float(((x - 0.6) ** 2).sum()), x0, 0.1, bounds=(0, 1), rng=1)
    assert result.success
    assert_allclose(result.x, [0.6, 0.6], atol=1e-5)


# -- the distribution in the user's space -----------------------------------------------------------------


@through("generations", [0, 6, 12])
@through("method", ["fm-nes", "cma-es"])
def test_the_covariance_is_that_of_the_points(method: str, generations: int) -> None:
    opt = Optimizer([0.3, 1.0, 2.0, 0.0], [0.2, 0.4, 0.3, 1.0], bounds=START["bounds"], rng=1, method=method)
    for _ in range(generations):
        opt.tell(((opt.ask() - [2.0, 1.0, 0.0, 1.0]) ** 2 * [1, 5, 1, 1]).sum(axis=1))
    _, points, inside = opt._distribution.draw(100_000)
    assert inside is None
    found, wanted = opt.covariance, np.cov(points.T)
    assert_allclose(np.diag(found), np.diag(wanted), rtol=0.05)
    deviations = np.sqrt(np.diag(wanted))
    errors = np.abs(found - wanted) / np.outer(deviations, deviations)
    assert errors[3].max() < 0.03  # it has no bounds
    assert errors.max() < 0.3  # of two that are bent: to first order


# -- kept -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds_as", ["map", "failure"])
@pytest.mark.parametrize("method", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_saved_and_loaded_in_every_generation_it_is_the_same_search(
    method: Any, bounds_as: Any, tmp_path: Path
) -> None:
    settings = {"sigma0": [0.2, 0.4, 0.3, 1.0], "bounds_as": bounds_as, "method": method, "rng": 1}
    plain, saved = Optimizer(**START, **settings), Optimizer(**START, **settings)
    for _ in range(8):
        X = plain.ask()
        assert_array_equal(saved.ask(), X)
        saved.save(tmp_path / "state.npz")
        saved = Optimizer.load(tmp_path / "state.npz")
        assert_array_equal(saved.ask(), X)
        for opt in (plain, saved):
            opt.tell(wild(X))
    assert saved._start.bounds_as == bounds_as
    assert_array_equal(saved.mean, plain.mean)
    assert_array_equal(saved.covariance, plain.covariance)


def test_a_file_with_an_unknown_form_of_bounds_is_refused() -> None:
    metadata, arrays = Optimizer(sigma0=0.2, bounds_as="failure", rng=1, **START).dump()
    assert Optimizer.restore(metadata, arrays)._start.bounds_as == "failure"
    with pytest.raises(fmnes.SnapshotError, match="bounds_as"):
        Optimizer.restore({**metadata, "bounds_as": "mirror"}, arrays)
    del metadata["bounds_as"]
    with pytest.raises(fmnes.SnapshotError, match="bounds_as"):
        Optimizer.restore(metadata, arrays)


@pytest.mark.parametrize("bounds_as", ["map", "failure"])
def test_restarts_and_resumed_runs_keep_them(bounds_as: Any, tmp_path: Path) -> None:
    asked: list[np.ndarray] = []

    def f(x: np.ndarray) -> float:
        asked.append(x.copy())
        return float(np.round(4 * ((x - [1.3, 0.2]) ** 2).sum()))  # flat soon: restarts

    settings = {"bounds": (0, 1), "bounds_as": bounds_as, "rng": 1, "restarts": 2, "population_size": 6}
    whole = minimize(f, [0.5, 0.5], 0.4, max_evaluations=900, **settings)
    wanted, asked = asked, []
    part = minimize(f, [0.5, 0.5], 0.4, max_evaluations=333, run_dir=tmp_path / "run", **settings)
    assert part.stop_reason is StopReason.MAX_EVALUATIONS
    again = resume(tmp_path / "run", f, max_evaluations=900)
    assert_array_equal(asked, wanted)
    assert again.message == whole.message and again.fun == whole.fun
    assert ((np.array(wanted) >= 0) & (np.array(wanted) <= 1)).all()
    assert whole.nfev > 333


def test_minimize_serial_and_vectorized_are_the_same_at_the_bounds() -> None:
    def together(X: np.ndarray) -> np.ndarray:
        return ((X - [1.3, 0.2]) ** 2).sum(axis=1)

    settings = {"bounds": (0, 1), "rng": 1, "max_evaluations": 200, "surrogate": False}
    serial = minimize(lambda x: float(together(x[None])[0]), **{**settings, "bounds": [(0, 1)] * 2})
    vectorized = minimize(together, [0.5, 0.5], [0.25, 0.25], vectorized=True, **settings)
    assert_array_equal(serial.x, vectorized.x)
    assert serial.message == vectorized.message
