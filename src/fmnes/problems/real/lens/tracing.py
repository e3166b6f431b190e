"""Rays through spherical surfaces, one surface after another, for many lenses at once.

    n, s, w, r      lenses, surfaces, wavelengths, rays of one wavelength
    c               curvature of a surface, 1/mm: positive with its centre behind it, 0 for a plane
    (x, y, z)       a point in mm from the vertex of the surface, z along the axis
    (k, l, m)       direction cosines
    μ               index before the surface over index behind it
    I, I'           angle of incidence and of refraction

A surface is c (x² + y² + z²) = 2z, its normal (−cx, −cy, 1 − cz). The formulas are Welford's (Aberrations of
Optical Systems, 1986, chapter 4): exact, and as good for a plane as for a sphere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Lenses(NamedTuple):
    """Lenses that differ in numbers only."""

    curvatures: Floats  # (n, s)
    thicknesses: Floats  # (n, s − 1), mm: from each vertex to the next
    indices: Floats  # (n, s + 1, w): before each surface, and behind the last


class Rays(NamedTuple):
    """Where rays are and where they go; each field is (n, w, r)."""

    x: Floats
    y: Floats
    z: Floats
    k: Floats
    l: Floats  # noqa: E741 (its name in every book)
    m: Floats


class Passage(NamedTuple):
    """What became of the rays at one surface."""

    rays: Rays  # on the surface, in their new direction; NaN for those that do not go on
    missed: Flags  # (n,): a ray of this lens does not meet the surface
    reflected: Flags  # (n,): a ray of this lens is totally reflected there


def trace(lenses: Lenses, rays: Rays) -> Iterator[Passage]:
    """The rays at one surface after the other; they come from the plane at the vertex of the first, z = 0.

    A ray that has failed is NaN from there on, and so counts as failed at every surface behind it too.
    """
    x, y, z, k, l, m = rays  # noqa: E741
    surfaces = lenses.curvatures.shape[1]
    ratios = lenses.indices[:, :-1] / lenses.indices[:, 1:]
    for surface in range(surfaces):
        c = lenses.curvatures[:, surface, None, None]
        ratio = ratios[:, surface, :, None]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if surface:
                z = z - lenses.thicknesses[:, surface - 1, None, None]
            # To the plane at the vertex, and from there to the surface.
            along = -z / m
            x, y = x + along * k, y + along * l
            f = c * (x * x + y * y)
            g = m - c * (x * k + y * l)
            cos_i = np.sqrt(g * g - c * f)
            along = f / (g + cos_i)
            x, y, z = x + along * k, y + along * l, along * m
            # The far half of a sphere is no surface of a lens, nor is what a ray meets on its way back.
            missed = ~((cos_i >= 0) & (c * z < 1) & (m > 0))
            cos_r = np.sqrt(1 - ratio * ratio * (1 - cos_i * cos_i))
            bend = cos_r - ratio * cos_i
            k, l, m = ratio * k - bend * c * x, ratio * l - bend * c * y, ratio * m + bend * (1 - c * z)  # noqa: E741
        lost: Flags = np.logical_or.reduce(missed, axis=(1, 2))
        reflected: Flags = np.logical_or.reduce(np.isnan(cos_r), axis=(1, 2))
        yield Passage(Rays(x, y, z, k, l, m), lost, reflected & ~lost)
