"""Restarts in a finite box: where they begin, when they end, and that a resumed run goes the same way."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import Bounds, Optimizer, StopReason, View, minimize, resume
from fmnes.result import Stop
from fmnes.run.restarts import MAX_LARGE, Plan, SearchSummary, decisive, has_converged, next_search
from fmnes.run.settings import BOX
from fmnes.search.advance import explore_box
from fmnes.search.explorer import (
    STEP,
    Explorer,
    distance_between,
    hill_between,
    nearest_optima,
    next_start,
    points_on_the_way,
)
from fmnes.search.stopping import Gains, hopeless, stalled
from tests.reference import basins as reference
from tests.rows import through
from tests.torture import differences, portrait, watching

# -- the formulas


@pytest.mark.parametrize("d", [1, 2, 4])
def test_the_starts_are_those_of_the_transcription(d: int) -> None:
    found = 0
    for seed in range(20):
        rng = np.random.default_rng([seed, d])
        points, values = rng.random((60, d)), rng.integers(0, 40, 60).astype(float)
        values[rng.random(60) < 0.2] = np.nan
        tried, taken = rng.random(60) < 0.1, rng.random((seed % 4, d))
        start = next_start(points, values, tried, taken)
        wanted, examined = reference.next_start(
            points.tolist(), values.tolist(), set(np.flatnonzero(tried).tolist()), taken.tolist()
        )
        assert set(start.examined) == examined
        if wanted is None:
            assert start.number == -1
        else:
            found += 1
            assert values[start.number] == values[wanted]
        assert STEP * distance_between(60, d) == pytest.approx(reference.small_step(60, d))
    assert found > 5


def test_a_search_that_has_filled_the_best_of_the_archive_leaves_other_starts() -> None:
    rng = np.random.default_rng(3)
    optimum = np.full(2, 0.2)
    points = np.vstack([optimum + 0.01 * rng.standard_normal((100, 2)), rng.uniform(0.5, 1.0, (20, 2))])
    values = np.concatenate([rng.uniform(0, 1, 100), rng.uniform(5, 9, 20)])
    start = next_start(points, values, np.zeros(120, bool), optimum[None])
    assert start.number == 100 + int(values[100:].argmin())


@pytest.mark.parametrize("d", [1, 3])
def test_a_hill_is_that_of_the_transcription(d: int) -> None:
    answers = []
    for seed in range(40):
        rng = np.random.default_rng([seed, d])
        optima, start, value = rng.random((1 + seed % 4, d)), rng.random(d), 1.0
        optima_values = rng.uniform(0, 2, len(optima))
        points = points_on_the_way(start, optima)
        values = rng.uniform(0, 3, len(points))
        values[rng.random(len(points)) < 0.1] = np.nan
        nearest = nearest_optima(start, optima)
        hill = hill_between(values, value, optima_values[nearest])
        there = dict(zip(map(tuple, points.tolist()), values.tolist(), strict=True))
        known = list(zip(optima.tolist(), optima_values.tolist(), strict=True))
        assert hill == reference.is_behind_a_hill(start.tolist(), value, known, there)
        answers.append(hill)
    assert {True, False} == set(answers)


def test_no_start_where_nothing_has_succeeded() -> None:
    assert next_start(np.zeros((3, 2)), np.full(3, np.nan), np.zeros(3, bool), np.empty((0, 2))) == (-1, [])


def gains(generations: int, best: float, **changes: Any) -> Gains:
    found = Gains(3, True, 1.0, generations, None, best, 0, 1.0, 6, 0.5, [best] * 5)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


@through("generations", [1, 70, 71, 72, 200])
def test_a_search_stalls_as_in_the_transcription(generations: int) -> None:
    for longest in (0.2, 0.3, 5.0):
        stop = stalled(gains(generations, 2.0), longest)
        assert (stop is not None) == reference.has_stalled(generations, 3, 6, longest, 1.0)
        assert stop is None or stop.reason is StopReason.STALLED


@through("generations", [5, 6, 60])
def test_a_search_is_hopeless_as_in_the_transcription(generations: int) -> None:
    for best in (1.5, 2.5, 2.6, 9.0):
        for bests in ([best] * 5, [best + 2.0, *[best] * 4]):
            stop = hopeless(gains(generations, best, bests=bests))
            wanted = reference.is_hopeless(generations, best, 0.5, bests[0] - best, 1.0)
            assert (stop is not None) == wanted
    assert hopeless(gains(60, 9.0, restart=False)) is None
    assert hopeless(gains(60, 9.0, before=math.inf)) is None
    assert hopeless(gains(60, 9.0, spread=math.nan)) is None
    assert hopeless(gains(60, 9.0, bests=[math.inf, *[9.0] * 4])) is None


# -- which search comes next

CONVERGED = Stop(StopReason.FTOL, "equal values")


def searched(kind: str, size: int, evaluations: int, **changes: Any) -> SearchSummary:
    fields = {"gained": True, "failing": False, "stop": CONVERGED, **changes}
    return SearchSummary(kind, size, evaluations, **fields)


def following(*searches: SearchSummary, **changes: Any) -> Plan | None:
    options = {"restarts": "bipop", "restart_from": BOX, "look": False, "limited": True, "even": True}
    return next_search(searches, **{**options, "rng": np.random.default_rng(1), **changes})  # type: ignore[arg-type]


FIRST = searched("first", 6, 600)
SMALL, LARGE = Plan("small", 6, 1.0, BOX), Plan("large", 12, 1.0, BOX)


def test_small_searches_get_three_times_the_evaluations_of_large_ones() -> None:
    assert following(FIRST) == SMALL
    small, large = searched("small", 6, 100), searched("large", 12, 200)
    assert following(FIRST, small) == LARGE
    assert following(FIRST, small, large) == SMALL
    assert following(FIRST, searched("small", 6, 600), large) == SMALL
    assert following(FIRST, searched("small", 6, 601), large) == Plan("large", 24, 1.0, BOX)


def test_a_number_of_restarts_counts_both_kinds() -> None:
    small = searched("small", 6, 100)
    assert following(FIRST, small, restarts=2) == LARGE
    assert following(FIRST, small, searched("large", 12, 10), restarts=2) is None
    many = [searched("large", 12, 0 if i == MAX_LARGE - 1 else 1) for i in range(MAX_LARGE)]
    assert following(FIRST, small, *many, limited=False) is None
    many = [searched("large", 12, 1) for _ in range(MAX_LARGE)]
    assert following(FIRST, small, *many, limited=False) is None


def test_a_restart_without_a_gain_does_not_change_what_the_answer_is_worth() -> None:
    lost = searched("small", 6, 100, gained=False, stop=Stop(StopReason.HOPELESS))
    spent = searched("small", 6, 100, gained=False, stop=Stop(StopReason.MAX_EVALUATIONS))
    assert list(decisive([FIRST, lost, lost])) == [FIRST]
    assert list(decisive([FIRST, lost, spent])) == [FIRST, lost, spent]
    assert has_converged([FIRST, lost], look=True)
    assert not has_converged([FIRST, spent], look=True)
    failing = searched("first", 6, 600, failing=True)
    assert following(failing, lost, restarts=1, look=True) == Plan("look", 24, 0.1, "best")


# -- runs

BOX2 = [(-4.0, 6.0)] * 2


def rastrigin(x: Any) -> float:
    x = np.asarray(x) - 2.1
    return math.nan if x.sum() > 3 else float(10 * len(x) + np.sum(x * x - 10 * np.cos(2 * np.pi * x)))


def two_funnels(x: Any) -> float:
    """The better optimum is in a corner, behind a hill."""
    x = np.asarray(x)
    return float(min(np.sum((x - 0.4) ** 2), 5 * np.sum((x - 0.93) ** 2) - 0.5))


def test_another_basin_is_found_and_the_rest_of_the_budget_is_for_others() -> None:
    bounds = [(0.0, 1.0)] * 3
    alone = minimize(two_funnels, bounds=bounds, rng=2)
    assert alone.fun == pytest.approx(0.0, abs=1e-9)
    again = minimize(two_funnels, bounds=bounds, rng=2, restarts=4)
    assert again.fun == pytest.approx(-0.5, abs=1e-9)
    assert again.success
    np.testing.assert_allclose(again.x_mean, 0.93, atol=1e-5)


@pytest.mark.parametrize("settings", [{"restart_from": "start"}, {"method": "fm-nes"}, {"overlap": 0.5}])
def test_other_choices_keep_their_restarts(settings: dict[str, Any]) -> None:
    seen: list[View] = []
    options = {"bounds": BOX2, "rng": 1, "restarts": 1, "xtol": 1e-3, "max_evaluations": 3000}
    with watching() as ended:
        minimize(rastrigin, [2.0, 3.0], 1.0, callback=seen.append, **{**options, **settings})
    assert not ended[0].restarts_in_box and ended[0].gains is None
    sizes = {view.restart: view.population_size for view in reversed(seen)}
    assert sizes[1] >= 2 * sizes[0]


@through(
    "settings",
    [
        {"integers": [True, False, 0.25], "bounds": [(-5, 5)] * 3},
        {"integers": True, "bounds": [(-5, 5)] * 2},
        {"bounds": [(-4, 6)], "restarts": 5},
        {"bounds": BOX2, "population_size": 4},
        {"bounds": BOX2, "bounds_as": "failure"},
        {"bounds": [(1e16, 1e16 + 256)] * 2},
        {"bounds": Bounds([-1e308, 0], [1e308, 1e-100])},
    ],
)
def test_every_kind_of_box(settings: dict[str, Any]) -> None:
    result = minimize(rastrigin, **{"restarts": 6, "rng": 1, "max_evaluations": 1500, **settings})
    assert result.nfev <= 1500
    assert result.x is None or np.isfinite(result.fun)


@through("value", [1.0, math.nan, -1e300])
def test_a_constant_objective_ends(value: float) -> None:
    result = minimize(lambda x: value, bounds=BOX2, rng=1, restarts=3)
    assert not result.success
    free = minimize(lambda x: value, bounds=BOX2, rng=1, restarts="bipop", max_evaluations=2000)
    assert free.nfev == 2000


def test_values_of_many_decades_and_one_success_among_failures() -> None:
    def steep(x: Any) -> float:
        return float(10.0 ** (150 * (x[0] - x[1]) / 10))

    assert minimize(steep, bounds=BOX2, rng=1, restarts=2, max_evaluations=2000).fun < 1e-140

    def needle(x: Any) -> float:
        return 1.0 if np.abs(x - 1.0).max() < 1e-12 else math.nan

    found = minimize(needle, bounds=BOX2, rng=1, restarts="bipop", max_evaluations=1500)
    assert found.fun == 1.0 and found.nfev == 1500


@pytest.mark.parametrize(
    "settings",
    [
        {"restarts": "bipop"},
        {"restarts": 4, "workers": 2},
        {"restarts": "bipop", "integers": [1, 0]},
        {"restarts": "bipop", "bounds": [(-4.0, 6.0), (-1.0, 9.0)]},  # the centre fails
    ],
)
def test_a_resumed_run_decides_the_same(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = settings.pop("workers", 1)
    settings = {"rng": 3, "bounds": BOX2, "ftol": 1e-3, "xtol": 1e-2, "surrogate": False, **settings}
    with watching() as seen:
        whole = portrait(minimize(rastrigin, max_evaluations=1300, **settings), *seen)
    assert whole["state"]["restart"] >= 3
    for often in (0.0, 1e9):
        monkeypatch.setattr("fmnes.run.snapshots.SNAPSHOT_SECONDS", often)
        for cut in (203, 341, 610, 999):
            run = tmp_path / f"run-{often}-{cut}"
            minimize(rastrigin, run_dir=run, max_evaluations=cut, workers=workers, **settings)
            with watching() as seen:
                found = resume(run, rastrigin, max_evaluations=1300)
            assert differences(portrait(found, *seen), whole) == []


def test_a_damaged_exploration_is_refused(tmp_path: Path) -> None:
    opt = Optimizer(bounds=BOX2, rng=1)
    explore_box(opt, True, True)
    opt.tell([rastrigin(x) for x in opt.ask()])
    metadata, arrays = opt.dump()
    assert Optimizer.restore(metadata, arrays).restarts_in_box
    for name, value in {
        "explorer.points": np.zeros((2, 2)),
        "explorer.tried": np.zeros(3),
        "explorer.starts": np.full((1, 2), np.nan),
        "gains.numbers": np.zeros((2, 2)),
    }.items():
        with pytest.raises(fmnes.SnapshotError):
            Optimizer.restore(metadata, {**arrays, name: value})
    for name, wrong in {"explorer": [[True] * 3, [0] * 4], "gains": ["yes", 1, 1, 1]}.items():
        with pytest.raises(fmnes.SnapshotError):
            Optimizer.restore({**metadata, name: wrong}, arrays)


def test_many_points_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmnes.search.explorer.MAX_POINTS", 100)
    result = minimize(rastrigin, bounds=BOX2, rng=1, restarts="bipop", max_evaluations=3000)
    assert result.nfev == 3000


def test_an_explorer_goes_on_without_a_start_until_one_is_due() -> None:
    """On a plateau no point is behind a hill."""
    bounds, rng = Bounds(np.zeros(2), np.ones(2)), np.random.default_rng(1)
    explorer = Explorer(bounds, restarts=True)
    explorer.add(np.array([[0.5, 0.5]]), np.array([1.0]))
    explorer.note_search(np.array([0.5, 0.5]), 1.0)
    begin = explorer.look_for_start(rng)
    evaluated = 0
    while begin is None:
        points = explorer.next_points(rng, np.zeros((6, 2)))
        assert 0 < len(points) <= 6
        evaluated += len(points)
        values = np.ones(len(points))
        explorer.add(points, values)
        begin = explorer.take(values, rng)
    assert 100 < evaluated < 1000
    assert not explorer.exploring and ((begin.x >= 0) & (begin.x <= 1)).all() and 0 < begin.share < 1
