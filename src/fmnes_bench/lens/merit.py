"""How good lenses are: the size of the spots that they make of points far away, or why there are none.

    n, s, w, f, p       lenses, surfaces, wavelengths, fields, rays of one field through the pupil

As lens designers do it: the last curvature is not searched but solved for the focal length, so thicknesses
keep their millimetres and no evaluation is spent on lenses of another focal length; the image plane is where
the spots of all fields and wavelengths are smallest together, as one would focus the lens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes_bench.lens.optics import Floats, Lenses, Rays, half_pupil, launch, solve, trace
from fmnes_bench.lens.specification import Specification

Codes = NDArray[np.int64]

#: Why a lens has no spot; the numbers are those of the surface and the next one, from 1.
REASONS = (
    "",
    "the focal length does not exist: the light crosses the axis before the last surface",
    "the entrance pupil is at infinity",
    "a ray misses surface {0}",
    "a ray is totally reflected at surface {0}",
    "negative thickness between surfaces {0} and {1}",
    "negative edge thickness between surfaces {0} and {1}",
    "edge too thin between surfaces {0} and {1}",
    "the image is not behind the lens",
)
GOOD, NO_FOCAL_LENGTH, NO_PUPIL, MISSED, REFLECTED, NEGATIVE, NEGATIVE_EDGE, THIN_EDGE, NO_IMAGE = range(9)


class Quality(NamedTuple):
    """Of n lenses; NaN for a lens without a spot."""

    spot: Floats  # (n,), µm: root mean square distance from the middle of the spot, over all fields
    spots: Floats  # (n, f), µm: of each field
    focus: Floats  # (n,), mm from the last vertex to the image
    code: Codes  # (n,): a position in REASONS
    surface: Codes  # (n,): the surface at fault, from 1, or 0
    lenses: Lenses  # with their last curvatures

    def reason(self, lens: int) -> str:
        """Why the lens has no spot; empty if it has one."""
        surface = int(self.surface[lens])
        return REASONS[self.code[lens]].format(surface, surface + 1)


def quality(
    curvatures: Floats, thicknesses: Floats, indices: Floats, stop: int, wanted: Specification
) -> Quality:
    """Of lenses without their last curvatures: (n, s − 1), (n, s − 1) and (n, s + 1, w); stop from 0."""
    n = len(curvatures)
    failed = _Failed(n)
    paraxial = solve(curvatures, thicknesses, indices[..., wanted.primary], stop, wanted.focal_length)
    failed.where(~(np.isfinite(paraxial.last_curvature) & (paraxial.back_focus > 0)), NO_FOCAL_LENGTH)
    failed.where(~np.isfinite(paraxial.pupil), NO_PUPIL)
    failed.where_any(~(thicknesses >= 0), NEGATIVE)
    lenses = Lenses(np.column_stack([curvatures, paraxial.last_curvature]), thicknesses, indices)

    pupil = half_pupil()
    start = launch(paraxial.pupil, pupil.x, pupil.y, wanted)
    heights = []
    for surface, (rays, missed, reflected) in enumerate(trace(lenses, start), 1):
        failed.where(missed, MISSED, surface)
        failed.where(reflected, REFLECTED, surface)
        heights.append((rays.x * rays.x + rays.y * rays.y).max((1, 2)))
    edge = edges(lenses, np.sqrt(np.column_stack(heights)))
    failed.where_any(~(edge >= 0), NEGATIVE_EDGE)
    failed.where_any((edge < wanted.edge) & (indices[:, 1:-1, 0] > 1), THIN_EDGE)

    focus, spots = focused(rays, pupil.weights, len(wanted.fields))
    failed.where(~(focus > 0), NO_IMAGE)
    bad = failed.code != GOOD
    spots[bad], focus[bad] = np.nan, np.nan
    spot = np.sqrt((spots * spots).sum(1) / len(wanted.fields))
    return Quality(spot, spots, focus, failed.code, failed.surface, lenses)


class _Failed:
    """Why each lens has failed, and where: what was found first."""

    def __init__(self, n: int) -> None:
        self.code = np.zeros(n, dtype=np.int64)
        self.surface = np.zeros(n, dtype=np.int64)

    def where(self, found: NDArray[np.bool_], code: int, surface: int = 0) -> None:
        new = found & (self.code == GOOD)
        self.code[new] = code
        self.surface[new] = surface

    def where_any(self, found: NDArray[np.bool_], code: int) -> None:
        """found: (n, spaces between surfaces)."""
        for surface in np.flatnonzero(found.any(0)):
            self.where(found[:, surface], code, int(surface) + 1)


def edges(lenses: Lenses, heights: Floats) -> Floats:
    """The thickness of each space between surfaces at the edge of what is used of the two, (n, s − 1).

    heights: (n, s), of the outermost ray at each surface. NaN where a sphere does not reach the edge. The
    thickness at the vertex and at the edge is enough: between them it only grows or only shrinks.
    """
    edge = np.maximum(heights[:, :-1], heights[:, 1:])
    front = sag(lenses.curvatures[:, :-1], edge)
    return lenses.thicknesses + sag(lenses.curvatures[:, 1:], edge) - front


def sag(curvature: Floats, height: Floats) -> Floats:
    """z of a surface at a height."""
    square = height * height
    with np.errstate(invalid="ignore", over="ignore"):
        depth: Floats = curvature * square / (1 + np.sqrt(1 - curvature * curvature * square))
    return depth


def focused(rays: Rays, weights: Floats, fields: int) -> tuple[Floats, Floats]:
    """Where the spots are smallest together, (n,), and how large they are there, (n, f) in µm.

    Behind the lens rays are straight, so the mean square of a spot is a parabola in the place of the image.
    The middle of a spot is that of all wavelengths; its x is 0, the rays being half of a symmetric spot.
    """
    n, wavelengths, count = rays.x.shape

    def by_field(values: Floats) -> Floats:
        """(n, w, f p) as (n, f, w p): a row a spot."""
        rows = values.reshape(n, wavelengths, fields, count // fields).transpose(0, 2, 1, 3)
        return rows.reshape(n, fields, wavelengths * count // fields)

    weight = np.tile(weights / wavelengths, wavelengths)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        slope_x, slope_y = by_field(rays.k / rays.m), by_field(rays.l / rays.m)
        z = by_field(rays.z)
        x, y = by_field(rays.x) - z * slope_x, by_field(rays.y) - z * slope_y
        slope_y = slope_y - (weight * slope_y).sum(-1, keepdims=True)
        y = y - (weight * y).sum(-1, keepdims=True)
        joint = (weight * (x * slope_x + y * slope_y)).sum(-1).sum(-1)
        focus = -joint / (weight * (slope_x * slope_x + slope_y * slope_y)).sum(-1).sum(-1)
        x, y = x + focus[:, None, None] * slope_x, y + focus[:, None, None] * slope_y
        return focus, 1000 * np.sqrt((weight * (x * x + y * y)).sum(-1))
