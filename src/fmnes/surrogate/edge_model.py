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

from fmnes.surrogate.kernels import Floats, matern52, squared_distances
from fmnes.surrogate.value_model import scale_of

Flags = NDArray[np.bool_]

#: Ridge of the support vector machines and of the faces of a polyhedron, relative to the mean square norm.
RIDGE = 1e-5
FACE_RIDGE = 1e-3
#: Above this loss, a polyhedron is tried.
POLYHEDRON_LOSS = 0.02
#: Weight of the square in the quadratic kernel.
_QUADRATIC = 0.1
#: The ridge is reached in stages, in multiples of its value, each with the most steps of Newton's method:
#: without them the steps often form a cycle. Fewer of them lose nothing where a face is fitted again.
_STAGES = ((1e3, 3), (1e2, 3), (1e1, 3), (1.0, 10))
_FACE_STAGES = ((1e1, 3), (1.0, 6))
#: How often failures are assigned to the faces again.
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


class _Plane(NamedTuple):
    weights: Floats
    margins: Floats
    support: Flags
    """The points that the weights were computed from."""


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
    ridges = np.full(n, RIDGE * size)
    plane = _plane(features, labels, ridges, _STAGES)
    loo = _leave_one_out(features, labels, ridges, plane)
    best = loss(loo), "linear", loo, points[:0], plane.weights[:, None]
    machine: tuple[Floats, Floats] | None
    gram = points @ points.T
    for kind in ("quadratic", "matern"):
        if kind == "quadratic" and (d + 1) * (d + 2) < n:
            machine = _quadratic_machine(points, labels, plane.weights)
        else:
            matrix = _KERNELS[kind](gram, np.diag(gram), np.diag(gram))
            machine = _machine(matrix, labels, RIDGE * float(np.trace(matrix)) / n, plane.margins)
        if machine is not None and (value := loss(machine[1])) < best[0] - 1e-9:
            support = machine[0] != 0.0
            best = value, kind, machine[1], points[support], machine[0][support]
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
    return 1.0 + gram + matern52(squared_distances(gram, squares_a, squares_b))


_KERNELS: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "quadratic": _quadratic,
    "matern": _matern,
}


def _machine(matrix: Floats, labels: Floats, ridge: float, start: Floats) -> tuple[Floats, Floats] | None:
    """Weights that minimise ½ aᵀKa + ½ Σ max(0, 1 − y f)²/ridge, f = Ka, and leave-one-out margins.

    A step of Newton's method is the exact minimum for its support vectors; the first are those of the margins
    `start`. If the steps form a cycle, the best is returned. Leave-one-out keeps the other support vectors.
    None if no step was possible.
    """
    n = len(labels)
    support = labels * start < 1.0
    if not support.any():
        support[:] = True
    lowest, best = np.inf, None
    for stage, steps in _STAGES:
        for _ in range(steps):
            rows = np.flatnonzero(support)
            block = matrix[rows[:, None], rows]
            block.flat[:: len(rows) + 1] += stage * ridge
            try:
                solution = np.linalg.solve(block, labels[rows])
            except np.linalg.LinAlgError:
                break
            margins = matrix[:, rows] @ solution
            hinge = np.maximum(0.0, 1.0 - labels * margins)
            if stage == 1.0:
                objective = float(solution @ margins[rows] + hinge @ hinge / ridge)
                if objective < lowest:
                    lowest, best = objective, (rows, solution, margins, block)
            before, support = support, hinge > 0.0
            if not support.any():
                support = before
            if (before == support).all():
                break
    if best is None:
        return None
    rows, solution, margins, block = best
    weights = np.zeros(n)
    weights[rows] = solution
    margins[rows] = labels[rows] - solution / np.diag(np.linalg.inv(block))
    return weights, margins


def _quadratic_machine(points: Floats, labels: Floats, start: Floats) -> tuple[Floats, Floats]:
    """The same for the quadratic kernel by its features: faster where they are fewer than the points."""
    n, d = points.shape
    i, j = np.triu_indices(d)
    factors = np.sqrt(_QUADRATIC * np.where(i == j, 1.0, 2.0))
    features = np.concatenate([np.ones((n, 1)), points, points[:, i] * points[:, j] * factors], axis=1)
    ridge = np.full(n, RIDGE * float(np.square(features).sum()) / n)
    plane = _plane(features, labels, ridge, _STAGES, np.concatenate([start, np.zeros(len(i))]))
    weights = np.where(plane.support, (labels - plane.margins) / ridge, 0.0)
    return weights, _leave_one_out(features, labels, ridge, plane)


def _plane(
    features: Floats,
    labels: Floats,
    ridges: Floats,
    stages: tuple[tuple[float, int], ...],
    start: Floats | None = None,
) -> _Plane:
    """The same machine for a kernel that is the product of these features; start: weights."""
    signed = labels[:, None] * features
    target = 1.0 / np.sqrt(ridges)
    scaled = signed * target[:, None]
    unit = np.eye(features.shape[1])
    margins = np.zeros(len(labels)) if start is None else signed @ start
    now = margins < 1.0
    lowest, best = np.inf, None
    for stage, steps in stages:
        for _ in range(steps):
            support = now
            rows = scaled[support]
            matrix = rows.T @ rows + stage * unit
            weights = np.asarray(np.linalg.solve(matrix, target[support] @ rows), np.float64)
            margins = signed @ weights
            now = margins < 1.0
            if stage == 1.0:
                hinge = (1.0 - margins[now]) * target[now]
                objective = float(weights @ weights + hinge @ hinge)
                if best is None or objective < lowest:
                    lowest, best = objective, _Plane(weights, margins, support)
            if (now == support).all():
                break
    assert best is not None
    return best._replace(margins=labels * best.margins)


def _leave_one_out(features: Floats, labels: Floats, ridges: Floats, plane: _Plane) -> Floats:
    """Margins without the point itself, for unchanged other support vectors."""
    support = plane.support
    rows = features[support]
    weighted = rows / ridges[support, None]
    inverse = np.linalg.inv(rows.T @ weighted + np.eye(rows.shape[1]))
    leverage = np.einsum("ij,ij->i", rows @ inverse, weighted)
    loo = plane.margins.copy()
    loo[support] = labels[support] - (labels - plane.margins)[support] / np.maximum(1.0 - leverage, 1e-9)
    return loo


def _polyhedron(features: Floats, worked: Flags, most: int, ridge: float) -> tuple[Floats, Floats]:
    """Planes that keep the successes on their side, each failure beyond the plane it is farthest beyond.

    Returns the planes as columns and the leave-one-out margins.
    """
    labels = np.where(worked, 1.0, -1.0)
    good, bad = np.flatnonzero(worked), np.flatnonzero(~worked)

    def face(failures: NDArray[np.intp], weight: float, start: Floats | None) -> _Plane:
        rows = np.concatenate([good, failures])
        ridges = np.full(len(rows), ridge)
        ridges[len(good) :] /= weight
        return _plane(features[rows], labels[rows], ridges, _FACE_STAGES, start)

    faces: list[Floats] = []
    left = bad
    while len(left) and len(faces) < most:
        # With a small weight, the failures need not all be beyond this plane.
        first = face(left, 1.0 / 300.0, None)
        behind = first.margins[len(good) :]
        taken = left[behind <= max(-0.5, behind.min())]
        faces.append(face(taken, 1.0, first.weights).weights)
        left = left[features[left] @ faces[-1] >= 0.0]
    fits: dict[bytes, _Plane] = {}
    owner = np.full(len(bad), -1)
    for _ in range(_ROUNDS):
        before, owner = owner, (features[bad] @ np.stack(faces, axis=1)).argmin(axis=1)
        if (before == owner).all():
            break
        members = {(owner == j).tobytes(): j for j in np.unique(owner)}
        # A face whose failures are the same stays the same.
        fits = {key: fits.get(key) or face(bad[owner == j], 1.0, faces[j]) for key, j in members.items()}
        faces = [each.weights for each in fits.values()]
    planes = np.stack(faces, axis=1)
    margins = features @ planes
    for j, (key, each) in enumerate(fits.items()):
        rows = np.concatenate([good, bad[np.frombuffer(key, bool)]])
        margins[rows, j] = _leave_one_out(features[rows], labels[rows], np.full(len(rows), ridge), each)
    return planes, margins.min(axis=1)
