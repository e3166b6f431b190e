"""A finite box without a start: points all over it until one works, and the search from there."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import Optimizer, StopReason, minimize, resume
from fmnes.search import explorer
from fmnes.search.counting import note_start
from fmnes.search.explorer import CANDIDATES, first_step_share, spread_points
from tests.reference.spread import next_point, step_share
from tests.rows import through
from tests.torture import differences, portrait, watching

UNIT = [(0.0, 1.0)] * 3
LOWER = np.array([0.62, 0.13, 0.71])
WIDTH = 0.12


def corner(x: Any) -> float:
    """Only a small cube works, 0.17 % of the box."""
    u = (np.asarray(x) - LOWER) / WIDTH
    return float(np.sum((u - 0.3) ** 2)) if ((u >= 0) & (u <= 1)).all() else math.nan


def trace(fun: Callable[[Any], Any]) -> tuple[list[Any], Callable[[Any], Any]]:
    points: list[Any] = []

    def traced(x: Any) -> Any:
        points.append(np.array(x) if not isinstance(x, dict) else dict(x))
        return fun(x)

    return points, traced


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_points_are_those_of_the_transcription(d: int) -> None:
    rng = np.random.default_rng(d)
    before, drawn = rng.random((17, d)), rng.random((6, d))
    candidates = rng.random((6, CANDIDATES, d))
    for n in (0, 3, 18):
        found = spread_points(before, candidates, drawn, n)
        failed = [list(point) for point in before]
        for i in range(6):
            wanted = next_point(failed, candidates[i].tolist(), drawn[i].tolist(), n + i)
            np.testing.assert_array_equal(found[i], wanted)
            failed.append(list(wanted))
        assert first_step_share(n + 1, d) == pytest.approx(step_share(n + 1, d))


def test_the_first_points_of_an_empty_box_need_no_earlier_ones() -> None:
    rng = np.random.default_rng(1)
    candidates = rng.random((2, CANDIDATES, 3))
    found = spread_points(np.empty((0, 3)), candidates, rng.random((2, 3)), 0)
    np.testing.assert_array_equal(found[0], candidates[0, 0])


def test_a_small_working_part_is_found_and_searched_from_its_first_point() -> None:
    points, fun = trace(corner)
    result = minimize(fun, bounds=UNIT, rng=1, max_evaluations=4000)
    assert result.success and result.fun < 1e-12
    np.testing.assert_array_equal(points[0], [0.5, 0.5, 0.5])  # the centre comes first
    works = [not math.isnan(corner(x)) for x in points]
    first = works.index(True)
    assert first > 50
    after = points[first + 8 : first + 16]  # beyond the generation of the first success
    assert np.abs(np.array(after) - points[first]).max() < 0.2  # short steps


@through("seed", list(range(5)))
def test_it_is_found_with_every_seed(seed: int) -> None:
    result = minimize(corner, bounds=UNIT, rng=seed, max_evaluations=3000, target=1e-3)
    assert result.stop_reason is StopReason.TARGET


def test_nothing_works_with_a_budget_it_is_spent_and_without_one_the_message_says_what_to_try() -> None:
    spent = minimize(lambda x: math.nan, bounds=UNIT, rng=1, max_evaluations=700)
    assert (spent.stop_reason, spent.nfev, spent.x) == (StopReason.MAX_EVALUATIONS, 700, None)
    assert "none of 700 points" in spent.message and "returned NaN" in spent.message
    free = minimize(lambda x: math.nan, bounds=UNIT, rng=1)
    assert free.stop_reason is StopReason.NO_FEASIBLE
    assert explorer.MAX_FAILED <= free.nfev < explorer.MAX_FAILED + 10
    assert all(words in free.message for words in ("x0=", "max_evaluations=", "returned NaN"))
    assert not spent.success and not free.success


def test_a_limit_of_time_is_a_budget_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmnes.search.stopping.MAX_FAILED", 50)
    seen: list[int] = []

    def stop(view: fmnes.View) -> bool:
        seen.append(view.evaluations)
        return view.evaluations >= 200

    result = minimize(lambda x: math.nan, bounds=UNIT, rng=1, max_seconds=600, callback=stop)
    assert result.stop_reason is StopReason.CALLBACK and result.nfev >= 200


@through(
    "settings",
    [
        {"x0": [0.5, 0.5, 0.5]},
        {"method": "fm-nes"},
        {"method": "cma-es"},
        {"bounds": [(0.0, 1.0), (0.0, 1.0), (0.0, None)], "x0": [0.5] * 3, "sigma0": 0.25},
        {"known": [([0.63, 0.14, 0.72], 1.0)]},
    ],
)
def test_where_a_start_or_a_published_method_is_given_nothing_changes(settings: dict[str, Any]) -> None:
    with watching() as seen:
        minimize(corner, **{"bounds": UNIT, "rng": 1, "max_evaluations": 200, **settings})
    assert seen[0].exploring is None


def test_a_centre_that_works_changes_nothing() -> None:
    def sphere(x: Any) -> float:
        return float(np.sum((x - 0.3) ** 2))

    open_, given = trace(sphere), trace(sphere)
    minimize(open_[1], bounds=UNIT, rng=1, max_evaluations=100, surrogate=False)
    minimize(given[1], [0.5] * 3, bounds=UNIT, rng=1, max_evaluations=100, surrogate=False)
    np.testing.assert_array_equal(open_[0], given[0])


def test_named_parameters_log_scales_and_whole_numbers() -> None:
    space = {
        "width": fmnes.Real(1e-4, 1e4, log=True),
        "layers": fmnes.Integer(1, 40),
        "angle": fmnes.Real(0, 90, multiple_of=0.5),
    }

    def cost(p: dict[str, Any]) -> float:
        if not (1e-3 < p["width"] < 1e-2 and 30 <= p["layers"] <= 34 and p["angle"] > 60):
            raise fmnes.Infeasible("outside")
        return abs(math.log(p["width"] / 3e-3)) + abs(p["layers"] - 33) + abs(p["angle"] - 77.5)

    points, fun = trace(cost)
    result = minimize(fun, space, rng=1, max_evaluations=4000)
    assert result.fun < 0.01 and result.x["layers"] == 33 and result.x["angle"] == 77.5
    assert all(type(p["layers"]) is int and 1 <= p["layers"] <= 40 for p in points)
    assert all(p["angle"] * 2 == round(p["angle"] * 2) for p in points)
    widths = np.log10([p["width"] for p in points[:100]])
    assert widths.min() < -3 and widths.max() > 3
    started = {**space, "layers": fmnes.Integer(1, 40, start=20)}
    with watching() as seen:
        minimize(cost, started, rng=1, max_evaluations=50)
    assert seen[0].exploring is None


def test_a_space_of_whole_numbers_only_is_searched_without_repeating_a_point() -> None:
    def cost(x: Any) -> float:
        return float(x[0] + x[1]) if x[0] > 17 and x[1] > 17 else math.nan

    points, fun = trace(cost)
    result = minimize(fun, bounds=[(0, 20)] * 2, integers=True, rng=1)
    assert result.fun == 36.0
    assert len({tuple(x) for x in points}) == len(points)
    all_fail = minimize(lambda x: math.nan, bounds=[(0, 8)] * 2, integers=True, rng=1)
    assert all_fail.stop_reason is StopReason.NO_FEASIBLE and all_fail.nfev <= 81


@through("bounds", [[(-1e308, 1e308)] * 2, [(0, 1e-100)] * 2, [(1e16, 1e16 + 64)] * 2])
def test_extreme_boxes(bounds: Any) -> None:
    low, high = bounds[0]
    points, fun = trace(lambda x: math.nan)
    minimize(fun, bounds=bounds, rng=1, max_evaluations=60)
    assert len(points) == 60
    assert all(low <= value <= high for x in points for value in x)


def test_one_dimension_and_a_budget_below_it() -> None:
    assert minimize(lambda x: math.nan if x[0] < 0.9 else x[0], bounds=[(0, 1)], rng=1).fun < 0.9001
    assert minimize(lambda x: math.nan, bounds=UNIT, rng=1, max_evaluations=2).nfev == 2


@pytest.mark.parametrize("settings", [{}, {"workers": 2}, {"evaluate_start": False}])
def test_a_resumed_run_is_the_same(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"bounds": UNIT, "rng": 1, "evaluate_start": settings.get("evaluate_start", True)}
    options["surrogate"] = False
    with watching() as seen:
        whole = portrait(minimize(corner, max_evaluations=1000, **options), *seen)
    assert math.isfinite(float(np.frombuffer(bytes.fromhex(whole["fun"][2]))[0]))
    for often in (0.0, 1e9):
        monkeypatch.setattr("fmnes.run.state.SNAPSHOT_SECONDS", often)
        for cut in (1, 2, 203, 900):
            run = tmp_path / f"run-{often}-{cut}"
            workers = settings.get("workers", 1)
            minimize(corner, max_evaluations=cut, run_dir=run, workers=workers, **options)
            with watching() as seen:
                found = resume(run, corner, max_evaluations=1000)
            assert differences(portrait(found, *seen), whole) == []


def test_ask_and_tell_explore_after_the_first_generation_has_failed(tmp_path: Path) -> None:
    opt = Optimizer(bounds=UNIT, rng=1)
    assert opt.exploring is None
    count = 0
    while opt.best.x is None:
        opt.tell([corner(x) for x in opt.ask()])
        count += 1
        assert (opt.exploring is not None) == (opt.best.x is None)
        assert opt.stop is None
        opt.save(tmp_path / "state")
        loaded = Optimizer.load(tmp_path / "state")
        np.testing.assert_array_equal(loaded.ask(), opt.ask())
        opt = loaded
    assert count > 5
    while opt.stop_reason is None:
        opt.tell([corner(x) for x in opt.ask()])
    assert opt.best.fun < 1e-12


def test_one_by_one_in_any_order_is_the_same() -> None:
    together, single = Optimizer(bounds=UNIT, rng=1), Optimizer(bounds=UNIT, rng=1)
    for _ in range(10):
        together.tell([corner(x) for x in together.ask()])
        for point in reversed(single.ask(100)):
            single.tell(point.id, corner(point.x))
    np.testing.assert_array_equal(together.ask(), single.ask())


def test_vectorized_and_overlap() -> None:
    def many(x: Any) -> Any:
        return np.array([corner(row) for row in x])

    several = minimize(many, bounds=UNIT, rng=1, max_evaluations=1500, vectorized=True)
    single = minimize(corner, bounds=UNIT, rng=1, max_evaluations=1500)
    assert several.fun == single.fun
    opt = Optimizer(bounds=UNIT, rng=1, overlap=0.5)
    note_start(opt, math.nan)
    assert opt.exploring is None


def test_the_kept_points_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "MAX_POINTS", 64)
    with watching() as seen:
        result = minimize(lambda x: math.nan, bounds=UNIT, rng=1, max_evaluations=500)
    assert result.nfev == 500
    assert 0 < len(seen[0].exploring._points) <= 64


def test_no_restart_follows_where_no_point_of_the_box_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmnes.search.stopping.MAX_FAILED", 60)
    result = minimize(lambda x: math.nan, bounds=UNIT, rng=1, restarts=3)
    assert result.stop_reason is StopReason.NO_FEASIBLE and result.nfev < 80


def test_failures_of_an_exploration_can_be_taken_back(tmp_path: Path) -> None:
    """As when a licence was missing: the run becomes the one that never broke."""
    licence = False

    def fun(x: Any) -> float:
        if not licence:
            raise fmnes.Infeasible("no licence")
        return corner(x)

    settings: dict[str, Any] = {"bounds": UNIT, "rng": 1, "surrogate": False}
    broken = minimize(fun, max_evaluations=100, run_dir=tmp_path / "run", **settings)
    assert broken.n_infeasible == 100
    licence = True
    mended = resume(tmp_path / "run", fun, forget_failures=True, max_evaluations=900)
    whole = minimize(corner, max_evaluations=900, **settings)
    assert (mended.fun, mended.nfev, mended.n_infeasible) == (whole.fun, whole.nfev, whole.n_infeasible)
