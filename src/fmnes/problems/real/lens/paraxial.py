"""Rays close to the axis: the focal length and the entrance pupil.

y, u        height and slope of a ray close to the axis; a surface changes u only:
            n' u' = n u − y c (n' − n)
f           focal length: a ray that comes in parallel at height y_1 leaves with u' = −y_1 / f
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmnes.problems.real.lens.tracing import Floats


class Paraxial(NamedTuple):
    """Each field is (n,); not finite where there is no such lens."""

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
