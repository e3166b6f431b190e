"""The formulas of the test problems, each written once.

    x       points, (..., d): one point or a batch; i counts coordinates from 1
    xp      the array namespace of x: numpy or jax.numpy
    f       formula, (xp, x) -> (...)
    S       region of feasible points, (xp, x) -> booleans (...); its boundary belongs to it

Objectives and regions are those of Table I unless a docstring says otherwise. The functions are at module
level and take their coefficients as arguments, so that a problem can be pickled and sent to a worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any  # a NumPy or a JAX array; JAX is never imported here
Vector = NDArray[np.float64]


def dot(xp: Any, a: Array, b: Array) -> Array:
    """Σ a_i b_i over the last axis; a and b are (..., d) or broadcast to it."""
    if xp is np:
        # The fastest on small batches, and each row is summed alone: a point has one value in every batch.
        return np.vecdot(a, b)
    # Not a dot product to JAX, which by default may give those fewer digits (10 bits on recent GPUs).
    return (a * b).sum(-1)


# Formulas


def sphere(xp: Any, x: Array) -> Array:
    """Σ x_i²; x is (..., d)."""
    return dot(xp, x, x)


def scaled_sphere(xp: Any, x: Array, scale: Vector) -> Array:
    """Σ (s_i x_i)²; x is (..., d), scale is s, (d,). The ellipsoid, the cigar and the k-tablet are this."""
    y = xp.asarray(scale, dtype=x.dtype) * x  # the dtype of x, so that float32 stays float32
    return dot(xp, y, y)


def rosenbrock(xp: Any, x: Array) -> Array:
    """Σ_{i<d} (100 (x_{i+1} − x_i²)² + (x_i − 1)²); x is (..., d), d >= 2."""
    head = x[..., :-1]
    curve = x[..., 1:] - head * head
    offset = head - 1
    return 100 * dot(xp, curve, curve) + dot(xp, offset, offset)


def product_of_shifts(xp: Any, x: Array, left: Vector, right: Vector) -> Array:
    """Σ (x_i + left_i)(x_i + right_i); x is (..., d), left and right are (d,)."""
    return dot(xp, x + xp.asarray(left, dtype=x.dtype), x + xp.asarray(right, dtype=x.dtype))


# Coefficients


def ellipsoid_scale(d: int) -> Vector:
    """s_i = 1000^((i−1)/(d−1)), (d,): condition 10⁶. At d = 1 the exponent is 0/0; we take s_1 = 1."""
    return 1000.0 ** (np.arange(d) / max(d - 1, 1))


def cigar_scale(d: int, coefficient: float) -> Vector:
    """s_1 = 1, s_i = coefficient for i > 1, (d,).

    Table I prints 100, but the results of the paper are those of 1000 (condition 10⁶): with 100 every method
    needs clearly fewer evaluations than the paper reports (CMA-ES 11.8k against 17.0k), with 1000 all agree
    (16.8k). So 1000 is our default, and 100 gives the problem as printed.
    """
    scale = np.full(d, float(coefficient))
    scale[0] = 1.0
    return scale


def k_tablet_scale(d: int, k: int) -> Vector:
    """s_i = 1 for i <= k, 100 for i > k, (d,). Not in Table I; a usual test in high dimension."""
    return np.where(np.arange(d) < k, 1.0, 100.0)


def active_shifts(d: int, active: int) -> tuple[Vector, Vector]:
    """The shifts (0, 2) of the active coordinates, i <= active, and (1, 1) of the others; both (d,).

    With them `product_of_shifts` is Σ_{i<=active} x_i(x_i + 2) + Σ_{i>active} (x_i + 1)², which equals
    Σ (x_i + 1)² − active. Written as products it keeps its digits near the minimum 0, where the
    difference of two numbers near `active` would lose them.
    """
    is_active = np.arange(d) < active
    return np.where(is_active, 0.0, 1.0), np.where(is_active, 2.0, 1.0)


# Regions


def not_negative(xp: Any, x: Array, count: int | None = None) -> Array:
    """x_i >= 0 for i <= count, or for every i; x is (..., d)."""
    return (x[..., :count] >= 0).all(-1)


def at_most_one(xp: Any, x: Array) -> Array:
    """x_i <= 1 for every i; x is (..., d)."""
    return (x <= 1).all(-1)
