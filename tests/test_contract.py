"""One table of all strategies against the promises that each of them makes.

The strategies are driven by hand with draws made here, so a promise is checked on the pure functions
themselves; `Resampling` lives in the optimizer and is driven through it. Formulas that a test needs are
written out again, from the paper's side, and never taken from the code under test.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from fmnes import CMAES, FMNES, XNES, ArgumentError, Bounds, Optimizer, Resampling, StopReason
from fmnes.backends import NUMPY
from fmnes.steps.adaptation import population_growth
from fmnes.steps.sampling import distance_weights, rank_weights
from fmnes.strategies import METHODS as NAMES
from fmnes.strategies.base import stays_finite
from tests.rows import through
from tests.updates import after_update
from tests.variants import FM_NES, ONE_OF_EACH, RESAMPLED, STRATEGIES, VARIANTS, WITHOUT_PAIRS


def default_size(d: int) -> int:
    size = 4 + math.floor(3 * math.log(d))
    return size + size % 2


#: The default λ, and where it is too small for that, one whose draws span the whole space even when they come
#: in mirrored pairs; and one dimension in which the ridge test is an estimate.
SIZES = [(d, default_size(d)) for d in (1, 2, 5)] + [(5, 24), (30, 14)]


def table(strategies: dict[str, Any], sizes: list[tuple[int, int]] = SIZES) -> Any:
    """One test for each strategy, which goes through all sizes."""

    def decorate(test: Callable[..., None]) -> Any:
        parametrized = pytest.mark.parametrize("strategy", strategies.values(), ids=strategies)
        return parametrized(through(("d", "lam"), sizes)(test))

    return decorate


# -- driving a strategy by hand ---------------------------------------------------------------------------


def valley(x: np.ndarray) -> np.ndarray:
    """Values from 1 to about 10 with the optimum at 0.3, ill-conditioned (1000), nowhere failing. (n, d)"""
    scale = 1000 ** (np.arange(x.shape[1]) / max(1, x.shape[1] - 1))
    return 1 + np.log1p((scale * (x - 0.3) ** 2).sum(axis=1))


def cut_valley(x: np.ndarray) -> np.ndarray:
    """The same, failing beyond a border that lies before the optimum. (n, d)"""
    return np.where(x[:, 0] < 0.8, np.nan, valley(x))


def draw(strategy: Any, rng: np.random.Generator, d: int, lam: int) -> np.ndarray:
    return rng.standard_normal((lam // 2 if strategy.mirrored else lam, d))


def drive(
    strategy: Any,
    d: int,
    lam: int,
    fun: Callable[[np.ndarray], np.ndarray],
    *,
    x0: Any = 2.0,
    sigma0: float = 1.0,
    generations: int = 24,
) -> list[Any]:
    """The states of a run, the first one included."""
    rng = np.random.default_rng(1)
    state = strategy.init(np.full(d, x0, dtype=float), np.float64(sigma0), rng.standard_normal(d))
    states = [state]
    for _ in range(generations):
        z = draw(strategy, rng, d, lam)
        state = after_update(strategy, state, z, fun(strategy.sample(state, z)))
        states.append(state)
    return states


def drive_optimizer(
    method: Any,
    d: int,
    lam: int,
    fun: Callable[[np.ndarray], np.ndarray],
    **settings: Any,
) -> list[Any]:
    """The strategy's states after each `tell`; x0 and sigma0 as above unless given."""
    start = np.full(d, settings.pop("x0", 2.0), dtype=float)
    opt = Optimizer(start, settings.pop("sigma0", 1.0), method=method, population_size=lam, rng=1, **settings)
    states = [opt._distribution.state]
    for _ in range(40):
        opt.tell(fun(opt.ask()))
        states.append(opt._distribution.state)
    assert opt.generation > 1
    return states


def leaves(state: Any) -> Iterator[tuple[str, np.ndarray]]:
    for name, leaf in state._asdict().items():
        if leaf is not None:
            yield name, np.asarray(leaf)


def as_bytes(state: Any) -> dict[str, bytes]:
    return {name: leaf.tobytes() for name, leaf in leaves(state)}


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    """Bit for bit, in every generation."""
    assert len(found) == len(wanted)
    for g, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert as_bytes(a) == as_bytes(b), f"generation {g}"


def assert_finite(state: Any) -> None:
    for name, leaf in leaves(state):
        assert np.isfinite(leaf).all(), name
    assert state.sigma > 0


def moved_on(states: list[Any]) -> bool:
    return not np.array_equal(states[0].mean, states[-1].mean)


def test_every_method_is_in_the_table() -> None:
    known = [variant.method for variant in VARIANTS.values()]
    for name, make in NAMES.items():
        assert make() in known, f"{name} has no row in tests/variants.py"


@table(STRATEGIES)
def test_the_test_problem_fails_for_part_of_the_points_but_not_at_once(
    strategy: Any, d: int, lam: int
) -> None:
    shares: list[float] = []

    def watched(x: np.ndarray) -> np.ndarray:
        f = cut_valley(x)
        shares.append(float(np.isfinite(f).mean()))
        return f

    drive(strategy, d, lam, watched)
    assert 0.2 < np.mean(shares) < 1
    assert any(0 < share < 1 for share in shares)


# -- invariance -------------------------------------------------------------------------------------------


def by_rank(f: np.ndarray) -> np.ndarray:
    """The place of each value among the feasible ones, counted literally; failed ones stay."""
    order = sorted((i for i in range(len(f)) if math.isfinite(f[i])), key=lambda i: (f[i], i))
    g = f.copy()
    for place, i in enumerate(order):
        g[i] = place
    return g


MONOTONE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cube × 1e-300": lambda f: f**3 * 1e-300,
    "exp": np.exp,
    "× 1e300": lambda f: f * 1e300,
    "× -1e-300, inverted": lambda f: -1e-300 / f,
    "rank": by_rank,
}


@table(STRATEGIES)
def test_only_the_order_of_the_values_matters(strategy: Any, d: int, lam: int) -> None:
    plain = drive(strategy, d, lam, cut_valley)
    assert moved_on(plain)
    for change in MONOTONE.values():
        assert_same(drive(strategy, d, lam, lambda x, c=change: c(cut_valley(x))), plain)


@table(RESAMPLED)
def test_only_the_order_of_the_values_matters_with_resampling(strategy: Any, d: int, lam: int) -> None:
    plain = drive_optimizer(strategy, d, lam, cut_valley)
    for name, change in MONOTONE.items():
        if name == "rank":  # among the points of one `tell`, which are only a part of the generation
            continue
        assert_same(drive_optimizer(strategy, d, lam, lambda x, c=change: c(cut_valley(x))), plain)


@table(STRATEGIES)
def test_translation_of_the_problem_translates_the_run(strategy: Any, d: int, lam: int) -> None:
    shift = np.linspace(-3.3, 4.1, d)
    plain = drive(strategy, d, lam, cut_valley)
    shifted = drive(strategy, d, lam, lambda x: cut_valley(x - shift), x0=2.0 + shift)
    for a, b in zip(plain, shifted, strict=True):
        np.testing.assert_allclose(b.mean - shift, a.mean, rtol=0, atol=1e-9)
        np.testing.assert_allclose(b.sigma, a.sigma, rtol=1e-9)


@table(RESAMPLED)
def test_translation_with_resampling(strategy: Any, d: int, lam: int) -> None:
    shift = np.linspace(-3.3, 4.1, d)
    plain = drive_optimizer(strategy, d, lam, cut_valley)
    shifted = drive_optimizer(strategy, d, lam, lambda x: cut_valley(x - shift), x0=2.0 + shift)
    np.testing.assert_allclose(shifted[-1].mean - shift, plain[-1].mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(shifted[-1].sigma, plain[-1].sigma, rtol=1e-9)


@table(STRATEGIES | RESAMPLED)
def test_scale_of_the_problem_scales_the_run_exactly(strategy: Any, d: int, lam: int) -> None:
    run: Callable[..., list[Any]] = drive_optimizer if isinstance(strategy, Resampling) else drive
    plain = run(strategy, d, lam, cut_valley)
    for k in (2.0**-200, 2.0**300):
        scaled = run(strategy, d, lam, lambda x, k=k: cut_valley(x / k), x0=2.0 * k, sigma0=k)
        assert_same([s._replace(mean=s.mean / k, sigma=s.sigma / k) for s in scaled], plain)


def random_rotation(rng: np.random.Generator, d: int) -> np.ndarray:
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    return q * np.sign(np.diag(r)) if d > 1 else -np.eye(1)


@table({name: v.method for name, v in VARIANTS.items() if not v.resamples and not v.not_rotated})
def test_rotation_of_the_problem_rotates_the_run(strategy: Any, d: int, lam: int) -> None:
    rng = np.random.default_rng(5)
    R = random_rotation(rng, d)
    turned = strategy
    if not isinstance(strategy, CMAES):
        # The expansion step looks at axes, which are only determined where all lengths differ.
        B0 = random_rotation(rng, d) @ np.diag(np.geomspace(0.5, 2, d)) @ random_rotation(rng, d)
        strategy = dataclasses.replace(strategy, B0=B0)
        turned = dataclasses.replace(strategy, B0=R @ B0 @ R.T)
    x0 = np.full(d, 2.0)
    a = strategy.init(x0, np.float64(1), np.zeros(d))
    b = turned.init(R @ x0, np.float64(1), np.zeros(d))
    for _ in range(30):
        z = draw(strategy, rng, d, lam)
        # The draws that give the same points, turned. CMA-ES applies them in its own eigenvectors.
        turned_z = z @ R.T
        if isinstance(strategy, CMAES):
            turned_z = ((z * a.D) @ a.B.T @ R.T) @ b.B / b.D
        x, turned_x = strategy.sample(a, z), turned.sample(b, turned_z)
        np.testing.assert_allclose(turned_x, x @ R.T, rtol=0, atol=1e-8)
        a = after_update(strategy, a, z, cut_valley(x))
        b = after_update(turned, b, turned_z, cut_valley(turned_x @ R))
        np.testing.assert_allclose(b.mean, R @ a.mean, rtol=0, atol=1e-8)
        np.testing.assert_allclose(b.sigma, a.sigma, rtol=1e-8)
        covariance = strategy.covariance(a)
        atol = 1e-8 * np.abs(covariance).max()
        np.testing.assert_allclose(turned.covariance(b), R @ covariance @ R.T, rtol=0, atol=atol)


@table({name: v.method for name, v in VARIANTS.items() if v.not_rotated}, [(5, 24)])
def test_what_is_marked_as_not_rotated_is_not(strategy: Any, d: int, lam: int) -> None:
    """On a function of the distance alone, so that only the method can tell one direction from another."""

    def distances(R: np.ndarray) -> float:
        rng = np.random.default_rng(5)
        state = strategy.init(R @ np.full(d, 2.0), np.float64(1), R @ rng.standard_normal(d))
        for _ in range(30):
            z = draw(strategy, rng, d, lam) @ R.T
            state = after_update(strategy, state, z, (strategy.sample(state, z) ** 2).sum(axis=1))
        return float(np.linalg.norm(state.mean))

    turned = random_rotation(np.random.default_rng(6), d)
    assert abs(distances(turned) / distances(np.eye(d)) - 1) > 1e-3


@table(STRATEGIES)
def test_the_order_of_the_draws_does_not_matter(strategy: Any, d: int, lam: int) -> None:
    """Permuted with their values they make the same update but for rounding, which is 1e-11 of it at most.

    Failed points stand in the order of sampling where there are no pairs, so there all are feasible. Where
    there are, whole pairs change places, and the two of a pair as well unless both have failed and tie.
    """
    rng = np.random.default_rng(11)
    fun = cut_valley if strategy.mirrored else valley
    for state in drive(strategy, d, lam, fun, generations=24)[::6]:
        z = draw(strategy, rng, d, lam)
        f = fun(strategy.sample(state, z))
        order = rng.permutation(len(z))
        other_z, other_f = z[order], f.reshape(len(z), -1)[order]
        if strategy.mirrored:
            swapped = (rng.random(len(z)) < 0.5) & np.isfinite(other_f).any(axis=1)
            other_z = np.where(swapped[:, None], -other_z, other_z)
            other_f = np.where(swapped[:, None], other_f[:, ::-1], other_f)
        x, other_x = strategy.sample(state, z), strategy.sample(state, other_z)
        rounding = 1e-12 * np.abs(x).max()  # a coordinate near 0 is a sum of larger ones
        np.testing.assert_allclose(np.sort(other_x, axis=0), np.sort(x, axis=0), rtol=0, atol=rounding)
        one, other = (after_update(strategy, state, *told) for told in ((z, f), (other_z, other_f.ravel())))
        assert not np.array_equal(one.mean, state.mean)
        sigma = float(one.sigma)
        np.testing.assert_allclose(other.mean, one.mean, rtol=1e-14, atol=1e-11 * sigma)
        np.testing.assert_allclose(other.sigma, one.sigma, rtol=1e-11)
        C = strategy.covariance(one)
        np.testing.assert_allclose(strategy.covariance(other), C, rtol=0, atol=1e-11 * np.abs(C).max())


# -- random values ----------------------------------------------------------------------------------------

#: Enough for a bias of a seventh of what one generation changes to be seen.
SAMPLES = 600


def random_values(strategy: Any, path: Any) -> tuple[np.ndarray, np.ndarray, set[str]]:
    """Change of ln σ and of the mean (in steps of each coordinate) of many first generations; the phases.

    path: makes the p_σ that each begins with from a generator and d. In so many dimensions one generation
    cannot make the search move.
    """
    d, lam = 24, 12
    rng = np.random.default_rng(13)
    state = drive(strategy, d, lam, valley, generations=20)[-1]
    deviations = np.sqrt(np.diag(strategy.covariance(state)))
    growth, steps, phases = [], [], set()
    for _ in range(SAMPLES):
        if "p_sigma" in state._fields:
            state = state._replace(p_sigma=path(rng, d))
        following = after_update(strategy, state, draw(strategy, rng, d, lam), rng.random(lam))
        growth.append(math.log(following.sigma / state.sigma))
        steps.append((following.mean - state.mean) / deviations)
        phases.add(strategy.shape(following).phase)
    return np.array(growth), np.array(steps), phases


def standard_errors(samples: np.ndarray) -> Any:
    """The mean, in standard errors of it."""
    return samples.mean(axis=0) / (samples.std(axis=0, ddof=1) / math.sqrt(len(samples)))


def assert_mean_unbiased(steps: np.ndarray) -> None:
    d = steps.shape[1]
    found = standard_errors(steps)
    assert np.abs(found).max() < 5  # any coordinate
    assert abs((found**2).sum() - d) < 5 * math.sqrt(2 * d) + 10  # all together; they are correlated


def still(rng: np.random.Generator, d: int) -> np.ndarray:
    return np.zeros(d)


def stationary(rng: np.random.Generator, d: int) -> np.ndarray:
    return rng.standard_normal(d)


@pytest.mark.parametrize("name", STRATEGIES)
def test_random_values_change_neither_the_mean_nor_the_step_size(name: str) -> None:
    """In expectation, within 4 standard errors. See `Variant.grows` for what it needs to hold."""
    variant = VARIANTS[name]
    # CMA-ES compares the length of p_σ with that of N(0, I), which it is in the long run of random values.
    growth, steps, phases = random_values(variant.method, still if variant.grows else stationary)
    assert_mean_unbiased(steps)
    assert abs(standard_errors(growth)) < 4
    assert "movement" not in phases


@pytest.mark.parametrize("name", [name for name in ("public alpha", *ONE_OF_EACH) if VARIANTS[name].grows])
def test_what_is_marked_as_growing_grows_while_it_moves_and_its_mean_stays(name: str) -> None:
    growth, steps, phases = random_values(VARIANTS[name].method, lambda rng, d: 3 * stationary(rng, d))
    assert phases == {"movement"}
    assert_mean_unbiased(steps)
    assert standard_errors(growth) > 10


# -- failed evaluations -----------------------------------------------------------------------------------


@table(STRATEGIES)
def test_every_kind_of_failed_value_is_the_same(strategy: Any, d: int, lam: int) -> None:
    kinds = np.array([np.nan, np.inf, -np.inf, -np.nan])

    def mixed(x: np.ndarray) -> np.ndarray:
        f = cut_valley(x)
        return np.where(np.isfinite(f), f, kinds[np.arange(len(f)) % len(kinds)])

    assert_same(drive(strategy, d, lam, mixed), drive(strategy, d, lam, cut_valley))


@table(FM_NES)
def test_with_mirrored_pairs_a_failed_generation_shrinks_the_step_and_keeps_the_shape(
    strategy: Any, d: int, lam: int
) -> None:
    never = dataclasses.replace(strategy, rank_one="never")  # the one part that still changes the shape
    states = drive(never, d, lam, lambda x: np.full(len(x), np.nan), generations=60)
    sigmas = [state.sigma for state in states]
    # Ranked by distance, the shortest step first: so every generation shrinks.
    assert (np.diff(np.log(sigmas)) < 0).all()
    for state in states:
        np.testing.assert_allclose(
            never.covariance(state), state.sigma**2 * np.eye(d), rtol=1e-12, atol=1e-12 * state.sigma**2
        )
    for state in drive(strategy, d, lam, lambda x: np.full(len(x), np.nan), generations=60):
        assert_finite(state)


@table(WITHOUT_PAIRS)
def test_without_pairs_failed_points_stand_in_the_order_of_sampling(strategy: Any, d: int, lam: int) -> None:
    failed = drive(strategy, d, lam, lambda x: np.full(len(x), np.nan), generations=60)
    in_order = drive(strategy, d, lam, lambda x: np.arange(len(x), dtype=float), generations=60)
    assert_same(failed, in_order)
    assert_finite(failed[-1])


@table(STRATEGIES)
def test_ties_stand_in_the_order_of_sampling(strategy: Any, d: int, lam: int) -> None:
    equal = drive(strategy, d, lam, lambda x: np.full(len(x), 3.5))
    in_order = drive(strategy, d, lam, lambda x: np.arange(len(x), dtype=float))
    assert_same(equal, in_order)
    # Few different values and some failures: as if each feasible value had its place for a value.
    rough = lambda x: np.round(cut_valley(x))  # noqa: E731
    assert_same(drive(strategy, d, lam, rough), drive(strategy, d, lam, lambda x: by_rank(rough(x))))


#: One of each kind of update.
ONE_RULE = {name: STRATEGIES[name] for name in ("fm-nes", "xnes", "cma-es 2016", "cr-fm-nes")}


@through("lam", [4, 6, 8, 12, 16, 40, 100])
@through("strategy", ONE_RULE.values())
def test_ranking_is_the_literal_lexicographic_sort(strategy: Any, lam: int) -> None:
    """On generations full of ties, failures and equal distances; read off from the step that is made."""
    rng = np.random.default_rng(lam)
    d = 3
    state = strategy.init(np.zeros(d), np.float64(1.0), np.zeros(d))
    lengths = np.abs(rng.standard_normal((5, d)))
    for _ in range(60):
        draws = lam // 2 if strategy.mirrored else lam
        z = lengths[rng.integers(0, 5, draws)] * rng.choice([-1.0, 1.0], (draws, d))  # norms tie exactly
        f = rng.integers(0, rng.integers(2, lam + 2), lam).astype(float)
        f[rng.random(lam) < rng.random()] = rng.choice([np.nan, np.inf, -np.inf])
        points = strategy.sample(state, z)
        failed = [not math.isfinite(v) for v in f]

        distance = [z[i // 2] @ z[i // 2] if strategy.mirrored else 0.0 for i in range(lam)]
        keys = [(failed[i], distance[i] if failed[i] else f[i], i) for i in range(lam)]
        best_first = points[[i for *_, i in sorted(keys)]]
        following = after_update(strategy, state, z, f)
        if isinstance(strategy, CMAES):
            raw = np.array([max(0.0, math.log((lam + 1) / 2) - math.log(i + 1)) for i in range(lam)])
            found, wanted = following.mean, raw / raw.sum() @ best_first
        elif isinstance(strategy, XNES):
            found, wanted = following.mean, literal_rank_weights(lam)[1] @ best_first
        else:
            found, wanted = following.p_sigma, Literal(strategy, z, f).p_sigma(np.zeros(d))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


# -- purity -----------------------------------------------------------------------------------------------


def frozen(array: Any) -> np.ndarray:
    array = np.array(array)
    array.flags.writeable = False
    return array


def frozen_state(state: Any) -> Any:
    return type(state)(*(None if leaf is None else frozen(leaf)[()] for leaf in state))


@table(STRATEGIES)
def test_one_bad_entry_anywhere_in_a_state_is_seen(strategy: Any, d: int, lam: int) -> None:
    state, following = drive(strategy, d, lam, valley, generations=3)[-2:]
    assert stays_finite(following, state) and stays_finite(following, following)
    for name, leaf in following._asdict().items():
        if leaf is None or np.asarray(leaf).dtype.kind != "f":
            continue
        for bad in (np.nan, np.inf, -np.inf, 1e200):
            spoilt = np.array(leaf)
            spoilt[(-1,) * spoilt.ndim] = bad
            with np.errstate(all="ignore"):
                found = stays_finite(following._replace(**{name: spoilt[()]}), state)
            assert found == math.isfinite(bad), name


@table(STRATEGIES)
def test_nothing_is_edited_in_place(strategy: Any, d: int, lam: int) -> None:
    """Read-only arguments work, give the same numbers, and an old state stays as it was."""
    rng = np.random.default_rng(1)
    x0, z0 = np.full(d, 2.0), rng.standard_normal(d)
    state = strategy.init(frozen(x0), np.float64(1.0), frozen(z0))
    kept = []
    for _ in range(24):
        state = frozen_state(state)
        z = frozen(draw(strategy, rng, d, lam))
        x = strategy.sample(state, z)
        f = frozen(cut_valley(x))
        kept.append((state, as_bytes(state)))
        following = after_update(strategy, state, z, f)
        assert as_bytes(after_update(strategy, state, z, f)) == as_bytes(following), (
            "update is not a function"
        )
        for name, leaf in leaves(following):
            assert not np.shares_memory(leaf, z), name
            assert not np.shares_memory(leaf, f), name
        strategy.shape(state)
        strategy.covariance(state)
        state = following
    assert as_bytes(state) == as_bytes(drive(strategy, d, lam, cut_valley)[-1])
    for old, bytes_then in kept:
        assert as_bytes(old) == bytes_then


@table(STRATEGIES, [(d, 0) for d in (1, 2, 5, 13)])
def test_the_population_may_change_between_generations(strategy: Any, d: int, lam: int) -> None:
    rng = np.random.default_rng(2)
    state = strategy.init(np.full(d, 2.0), np.float64(1.0), np.zeros(d))
    shapes = {name: leaf.shape for name, leaf in leaves(state)}
    for lam in [8, 30, 4, 60, 6, 6, 12] * 4:
        z = draw(strategy, rng, d, lam)
        x = strategy.sample(state, z)
        assert x.shape == (lam, d)
        # The constants are those of this generation's λ, whatever came before and whatever the settings say.
        other = dataclasses.replace(strategy, population_size=10)
        following = after_update(strategy, state, z, cut_valley(x))
        assert as_bytes(after_update(other, state, z, cut_valley(x))) == as_bytes(following)
        state = following
        assert {name: leaf.shape for name, leaf in leaves(state)} == shapes
        assert_finite(state)
    assert valley(state.mean[None, :]) < valley(np.full((1, d), 2.0))


@through("lam", [5, 7, 13])
@through("strategy", STRATEGIES.values())
def test_an_odd_population_is_refused_exactly_where_pairs_are_mirrored(strategy: Any, lam: int) -> None:
    if strategy.mirrored:
        with pytest.raises(ArgumentError, match=rf"population_size: found {lam}, wanted an even number"):
            Optimizer([1.0, 2.0], 1.0, method=strategy, population_size=lam)
        with pytest.raises(ArgumentError, match=rf"population_size: found {lam}, wanted an even number"):
            Optimizer([1.0, 2.0], 1.0, method=dataclasses.replace(strategy, population_size=lam))
    else:
        opt = Optimizer([1.0, 2.0], 1.0, method=strategy, population_size=lam, rng=1)
        assert opt.ask().shape == (lam, 2)


# -- weights, paths and shape of the NES family -----------------------------------------------------------


def literal_rank_weights(lam: int, parents_of: int | None = None) -> tuple[np.ndarray, np.ndarray, float]:
    half = (parents_of or lam) / 2
    raw = [max(0.0, math.log(half + 1) - math.log(i)) for i in range(1, lam + 1)]
    share = np.array([w / sum(raw) for w in raw])
    return np.array(raw), share - 1 / lam, float(1 / (share**2).sum())


@through("lam", [2, 4, 6, 8, 16, 18, 40, 400])
def test_weights_sum_to_zero_and_are_the_papers(lam: int) -> None:
    weights = rank_weights(lam)
    raw, centred, mu_eff = literal_rank_weights(lam)
    np.testing.assert_allclose(weights.raw, raw, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(weights.centred, centred, rtol=1e-12, atol=1e-15)
    assert weights.mu_eff == pytest.approx(mu_eff, rel=1e-12)
    assert abs(weights.centred.sum()) < 1e-14
    assert weights.centred[-1] == pytest.approx(-1 / lam)  # not clipped at zero
    rng = np.random.default_rng(lam)
    for alpha in (0.0, 0.5, 3.0, 10.0):
        norms = np.abs(rng.normal(30, 10, lam // 2))
        w = distance_weights(weights, rng.permutation(lam), norms**2, alpha, 30.0, NUMPY)
        assert abs(w.sum()) < 1e-13
        assert w.min() == pytest.approx(-1 / lam)


def test_mu_eff_is_that_of_the_authors_code() -> None:
    assert rank_weights(16).mu_eff == pytest.approx(5.10, abs=0.005)


NORMALISED = {
    name: variant.method
    for name, variant in VARIANTS.items()
    if not variant.resamples and not variant.explodes and not isinstance(variant.method, CMAES)
}


@table(NORMALISED, [(2, 12), (5, 8), (13, 56)])
def test_the_determinant_of_the_shape_stays_one(strategy: Any, d: int, lam: int) -> None:
    # Down a slope, so that axes expand; then a border that lies across it.
    def slope(x: np.ndarray) -> np.ndarray:
        return np.where(x[:, 0] < -1e6, np.nan, x @ np.arange(1, d + 1))

    for fun in (slope, cut_valley):
        checked = 0
        # From the first update on: the random direction that CR-FM-NES starts with is not normalised.
        for state in drive(strategy, d, lam, fun, generations=100)[1::10]:
            shape = strategy.covariance(state) / state.sigma**2
            condition = np.linalg.cond(shape)
            if condition < 1e10:
                checked += 1
                assert abs(np.linalg.slogdet(shape)[1]) < 1e-8 + 1e-14 * condition
        assert checked >= 2


@cache
def literal_h_inverse(d: int) -> float:
    low, high = 0.0, 10.0
    for _ in range(200):
        a = (low + high) / 2
        low, high = (low, a) if (1 + a * a) * math.exp(a * a / 2) / 0.24 > 10 + d else (a, high)
    return low


def test_h_inverse_is_the_one_of_the_constants() -> None:
    assert literal_h_inverse(40) == pytest.approx(1.573944, abs=1e-6)
    assert literal_h_inverse(1000) == pytest.approx(2.618796, abs=1e-6)


class Literal:
    """What one generation of the FM-NES family does to the paths and the mean, from its definitions."""

    def __init__(self, strategy: Any, z: np.ndarray, f: np.ndarray) -> None:
        n, d = z.shape
        lam = 2 * n
        points = [sign * row for row in z for sign in (1.0, -1.0)]
        failed = [not math.isfinite(v) for v in f]
        order = sorted(
            range(lam), key=lambda i: (failed[i], float(z[i // 2] @ z[i // 2]) if failed[i] else f[i], i)
        )
        self.z = np.array([points[i] for i in order])  # best first
        self.feasible = lam - sum(failed)
        parents_of = lam
        if getattr(strategy, "selection", "published") == "successes" and 2 <= self.feasible < lam:
            parents_of = min(max(self.feasible, d), lam)
        self.raw, self.rank, mu_eff = literal_rank_weights(lam, parents_of)
        self.expected = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))
        self.c_sigma = (mu_eff + 2) / (d + mu_eff + 5)
        # CR-FM-NES has the printed rate, and α with λ.
        self.reach = self.feasible if getattr(strategy, "alpha", "public") == "tables" else lam
        if getattr(strategy, "path_rate", "printed") == "tables":
            self.c_sigma /= math.sqrt(d)
        self.c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)
        self.mu_eff, self.d, self.lam = mu_eff, d, lam

    def p_sigma(self, old: np.ndarray) -> np.ndarray:
        c = self.c_sigma
        return (1 - c) * old + math.sqrt(c * (2 - c) * self.mu_eff) * (self.rank @ self.z)

    def p_c(self, old: np.ndarray, step: np.ndarray) -> np.ndarray:
        return (1 - self.c_c) * old + math.sqrt(self.c_c * (2 - self.c_c) * self.mu_eff) * step

    def weights(self, p_sigma: np.ndarray) -> np.ndarray:
        if np.linalg.norm(p_sigma) < self.expected:
            return self.rank
        alpha = (
            literal_h_inverse(self.d)
            * min(1, math.sqrt(self.reach / self.d))
            * math.sqrt(self.feasible / self.lam)
        )
        hat = self.raw * np.exp(alpha * np.linalg.norm(self.z, axis=1))
        return hat / hat.sum() - 1 / self.lam


@table(FM_NES)
def test_paths_and_mean_follow_their_definitions_in_every_generation(strategy: Any, d: int, lam: int) -> None:
    """p_σ with rank weights in every phase; p_c also while the rank-one update is off; one reset only."""
    rng = np.random.default_rng(3)
    state = strategy.init(np.full(d, 2.0), np.float64(1.0), np.zeros(d))
    met_failure, resets, phases = False, 0, set()
    for _ in range(60):
        z = draw(strategy, rng, d, lam)
        f = cut_valley(strategy.sample(state, z))
        literal = Literal(strategy, z, f)
        p_sigma, p_c, B = state.p_sigma, state.F @ state.p_c, state.F @ state.A
        if not np.isfinite(f).all() and not met_failure:
            met_failure = True
            if strategy.reset:
                resets += 1
                p_sigma, p_c, B = np.zeros(d), np.zeros(d), np.eye(d)
        following = after_update(strategy, state, z, f)
        p_sigma = literal.p_sigma(p_sigma)
        step = B @ (literal.weights(p_sigma) @ literal.z)
        atol = 1e-9 * np.linalg.norm(step) + 1e-14 * np.abs(state.mean).max() / state.sigma
        np.testing.assert_allclose((following.mean - state.mean) / state.sigma, step, rtol=0, atol=atol)
        np.testing.assert_allclose(following.p_sigma, p_sigma, rtol=0, atol=1e-10)
        np.testing.assert_allclose(following.F @ following.p_c, literal.p_c(p_c, step), rtol=0, atol=1e-9)
        assert bool(following.unconstrained) is not met_failure
        state = following
        phases.add(strategy.shape(state).phase)
        norm = np.linalg.norm(state.p_sigma) / literal.expected
        wanted = "movement" if norm >= 1 else "stagnation" if norm >= 0.1 else "convergence"
        assert strategy.shape(state).phase == wanted
    assert met_failure
    assert resets == strategy.reset
    assert len(phases) > 1 or d == 30


@table(FM_NES, [s for s in SIZES if s[0] > 1])
@pytest.mark.parametrize("kind", ["feasible", "part failed", "all failed"])
def test_gamma_is_carried_from_generation_to_generation(strategy: Any, d: int, lam: int, kind: str) -> None:
    """γ ← (1 − c_γ) γ + …, where the rest does not depend on γ; stored in every phase."""
    state = drive(strategy, d, lam, cut_valley, generations=20)[-1]
    rng = np.random.default_rng(4)
    for _ in range(5):
        z = draw(strategy, rng, d, lam)
        f = valley(strategy.sample(state, z))
        f[: {"feasible": 0, "part failed": lam // 2, "all failed": lam}[kind]] = np.nan
        low, high = (
            after_update(strategy, state._replace(gamma=np.float64(g)), z, f).gamma for g in (4.0, 9.0)
        )
        assert high - low == pytest.approx((1 - 1 / (3 * (d - 1))) * 5, rel=1e-10)
        assert low > 1
        state = after_update(strategy, state, z, f)


@table({name: s for name, s in FM_NES.items() if s.rank_one == "never"}, [s for s in SIZES if s[0] > 1])
def test_no_axis_is_expanded_by_rounding_noise(strategy: Any, d: int, lam: int) -> None:
    """With nothing feasible η_B is 0, so no axis grows, however large γ is and however fast the search."""
    state = drive(strategy, d, lam, cut_valley, generations=20)[-1]
    shape = strategy.covariance(state) / state.sigma**2
    state = state._replace(
        gamma=np.float64(3.0), p_sigma=np.full(d, 9.0), unconstrained=np.zeros_like(state.unconstrained)
    )
    rng = np.random.default_rng(12)
    for _ in range(20):
        state = after_update(strategy, state, draw(strategy, rng, d, lam), np.full(lam, np.nan))
        state = state._replace(gamma=np.float64(3.0), p_sigma=np.full(d, 9.0))
        found = strategy.covariance(state) / state.sigma**2
        np.testing.assert_allclose(found, shape, rtol=0, atol=1e-9 * np.abs(shape).max())


@table(FM_NES, [s for s in SIZES if s[0] > 1])
def test_gamma_grows_while_the_search_moves(strategy: Any, d: int, lam: int) -> None:
    states = drive(strategy, d, lam, lambda x: x[:, 0], generations=60)
    assert states[0].gamma == 1
    assert max(state.gamma for state in states) > 1.0005
    assert all(state.gamma >= 1 for state in states)


@table({name: s for name, s in FM_NES.items() if s.step_size == "published"})
def test_the_step_size_follows_its_definition(strategy: Any, d: int, lam: int) -> None:
    """ln σ grows by η_σ/2 · G_σ and, while the search moves, by ln γ/d for each axis that is expanded."""
    rng = np.random.default_rng(8)
    state = strategy.init(np.full(d, 2.0), np.float64(1.0), np.zeros(d))
    expanded = 0
    for generation in range(40):
        z = draw(strategy, rng, d, lam)
        x = strategy.sample(state, z)
        f = x[:, 0] if generation < 20 else cut_valley(x - state.mean + 1.5)  # down a slope, then failures
        literal = Literal(strategy, z, f)
        following = after_update(strategy, state, z, f)
        G_sigma = literal.weights(following.p_sigma) @ ((literal.z**2).sum(axis=1) - d) / d
        norm = np.linalg.norm(following.p_sigma) / literal.expected
        feasible = literal.feasible
        if norm >= 1:
            eta = 1.0
        elif norm >= 0.1:
            eta = math.tanh((0.024 * feasible + 0.7 * d + 20) / (d + 12))
        else:
            eta = 2 * math.tanh((0.025 * feasible + 0.75 * d + 10) / (d + 4))
        extra = math.log(following.sigma / state.sigma) - eta / 2 * G_sigma
        axes = 0
        if norm >= 1 and d > 1:
            axes = round(extra / math.log(following.gamma) * d)
            assert 0 <= axes <= d
            expanded += axes
        assert extra == pytest.approx(axes * math.log(following.gamma) / d, abs=1e-11)
        state = following
    assert (expanded > 0) == (d > 1)


@table(
    {name: FM_NES[name] for name in ("fm-nes", "refresh 1", "no reset (B)")}, [s for s in SIZES if s[0] > 2]
)
def test_after_a_failure_the_rank_one_update_is_made_on_ridges_only(strategy: Any, d: int, lam: int) -> None:
    """The shape is that of Method A where the longest axis is 1.2 times the second, else of DX-NES-IC."""
    rng = np.random.default_rng(10)
    always, never = (dataclasses.replace(strategy, rank_one=choice) for choice in ("always", "never"))
    state = strategy.init(np.full(d, 2.0), np.float64(1.0), np.zeros(d))
    on_ridge = off_ridge = 0
    for _ in range(150):
        z = draw(strategy, rng, d, lam)
        x = strategy.sample(state, z)
        # No ridge at first, later one along the diagonal; one point of each generation fails.
        ridge = ((x - x.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) - x.sum(axis=1) / d
        f = ridge if int(state.generation) > 40 else (x**2).sum(axis=1)
        f[int(state.generation) % lam] = np.nan
        following = after_update(strategy, state, z, f)
        plain = after_update(never, state._replace(A_inverse=None), z, f)
        shape = plain.F @ plain.A
        lengths = np.linalg.svd(shape, compute_uv=False)
        if abs(lengths[0] / lengths[1] - 1.2) > 0.01:
            wanted = shape
            if lengths[0] / lengths[1] > 1.2:
                longer = after_update(always, state, z, f)
                wanted = longer.F @ longer.A
                on_ridge += 1
                assert np.abs(wanted - shape).max() > 1e-6
            else:
                off_ridge += 1
            found = following.F @ following.A
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())
        state = following
    assert on_ridge > 5 and off_ridge > 5


@table(FM_NES)
def test_the_first_failed_evaluation_resets_and_only_the_first(strategy: Any, d: int, lam: int) -> None:
    state = drive(strategy, d, lam, valley, generations=25)[-1]
    rng = np.random.default_rng(6)

    def one_failure(state: Any) -> tuple[np.ndarray, np.ndarray]:
        z = draw(strategy, rng, d, lam)
        f = valley(strategy.sample(state, z))
        f[rng.integers(lam)] = np.nan
        return z, f

    def reset(state: Any) -> Any:
        fresh = strategy.init(state.mean, state.sigma, np.zeros(d))
        return fresh._replace(generation=state.generation, unconstrained=state.unconstrained)

    z, f = one_failure(state)
    following = after_update(strategy, state, z, f)
    if strategy.reset:
        assert as_bytes(following) == as_bytes(after_update(strategy, reset(state), z, f))
    else:
        assert as_bytes(following) != as_bytes(after_update(strategy, reset(state), z, f))
    assert not following.unconstrained
    for _ in range(10):
        z = draw(strategy, rng, d, lam)
        following = after_update(strategy, following, z, valley(strategy.sample(following, z)))
        assert not following.unconstrained
    z, f = one_failure(following)
    again = after_update(strategy, following, z, f)
    assert not np.array_equal(again.p_sigma, after_update(strategy, reset(following), z, f).p_sigma)
    np.testing.assert_allclose(
        again.p_sigma, Literal(strategy, z, f).p_sigma(following.p_sigma), rtol=0, atol=1e-10
    )


@table({name: s for name, s in FM_NES.items() if s.reset}, [s for s in SIZES if s[0] > 1])
def test_the_reset_goes_back_to_the_initial_shape(strategy: Any, d: int, lam: int) -> None:
    rng = np.random.default_rng(7)
    B0 = random_rotation(rng, d) @ np.diag(np.geomspace(0.2, 5, d)) @ random_rotation(rng, d)
    strategy = dataclasses.replace(strategy, B0=B0)
    state = drive(strategy, d, lam, valley, generations=25)[-1]
    z = draw(strategy, rng, d, lam)
    # With nothing feasible η_B is 0; without the rank-one step the shape stays what the reset made it.
    never = dataclasses.replace(strategy, rank_one="never")
    failed = after_update(never, state._replace(A_inverse=None), z, np.full(lam, np.nan))
    shape = never.covariance(failed) / failed.sigma**2
    shape0 = B0 @ B0.T / np.linalg.det(B0 @ B0.T) ** (1 / d)
    np.testing.assert_allclose(shape, shape0, rtol=0, atol=1e-9 * np.abs(shape0).max())


def test_determinants_far_beyond_floating_point_do_not_matter() -> None:
    for scale in (1e-3, 1e3):  # det(B0) is 0 or inf as a float64
        opt = Optimizer(np.ones(150), 2.0, method=FMNES(B0=scale * np.eye(150)), rng=1)
        np.testing.assert_allclose(opt.covariance, 4 * scale**2 * np.eye(150), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_cma_es_with_a_rare_refresh_stays_finite(d: int) -> None:
    opt = Optimizer(np.full(d, 2.0), 1.0, method=CMAES(refresh=7), rng=1)
    for _ in range(60):
        opt.tell(valley(opt.ask()))
        assert (np.linalg.eigvalsh(opt.covariance) > 0).all()
    assert opt.stop_reason in (None, StopReason.FTOL)


# -- points outside the bounds ----------------------------------------------------------------------------


def trajectory(opt: Optimizer, fun: Callable[[np.ndarray], np.ndarray], generations: int) -> dict[int, Any]:
    """State, successful evaluations and best of each generation that has something to evaluate."""
    seen: dict[int, Any] = {}
    while opt.generation < generations and opt.evaluations < 20_000:
        X = opt.ask()
        seen.setdefault(
            opt.generation,
            (as_bytes(opt._distribution.state), opt.evaluations - opt.n_infeasible, opt.best.fun),
        )
        opt.tell(fun(X))
    return seen


@table(STRATEGIES | RESAMPLED)
def test_a_point_outside_the_bounds_is_a_failed_one(strategy: Any, d: int, lam: int) -> None:
    lower, upper = np.full(d, 1.2), np.full(d, 2.9)
    sigma0 = 0.6 / d**0.3
    start = dict(method=strategy, population_size=lam, rng=9)
    bounded = Optimizer(np.full(d, 2.0), sigma0, bounds=Bounds(lower, upper), bounds_as="failure", **start)
    free = Optimizer(np.full(d, 2.0), sigma0, **start)

    def bowl(x: np.ndarray) -> np.ndarray:
        return ((x - 1.7) ** 2).sum(axis=1)

    def inside(x: np.ndarray) -> np.ndarray:
        assert ((x >= lower) & (x <= upper)).all()
        return bowl(x)

    def nan_outside(x: np.ndarray) -> np.ndarray:
        return np.where(((x >= lower) & (x <= upper)).all(axis=1), bowl(x), np.nan)

    found, wanted = trajectory(bounded, inside, 25), trajectory(free, nan_outside, 25)
    common = sorted(found.keys() & wanted.keys())
    assert len(common) > 12
    for g in common:
        assert found[g] == wanted[g], f"generation {g}"
    assert bounded.n_infeasible == 0 < free.n_infeasible


@through(
    ("share", "log_ratio", "growth"),
    [(1, 9, 1), (0.5, 0, 1), (0.5, 1, math.sqrt(2)), (0.5, 2, 2), (0.5, 9, 2), (0.25, 9, 4), (0.05, 9, 4)],
)
def test_the_population_grows_with_failures_as_far_as_the_axes_part(
    share: float, log_ratio: float, growth: float
) -> None:
    found = population_growth(np.float64(share), np.exp(np.float64(log_ratio)), NUMPY)
    assert found == pytest.approx(growth, rel=1e-12)
