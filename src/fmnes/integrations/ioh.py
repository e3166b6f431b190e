"""An algorithm for IOHexperimenter: `algorithm(problem)` optimises one of its problems, seen by its loggers.

import ioh
from fmnes.integrations.ioh import Algorithm

ioh.Experiment(Algorithm(max_evaluations=5000, rng=1), fids=[1, 8], iids=[1, 2], dims=[5], reps=3)()
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from fmnes.arguments import check_number, check_rng, option_alias, shown
from fmnes.bounds import Bounds
from fmnes.errors import ArgumentError, Infeasible, MissingExtra, nearest
from fmnes.result import Result, Vector, View
from fmnes.run.minimize import minimize
from fmnes.strategies import DEFAULT_METHOD, Resampling, Strategy, resolve

try:
    import ioh
except ImportError as error:
    raise MissingExtra("fmnes.integrations.ioh", "ioh") from error

#: What goes on to `fmnes.minimize` as it is. The problem says the rest; and it counts and logs in the process
#: that calls it, so that every evaluation is made here, one after another.
_OPTIONS = frozenset(inspect.signature(minimize).parameters) - {
    "fun", "bounds", "integers", "callback", "workers", "executor", "timeout", "vectorized", "run_dir",
}  # fmt: skip
#: Default evaluations per dimension.
_PER_DIMENSION = 10_000


class Algorithm:
    """An algorithm for IOHexperimenter: call it with a problem, or pass it to `ioh.Experiment`.

    A problem that is to be maximised is minimised with the opposite sign. If a constraint that the problem
    enforces is violated, the evaluation has failed, whatever its value; it also has failed if the value is
    NaN or the function raises. Points are inside the bounds, and whole numbers if the problem requires them.

    Parameters
    ----------
    method : str or Strategy or Resampling, optional
        As in `fmnes.minimize`.
    max_evaluations : int, optional
        Budget of one run; by default 10,000 for each dimension.
    precision : float, optional
        A run ends as soon as its value is this near to the problem's optimum, if that is known.
    rng : int or numpy.random.Generator, optional
        A seed. Each problem, instance, dimension and repetition has its own seed, derived from it.
    **options
        Other options of `fmnes.minimize`, such as restarts or population_size. By default x0 is uniform
        inside the bounds, and sigma0 a quarter of their width (less in more than ten dimensions). A target is
        in the problem's own numbers.

    Raises
    ------
    ArgumentError
        An option is unknown, or an argument is wrong.

    Examples
    --------
    >>> import ioh
    >>> from fmnes.integrations.ioh import Algorithm
    >>> problem = ioh.get_problem("Sphere", instance=1, dimension=2, problem_class=ioh.ProblemClass.BBOB)
    >>> Algorithm(max_evaluations=2000, rng=1)(problem).success
    True
    """

    def __init__(
        self,
        method: str | Strategy | Resampling = DEFAULT_METHOD,
        *,
        max_evaluations: int | None = None,
        precision: float = 1e-8,
        rng: int | np.random.Generator | None = None,
        **options: Any,
    ) -> None:
        self._name = resolve(method)[0].name
        self._max_evaluations = check_number("max_evaluations", max_evaluations, above=0, whole=True)
        self._precision = check_number("precision", precision, above=-1e-300, optional=False)
        generator, seed = check_rng(rng)
        self._entropy = int(generator.integers(2**63)) if seed is None else seed
        for name in options:
            if name not in _OPTIONS:
                wanted = option_alias(name, _OPTIONS) or f"one of {', '.join(sorted(_OPTIONS))}"
                raise ArgumentError(
                    f"Algorithm: found the option {name!r}, wanted {wanted}{nearest(name, _OPTIONS)}"
                )
        self._options = {**options, "method": method}
        self.runs = 0
        """Runs so far."""
        self.seed = 0
        """Of the present run: what `fmnes.minimize(rng=...)` repeats it with."""
        self.sigma = np.nan
        """Its step size, for loggers that watch it."""
        self.n_infeasible = 0
        """Its evaluations that failed, up to the last generation."""

    def __str__(self) -> str:
        return f"fmnes {self._name}"

    def __call__(self, problem: Any) -> Result:
        """Run once on a problem.

        Parameters
        ----------
        problem : ioh problem
            The problem.

        Returns
        -------
        Result
            Values have the opposite sign if the problem is to be maximised.
        """
        try:
            meta, d = problem.meta_data, problem.meta_data.n_variables
            whole = isinstance(problem, ioh.problem.IntegerSingleObjective)
            bounds = _finite_or_none(problem.bounds)
            best = float(problem.optimum.y)
        except AttributeError:
            raise ArgumentError(f"problem: found {shown(problem)}, wanted a problem of ioh") from None
        sign = -1.0 if meta.optimization_type == ioh.OptimizationType.MAX else 1.0
        seeds = np.random.SeedSequence([self._entropy, meta.problem_id, meta.instance, d, self.runs])
        self.runs += 1
        self.seed = int(seeds.generate_state(1)[0])
        self.sigma, self.n_infeasible = np.nan, 0

        def evaluate(x: Vector) -> float:
            value = problem(x.astype(int).tolist() if whole else x.tolist())
            if problem.constraints.n() and not problem.constraints.violation() <= 0:
                raise Infeasible("a constraint is violated")
            return sign * float(value)

        def watch(view: View) -> None:
            self.sigma, self.n_infeasible = view.sigma, view.n_infeasible

        options = dict(self._options)
        if options.get("target") is not None:
            options["target"] = sign * check_number("target", options["target"])
        elif np.isfinite(best):
            options["target"] = sign * best + self._precision
        if options.get("x0") is None:
            options["x0"] = _somewhere(bounds, np.random.default_rng(seeds.spawn(1)[0]), whole)
        return minimize(
            evaluate,
            **options,
            bounds=bounds,
            integers=True if whole else None,
            max_evaluations=self._max_evaluations or _PER_DIMENSION * d,
            rng=self.seed,
            callback=watch,
        )


def _finite_or_none(bounds: Any) -> Bounds:
    """Bounds with the largest floats as infinity: IOH uses them for a missing bound."""
    sides = (np.asarray(side, dtype=float) for side in (bounds.lb, bounds.ub))
    largest = np.finfo(float).max
    return Bounds(*(np.where(np.abs(side) < largest, side, np.copysign(np.inf, side)) for side in sides))


def _somewhere(bounds: Bounds, rng: np.random.Generator, whole: bool) -> Vector | None:
    """A start anywhere inside; None where a bound is missing: then the user has to say it."""
    if not (np.isfinite(bounds.lower) & np.isfinite(bounds.upper)).all():
        return None
    x: Vector = rng.uniform(bounds.lower, bounds.upper)
    return np.round(x) if whole else x
