"""The minimum of a modelled objective under modelled limits: sequential quadratic programming.

Each step minimises the quadratic of the Lagrangian under the linearised limits: a least distance in the
coordinates in which that quadratic is round. Only models are evaluated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.surrogate import output_models
from fmnes.surrogate.least_distance import least_distance
from fmnes.surrogate.output_models import OutputModels

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Most steps, and halvings of a step.
STEPS, HALVINGS = 12, 5
#: The smallest curvature of the quadratic, as a share of the largest, or of the slope over the reach.
LEAST_CURVATURE, LEAST_OF_SLOPE = 1e-9, 1e-3
#: Where no point satisfies the linearised limits: the length by which all may be violated, as a share of one.
ELASTIC = 1e-3
#: Limits that are linearised, per dimension: the nearest ones.
MOST = 6
#: A violation costs this multiple of its multiplier.
PENALTY = 2.0
#: The search ends after a step shorter than this share of the reach.
SHORTEST = 1e-9


class Minimum(NamedTuple):
    z: Floats
    predicted: Floats
    """The outputs there: f, and then the g. (1 + m,)"""
    multipliers: Floats
    """What a unit of each g is worth, in units of the modelled f. (m,)"""


def minimise(
    models: OutputModels, start: Floats, low: Floats, high: Floats, equality: Flags, slack: Floats
) -> Minimum:
    """Minimise the first output while the others stay at most `slack`, or in between ±slack if equalities.

    Parameters
    ----------
    models : OutputModels
        Of f and m numbers g.
    start : (d,) array
        Where to begin, between `low` and `high`.
    low, high : (d,) arrays
        Finite bounds.
    equality : (m,) array of bool
        Which g are equalities.
    slack : (m,) array
        Less than 0: a margin.
    """
    z = start
    reach = max(float((high - low).max()), 1e-300)
    unit = models.unit
    multipliers = penalties = np.zeros(len(equality))
    values = output_models.predict(models, z[None])[0] / unit
    limit = slack / unit[1:]

    def merit(values: Floats) -> float:
        return float(values[0] + penalties @ _beyond(values[1:], equality, limit))

    active = np.zeros(2 * (len(equality) + len(z)), dtype=bool)
    for _ in range(STEPS):
        gradients = output_models.slopes(models, z) / unit[:, None]
        shares = np.append(1.0, multipliers) / unit
        found = _quadratic_step(
            gradients, values[1:], output_models.curvature(models, z, shares),
            low - z, high - z, equality, limit, reach, active,
        )  # fmt: skip
        if found is None:
            break
        step, multipliers, active = found
        penalties = np.maximum(penalties, PENALTY * np.abs(multipliers))
        before, length, moved = merit(values), 1.0, False
        for _ in range(HALVINGS):
            new = np.clip(z + length * step, low, high)
            new_values = output_models.predict(models, new[None])[0] / unit
            if np.isfinite(new_values).all() and merit(new_values) < before:
                moved = True
                break
            length *= 0.4
        if not moved:
            break
        short = float(np.abs(new - z).max()) < SHORTEST * reach
        z, values = new, new_values
        if short:
            break
    return Minimum(z, values * unit, multipliers * unit[0] / unit[1:])


def _beyond(g: Floats, equality: Flags, limit: Floats) -> Floats:
    beyond: Floats = np.where(equality, np.maximum(np.abs(g) - limit, 0.0), np.maximum(g - limit, 0.0))
    return beyond


def _quadratic_step(
    gradients: Floats,
    g: Floats,
    hessian: Floats,
    low: Floats,
    high: Floats,
    equality: Flags,
    limit: Floats,
    reach: float,
    active: Flags,
) -> tuple[Floats, Floats, Flags] | None:
    """The step to the minimum of the quadratic under the linearised limits, and its multipliers.

    active: which limits, from above and from below, and which bounds hold the step back: a guess, from the
    step before; the last result is the answer. (2 (m + d),)
    """
    d, m = len(low), len(g)
    slope, a = gradients[0], gradients[1:]
    curvatures, axes = np.linalg.eigh(hessian)
    size = math.sqrt(slope @ slope)
    least = max(LEAST_CURVATURE * float(np.abs(curvatures).max()), LEAST_OF_SLOPE * size / reach, 1e-100)
    inverse = axes / np.sqrt(np.maximum(curvatures, least))  # step = inverse y
    middle = -(inverse.T @ slope)  # the minimum without limits
    lengths = np.sqrt(np.einsum("ij,ij->i", a, a))
    usable = np.isfinite(g) & np.isfinite(lengths) & (lengths > 0)
    upper = np.concatenate([g - limit, -g - limit])  # a step s must have rows s ≤ −upper
    rows = np.concatenate([a, -a])
    both = np.concatenate([lengths, lengths])
    with np.errstate(all="ignore"):
        distance = upper / both
    near = np.concatenate([usable, usable & equality])
    near &= distance > -2.0 * reach * math.sqrt(d)
    kept = np.flatnonzero(near)
    if len(kept) > MOST * d + 10:
        kept = np.sort(kept[np.argsort(-distance[kept], kind="stable")[: MOST * d + 10]])
    C = np.concatenate([rows[kept], np.eye(d), -np.eye(d)]) @ inverse
    e = np.concatenate([upper[kept], -high, low]) + C @ middle
    norms = np.sqrt(np.einsum("ij,ij->i", C, C))
    good = norms > 0
    largest = float(np.abs(e[good] / norms[good]).max(initial=0.0))
    if not 0 < largest < math.inf:
        return None
    C, e, norms = C[good] / norms[good, None], e[good] / norms[good] / largest, norms[good]
    ids = np.concatenate([kept, np.arange(2 * m, 2 * (m + d))])[good]
    found = least_distance(C, e, active[ids])
    if found is None:  # all limits give way by the same measure; the bounds are met by clipping
        elastic = np.concatenate([C, -ELASTIC * np.eye(len(C))], axis=1) / math.hypot(1.0, ELASTIC)
        found = least_distance(elastic, e / math.hypot(1.0, ELASTIC), active[ids])
        if found is None:
            return None
        found = found[0][:d], found[1] / math.hypot(1.0, ELASTIC)
    y, u = found
    step = inverse @ (middle + largest * y)
    multipliers = np.zeros(2 * m)
    rows_of = np.flatnonzero(good)
    of_limits = rows_of < len(kept)
    multipliers[kept[rows_of[of_limits]]] = (largest * u / norms)[of_limits]
    if not np.isfinite(step).all():
        return None
    active = np.zeros(len(active), dtype=bool)
    active[ids[u > 0]] = True
    return step, multipliers[:m] - multipliers[m:], active
