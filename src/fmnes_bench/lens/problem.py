"""A lens to be designed: its parameters, and the objective, for one lens or for many at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fmnes.arguments import check_flag, shown
from fmnes.errors import ArgumentError, Infeasible, nearest
from fmnes.parameters import Integer, Parameter, Real
from fmnes_bench import columns_of
from fmnes_bench.lens.optics import AIR, NAMES, Floats, Quality, Specification, quality, refractive_indices

# -- One lens as a table.


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

    Examples
    --------
    >>> from fmnes_bench import lens
    >>> problem = lens.triplet()
    >>> problem.lens(problem.known).spot < problem.lens(problem.start).spot
    True
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
            behind = (*self.media, AIR)[i]
            stop = "  (stop)" if i + 1 == self.stop else ""
            rows.append(f"{i + 1:7} {radius} {self.thicknesses[i]:10.3f}  {behind}{stop}")
        return "\n".join(rows)


# -- Forms of lenses: their surfaces, glasses, ranges and a known design.
#
# Surfaces are numbered from 1, including a separate stop. `c3` is the curvature of surface 3 in 1/mm, `t3`
# the thickness of the glass behind it and `a4` that of the air behind surface 4, both in mm; `g3` is the
# glass behind surface 3, as its position in the catalogue. The last curvature follows from the focal length.


@dataclass(frozen=True)
class Form:
    """What all lenses of a kind have in common."""

    name: str
    media: tuple[str, ...]  # between the surfaces: a glass or air
    stop: int  # the number of the surface that is the stop, from 1
    wanted: Specification  # of the lens that is known
    bounds: dict[str, tuple[float, float]]  # of curvatures, glass and air, and of some by their name
    known: dict[str, float]  # as optiland ships it, which solves the last curvature of nearly the same lens

    @property
    def curvatures(self) -> tuple[str, ...]:
        """The names of those that are searched: not the last one, nor a stop in air, which is a plane."""
        around = (AIR, *self.media)
        numbers = range(1, len(self.media) + 1)
        return tuple(f"c{i}" for i in numbers if (around[i - 1], around[i]) != (AIR, AIR))

    @property
    def thicknesses(self) -> tuple[str, ...]:
        return tuple(f"{'a' if medium == AIR else 't'}{i}" for i, medium in enumerate(self.media, 1))

    @property
    def glasses(self) -> tuple[str, ...]:
        return tuple(f"g{i}" for i, medium in enumerate(self.media, 1) if medium != AIR)


#: Two collecting lenses of crown, with a dispersing one of flint between them.
TRIPLET = Form(
    "Cooke triplet",
    ("N-SK16", AIR, "F2", AIR, "N-SK16"),
    stop=4,
    wanted=Specification(focal_length=50, f_number=5, fields=(0, 14, 20)),
    # The signs of three curvatures make it a triplet; without them other forms are found, and worse ones.
    bounds={
        "c": (-0.1, 0.1),
        "c1": (0, 0.1),
        "c3": (-0.1, 0),
        "c4": (0, 0.1),
        "t": (0.8, 8),
        "a": (0.1, 12),
    },
    known={
        "c1": 1 / 22.01359,
        "c2": -1 / 435.76044,
        "c3": -1 / 22.21328,
        "c4": 1 / 20.29192,
        "c5": 1 / 79.68360,
        "t1": 3.25896,
        "a2": 6.00755,
        "t3": 0.99997,
        "a4": 4.75041,
        "t5": 2.95208,
    },
)
#: Two groups around the stop, nearly mirror images: a collecting lens and a cemented meniscus each.
DOUBLE_GAUSS = Form(
    "double Gauss",
    ("N-SSK2", AIR, "N-SK2", "F5", AIR, AIR, "F5", "N-SK16", AIR, "N-SK16"),
    stop=6,
    wanted=Specification(focal_length=100, f_number=5, fields=(0, 10, 14)),
    bounds={"c": (-0.05, 0.05), "t": (1, 15), "a": (0.1, 20)},
    known={
        "c1": 1 / 56.20238,
        "c2": 1 / 152.28580,
        "c3": 1 / 37.68262,
        "c4": 0.0,
        "c5": 1 / 24.23130,
        "c7": -1 / 28.37731,
        "c8": 0.0,
        "c9": -1 / 37.92546,
        "c10": 1 / 177.41176,
        "t1": 8.75,
        "a2": 0.5,
        "t3": 12.5,
        "t4": 3.8,
        "a5": 16.369445,
        "a6": 13.747957,
        "t7": 3.8,
        "t8": 11.0,
        "a9": 0.5,
        "t10": 7.0,
    },
)


def parameters(form: Form, focal_length: float, glasses: bool) -> dict[str, Parameter]:
    """The ranges of the form, scaled by the focal length. A search starts in their middle: a rough triplet,
    or for a double Gauss flat plates in which only the last surface forms an image.

    glasses: also search the glasses of the catalogue, starting from those of the form.
    """
    scale = focal_length / form.wanted.focal_length
    found: dict[str, Parameter] = {}
    for name in (*form.curvatures, *form.thicknesses):
        bounds = form.bounds.get(name, form.bounds[name[0]])
        lower, upper = (_scaled(name, bound, scale) for bound in bounds)
        found[name] = Real(lower, upper, start=(lower + upper) / 2)
    if glasses:
        for name, own in _own_glasses(form).items():
            found[name] = Integer(0, len(NAMES) - 1, start=own)
    return found


def known_design(form: Form, focal_length: float, glasses: bool) -> dict[str, float]:
    """The one that is known, at another focal length; glasses: with them."""
    scale = focal_length / form.wanted.focal_length
    scaled = {name: _scaled(name, value, scale) for name, value in form.known.items()}
    return scaled | (_own_glasses(form) if glasses else {})


def _own_glasses(form: Form) -> dict[str, int]:
    return {name: NAMES.index(form.media[int(name[1:]) - 1]) for name in form.glasses}


def _scaled(name: str, value: float, scale: float) -> float:
    return value / scale if name.startswith("c") else value * scale


def measured(form: Form, columns: Mapping[str, Any], n: int, wanted: Specification) -> Quality:
    """The quality of n lenses, {name: (n,) or a number}; where no glass is named it is that of the form."""
    around = (AIR, *form.media, AIR)
    curvatures = np.zeros((n, len(form.media)))
    for name in form.curvatures:
        curvatures[:, int(name[1:]) - 1] = columns[name]
    thicknesses: Floats = np.empty((n, len(form.media)))
    for i, name in enumerate(form.thicknesses):
        thicknesses[:, i] = columns[name]
    indices = np.empty((n, len(around), len(wanted.wavelengths)))
    indices[:] = refractive_indices(around, wanted.wavelengths)
    for name in form.glasses:
        if name in columns:
            numbers = np.asarray(columns[name]).astype(np.int64)
            indices[:, int(name[1:])] = refractive_indices(NAMES, wanted.wavelengths)[numbers]
    return quality(curvatures, thicknesses, indices, form.stop - 1, wanted)


# -- A lens to be designed: the objective, for one lens or for many at once.


def triplet(
    wanted: Specification | None = None, *, glasses: bool = False, start: Mapping[str, float] | None = None
) -> LensProblem:
    """Return the design problem of a Cooke triplet: three lenses, 10 parameters.

    Parameters
    ----------
    wanted : Specification, optional
        The requirements; by default 50 mm, F/5, fields up to 20 degrees.
    glasses : bool, optional
        Search for the glasses in the catalogue too (3 more parameters).
    start : dict of str to float, optional
        Other starts for some of the parameters.

    Returns
    -------
    LensProblem
        The problem.

    Raises
    ------
    ArgumentError
        An argument is wrong, or the start has no image.

    Examples
    --------
    >>> from fmnes_bench import lens
    >>> len(lens.triplet().parameters)
    10
    """
    return _problem(TRIPLET, wanted, glasses, start)


def double_gauss(
    wanted: Specification | None = None, *, glasses: bool = False, start: Mapping[str, float] | None = None
) -> LensProblem:
    """Return the design problem of a double Gauss: six lenses, 19 parameters.

    Parameters
    ----------
    wanted : Specification, optional
        The requirements; by default 100 mm, F/5, fields up to 14 degrees.
    glasses : bool, optional
        Search for the glasses in the catalogue too (6 more parameters).
    start : dict of str to float, optional
        Other starts for some of the parameters.

    Returns
    -------
    LensProblem
        The problem.

    Raises
    ------
    ArgumentError
        An argument is wrong, or the start has no image.

    Examples
    --------
    >>> from fmnes_bench import lens
    >>> len(lens.double_gauss().parameters)
    19
    """
    return _problem(DOUBLE_GAUSS, wanted, glasses, start)


def _problem(
    form: Form, wanted: Specification | None, glasses: bool, start: Mapping[str, float] | None
) -> LensProblem:
    wanted = form.wanted if wanted is None else wanted
    if not isinstance(wanted, Specification):
        raise ArgumentError(f"wanted: found {shown(wanted)}, wanted a lens.Specification(...)")
    if not (start is None or isinstance(start, Mapping)):
        raise ArgumentError(f"start: found {shown(start)}, wanted a dict of names and numbers")
    check_flag("glasses", glasses)
    ranges = parameters(form, wanted.focal_length, glasses)
    for name, value in (start or {}).items():
        if name not in ranges:
            raise ArgumentError(
                f"start: found {shown(name)}, wanted some of {', '.join(ranges)}{nearest(str(name), ranges)}"
            )
        try:
            ranges[name] = replace(ranges[name], start=value)  # type: ignore[type-var]
        except ArgumentError as error:
            raise ArgumentError(f"start, {name}: {error}") from None
    problem = LensProblem(form.name, ranges, wanted, known_design(form, wanted.focal_length, glasses), form)
    if reason := problem.reasons(problem.start)[0]:
        raise ArgumentError(
            f"start: found a lens that cannot be traced ({reason}), wanted one with an image, however bad; "
            "change the start, or begin with a larger F-number and smaller fields"
        )
    return problem


@dataclass(frozen=True)
class LensProblem:
    """A lens to be designed: `fmnes.minimize(problem.fun, problem.parameters, vectorized=True)`.

    Attributes
    ----------
    name : str
        The name of the form, such as "triplet".
    parameters : dict of str to Parameter
        The search space; `prescription.py` describes each parameter.
    wanted : Specification
        The requirements.
    known : dict of str to float
        A published design to compare with: a point as for `fun`.
    form : Form
        Surfaces, glasses and stop.

    Examples
    --------
    >>> import fmnes
    >>> from fmnes_bench import lens
    >>> problem = lens.triplet()
    >>> options = {"vectorized": True, "rng": 1, "max_evaluations": 300}
    >>> result = fmnes.minimize(problem.fun, problem.parameters, **options)
    >>> result.fun < problem.lens(problem.start).spot
    True
    """

    name: str
    parameters: dict[str, Parameter]
    wanted: Specification
    known: dict[str, float]
    form: Form = field(repr=False)

    @property
    def start(self) -> dict[str, float]:
        """Where a search begins: a lens that has an image, but a poor one."""
        return {name: p.start for name, p in self.parameters.items() if p.start is not None}

    def fun(self, points: Any) -> Any:
        """Return the root mean square radius of the spots over all fields and wavelengths, in µm.

        Parameters
        ----------
        points : dict or array_like
            One lens, {name: number} or (d,); or many, {name: (n,)} or (n, d).

        Returns
        -------
        float or ndarray
            The radius; for many lenses (n,), with +inf for those that failed.

        Raises
        ------
        Infeasible
            The only lens failed.
        """
        columns, n = self._columns(points)
        found = self._measured(columns, n)
        if n is None:
            if reason := found.reason(0):
                raise Infeasible(reason)
            return float(found.spot[0])
        return np.where(np.isnan(found.spot), np.inf, found.spot)

    def reasons(self, points: Any) -> list[str]:
        """Return why each lens failed.

        Parameters
        ----------
        points : dict or array_like
            As for `fun`.

        Returns
        -------
        list of str
            The reasons; empty for a lens that did not fail.
        """
        columns, n = self._columns(points)
        found = self._measured(columns, n)
        return [found.reason(lens) for lens in range(1 if n is None else n)]

    def lens(self, point: Any) -> Lens:
        """Return one lens, to be read and drawn.

        Parameters
        ----------
        point : dict or array_like
            {name: number} or (d,), such as `result.x`.

        Returns
        -------
        Lens
            The lens.

        Raises
        ------
        ArgumentError
            There are several points, or the lens has no image.
        """
        columns, n = self._columns(point)
        if n is not None:
            raise ArgumentError(f"point: found {n} lenses, wanted one")
        found = self._measured(columns, None)
        if reason := found.reason(0):
            raise ArgumentError(
                f"point: found a lens that cannot be traced ({reason}), wanted one with an image"
            )
        media = list(self.form.media)
        for name in self.form.glasses:
            if name in columns:
                media[int(name[1:]) - 1] = NAMES[int(columns[name])]
        return Lens(self.name, self.wanted, self.form.stop, tuple(media), found)

    def _measured(self, columns: Mapping[str, Any], n: int | None) -> Quality:
        return measured(self.form, columns, 1 if n is None else n, self.wanted)

    def _columns(self, points: Any) -> tuple[dict[str, Any], int | None]:
        """{name: numbers}, and how many lenses there are; None: one, given as one."""
        columns, n = columns_of(points, self.parameters)
        for name, column in columns.items():
            if name[0] == "g":
                _check_glasses(name, column)
        return columns, n


def _check_glasses(name: str, column: Any) -> None:
    last = len(NAMES) - 1
    wrong = column[~((column >= 0) & (column <= last) & (column == np.round(column)))]
    if wrong.size:
        raise ArgumentError(f"{name}: found {wrong.flat[0]}, wanted a position in the catalogue, 0 to {last}")
