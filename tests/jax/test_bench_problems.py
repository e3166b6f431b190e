"""The problems of the stand are the same functions under JAX: compiled, one point or many at a time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

from fmnes_bench.search import suite  # noqa: E402


@pytest.mark.parametrize("name", [name for name in suite.PROBLEMS if suite.has(name, 3)])
def test_values_are_those_of_numpy(name: str) -> None:
    p = suite.get(name, 3)
    rng = np.random.default_rng(0)
    x = p.optimum + rng.uniform(0.0, 1.0, (200, 1)) * (
        p.x0 - p.optimum + 0.03 * rng.standard_normal((200, 3))
    )
    expected = p.fun(x)
    assert np.isfinite(expected).any()
    batch, single = jax.jit(lambda x: (p.fun(x), jax.vmap(p.fun)(x)))(x)
    assert_allclose(batch, expected, rtol=1e-9, atol=1e-12)
    assert_allclose(single, expected, rtol=1e-9, atol=1e-12)
