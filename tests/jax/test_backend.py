"""What NumPy and JAX do differently gives the same answers, and compiled runs see a state that went wrong."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fmnes import StopReason
from fmnes.backends import NUMPY, jax_backend
from fmnes.backends.jax import COMPARE_ALL
from fmnes.integrations.jax.loop import REASONS, RUNNING, Limits, Progress, stop_code
from fmnes.strategies import Shape


@pytest.mark.parametrize("n", [1, 2, 33, COMPARE_ALL, COMPARE_ALL + 1])
def test_order_with_ties_and_infinities(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(20):
        first, second = (rng.integers(-2, 3, n).astype(float) for _ in range(2))
        first[rng.random(n) < 0.3] = np.inf
        first[first == 0] *= rng.choice([-1.0, 1.0], (first == 0).sum())  # 0.0 and -0.0 tie
        for keys in ((first,), (first, second)):
            literal = sorted(range(n), key=lambda i: (*(key[i] for key in keys), i))
            ranks = np.empty(n, int)
            ranks[literal] = np.arange(n)
            compiled = jax_backend().order(*map(jnp.asarray, keys))
            np.testing.assert_array_equal(NUMPY.order(*keys), literal)
            np.testing.assert_array_equal(compiled, literal)
            np.testing.assert_array_equal(NUMPY.inverse(NUMPY.order(*keys)), ranks)
            np.testing.assert_array_equal(jax_backend().inverse(compiled), ranks)


def test_search() -> None:
    table = (0.5, 2.0, 2.0, 7.0)
    for value in (-np.inf, 0.0, 0.5, 1.0, 2.0, 3.0, 7.0, np.inf, np.nan):
        assert int(jax_backend().search(table, jnp.asarray(value))) == NUMPY.search(table, np.float64(value))


def test_decompositions_suit_the_device_in_use() -> None:
    """On a machine with a GPU as well: these run on its CPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        assert jax_backend() is jax_backend(None, "library")
    assert jax_backend(None, "rotations") is not jax_backend(None, "library")


def code_of(shape: Shape) -> int:
    limits = Limits(jnp.asarray(100), jnp.asarray(1e-12), jnp.asarray(-1.0))
    start = Progress.start(jnp.ones(3), 8)
    return int(stop_code(start, shape, jnp.asarray(1.0), jnp.asarray(-jnp.inf), limits))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, None])
@pytest.mark.parametrize("part", ["mean", "sigma", "axis_lengths"])
def test_one_number_that_is_not_finite_ends_a_run(part: str, bad: float | None) -> None:
    shape = Shape(jnp.asarray([1.0, 2.0, 3.0]), jnp.asarray(1.0), jnp.ones(3), "")
    if bad is not None:
        array = getattr(shape, part)
        shape = shape._replace(**{part: array.at[(1,) * array.ndim].set(bad)})
    assert code_of(shape) == (RUNNING if bad is None else REASONS.index(StopReason.NUMERICAL))


def test_a_step_size_that_is_finite_and_a_step_that_is_not() -> None:
    """As in `fmnes.minimize`: the state is good, and the steps are too long."""
    big = float(jnp.finfo(jnp.ones(3).dtype).max) ** 0.75
    shape = Shape(jnp.ones(3), jnp.asarray(big), jnp.full(3, big), "")
    assert code_of(shape) == REASONS.index(StopReason.SIGMA_OVERFLOW)
    shape = shape._replace(sigma=jnp.asarray(0.0))
    assert code_of(shape) == REASONS.index(StopReason.NUMERICAL)
