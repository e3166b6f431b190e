"""`run`: a whole run in one compiled loop, counted and stopped as `fmnes.minimize` would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import fmnes  # noqa: E402
from fmnes.integrations import jax as fj  # noqa: E402
from fmnes.strategies import METHODS  # noqa: E402

KEY = jax.random.key(0)
StopReason = fmnes.StopReason


def sphere(x: Any) -> Any:
    return (x * x).sum(-1)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_reaches_the_target(method: str) -> None:
    result = fj.run(
        sphere, jnp.full(5, 3.0), 1.0, key=KEY, method=method, target=1e-9, max_evaluations=30_000
    )
    assert fj.stop_reason(result.stop_reason) is StopReason.TARGET
    assert float(result.fun) <= 1e-9
    assert float(sphere(result.x)) == pytest.approx(float(result.fun), rel=1e-12)
    assert result.x.shape == result.x_mean.shape == (5,) and result.nfev.shape == ()
    assert int(result.n_infeasible) == 0


def test_a_problem_of_the_paper() -> None:
    """With the default method, whose λ grows where points fail. tests/jax/test_batch.py has others."""
    problem = fmnes.problems.get("rotated-ic-rosenbrock", d=5)
    result = fj.run(
        problem.fun,
        problem.x0,
        problem.sigma0,
        key=KEY,
        population_size=10,
        target=1e-10,
        max_evaluations=50_000,
    )
    assert fj.stop_reason(result.stop_reason) is StopReason.TARGET
    assert int(result.n_infeasible) > 0
    assert bool(problem.is_feasible(np.asarray(result.x)))
    assert_allclose(result.x, problem.optimum, atol=1e-3)


def test_evaluations_are_counted_in_order_up_to_the_first_hit() -> None:
    """Played again by hand, generation by generation."""
    d, lam, target = 3, 6, 0.3
    fun = jax.jit(lambda x: jnp.where(x[0] > -0.5, sphere(x), jnp.nan))
    for seed in range(5):
        key = jax.random.key(seed)
        result = fj.run(
            fun,
            jnp.ones(d),
            1.0,
            key=key,
            method="xnes",
            population_size=lam,
            target=target,
            max_evaluations=600,
        )
        state = fj.init(key, jnp.ones(d), 1.0, method="xnes", population_size=lam)
        tell = jax.jit(fj.tell)
        nfev = failed = g = 0
        best = np.inf
        while best > target:
            x, z = fj.ask(jax.random.fold_in(key, g), state)
            f = jax.vmap(fun)(x)
            for value in np.asarray(f):
                nfev += 1
                failed += not np.isfinite(value)
                best = min(best, value) if np.isfinite(value) else best
                if best <= target:
                    break
            if nfev % lam == 0:
                state = tell(state, z, f)
                g += 1
        assert (int(result.nfev), int(result.n_infeasible), int(result.nit)) == (nfev, failed, g)
        assert_allclose(float(result.fun), best, rtol=1e-12)
        assert_allclose(result.x_mean, state.mean, rtol=1e-12)


def test_a_budget_is_kept_to_the_evaluation() -> None:
    values = []
    for budget in (1, 4, 10, 17):
        result = fj.run(
            sphere, jnp.full(5, 3.0), 1.0, key=KEY, method="cma-es", population_size=8, max_evaluations=budget
        )
        assert int(result.nfev) == budget
        assert fj.stop_reason(result.stop_reason) is StopReason.MAX_EVALUATIONS
        values.append(float(result.fun))
    assert values == sorted(values, reverse=True)  # a prefix of the same run each time


def shifted(x: Any) -> Any:
    return 1e6 + sphere(x)


def plane(x: Any) -> Any:
    return x.sum()


def plateau(x: Any) -> Any:
    return 0.0 * x.sum()


def nowhere(x: Any) -> Any:
    return jnp.nan * x.sum()


def needle(x: Any) -> Any:
    return x[0] ** 2 + 1e18 * x[1] ** 2


ENDINGS = {
    "xtol": (sphere, StopReason.XTOL, {"xtol": 1e-5, "ftol": None}),
    "resolution": (lambda x: sphere(x - 100.0), StopReason.XTOL, {"xtol": None, "ftol": None}),
    "ftol": (shifted, StopReason.FTOL, {"xtol": None}),
    "flat": (plateau, StopReason.FLAT, {"xtol": None, "ftol": None}),
    "no-feasible": (nowhere, StopReason.NO_FEASIBLE, {}),
    "overflow": (plane, StopReason.SIGMA_OVERFLOW, {}),
    "underflow": (sphere, StopReason.SIGMA_UNDERFLOW, {"xtol": None, "ftol": None}),
    "ill-conditioned": (needle, StopReason.ILL_CONDITIONED, {"xtol": None, "ftol": None}),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_each_ending_is_that_of_minimize(ending: str) -> None:
    fun, reason, options = ENDINGS[ending]
    options = {"method": "cma-es", "population_size": 8, "max_evaluations": 100_000, **options}
    result = fj.run(fun, jnp.full(2, 3.0), 1.0, key=KEY, **options)
    assert fj.stop_reason(result.stop_reason) is reason
    value = jax.jit(fun)
    by_numpy = fmnes.minimize(lambda x: float(value(x)), np.full(2, 3.0), 1.0, rng=1, **options)
    assert by_numpy.stop_reason is reason
    assert 0.5 < int(result.nfev) / by_numpy.nfev < 2
    if reason is StopReason.NO_FEASIBLE:
        assert np.isnan(result.x).all() and float(result.fun) == np.inf


def test_a_non_finite_state_ends_the_run() -> None:
    """The mean goes where no number is."""
    result = fj.run(
        lambda x: jnp.arctan(x[0] / 1e308), jnp.ones(2), 1e308, key=KEY, method="xnes", max_evaluations=1000
    )
    assert fj.stop_reason(result.stop_reason) is StopReason.NUMERICAL
    assert int(result.nit) > 1 and np.isfinite(result.x_mean).all()


def test_the_same_call_is_compiled_once() -> None:
    traces = 0

    def fun(x: Any) -> Any:
        nonlocal traces
        traces += 1
        return sphere(x)

    def go(seed: int, **changes: Any) -> Any:
        options: dict[str, Any] = {"method": "cma-es", "target": 1e-3, "max_evaluations": 500, **changes}
        return fj.run(fun, jnp.full(3, 1.0 + seed), 1.0 + seed, key=jax.random.key(seed), **options)

    first = go(0)
    once = traces
    go(1), go(2, target=1e-6), go(3, target=None), go(4, max_evaluations=50), go(5, xtol=1e-3, ftol=None)
    go(6, method=fmnes.CMAES())
    assert traces == once
    assert_array_equal(go(0).x, first.x)
    go(7, population_size=12)
    assert traces > once


def test_an_initial_shape_is_part_of_what_is_compiled() -> None:
    found = []
    shape = np.eye(2)
    for scale in (1.0, 100.0):
        shape[1, 1] = scale  # the same array, with other numbers in it
        method = fmnes.XNES(B0=shape)
        found.append(fj.run(sphere, jnp.ones(2), 1.0, key=KEY, method=method, max_evaluations=6).x)
    assert not np.allclose(found[0], found[1])


def test_draws_may_be_evaluated_in_groups() -> None:
    options: dict[str, Any] = {
        "key": KEY,
        "method": "dx-nes-ic",
        "population_size": 8,
        "max_evaluations": 200,
    }
    whole, grouped = (
        fj.run(sphere, jnp.full(4, 2.0), 1.0, draws_at_once=chunk, **options) for chunk in (None, 2)
    )
    assert_allclose(grouped.x, whole.x, rtol=1e-9)
    assert_allclose(grouped.x_mean, whole.x_mean, rtol=1e-9)
    assert float(sphere(grouped.x)) == pytest.approx(float(grouped.fun), rel=1e-12)


def test_float32_runs_in_float32() -> None:
    result = fj.run(
        sphere,
        jnp.full(4, 2.0, jnp.float32),
        1.0,
        key=KEY,
        method="dx-nes-ic",
        target=1e-3,
        max_evaluations=2000,
    )
    assert result.x.dtype == result.fun.dtype == result.x_mean.dtype == jnp.float32
    assert fj.stop_reason(result.stop_reason) is StopReason.TARGET


def test_products_in_the_objective_keep_the_users_precision() -> None:
    seen = []

    def fun(x: Any) -> Any:
        seen.append(jax.config.jax_default_matmul_precision)
        return x @ x

    with jax.default_matmul_precision("bfloat16"):
        fj.run(fun, jnp.ones(2, jnp.float32), 1.0, key=KEY, method="xnes", max_evaluations=6)
    assert set(seen) == {"bfloat16"}
