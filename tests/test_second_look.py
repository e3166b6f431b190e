"""A search that converged where points fail is looked at again before it is called a success."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import StopReason, minimize, resume
from fmnes.result import Best, Stop
from fmnes.run.history import COLUMNS
from fmnes.run.loop import _first_value
from fmnes.run.restarts import (
    MAX_CONFIRMATIONS,
    MAX_DOUBLINGS,
    Plan,
    SearchSummary,
    confirms,
    ending,
    has_converged,
    is_better,
    next_search,
)
from fmnes.run.state import StartPoint
from tests.torture import differences, portrait, watching


def searched(
    kind: str = "first", gained: bool = True, failing: bool = True, reason: str = "XTOL"
) -> SearchSummary:
    return SearchSummary(kind, 6, 600, gained, failing, Stop(StopReason[reason]))


def following(*searches: SearchSummary, look: bool = True) -> Plan | None:
    rng = np.random.default_rng(1)
    options: Any = {"restarts": 0, "restart_from": "start", "limited": False, "even": True}
    return next_search(searches, look=look, rng=rng, **options)


LOOK = Plan("look", 24, 0.1, "best")


@pytest.mark.parametrize("reason", ["XTOL", "FTOL", "ILL_CONDITIONED"])
def test_when_it_is_due(reason: str) -> None:
    assert following(searched(reason=reason)) == LOOK
    assert following(searched(reason=reason), look=False) is None
    assert following(searched(reason=reason, failing=False)) is None
    assert following(searched(reason="NO_FEASIBLE")) is None


def test_it_ends_when_a_look_finds_nothing_and_goes_on_when_it_does() -> None:
    first, vain, better = searched(), searched("look", gained=False), searched("look")
    assert following(first, vain) is None
    assert following(first, better) == LOOK
    assert following(first, better, vain) is None
    assert following(first, searched("look", failing=False)) is None
    assert following(first, *[better] * MAX_CONFIRMATIONS) is None


def test_what_is_a_success() -> None:
    first, vain, better = searched(), searched("look", gained=False), searched("look")
    assert has_converged([first], look=False) and not has_converged([first], look=True)
    assert has_converged([searched(failing=False)], look=True)
    assert has_converged([first, vain], look=True) and has_converged([first, better, vain], look=True)
    assert not has_converged([first, *[better] * MAX_CONFIRMATIONS], look=True)  # there may be more to find
    elongated = searched(reason="ILL_CONDITIONED")
    assert not has_converged([elongated], look=True) and has_converged([elongated, vain], look=True)
    cut = searched("look", gained=False, reason="MAX_EVALUATIONS")
    assert has_converged([first, cut], look=True) and not has_converged([elongated, cut], look=True)
    assert ending([first, cut])[0] == first.stop and "looked again" in ending([first, cut])[1]
    assert ending([elongated, cut])[0] == cut.stop and "looking again" in ending([elongated, cut])[1]
    assert ending([first, vain])[0] == first.stop and "nothing better" in ending([first, vain])[1]


def test_better_is_more_than_digits_of_what_was_gained_so_far() -> None:
    assert is_better(1.0, 1.1, 10.0) and not is_better(1.0, 1.0 + 1e-6, 10.0)
    assert not is_better(1e-30, 1e-20, 10.0)  # it was zero, and is
    assert not is_better(math.inf, 1.0, 10.0)


def test_it_confirms_an_answer_that_it_has_come_back_to() -> None:
    assert confirms(1.009, 1.0, 11.0) and not confirms(1.011, 1.0, 11.0)
    assert confirms(1.0, 1.0, 1.0) and confirms(0.9, 1.0, 1.0)
    assert confirms(1e9 + 0.5, 1e9, 1e9)  # digits
    assert not confirms(math.inf, 1.0, 11.0)


def test_gains_are_compared_with_the_first_success() -> None:
    rows = np.zeros((4, len(COLUMNS)))
    rows[:, COLUMNS.index("generation_best")] = [math.inf, math.inf, 8.0, 3.0]

    def first(start: float, rows: Any) -> float:
        state: Any = SimpleNamespace(
            start=StartPoint(value=start),
            history=SimpleNamespace(rows=rows),
            totals=SimpleNamespace(best=Best(None, 5.0, 0)),
        )
        return _first_value(state)

    assert first(math.nan, rows) == 8.0
    assert first(9.0, rows) == 9.0
    assert first(math.nan, rows[:2]) == 5.0  # the best so far


# -- runs -------------------------------------------------------------------------------------------------


def beam(x: Any) -> float:
    """The beam of `fmnes init`, with the density on a log scale: best 0.46416, at the edge of what holds."""
    width, height, density = x[0], x[1], math.exp(x[2])
    if min(width, height) < 0.01 or not 100 <= density <= 20000:
        return math.nan
    if 500.0 / (2e7 * density**0.5 * width * height**3) > 0.02 or width > 4 * height:
        return math.nan
    return 2.0 * density * width * height


BEAM: Any = ([0.3, 0.3, math.log(1000)], [0.1, 0.1, math.log(3)])


def test_a_wrong_success_is_found_out() -> None:
    seeds = [1, 2]
    wrong = [beam_of(seed, second_look=False) for seed in seeds]
    assert all(r.success and r.fun > 1.01 * 0.46416 for r in wrong)
    looked = [beam_of(seed) for seed in seeds]
    assert all(r.success and r.fun < 1.01 * 0.46416 for r in looked)
    for before, after in zip(wrong, looked, strict=True):
        assert after.fun <= before.fun and after.second_looks >= 1 and "look" in after.message


def beam_of(seed: int, **settings: Any) -> fmnes.Result:
    return minimize(beam, *BEAM, rng=seed, method="fm-nes", max_evaluations=60_000, **settings)


def test_where_nothing_fails_it_costs_nothing() -> None:
    runs = [
        minimize(lambda x: float(x @ x), [1.0, 2.0, 3.0], 1.0, rng=1, second_look=s) for s in (True, False)
    ]
    assert runs[0].nfev == runs[1].nfev and runs[0].second_looks == 0 and runs[0].success


def corner(x: Any) -> float:
    return math.nan if x.min() < 0 else float(x.sum() + 1.0)


def test_an_answer_that_stands_costs_one_short_look() -> None:
    settings: Any = {"rng": 1, "method": "cma-es"}
    plain = minimize(corner, [1.0, 2.0], 1.0, second_look=False, **settings)
    looked = minimize(corner, [1.0, 2.0], 1.0, **settings)
    assert plain.success and looked.success and looked.second_looks == 1
    assert plain.nfev < looked.nfev < 2 * plain.nfev
    assert looked.message == plain.message + "; a second look found nothing better"
    assert looked.fun <= plain.fun
    np.testing.assert_array_equal(looked.x_mean, plain.x_mean)  # of the search that converged
    assert set(looked.history["restart"]) == {0, 1}


def test_one_that_ends_with_worse_values_confirms_nothing() -> None:
    """The objective becomes worse when the first search has ended, so no look comes back to its value."""
    settings: Any = {"rng": 1, "method": "cma-es"}
    plain = minimize(corner, [1.0, 2.0], 1.0, second_look=False, **settings)
    calls = itertools.count(1)

    def worse(x: Any) -> float:
        return corner(x) + 0.5 * (next(calls) > plain.nfev)

    looked = minimize(worse, [1.0, 2.0], 1.0, max_evaluations=100_000, **settings)
    assert plain.success and not looked.success and looked.fun == plain.fun
    assert looked.second_looks == MAX_DOUBLINGS + 1
    assert "too few evaluations succeeded" in looked.message


def test_no_second_look_with_a_target_or_none_wanted() -> None:
    run = minimize(corner, [1.0, 2.0], 1.0, rng=1, target=0.5, method="cma-es")
    assert run.second_looks == 0 and not run.success


def test_a_budget_that_ends_in_a_second_look_takes_nothing_back() -> None:
    plain = minimize(corner, [1.0, 2.0], 1.0, rng=1, method="cma-es", second_look=False)
    cut = minimize(corner, [1.0, 2.0], 1.0, rng=1, method="cma-es", max_evaluations=plain.nfev + 20)
    assert cut.stop_reason is plain.stop_reason and cut.nfev == plain.nfev + 20
    assert cut.success and cut.fun == plain.fun
    assert (
        cut.message == plain.message + "; the budget ended while it looked again, with nothing better so far"
    )


def test_restarts_come_first() -> None:
    seen: list[int] = []
    run = minimize(
        corner,
        [1.0, 2.0],
        1.0,
        rng=1,
        method="cma-es",
        restarts=1,
        callback=lambda v: seen.append(v.population_size) if v.restart >= len(seen) else None,
    )
    assert seen == [6, 12, 24] and run.success and run.second_looks == 1


@pytest.mark.parametrize("often", [0.0, 1e9])
def test_a_resumed_run_looks_the_same(often: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmnes.run.state.SNAPSHOT_SECONDS", often)
    settings: Any = {"rng": 1, "method": "cma-es", "xtol": 1e-5}
    with watching() as seen:
        result = minimize(corner, [1.0, 2.0], 1.0, **settings)
        whole = portrait(result, *seen)
    assert result.second_looks >= 1 and result.success
    for cut in (0.5, 0.9):
        run = tmp_path / f"run-{cut}"
        limit = int(cut * result.nfev)
        minimize(corner, [1.0, 2.0], 1.0, run_dir=run, max_evaluations=limit, **settings)
        with watching() as seen:
            found = resume(run, corner, max_evaluations=None)
        assert found.second_looks == result.second_looks
        assert differences(portrait(found, *seen), whole) == []


def failing_by_chance(share: float, seed: int, d: int = 3) -> fmnes.Result:
    """A sphere of which this share of the evaluations fails, whatever the point."""
    chance = np.random.default_rng(seed)

    def sphere(x: Any) -> float:
        return math.nan if chance.random() < share else float((x**2).sum())

    return minimize(sphere, np.full(d, 2.0), 1.0, rng=seed, max_evaluations=5000)


@pytest.mark.parametrize(
    ("share", "seed"), [(0.95, 107), *[(0.99, seed) for seed in (6, 102, 103, 104, 105, 106)]]
)
def test_steps_that_shrink_by_chance_are_no_success(share: float, seed: int) -> None:
    result = failing_by_chance(share, seed)
    assert result.fun > 1e-3
    assert not result.success


@pytest.mark.parametrize("seed", range(110, 114))
def test_a_search_among_many_failures_succeeds_where_enough_evaluations_do(seed: int) -> None:
    result = failing_by_chance(0.5, seed)
    assert result.success
    assert result.fun < 1e-12


def test_a_search_without_enough_successes_is_looked_at_with_twice_the_points() -> None:
    weak = searched()._replace(supported=False)
    assert following(weak) == LOOK._replace(population_size=48)
    vain = searched("look", gained=False)._replace(supported=False)
    assert following(searched(), vain) == LOOK._replace(population_size=48)
    assert following(weak, vain) == LOOK._replace(population_size=96)
    assert following(weak, *[vain] * (MAX_DOUBLINGS + 1)) is None
    assert not has_converged([weak], look=False) and not has_converged([searched(), vain], look=True)
    assert has_converged([weak, vain, searched("look", gained=False)], look=True)
    assert "too few evaluations succeeded" in ending([weak, vain])[1]
    assert SearchSummary.restore(weak.dump()) == weak


@pytest.mark.parametrize("start", [[3.46805372], [-2.59670819, -1.21142769]])
def test_a_better_place_than_where_the_search_settled_is_looked_at(start: list[float]) -> None:
    """Rastrigin: a point of a better basin is seen, and the search settles in another one."""

    def rastrigin(x: Any) -> float:
        return float((x * x + 10 * (1 - np.cos(2 * np.pi * x))).sum())

    found = 0
    for seed in range(12):
        result = minimize(rastrigin, start, 1.0, rng=seed)
        found += result.second_looks > 0
        slope = 2 * result.x + 20 * np.pi * np.sin(2 * np.pi * result.x)
        assert result.success
        assert np.abs(slope).max() < 1e-2
    assert found
