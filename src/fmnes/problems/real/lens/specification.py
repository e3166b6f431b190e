"""What a lens is for: focal length, F-number, fields and wavelengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fmnes.arguments import is_number, shown
from fmnes.errors import ArgumentError
from fmnes.problems.real.lens.glass import C, D, F


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
    >>> from fmnes.problems.real import lens
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
