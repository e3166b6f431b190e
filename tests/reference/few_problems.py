"""The formulas of the shared problems of `fmnes bench few`, written densely and independently."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def get(name: str, d: int, instance: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """The objective, the start and the bounds. The order of the draws is part of the definition."""
    r = np.random.default_rng([sum(map(ord, name)), d, instance])
    c, Q, h = r.uniform(-2, 2, d), np.linalg.qr(r.normal(size=(d, d)))[0], max(1, d // 2)
    u, ok, x0 = np.arange(d) / max(1, d - 1), lambda x: True, None
    if name == "sphere":
        f, x0 = lambda x: ((x - c) ** 2).sum(), r.uniform(-4, 4, d)
    elif name == "rell":
        f, x0 = lambda x: ((100.0**u * (Q @ (x - c))) ** 2).sum(), r.uniform(-4, 4, d)
    elif name == "rosen":
        f = lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (x[:-1] - 1) ** 2).sum()  # noqa: E731
        x0 = r.uniform(-2, 0.5, d)
    elif name == "ic-sphere":
        f, ok, x0 = lambda x: ((x - c) ** 2).sum(), lambda x: (x >= c).all(), c + r.uniform(1.5, 3, d)
    elif name in ("active1", "activeh", "aellh"):
        A = Q[: 1 if name == "active1" else h]
        R = np.linalg.qr(r.normal(size=(d, d)))[0] if name == "aellh" else None
        t = r.uniform(0.5, 2, len(A))
        if R is None:
            g = A.T @ t
            f = lambda x: ((x - c) ** 2).sum() + g @ (x - c)  # noqa: E731
        else:
            g = A.T @ t * 10
            f = lambda x: ((30.0**u * (R @ (x - c))) ** 2).sum() + g @ (x - c)  # noqa: E731
        ok, x0 = lambda x: (A @ (x - c) >= 0).all(), c + A.T @ np.full(len(A), 2.0)
    elif name == "curved":
        g = r.normal(size=d)
        g /= np.linalg.norm(g)
        f, ok, x0 = lambda x: g @ (x - c) + 3.0, lambda x: ((x - c) ** 2).sum() <= 9, c.copy()
    elif name == "narrow":
        f = lambda x: ((x - c) ** 2).sum()  # noqa: E731
        ok = lambda x: abs((x[0] - c[0]) - 0.3 * (x[1] - c[1]) ** 2) < 0.25  # noqa: E731
        x0 = c.copy()
        x0[1] += 2.5
        x0[0] += 0.3 * 6.25
        x0[2:] += 1.5
    elif name == "bumpy":
        f = lambda x: ((x - c) ** 2).sum() + 2 * (1 - np.cos(3 * (x - c))).sum()  # noqa: E731
        ok, x0 = lambda x: (x - c).sum() > -1, c + r.uniform(1, 2.5, d)
    elif name == "logcliff":
        f = lambda x: math.exp(min(50.0, 0.8 * np.abs(Q @ (x - c)).sum())) - 1  # noqa: E731
        ok, x0 = lambda x: x[0] >= c[0] - 0.5, c + r.uniform(0.5, 2.5, d)
    else:
        assert name == "island"
        w = r.uniform(0.8, 3, d)
        f = lambda x: ((x - c) ** 2).sum() * (1 + 0.3 * np.sin(3 * x[0]))  # noqa: E731
        ok = lambda x: (np.abs(Q @ (x - c) - 0.6 * w) <= w).all()  # noqa: E731
        x0 = c + Q.T @ (1.2 * w)
    lower, upper = np.minimum(-5.0, x0 - 0.5), np.maximum(5.0, x0 + 0.5)

    def fun(x: np.ndarray) -> float:
        inside = (x >= lower - 1e-12).all() and (x <= upper + 1e-12).all()
        return float(f(x)) if inside and ok(x) else math.nan

    return fun, x0, lower, upper
