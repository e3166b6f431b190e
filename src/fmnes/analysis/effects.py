"""Which parameters matter most: main effects of a small additive model.

The rank of the outcome is modelled as a sum of parabolas, one in the rank of each parameter. Parameters are
added one after another, the most useful first, while chance would hardly give the improvement (an F test,
corrected for the number of parameters). Ranks make the shares independent of scales.

Points that lie close together count as one point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fmnes.reading.data import Floats, distinct, evenly, on_scale

#: Largest probability that chance alone adds a parameter.
CHANCE = 0.01
#: Fewer points than this show no effects; of more than the second number some are left out.
LEAST, COMPARED = 10, 5000
#: Parameters that are named, and those that they are chosen from, by their effect alone.
NAMED, SCREENED = 10, 100


class Importance(NamedTuple):
    """How much each parameter explains by itself.

    Attributes
    ----------
    shares : dict of str to float
        The parameters that clearly matter, the most important first, and their shares of what is explained;
        the sum is 1. Empty if no parameter clearly matters.
    explained : float
        The part of the variance that these parameters explain, from 0 to 1.
    points : int
        The number of points that were compared; close points count as one.

    Examples
    --------
    >>> import fmnes
    >>> def simulate(p):
    ...     if p["layers"] < 3:
    ...         raise fmnes.Infeasible("mesh failed")
    ...     return p["layers"] + p["width"] ** 2
    >>> space = {"width": fmnes.Real(0, 1), "layers": fmnes.Integer(1, 6)}
    >>> result = fmnes.minimize(simulate, space, rng=1, keep_evaluations=True)
    >>> next(iter(fmnes.explain(result).failure.shares))  # what matters most
    'layers'
    """

    shares: dict[str, float]
    explained: float
    points: int


NOTHING = Importance({}, 0.0, 0)


def importance(points: Mapping[str, Floats], outcome: Floats, logs: frozenset[str]) -> Importance:
    """The main effects of parameters on the rank of the outcome. points: columns by name; outcome: (n,)"""
    if len(outcome) < LEAST or not points:
        return NOTHING
    x = on_scale(points, logs)
    x, y = _spread_out(x, ranks(outcome))
    n = len(y)
    y = ranks(y)  # of the points that are left
    y = y - y.mean()
    total = float(y @ y)
    if not total > 1e-12 * n:  # constant but for rounding
        return Importance({}, 0.0, n)
    basis = [_parabola(column) for column in x.T]
    chosen = _select(basis, y)
    if not chosen:
        return Importance({}, 0.0, n)
    columns = np.column_stack([basis[j] for j in chosen])
    coefficients = np.linalg.lstsq(columns, y, rcond=1e-10)[0]
    widths = np.cumsum([0, *(basis[j].shape[1] for j in chosen)])
    effects = [float(np.sum((columns[:, a:b] @ coefficients[a:b]) ** 2)) for a, b in pairwise(widths)]
    rest = y - columns @ coefficients
    names = list(points)
    ranked = sorted(zip(effects, chosen, strict=True), key=lambda one: (-one[0], one[1]))
    whole = sum(effects) or 1.0
    return Importance(
        shares={names[j]: effect / whole for effect, j in ranked},
        explained=min(max(1.0 - float(rest @ rest) / total, 0.0), 1.0),
        points=n,
    )


def ranks(values: Floats) -> Floats:
    """Ranks from 0 to 1; equal values share their mean rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    mean: Floats = middle[which] / max(len(values) - 1, 1)
    return mean


def _spread_out(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """One point and the mean outcome for each cell; all points if they fill few cells."""
    first, which = distinct(x)
    if len(first) < LEAST:
        return x, y
    mean = np.bincount(which, weights=y) / np.bincount(which)
    kept = evenly(len(first), COMPARED)
    return x[first[kept]], mean[kept]


def _parabola(column: Floats) -> Floats:
    """Orthonormal columns for the rank and its square, without the mean; fewer for one or two values."""
    rank = ranks(column)
    return _orthonormal(np.column_stack([rank, rank**2]), [])


def _orthonormal(columns: Floats, against: list[Floats]) -> Floats:
    """Centred orthonormal columns, orthogonal to others; without those that depend on the others."""
    kept: list[Floats] = []
    for column in columns.T:
        column = column - column.mean()
        before = math.sqrt(float(column @ column))
        for _ in range(2):  # twice is enough for orthogonality
            for other in [*against, *(one[:, None] for one in kept)]:
                column = column - other @ (other.T @ column)
        length = math.sqrt(float(column @ column))
        if length > 1e-6 * before and length > 1e-9:
            kept.append(column / length)
    return np.column_stack(kept) if kept else np.empty((len(columns), 0))


def _select(basis: list[Floats], y: Floats) -> list[int]:
    """The parameters that clearly matter, by forward selection."""
    n, d = len(y), len(basis)
    chosen: list[int] = []
    fitted: list[Floats] = []
    rest = y
    alone = [-float(np.sum((part.T @ y) ** 2)) for part in basis]
    screened = sorted(np.argsort(alone, kind="stable")[:SCREENED].tolist())
    while len(chosen) < min(d, NAMED):
        error = float(rest @ rest)
        freedom = n - 1 - sum(part.shape[1] for part in fitted) - 2
        if freedom < 2 or error <= 1e-12 * float(y @ y):
            break
        best, gain, part = -1, 0.0, np.empty((n, 0))
        for j in screened:
            if j in chosen:
                continue
            new = _orthonormal(basis[j], fitted)
            explained = float(np.sum((new.T @ rest) ** 2))
            if explained > gain:
                best, gain, part = j, explained, new
        # The tail of the F distribution with 2 and `freedom` degrees of freedom, times the choices.
        ratio = max(1.0 - gain / error, 1e-300)
        if best < 0 or math.log(ratio) * freedom / 2 + math.log(d) >= math.log(CHANCE):
            break
        chosen.append(best)
        fitted.append(part)
        rest = rest - part @ (part.T @ rest)
    return chosen
