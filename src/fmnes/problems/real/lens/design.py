"""One lens, as people see it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fmnes.problems.real.lens import glass
from fmnes.problems.real.lens.merit import Quality
from fmnes.problems.real.lens.specification import Specification
from fmnes.problems.real.lens.tracing import Floats


@dataclass(frozen=True, eq=False, repr=False)
class Lens:
    """One lens that has an image; `str` of it is its prescription.

    Attributes
    ----------
    name : str
        The name of its form.
    wanted : Specification
        The requirements.
    stop : int
        The number of the surface that is the stop, from 1.
    media : tuple of str
        The glass or air behind each surface but the last.
    quality : Quality
        What the rays have shown.
    """

    name: str
    wanted: Specification
    stop: int
    media: tuple[str, ...]
    quality: Quality = field(repr=False)

    @property
    def spot(self) -> float:
        """Radius of the spots in µm, root mean square over all fields."""
        return float(self.quality.spot[0])

    @property
    def spots(self) -> Floats:
        """Radius of the spot of each field, in µm."""
        spots: Floats = self.quality.spots[0]
        return spots

    @property
    def curvatures(self) -> Floats:
        """Curvatures of all surfaces, in 1/mm."""
        curvatures: Floats = self.quality.lenses.curvatures[0]
        return curvatures

    @property
    def thicknesses(self) -> Floats:
        """Distance behind each surface in mm; the last is the distance of the image."""
        return np.append(self.quality.lenses.thicknesses[0], self.quality.focus[0])

    def __repr__(self) -> str:
        return f"<{self.name}, {self.wanted.focal_length:g} mm, RMS spot {self.spot:.3g} µm>"

    def __str__(self) -> str:
        rows = ["surface     radius  thickness  glass"]
        for i, c in enumerate(self.curvatures):
            radius = f"{1 / c:10.3f}" if abs(c) > 1e-7 else "     plane"
            behind = (*self.media, glass.AIR)[i]
            stop = "  (stop)" if i + 1 == self.stop else ""
            rows.append(f"{i + 1:7} {radius} {self.thicknesses[i]:10.3f}  {behind}{stop}")
        return "\n".join(rows)
