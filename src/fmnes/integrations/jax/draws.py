"""Standard normal draws for compiled runs in float32: fewer operations, and one trip to memory.

In high dimension the draws are a large part of a generation. `jax.random.normal` runs Threefry-2x32 with 20
rounds for each number and keeps one of its two words. Here Philox-2x32 with 10 rounds gives two words for
less than half the operations, and they become two normal numbers by the Box–Muller method, which takes fewer
operations than the inverse error function. The two leave together, as one word of 64 bits: as two arrays they
would have to be joined, which is to read and write all draws once more.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11, describes Philox and Threefry; with
these numbers of rounds both pass all tests of BigCrush.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from fmnes.backends import Array
from fmnes.integrations.jax.devices import hold

#: Multiplier of a round, and what is added to the key after it.
_MULTIPLIER = 0xD256D193
_WEYL = 0x9E3779B9
_ROUNDS = 10
#: More pairs of one key than this would need a second counter.
_MOST_PAIRS = 2**32


def normal(key: Array, shape: tuple[int, int], dtype: Any, split: NamedSharding | None = None) -> Array:
    """Independent N(0, 1) numbers. Other dtypes, other generators and odd sizes are left to JAX.

    They are drawn once and kept: otherwise the compiler repeats the draws for each sum that reads them.
    split: how a row lies on several devices; each draws its own columns, the same numbers as one would.
    """
    words = jax.random.key_data(key)
    pairs = math.prod(shape) // 2
    if dtype != jnp.float32 or words.shape != (2,) or math.prod(shape) % 2 or pairs > _MOST_PAIRS:
        z = jax.random.normal(key, shape, dtype)
        return lax.optimization_barrier(z if split is None else hold(z, split))
    with _64_bits():
        if split is not None and shape[1] % (2 * split.num_devices):
            return lax.optimization_barrier(_one_by_one(words, shape, split))
        index = lax.iota(jnp.uint32, pairs) if split is None else _rows_of_pairs(shape, split)
        first, second = _two(words, index)
        low, high = (lax.bitcast_convert_type(z, jnp.uint32).astype(jnp.uint64) for z in (first, second))
        both = lax.optimization_barrier(low | (high << np.uint64(32)))
        return lax.bitcast_convert_type(both, jnp.float32).reshape(shape)


def _two(words: Array, index: Array) -> tuple[Array, Array]:
    """The two numbers of each pair. index: the pair's place among all pairs, row by row."""
    return box_muller(*philox(words[0], index, jnp.broadcast_to(words[1], index.shape)))


def _rows_of_pairs(shape: tuple[int, int], split: NamedSharding) -> Array:
    """The places as rows (n, d/2): as one row, `iota`, they could not be split along d."""
    n, half = shape[0], shape[1] // 2
    row, column = (lax.broadcasted_iota(jnp.uint32, (n, half), axis) for axis in (0, 1))
    return hold(row * np.uint32(half) + column, split)


def _one_by_one(words: Array, shape: tuple[int, int], split: NamedSharding) -> Array:
    """Where a pair would lie on two devices both compute it, and each number is one of two."""
    row, column = (lax.broadcasted_iota(jnp.uint64, shape, axis) for axis in (0, 1))
    place = hold(row * np.uint64(shape[1]) + column, split)
    first, second = _two(words, (place // np.uint64(2)).astype(jnp.uint32))
    return jnp.where(place % np.uint64(2) == 0, first, second)


def philox(key: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Philox-2x32: the two words (x0, x1) of a counter, scrambled by a key of one word."""
    for _ in range(_ROUNDS):
        product = x0.astype(jnp.uint64) * np.uint64(_MULTIPLIER)
        high, low = (product >> np.uint64(32)).astype(jnp.uint32), product.astype(jnp.uint32)
        x0, x1 = high ^ key ^ x1, low
        key = key + np.uint32(_WEYL)
    return x0, x1


def box_muller(word0: Array, word1: Array) -> tuple[Array, Array]:
    """Two normal numbers from two words: the first gives the radius, the second the angle."""
    uniform = ((word0 >> np.uint32(8)).astype(jnp.float32) + np.float32(0.5)) * np.float32(
        2**-24
    )  # in (0, 1]
    radius = jnp.sqrt(np.float32(-2) * jnp.log(uniform))
    # Two bits choose the quadrant, and within it the angle lies in ±π/4, where short series are enough.
    quadrant = word1 >> np.uint32(30)
    turn = ((word1 << np.uint32(2)) >> np.uint32(9)).astype(jnp.float32) * np.float32(2**-23)
    angle = (turn - np.float32(0.5)) * np.float32(math.pi / 2)
    square = angle * angle
    sine = angle * _series(square, 1, 6, 120, 5040, 362880)
    cosine = _series(square, 1, 2, 24, 720, 40320)
    swap = quadrant % np.uint32(2) == 1
    first, second = jnp.where(swap, sine, cosine), jnp.where(swap, cosine, sine)
    first = jnp.where((quadrant == 1) | (quadrant == 2), -first, first)
    second = jnp.where(quadrant >= 2, -second, second)
    return radius * first, radius * second


def _series(x: Array, *factorials: int) -> Array:
    """Σ (−x)^j / factorials_j."""
    total = jnp.zeros_like(x)
    for j in reversed(range(len(factorials))):
        total = total * x + np.float32((-1) ** j / factorials[j])
    return total


def _64_bits() -> Any:
    """Words of 64 bits, whether or not the user has switched them on for JAX as a whole."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # where an older JAX has it

    return enable_x64()
