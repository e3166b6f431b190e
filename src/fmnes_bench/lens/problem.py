"""A lens to be designed: the objective, for one lens or for many at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fmnes.arguments import check_flag, shown
from fmnes.errors import ArgumentError, Infeasible, nearest
from fmnes.parameters import Parameter
from fmnes_bench.lens import specification
from fmnes_bench.lens.merit import Quality
from fmnes_bench.lens.prescription import (
    DOUBLE_GAUSS,
    TRIPLET,
    Form,
    Lens,
    known_design,
    measured,
    parameters,
)
from fmnes_bench.lens.specification import Specification
from fmnes_bench.points import columns_of


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
                media[int(name[1:]) - 1] = specification.NAMES[int(columns[name])]
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
    last = len(specification.NAMES) - 1
    wrong = column[~((column >= 0) & (column <= last) & (column == np.round(column)))]
    if wrong.size:
        raise ArgumentError(f"{name}: found {wrong.flat[0]}, wanted a position in the catalogue, 0 to {last}")
