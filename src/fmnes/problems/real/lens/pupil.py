"""The rays of which a spot is made: through which points of the entrance pupil they go, and from where."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from fmnes.problems.real.lens.specification import Specification
from fmnes.problems.real.lens.tracing import Floats, Rays

#: Rings and arms of rays in half of the pupil, the other half being its mirror image.
RINGS, ARMS = 4, 4


class Pupil(NamedTuple):
    """Rays through the pupil, of which the one with x > 0 stands for its mirror image as well; each (p,)."""

    x: Floats  # as parts of its radius
    y: Floats
    weights: Floats  # sum 1; 0 for rays that only have to pass


@cache
def half_pupil(rings: int = RINGS, arms: int = ARMS) -> Pupil:
    """Rays that integrate over the pupil by Gauss' rule in the square of the radius (Forbes 1988), and three
    at its rim, which decide how large the surfaces must be."""
    nodes, weights = np.polynomial.legendre.leggauss(rings)
    radius, angle = np.meshgrid(np.sqrt((1 + nodes) / 2), np.pi * ((np.arange(arms) + 0.5) / arms - 0.5))
    x, y = (radius * np.cos(angle)).ravel(), (radius * np.sin(angle)).ravel()
    each = np.tile(weights / 2 / arms, arms)
    rim = np.zeros(3)
    pupil = Pupil(np.append(x, [0, 0, 1]), np.append(y, [1, -1, 0]), np.append(each, rim))
    for array in pupil:
        array.flags.writeable = False
    return pupil


def launch(entrance: Floats, x: Floats, y: Floats, wanted: Specification) -> Rays:
    """Rays of all fields in the plane of the first vertex, (n, w, f p), one field after the other.

    entrance: (n,), mm from there to the entrance pupil. x, y: (p,), the points of it through which they go,
    as parts of its radius.
    """
    radius = wanted.focal_length / wanted.f_number / 2
    angle = np.repeat(np.radians(wanted.fields), len(x))
    shape = (len(entrance), len(wanted.wavelengths), len(angle))
    across = np.broadcast_to(radius * np.tile(x, len(wanted.fields)), shape)
    with np.errstate(invalid="ignore"):
        up = radius * np.tile(y, len(wanted.fields)) - entrance[:, None, None] * np.tan(angle)
    zero = np.zeros(shape)
    return Rays(
        across,
        np.broadcast_to(up, shape),
        zero,
        zero,
        np.broadcast_to(np.sin(angle), shape),
        np.broadcast_to(np.cos(angle), shape),
    )
