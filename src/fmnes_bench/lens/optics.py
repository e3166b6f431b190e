"""Optics: rays through spherical surfaces, the focal length and the pupil."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes_bench.lens.specification import Specification

# -- Ray tracing through spherical surfaces, for many lenses at once.
#
#     n, s, w, r      lenses, surfaces, wavelengths, rays of one wavelength
#     c               curvature of a surface, 1/mm: positive with its centre behind it, 0 for a plane
#     (x, y, z)       a point in mm from the vertex of the surface, z along the axis
#     (k, l, m)       direction cosines
#     μ               index before the surface over index behind it
#     I, I'           angle of incidence and of refraction
#
# A surface is c (x² + y² + z²) = 2z, its normal (−cx, −cy, 1 − cz). The formulas are Welford's (Aberrations
# of Optical Systems, 1986, chapter 4): exact, and valid for planes and spheres.


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
            # The far half of a sphere does not count, nor does an intersection on the way back.
            missed = ~((cos_i >= 0) & (c * z < 1) & (m > 0))
            cos_r = np.sqrt(1 - ratio * ratio * (1 - cos_i * cos_i))
            bend = cos_r - ratio * cos_i
            k, l, m = ratio * k - bend * c * x, ratio * l - bend * c * y, ratio * m + bend * (1 - c * z)  # noqa: E741
        lost: Flags = np.logical_or.reduce(missed, axis=(1, 2))
        reflected: Flags = np.logical_or.reduce(np.isnan(cos_r), axis=(1, 2))
        yield Passage(Rays(x, y, z, k, l, m), lost, reflected & ~lost)


# -- Rays close to the axis: the focal length and the entrance pupil.
#
# y, u        height and slope of a ray close to the axis; a surface changes u only:
#             n' u' = n u − y c (n' − n)
# f           focal length: a ray that comes in parallel at height y_1 leaves with u' = −y_1 / f


class Paraxial(NamedTuple):
    """Each field is (n,); not finite for an impossible lens."""

    last_curvature: Floats  # 1/mm, which gives the lens its focal length
    back_focus: Floats  # mm from the last vertex
    pupil: Floats  # mm from the first vertex to the entrance pupil, which is the image of the stop


def solve(
    curvatures: Floats, thicknesses: Floats, indices: Floats, stop: int, focal_length: float
) -> Paraxial:
    """The last curvature that gives each lens its focal length, and what follows from it.

    curvatures: (n, s − 1), of all surfaces but the last. thicknesses: (n, s − 1). indices: (n, s + 1), at one
    wavelength. stop: the position of the surface that is the stop, from 0.
    """
    last = thicknesses.shape[1]
    # Two rays: parallel to the axis at height 1, and through the first vertex with slope 1.
    y = np.broadcast_to([1.0, 0.0], (len(curvatures), 2))
    nu = np.broadcast_to([0.0, 1.0], (len(curvatures), 2))
    heights = [y]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for surface in range(last):
            power = curvatures[:, surface] * (indices[:, surface + 1] - indices[:, surface])
            nu = nu - y * power[:, None]
            y = y + nu * (thicknesses[:, surface] / indices[:, surface + 1])[:, None]
            heights.append(y)
        curvature = (nu[:, 0] + 1 / focal_length) / (y[:, 0] * (indices[:, -1] - indices[:, -2]))
        pupil = heights[stop][:, 1] / heights[stop][:, 0]
        return Paraxial(curvature, y[:, 0] * focal_length, pupil)


# -- The rays that form a spot: their points in the entrance pupil and their directions.


#: Rings and arms of rays in half of the pupil, the other half being its mirror image.
RINGS, ARMS = 4, 4


class Pupil(NamedTuple):
    """Rays through the pupil, each (p,); a ray with x > 0 also represents its mirror image."""

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
