"""A driver for OpenMDAO, for models whose analysis may fail.

    problem.driver = fmnes.integrations.openmdao.FMNESDriver(max_evaluations=500, rng=1)
    problem.run_driver()

Objectives, design variables and constraints are those of the model. A point at which a component raises
`AnalysisError`, or whose objective is not finite, is a failed evaluation; the search goes on. Gradients are
not used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import check_rng
from fmnes.errors import ArgumentError, Infeasible, MissingExtra
from fmnes.result import Result
from fmnes.run.minimize import minimize

try:
    from openmdao.core.analysis_error import AnalysisError
    from openmdao.core.driver import Driver, RecordingDebugging
except ImportError as error:
    raise MissingExtra("fmnes.integrations.openmdao", "openmdao") from error

Floats = NDArray[np.float64]

#: What the model says, or the driver itself.
_OWN = ("fun", "x0", "bounds", "integers", "known", "workers", "executor", "vectorized", "run_dir", "timeout")


class FMNESDriver(Driver):  # type: ignore[misc]
    """FM-NES and related methods as a driver of OpenMDAO.

    The search is in the scaled design variables, from their present values. Discrete ones take whole numbers.
    A violated constraint is a failed evaluation. Afterwards the model is at the best point; if no evaluation
    has succeeded, the run has failed. All processes of an MPI run ask for the same points.

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
        A constraint counts as satisfied up to this scaled amount.
    options : dict, optional
        Other arguments of `fmnes.minimize`, such as `{"restarts": 2, "max_seconds": 3600}`.
    **kwargs
        Options of OpenMDAO's own `Driver`.

    Raises
    ------
    MissingExtra
        OpenMDAO is not installed.

    Attributes
    ----------
    search : Result or None
        The result of the last run, with `x` in scaled units, the reasons of failed evaluations and the
        history; None before the first run.

    Examples
    --------
    >>> import openmdao.api as om
    >>> from fmnes.integrations.openmdao import FMNESDriver
    >>> problem = om.Problem(driver=FMNESDriver(max_evaluations=300, rng=1))
    >>> part = om.ExecComp("f = (x - 3)**2 + y**2")
    >>> _ = problem.model.add_subsystem("part", part, promotes=["*"])
    >>> problem.model.add_design_var("x", lower=-50, upper=50)
    >>> problem.model.add_design_var("y", lower=-50, upper=50)
    >>> problem.model.add_objective("f")
    >>> _ = problem.setup()
    >>> _ = problem.run_driver()
    >>> print(f"{problem.get_val('x')[0]:.3f}")
    3.000
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
        for name in ("optimization", "inequality_constraints", "two_sided_constraints"):
            self.supports[name] = True
        self.supports["integer_design_vars"] = True
        for name in ("equality_constraints", "linear_constraints", "multiple_objectives", "gradients"):
            self.supports[name] = False
        for name in ("simultaneous_derivatives", "active_set", "distributed_design_vars"):
            self.supports[name] = False
        self.supports._read_only = True
        if refused := [name for name in options or {} if name in _OWN]:
            raise ArgumentError(
                f"options: found {refused[0]!r}, which the model or OpenMDAO says; wanted other arguments of "
                "fmnes.minimize"
            )
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

    def run(self) -> bool:
        """Run the search; called by `Problem.run_driver`.

        Returns
        -------
        bool
            True if it has failed: if no evaluation succeeded.
        """
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
        found = minimize(
            self._evaluate,
            x0,
            bounds=bounds if np.isfinite(bounds).any() else None,
            integers=whole if any(whole) else None,
            rng=seed,
            on_error="raise",  # a bug ends the run; OpenMDAO's word for a failure is AnalysisError
            **arguments,
        )
        self.search = found
        self.result.success = found.x is not None
        self.result.exit_status = found.stop_reason.name if found.stop_reason else "NOT_RUN"
        if found.x is not None:
            self._run_model(found.x)  # leaves the model, and the last case, at the best point
        return found.x is None

    def _ranges(self) -> tuple[Floats, Floats, list[bool]]:
        """The present values (d,), the bounds (d, 2) and which are whole; scaled, and discrete ones last."""
        values = self.get_design_var_values()
        scaled = self._autoscaler.get_bounds_scaling("design_var")
        x0: list[float] = []
        bounds: list[tuple[float, float]] = []
        whole: list[bool] = []
        for name in self._order():
            meta = self._designvars[name]
            value = np.ravel(values[name]).astype(float)
            self._sizes[name] = len(value)  # of a discrete one OpenMDAO does not say it
            discrete = name in self._designvars_discrete
            ends = (meta["lower"], meta["upper"]) if discrete else (scaled[name].lower, scaled[name].upper)
            lower, upper = (
                np.broadcast_to(none if end is None else np.ravel(end).astype(float), value.shape)
                for end, none in zip(ends, (-np.inf, np.inf), strict=True)
            )
            # OpenMDAO writes 1e30 for no bound.
            lower, upper = np.where(lower <= -1e29, -np.inf, lower), np.where(upper >= 1e29, np.inf, upper)
            x0 += np.clip(value, lower, upper).tolist()
            bounds += zip(lower.tolist(), upper.tolist(), strict=True)
            whole += [discrete] * len(value)
        if not x0:
            raise ArgumentError("design variables: found none, wanted model.add_design_var(...)")
        return np.array(x0), np.array(bounds), whole

    def _order(self) -> list[str]:
        """The design variables in the order of the coordinates: OpenMDAO's vector has no discrete ones."""
        return sorted(self._designvars, key=lambda name: name in self._designvars_discrete)

    def _run_model(self, x: Floats) -> None:
        """Run the model at a point and record the case. Raises AnalysisError."""
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

    def _evaluate(self, x: Floats) -> float:
        """The objective at a point, scaled."""
        try:
            self._run_model(x)
        except AnalysisError as error:
            self._problem().model._clear_iprint()
            raise Infeasible(f"AnalysisError: {error}") from None
        (objective,) = self.get_objective_values().values()
        value = np.ravel(objective)
        if value.size != 1:
            raise ArgumentError(f"objective: found {value.size} numbers, wanted one: give its index=")
        self._check_constraints()
        return float(value[0])

    def _check_constraints(self) -> None:
        """A violated constraint fails. The only place where the values of constraints are used."""
        for name, amount in self.violations().items():
            if not amount <= self._tolerance:  # NaN too
                raise Infeasible(f"constraint {name} violated")

    def violations(self) -> dict[str, float]:
        """Return by how much each constraint is violated at the present point, in scaled units.

        Returns
        -------
        dict of str to float
            The largest violation of each constraint; negative where it is satisfied.
        """
        found = {}
        scaled = self._autoscaler.get_bounds_scaling("constraint")
        for name, values in self.get_constraint_values().items():
            lower, upper = scaled[name].lower, scaled[name].upper
            sides = [np.asarray(-np.inf)]
            sides += [] if lower is None else [np.ravel(lower) - np.ravel(values)]
            sides += [] if upper is None else [np.ravel(values) - np.ravel(upper)]
            found[name] = max(float(side.max()) for side in sides)
        return found
