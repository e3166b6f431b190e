"""The draws of compiled runs: the generator is the published one, what comes of it normal and independent."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fmnes.integrations.jax.draws import box_muller, normal, philox

KEY = jax.random.key(7)


def words(n: int) -> tuple[jax.Array, jax.Array]:
    key = jax.random.key_data(KEY)
    with jax.enable_x64(True):
        return philox(key[0], jnp.arange(n, dtype=jnp.uint32), jnp.full(n, key[1]))


def test_philox_is_the_published_one() -> None:
    """Known answers of the Random123 library."""
    for key, counter, answer in (
        (0, (0, 0), (0xFF1DAE59, 0x6CD10DF2)),
        (0xFFFFFFFF, (0xFFFFFFFF, 0xFFFFFFFF), (0x2C3F628B, 0xAB4FD7AD)),
        (0x13198A2E, (0x243F6A88, 0x85A308D3), (0xDD7CE038, 0xF62A4C12)),
    ):
        with jax.enable_x64(True):
            found = philox(*(jnp.asarray(word, jnp.uint32) for word in (key, *counter)))
        assert tuple(int(word) for word in found) == answer


def test_box_muller_is_sine_and_cosine() -> None:
    word0, word1 = words(100_000)
    radius = np.sqrt(-2 * np.log((np.asarray(word0 >> 8, float) + 0.5) / 2**24))
    # The angle is measured from the middle of its quadrant.
    first, second = (np.asarray(part, float) for part in box_muller(word0, word1))
    np.testing.assert_allclose(np.hypot(first, second), radius, atol=2e-5)
    quadrant = np.asarray(word1 >> 30, float)
    turn = np.asarray((word1 << 2) >> 9, float) / 2**23 - 0.5
    angle = (quadrant + turn) * np.pi / 2
    np.testing.assert_allclose(first, radius * np.cos(angle), atol=2e-5)
    np.testing.assert_allclose(second, radius * np.sin(angle), atol=2e-5)


def test_draws_are_standard_normal() -> None:
    z = np.asarray(normal(KEY, (16, 125_000), jnp.float32), float).ravel()
    n = len(z)
    # Moments within 4.5 standard errors; those of z, z², z³, z⁴ have variances 1, 2, 15, 96.
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - mean) < 4.5 * np.sqrt(variance / n)
    for bound, share in ((1.0, 0.317311), (2.0, 0.0455003), (3.0, 0.00269980), (4.0, 6.33425e-5)):
        assert abs((abs(z) > bound).mean() - share) < 4.5 * np.sqrt(share / n)
    assert 4.5 < abs(z).max() < 6.5


def test_draws_are_independent() -> None:
    """Of neighbours, which share their words, of rows, and of other keys."""
    z = np.asarray(normal(KEY, (8, 100_000), jnp.float32), float)
    other = np.asarray(normal(jax.random.fold_in(KEY, 1), (8, 100_000), jnp.float32), float)
    limit = 4.5 / np.sqrt(100_000)
    assert abs(np.corrcoef(z) - np.eye(8)).max() < limit
    assert abs(np.corrcoef(z**2) - np.eye(8)).max() < limit
    for row in (*z, *z**2):
        assert max(abs(np.corrcoef(row[lag:], row[:-lag])[0, 1]) for lag in (1, 2, 3)) < limit
    assert max(abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(z, other, strict=True)) < limit
    assert len(np.unique(z)) > 0.95 * z.size


@pytest.mark.parametrize("shape", [(3, 11), (2, 0), (1, 1), (5, 2)])
def test_what_does_not_come_in_pairs_is_left_to_jax(shape: tuple[int, int]) -> None:
    assert normal(KEY, shape, jnp.float32).shape == shape


def test_other_generators_and_old_keys() -> None:
    rbg = normal(jax.random.key(1, impl="rbg"), (4, 1000), jnp.float32)
    assert abs(float(rbg.mean())) < 0.1
    old, new = (normal(key, (4, 1000), jnp.float32) for key in (jax.random.PRNGKey(7), KEY))
    np.testing.assert_array_equal(old, new)


def test_a_batch_of_keys() -> None:
    keys = jax.random.split(KEY, 5)
    together = jax.vmap(lambda key: normal(key, (4, 100), jnp.float32))(keys)
    for key, z in zip(keys, together, strict=True):
        np.testing.assert_array_equal(normal(key, (4, 100), jnp.float32), z)


@pytest.mark.parametrize("word", [0, 1])
def test_each_word_of_a_key_matters(word: int) -> None:
    words = np.array([5, 9], np.uint32)
    one = jax.random.wrap_key_data(jnp.asarray(words))
    words[word] += 1
    other = jax.random.wrap_key_data(jnp.asarray(words))
    a, b = (np.asarray(normal(key, (4, 10_000), jnp.float32), float).ravel() for key in (one, other))
    assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(len(a))
