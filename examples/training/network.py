"""A training that diverges: a small network learns a surface from noisy samples, and its loss may overflow.

Two hidden layers with rectifiers, stochastic gradient descent with momentum and weight decay, in NumPy. The
same numbers give the same loss: first weights and the order of the samples come from fixed seeds.

    k       networks, trained side by side from different first weights: the loss is their mean
    n       samples of a batch
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NETWORKS, EPOCHS = 3, 10
SAMPLES, HELD_OUT, NOISE = 256, 512, 0.1

#: Where to look: from and to, in whole numbers where these are; and what has a log scale.
RANGES = {"rate": (1e-3, 10.0), "momentum": (0.0, 0.99), "decay": (1e-6, 0.1)}
RANGES |= {"width": (4, 48), "log2_batch": (3, 7), "scale": (0.1, 5.0)}
LOG = ("rate", "decay", "scale")


def surface(x: Floats) -> Floats:
    """What is to be learned. x: (..., 2), each from -2 to 2."""
    values: Floats = np.sin(3 * x[..., 0]) * np.cos(2 * x[..., 1]) + x[..., 0] * x[..., 1]
    return values


def samples(seed: int, count: int) -> tuple[Floats, Floats]:
    """Points (count, 2), and what was measured there (count, 1)."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (count, 2))
    return x, (surface(x) + NOISE * rng.standard_normal(count))[:, None]


def loss(rate: float, momentum: float, decay: float, width: int, log2_batch: int, scale: float) -> float:
    """The mean squared error on samples that were held out; NaN where the training diverges.

    rate: the learning rate. decay: of the weights. width: of both hidden layers. log2_batch: a batch has
    2^log2_batch samples. scale: of the first weights, 1 being He's.
    """
    x, y = samples(0, SAMPLES)
    rng = np.random.default_rng(1)
    sizes = (2, int(width), int(width), 1)
    weights = [
        scale * math.sqrt(2 / m) * rng.standard_normal((NETWORKS, m, n)) for m, n in itertools.pairwise(sizes)
    ]
    offsets = [np.zeros((NETWORKS, 1, n)) for n in sizes[1:]]
    moving = [np.zeros_like(array) for array in (*weights, *offsets)]
    with np.errstate(all="ignore"):  # overflow is what is looked for
        for _ in range(EPOCHS):
            order = np.argsort(rng.random((NETWORKS, SAMPLES)), axis=1, kind="stable")
            for batch in np.split(order, SAMPLES // 2 ** int(log2_batch), axis=1):
                layers = forward(weights, offsets, x[batch])
                error = layers[-1] - y[batch]
                if not np.isfinite(np.mean(error**2)):
                    return math.nan
                slopes = backward(weights, layers, 2 * error / batch.shape[1])
                for i, array in enumerate((*weights, *offsets)):
                    shrink = decay * array if i < len(weights) else 0.0
                    moving[i] = momentum * moving[i] - rate * (slopes[i] + shrink)
                    array += moving[i]
        x, y = samples(2, HELD_OUT)
        found = float(np.mean((forward(weights, offsets, x[None])[-1] - y) ** 2))
    return found if math.isfinite(found) else math.nan


def forward(weights: list[Floats], offsets: list[Floats], x: Floats) -> list[Floats]:
    """What each layer gives, the samples (k, n, 2) first."""
    layers = [x]
    for i, (weight, offset) in enumerate(zip(weights, offsets, strict=True)):
        values = layers[-1] @ weight + offset
        layers.append(values if i + 1 == len(weights) else np.maximum(values, 0))
    return layers


def backward(weights: list[Floats], layers: list[Floats], slope: Floats) -> list[Floats]:
    """The slopes of the loss in all weights and then in all offsets. slope: (k, n, 1), in the last layer."""
    in_weights: list[Floats] = []
    in_offsets: list[Floats] = []
    for weight, before in zip(weights[::-1], layers[-2::-1], strict=True):
        in_weights.insert(0, before.swapaxes(1, 2) @ slope)
        in_offsets.insert(0, slope.sum(1, keepdims=True))
        slope = (slope @ weight.swapaxes(1, 2)) * (before > 0)
    return [*in_weights, *in_offsets]
