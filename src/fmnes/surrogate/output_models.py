"""Models of several outputs that were observed at the same points.

A kernel's covariance is factorised once for all outputs; each output takes the kernel with the smallest
leave-one-out errors. So 50 outputs cost little more than one. Outputs are in their own units throughout.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.surrogate.kernels import Floats, distances_between, inverse_root, matern52, squared_distances
from fmnes.surrogate.value_model import Kernel, scale_of

#: From a linear function to a wiggly one. With a small square, the curvature is as small as the values allow.
KERNELS = (
    Kernel(0.0, 0.0, 1.0, 1e-10),
    Kernel(0.01, 0.0, 1.0, 1e-10),
    Kernel(1.0, 0.0, 1.0, 1e-8),
    Kernel(1.0, 0.1, 1.0, 1e-8),
    Kernel(0.1, 1.0, 1.0, 1e-6),
    Kernel(1.0, 1.0, 0.5, 1e-4),
)
#: A more general kernel must have errors smaller by this factor.
_SIMPLER = 0.9


class OutputModels(NamedTuple):
    """k outputs as functions of centred coordinates."""

    scale: float
    points: Floats
    """Divided by the scale. (n, d)"""
    weights: Floats
    """Of the outputs less `middle`, in units of `unit`. (n, k)"""
    kernels: tuple[Kernel, ...]
    """One for each output."""
    middle: Floats
    unit: Floats
    errors: Floats
    """Root mean squares of the leave-one-out errors of the points that were checked. (k,)"""


def fit(z: Floats, y: Floats, n_check: int) -> OutputModels | None:
    """Fit every kernel to all outputs and choose one for each; None with fewer than two points.

    Parameters
    ----------
    z : (n, d) array
        Coordinates, centred where the models are used.
    y : (n, k) array
        Finite outputs.
    n_check : int
        The choice is judged on this number of leading points: those nearest to the centre come first.
    """
    n, d = z.shape
    k = y.shape[1]
    if n < 2:
        return None
    scale = scale_of(z)
    points = z / scale
    largest = np.abs(y).max(axis=0)
    largest[largest == 0.0] = 1.0
    targets = y / largest  # so that no difference overflows
    middle = targets.mean(axis=0)
    targets = targets - middle
    unit = np.sqrt(np.square(targets).mean(axis=0))
    unit[unit == 0.0] = 1.0
    targets = targets / unit
    check = slice(0, max(1, n_check))
    least = np.full(k, np.inf)
    weights = np.zeros((n, k))
    chosen = np.zeros(k, dtype=np.intp)
    with np.errstate(all="ignore"):  # what is not finite is not chosen
        gram = points @ points.T
        square, squares = np.square(gram), np.diag(gram)
        squared = squared_distances(gram, squares, squares)
        for i, kernel in enumerate(KERNELS):
            if kernel.quadratic and n < d + 2:
                continue
            matrix = 1.0 + gram + kernel.quadratic * square
            if kernel.matern:
                matrix += kernel.matern * matern52(squared / kernel.length**2)
            matrix.flat[:: n + 1] += kernel.ridge * max(1.0, np.trace(matrix) / n)
            try:
                root = inverse_root(matrix)
            except np.linalg.LinAlgError:
                continue
            found = root.T @ (root @ targets)
            left_out = found / np.einsum("ij,ij->j", root, root)[:, None]
            errors = np.sqrt(np.square(left_out[check]).mean(axis=0))
            better = np.isfinite(found).all(axis=0) & (errors < _SIMPLER * least)
            least = np.where(better, errors, least)
            weights[:, better], chosen[better] = found[:, better], i
    if not np.isfinite(least).all():
        return None
    unit = unit * largest
    kernels = tuple(KERNELS[i] for i in chosen.tolist())
    return OutputModels(scale, points, weights, kernels, middle * largest, unit, least * unit)


def predict(models: OutputModels, z: Floats) -> Floats:
    """The outputs at z (m, d), as (m, k)."""
    u = z / models.scale
    quadratic, rough = _columns(models)
    gram = u @ models.points.T
    found = models.weights.sum(axis=0) + gram @ models.weights
    curved = quadratic > 0
    found[:, curved] += quadratic[curved] * (np.square(gram) @ models.weights[:, curved])
    if rough:
        squared = distances_between(u, models.points)
        for length, columns, factors in rough:
            found[:, columns] += matern52(squared / length**2) @ (models.weights[:, columns] * factors)
    return np.asarray(models.middle + models.unit * found)


def slopes(models: OutputModels, z: Floats) -> Floats:
    """The gradients of the outputs at z (d,), as (k, d)."""
    u = z / models.scale
    quadratic, rough = _columns(models)
    gram = models.points @ u
    found = models.weights.T @ models.points
    found += (2.0 * quadratic)[:, None] * ((models.weights * gram[:, None]).T @ models.points)
    for length, columns, factors in rough:
        steps = (u - models.points) / length
        s = np.sqrt(5.0 * np.einsum("ij,ij->i", steps, steps))
        decay = (-5.0 / 3.0) * (1.0 + s) * np.exp(-s)
        weights = models.weights[:, columns] * factors * decay[:, None]
        found[columns] += weights.T @ steps / length
    return np.asarray(models.unit[:, None] * found / models.scale)


def curvature(models: OutputModels, z: Floats, shares: Floats) -> Floats:
    """The Hessian at z (d,) of the sum of the outputs times these shares (k,). (d, d)"""
    u = z / models.scale
    quadratic, rough = _columns(models)
    shares = shares * models.unit
    weights = models.weights @ (2.0 * quadratic * shares)
    found = (models.points.T * weights) @ models.points
    for length, columns, factors in rough:
        steps = (u - models.points) / length
        s = np.sqrt(5.0 * np.einsum("ij,ij->i", steps, steps))
        decay = (-5.0 / 3.0) * np.exp(-s) * (models.weights[:, columns] @ (factors * shares[columns]))
        part = -5.0 * (steps.T * decay) @ steps
        part.flat[:: len(u) + 1] += float(decay @ (1.0 + s))
        found += part / length**2
    return np.asarray(found / models.scale**2)


def _columns(models: OutputModels) -> tuple[Floats, list[tuple[float, NDArray[np.intp], Floats]]]:
    """The weights of the squares (k,); for each length the outputs with a Matérn part, and its weights."""
    quadratic = np.array([kernel.quadratic for kernel in models.kernels])
    rough = []
    for length in sorted({kernel.length for kernel in models.kernels if kernel.matern}):
        mine = [i for i, each in enumerate(models.kernels) if each.matern and each.length == length]
        rough.append((length, np.array(mine), np.array([models.kernels[i].matern for i in mine])))
    return quadratic, rough
