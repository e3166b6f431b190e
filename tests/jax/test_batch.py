"""Batches: many runs in lockstep are those runs, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import fmnes  # noqa: E402
from fmnes.backends import jax as jax_backends  # noqa: E402
from fmnes.integrations import jax as fj  # noqa: E402
from fmnes.strategies import METHODS  # noqa: E402

KEY = jax.random.key(10)


def sphere(x: Any) -> Any:
    return (x * x).sum(-1)


def half_sphere(x: Any) -> Any:
    return jnp.where(x[0] >= 0.5, sphere(x), jnp.nan)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_its_runs_one_by_one(method: str) -> None:
    """They end at different times, and three of four start out of reach of the failures."""
    starts = jnp.array([[0.7, 1.0, 1.0], [3.0, 3.0, 3.0], [9.0, 0.0, 1.0], [6.0, 5.0, 4.0]])
    sizes = jnp.array([0.5, 1.0, 1.0, 0.3])
    targets = jnp.array([0.45, 0.5, 5.0, 1.0])
    options: dict[str, Any] = {"method": method, "population_size": 8, "max_evaluations": 400}
    batch = fj.run(half_sphere, starts, sizes, key=KEY, batch=4, target=targets, **options)
    for i, key in enumerate(jax.random.split(KEY, 4)):
        one = fj.run(half_sphere, starts[i], sizes[i], key=key, target=targets[i], **options)
        assert int(batch.nfev[i]) == int(one.nfev)
        assert int(batch.nit[i]) == int(one.nit)
        assert int(batch.n_infeasible[i]) == int(one.n_infeasible)
        assert int(batch.stop_reason[i]) == int(one.stop_reason)
        assert_allclose(batch.x[i], one.x, rtol=1e-7)
        assert_allclose(batch.fun[i], one.fun, rtol=1e-7)
        assert_allclose(batch.x_mean[i], one.x_mean, rtol=1e-7)
    assert len(set(batch.nit.tolist())) > 1


@pytest.mark.parametrize(("name", "decompositions"), [("rosenbrock", "library"), ("ic-sphere", "rotations")])
def test_evaluations_to_the_target_are_distributed_as_with_numpy(
    name: str, decompositions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the decompositions that a GPU would use."""
    made = jax_backends.make
    monkeypatch.setattr(jax_backends, "make", lambda axis, _: made(axis, decompositions))
    problem = fmnes.problems.get(name, d=4)
    options: dict[str, Any] = {
        "method": "afm-nes", "population_size": 10, "target": 1e-8, "max_evaluations": 20_000,
    }  # fmt: skip
    once = {"evaluate_start": False, "second_look": False}  # compiled runs do neither
    compiled = fj.run(problem.fun, problem.x0, problem.sigma0, key=KEY, batch=200, **options)
    numpy = [
        fmnes.minimize(problem.fun, problem.x0, problem.sigma0, rng=seed, vectorized=True, **options, **once)
        for seed in range(30)
    ]
    reached = np.asarray(compiled.stop_reason) == list(fmnes.StopReason).index(fmnes.StopReason.TARGET)
    assert reached.mean() > 0.85 and np.mean([r.success for r in numpy]) > 0.75
    assert_same_mean(np.asarray(compiled.nfev)[reached], [r.nfev for r in numpy if r.success])


def assert_same_mean(one: Any, two: Any) -> None:
    """Within four standard errors."""
    one, two = np.asarray(one, dtype=float), np.asarray(two, dtype=float)
    error = np.sqrt(one.var() / len(one) + two.var() / len(two))
    assert abs(one.mean() - two.mean()) < 4 * error
    assert 1 / 3 < one.std() / two.std() < 3


def test_settings_may_differ_between_runs() -> None:
    thresholds = [1.01, 1e6]
    options: dict[str, Any] = {"population_size": 8, "max_evaluations": 320}
    batch = fj.run(
        half_sphere, jnp.full(3, 2.0), 1.0, key=KEY, batch=2, vary={"ridge_threshold": thresholds}, **options
    )
    for i, key in enumerate(jax.random.split(KEY, 2)):
        method = fmnes.AFMNES(ridge_threshold=thresholds[i])
        one = fj.run(half_sphere, jnp.full(3, 2.0), 1.0, key=key, method=method, **options)
        assert_allclose(batch.x_mean[i], one.x_mean, rtol=1e-6)


def test_a_batch_of_one_has_the_axis() -> None:
    result = fj.run(sphere, jnp.ones(2), 1.0, key=KEY, batch=1, method="xnes", max_evaluations=60)
    assert result.x.shape == (1, 2) and result.nfev.shape == (1,)
    assert fj.stop_reason(result.stop_reason) == [fmnes.StopReason.MAX_EVALUATIONS]
