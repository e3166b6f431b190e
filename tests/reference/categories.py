"""The update of categories of CatCMA with margin (Hamano et al. 2025), whose learning rate is ASNG's
(Akimoto et al. 2019): one probability at a time.

It departs from the papers in two places: U has all K_j components of a category instead of K_j − 1, with the
same length; and the weights are FM-NES's rank weights of the points that succeed.
"""

from __future__ import annotations

import math


def begin(counts):
    """q_jk = 1/K_j, s = 0, γ = 0, Δ = 1."""
    return {
        "q": [[1 / K for _ in range(K)] for K in counts],
        "s": [[0.0] * K for K in counts],
        "gamma": 0.0,
        "Delta": 1.0,
    }


def weights(n):
    """Of n points in order: ŵ_i = max(0, ln(n/2 + 1) − ln i), divided by their sum."""
    raw = [max(0.0, math.log(n / 2 + 1) - math.log(i)) for i in range(1, n + 1)]
    return [w / sum(raw) for w in raw]


def update(state, chosen, n_feasible, q_min, alpha):
    """chosen[i][j]: the choice of category j at the i-th best point; failed points come last."""
    if n_feasible == 0:
        return state
    w = weights(n_feasible)
    q = state["q"]
    G = [[0.0] * len(row) for row in q]
    for j, row in enumerate(q):
        for k in range(len(row)):
            for i in range(n_feasible):
                c = 1.0 if chosen[i][j] == k else 0.0
                G[j][k] += w[i] * (c - row[k])
    U = [[G[j][k] / math.sqrt(q[j][k]) for k in range(len(q[j]))] for j in range(len(q))]
    length = math.sqrt(sum(u * u for row in U for u in row))
    if length == 0:
        return state
    delta = 1 / state["Delta"]
    N = sum(len(row) - 1 for row in q)
    beta = delta / math.sqrt(N)

    new_q = []
    for j, row in enumerate(q):
        moved = [max(row[k] + delta * G[j][k] / length, q_min[j]) for k in range(len(row))]
        total = sum(moved)
        spare = total - len(row) * q_min[j]
        new_q.append([p + (1 - total) * (p - q_min[j]) / spare for p in moved])
    keep, gain = 1 - beta, math.sqrt(beta * (2 - beta))
    s = [[keep * state["s"][j][k] + gain * U[j][k] / length for k in range(len(q[j]))] for j in range(len(q))]
    gamma = keep**2 * state["gamma"] + beta * (2 - beta)
    norm2 = sum(value * value for row in s for value in row)
    return {
        "q": new_q,
        "s": s,
        "gamma": gamma,
        "Delta": state["Delta"] * math.exp(beta * (gamma - norm2 / alpha)),
    }
