"""The ask-and-tell optimiser: state of one search, its points and values, and how it is saved."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import (
    Default,
    check_count,
    check_flag,
    check_memory,
    check_number,
    check_path,
    check_rng,
    suggest_options,
)
from fmnes.bounds import first_step
from fmnes.constraints import ConstraintResult, Limits, read_constraints
from fmnes.errors import ArgumentError, FmnesError, SnapshotError, UsageError
from fmnes.identity import EvaluationId
from fmnes.parameters import Parameter
from fmnes.result import Best, Named, Result, Stop, StopReason, Vector, View, X, Xs
from fmnes.search.archive import Archive, read_known
from fmnes.search.constrained import Constrained
from fmnes.search.distribution import shaped_by
from fmnes.search.explorer import Begin, Explorer
from fmnes.search.generation import Generation
from fmnes.search.mixed import make_distribution
from fmnes.search.modelled import (
    check_surrogate,
    make_surrogate,
    next_round,
    proposed_generation,
    ranked_slots,
    screened_generation,
)
from fmnes.search.overlap import OverlapScheduler, check_overlap
from fmnes.search.points import Name, Point, digest_of, name_of, read_value, read_values
from fmnes.search.polling import Poll, next_poll
from fmnes.search.saved import Saved, count, dump_best, restore_best, shaped
from fmnes.search.screen import Screened, Source, poll_only, screen
from fmnes.search.start import Start
from fmnes.search.stopping import Gains, Recent, settled_at, stop_at
from fmnes.space import Space, is_space, read_space, unpack
from fmnes.storage.snapshot import read_snapshot, write_snapshot
from fmnes.strategies import DEFAULT_METHOD, Resampling, Strategy
from fmnes.strategies.base import takes_points_from_elsewhere
from fmnes.surrogate.phases import Surrogate

if TYPE_CHECKING:
    from typing import Unpack

    from fmnes.run.options import OptimizerOptions

#: The kind of a saved file.
KIND = "optimizer"
#: Most coordinates with which a result has its covariance.
MAX_COVARIANCE = 300
#: A search under limits ended outside of them if its last merits are below its best value by more than these
#: shares of the distance from its first value, and of the value.
LIMIT_GAP, SMALLEST_GAP = 1e-6, 1e-9
#: Limits set by the user, saved unchanged.
LIMITS = ("target", "max_evaluations", "xtol", "ftol")
_NOT_GIVEN: Any = Default("not given")


class Optimizer(Generic[X, Xs]):
    """Minimise by asking for points and telling their values.

    A failed evaluation is reported as NaN, inf or None; one that was lost to the machine as `fmnes.LOST`, and
    its point is asked again. Points may be asked for a few at a time and reported one by one, in any order
    and from any process; the search is the same.

    Parameters
    ----------
    x0 : array_like or dict of str to Real, Integer or Categorical, optional
        As in `fmnes.minimize`. With named parameters the points are dicts {name: value}.
    sigma0 : float or array_like, optional
        As in `fmnes.minimize`.
    method : str or Strategy or Resampling, optional
        As in `fmnes.minimize`.
    population_size : int, optional
        Points in the first generation; about 4 + 3 ln d by default.
    bounds : sequence or Bounds, optional
        As in `fmnes.minimize`.
    bounds_as : {"map", "failure"}, optional
        As in `fmnes.minimize`.
    integers : bool or float or sequence, optional
        As in `fmnes.minimize`.
    rng : int or numpy.random.Generator, optional
        A seed, a Generator, or None for a fresh seed, which the attribute `seed` reports.
    target : float, optional
        `stop_reason` is TARGET as soon as a value is at most this.
    max_evaluations : int, optional
        Budget of evaluations.
    xtol : float or None, optional
        As in `fmnes.minimize`.
    ftol : float or None, optional
        As in `fmnes.minimize`.
    known : sequence of pairs, optional
        As in `fmnes.minimize`.
    covariance : array_like, optional
        As in `fmnes.minimize`.
    overlap : float, optional
        The share of a generation that may be handed out early. Points are then asked for by `ask(n)` only,
        and values count in the order in which they arrive.
    surrogate : bool, optional
        Save evaluations with models, as in `fmnes.minimize`. `ask` then returns `batch_size` points at a time
        where the models propose them.
    batch_size : int, optional
        With `surrogate`: how many points are evaluated at the same time.
    constraints : dict or sequence, optional
        Limits on outputs, as in `fmnes.minimize`. What is told is then `(value, {name: output})`.

    Raises
    ------
    ArgumentError
        An argument is wrong.

    Examples
    --------
    >>> import fmnes
    >>> opt = fmnes.Optimizer([3.0, 2.0], 0.5, rng=1)
    >>> while opt.stop_reason is None:
    ...     X = opt.ask()
    ...     opt.tell([float(x @ x) for x in X])
    >>> opt.stop_reason.name, bool(opt.best.fun < 1e-12)
    ('XTOL', True)

    One by one:

    >>> opt = fmnes.Optimizer([3.0, 2.0], 0.5, rng=1)
    >>> for id, x in opt.ask(3):
    ...     opt.tell(id, float(x @ x))
    >>> opt.evaluations
    3
    """

    @overload
    def __init__(
        self: Optimizer[Named, list[Named]],
        x0: Mapping[str, Parameter],
        sigma0: None = None,
        *,
        population_size: int | None = None,
        **options: Unpack[OptimizerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Optimizer[Vector, Vector],
        x0: ArrayLike | None = None,
        sigma0: ArrayLike | None = None,
        *,
        population_size: int | None = None,
        bounds: Any = None,
        integers: Any = None,
        **options: Unpack[OptimizerOptions],
    ) -> None: ...
    @suggest_options
    def __init__(
        self,
        x0: ArrayLike | Mapping[str, Parameter] | None = None,
        sigma0: ArrayLike | None = None,
        *,
        method: str | Strategy | Resampling = DEFAULT_METHOD,
        population_size: int | None = None,
        bounds: Any = None,
        bounds_as: Literal["map", "failure"] = "map",
        integers: Any = None,
        rng: int | np.random.Generator | None = None,
        target: float | None = None,
        max_evaluations: int | None = None,
        xtol: float | None = 1e-12,
        ftol: float | None = 1e-12,
        known: Any = (),
        covariance: ArrayLike | None = None,
        overlap: float = 0.0,
        surrogate: bool = False,
        batch_size: int = 1,
        constraints: Any = None,
    ) -> None:
        limits = read_constraints(constraints)
        self.space, numbers = unpack(
            x0, sigma0, bounds=bounds, integers=integers, covariance=covariance, known=known
        )
        """The named parameters; None: points are arrays."""
        steps = numbers["sigma0"]
        if covariance is not None:
            steps, method = shaped_by(covariance, steps, numbers["x0"], method)
        start = Start.of(
            numbers["x0"],
            steps,
            method,
            population_size,
            numbers["bounds"],
            bounds_as,
            numbers["integers"],
        )
        check_memory(start.strategy.matrices, len(start.x0), start.strategy.name, start.population_size)
        self.strategy, self.population_size, self.bounds = start.strategy, start.population_size, start.bounds
        self.target = check_number("target", target)
        self.max_evaluations = check_number("max_evaluations", max_evaluations, above=0, whole=True)
        self.xtol = check_number("xtol", xtol, above=0)
        self.ftol = check_number("ftol", ftol, above=0)
        generator, self.seed = check_rng(rng)
        self._start = start
        self._distribution = make_distribution(start, generator)
        self.restart = 0
        """Searches before this one; part of the ids of points."""
        self.generation = 0
        """Complete generations."""
        self.evaluations = 0
        self.n_infeasible = 0
        self.start_failed = False
        """Does the start fail? Then there is no update until an evaluation succeeds."""
        self.n_repeated = 0
        """Points that were known and not evaluated again."""
        self._archive = Archive(len(start.x0))
        self._best = Best(None, np.inf, 0)
        share = check_overlap(overlap, start)
        self._constrained: Constrained | None = None
        if limits is not None:
            # A projected point is one more in a generation: not of those that overlap, or are drawn again.
            # The models of the limits are of numbers, not of choices.
            projects = takes_points_from_elsewhere(start.strategy) and start.max_redraws is None
            projects = projects and start.choices is None
            self._constrained = Constrained(limits, len(start.x0), projects, evaluates=not share)
        known_points = read_known(numbers["known"], len(start.x0), start.bounds, start.grid, limits)
        for x, value, outputs in known_points:
            self._archive.add(x, value, outputs)
            self._take_best(x[None], np.array([value]), None if outputs is None else outputs[None], 0)
        self._recent = self._no_recent()
        self._polled = 0
        """Polled neighbours of the best point."""
        self._feasible_share = np.nan
        self._current: Generation | None = None
        self._asked: NDArray[np.intp] | None = None
        self.overlap_scheduler = OverlapScheduler(self, share) if share else None
        """Hands out points of the next generation before this one is complete; None: it waits."""
        self.timed = False
        """Does a limit of time end the run?"""
        self._explorer: Explorer | None = None
        """Looks all over a finite box for the first success and for starts of restarts; None: neither."""
        self.gains: Gains | None = None
        """The gains so far; None except with restarts in a box."""
        self._anywhere = _is_anywhere(x0)
        self._surrogate: Surrogate | None = None
        """Models of the objective, which save evaluations; None: the search is plain."""
        check_flag("surrogate", surrogate)
        check_count("batch_size", batch_size, 1)
        if surrogate:
            self.use_surrogate(batch_size)
        if x0 is None or (self.space is not None and not self.space.has_start):
            self.explore_box()

    # -- asking and telling ----------------------------------------------------------------------------------

    @overload
    def ask(self) -> Xs: ...
    @overload
    def ask(self, n: int) -> list[Point[X]]: ...
    def ask(self, n: int | None = None) -> Any:
        """Return points that need a value.

        Near the end of `max_evaluations` only as many points are returned as the budget allows. No points are
        returned if a long sequence of generations was known already, or was entirely outside the bounds (with
        `bounds_as="failure"`); `stop_reason` is then REPEATED or NO_FEASIBLE.

        Parameters
        ----------
        n : int, optional
            Return up to n points that were not handed out yet. Without n, return all points that still need a
            value.

        Returns
        -------
        ndarray or list of dict or list of Point
            Without n: the points (m, d), read-only, with m ≤ λ; with named parameters a list of dicts. With
            n: a list of `(id, x)`; it is empty if all points are handed out: report some of their values
            first.

        Raises
        ------
        ArgumentError
            n is not a positive whole number.
        UsageError
            n is missing although the optimizer was made with `overlap`.

        Examples
        --------
        >>> import fmnes
        >>> fmnes.Optimizer([3.0, 2.0], 0.5, population_size=8).ask().shape
        (8, 2)
        """
        if n is not None:
            wanted: int = check_number("n", n, above=0, whole=True, optional=False)
            scheduler = self.overlap_scheduler
            return (
                self._hand_out(wanted) if scheduler is None else self._hand_out_overlapping(scheduler, wanted)
            )
        if self.overlap_scheduler is not None:
            raise UsageError("ask: found no number together with overlap; wanted ask(n), and tell(id, value)")
        current, self._asked = self._wanted()
        x = current.points(self._asked)
        if self.space is not None:
            return [self.space.named(point) for point in x]
        x.setflags(write=False)
        return x

    @overload
    def tell(self, values: Any) -> None: ...
    @overload
    def tell(self, id: str, value: Any, /) -> None: ...
    def tell(self, values: Any, value: Any = _NOT_GIVEN) -> None:
        """Report the values of points.

        `tell(values)` reports those of the points that the last `ask()` returned, in that order. `tell(id,
        value)` reports one point of `ask(n)`, in any order, also after `save` and `load`. A second answer for
        a point, or one that arrives after its generation has ended, is ignored.

        Parameters
        ----------
        values : array_like or sequence, or str
            One value per point: a number; NaN, inf or None for a failed evaluation; `fmnes.LOST` for one that
            was lost. Or the id of one point.
        value : float or None or LOST, optional
            The value of the point with that id.

        Raises
        ------
        ArgumentError
            The number of values is wrong, a value is not a number, or the id is of another search.
        UsageError
            There are no open points: call `ask` first.

        Examples
        --------
        >>> import fmnes
        >>> opt = fmnes.Optimizer([3.0, 2.0], 0.5, population_size=4)
        >>> X = opt.ask()
        >>> opt.tell([1.0, None, fmnes.LOST, 2.0])
        >>> len(opt.ask())  # the lost one
        1
        """
        if value is not _NOT_GIVEN:
            return self._tell_one(name_of(values), *read_value(value, self.limits))
        if self._asked is None or self._current is None:
            raise UsageError("tell: found no open points; wanted ask() first, then one tell() for its points")
        current, slots = self._current, self._asked
        f, lost, outputs = read_values(values, len(slots), self.limits)
        if current.out_of_order is not None:  # some were reported by id: count all in slot order
            self._asked = None
            kept = slice(None) if lost is None else ~lost
            current.keep(slots[kept], f[kept], None if outputs is None else outputs[kept])
            return self._count_in_order(current)
        if self.target is not None and (hits := self._hits(f, outputs)).size:
            # Values count in slot order up to the first that reaches the target.
            lost = np.zeros(len(f), dtype=bool) if lost is None else lost
            lost[hits[0] + 1 :] = True
        if lost is not None:
            f, slots = f[~lost], slots[~lost]
            outputs = None if outputs is None else outputs[~lost]
        self._count(current, slots, f, outputs)

    def _hits(self, f: NDArray[np.float64], outputs: NDArray[np.float64] | None) -> NDArray[np.intp]:
        """Return which of these evaluations reach the target: within the limits, if there are some."""
        attained = self.attained(f, outputs)
        return np.flatnonzero((attained <= self.target) & np.isfinite(attained))

    def attained(self, f: NDArray[np.float64], outputs: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the values of points that may be the answer.

        Parameters
        ----------
        f : ndarray
            Values; NaN for failed evaluations. (n,)
        outputs : ndarray or None
            Their outputs that have limits; None without limits. (n, k)

        Returns
        -------
        ndarray
            The values, +inf where a limit is violated. (n,)
        """
        return f if outputs is None or self._constrained is None else self._constrained.attained(f, outputs)

    @property
    def best_outputs(self) -> Vector | None:
        """The outputs with limits of the best point of the run, (k,); None without limits."""
        return None if self._constrained is None else self._constrained.best.outputs

    @property
    def limits(self) -> Limits | None:
        """The limits on outputs; None: there are none."""
        return None if self._constrained is None else self._constrained.limits

    # -- state -----------------------------------------------------------------------------------------------

    @property
    def x0(self) -> Vector:
        """The start in internal coordinates, (d,)."""
        return self._start.x0

    @property
    def start_point(self) -> X:
        """The point nearest to the start that may be evaluated."""
        return self._to_user(self._distribution.nearest(self._start.x0))

    @property
    def best(self) -> Best[X]:
        """The best point reported so far, or known before."""
        return self._best if self.space is None else self.space.best(self._best)

    @property
    def exploring(self) -> Explorer | None:
        """The explorer while generations consist of its points."""
        return self._explorer if self._explorer is not None and self._explorer.exploring else None

    def explore_box(self, first: bool = True, restarts: bool = False) -> None:
        """Evaluate points all over the box, not only those of the search distribution.

        Only methods that adapt the population do this; published ones stay as they are. It needs finite
        bounds and excludes overlapping generations and resampling.

        Parameters
        ----------
        first : bool, optional
            Until an evaluation succeeds, as no start was given.
        restarts : bool, optional
            Before restarts, which then begin anywhere in the box. Not if all coordinates are discrete.
        """
        fixed = self.overlap_scheduler is not None or self._start.max_redraws is not None
        bounds = None if fixed else self._start.finite_bounds
        first = first and self._best.x is None  # else one of the known points works
        restarts = restarts and not self._start.repeats and self._constrained is None
        self._explorer = None
        if bounds is not None and self.strategy.adapts_population_size and (first or restarts):
            self._explorer = Explorer(bounds, first, restarts)
            self.gains = Gains(len(self.x0), False, np.inf) if restarts else None

    def use_surrogate(self, batch_size: int = 1) -> None:
        """Save evaluations with models from now on. Only before the first point is asked for.

        Parameters
        ----------
        batch_size : int, optional
            How many points are evaluated at the same time.

        Raises
        ------
        ArgumentError
            The method, or another option, excludes models.
        """
        check_surrogate(self._start, self.overlap)
        batch = check_count("batch_size", batch_size, 1)
        if self._constrained is not None:
            raise ArgumentError(
                "surrogate: found True together with constraints, which the models do not know yet; wanted "
                "one of the two"
            )
        self._surrogate = make_surrogate(self._start, self.rng, batch, self._anywhere)
        for x, value in self._archive.items():
            self._surrogate.add(x, value)

    @property
    def restarts_in_box(self) -> bool:
        """Whether restarts begin anywhere in the box."""
        return self._explorer is not None and self._explorer.restarts

    def note_start(self, value: float) -> None:
        """Note the value of the start, which was evaluated outside this search.

        Parameters
        ----------
        value : float
            Its value; NaN if it failed. Only adaptive methods react to that.
        """
        self.start_failed = bool(np.isnan(value)) and self.strategy.adapts_population_size
        if self._explorer is not None:
            self._explorer.add(self._distribution.nearest(self._start.x0)[None], np.array([value]))
            self._explorer.exploring = self._explorer.needs_success

    def _to_user(self, x: Vector) -> X:
        """Return a point as the user sees it."""
        return cast(X, x if self.space is None else self.space.named(x))

    @property
    def sigma0(self) -> NDArray[Any]:
        """The initial step size as given: a number, or one per coordinate."""
        return self._start.steps

    @property
    def has_categories(self) -> bool:
        """Whether a coordinate is the position of a choice (`fmnes.Categorical`)."""
        return self._start.choices is not None

    @property
    def has_finite_bounds(self) -> bool:
        """Whether every coordinate has a lower and an upper bound."""
        return self._start.finite_bounds is not None

    def known(self, x: Vector) -> float | None:
        """Return the value of a point that is known without evaluating it.

        Parameters
        ----------
        x : ndarray
            A point in internal coordinates, (d,).

        Returns
        -------
        float or None
            Its value; NaN if it fails; None if it is not known.
        """
        return self._archive.get(x)

    def remember(self, x: Vector, value: float, outputs: Vector | None = None) -> None:
        """Store the value of a point that was evaluated outside this search.

        Only a search in which points can repeat (every coordinate is discrete) stores it.

        Parameters
        ----------
        x : ndarray
            The point in internal coordinates, (d,).
        value : float
            Its value; NaN if it fails.
        outputs : ndarray, optional
            With limits: its outputs that have limits, (k,).
        """
        if self._start.repeats:
            self._archive.add(x, value, outputs)

    @property
    def recent_bests(self) -> list[float]:
        """The best values of the last generations; empty if all coordinates are discrete."""
        return [] if self._start.repeats else list(self._recent.bests)

    @property
    def steps_supported(self) -> bool:
        """Whether enough evaluations succeeded while the steps became shorter; else they shrank by chance."""
        return self._recent.supported

    @property
    def mean(self) -> X:
        """The mean of the search distribution: (d,), or {name: value}."""
        return self._to_user(self._distribution.mean)

    @property
    def sigma(self) -> float:
        """The step size."""
        return float(self._distribution.state.sigma)

    @property
    def covariance(self) -> NDArray[np.float64]:
        """The covariance (d, d) of its points, in the user's coordinates (logarithms on a log scale)."""
        return self._distribution.covariance

    def view(self) -> View[X]:
        """Return the search as an observer sees it.

        Returns
        -------
        View
            What callbacks of `fmnes.minimize` receive.
        """
        return self._view() if self.space is None else self.space.view(self._view())

    def _view(self) -> View[Any]:
        shape = self._distribution.shape
        return View(
            generation=self.generation,
            evaluations=self.evaluations,
            population_size=self._distribution.population_size,
            mean=self._distribution.as_point(shape.mean),
            sigma=float(shape.sigma),
            axis_lengths=np.array(shape.axis_lengths),
            phase=shape.phase,
            feasible_share=self._feasible_share,
            generation_best=self._generation_best,
            best=self._best,
            n_repeated=self.n_repeated,
            n_infeasible=self.n_infeasible,
        )

    @property
    def _generation_best(self) -> float:
        if self._constrained is not None:  # the last generations are known by their merits
            return self._constrained.generation_best
        return self._recent.bests[-1] if self._recent.bests else np.inf

    @property
    def ends_within_limits(self) -> bool:
        """Whether the search ended where its best point is, and not where it violates a limit."""
        if self._constrained is None:
            return True
        best, last = self._best.fun, min(self.recent_bests, default=np.inf)
        if not np.isfinite(best):
            return False
        gap = max(LIMIT_GAP * abs(self._constrained.first_value - best), SMALLEST_GAP * abs(best))
        return not best - last > gap

    @property
    def stop(self) -> Stop | None:
        """Why it is time to stop, with the numbers, or None. `ask` and `tell` continue to work."""
        return stop_at(self, self._view())

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it is time to stop, a `fmnes.StopReason`, or None."""
        stop = self.stop
        return stop.reason if stop else None

    @property
    def rng(self) -> np.random.Generator:
        """The random generator that draws the points."""
        return self._distribution.rng

    def result(self, stop: Stop | None = None) -> Result[X]:
        """Return the result so far.

        Parameters
        ----------
        stop : Stop, optional
            Why the search ends; by default `self.stop`.

        Returns
        -------
        Result
            The result; its `stop_reason` is None while the search may continue.
        """
        stop = stop or self.stop
        reason = stop.reason if stop else None
        settled = reason is not None and reason.converged and np.isfinite(self._best.fun)
        settled = settled and self.steps_supported and self.ends_within_limits
        best = self.answer(self._best)
        result: Result[Any] = Result(
            x=None if best.x is None else best.x.copy(),
            fun=best.fun,
            success=bool(reason is StopReason.TARGET or (self.target is None and settled)),
            stop_reason=reason,
            message=(stop.message if stop else "still running") + self.violated_in_words(self._best),
            constraints=self.constraints_at(self._best),
            nfev=self.evaluations,
            nit=self.generation,
            n_infeasible=self.n_infeasible,
            n_repeated=self.n_repeated,
            x_mean=self._distribution.nearest(self._distribution.mean),
            seed=self.seed,
            covariance=self._small_covariance(),
            sigma0=self._start.sigma,
        )
        return result if self.space is None else self.space.result(result)

    def answer(self, best: Best[Any]) -> Best[Any]:
        """Return the point of a result: the best one, or with limits the least violated if there is none.

        Parameters
        ----------
        best : Best
            The best point of the run, of all searches.

        Returns
        -------
        Best
            That point, in internal coordinates.
        """
        if best.x is None and self._constrained is not None and self._constrained.best.least_x is not None:
            return Best(self._constrained.best.least_x, self._constrained.best.least_fun, 0)
        return best

    def constraints_at(self, best: Best[Any]) -> dict[str, ConstraintResult] | None:
        """Return the constraints at the point that `answer` returns; None without limits.

        Parameters
        ----------
        best : Best
            As in `answer`.

        Returns
        -------
        dict or None
            What `Result.constraints` has.
        """
        return (
            None
            if self._constrained is None
            else self._constrained.report(best.x is not None, self._distribution)
        )

    def violated_in_words(self, best: Best[Any]) -> str:
        """Return the end of a message if no point satisfies all limits; else nothing.

        Parameters
        ----------
        best : Best
            As in `answer`.

        Returns
        -------
        str
            Begins with a semicolon, or is empty.
        """
        if best.x is not None or self._constrained is None:
            return ""
        return self._constrained.violated_in_words()

    def _small_covariance(self) -> NDArray[np.float64] | None:
        if len(self._start.x0) > MAX_COVARIANCE:
            return None
        with np.errstate(all="ignore"):  # huge steps overflow
            return self.covariance

    def again(
        self,
        x0: Vector,
        sigma0: NDArray[Any],
        population_size: int,
        max_evaluations: int | None,
        share: float = 1.0,
    ) -> Self:
        """Return a new search with the same random generator and archive.

        Parameters
        ----------
        x0 : ndarray
            Where it starts, in internal coordinates.
        sigma0 : ndarray
            Its first step size.
        population_size : int
            Points in its first generation.
        max_evaluations : int or None
            Its budget.
        share : float, optional
            Its step size as a share of the first search's. With short steps the choices of x0 are likely.

        Returns
        -------
        Optimizer
            The new search.
        """
        limits = {**self._limits(), "max_evaluations": max_evaluations}
        limits["overlap"] = self.overlap
        opt = type(self)(
            **self._start.again(x0, sigma0, population_size), **limits, constraints=self.limits, rng=0
        )
        if self._constrained is not None:
            opt._constrained = self._constrained.again(self._distribution)
        opt._distribution = make_distribution(opt._start, self._distribution.rng, share)
        opt._archive = self._archive
        opt.seed, opt.restart, opt.space = None, self.restart + 1, self.space
        opt.start_failed = self.start_failed and np.array_equal(opt.x0, self.x0)
        if self._surrogate is not None:
            self._surrogate.begin_search()
            opt._surrogate = self._surrogate
        opt.timed = self.timed
        if self._explorer is not None and self._explorer.restarts:
            self._explorer.exploring, self._explorer.first = False, False
            opt._explorer = self._explorer
        return opt

    def again_in_box(
        self,
        reason: StopReason,
        x0: Vector,
        look: bool,
        population_size: int,
        max_evaluations: int | None,
    ) -> Self:
        """Return a restart somewhere in the box, with the same random generator and archive.

        Parameters
        ----------
        reason : StopReason
            Why this search has ended.
        x0 : ndarray
            Where it starts, in internal coordinates, if it does not look for a start.
        look : bool
            Evaluate points all over the box first, and start in a basin that no search was in.
        population_size : int
            Points in its first generation.
        max_evaluations : int or None
            Its budget.

        Returns
        -------
        Optimizer
            The new search.
        """
        bounds, explorer = self._start.finite_bounds, self._explorer
        assert bounds is not None and explorer is not None
        if self.gains is not None and reason is not StopReason.STALLED:
            ended = self.gains.x if reason is StopReason.HOPELESS else self._distribution.mean
            explorer.note_search(ended, self.gains.best)
        steps = first_step(bounds.lower, bounds.upper, len(x0))
        ended = None if self._surrogate is None else self._surrogate.best_point
        opt = self.again(x0, steps, population_size, max_evaluations)
        opt.gains = Gains(len(x0), True, explorer.best)
        if opt._surrogate is not None and ended is not None:
            opt._surrogate.begin_elsewhere(ended)
        elif look:
            opt._begin_at(explorer.look_for_start(opt.rng))
        return opt

    def _check_duplicates(self, current: Generation) -> None:
        """Check a restored generation: each duplicate has an open slot, or a known value."""
        evaluated = {x.tobytes() for x in current.x[current.open]}
        for x in current.x[current.duplicates]:
            if not (x.tobytes() in evaluated or self._archive.get(x) is not None):
                raise SnapshotError("a duplicate without the slot that is evaluated for it")

    def _check_choices(self) -> None:
        """Check that a restored search has no choices that do not exist: they are looked up."""
        choices = self._start.choices
        if choices is None:
            return
        points = [] if self._current is None else [self._current.x]
        points += [] if self._best.x is None else [self._best.x[None]]
        where = np.flatnonzero(choices)
        for x in points:
            found = x[:, where]
            if not ((found == np.rint(found)) & (found >= 0) & (found < choices[where])).all():
                raise SnapshotError("a choice that does not exist")

    @property
    def surrogate(self) -> bool:
        """Whether models save evaluations."""
        return self._surrogate is not None

    @property
    def narrow(self) -> bool:
        """Whether models started the distribution in a small region where nothing fails.

        What it finds there may be one of several valleys.
        """
        return self._surrogate is not None and self._surrogate.narrow

    @property
    def overlap(self) -> float:
        """The share of a generation that may be handed out early."""
        return 0.0 if self.overlap_scheduler is None else self.overlap_scheduler.share

    def _limits(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LIMITS}

    # -- the generation in progress --------------------------------------------------------------------------

    def _wanted(self) -> tuple[Generation, NDArray[np.intp]]:
        """Return the generation in progress and its open slots, within the budget."""
        while True:
            current = self._current or self._sample()
            while current.complete and self._recent.unevaluated < self._recent.patience:
                self._update(current, _feasible_values(current.f))
                current = self._sample()
            slots = current.open_slots()
            if self.max_evaluations is not None:
                left = self.max_evaluations - self.evaluations
                if 0 < left < len(slots):
                    slots = slots[:left]
            if current.out_of_order is None:
                return current, slots
            slots = slots[~current.out_of_order[slots]]
            if len(slots) or not len(current.next_out_of_order()):
                return current, slots
            # All values are there, behind one that has reached the target: asking again continues the search.
            self._count_in_order(current, go_on=True)

    def _hand_out(self, n: int) -> list[Point[X]]:
        if self._current is not None and self._current.complete:
            # No point of it had to be evaluated; asking again continues.
            self._update(self._current, _feasible_values(self._current.f))
        current, slots = self._wanted()
        current.x.setflags(write=False)
        return [
            Point(self._name(current, i).id, self._to_user(current.x[i])) for i in current.hand_out(slots, n)
        ]

    def _hand_out_overlapping(self, scheduler: OverlapScheduler, n: int) -> list[Point[X]]:
        points: list[Point[X]] = []
        while len(points) < n and (found := scheduler.take()) is not None:
            evaluation, x = found
            points.append(Point(Name(evaluation, digest_of(x)).id, self._to_user(x)))
        return points

    def _tell_overlapping(
        self, scheduler: OverlapScheduler, name: Name, f: float, lost: bool, outputs: Vector | None
    ) -> None:
        """Report a pending point; others have their value already and are ignored."""
        evaluation = name.evaluation
        known = scheduler.out.get(evaluation)
        late = evaluation[:2] > (self.restart, self.generation)
        if late or (known is not None and digest_of(known.x) != name.mark):
            raise ArgumentError(
                f"tell: found the id {name.id!r}, wanted one that ask(n) gave: this is of another search, or "
                f"of a later generation than {self.generation}"
            )
        if known is not None and lost:
            scheduler.give_back(evaluation)
        elif known is not None:
            scheduler.tell(evaluation, f, outputs)

    def _name(self, current: Generation, slot: int) -> Name:
        return Name(self._id(current, slot), digest_of(current.x[slot]))

    def _id(self, current: Generation, slot: int) -> EvaluationId:
        return EvaluationId(self.restart, self.generation, slot, int(current.redraws[slot]))

    def _tell_one(self, name: Name, f: float, lost: bool, outputs: Vector | None) -> None:
        if self.overlap_scheduler is not None:
            return self._tell_overlapping(self.overlap_scheduler, name, f, lost, outputs)
        evaluation, slot = name.evaluation, name.evaluation.slot
        if evaluation[:2] < (self.restart, self.generation):
            return  # its generation has ended
        current = self._current or self._wanted()[0]  # drawn again after a load
        here = evaluation[:2] == (self.restart, self.generation) and slot < len(current.f)
        if here and evaluation.redraw < current.redraws[slot]:
            return
        if not here or name != self._name(current, slot):
            raise ArgumentError(
                f"tell: found the id {name.id!r}, wanted one that ask(n) gave: this is of another search, or "
                f"of a later generation than {self.generation}"
            )
        if not current.needs(slot):
            return
        if lost:
            return current.take_back(slot)
        current.keep(np.array([slot]), np.array([f]), None if outputs is None else outputs[None])
        self._asked = None
        self._count_in_order(current)

    def _count_in_order(self, current: Generation, go_on: bool = False) -> None:
        """Count the stored values that are next in slot order, up to the first that reaches the target."""
        slots = current.next_out_of_order()
        f = current.f[slots]
        outputs = None if current.outputs is None else current.outputs[slots]
        if self.target is not None and not go_on:
            hits = self._hits(f, outputs)
            n = 0 if self._best.fun <= self.target else hits[0] + 1 if hits.size else len(f)
            slots, f = slots[:n], f[:n]
            outputs = None if outputs is None else outputs[:n]
        if len(slots):
            self._count(current, slots, f, outputs)

    def _count(
        self,
        current: Generation,
        slots: NDArray[np.intp],
        f: NDArray[np.float64],
        outputs: NDArray[np.float64] | None,
    ) -> None:
        """Count the values of open slots in this order; the last ones complete the generation."""
        self._asked = None
        feasible = self._record(current.points(slots), f, outputs)
        current.fill(slots, f, outputs)
        if self._start.repeats and current.complete:
            self._fill_duplicates(current)
        if self._start.max_redraws is not None and current.complete and current.poll is None:
            # Only now, so that the draws do not depend on lost evaluations.
            self._redraw(current, np.flatnonzero(~np.isfinite(current.f)))
        if not current.complete:
            return
        values = current.f
        if self._surrogate is not None:
            # Only now, so that their order does not depend on lost evaluations.
            drawn = not current.proposed and self.exploring is None
            size = self._distribution.population_size if drawn else 0
            for slot in current.take_for_models().tolist():
                value = float(current.f[slot])
                self._surrogate.add(
                    current.x[slot], value if math.isfinite(value) else math.nan, drawn=slot < size
                )
        if self._surrogate is not None and not current.proposed and current.poll is None:
            ranked = next_round(self, self._surrogate, current)
            if ranked is None:  # the models need more evaluations of this generation
                return
            values = ranked
        whole = len(f) == len(current.f)
        self._update(current, feasible if whole else _feasible_values(current.f), values)

    @property
    def asked(self) -> list[EvaluationId]:
        """The id of each point of the last `ask()`."""
        if self._asked is None or self._current is None:
            return []
        return [self._id(self._current, i) for i in self._asked.tolist()]

    def _sample(self) -> Generation:
        if self._start.grid is not None and (poll := self._next_poll()):
            return self._evaluate_poll(poll)
        if self._surrogate is not None and self.exploring is None:
            proposed = proposed_generation(self, self._surrogate)
            if proposed is not None:
                self._current = proposed
                return proposed
        z, x, inside = self._distribution.draw(self._distribution.draws)
        constrained = self._constrained
        if self.exploring is not None:
            x = self._distribution.nearest(self.exploring.next_points(self.rng, x))
            if len(x) < len(z) * (2 if self.strategy.mirrored else 1):
                return self._evaluate_only(z, x)
            inside = None
        elif self._surrogate is not None and (
            waiting := screened_generation(self, self._surrogate, z, x, inside)
        ):
            self._current = waiting
            return waiting
        if constrained is not None and constrained.pending is not None and self.exploring is None:
            x = np.concatenate([x, constrained.pending.x[None]])
            inside = None if inside is None else np.append(inside, True)
        screened = self._screen(x, inside)
        self._current = current = Generation.of(z, x, screened, self._n_outputs)
        if self._start.max_redraws is not None and screened is not None:
            self._redraw(current, np.flatnonzero(screened.failed))
        return current

    def _screen(
        self, x: NDArray[np.float64], inside: NDArray[np.bool_] | None, current: Generation | None = None
    ) -> Screened | None:
        """Decide which of these points are evaluated beside the open ones of the current generation."""
        if not self._start.repeats:
            return screen(x, inside, None, n_outputs=self._n_outputs)
        pending = () if current is None else current.x[current.open]
        screened = screen(x, inside, self._archive, pending, self._n_outputs)
        self.n_repeated += 0 if screened is None else screened.n_known
        return screened

    def _next_poll(self) -> Poll | None:
        stop = settled_at(self, self._view())
        return next_poll(self, stop.reason) if stop else None

    def _evaluate_poll(self, poll: Poll) -> Generation:
        """Begin a generation of these points."""
        z = np.zeros((self._distribution.draws, self._distribution.width))
        current = self._evaluate_only(z, poll.points)
        current.poll = poll.polled
        return current

    def _evaluate_only(self, z: NDArray[np.float64], points: NDArray[np.float64]) -> Generation:
        """Begin a generation that evaluates these points, at most λ, and leaves the other slots unused."""
        size = self._distribution.population_size
        x = np.resize(points, (size, len(self.x0)))
        self._current = current = Generation.of(z, x, poll_only(len(points), size), self._n_outputs)
        return current

    @property
    def _n_outputs(self) -> int:
        """The number of outputs that have limits."""
        return 0 if self._constrained is None else len(self._constrained.limits)

    def _take_poll(self, current: Generation, polled: int) -> None:
        """Restart the distribution at a better neighbour, or note that there is none."""
        if self._best.evaluation > self.evaluations - current.evaluated:
            assert self._best.x is not None
            self._distribution.begin_again(self._best.x)
            self._recent = self._no_recent()
        else:
            self._polled = polled

    def _fill_duplicates(self, current: Generation) -> None:
        """Give the duplicates the values of the slots that were evaluated for them."""
        slots = current.duplicates
        if slots.size:
            values = [self._archive.get(x) for x in current.x[slots]]
            outputs = None
            if self._constrained is not None:
                outputs = np.array([self._archive.outputs(x) for x in current.x[slots]])
            current.fill_duplicates(slots, np.array(values, dtype=np.float64), outputs)
            self.n_repeated += len(slots)

    def _record(
        self, x: NDArray[np.float64], f: NDArray[np.float64], outputs: NDArray[np.float64] | None
    ) -> list[float]:
        """Count evaluations, update the best point and the archive; return the feasible values."""
        feasible = _feasible_values(f)
        if feasible:
            self._take_best(x, f, outputs, self.evaluations + 1)
        if self._start.repeats:
            rows: Any = [None] * len(f) if outputs is None else outputs
            for point, value, row in zip(x, f.tolist(), rows, strict=True):
                self._archive.add(point, value, row)
        self.evaluations += len(f)
        self.n_infeasible += len(f) - len(feasible)
        return feasible

    def _take_best(
        self,
        x: NDArray[np.float64],
        f: NDArray[np.float64],
        outputs: NDArray[np.float64] | None,
        first: int,
    ) -> None:
        """Update the best point by these; first: the number of the first evaluation, 0 if known before."""
        constrained = self._constrained
        if constrained is not None:
            assert outputs is not None
            constrained.best.add(x, f, outputs)
        attained = self.attained(f, outputs)
        low = min(_feasible_values(attained), default=np.inf)
        if low < self._best.fun:
            i = int((attained == low).argmax())
            point = x[i].copy()
            point.setflags(write=False)
            self._best = Best(point, low, first and first + i)
            self._polled = 0
            if constrained is not None and outputs is not None:
                constrained.note_best(outputs[i])

    def note(self, x: NDArray[np.float64], value: float, outputs: Vector | None = None) -> None:
        """Store a known value that does not count as an evaluation; it may be the best.

        Parameters
        ----------
        x : ndarray
            The point in internal coordinates, (d,).
        value : float
            Its value; NaN if it fails.
        outputs : ndarray, optional
            With limits: its outputs that have limits, (k,).
        """
        self.remember(x, value, outputs)
        rows = None if outputs is None else outputs[None]
        self._take_best(x[None], np.array([value]), rows, self.evaluations)

    def note_outside(self, x: NDArray[np.float64], value: float, outputs: Vector | None = None) -> None:
        """Store a point that was evaluated outside this search; on a grid it may be the best.

        Parameters
        ----------
        x : ndarray
            The point in internal coordinates, (d,).
        value : float
            Its value; NaN if it fails.
        outputs : ndarray, optional
            With limits: its outputs that have limits, (k,).
        """
        if self._surrogate is not None:
            self._surrogate.note(x, value)
        if self._constrained is not None and outputs is not None:
            self._constrained.best.add(x[None], np.array([value]), outputs[None])
        if self._start.grid is not None:
            self.note(x, value, outputs)

    def _redraw(self, current: Generation, slots: NDArray[np.intp]) -> None:
        """Resample: each failed slot gets a new draw, in slot order."""
        while slots.size:
            z, x, inside = self._distribution.draw(len(slots))
            screened = self._screen(x, inside, current)
            current.redraw(slots, z, x, screened)
            slots = slots[:0] if screened is None else slots[screened.failed]
            if self._start.max_redraws is None or current.redraws.sum() >= self._start.max_redraws:
                return

    def _update(
        self, current: Generation, feasible: list[float], values: NDArray[np.float64] | None = None
    ) -> None:
        """End the generation. values: what ranks the points, if not their own values."""
        if current.poll is not None:
            self._take_poll(current, current.poll)
        elif current.proposed:
            assert self._surrogate is not None
            self._surrogate.observe()
        elif self.exploring is not None:
            self._recent.unevaluated = 0 if current.evaluated else self._recent.unevaluated + 1
            self._feasible_share = len(feasible) / len(current.f)
        else:
            before = self.sigma
            z, f = current.z, current.f
            if self._constrained is not None:
                z, f = current.z, self._merits(self._constrained, current)
                feasible = _feasible_values(f)
            if self._surrogate is not None and values is not None:
                z, f = ranked_slots(self, self._surrogate, current, values)
            # Updates from failures alone would contract the search to the start, which fails too.
            lost = self.start_failed or (self._explorer is not None and self._explorer.needs_success)
            if not (lost and self._best.x is None):
                self._distribution.update(z, f, current.x[: len(f)])
            if self._constrained is not None:
                self._constrained.adapt(self._distribution)
            # On a grid σ may shrink without limit while the margin keeps the steps.
            shrinkage = 0.0 if self._start.repeats else math.log(before) - math.log(self.sigma)
            # Points that the models rank count as the evaluations that they stand for.
            n_feasible = len(feasible) + int(
                np.count_nonzero(np.isfinite(f[current.source[: len(f)] == Source.PREDICTED]))
            )
            size = len(f) if self._constrained is not None else len(current.f)
            self._recent.add(feasible, current.evaluated > 0, size, shrinkage, n_feasible)
            self._feasible_share = n_feasible / size
            if self.gains is not None:
                shape = self._distribution.shape
                self.gains.add(current.x, current.f, float(shape.sigma) * float(shape.axis_lengths.max()))
        if self._explorer is not None:
            self._explore(self._explorer, current)
        self.generation += 1
        self._current = self._asked = None
        if self._start.repeats:
            self._archive.forget_oldest()

    def _merits(self, constrained: Constrained, current: Generation) -> NDArray[np.float64]:
        """Return what ranks the draws of a generation under limits, (λ,); a projected point has no draw."""
        assert current.outputs is not None
        mirrored = self.strategy.mirrored and self.overlap_scheduler is None
        size = len(current.z) * (2 if mirrored else 1)
        return constrained.rank(current.x, current.f, current.outputs, size, mirrored)

    def _explore(self, explorer: Explorer, current: Generation) -> None:
        """Note a generation; begin the search when it is known where."""
        evaluated = current.source == Source.EVALUATED
        was_lost = not explorer.succeeded
        explorer.add(current.x[evaluated], current.f[evaluated])
        if not explorer.succeeded:
            explorer.exploring = explorer.exploring or explorer.first
        elif explorer.exploring and current.poll is None:
            used = current.source != Source.UNUSED
            self._begin_at(
                explorer.begin_at_success() if was_lost else explorer.take(current.f[used], self.rng)
            )
        if explorer.succeeded and not explorer.restarts:
            self._explorer = None

    def _no_recent(self) -> Recent:
        start = self._start
        # Steps are those of the numbers.
        d = len(start.x0) if start.repeats else len(start.numeric)
        return Recent.for_problem(d, self.population_size, start.repeats)

    def _begin_at(self, begin: Begin | None) -> None:
        """Begin the search after an exploration; None: the exploration goes on."""
        if begin is not None:
            self._distribution.begin_at(begin.x, begin.share)
            self._recent = self._no_recent()
            self.start_failed = False

    # -- saving ----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to one file, atomically: an unfinished generation and the random state too.

        Parameters
        ----------
        path : path
            The file, which is replaced if it exists.

        Raises
        ------
        ArgumentError
            `path` is not a path, or the strategy is the user's own.
        OSError
            The file cannot be written.

        Examples
        --------
        >>> import os, tempfile
        >>> import fmnes
        >>> path = os.path.join(tempfile.mkdtemp(), "search.npz")
        >>> opt = fmnes.Optimizer([3.0, 2.0], 0.5, rng=1)
        >>> opt.save(path)
        >>> bool((fmnes.Optimizer.load(path).ask() == opt.ask()).all())
        True
        """
        write_snapshot(check_path("path", path), *self.dump())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an optimizer that `save` wrote; it continues as if it had never stopped.

        No code from the file is run.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        Optimizer
            The optimizer in the state in which it was saved.

        Raises
        ------
        ArgumentError
            `path` is not a path.
        SnapshotError
            The file is damaged, of another program, or written by a newer version.
        """
        metadata, arrays = read_snapshot(check_path("path", path))
        try:
            return cls.restore(metadata, arrays)
        except SnapshotError as error:
            raise SnapshotError(f"{os.fspath(path)}: {error}") from None

    def dump(self) -> Saved:
        """Return what `save` writes.

        Returns
        -------
        tuple of dict and dict
            JSON data, and named arrays.
        """
        metadata: dict[str, Any] = {
            "kind": KIND,
            **self._limits(),
            "seed": None if self.seed is None else str(self.seed),
            "restart": self.restart,
            "generation": self.generation,
            "evaluations": self.evaluations,
            "n_infeasible": self.n_infeasible,
            "n_repeated": self.n_repeated,
            "start_failed": self.start_failed,
            "polled": self._polled,
        }
        if self.space is not None:
            metadata["parameters"] = self.space.as_json()
        arrays: dict[str, NDArray[Any]] = {"feasible_share": np.asarray(self._feasible_share)}
        parts = [self._start.dump(), self._distribution.dump(), self._recent.dump(), dump_best(self._best)]
        parts.append(self._archive.dump())
        optional = (self._explorer, self.gains, self._surrogate, self._constrained)
        parts += [part.dump() for part in optional if part is not None]
        if self._current is not None:
            parts.append(self._current.dump())
        if self.overlap_scheduler is not None:
            metadata["overlap"] = self.overlap
            parts.append(self.overlap_scheduler.dump())
        for more_metadata, more_arrays in parts:
            metadata |= more_metadata
            arrays |= more_arrays
        return metadata, arrays

    @classmethod
    def restore(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Return the optimizer whose `dump` gave these.

        Parameters
        ----------
        metadata : dict
            The JSON data.
        arrays : dict of str to ndarray
            The named arrays.

        Returns
        -------
        Optimizer
            The optimizer.

        Raises
        ------
        SnapshotError
            The data is not what `dump` returns.
        """
        try:
            return cls._restore(metadata, arrays)
        # Valid JSON and arrays that fmnes did not write, or that were edited.
        except (
            FmnesError,
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
            AttributeError,
            AssertionError,
        ) as error:
            raise SnapshotError(f"found an unusable optimizer ({error})") from None

    @classmethod
    def _restore(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        if metadata["kind"] != KIND:
            raise SnapshotError(f"kind {metadata['kind']!r}, wanted {KIND!r}")
        limits = {name: metadata[name] for name in LIMITS}
        start = Start.restore(metadata, arrays)
        constraints = Limits.from_json(metadata["constraints"]) if "constraints" in metadata else None
        opt = cls(
            **start.arguments(),
            **limits,
            rng=0,
            overlap=metadata.get("overlap", 0.0),
            constraints=constraints,
        )
        d = len(start.x0)
        if opt._constrained is not None:
            opt._constrained.restore(metadata, arrays)
        if "parameters" in metadata:
            opt.space = Space.from_json(metadata["parameters"])
            if len(opt.space.names) != d:
                raise SnapshotError(f"{len(opt.space.names)} parameters for {d} coordinates")
        opt._distribution.restore(metadata, arrays)
        opt._recent.restore(metadata, arrays)
        opt.seed = None if metadata["seed"] is None else int(metadata["seed"])
        for name in ("restart", "generation", "evaluations", "n_infeasible", "n_repeated"):
            setattr(opt, name, count(metadata[name]))
        if type(metadata["start_failed"]) is not bool:
            raise SnapshotError(f"start_failed {metadata['start_failed']!r}, wanted true or false")
        opt.start_failed = metadata["start_failed"]
        opt._polled = count(metadata["polled"])
        opt._feasible_share = float(shaped(arrays["feasible_share"], ()))
        opt._best = restore_best(metadata, arrays, d)
        opt._archive.restore(arrays, opt._n_outputs)
        if "surrogate" in metadata:
            opt._surrogate = Surrogate.restore(metadata, arrays)
        opt._explorer = None
        if "explorer" in metadata:
            if start.finite_bounds is None:
                raise SnapshotError("an exploration of a box without finite bounds")
            opt._explorer = Explorer(start.finite_bounds)
            opt._explorer.restore(metadata, arrays)
        opt.gains = Gains.restored(metadata, arrays, d) if "gains" in metadata else None
        if opt.overlap_scheduler is not None:
            opt.overlap_scheduler.restore(metadata, arrays)
        elif "current.z" in arrays:
            drawn = opt._distribution
            opt._current = Generation.restore(
                metadata,
                arrays,
                drawn.draws,
                drawn.population_size,
                d,
                drawn.width,
                any_size=opt._surrogate is not None or opt._constrained is not None,
                n_outputs=opt._n_outputs,
            )
            opt._check_duplicates(opt._current)
            points, draws = len(opt._current.f), len(opt._current.z) * (2 if opt.strategy.mirrored else 1)
            if opt._constrained is not None and points - draws not in (0, 1):
                raise SnapshotError(f"{points} points for {draws} draws")
        opt._check_choices()
        return opt


def _feasible_values(f: NDArray[np.float64]) -> list[float]:
    """Return the feasible values as a list: for few numbers min() is faster than NumPy."""
    feasible = np.isfinite(f)
    values: list[float] = (f if np.count_nonzero(feasible) == len(f) else f[feasible]).tolist()
    return values


def _is_anywhere(x0: Any) -> bool:
    """Is no start given, so that the search begins in the whole box?"""
    if is_space(x0):
        return all(p.start is None for p in read_space(x0).parameters.values())
    return x0 is None
