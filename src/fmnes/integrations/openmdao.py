"""A driver for OpenMDAO, for models whose analysis may fail.

    problem.driver = fmnes.integrations.openmdao.FMNESDriver(max_evaluations=500, rng=1)
    problem.run_driver()

Objective, design variables and constraints are those of the model, in the driver's scaling. A point at which
a component raises `AnalysisError`, or whose objective or a constraint is not finite, is a failed evaluation;
the search goes on. Gradients are not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import check_rng
from fmnes.constraints import Constraint
from fmnes.errors import ArgumentError, Infeasible, MissingExtra
from fmnes.result import Result
from fmnes.run.minimize import minimize

try:
    from openmdao.core.analysis_error import AnalysisError
    from openmdao.core.driver import Driver, RecordingDebugging
except ImportError as error:
    raise MissingExtra("fmnes.integrations.openmdao", "openmdao") from error

Floats = NDArray[np.float64]

#: Arguments of `minimize` that the model gives.
_OF_MODEL = ("fun", "x0", "bounds", "integers", "constraints")
#: Arguments that the driver has itself.
_OF_DRIVER = ("method", "sigma0", "max_evaluations", "target", "rng")
#: Arguments that do not go with a model in this process, which keeps its last point.
_REFUSED = ("known", "workers", "executor", "vectorized", "run_dir", "timeout", "on_error", "overlap")


_SUPPORTED = (
    "optimization",
    "inequality_constraints",
    "equality_constraints",
    "two_sided_constraints",
    "integer_design_vars",
)


class FMNESDriver(Driver):  # type: ignore[misc]
    """FM-NES and related methods as a driver of OpenMDAO.

    The search is in the scaled design variables, from their present values. Discrete ones take whole numbers.
    Constraints are searched by their values. Afterwards the model is at the best point. As in
    `fmnes.minimize`, a run succeeds if the search converged, or reached the target, and the point is within
    all constraints; its exit status is the stop reason. Each evaluation begins with the outputs that the
    model had before the run, so that its values do not depend on the point before it. All processes of an
    MPI run ask for the same points.

    Parameters
    ----------
    method : str or Strategy, optional
        As in `fmnes.minimize`.
    sigma0 : float or array_like, optional
        As in `fmnes.minimize`, in scaled units; by default a quarter of the ranges, if all have bounds.
    max_evaluations : int, optional
        Budget of evaluations of the model.
    target : float, optional
        Stop as soon as the scaled objective is at most this.
    rng : int, optional
        A seed. Without one, each `run_driver` has a fresh one.
    tolerance : float, optional
        By how much a constraint may be exceeded, in scaled units.
    options : dict, optional
        Other arguments of `fmnes.minimize`, such as `{"restarts": 2, "max_seconds": 3600}`.
    **kwargs
        Options of OpenMDAO's own `Driver`.

    Raises
    ------
    ArgumentError
        An option is the model's or the driver's own.
    MissingExtra
        OpenMDAO is not installed.

    Attributes
    ----------
    search : Result or None
        The result of the last run: `x` and `constraints` in scaled units, the reasons of failed evaluations,
        the history; None before the first run.

    Examples
    --------
    >>> import openmdao.api as om
    >>> from fmnes.integrations.openmdao import FMNESDriver
    >>> problem = om.Problem(driver=FMNESDriver(max_evaluations=1000, rng=1), reports=False)
    >>> part = om.ExecComp(["f = (x - 3)**2 + y**2", "g = x + y"])
    >>> _ = problem.model.add_subsystem("part", part, promotes=["*"])
    >>> problem.model.add_design_var("x", lower=-50, upper=50)
    >>> problem.model.add_design_var("y", lower=-50, upper=50)
    >>> problem.model.add_objective("f")
    >>> problem.model.add_constraint("g", upper=2)
    >>> _ = problem.setup()
    >>> problem.run_driver().success
    True
    >>> print(f"{problem.get_val('x')[0]:.3f} {problem.get_val('y')[0]:.3f}")
    2.500 -0.500
    """

    def __init__(
        self,
        *,
        method: Any = "afm-nes",
        sigma0: Any = None,
        max_evaluations: int | None = None,
        target: float | None = None,
        rng: int | None = None,
        tolerance: float = 1e-6,
        options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name in self.supports:
            self.supports[name] = name in _SUPPORTED
        self.supports._read_only = True
        _check_options(options or {})
        self._arguments = {
            "method": method,
            "sigma0": sigma0,
            "max_evaluations": max_evaluations,
            "target": target,
            **(options or {}),
        }
        self._rng, self._tolerance = rng, tolerance
        self._sizes: dict[str, int] = {}
        self.search: Result | None = None

    def _get_name(self) -> str:
        return "FMNES"

    def get_exit_status(self) -> str:
        """Return why the last search ended; called by OpenMDAO.

        Returns
        -------
        str
            The name of the stop reason, such as "XTOL".
        """
        reason = self.search.stop_reason if self.search else None
        return reason.name if reason else "NOT_RUN"

    def run(self) -> bool:
        """Run the search; called by `Problem.run_driver`.

        Returns
        -------
        bool
            True if it has failed.
        """
        self.search = None
        self.result.reset()
        self._check_for_missing_objective()
        x0, bounds, whole = self._ranges()
        arguments = dict(self._arguments)
        if arguments["sigma0"] is None and not np.isfinite(bounds).all():
            raise ArgumentError(
                "sigma0: found none, and a design variable without both bounds; wanted "
                "FMNESDriver(sigma0=...), or lower and upper of each design variable"
            )
        seed, comm = check_rng(self._rng)[1], self._problem().comm
        if comm.size > 1:  # the same points in all processes
            seed = comm.bcast(seed, root=0)
        self._outputs = self._problem().model._outputs.asarray(copy=True)
        found = minimize(
            self._evaluate,
            x0,
            bounds=bounds if np.isfinite(bounds).any() else None,
            integers=whole if any(whole) else None,
            constraints=self._constraints(),
            rng=seed,
            on_error="raise",  # a bug ends the run; OpenMDAO's word for a failure is AnalysisError
            **arguments,
        )
        self.search = found
        if found.x is None:
            return True
        self._run_model(found.x)  # leaves the model, and the last case, at the best point
        return not found.success

    # -- the model's words --------------------------------------------------------------------------------

    def _ranges(self) -> tuple[Floats, Floats, list[bool]]:
        """The present values (d,), the bounds (d, 2) and which are whole; scaled, and discrete ones last."""
        values = self.get_design_var_values()
        x0: list[float] = []
        bounds: list[tuple[float, float]] = []
        whole: list[bool] = []
        for name in self._order():
            value = np.ravel(values[name]).astype(float)
            self._sizes[name] = len(value)  # of a discrete one OpenMDAO does not say it
            discrete = name in self._designvars_discrete
            if discrete:
                meta = self._designvars[name]
                lower, upper = _filled(meta["lower"], -np.inf, value), _filled(meta["upper"], np.inf, value)
            else:
                lower, upper = self._scaled_ends("design_var", name, value)
            x0 += np.clip(value, lower, upper).tolist()
            bounds += zip(lower.tolist(), upper.tolist(), strict=True)
            whole += [discrete] * len(value)
        if not x0:
            raise ArgumentError("design variables: found none, wanted model.add_design_var(...)")
        return np.array(x0), np.array(bounds), whole

    def _constraints(self) -> dict[str, Constraint] | None:
        """The limits on each number of each constraint, scaled."""
        limits: dict[str, Constraint] = {}
        scaled = self._autoscaler.get_bounds_scaling("constraint")
        for name, values in self.get_constraint_values().items():
            values = np.ravel(values)
            if scaled[name].equals is not None:
                lower = upper = _filled(scaled[name].equals, np.nan, values)
            else:
                lower, upper = self._scaled_ends("constraint", name, values)
            for (label, _), low, up in zip(_labelled(name, values), lower, upper, strict=True):
                if np.isfinite(low) or np.isfinite(up):
                    limits[label] = Constraint(low, up, tolerance=self._tolerance)
        return limits or None

    def _scaled_ends(self, kind: str, name: str, values: Floats) -> tuple[Floats, Floats]:
        """The lower and the upper end of a variable, scaled; infinite ones for none."""
        scaled = self._autoscaler.get_bounds_scaling(kind)[name]
        meta = (self._designvars if kind == "design_var" else self._cons)[name]
        lower, upper = _filled(scaled.lower, -np.inf, values), _filled(scaled.upper, np.inf, values)
        # OpenMDAO does not swap the ends where a negative scaler turns them around.
        turned = np.broadcast_to(np.ravel(meta["total_scaler"] or 1.0) < 0, values.shape)
        swapped = np.where(np.isinf(upper), -upper, upper), np.where(np.isinf(lower), -lower, lower)
        return np.where(turned, swapped[0], lower), np.where(turned, swapped[1], upper)

    def _order(self) -> list[str]:
        """The design variables in the order of the coordinates: OpenMDAO's vector has no discrete ones."""
        return sorted(self._designvars, key=lambda name: name in self._designvars_discrete)

    # -- one evaluation -----------------------------------------------------------------------------------

    def _run_model(self, x: Floats) -> None:
        """Run the model at a point and record the case. Raises AnalysisError."""
        # Solvers begin where the last run has left the outputs. From there a value would depend on the point
        # before it, and NaN of a failed run would fail all later ones.
        self._problem().model._outputs.set_val(self._outputs)
        n = len(x)
        for name in reversed(self._designvars_discrete):
            size = self._sizes[name]
            self._set_design_var(name, np.rint(x[n - size : n]))
            n -= size
        if n:
            self._vectors["design_var"].set_data(x[:n], driver_scaling=True)
            self._set_design_vars([k for k in self._designvars if k not in self._designvars_discrete])
        with RecordingDebugging(self._get_name(), self.iter_count, self):
            self.iter_count += 1
            self._run_solve_nonlinear()

    def _evaluate(self, x: Floats) -> tuple[float, dict[str, float]]:
        """The objective and the constraints at a point, scaled."""
        try:
            self._run_model(x)
        except AnalysisError as error:
            self._problem().model._clear_iprint()
            raise Infeasible(f"AnalysisError: {error}") from None
        (objective,) = self.get_objective_values().values()
        value = np.ravel(objective)
        if value.size != 1:
            raise ArgumentError(f"objective: found {value.size} numbers, wanted one: give its index=")
        found = {
            label: number
            for name, values in self.get_constraint_values().items()
            for label, number in _labelled(name, np.ravel(values))
        }
        return float(value[0]), found


def _labelled(name: str, values: Floats) -> Iterator[tuple[str, float]]:
    """The numbers of a constraint with a name for each."""
    for i, number in enumerate(values.tolist()):
        yield name if len(values) == 1 else f"{name}[{i}]", float(number)


def _filled(ends: Any, none: float, values: Floats) -> Floats:
    """Bounds of a variable, one for each of its numbers; OpenMDAO writes 1e30 for no bound."""
    found = np.broadcast_to(none if ends is None else np.ravel(ends).astype(float), values.shape)
    return np.where(np.abs(found) >= 1e29, none, found)


def _check_options(options: dict[str, Any]) -> None:
    for name in options:
        if name in _OF_MODEL:
            raise ArgumentError(f"options: found {name!r}, which the model gives; leave it out")
        if name in _OF_DRIVER:
            raise ArgumentError(f"options: found {name!r}, wanted FMNESDriver({name}=...)")
        if name in _REFUSED:
            raise ArgumentError(f"options: found {name!r}, which FMNESDriver does not support; leave it out")
