"""Searches with models: they save evaluations, never break, and are saved and resumed like all others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmnes
from fmnes import ArgumentError, Optimizer, StopReason
from fmnes.search.modelled import use_surrogate
from fmnes.surrogate import evaluated, phases
from fmnes.surrogate.phases import LOCAL, REGION, START


def sphere(x: Any) -> float:
    return float(np.sum(np.square(np.asarray(x) - 0.3)))


def edge(x: Any) -> float:
    """The optimum is at a corner of the working part."""
    x = np.asarray(x)
    return float(np.sum(np.square(x - 0.3))) if (x >= 0.3).all() else math.nan


def evaluations_to(fun: Any, value: float, d: int, **options: Any) -> int:
    result = fmnes.minimize(fun, np.full(d, 2.0), 1.0, rng=1, target=value, **options)
    assert result.stop_reason is StopReason.TARGET, result
    return result.nfev


def run(opt: Optimizer, fun: Any, generations: int = 10**6) -> list[bytes]:
    """Ask and tell; return the points in order."""
    points = []
    while opt.stop_reason is None and opt.generation < generations:
        x = opt.ask()
        points += [row.tobytes() for row in x]
        opt.tell([fun(row) for row in x])
    return points


# -- evaluations are saved


@pytest.mark.parametrize("fun", [sphere, edge])
@pytest.mark.parametrize("d", [2, 4])
def test_it_needs_less_than_half_of_the_evaluations(fun: Any, d: int) -> None:
    plain = evaluations_to(fun, 1e-6, d, surrogate=False)
    assert evaluations_to(fun, 1e-6, d, surrogate=True) < plain / 2


def test_success_is_claimed_after_a_wider_search() -> None:
    """A search that began small looks around its result before it is called a success."""
    result = fmnes.minimize(sphere, [2.0, 2.0], 1.0, rng=1, surrogate=True)
    assert result.success and result.second_looks == 1 and result.fun < 1e-12


def test_it_leaves_the_first_valley() -> None:
    def bumpy(x: Any) -> float:
        return float(np.sum(x**2) + 2 * np.sum(1 - np.cos(3 * x)))

    # About 95 % of the runs do; which ones depends on rounding, and so on the processor.
    ends = [fmnes.minimize(bumpy, [2.2, 2.0], 1.5, rng=seed, surrogate=True).fun for seed in range(20)]
    assert sum(end < 1e-9 for end in ends) >= 13


# -- when it is used


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({"max_evaluations": 400}, True),
        ({"max_evaluations": 401}, False),
        ({}, False),
        ({"max_evaluations": 100, "method": "fm-nes"}, False),
        ({"max_evaluations": 100, "method": fmnes.AFMNES()}, True),
        ({"max_evaluations": 100, "surrogate": False}, False),
        ({"max_evaluations": 100, "population_size": 10}, False),
        ({"max_evaluations": 100, "bounds": [(-5, 5)] * 2, "bounds_as": "failure"}, False),
        ({"target": 1e-3, "surrogate": True}, True),
    ],
)
def test_when_it_is_used(options: dict[str, Any], used: bool) -> None:
    """The models evaluate a design of 2 d points first, and then one point at a time."""
    sizes: list[int] = []
    fmnes.minimize(
        sphere, [2.0, 2.0], 1.0, rng=1, callback=lambda view: sizes.append(view.evaluations), **options
    )
    steps = set(np.diff(sizes[:4]).tolist())
    assert (1 in steps) is used


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "fm-nes"}, "afm-nes"),
        ({"overlap": 0.5, "workers": 2}, "overlap"),
        ({"vectorized": True}, "vectorized"),
        ({"bounds": [(-5, 5)] * 2, "bounds_as": "failure"}, "bounds_as"),
        ({"surrogate": "always"}, "auto"),
        ({"surrogate": 2}, "surrogate"),
    ],
)
def test_where_it_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        fmnes.minimize(sphere, [2.0, 2.0], 1.0, **{"surrogate": True, **options})


# -- saved, loaded, asked one by one


@pytest.mark.parametrize("fun", [sphere, edge])
def test_a_loaded_search_goes_on_with_the_same_points(fun: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"bounds": [(-5, 5)] * 3, "rng": 4, "max_evaluations": 200, "surrogate": True}
    whole = run(Optimizer([2.0] * 3, 1.0, **options), fun)
    opt = Optimizer([2.0] * 3, 1.0, **options)
    points: list[bytes] = []
    phases = set()
    while opt.stop_reason is None:
        x = opt.ask()
        half = max(1, len(x) // 2)  # the rest of the generation is open
        points += [row.tobytes() for row in x[:half]]
        opt.tell([fun(row) for row in x[:half]] + [fmnes.LOST] * (len(x) - half))
        phases.add(opt._surrogate.phase)  # type: ignore[union-attr]
        if opt.evaluations % 7 == 0:
            opt.save(tmp_path / "search.npz")
            opt = Optimizer.load(tmp_path / "search.npz")
    assert phases == {START, REGION, LOCAL}
    assert points == whole


def test_points_by_id_are_the_same() -> None:
    options: dict[str, Any] = {"rng": 4, "max_evaluations": 90, "surrogate": True, "batch_size": 3}
    whole = run(Optimizer([2.0] * 2, 1.0, **options), edge)
    opt = Optimizer([2.0] * 2, 1.0, **options)
    points: dict[tuple[int, int], bytes] = {}
    while opt.stop_reason is None:
        for id, x in reversed(opt.ask(100)):
            _, generation, slot, *_ = id.split("-")
            points[int(generation), int(slot)] = x.tobytes()
            opt.tell(id, edge(x))
    assert set(points.values()) == set(whole)


def test_a_batch_is_as_wide_as_the_workers() -> None:
    opt = Optimizer([2.0] * 2, 1.0, rng=4, surrogate=True, batch_size=4)
    sizes = []
    while opt.evaluations < 60:
        x = opt.ask()
        sizes.append(len(x))
        assert len({row.tobytes() for row in x}) == len(x)
        opt.tell([sphere(row) for row in x])
    assert sizes[1:4] == [4, 4, 4]


# -- every kind of parameter


def test_integers_steps_and_log_scales() -> None:
    space = {
        "n": fmnes.Integer(1, 20),
        "share": fmnes.Real(0, 1, multiple_of=0.25),
        "rate": fmnes.Real(1e-4, 1e2, log=True),
    }
    seen = []

    def cost(p: dict[str, Any]) -> float:
        seen.append(p)
        if p["n"] < 3:
            raise fmnes.Infeasible("too few")
        return abs(p["n"] - 7) + (p["share"] - 0.5) ** 2 + math.log10(p["rate"]) ** 2

    result = fmnes.minimize(cost, space, rng=1, max_evaluations=150, surrogate=True)
    assert result.x["n"] == 7 and result.x["share"] == 0.5 and result.fun < 1e-3
    assert all(float(p["n"]).is_integer() and p["share"] % 0.25 == 0 for p in seen)


def test_no_point_of_a_grid_is_evaluated_twice() -> None:
    seen = []

    def cost(x: Any) -> float:
        seen.append(tuple(x))
        return float(np.sum((x - 3) ** 2))

    result = fmnes.minimize(
        cost, [1, 9], bounds=[(0, 10)] * 2, integers=True, rng=1, max_evaluations=120, surrogate=True
    )
    assert result.fun == 0 and len(seen) == len(set(seen))


# -- bad input

HOSTILE: dict[str, Any] = {
    "constant": lambda x: 1.0,
    "plateaus": lambda x: float(np.floor(np.abs(x)).sum()),
    "decades": lambda x: math.exp(min(700.0, 300 * float(np.abs(x).sum()))) - 1.0,
    "negative decades": lambda x: -math.exp(min(700.0, 300 * float(np.abs(x).sum()))),
    "rarely works": lambda x: float(x @ x) if abs(x[0] - 1.9) < 0.02 else math.nan,
    "never works": lambda x: math.nan,
    "works at the start only": lambda x: 1.0 if (x == 2.0).all() else math.nan,
    "infinite": lambda x: math.inf if x[0] > 0 else math.nan,
    "two values": lambda x: float(x[0] > 0),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bounds", [None, (-3.0, 4.0)])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_objectives(name: str, d: int, bounds: Any) -> None:
    box = None if bounds is None else [bounds] * d
    result = fmnes.minimize(
        HOSTILE[name], [2.0] * d, 1.0, bounds=box, rng=1, max_evaluations=90, surrogate=True
    )
    assert result.nfev <= 90
    assert not (result.success and name == "never works")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bounds", [None, (-3.0, 4.0)])
def test_one_success_among_hundreds_of_failures(bounds: Any) -> None:
    evaluations = 0

    def rarely(x: Any) -> float:
        nonlocal evaluations
        evaluations += 1
        return 1.0 if evaluations == 200 else math.nan

    box = None if bounds is None else [bounds] * 3
    result = fmnes.minimize(rarely, [2.0] * 3, 1.0, bounds=box, rng=1, max_evaluations=300, surrogate=True)
    assert result.nfev == evaluations <= 300 and not result.success
    assert result.fun == (1.0 if evaluations >= 200 else None)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("values", [2, 3, 50])
@pytest.mark.parametrize("d", [1, 3])
def test_integers_only(d: int, values: int, fails: bool) -> None:
    """Grids from two values each on, the smallest of which are known completely after a few evaluations."""

    def cost(x: Any) -> float:
        return math.nan if fails and x[0] == 0 else float(np.square(x - 1).sum())

    box = [(0, values - 1)] * d
    start = [values - 1] * d
    result = fmnes.minimize(
        cost, start, bounds=box, integers=True, rng=1, max_evaluations=120, surrogate=True
    )
    assert result.fun == 0 and result.x.tolist() == [1] * d


# (objective, target, d, start, bounds, integers): where something is wrong, or a model could mislead.
MISLEADING: dict[str, tuple[Any, float, int, float, tuple[float, float], bool]] = {
    "steps": (lambda x: float(np.floor(4 * np.abs(x)).sum()), 0.0, 3, 2.0, (-3, 4), False),
    "decades": (HOSTILE["decades"], 1.0, 1, 2.0, (-3, 4), False),
    "a slab works": (HOSTILE["rarely works"], 3.7, 3, 2.0, (-3, 4), False),
    "a start that fails": (lambda x: float(x @ x) if x[0] < 0.9 else math.nan, 1e-3, 2, 2.0, (-3, 4), False),
    "integers": (lambda x: float(np.square(x - 1) @ [1, 100]), 0.0, 2, 20, (-30, 40), True),
    "integers fail": (lambda x: float(x @ x) if x[0] >= 1 else math.nan, 1.0, 2, 20, (-30, 40), True),
}


@pytest.mark.parametrize("name", MISLEADING)
def test_models_cost_no_more_than_half_as_many_evaluations_again(name: str) -> None:
    fun, target, d, start, box, integers = MISLEADING[name]

    def evaluations(surrogate: bool) -> int:
        options = {"bounds": [box] * d, "integers": integers or None, "restarts": 9, "target": target}
        runs = [
            fmnes.minimize(
                fun, [start] * d, 1.0, rng=seed, max_evaluations=600, surrogate=surrogate, **options
            )
            for seed in (1, 2, 3)
        ]
        return sum(run.nfev for run in runs)

    assert evaluations(True) <= 1.5 * evaluations(False)


@pytest.mark.parametrize("budget", [1, 2, 3, 7])
def test_budgets_below_the_first_design(budget: int) -> None:
    result = fmnes.minimize(sphere, [2.0] * 5, 1.0, rng=1, max_evaluations=budget, surrogate=True)
    assert result.nfev == budget


def test_half_open_bounds() -> None:
    result = fmnes.minimize(
        sphere, [2.0, 2.0], 1.0, bounds=[(0.5, None), (None, 3)], rng=1, max_evaluations=120, surrogate=True
    )
    assert result.fun == pytest.approx(0.04, abs=1e-6)


def test_known_points_are_data() -> None:
    known = [(x, sphere(x)) for x in np.random.default_rng(0).uniform(-1, 3, (20, 2))]
    opt = Optimizer([2.0, 2.0], 1.0, rng=1, surrogate=True, known=known)
    run(opt, sphere, generations=6)
    assert opt.best.fun < 1e-6


def test_a_long_run_keeps_the_latest_points_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evaluated, "MAX_POINTS", 100)
    settings: dict[str, Any] = {"rng": 1, "max_evaluations": 400, "xtol": None, "ftol": None}
    opt = Optimizer([2.0, 2.0], 1.0, **settings)
    use_surrogate(opt, 1)
    points: list[bytes] = []
    while opt.stop_reason is None:
        points += run(opt, edge, opt.generation + 3)
        assert opt._surrogate is not None and len(opt._surrogate.data) <= 111 + opt.population_size
        opt.save(tmp_path / "run.npz")
        opt = Optimizer.load(tmp_path / "run.npz")
    whole = Optimizer([2.0, 2.0], 1.0, **settings)
    use_surrogate(whole, 1)
    assert points == run(whole, edge)
    assert whole._surrogate is not None and whole._surrogate.data.forgotten > 200


# -- other basins


def staircase(x: Any) -> float:
    """A wide basin with a plateau at 0.2, and a narrower one with a plateau at 0."""
    first, second = (float(np.hypot(*(np.asarray(x) - at))) for at in (0.3, 0.8))
    return float(
        min(0.2 + np.ceil(10 * max(0.0, first - 0.1)) / 10, np.ceil(10 * max(0.0, second - 0.1)) / 10)
    )


def found_below_the_plateau(monkeypatch: pytest.MonkeyPatch, regions: int) -> int:
    monkeypatch.setattr(phases, "OTHER_REGIONS", regions)
    settings: dict[str, Any] = {"bounds": [(0, 1)] * 2, "max_evaluations": 150, "surrogate": True}
    return sum(
        fmnes.minimize(staircase, [0.3, 0.35], 0.1, rng=seed, **settings).fun == 0 for seed in range(8)
    )


def test_a_plateau_is_left_for_other_parts_of_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_below_the_plateau(monkeypatch, 3) == 8
    assert found_below_the_plateau(monkeypatch, 0) < 4


def two_basins(x: Any) -> float:
    first, second = (float(np.sum(np.square(np.asarray(x) - at))) for at in (0.25, 0.8))
    return float(min(1.0 + first, 4 * second))


@pytest.mark.parametrize(("restarts", "least", "most"), [(0, 0, 2), (3, 7, 8)])
def test_restarts_begin_in_another_basin(restarts: int, least: int, most: int) -> None:
    options: dict[str, Any] = {"max_evaluations": 300, "surrogate": True, "restarts": restarts}
    found = [
        fmnes.minimize(two_basins, [0.3, 0.2], 0.05, bounds=[(0, 1)] * 2, rng=seed, **options)
        for seed in range(8)
    ]
    assert least <= sum(result.fun < 1e-3 for result in found) <= most


@pytest.mark.filterwarnings("error")
def test_a_plateau_in_the_only_part_that_works() -> None:
    def fun(x: Any) -> float:
        return staircase(x) if np.abs(np.asarray(x) - 0.3).max() < 0.2 else math.nan

    settings: dict[str, Any] = {"bounds": [(0, 1)] * 2, "max_evaluations": 150, "surrogate": True}
    for seed in range(8):
        result = fmnes.minimize(fun, [0.3, 0.45], 0.1, rng=seed, **settings)
        assert result.fun == 0.2


# -- the first design


def in_a_ball(x: Any) -> float:
    """It works close to the start only."""
    x = np.asarray(x)
    return float(np.sum(np.square(x - 0.05))) if np.square(x).sum() < 0.09 else math.nan


def test_the_first_points_come_closer_to_the_start_after_failures() -> None:
    d, seen = 6, []

    def fun(x: Any) -> float:
        seen.append(np.array(x))
        return in_a_ball(x)

    fmnes.minimize(fun, np.zeros(d), 1.0, rng=1, max_evaluations=1 + 2 * d, surrogate=True)
    distances = np.linalg.norm(seen[1:], axis=1)
    assert distances[:3].min() > 0.5 and distances[-3:].max() < 0.5
    assert sum(math.isfinite(in_a_ball(x)) for x in seen) > 1


def test_a_region_far_from_a_start_that_fails_is_not_small() -> None:
    """No point of the design works: its contraction says nothing about where something works."""

    def fun(x: Any) -> float:
        return float(np.sum(np.square(np.asarray(x) - 0.8))) if np.min(x) > 0.6 else math.nan

    bounds = [(0, 1)] * 3
    opt = Optimizer([0.2] * 3, 0.05, bounds=bounds, rng=1, max_evaluations=300)
    use_surrogate(opt, 1)
    while opt._surrogate is not None and opt._surrogate.phase == START:
        opt.tell([fun(x) for x in opt.ask()])
        opt.ask()
    assert opt._surrogate is not None and opt._surrogate.region is not None
    assert opt._surrogate.region.first_size == pytest.approx(phases.REGION_STEPS * 0.05)
