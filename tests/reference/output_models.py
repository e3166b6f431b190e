"""`fmnes.surrogate.output_models` written out: one output, one kernel and one point left out at a time."""

from __future__ import annotations

import math

import numpy as np

from fmnes.surrogate.output_models import KERNELS
from fmnes.surrogate.value_model import Kernel


def covariance(kernel: Kernel, u: np.ndarray, v: np.ndarray) -> float:
    s = math.sqrt(5.0) * math.dist(u, v) / kernel.length
    matern = (1 + s + s * s / 3) * math.exp(-s)
    return 1 + float(u @ v) + kernel.quadratic * float(u @ v) ** 2 + kernel.matern * matern


def solved(kernel: Kernel, u: np.ndarray, y: np.ndarray, ridge: float, new: np.ndarray) -> float:
    matrix = np.array([[covariance(kernel, a, b) for b in u] for a in u]) + ridge * np.eye(len(u))
    return float(np.array([covariance(kernel, new, a) for a in u]) @ np.linalg.solve(matrix, y))


def predictions(
    z: np.ndarray, y: np.ndarray, n_check: int, new: np.ndarray
) -> tuple[np.ndarray, list[Kernel]]:
    """Predictions of the outputs y (n, k) at new (m, d), and the kernel of each output."""
    n, d = z.shape
    scale = math.sqrt(float((z**2).sum(axis=1).mean()))
    u, found, kernels = z / scale, [], []
    for column in y.T:
        middle, unit = column.mean(), column.std() or 1.0
        t = (column - middle) / unit
        best, chosen = math.inf, KERNELS[0]
        for kernel in KERNELS:
            if kernel.quadratic and n < d + 2:
                continue
            trace = np.mean([covariance(kernel, a, a) for a in u])
            ridge = kernel.ridge * max(1.0, trace)
            squares = []
            for i in range(min(n, n_check)):
                kept = np.arange(n) != i
                squares.append((t[i] - solved(kernel, u[kept], t[kept], ridge, u[i])) ** 2)
            error = math.sqrt(np.mean(squares))
            if error < 0.9 * best:
                best, chosen = error, kernel
        trace = np.mean([covariance(chosen, a, a) for a in u])
        ridge = chosen.ridge * max(1.0, trace)
        found.append([middle + unit * solved(chosen, u, t, ridge, point / scale) for point in new])
        kernels.append(chosen)
    return np.array(found).T, kernels
