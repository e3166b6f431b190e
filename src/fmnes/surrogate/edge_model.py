"""A model of the edge between points that work and points that fail.

A margin, not a probability: a search that asks for points with a margin above 0 bisects the edge. Three
support vector machines with the squared hinge, with linear, quadratic and Matérn kernels, are fitted by
Newton's method; if none separates the points well, also a polyhedron whose every face is a linear one. The
choice is the smallest leave-one-out loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.surrogate.kernels import Floats, inverse_root, matern52, squared_distances
from fmnes.surrogate.value_model import scale_of

Flags = NDArray[np.bool_]

#: Ridge of the support vector machines and of the faces of a polyhedron, relative to the mean square norm.
RIDGE = 1e-5
FACE_RIDGE = 1e-3
#: Above this loss, a polyhedron is tried.
POLYHEDRON_LOSS = 0.02
#: Weight of the square in the quadratic kernel.
_QUADRATIC = 0.1
#: The ridge is reached in stages, in multiples of its value: otherwise Newton's steps often end in a circle.
_STAGES = (1e3, 1e2, 1e1, 1.0)
_STEPS = 6
_ROUNDS = 6


class EdgeModel(NamedTuple):
    """The margin as a function of centred coordinates: above 0, a point is expected to work.

    Between the nearest points of either kind it lies between −1 and 1.
    """

    kind: str
    """"constant", "linear", "quadratic", "matern" or "polyhedron"."""
    constant: float | None
    """1 if all points work, −1 if all fail, None if there is an edge."""
    loss: float
    """Leave-one-out loss between 0 and 2; both kinds of points have the same weight."""
    loo: Floats
    """Leave-one-out margin of each point. (n,)"""
    scale: float
    points: Floats
    """Support vectors of a kernel; empty for planes."""
    weights: Floats
    """Of the support vectors; or of the planes as columns, their offsets first."""


class _Fit(NamedTuple):
    weights: Floats
    margins: Floats
    loo: Floats


def fit(z: Floats, worked: Flags) -> EdgeModel:
    """Fit the models and choose the best.

    Parameters
    ----------
    z : (n, d) array
        Coordinates, centred where the model is used.
    worked : (n,) array of bool
        Which points worked.
    """
    n, d = z.shape
    if worked.all() or not worked.any():
        constant = 1.0 if worked.all() else -1.0
        nothing = np.zeros((0, d))
        return EdgeModel("constant", constant, 0.0, np.full(n, constant), 1.0, nothing, np.zeros(0))
    scale = scale_of(z)
    points = z / scale
    labels = np.where(worked, 1.0, -1.0)
    share = np.where(worked, 0.5 / worked.sum(), 0.5 / (~worked).sum())

    def loss(loo: Floats) -> float:
        return float(share @ np.clip(1.0 - labels * loo, 0.0, 2.0))

    features = np.concatenate([np.ones((n, 1)), points], axis=1)
    size = float(np.square(features).sum(axis=1).mean())
    plane = _plane(features, labels, np.full(n, RIDGE * size))
    best = loss(plane.loo), "linear", plane.loo, points[:0], plane.weights[:, None]
    gram = points @ points.T
    for kind in ("quadratic", "matern"):
        matrix = _KERNELS[kind](gram, np.diag(gram), np.diag(gram))
        ridge = np.full(n, RIDGE * float(np.trace(matrix)) / n)
        machine = _machine(matrix, labels, ridge)
        if machine is not None and (value := loss(machine.loo)) < best[0] - 1e-9:
            support = machine.weights != 0.0
            best = value, kind, machine.loo, points[support], machine.weights[support]
    if best[0] > POLYHEDRON_LOSS and (~worked).sum() > 1 and worked.sum() > 1:
        faces, loo = _polyhedron(features, worked, d, FACE_RIDGE * size)
        if (value := loss(loo)) < best[0] - 1e-9:
            best = value, "polyhedron", loo, points[:0], faces
    value, kind, loo, support_points, weights = best
    return EdgeModel(kind, None, value, loo, scale, support_points, weights)


def margin(model: EdgeModel, z: Floats) -> Floats:
    """Margins of the points z (m, d)."""
    if model.constant is not None:
        return np.full(len(z), model.constant)
    points = z / model.scale
    if model.kind in _KERNELS:
        squares = [np.einsum("ij,ij->i", each, each) for each in (points, model.points)]
        return np.asarray(_KERNELS[model.kind](points @ model.points.T, *squares) @ model.weights)
    return np.asarray((points @ model.weights[1:] + model.weights[0]).min(axis=1))


def _quadratic(gram: Floats, _a: Floats, _b: Floats) -> Floats:
    return 1.0 + gram + _QUADRATIC * gram * gram


def _matern(gram: Floats, squares_a: Floats, squares_b: Floats) -> Floats:
    return 1.0 + gram + matern52(np.sqrt(squared_distances(gram, squares_a, squares_b)))


_KERNELS: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "quadratic": _quadratic,
    "matern": _matern,
}


def _machine(matrix: Floats, labels: Floats, ridge: Floats) -> _Fit | None:
    """Minimise ½ aᵀKa + ½ Σ max(0, 1 − y f)²/ridge, f = Ka, by Newton's method.

    A step is the exact minimum for its support vectors. If the steps form a cycle, the best is returned.
    Leave-one-out keeps the other support vectors. None if no step was possible.
    """
    n = len(labels)
    support = np.ones(n, bool)
    lowest, best = np.inf, None
    for stage in _STAGES:
        for _ in range(_STEPS):
            rows = np.flatnonzero(support)
            block = matrix[rows[:, None], rows]
            block.flat[:: len(rows) + 1] += stage * ridge[rows]
            try:
                root = inverse_root(block)
            except np.linalg.LinAlgError:
                break
            solution = root.T @ (root @ labels[rows])
            margins = matrix[:, rows] @ solution
            hinge = np.maximum(0.0, 1.0 - labels * margins)
            if stage == 1.0:
                objective = float(solution @ margins[rows] + (hinge * hinge / ridge).sum())
                if objective < lowest:
                    lowest, best = objective, (rows, solution, margins, root)
            before, support = support, hinge > 0.0
            if (before == support).all() or not support.any():
                break
        if not support.any():
            support = before
    if best is None:
        return None
    rows, solution, margins, root = best
    weights = np.zeros(n)
    weights[rows] = solution
    loo = margins.copy()
    loo[rows] = labels[rows] - solution / np.einsum("ij,ij->j", root, root)
    return _Fit(weights, margins, loo)


def _plane(features: Floats, labels: Floats, ridge: Floats) -> _Fit:
    """The same machine for the linear kernel, by its d + 1 features."""
    margins = np.zeros(len(labels))
    for stage in _STAGES:
        for _ in range(_STEPS):
            support = labels * margins < 1.0
            rows = features[support]
            weighted = rows / (stage * ridge[support, None])
            hessian = rows.T @ weighted
            hessian.flat[:: len(hessian) + 1] += 1.0
            weights = np.linalg.solve(hessian, weighted.T @ labels[support])
            margins = features @ weights
            if ((labels * margins < 1.0) == support).all():
                break
    leverage = np.einsum("ij,ij->i", np.linalg.solve(hessian, rows.T).T, weighted)
    loo = margins.copy()
    loo[support] = labels[support] - (labels[support] - margins[support]) / np.maximum(1.0 - leverage, 1e-9)
    return _Fit(np.asarray(weights, np.float64), margins, loo)


def _polyhedron(features: Floats, worked: Flags, most: int, ridge: float) -> tuple[Floats, Floats]:
    """Planes that keep the successes on their side, each failure beyond the plane it is farthest beyond.

    Returns the planes as columns and the leave-one-out margins.
    """
    labels = np.where(worked, 1.0, -1.0)
    good, bad = np.flatnonzero(worked), np.flatnonzero(~worked)
    left = bad
    faces: list[Floats] = []
    while len(left) and len(faces) < most:
        rows = np.concatenate([good, left])
        # A small weight for the failures: the plane need not have all of them behind it.
        ridges = np.concatenate([np.full(len(good), ridge), np.full(len(left), 300.0 * ridge)])
        behind = _plane(features[rows], labels[rows], ridges).margins[len(good) :]
        taken = behind < -0.5 if (behind < -0.5).any() else behind <= behind.min()
        rows = np.concatenate([good, left[taken]])
        face = _plane(features[rows], labels[rows], np.full(len(rows), ridge)).weights
        faces.append(face)
        left = left[features[left] @ face >= 0.0]
    owner = np.full(len(bad), -1)
    for _ in range(_ROUNDS):
        before, owner = owner, (features[bad] @ np.stack(faces, axis=1)).argmin(axis=1)
        if (before == owner).all():
            break
        members = [np.concatenate([good, bad[owner == j]]) for j in np.unique(owner)]
        fits = [_plane(features[rows], labels[rows], np.full(len(rows), ridge)) for rows in members]
        faces = [each.weights for each in fits]
    planes = np.stack(faces, axis=1)
    margins = features @ planes
    for j, (rows, each) in enumerate(zip(members, fits, strict=True)):
        margins[rows, j] = each.loo
    return planes, margins.min(axis=1)
