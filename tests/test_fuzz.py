"""Anything may be told, in any order of failures, losses and ties; the optimizer stays usable throughout.

Hypothesis chooses the problem and a palette of values; the values of a generation are drawn from the palette,
so ties are common and a failing example stays small.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fmnes import LOST, Optimizer, Resampling
from tests import variants

#: One of each and those with the fewest guards; resampling with a cap that a run of this length meets.
NAMES = (*variants.ONE_OF_EACH, "always, no reset (C)", "cr-fm-nes as published")
METHODS = {
    name: dataclasses.replace(method, max_redraws=50) if isinstance(method, Resampling) else method
    for name, method in ((name, variants.METHODS[name]) for name in NAMES)
}
GENERATIONS = 30

special = st.sampled_from(
    [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 5e-324, -5e-324, 1.7e308, -1.7e308, 1e-300, None, LOST]
)
values = st.one_of(st.floats(width=64), st.integers(-(10**400), 10**400), special)


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    d = draw(st.integers(1, 6))
    palette = draw(st.lists(values, min_size=1, max_size=8))
    return {
        "d": d,
        "lam": draw(st.sampled_from([None, 4, 6, 10, 30])),
        "seed": draw(st.integers(0, 2**32)),
        "palette": palette,
        # How much of a generation is the palette; the rest is an ordinary objective.
        "noise": draw(st.sampled_from([1.0, 1.0, 0.5, 0.1])),
        "bounds": draw(
            st.sampled_from([None, (-0.5, 0.7), (-1e-3, 1e-3), (None, 0.2), (-1e9, 1e9), (-0.1, None)])
        ),
        "bounds_as": draw(st.sampled_from(["map", "failure"])),
        "sigma0": draw(st.sampled_from([1.0, 1e-9, 1e9, 0.3])),
        "per_axis": draw(st.booleans()),
    }


def make(method: Any, p: dict[str, Any]) -> Optimizer:
    sigma0 = p["sigma0"] * np.geomspace(0.1, 10, p["d"]) if p["per_axis"] else p["sigma0"]
    return Optimizer(
        np.zeros(p["d"]),
        sigma0,
        method=method,
        population_size=p["lam"],
        bounds=p["bounds"],
        bounds_as=p["bounds_as"],
        rng=p["seed"],
        xtol=None,
        ftol=None,
    )


class Teller:
    """Values for points: from the palette or from a bowl."""

    def __init__(self, p: dict[str, Any]) -> None:
        self.p = p
        self.rng = np.random.default_rng(p["seed"] + 1)

    def __call__(self, X: np.ndarray) -> list[Any]:
        chosen = self.rng.integers(0, len(self.p["palette"]), len(X))
        noisy = self.rng.random(len(X)) < self.p["noise"]
        bowl = ((X - 0.3) ** 2).sum(axis=1)
        return [self.p["palette"][chosen[i]] if noisy[i] else bowl[i] for i in range(len(X))]


def check(opt: Optimizer) -> None:
    assert np.isfinite(opt.mean).all()
    assert math.isfinite(opt.sigma) and opt.sigma > 0
    covariance = opt.covariance
    assert np.isfinite(covariance).all()
    np.testing.assert_allclose(covariance, covariance.T, rtol=1e-6, atol=1e-9 * np.abs(covariance).max())
    assert (np.diag(covariance) > 0).all()
    assert 0 <= opt.n_infeasible <= opt.evaluations
    assert (opt.best.x is None) == (opt.best.fun == math.inf) == (opt.best.evaluation == 0)
    assert opt.best.evaluation <= opt.evaluations
    stop = opt.stop
    assert stop is None or stop.message
    result = opt.result()
    assert not result.success or math.isfinite(result.fun)


def as_value(told: Any) -> float:
    """What was told as a feasible value; +inf where it is none."""
    try:
        value = float(told)
    except (TypeError, OverflowError):
        return math.inf
    return value if math.isfinite(value) else math.inf


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@settings(
    max_examples=15, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(p=problems())
@example(
    p={
        "d": 2,
        "lam": None,
        "seed": 0,
        "palette": [math.nan],
        "noise": 1.0,
        "bounds": None,
        "bounds_as": "map",
        "sigma0": 1.0,
        "per_axis": False,
    }
)
def test_any_values_can_be_told(method: Any, p: dict[str, Any]) -> None:
    opt, tell = make(method, p), Teller(p)
    low, high = p["bounds"] or (None, None)
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    evaluations = lost = 0
    best = math.inf
    for _ in range(GENERATIONS):
        X = opt.ask()
        assert np.isfinite(X).all()
        assert ((low <= X) & (high >= X)).all()
        assert 0 <= len(X) <= opt.view().population_size <= 4 * opt.population_size
        before = opt.generation
        told = tell(X)
        opt.tell(told)
        lost_now = sum(value is LOST for value in told)
        evaluations += len(told) - lost_now
        lost += lost_now
        best = min([best, *map(as_value, told)])
        assert opt.evaluations == evaluations
        assert opt.best.fun == best
        if lost_now:
            assert opt.generation == before, "a generation ended with a lost evaluation in it"
        check(opt)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@settings(
    max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(p=problems(), moments=st.sets(st.integers(0, 2 * GENERATIONS - 1), min_size=1, max_size=3))
def test_saving_and_loading_at_any_moment_changes_nothing(
    method: Any, p: dict[str, Any], moments: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "fuzz.npz"
    saved, plain = make(method, p), make(method, p)
    tell, tell_plain = Teller(p), Teller(p)
    for moment in range(GENERATIONS):
        X = saved.ask()
        if 2 * moment in moments:  # points are out, no values yet
            saved.save(path)
            saved = Optimizer.load(path)
            X = saved.ask()
        np.testing.assert_array_equal(X, plain.ask())
        saved.tell(tell(X))
        plain.tell(tell_plain(X))
        if 2 * moment + 1 in moments:
            saved.save(path)
            saved = Optimizer.load(path)
    assert as_bytes(saved) == as_bytes(plain)
    assert saved.stop == plain.stop


def as_bytes(opt: Optimizer) -> tuple[Any, dict[str, bytes]]:
    metadata, arrays = opt.dump()
    return metadata, {name: np.asarray(array).tobytes() for name, array in arrays.items()}
