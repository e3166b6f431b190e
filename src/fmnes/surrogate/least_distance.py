"""Least distances under linear inequalities, by active sets.

C. Lawson and R. Hanson, "Solving Least Squares Problems", 1974, chapter 23.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def least_distance(a: Floats, b: Floats, first: Flags | None = None) -> tuple[Floats, Floats] | None:
    """The shortest z with a z ≤ −b and its multipliers u, z = −aᵀu; None if there is none.

    first: the rows with a multiplier, as a guess that saves time. (k,)
    """
    d = a.shape[1]
    zero = np.zeros(d)
    if not (b > 0).any():
        return zero, np.zeros(len(b))
    E = np.concatenate([-a.T, b[None]])
    target = np.append(zero, 1.0)
    u = nonnegative_least_squares(E, target, first)
    residual = E @ u - target
    if abs(residual[-1]) < 1e-10:
        return None
    step: Floats = -residual[:-1] / residual[-1]
    return (step, -u / residual[-1]) if np.isfinite(step).all() else None


def nonnegative_least_squares(E: Floats, target: Floats, first: Flags | None = None) -> Floats:
    """argmin |E u − target| over u ≥ 0. first: where u > 0, as a guess that saves time. (n,)"""
    n = E.shape[1]
    u, passive = np.zeros(n), np.zeros(n, dtype=bool)
    if first is not None and 0 < np.count_nonzero(first) <= len(E):
        passive = first.copy()
        while passive.any():
            best = np.linalg.lstsq(E[:, passive], target, rcond=None)[0]
            if (best > 0).all():
                u[passive] = best
                break
            passive[passive] = best > 0
    for _ in range(3 * (min(E.shape) + 1) + 10):
        slope = E.T @ (target - E @ u)
        slope[passive] = -np.inf
        j = int(slope.argmax())
        if not slope[j] > 1e-10:
            break
        passive[j] = True
        while True:
            chosen = np.flatnonzero(passive)
            best = np.linalg.lstsq(E[:, chosen], target, rcond=None)[0]
            if (best > 0).all():
                break
            falling = best <= 0
            old = u[chosen]
            share = np.min(old[falling] / np.maximum(old[falling] - best[falling], 1e-300))
            u[chosen] = old + share * (best - old)
            u[chosen[falling & (u[chosen] <= 1e-14)]] = 0.0
            passive &= u > 0
            if not passive.any():
                best, chosen = np.zeros(0), np.zeros(0, dtype=np.intp)
                break
        u = np.zeros(n)
        u[chosen] = best
    return u
