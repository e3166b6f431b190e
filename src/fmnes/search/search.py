"""One search: its fields, what is known of it, and how it is saved.

Ask and tell, which change it, are in optimizer.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmnes.arguments import check_memory, check_number, check_rng, names_options
from fmnes.errors import FmnesError, SnapshotError
from fmnes.parameters import Parameter
from fmnes.result import Best, Result, Stop, StopReason, Vector, View, X, Xs
from fmnes.search.ahead import Ahead, check_ahead
from fmnes.search.covariance import shaped_by
from fmnes.search.distribution import Distribution
from fmnes.search.ending import stop_at
from fmnes.search.known import read_known
from fmnes.search.memory import Memory
from fmnes.search.saved import Saved, count, dump_best, restore_best, shaped
from fmnes.search.slots import Generation
from fmnes.search.start import Start
from fmnes.search.stopping import Recent
from fmnes.space import Space, unpack
from fmnes.strategies import DEFAULT_METHOD, Resampling, Strategy

if TYPE_CHECKING:
    from fmnes.search.optimizer import Optimizer

#: What a saved file says it is.
KIND = "optimizer"
#: Beyond so many coordinates a result does not carry its covariance.
MAX_COVARIANCE = 300
#: The user's limits, which are saved as they are.
LIMITS = ("target", "max_evaluations", "xtol", "ftol")


class Search(Generic[X, Xs]):
    """The state of an `Optimizer`, which knows how to ask and tell."""

    @names_options
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
        ahead: float = 0.0,
    ) -> None:
        self.space, numbers = unpack(
            x0, sigma0, bounds=bounds, integers=integers, covariance=covariance, known=known
        )
        """Named parameters, in whose words it speaks; None: it speaks in arrays."""
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
        self._distribution = Distribution(start, generator)
        self.restart = 0
        """Searches before this one; a part of its points' ids."""
        self.generation = 0
        """Complete generations so far."""
        self.evaluations = 0
        self.n_infeasible = 0
        self.start_failed = False
        """Is the start known to fail? Then the search looks as far as at first until something succeeds."""
        self.n_repeated = 0
        """Points that were known already, and not evaluated again."""
        self._memory = Memory(len(start.x0))
        self._best = Best(None, np.inf, 0)
        for x, value in read_known(numbers["known"], len(start.x0), start.bounds, start.grid):
            self._memory.add(x, value)
            if value < self._best.fun:
                self._best = Best(x, value, 0)
        self._recent = Recent.for_problem(len(start.x0), self.population_size, start.repeats)
        self._polled = 0
        """Neighbours of the best point that were evaluated to see whether the search may end."""
        self._feasible_share = np.nan
        self._current: Generation | None = None
        self._asked: NDArray[np.intp] | None = None
        share = check_ahead(ahead, start)
        self.flow = Ahead(cast("Optimizer", self), share) if share else None
        """Hands out points ahead of their generation; None: each generation waits for its last value."""

    # -- what it knows ------------------------------------------------------------------------------------

    @property
    def x0(self) -> Vector:
        """The start in the search's own numbers, (d,)."""
        return self._start.x0

    @property
    def start_point(self) -> X:
        """The point nearest to the start that may be evaluated."""
        return self._told(self._distribution.nearest(self._start.x0))

    @property
    def best(self) -> Best[X]:
        """The best point reported so far, or known before."""
        return self._best if self.space is None else self.space.best(self._best)

    def _told(self, x: Vector) -> X:
        """A point in the user's words."""
        return cast(X, x if self.space is None else self.space.named(x))

    @property
    def sigma0(self) -> NDArray[Any]:
        """The first step size as it was given: a number, or one per coordinate."""
        return self._start.steps

    @property
    def has_finite_bounds(self) -> bool:
        """Whether every coordinate has a lower and an upper bound."""
        if self.bounds is None:
            return False
        return bool(np.isfinite(self.bounds.lower).all() and np.isfinite(self.bounds.upper).all())

    def known(self, x: Vector) -> float | None:
        """Return the value of a point that is known without evaluating it.

        Parameters
        ----------
        x : ndarray
            A point in the search's own numbers, (d,).

        Returns
        -------
        float or None
            Its value; NaN if it fails; None if it is not known.
        """
        return self._memory.get(x)

    def remember(self, x: Vector, value: float) -> None:
        """Store the value of a point that was evaluated outside this search.

        Only a search in which points can repeat (every coordinate is discrete) stores it.

        Parameters
        ----------
        x : ndarray
            The point in the search's own numbers, (d,).
        value : float
            Its value; NaN if it fails.
        """
        if self._start.repeats:
            self._memory.add(x, value)

    @property
    def recent_bests(self) -> list[float]:
        """The best values of the last generations; of a grid none, where neighbours are evaluated instead."""
        return [] if self._start.repeats else list(self._recent.bests)

    @property
    def steps_supported(self) -> bool:
        """Whether enough evaluations succeeded while the steps became shorter; else they shrank by chance."""
        return self._recent.supported

    @property
    def mean(self) -> X:
        """The mean of the search distribution: (d,), or {name: value}."""
        return self._told(self._distribution.mean)

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
            generation_best=self._recent.bests[-1] if self._recent.bests else np.inf,
            best=self._best,
            n_repeated=self.n_repeated,
            n_infeasible=self.n_infeasible,
        )

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
        settled = settled and self.steps_supported
        result: Result[Any] = Result(
            x=None if self._best.x is None else self._best.x.copy(),
            fun=self._best.fun,
            success=bool(reason is StopReason.TARGET or (self.target is None and settled)),
            stop_reason=reason,
            message=stop.message if stop else "still running",
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

    def _small_covariance(self) -> NDArray[np.float64] | None:
        if len(self._start.x0) > MAX_COVARIANCE:
            return None
        with np.errstate(all="ignore"):  # of huge steps
            return self.covariance

    def again(
        self, x0: Vector, sigma0: NDArray[Any], population_size: int, max_evaluations: int | None
    ) -> Self:
        """Return a new search that continues with the same random numbers and with what is known.

        Parameters
        ----------
        x0 : ndarray
            Where it starts, in the search's own numbers.
        sigma0 : ndarray
            Its first step size.
        population_size : int
            Points in its first generation.
        max_evaluations : int or None
            Its budget.

        Returns
        -------
        Optimizer
            The new search.
        """
        limits = {**self._limits(), "max_evaluations": max_evaluations}
        limits["ahead"] = self.ahead
        opt = type(self)(**self._start.again(x0, sigma0, population_size), **limits, rng=0)
        opt._distribution = Distribution(opt._start, self._distribution.rng)
        opt._memory = self._memory
        opt.seed, opt.restart, opt.space = None, self.restart + 1, self.space
        opt.start_failed = self.start_failed and np.array_equal(opt.x0, self.x0)
        return opt

    def _check_twins(self, current: Generation) -> None:
        """Of a file: each slot that waits for its twin must have one that gets a value."""
        if current.twins is None:
            return
        asked = {x.tobytes() for x in current.x[current.open]}
        for x in current.x[current.twins]:
            if not (x.tobytes() in asked or self._memory.get(x) is not None):
                raise SnapshotError("a slot without its twin")

    @property
    def ahead(self) -> float:
        """The share of a generation that may be handed out early."""
        return 0.0 if self.flow is None else self.flow.share

    def _limits(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LIMITS}

    # -- saving -------------------------------------------------------------------------------------------

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
        parts.append(self._memory.dump())
        if self._current is not None:
            parts.append(self._current.dump())
        if self.flow is not None:
            metadata["ahead"] = self.ahead
            parts.append(self.flow.dump())
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
        # Data that is whole but was not written by us, or was edited: anything may be missing from it.
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
        opt = cls(**start.arguments(), **limits, rng=0, ahead=metadata.get("ahead", 0.0))
        d = len(start.x0)
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
        opt._memory.restore(arrays)
        if opt.flow is not None:
            opt.flow.restore(metadata, arrays)
        elif "current.z" in arrays:
            drawn = opt._distribution
            opt._current = Generation.restore(metadata, arrays, drawn.draws, drawn.population_size, d)
            opt._check_twins(opt._current)
        return opt
