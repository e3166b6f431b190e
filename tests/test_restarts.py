"""Restarts: which search comes next, and that a resumed run goes the same way."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmnes import ArgumentError, StopReason, View, minimize, resume
from fmnes.result import Stop
from fmnes.run.restarts import MAX_LARGE, Plan, SearchSummary, next_search
from tests.rows import through
from tests.torture import differences, portrait, watching

CONVERGED = Stop(StopReason.XTOL, "short steps")


def searched(kind: str, size: int, evaluations: int, **changes: Any) -> SearchSummary:
    fields = {"gained": True, "failing": False, "stop": CONVERGED, **changes}
    return SearchSummary(kind, size, evaluations, **fields)


def following(*searches: SearchSummary, **changes: Any) -> Plan | None:
    options = {"restarts": 0, "restart_from": "start", "look": False, "limited": False, "even": True}
    return next_search(searches, **{**options, "rng": np.random.default_rng(1), **changes})  # type: ignore[arg-type]


FIRST = searched("first", 6, 600)


def test_a_number_of_restarts_doubles_the_population() -> None:
    assert following(FIRST) is None
    assert following(FIRST, restarts=2) == Plan("large", 12)
    second = searched("large", 12, 900)
    assert following(FIRST, second, restarts=2, restart_from="best") == Plan("large", 24, 1.0, "best")
    assert following(FIRST, second, searched("large", 24, 0), restarts=2) is None


def test_bipop_gives_the_next_search_to_the_kind_that_has_used_less() -> None:
    large = searched("large", 12, 1000)
    assert following(FIRST, restarts="bipop") == Plan("large", 12)
    assert following(FIRST, large, restarts="bipop").kind == "small"  # type: ignore[union-attr]
    assert following(FIRST, large, searched("small", 6, 999), restarts="bipop").kind == "small"  # type: ignore[union-attr]
    assert following(FIRST, large, searched("small", 6, 1000), restarts="bipop") == Plan("large", 24)


def test_the_small_searches_of_bipop_are_distributed_as_in_the_paper() -> None:
    """λ₀ (½ λ_large/λ₀)^(U²) points, and steps of σ₀ 10^(−2U)."""
    past = [FIRST, *(searched("large", 6 * 2**i, 1000) for i in (1, 2, 3, 4))]  # λ_large = 96
    rng = np.random.default_rng(2)
    plans = [following(*past, restarts="bipop", rng=rng) for _ in range(2000)]
    sizes = np.array([plan.population_size for plan in plans])  # type: ignore[union-attr]
    steps = np.array([plan.step for plan in plans])  # type: ignore[union-attr]
    assert {plan.kind for plan in plans} == {"small"}  # type: ignore[union-attr]
    assert sizes.min() == 6 and 44 <= sizes.max() <= 48 and not (sizes % 2).any()
    median = 6 * 8 ** (0.5**2)
    assert abs(np.median(sizes) - median) < 2
    assert 0.01 <= steps.min() < 0.011 and 0.95 < steps.max() <= 1.0
    assert abs(np.median(np.log10(steps)) + 1.0) < 0.1


def test_bipop_ends_without_a_budget_and_where_nothing_can_be_evaluated() -> None:
    past = [FIRST, *(searched("large", 6 * 2 ** (i + 1), 10) for i in range(MAX_LARGE))]
    past.append(searched("small", 6, 1000))
    assert following(*past, restarts="bipop") is None
    assert following(*past, restarts="bipop", limited=True) == Plan("large", 6 * 2 ** (MAX_LARGE + 1))
    assert following(FIRST, searched("large", 12, 0), restarts="bipop", limited=True) is None


# -- runs -------------------------------------------------------------------------------------------------


def rastrigin(x: Any) -> float:
    return math.nan if x[0] < -3.3 else float(10 * len(x) + np.sum(x * x - 10 * np.cos(2 * np.pi * x)))


def views(x0: Any = (2.6, 3.1), **settings: Any) -> list[View]:
    seen: list[View] = []
    minimize(rastrigin, list(x0), 0.3, rng=3, callback=seen.append, **settings)
    return seen


def test_a_run_with_bipop_spends_its_budget_and_mixes_sizes() -> None:
    seen = views(restarts="bipop", max_evaluations=5000)
    assert seen[-1].evaluations > 4900
    sizes = [next(v.population_size for v in seen if v.restart == i) for i in range(seen[-1].restart + 1)]
    assert sizes[:2] == [6, 12] and 24 in sizes and len(sizes) > len(set(sizes))
    firsts = [next(v.sigma for v in seen if v.restart == i) for i in range(len(sizes))]
    assert min(firsts) < 0.15 < max(firsts)  # short steps too


@pytest.mark.parametrize("origin", ["start", "best", "uniform"])
def test_where_a_restart_begins(origin: Any) -> None:
    seen = views(
        (4.5, 4.5),
        restarts=3,
        restart_from=origin,
        bounds=(-5.0, 5.0),
        max_evaluations=4000,
        target=-1.0,
        xtol=1e-3,
        method="cma-es",
    )
    begins = [next(v for v in seen if v.restart == i and v.generation == 1) for i in range(1, 4)]
    start = np.array([4.5, 4.5])
    far = [float(np.abs(v.mean - start).max()) for v in begins]
    best = [v.best.x for v in seen if v.best.x is not None and v.restart == 0][-1]
    if origin == "start":
        assert max(far) < 0.6
    elif origin == "best":
        assert float(np.abs(begins[0].mean - best).max()) < 0.4 < np.abs(best - start).max()
    else:
        assert max(far) > 2.0 and all((np.abs(v.mean) <= 5.0).all() for v in begins)


@through(
    ("settings", "words"),
    [
        ({"restarts": "ipop"}, "restarts: found 'ipop'"),
        ({"restarts": -1}, "restarts"),
        ({"restarts": 1.5}, "restarts"),
        ({"restart_from": "anywhere"}, "restart_from: found 'anywhere'"),
        ({"restart_from": "uniform"}, "finite bounds"),
        ({"restart_from": "uniform", "bounds": (0.0, None)}, "finite bounds"),
        ({"second_look": "no"}, "second_look"),
        ({"evaluate_start": None}, "evaluate_start"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        minimize(lambda x: 1 / 0, [1.0, 2.0], 0.5, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"restarts": "bipop"},
        {"restarts": 3, "restart_from": "best"},
        {"restarts": "bipop", "restart_from": "uniform", "bounds": (-5.0, 5.0)},
    ],
)
def test_a_resumed_run_decides_the_same(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"rng": 3, "method": "fm-nes", "max_evaluations": 900, "ftol": 1e-2, "xtol": 1e-2, **settings}
    with watching() as seen:
        whole = portrait(minimize(rastrigin, [2.6, 3.1], 0.3, **settings), *seen)
    assert whole["state"]["restart"] >= 3
    for often in (0.0, 1e9):
        monkeypatch.setattr("fmnes.run.state.SNAPSHOT_SECONDS", often)
        run = tmp_path / f"run-{often}"
        minimize(rastrigin, [2.6, 3.1], 0.3, run_dir=run, **{**settings, "max_evaluations": 531})
        with watching() as seen:
            found = resume(run, rastrigin, max_evaluations=900)
        assert differences(portrait(found, *seen), whole) == []
