"""The test problems are the same functions under JAX: one point or many, compiled or not, in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from fmnes import problems  # noqa: E402
from tests.test_problems import TABLE, points  # noqa: E402


@pytest.mark.parametrize("name", [*TABLE, "rotated-ic-rosenbrock"])
def test_values_are_those_of_numpy(name: str) -> None:
    problem = problems.get(name, d=5)
    X = points(name, 5, n=16, gap=1e-3).astype(np.float32)  # a gap that float32 can tell

    def every_way(X: Any) -> Any:
        return problem.fun(X), jax.vmap(problem.fun)(X), problem.fun(X[0]), problem.is_feasible(X)

    many, one_by_one, one, feasible = jax.jit(every_way)(X)
    wanted = problem.fun(X.astype(np.float64))
    assert np.isfinite(wanted).any()
    for f in (many, one_by_one):
        assert f.dtype == np.float32 and f.shape == (len(X),)
        np.testing.assert_allclose(f, wanted, rtol=1e-3, atol=1e-4)
    assert one.dtype == np.float32 and one.shape == ()
    np.testing.assert_array_equal(feasible, problem.is_feasible(X))


def test_an_array_of_jax_gives_one_where_nothing_is_compiled() -> None:
    problem = problems.get("rotated-ic-cigar", d=5)
    X = points("rotated-ic-cigar", 5, n=16, gap=1e-3).astype(np.float32)
    f = problem.fun(jnp.asarray(X))
    assert isinstance(f, jax.Array) and f.dtype == np.float32
    np.testing.assert_allclose(f, problem.fun(X.astype(np.float64)), rtol=1e-3, atol=1e-4)
