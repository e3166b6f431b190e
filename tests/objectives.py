"""Functions of many points (n, d) that strategies are followed on, and a shape to begin with."""

from __future__ import annotations

import numpy as np


def ellipsoid(x: np.ndarray) -> np.ndarray:
    d = x.shape[1]
    return ((1000 ** (np.arange(d) / max(d - 1, 1)) * x) ** 2).sum(axis=1)


def failing_ellipsoid(x: np.ndarray) -> np.ndarray:
    return np.where((x >= 0).all(axis=1), ellipsoid(x), np.nan)


def late_failures(x: np.ndarray) -> np.ndarray:
    """Feasible at the start, so that there is a shape to forget when the first failure comes."""
    return np.where((x >= 18.0).all(axis=1), ellipsoid(x), np.inf)


def distinct_shape(d: int, rng: np.random.Generator) -> np.ndarray:
    """Of determinant 1, whose axes have d different lengths."""
    left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
    axes = np.geomspace(0.3, 3.0, d)
    return left @ np.diag(axes / np.exp(np.log(axes).mean())) @ right
