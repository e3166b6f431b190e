"""Quadratics whose minimum is held by constraints, written around that minimum so that no digits are lost.

y   x − x*, x* the optimum
H   Hessian, (d, d)
g   gradient at the optimum, (d,)
f   ½ yᵀHy + gᵀy: 0 at the optimum, which is one if every feasible y has gᵀy >= 0
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fmnes.benchmark.search.problem import Array, Problem, where
from fmnes.problems.problem import random_rotation

#: Eigenvalues of the Hessian, largest over smallest; of the separable one in the box, whose axes are known.
CONDITION, SEPARABLE_CONDITION = 1e3, 3.0


def geometric(condition: float, d: int) -> Array:
    """From 1 to the condition, in equal factors. (d,)"""
    return np.asarray(condition ** (np.arange(d) / max(d - 1, 1)))


def value(y: Array, axes: Array, curvatures: Array, g: Array) -> Array:
    """f (n,) at y (n, d), H = axesᵀ diag(curvatures) axes."""
    along = y @ axes.T
    f: Array = 0.5 * (along * along) @ curvatures + y @ g
    return f


def active_ellipsoid(name: str, d: int, active: int, seed: list[int]) -> Problem:
    """`active` planes in one random frame, the ellipsoid in another; beyond each plane it still falls."""
    axes, frame = random_rotation(d, [*seed, 0]), random_rotation(d, [*seed, 1])
    optimum = np.random.default_rng([*seed, 2]).standard_normal(d)
    normals = frame[:active]
    g = normals.sum(axis=0)
    curvatures = geometric(CONDITION, d)

    def fun(x: Array) -> Array:
        y = x - optimum
        inside = (y @ normals.T >= 0).all(-1)
        return where(inside, value(y, axes, curvatures, g))

    return Problem(name, fun, optimum + frame.T @ np.full(d, 3.0), 1.0, optimum)


def in_box(name: str, d: int, rotated: bool, seed: list[int]) -> Problem:
    """The unit box, and a centre of which about half of the coordinates lie outside."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(-0.5, 1.5, d)
    curvatures = rng.permutation(geometric(CONDITION if rotated else SEPARABLE_CONDITION, d))
    axes = random_rotation(d, [*seed, 0]) if rotated else np.eye(d)
    optimum, g = box_optimum(axes.T @ (curvatures[:, None] * axes), centre)
    return Problem(
        name,
        partial(_shifted, optimum=optimum, axes=axes, curvatures=curvatures, g=g),
        np.full(d, 0.5),
        0.25,
        optimum,
        gap=1e-8,
        bounds=(np.zeros(d), np.ones(d)),
    )


def _shifted(x: Array, optimum: Array, axes: Array, curvatures: Array, g: Array) -> Array:
    return value(x - optimum, axes, curvatures, g)


def box_optimum(hessian: Array, centre: Array) -> tuple[Array, Array]:
    """The least ½ (x − c)ᵀH(x − c) in the unit box: its x, and the gradient there, exactly 0 where x is free.

    Coordinate descent finds which bounds hold; with these the free coordinates are a linear system.
    """
    x = np.clip(centre, 0.0, 1.0)
    diagonal = np.diagonal(hessian)
    for _ in range(10_000):
        before = x.copy()
        for i in range(len(x)):
            x[i] = min(max(x[i] - hessian[i] @ (x - centre) / diagonal[i], 0.0), 1.0)
        if np.abs(x - before).max() < 1e-13:
            break
    free = (x > 0) & (x < 1)
    held = hessian[np.ix_(free, ~free)] @ (x - centre)[~free]
    x[free] = centre[free] - np.linalg.solve(hessian[np.ix_(free, free)], held)
    g = hessian @ (x - centre)
    g[free] = 0.0
    return x, g
