"""A literal, slow S-system: the equation gene by gene, and Runge and Kutta's method with one small step."""

from __future__ import annotations

from collections.abc import Sequence


def slope(
    x: Sequence[float],
    alpha: Sequence[float],
    beta: Sequence[float],
    g: Sequence[Sequence[float]],
    h: Sequence[Sequence[float]],
) -> list[float]:
    """dX_i/dt = α_i Π_j X_j^g_ij − β_i Π_j X_j^h_ij."""
    changes = []
    for i in range(len(x)):
        made, lost = alpha[i], beta[i]
        for j in range(len(x)):
            made *= x[j] ** g[i][j]
            lost *= x[j] ** h[i][j]
        changes.append(made - lost)
    return changes


def integrate(x: Sequence[float], network: tuple, time: float, steps: int) -> list[float]:
    """Where the concentrations are after that time."""
    step = time / steps
    x = list(x)
    for _ in range(steps):
        a = slope(x, *network)
        b = slope([x[i] + step / 2 * a[i] for i in range(len(x))], *network)
        c = slope([x[i] + step / 2 * b[i] for i in range(len(x))], *network)
        d = slope([x[i] + step * c[i] for i in range(len(x))], *network)
        x = [x[i] + step / 6 * (a[i] + 2 * b[i] + 2 * c[i] + d[i]) for i in range(len(x))]
    return x
