"""The ask-and-tell optimiser: state of one search, its points and values, and how it is saved."""

from __future__ import annotations

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
from fmnes.constraints import Limits, read_constraints
from fmnes.errors import SnapshotError, UsageError
from fmnes.outcome import EvaluationId
from fmnes.parameters import Parameter
from fmnes.result import Best, Named, Result, Stop, StopReason, Vector, View, X, Xs
from fmnes.search.advance import explore_box
from fmnes.search.answer import result_of
from fmnes.search.archive import Archive, read_known
from fmnes.search.categories import make_distribution
from fmnes.search.checkpoint import dump, restore
from fmnes.search.constrained import Constrained
from fmnes.search.counting import (
    Point,
    evaluation_id,
    hand_out,
    hand_out_overlapping,
    name_of,
    next_slots,
    read_value,
    take_best,
    tell_all,
    tell_one,
)
from fmnes.search.distribution import shaped_by
from fmnes.search.explorer import Explorer
from fmnes.search.generation import Generation
from fmnes.search.modelled import use_surrogate
from fmnes.search.noise_watch import NoiseWatch, make_watch
from fmnes.search.overlap import OverlapScheduler, check_overlap
from fmnes.search.start import Start
from fmnes.search.stopping import Gains, new_recent, stop_at
from fmnes.space import is_space, read_space, unpack
from fmnes.storage.snapshot import Saved, read_snapshot, write_snapshot
from fmnes.strategies import DEFAULT_METHOD, Resampling, Strategy
from fmnes.strategies.base import takes_points_from_elsewhere
from fmnes.surrogate.phases import Surrogate

if TYPE_CHECKING:
    from typing import Unpack

    from fmnes.run.options import OptimizerOptions

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
    noise : {"auto", True, False}, optional
        As in `fmnes.minimize`, but False by default: `ask` then never returns a point twice. Otherwise it
        returns one point more than usual in some generations. The answer is not evaluated again.

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
        xtol: float | None = 1e-8,
        ftol: float | None = 1e-8,
        known: Any = (),
        covariance: ArrayLike | None = None,
        overlap: float = 0.0,
        surrogate: bool = False,
        batch_size: int = 1,
        constraints: Any = None,
        noise: Literal["auto"] | bool = False,
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
            take_best(self, x[None], np.array([value]), None if outputs is None else outputs[None], 0)
        self._recent = new_recent(start, start.population_size)
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
            use_surrogate(self, batch_size)
        self.noise: NoiseWatch | None = make_watch(self, noise)
        """What is known about the noise; None: values are taken as exact."""
        if x0 is None or (self.space is not None and not self.space.has_start):
            explore_box(self)

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
            if self.overlap_scheduler is not None:
                return hand_out_overlapping(self, self.overlap_scheduler, wanted)
            return hand_out(self, wanted)
        if self.overlap_scheduler is not None:
            raise UsageError("ask: found no number together with overlap; wanted ask(n), and tell(id, value)")
        current, self._asked = next_slots(self)
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
            return tell_one(self, name_of(values), *read_value(value, self.limits))
        tell_all(self, values)

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

    @property
    def restarts_in_box(self) -> bool:
        """Whether restarts begin anywhere in the box."""
        return self._explorer is not None and self._explorer.restarts

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
        view = self._view()
        return view if self.space is None else self.space.view(view)

    def _view(self) -> View[Any]:
        """Return the search as an observer sees it, in internal coordinates."""
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
        return result_of(self, stop)

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

    @property
    def asked(self) -> list[EvaluationId]:
        """The id of each point of the last `ask()`."""
        if self._asked is None or self._current is None:
            return []
        return [evaluation_id(self, self._current, i) for i in self._asked.tolist()]

    @property
    def _n_outputs(self) -> int:
        """The number of outputs that have limits."""
        return 0 if self._constrained is None else len(self._constrained.limits)

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
        write_snapshot(check_path("path", path), *dump(self))

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
            return restore(cls, metadata, arrays)
        except SnapshotError as error:
            raise SnapshotError(f"{os.fspath(path)}: {error}") from None

    def dump(self) -> Saved:
        """Return what `save` writes.

        Returns
        -------
        tuple of dict and dict
            JSON data, and named arrays.
        """
        return dump(self)

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
        return restore(cls, metadata, arrays)


def _is_anywhere(x0: Any) -> bool:
    """Is no start given, so that the search begins in the whole box?"""
    if is_space(x0):
        return all(p.start is None for p in read_space(x0).parameters.values())
    return x0 is None
