"""Standard normal draws for compiled runs: JAX's own generator, used to the full.

`jax.random.normal` runs Threefry-2x32 once for each number and keeps one of its two words, so that arrays may
be cut up over devices. In high dimension the draws are a third of a generation. Here both words are used, and
they become two normal numbers by the Box–Muller method, which takes fewer operations than the inverse error
function.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11, describes Threefry.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fmnes.backends import Array

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
#: More words of one key than this would need a second counter.
_MOST = 2**32


def normal(key: Array, shape: tuple[int, int], dtype: Any) -> Array:
    """Independent N(0, 1) numbers. Other dtypes, other generators and odd shapes are left to JAX."""
    words = jax.random.key_data(key)
    rows, columns = shape
    if dtype != jnp.float32 or words.shape != (2,) or rows % 2 or rows * columns > _MOST:
        return jax.random.normal(key, shape, dtype)
    half = (rows // 2, columns)
    index = lax.broadcasted_iota(jnp.uint32, half, 0) * np.uint32(columns)
    index = index + lax.broadcasted_iota(jnp.uint32, half, 1)
    return jnp.concatenate(box_muller(*threefry(words[0], words[1], index, jnp.zeros_like(index))))


def threefry(key0: Array, key1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds: the two words (x0, x1) of a counter, scrambled by those of a key."""
    keys = (key0, key1, key0 ^ key1 ^ np.uint32(_PARITY))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
            x1 = x1 ^ x0
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x0, x1


def box_muller(word0: Array, word1: Array) -> tuple[Array, Array]:
    """Two normal numbers from two words: the first gives the radius, the second the angle."""
    uniform = ((word0 >> np.uint32(8)).astype(jnp.float32) + 0.5) * np.float32(2**-24)  # in (0, 1]
    radius = jnp.sqrt(-2 * jnp.log(uniform))
    # Two bits choose the quadrant, and within it the angle lies in ±π/4, where short series are enough.
    quadrant = word1 >> np.uint32(30)
    turn = ((word1 << np.uint32(2)) >> np.uint32(9)).astype(jnp.float32) * np.float32(2**-23) - 0.5
    angle = turn * np.float32(math.pi / 2)
    square = angle * angle
    sine = angle * _series(square, 1, 6, 120, 5040, 362880)
    cosine = _series(square, 1, 2, 24, 720, 40320)
    swap = quadrant % 2 == 1
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
