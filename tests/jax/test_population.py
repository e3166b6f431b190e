"""Where λ changes: compiled runs beside `fmnes.Optimizer` with the same draws, number for number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import fmnes  # noqa: E402
from fmnes.backends import jax_backend  # noqa: E402
from fmnes.integrations import jax as fj  # noqa: E402
from fmnes.integrations.jax.draws import normal  # noqa: E402
from fmnes.integrations.jax.loop import strongly_typed  # noqa: E402
from tests.updates import after_update  # noqa: E402

KEY = jax.random.key(5)
D = 3
X0 = np.full(D, 5.0)
FIRST = 6
#: Axes that have parted: λ goes with the share of failures from the first one on.
LONG = np.diag([3.0, 1.0, 0.3])


def fun(x: Any) -> Any:
    """Narrow stripes in which points succeed, a third of all."""
    return jnp.where((jnp.floor(20 * x[0]) % 3 == 0) | (x[0] > 2.5), (x * x).sum(), jnp.nan)


def fun_of_all(x: np.ndarray) -> np.ndarray:
    inside = (np.floor(20 * x[:, 0]) % 3 == 0) | (x[:, 0] > 2.5)
    return np.where(inside, (x * x).sum(axis=1), np.nan)


@jax.jit
def group(key: Any, k: Any, g: Any) -> Any:
    """The k-th group of λ₀ points of generation g, as a compiled run draws them."""
    return normal(jax.random.fold_in(jax.random.fold_in(key, k), g), (FIRST // 2, D), jnp.float64)


class Replayed:
    """In place of NumPy's generator."""

    def __init__(self, key: Any) -> None:
        self.key, self.generation = key, -1

    def standard_normal(self, shape: tuple[int, int]) -> np.ndarray:
        self.generation += 1
        groups = [group(self.key, k, self.generation) for k in range(-(-2 * shape[0] // FIRST))]
        return np.concatenate(groups)[: shape[0]]


def by_numpy(
    key: Any, sizes: list[int] | None = None, values: list[float] | None = None, **options: Any
) -> Any:
    opt = fmnes.Optimizer(X0, 1.0, xtol=None, ftol=None, **{"population_size": FIRST, **options})
    opt._distribution.rng = Replayed(key)  # type: ignore[assignment]
    while opt.stop_reason is None:
        x = opt.ask()
        opt.tell(fun_of_all(x))
        if sizes is not None:
            sizes.append(len(x))
        if values is not None:
            values += fun_of_all(x).tolist()
    return opt.result()


def compiled(key: Any, **options: Any) -> Any:
    options = {"population_size": FIRST, "xtol": None, "ftol": None, **options}
    return fj.run(fun, jnp.asarray(X0), 1.0, key=key, **options)


def assert_same(found: Any, wanted: Any) -> None:
    assert fj.stop_reason(found.stop_reason) is wanted.stop_reason
    assert (int(found.nfev), int(found.nit), int(found.n_infeasible)) == (
        wanted.nfev,
        wanted.nit,
        wanted.n_infeasible,
    )
    assert_allclose(found.fun, wanted.fun, rtol=1e-8)
    assert_allclose(found.x_mean, wanted.x_mean, rtol=1e-6)
    assert float(fun(found.x)) == pytest.approx(float(found.fun), rel=1e-12)


def test_a_run_is_that_of_numpy_with_the_same_draws() -> None:
    """Alone and in a batch; with a budget or a target in the middle of a generation that has grown."""
    method = fmnes.AFMNES(refresh=1, B0=LONG)
    keys = jax.random.split(KEY, 3)
    budget = 520
    plans, largest = [], []
    for key in keys:
        sizes: list[int] = []
        values: list[float] = []
        by_numpy(key, sizes, values, method=method, max_evaluations=budget)
        largest.append(max(sizes))
        # The budget ends in the second group of the largest generation; the target is first met behind λ₀.
        ends = np.cumsum(sizes)
        g = sizes.index(max(sizes))
        best = np.fmin.accumulate(values)
        starts = np.repeat(ends - sizes, sizes)
        late = [i for i in range(1, budget) if best[i] < best[i - 1] and i - starts[i] >= FIRST]
        plans.append((int(ends[g]) - sizes[g] + FIRST + 1, float(best[late[-1]] + best[late[-1] - 1]) / 2))
    assert 2 * FIRST < max(largest) <= 4 * FIRST and len(set(largest)) > 1
    targets = jnp.asarray([target for _, target in plans])
    for cut, target in ((plans[0][0], None), (plans[2][0], None), (budget, targets)):
        batch = compiled(KEY, method=method, max_evaluations=cut, target=target, batch=3)
        for i, key in enumerate(keys):
            own = None if target is None else float(targets[i])
            wanted = by_numpy(key, method=method, max_evaluations=cut, target=own)
            assert_same(jax.tree.map(lambda leaf, i=i: leaf[i], batch), wanted)
            if i == 1:
                assert_same(compiled(key, method=method, max_evaluations=cut, target=own), wanted)
            assert own is None or wanted.stop_reason is fmnes.StopReason.TARGET


def test_no_generation_is_larger_than_the_largest() -> None:
    method = fmnes.AFMNES(max_population_size=8, B0=LONG)
    sizes: list[int] = []
    wanted = by_numpy(KEY, sizes, method=method, max_evaluations=300)
    assert max(sizes) == 8
    assert_same(compiled(KEY, method=method, max_evaluations=300), wanted)
    few = compiled(KEY, method="fm-nes", max_evaluations=300)
    assert int(few.nit) == 300 // FIRST > wanted.nit


@pytest.mark.parametrize(
    "settings", [{}, {"alpha": "public", "selection": "published"}, {"step_size": "published"}]
)
def test_an_update_with_room_to_spare_is_the_one_without(settings: dict[str, Any]) -> None:
    """λ from one group to four, room for four; what stands in the room that is not used does not matter."""
    d, first = 5, 8
    strategy = fmnes.AFMNES(refresh=1, B0=np.diag(np.geomspace(0.4, 2.5, d)), **settings)
    backend = jax_backend()
    rng = np.random.default_rng(2)
    wanted = strategy.init(np.full(d, 2.0), np.float64(1.0), np.zeros(d))
    found = strongly_typed(strategy.init(jnp.full(d, 2.0), jnp.asarray(1.0), jnp.zeros(d), backend))
    update = jax.jit(lambda s, z, f, lam: after_update(strategy, s, z, f, backend, lam))
    for lam in (8, 10, 16, 30, 32, 12, 24, 8, 20, 32) * 3:
        z = rng.standard_normal((2 * first, d))
        f = np.resize([np.nan, -1e9, np.inf], 4 * first)
        x = strategy.sample(wanted, z[: lam // 2])
        f[:lam] = np.where(x[:, 0] > 1.0, (x * x).sum(axis=1), np.nan)
        wanted = after_update(strategy, wanted, z[: lam // 2], f[:lam])
        found = update(found, z, f, jnp.asarray(lam))
    assert_allclose(found.mean, wanted.mean, rtol=1e-8)
    assert_allclose(found.sigma, wanted.sigma, rtol=1e-8)
    assert_allclose(found.share, wanted.share, rtol=1e-12)
    assert 0.2 < float(found.share) < 0.9
    assert_allclose(strategy.covariance(found), strategy.covariance(wanted), rtol=1e-6, atol=1e-9)


def test_ask_and_tell_may_follow_the_wanted_size() -> None:
    method = fmnes.AFMNES(population_size=FIRST, max_population_size=8, B0=LONG)
    state = fj.init(KEY, jnp.full(D, 2.0), 1.0, method=method)
    assert int(fj.next_population_size(state)) == FIRST == state.population_size
    tell, wanted = jax.jit(fj.tell), jax.jit(fj.next_population_size)
    sizes = []
    for key in jax.random.split(KEY, 8):
        x, z = fj.ask(key, state, int(wanted(state)))
        sizes.append(len(x))
        state = tell(state, z, jax.vmap(fun)(x))
        assert int(wanted(state)) == method.next_population_size(
            jax.tree.map(np.asarray, state.search), FIRST
        )
    assert set(sizes) == {FIRST, 8}
    # By default it begins where `fmnes.minimize` does.
    began = fmnes.Optimizer(np.ones(40), 1.0, method="afm-nes").population_size
    assert fj.init(KEY, jnp.ones(40), 1.0).population_size == began == 14
    # A method with no word on it keeps the one it began with.
    assert int(fj.next_population_size(fj.init(KEY, jnp.ones(2), 1.0, method="xnes", population_size=8))) == 8


def test_methods_with_one_size_draw_as_they_did() -> None:
    """Means after four generations, from the version before λ could change."""
    for method, mean in BEFORE.items():
        assert_allclose(compiled(KEY, method=method, max_evaluations=4 * FIRST).x_mean, mean, rtol=1e-10)


#: By `compiled` above.
BEFORE = {
    "fm-nes": [5.218315903337167, 3.010312165090681, 0.6362141764604016],
    "xnes": [3.0127385310136274, 3.0087972715291325, 0.46478855294179994],
}
