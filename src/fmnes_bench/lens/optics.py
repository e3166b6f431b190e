"""What a lens does: its glasses, the rays through it, and how well they meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import is_number, shown
from fmnes.errors import ArgumentError

# -- Glasses: the refractive index at a wavelength, by Sellmeier's formula.
#
#     n² = 1 + Σ_i B_i λ² / (λ² − C_i),  λ in µm, relative to air
#
# The coefficients are those of SCHOTT's Zemax catalogue of 2017-01-20 (refractiveindex.info, public domain).


Floats = NDArray[np.float64]

#: Fraunhofer's lines, µm: blue and red of hydrogen, yellow of helium.
F, D, C = 0.4861327, 0.5875618, 0.6562725
AIR = "air"

#: {name: (B_1, C_1, B_2, C_2, B_3, C_3)}, from little dispersion to much: who counts them counts something.
CATALOGUE = {
    "N-PK52A": (1.029607, 0.00516800155, 0.1880506, 0.0166658798, 0.736488165, 138.964129),
    "N-FK5": (0.844309338, 0.00475111955, 0.344147824, 0.0149814849, 0.910790213, 97.8600293),
    "N-BK7": (1.03961212, 0.00600069867, 0.231792344, 0.0200179144, 1.01046945, 103.560653),
    "N-SK16": (1.34317774, 0.00704687339, 0.241144399, 0.0229005, 0.994317969, 92.7508526),
    "N-SK2": (1.28189012, 0.0072719164, 0.257738258, 0.0242823527, 0.96818604, 110.377773),
    "N-LAK9": (1.46231905, 0.00724270156, 0.344399589, 0.0243353131, 1.15508372, 85.4686868),
    "N-SSK2": (1.4306027, 0.00823982975, 0.153150554, 0.0333736841, 1.01390904, 106.870822),
    "N-LASF44": (1.78897105, 0.00872506277, 0.38675867, 0.0308085023, 1.30506243, 92.7743824),
    "F5": (1.3104463, 0.00958633048, 0.19603426, 0.0457627627, 0.96612977, 115.011883),
    "F2": (1.34533359, 0.00997743871, 0.209073176, 0.0470450767, 0.937357162, 111.886764),
    "SF5": (1.46141885, 0.0111826126, 0.247713019, 0.0508594669, 0.949995832, 112.041888),
    "SF6": (1.72448482, 0.0134871947, 0.390104889, 0.0569318095, 1.04572858, 118.557185),
}
NAMES = tuple(CATALOGUE)


def refractive_indices(glasses: Sequence[str], wavelengths: Sequence[float]) -> Floats:
    """(glasses, wavelengths): of each glass, or of air, at each wavelength in µm."""
    no_glass = (0.0,) * 6
    terms = np.array([no_glass if glass == AIR else CATALOGUE[glass] for glass in glasses]).reshape(-1, 3, 2)
    square = np.asarray(wavelengths, dtype=float) ** 2
    fractions = terms[:, :, 0, None] * square / (square - terms[:, :, 1, None])
    indices: Floats = np.sqrt(1 + fractions.sum(1))
    return indices


def abbe_number(glass: str) -> float:
    """How little a glass disperses: (n_d − 1) / (n_F − n_C)."""
    blue, yellow, red = refractive_indices([glass], (F, D, C))[0]
    return float((yellow - 1) / (blue - red))


# -- What a lens is for: focal length, F-number, fields and wavelengths.


@dataclass(frozen=True)
class Specification:
    """The requirements for a lens.

    Parameters
    ----------
    focal_length : float, optional
        In mm.
    f_number : float, optional
        Focal length over the diameter of the entrance pupil.
    fields : sequence of float, optional
        Degrees off the axis.
    wavelengths : sequence of float, optional
        In µm; the middle one is that of the focal length.
    edge : float, optional
        The least thickness in mm of a glass at the edge of its used part, for mounting.

    Raises
    ------
    ArgumentError
        A number is out of range.

    Examples
    --------
    >>> from fmnes_bench import lens
    >>> lens.Specification(f_number=4.0).focal_length
    50.0
    """

    focal_length: float = 50.0
    f_number: float = 5.0
    fields: Sequence[float] = (0.0, 14.0, 20.0)
    wavelengths: Sequence[float] = (F, D, C)
    edge: float = 1.0

    def __post_init__(self) -> None:
        for name in ("focal_length", "f_number"):
            found = getattr(self, name)
            if not (is_number(found) and found > 0):
                raise ArgumentError(f"{name}: found {shown(found)}, wanted a positive number")
        if not (is_number(self.edge) and self.edge >= 0):
            raise ArgumentError(f"edge: found {shown(self.edge)}, wanted a thickness in mm, at least 0")
        for name, low, high, what in (
            ("fields", 0.0, 90.0, "angles from 0 to below 90 degrees"),
            ("wavelengths", 0.3, 2.5, "wavelengths from 0.3 to below 2.5 µm"),
        ):
            found = getattr(self, name)
            try:
                numbers = tuple(found)
            except TypeError:
                numbers = ()
            if not numbers or not all(is_number(number) and low <= number < high for number in numbers):
                raise ArgumentError(f"{name}: found {shown(found)}, wanted at least one; {what}")
            object.__setattr__(self, name, tuple(float(number) for number in numbers))

    @property
    def primary(self) -> int:
        """The position of the wavelength to which focal length and pupil refer."""
        return len(self.wavelengths) // 2


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


# -- How good lenses are: the size of the spots that they make of points far away, or why there are none.

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
