"""What a lens is for, and the glasses it may be made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
