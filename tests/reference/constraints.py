"""The rule for limits on outputs, written down literally: one search on an unbounded space, with plain loops.

It follows the formulas of `search/constrained.py`; the strategy is the package's, everything else is here.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

import fmnes
from fmnes.strategies.base import rank


def spread(v):
    return (np.percentile(v, 75) - np.percentile(v, 25)) / 1.349


def shortest(c, slopes, margin, equality, tolerance):
    """The shortest step z with c + slopes z within the limits and their margins; None if there is none."""
    normal, offset = [], []
    for j, slope in enumerate(slopes):
        length = np.linalg.norm(slope)
        slack = max(tolerance[j] - margin[j], 0.0) if equality[j] else -margin[j]
        for sign in (1.0, -1.0) if equality[j] else (1.0,):
            far = (sign * c[j] - slack) / length
            if far > -3:
                normal.append(sign * slope / length)
                offset.append(far)
    d = slopes.shape[1]
    if not any(far > 0 for far in offset):
        return np.zeros(d)
    E = np.vstack([-np.array(normal).T, offset])
    target = np.append(np.zeros(d), 1.0)
    u, _ = nnls(E, target)
    residual = E @ u - target
    return None if abs(residual[-1]) < 1e-10 else -residual[:-1] / residual[-1]


def trajectory(fun, x0, sigma0, equality, tolerance, seed, generations):
    """Points, in the order of evaluation. fun(x) -> (f, g); f is NaN where it fails, and g ≤ 0 or = 0."""
    d, m = len(x0), len(equality)
    rng = np.random.default_rng(seed)
    strategy = fmnes.AFMNES()
    state = strategy.init(np.array(x0, float), np.float64(sigma0), rng.standard_normal(d))
    base = strategy.default_population_size(d)
    lam, omega, rho = [0.0] * m, [0.0] * m, [1.0] * m
    on, margin = [False] * m, [0.0] * m
    seen, projected, visited = [], None, []

    def penalty(g):
        total = 0.0
        for j in range(m):
            if not on[j]:
                continue
            if equality[j] or lam[j] + omega[j] * g[j] > 0:
                total += lam[j] * g[j] + omega[j] * g[j] ** 2 / 2
            else:
                total += -(lam[j] ** 2) / (2 * omega[j])
        return total

    def violated(g):
        return any((abs(g[j]) - tolerance[j] if equality[j] else g[j]) > 0 for j in range(m))

    for _ in range(generations):
        size = int(strategy.next_population_size(state, base))
        z = rng.standard_normal((size // 2, d))
        points = list(strategy.sample(state, z))
        found = [fun(x) for x in points]
        visited += points
        if projected is not None:
            x, predicted, slopes = projected
            f, g = fun(x)
            visited.append(x)
        # Evaluations in slot order: the projected point is the last one.
        for point, (value, own) in zip(points, found, strict=True):
            if np.isfinite(value):
                seen.append((point, own))
        if projected is not None and np.isfinite(f):
            seen.append((x, g))
            for j in range(m):
                if equality[j]:
                    beyond, error = abs(g[j]) - tolerance[j], abs(g[j] - predicted[j])
                else:
                    beyond, error = g[j], g[j] - predicted[j]
                grown = max(2 * margin[j], 1.5 * error) if beyond > 0 else 0.7 * margin[j]
                margin[j] = min(grown, np.linalg.norm(slopes[j]))
        if len(seen) > 6 * (d + 2):
            seen = seen[-4 * (d + 2) :]
        f = np.array([value for value, _ in found])
        worked = [i for i in range(size) if np.isfinite(f[i])]
        G = np.array([found[i][1] for i in worked])
        if len(worked) >= 3:
            s = [max(spread(G[:, j]), 1e-6 * G[:, j].std()) for j in range(m)]
            for j in range(m):
                if not on[j] and (equality[j] or (G[:, j] > 0).any()):
                    on[j] = True
                    omega[j] = spread(f[worked]) / (np.sqrt(d) * s[j] ** 2)
        L = np.full(size, np.nan)
        for i in worked:
            L[i] = f[i] + penalty(found[i][1])
        state = strategy.update(state, z, *rank(strategy, z, L))
        if len(worked) >= 3:
            pairs = [k for k in range(size // 2) if np.isfinite(f[2 * k]) and np.isfinite(f[2 * k + 1])]
            for j in range(m):
                both = [(found[2 * k][1][j] + found[2 * k + 1][1][j]) / 2 for k in pairs]
                middle = np.median(both) if both else np.mean(G[:, j])
                size_of = abs(middle) if equality[j] else middle
                if on[j] and size_of > s[j]:
                    rho[j] *= 2 ** (1 / np.sqrt(d))
                else:
                    rho[j] = max(1.0, rho[j] * 2 ** (-1 / (4 * np.sqrt(d))))
                if on[j] and (equality[j] or lam[j] + omega[j] * (middle + s[j]) > 0):
                    unit = spread(L[worked])
                    if equality[j] and abs(middle) <= s[j] and spread(f[worked]) > 0:
                        unit = min(unit, spread(f[worked]))
                    wanted = rho[j] * unit / (np.sqrt(d) * s[j] ** 2)
                    rate = 0.5 / (1 + np.sqrt(d))
                    omega[j] = np.exp((1 - rate) * np.log(omega[j]) + rate * np.log(wanted))
                if on[j]:
                    at_most = s[j] if equality[j] else np.inf
                    lam[j] += omega[j] * min(max(middle, -at_most), at_most) / 5
                    if not equality[j]:
                        lam[j] = max(0.0, lam[j])
        projected = None
        if not any(violated(own) for own in G):
            continue
        # Linear models in the draws of the new distribution.
        Z = [strategy.coordinates(state, point[None])[0] for point, _ in seen]
        near = sorted(range(len(Z)), key=lambda i: Z[i] @ Z[i])[: 3 * (d + 1)]
        if len(near) < d + 2:
            continue
        rows = np.array([np.append(1.0, Z[i]) / (1 + Z[i] @ Z[i] / (2 * d)) for i in near])
        targets = np.array([seen[i][1] / (1 + Z[i] @ Z[i] / (2 * d)) for i in near])
        ridge = 1e-6 * np.eye(d + 1)
        ridge[0, 0] = 1e-12
        solution = np.linalg.solve(rows.T @ rows + ridge, rows.T @ targets)
        c, slopes = solution[0], solution[1:].T
        step = shortest(c, slopes, margin, equality, tolerance)
        if any(margin) and (step is None or np.linalg.norm(step) >= np.sqrt(d)):
            step = shortest(c, slopes, [0.0] * m, equality, tolerance)
        if step is None or np.linalg.norm(step) >= 10 * np.sqrt(d):
            step = np.zeros(d)
        length = np.linalg.norm(step)
        axes = np.array(strategy.sample(state._replace(mean=np.zeros(d)), np.eye(d))[0::2]).T
        mean = np.array(state.mean)
        projected = mean + axes @ step, c + slopes @ step, slopes
        if 1 < length < 3 * np.sqrt(d):
            state = state._replace(mean=mean + axes @ step * (1 - 1 / length))
    return np.array(visited), np.array(lam)
