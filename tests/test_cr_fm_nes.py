"""CR-FM-NES: against the literal transcription, against known numbers of evaluations, and at its edges."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fmnes
from fmnes import CRFMNES, problems
from fmnes.steps import sampling
from fmnes.strategies.cr_fm_nes import CRFMNESState, constants
from tests import reference
from tests.objectives import ellipsoid, failing_ellipsoid, late_failures
from tests.rows import through
from tests.updates import after_update
from tests.variants import STRATEGIES

TOLERANCE = 1e-9
Objective = Callable[[np.ndarray], np.ndarray]
STRATEGY = STRATEGIES["cr-fm-nes"]
#: The algorithm as published, which the transcription follows.
PUBLISHED = STRATEGIES["cr-fm-nes as published"]


def never_feasible(x: np.ndarray) -> np.ndarray:
    return np.resize([np.nan, np.inf, -np.inf], len(x))


def all_equal(x: np.ndarray) -> np.ndarray:
    return np.zeros(len(x))


PROBLEMS: dict[str, tuple[Objective, float]] = {
    "ellipsoid": (ellipsoid, 20.0),
    "failing": (failing_ellipsoid, 4.0),
    "late": (late_failures, 20.0),
    "never": (never_feasible, 1.0),
    "ties": (all_equal, 1.0),
}
SIZES = [(1, 6), (2, 6), (5, 16), (8, 40), (20, 6), (40, 16)]


def start(d: int, x0: float = 3.0, seed: int = 0, dtype: type = np.float64) -> CRFMNESState:
    z0 = np.random.default_rng(seed).standard_normal(d).astype(dtype)
    return STRATEGY.init(np.full(d, x0, dtype), dtype(2.0), z0)


def warm(d: int) -> CRFMNESState:
    """A state in which no field has its initial value."""
    rng = np.random.default_rng(d)
    state = start(d)
    for _ in range(20):
        z = rng.standard_normal((4, d))
        state = after_update(STRATEGY, state, z, ellipsoid(STRATEGY.sample(state, z)))
    return state


def assert_sound(state: CRFMNESState) -> None:
    assert all(np.isfinite(leaf).all() for leaf in state)
    assert state.sigma > 0 and (state.D > 0).all()
    log_det = np.log(state.D).sum() + 0.5 * math.log1p(state.v @ state.v)
    assert abs(log_det) < 1e-9 * max(1.0, float(np.abs(np.log(state.D)).sum()))


def assert_same(state: CRFMNESState, literal: reference.CRFMNES, rtol: float = TOLERANCE) -> None:
    # The mean has been as far away as it started: below that, its digits are used up.
    assert_allclose(state.mean, literal.m, rtol=rtol, atol=rtol * literal.sigma + 1e-14)
    pairs = [
        (state.sigma, literal.sigma),
        (state.p_sigma, literal.p_sigma),
        (state.p_c, literal.p_c),
        (state.D**2 * (1 + state.v**2), literal.D**2 * (1 + literal.v**2)),
    ]
    if literal.d > 1:  # in one dimension every v gives the same distribution, and its walk is chaotic
        pairs += [(state.D, literal.D), (state.v, literal.v)]
    for found, wanted in pairs:
        assert_allclose(found, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


# The literal algorithm


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("d", "population_size"), SIZES)
def test_literal(problem: str, d: int, population_size: int) -> None:
    fun, x0 = PROBLEMS[problem]
    rng = np.random.default_rng([d, population_size])
    z0 = rng.standard_normal(d)
    state = PUBLISHED.init(np.full(d, x0), np.float64(2.0), z0)
    literal = reference.CRFMNES(np.full(d, x0), 2.0, z0 / math.sqrt(d))
    phases = set()
    for _ in range(60 if fun in (ellipsoid, failing_ellipsoid, late_failures) else 30):
        z = rng.standard_normal((population_size // 2, d))
        points = literal.points(z)
        assert_allclose(
            PUBLISHED.sample(state, z), points, rtol=TOLERANCE, atol=TOLERANCE * literal.sigma + 1e-14
        )
        f = fun(points)
        state = after_update(PUBLISHED, state, z, f)
        literal.step(z, f)
        phases.add(literal.phase)
        assert PUBLISHED.shape(state).phase == literal.phase
        assert_same(state, literal)
    if problem == "ellipsoid":  # the run has met the branches it is to compare
        assert "movement" in phases and len(phases) >= 2


def test_by_columns_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of 7 columns, the last one smaller, and all columns at once."""
    state, rng = warm(40), np.random.default_rng(3)
    z, f = rng.standard_normal((8, 40)), rng.standard_normal(16)
    f[[2, 3, 9]] = np.nan
    whole = after_update(STRATEGY, state, z, f), STRATEGY.sample(state, z), STRATEGY.shape(state).axis_lengths
    monkeypatch.setattr(sampling, "GROUP_BYTES", 1)
    monkeypatch.setattr(sampling, "MIN_COLUMNS", 7)
    parts = after_update(STRATEGY, state, z, f), STRATEGY.sample(state, z), STRATEGY.shape(state).axis_lengths
    for found, wanted in zip((*parts[0], *parts[1:]), (*whole[0], *whole[1:]), strict=True):
        assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


# The numbers of evaluations that the algorithm is known to need: mean and standard deviation, in thousands

EVALUATIONS: dict[str, tuple[str, int, int, float, float, float]] = {
    # problem, d, λ, x0, mean, standard deviation; sigma0 2, target 1e-12
    "ellipsoid-40": ("ellipsoid", 40, 16, 3, 9.1, 0.4),
    "k-tablet-40": ("k-tablet", 40, 16, 3, 9.4, 0.5),
    "rosenbrock-40": ("rosenbrock", 40, 40, 0, 51.6, 1.6),
    "ic-sphere-40": ("ic-sphere", 40, 16, 10, 19.5, 0.9),
    "ellipsoid-80": ("ellipsoid", 80, 16, 3, 18.1, 0.7),
    "ic-sphere-80": ("ic-sphere", 80, 32, 10, 54.4, 2.1),
}


def evaluations_to_target(fun: Objective, d: int, population_size: int, x0: float, seed: int) -> int:
    rng = np.random.default_rng(seed)
    state = start(d, x0, seed)
    for generation in range(20_000):
        z = rng.standard_normal((population_size // 2, d))
        f = fun(STRATEGY.sample(state, z))
        hits = np.flatnonzero(f < 1e-12)
        if hits.size:
            return generation * population_size + int(hits[0]) + 1
        state = after_update(STRATEGY, state, z, f)
    raise AssertionError("the target was not reached")


@pytest.mark.parametrize("cell", EVALUATIONS)
def test_evaluations_to_target(cell: str) -> None:
    name, d, population_size, x0, mean, deviation = EVALUATIONS[cell]
    fun = problems.get(name, d=d).fun
    seeds = 2
    counts = [evaluations_to_target(fun, d, population_size, x0, seed) for seed in range(seeds)]
    assert abs(np.mean(counts) / 1000 - mean) < 4 * deviation / math.sqrt(seeds)


# The edges


@pytest.mark.parametrize("d", [1, 2, 10])
def test_nothing_feasible(d: int) -> None:
    rng, state = np.random.default_rng(1), start(d)
    for _ in range(300):
        z = rng.standard_normal((4, d))
        state = after_update(STRATEGY, state, z, np.full(8, np.nan))
        assert_sound(state)


@through("length", [0.0, 1e-300, 1e-12, 1e-4, 1e4, 1e8])
@through("d", [1, 2, 30])
def test_any_length_of_v(d: int, length: float) -> None:
    rng = np.random.default_rng(5)
    state = warm(d)
    state = state._replace(v=state.v * (length / np.linalg.norm(state.v)))
    for _ in range(100):
        z = rng.standard_normal((4, d))
        state = after_update(STRATEGY, state, z, ellipsoid(STRATEGY.sample(state, z)))
        assert_sound(state)
    assert length > 0 or not state.v.any()


def test_D_stays_positive() -> None:
    """A draw that is far too long and ranked last would take D below zero."""
    d = 10
    state = warm(d)
    z = np.random.default_rng(6).standard_normal((4, d))
    z[2, 3] = 60.0
    f = np.arange(8.0)
    f[4:6] = 100.0, 101.0
    literal = reference.CRFMNES(state.mean, state.sigma, state.v)
    literal.D, literal.p_sigma, literal.p_c = state.D, state.p_sigma, state.p_c
    literal.step(z, f)
    new = after_update(PUBLISHED, state, z, f)
    assert_sound(new)
    assert_same(new, literal)
    shrinkage = new.D / state.D
    assert shrinkage[3] / np.median(shrinkage) < 0.2  # the bound was met


def test_change_is_limited() -> None:
    """By 0.7 of what it is, and not at all where it would change by less."""
    d, rng = 10, np.random.default_rng(12)
    state = warm(d)
    for size in (1.0, 5.0, 20.0):
        for _ in range(20):
            z = size * rng.standard_normal((4, d))
            f = rng.standard_normal(8)
            new, published = after_update(STRATEGY, state, z, f), after_update(PUBLISHED, state, z, f)
            step = np.linalg.norm(new.v - state.v) / np.linalg.norm(state.v)
            factors = new.D / state.D
            assert step <= 0.7 * (1 + 1e-12)
            assert factors.max() / factors.min() <= 1.7 / 0.3 * (1 + 1e-12)
            published_step = np.linalg.norm(published.v - state.v) / np.linalg.norm(state.v)
            if step < published_step:  # shortened, but not turned
                assert_allclose((new.v - state.v) / step, (published.v - state.v) / published_step, rtol=1e-9)
            else:
                assert_array_equal(new.D, published.D)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5, np.nan, 7])
def test_bad_limit(value: float) -> None:
    with pytest.raises(fmnes.ArgumentError, match="max_change: found"):
        CRFMNES(max_change=value)


@pytest.mark.parametrize(("d", "population_size"), [(20, 12), (40, 40)])
def test_a_ridge_that_is_not_parallel_to_an_axis(d: int, population_size: int) -> None:
    """Without the limit v and D explode here within a few hundred generations."""
    direction = np.ones(d) / math.sqrt(d)

    def cigar(x: np.ndarray) -> np.ndarray:
        along = x @ direction
        across = x - along[:, None] * direction
        return along**2 + 1e4 * (across**2).sum(axis=1)

    assert evaluations_to_target(cigar, d, population_size, 3.0, seed=1) < 60_000


def test_condition_grows_without_bound() -> None:
    """Values that depend on one coordinate only, for long: finite, positive, normalised."""
    rng, state = np.random.default_rng(7), start(6)
    for _ in range(3000):
        z = rng.standard_normal((4, 6))
        state = after_update(STRATEGY, state, z, np.abs(STRATEGY.sample(state, z)[:, 0]))
        assert_sound(state)


def test_population_size_may_change() -> None:
    state, rng = warm(10), np.random.default_rng(8)
    literal = reference.CRFMNES(state.mean, state.sigma, state.v)
    literal.D, literal.p_sigma, literal.p_c = state.D, state.p_sigma, state.p_c
    for n in (3, 10, 1, 25):
        z, f = rng.standard_normal((n, 10)), rng.standard_normal(2 * n)
        state = after_update(PUBLISHED, state, z, f)
        literal.step(z, f)
        assert_same(state, literal)


def test_points_follow_the_covariance() -> None:
    d = 12
    state = warm(d)
    steps = STRATEGY.sample(state, np.eye(d))[0::2] - state.mean  # row i: the step of unit vector i
    assert_allclose(steps.T @ steps, STRATEGY.covariance(state), rtol=1e-10, atol=1e-12)
    mirrored = STRATEGY.sample(state, np.eye(d))[1::2] - state.mean
    assert_allclose(mirrored, -steps, rtol=1e-10, atol=1e-12)
    deviations = state.sigma * STRATEGY.shape(state).axis_lengths
    assert_allclose(deviations**2, np.diag(STRATEGY.covariance(state)), rtol=1e-12)


def test_float32_stays_float32() -> None:
    rng = np.random.default_rng(10)
    state, double = start(50, dtype=np.float32), start(50)
    for _ in range(30):
        z = rng.standard_normal((5, 50))
        x = STRATEGY.sample(state, z.astype(np.float32))
        assert x.dtype == np.float32
        f = failing_ellipsoid(STRATEGY.sample(double, z))
        state, double = (
            after_update(STRATEGY, state, z.astype(np.float32), f),
            after_update(STRATEGY, double, z, f),
        )
        assert {leaf.dtype for leaf in state} == {np.dtype(np.float32)}
    for found, wanted in zip(state, double, strict=True):
        assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_constants_in_low_and_high_dimension() -> None:
    assert not constants(5, 8).c_1.any() and constants(6, 8).c_1[-1] > 0
    for d in (1, 10**8):
        k = constants(d, 60)
        assert np.isfinite(k.alphas).all() and (k.eta_B > 0).all() and (k.eta_sigma > 0).all()


# Memory


def test_memory() -> None:
    """Beside z and the points there are a few vectors, and nothing with λ rows."""
    d, n = 10**6, 8
    state = start(d)
    z = np.random.default_rng(11).standard_normal((n, d))
    vector = z.nbytes // n
    tracemalloc.start()
    try:
        x = STRATEGY.sample(state, z)
        assert tracemalloc.get_traced_memory()[1] < x.nbytes + 2 * vector
        f = x[:, 0].copy()
        del x
        tracemalloc.reset_peak()
        after_update(STRATEGY, state, z, f)
        assert tracemalloc.get_traced_memory()[1] < 10 * vector < 3 * z.nbytes
    finally:
        tracemalloc.stop()


# The front doors


def test_minimize() -> None:
    problem = problems.get("ic-sphere", d=20)
    result = fmnes.minimize(
        problem.fun,
        problem.x0,
        problem.sigma0,
        method="cr-fm-nes",
        target=1e-10,
        rng=1,
        max_evaluations=50_000,
    )
    assert result.success and result.fun <= 1e-10 and result.n_infeasible > 0
    again = fmnes.minimize(
        problem.fun, problem.x0, problem.sigma0, method=CRFMNES(), target=1e-10, rng=1, max_evaluations=50_000
    )
    assert again.nfev == result.nfev and again.fun == result.fun
