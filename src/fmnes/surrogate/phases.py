"""What a search with a model does next, as a function of its evaluations and a seed.

start      the start and 2 d quasi-random points around it, closer to it after failures, or in the box without
           a start; then points all over the box until one works
elsewhere  points of a finite range where another basin is likely (`elsewhere.py`): before a restart, and if
           the best value is a plateau
region     single points proposed by the models of `trust_region.py`
local      the search distribution, started from the models; `screening.py` says which points are evaluated

A restart in a finite range begins with `local`, around the end of the search before it and with the first
steps, if that search has found a better value; otherwise with `elsewhere`.

Points are in units of the range: u = (x − origin)/width.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.surrogate import elsewhere, quasi_random, trust_region, value_model
from fmnes.surrogate.evaluated import Evaluated
from fmnes.surrogate.trust_region import Region, Snap

Floats = NDArray[np.float64]

START, ELSEWHERE, REGION, LOCAL = "start", "elsewhere", "region", "local"
PHASES = (START, ELSEWHERE, REGION, LOCAL)
#: A region around a given start is this many step sizes wide; one in a box without a start has this size.
REGION_STEPS, REGION_IN_BOX = 3.0, 0.8
#: The size of the region of a restart, and that around the best point of all if no new point worked.
REGION_OF_RESTART, REGION_OF_NOTHING = 0.25, 0.1
#: The best value is a plateau if this share of the last 3 d + 10 evaluations that worked have exactly it, …
PLATEAU = 0.5
#: … and so many other regions are searched then.
OTHER_REGIONS = 3
#: Points of the first design, as a multiple of d; at least LEAST_DESIGN without a start.
DESIGN, LEAST_DESIGN = 2, 4
#: The spread of these points after each failure, as a share of that before it, and the smallest one in steps.
SHORTER, LEAST_SCALE = 0.8, 0.05
#: Points of a finite box after the design, at most, until one works.
MOST_FAILED = 3000
#: The best points whose spread is the first step size of the distribution: d + 1, and at least these.
LEAST_SPREAD = 5
#: The first step size is at least this share of the region.
SHORTEST_STEP = 1 / 6
#: The longest first step, as a share of the range.
LONGEST_STEP = 1 / 3
#: The distribution has exhausted its basin if the last 6 d + 10 evaluations gained less than this share of
#: the distance from the best value to the median before it began and its steps are short, or if the last
#: 25 d + 10 did; 2 d + 10 are enough where it began in a small, smooth region.
EXHAUSTED_EVALUATIONS, EXHAUSTED_AT_ANY_STEP, EXHAUSTED_WHERE_SMOOTH = 6.0, 25.0, 2.0
EXHAUSTED_GAIN = 1e-9
#: This share in a restart that has not found the best value of all.
EXHAUSTED_GAIN_OF_RESTART = 1e-4
#: A search has found another basin, and not the same point again, if it gained more than this share.
GAINED = 1e-6
#: Short steps, as a share of the first ones.
SHORT_STEP = 1e-2
#: Kendall's τ from which the curvature of the value model shapes the distribution; its largest ratio of axes.
SHAPED, LONGEST_AXIS = 0.7, 30.0
#: Kendall's τ of the value model from which a region is smooth.
SMOOTH = 0.85


class SearchRange(NamedTuple):
    """The units of the models, and the first search."""

    origin: Floats
    width: Floats
    lower: Floats
    """In these units; -inf without a bound. (d,)"""
    upper: Floats
    start: Floats
    step: Floats
    anywhere: bool
    """No start was given: the whole box is searched."""

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.lower).all() and np.isfinite(self.upper).all())


class Surrogate:
    """The phase of a search, and what it has evaluated."""

    def __init__(self, range: SearchRange, seed: int, batch: int) -> None:
        """batch: how many points are evaluated at the same time."""
        self.range, self.seed, self.batch = range, seed, batch
        self.data = Evaluated(len(range.origin))
        self.phase = START
        self.region: Region | None = None
        self.around_start = False
        """Were the first points drawn around a given start?"""
        self.narrow = False
        """Did the distribution of this search begin in a small region where nothing fails?"""
        self.smooth = False
        """Is that region also one that the value model predicts well?"""
        self.ended = np.empty((0, len(range.origin)))
        """Where searches before this one have ended. (n, d)"""
        self.search_from = 0
        """The first evaluation of this search. That of its present region is `data.first`."""
        self.regions = 0
        """Regions of this search that ended on a plateau, or without a gain after one."""
        self.handed_over = -1
        """Evaluations when the distribution took over; -1: it has not, or not from a region."""
        self.first_step = 1.0
        """Its longest step then, in its own units."""
        self._observed = 0
        """Evaluations that the region has seen."""

    def rng(self, purpose: int) -> np.random.Generator:
        """Random numbers for this purpose at this evaluation: nothing has to be saved."""
        return np.random.default_rng([self.seed, purpose, self.data.forgotten + len(self.data)])

    def units(self, x: Floats) -> Floats:
        u: Floats = (x - self.range.origin) / self.range.width
        return u

    def points(self, u: Floats) -> Floats:
        x: Floats = self.range.origin + u * self.range.width
        return x

    def add(self, x: Floats, value: float, drawn: bool = False, outputs: Floats | None = None) -> None:
        """Store an evaluation, NaN for a failed one. drawn: the search distribution drew the point.

        outputs: those that have limits, which `limited.py` uses.
        """
        self.data.add(self.units(x), value, drawn)

    def note(self, x: Floats, value: float, outputs: Floats | None = None) -> None:
        """Store an evaluation made outside the search, unless it is known."""
        if not self.data.knows(self.units(x)[None])[0]:
            self.add(x, value, outputs=outputs)

    def begin_search(self) -> None:
        """A new search begins, by the distribution, with the evaluations so far as data."""
        self._begin(LOCAL)

    def begin_elsewhere(self, ended: Floats) -> None:
        """The new search begins in another basin of the finite range. ended: where the last one ended."""
        self.ended = np.concatenate([self.ended, ended[None]])
        self._begin(ELSEWHERE)

    def begin_around(self, ended: Floats) -> tuple[Floats, Floats]:
        """The new search begins around where the last one ended, with the steps of the first one.

        Returns the point and the axes (d, d) of its distribution, as x.
        """
        self.ended = np.concatenate([self.ended, ended[None]])
        self._begin(LOCAL)
        self.handed_over = len(self.data)
        steps = np.minimum(self.range.step, LONGEST_STEP)
        return self.points(ended), np.diag(self.range.width * steps)

    @property
    def has_gained(self) -> bool:
        """Whether the present search found a value well below those before it, as in another basin."""
        y = self.data.y
        worked = y[np.isfinite(y)]
        if not len(worked):
            return False
        first = y[: self._first_values]
        low, median = float(worked.min()), float(np.median(first[np.isfinite(first)]))
        gain = self._lowest_before / 2 - low / 2
        return bool(gain > GAINED * max(0.0, median / 2 - low / 2))

    @property
    def _lowest_before(self) -> float:
        """The best value before the present search; +inf without one."""
        before = self.data.y[: self.search_from]
        return float(np.nanmin(before)) if np.isfinite(before).any() else math.inf

    @property
    def _first_values(self) -> int:
        """How many values have the median that gains are compared with: those before the distribution began.

        Later ones are close to the best, and the first design may be decades above it.
        """
        n = self.handed_over
        return n if n > 0 and np.isfinite(self.data.y[:n]).any() else len(self.data)

    @property
    def best_point(self) -> Floats | None:
        """The best point of the present search, or of all if none of it worked. (d,)"""
        return self.data.u[self.data.best] if self.data.any_worked else None

    def _begin(self, phase: str) -> None:
        self.data.first = self.search_from = len(self.data)
        self.phase, self.region, self.handed_over = phase, None, -1
        self.narrow = self.smooth = False
        self.regions = 0

    def is_exhausted(self, step: float) -> bool:
        """Whether the distribution gains nothing more. step: its longest, as a share of the first one."""
        if self.phase != LOCAL or self.handed_over < 0:
            return False
        data, since, first = self.data, self.handed_over, self._first_values
        is_best = float(np.nanmin(data.y)) < self._lowest_before
        share = EXHAUSTED_GAIN if is_best else EXHAUSTED_GAIN_OF_RESTART

        def stalled(per_dimension: float) -> bool:
            return trust_region.stalled(data, since, per_dimension, share, first)

        short = step < SHORT_STEP and stalled(EXHAUSTED_EVALUATIONS)
        return short or stalled(EXHAUSTED_WHERE_SMOOTH if self.smooth else EXHAUSTED_AT_ANY_STEP)

    def propose(self, snap: Snap | None) -> Floats | None:
        """Points to evaluate together; None: the distribution goes on. (n, d)"""
        if self.phase == LOCAL:
            self._forget_oldest()
        if self.phase == START:
            points = self._design()
            if points is not None:
                return self.points(points)
            self.phase = REGION if self.data.any_worked else LOCAL
        if self.phase == ELSEWHERE:
            points = self._propose_elsewhere(snap)
            if points is not None:
                return self.points(points)
            self.phase = REGION
        if self.phase == REGION:
            points = self._propose_in_region(snap)
            if points is None and self._leave_plateau():
                points = self._propose_elsewhere(snap)
            if points is not None:
                return self.points(points)
            self.phase = LOCAL
        return None

    def _forget_oldest(self) -> int:
        """Keep a long run's memory, and its snapshots, small. Returns how many evaluations are dropped."""
        n = self.data.forget_oldest()
        self.search_from = max(0, self.search_from - n)
        self._observed = max(0, self._observed - n)
        if self.handed_over >= 0:
            self.handed_over = max(0, self.handed_over - n)
        if n and self.region is not None:
            began, fitted_at = (max(0, at - n) for at in (self.region.began, self.region.fitted_at))
            self.region = self.region._replace(began=began, fitted_at=fitted_at)
        return n

    def _leave_plateau(self) -> bool:
        """After a region: whether another one begins, as the best value is a plateau."""
        data, region = self.data, self.region
        if region is None or not self.range.finite:
            return False
        if self._gained() and not self._on_plateau():
            return False
        if self.regions >= OTHER_REGIONS:
            data.first = self.search_from
            self.region = trust_region.begin(REGION_OF_NOTHING, len(data))
            return False
        self.regions += 1
        self.ended = np.concatenate([self.ended, data.u[data.best][None]])
        data.first = len(data)
        self.phase, self.region = ELSEWHERE, None
        return True

    def _gained(self) -> bool:
        """Whether the present region has the best point of this search."""
        y = self.data.y[self.search_from :]
        return not np.isfinite(y).any() or self.search_from + int(np.nanargmin(y)) >= self.data.first

    def _on_plateau(self) -> bool:
        data = self.data
        last = data.y[-trust_region.stall_window(data.d, trust_region.STALL_EVALUATIONS) :]
        worked = last[np.isfinite(last)]
        return len(worked) > data.d and bool(np.mean(worked == data.y[data.best]) >= PLATEAU)

    def _design(self) -> Floats | None:
        range, d = self.range, self.data.d
        made = len(self.data)
        n = self._design_points
        if range.anywhere and made <= 1:
            anywhere = range.lower + quasi_random.points(n, d, self.seed) * (range.upper - range.lower)
            return anywhere if made else np.concatenate([range.start[None], anywhere])
        if not range.anywhere and made <= n:
            self.around_start = True
            # The first generation has several points: one and the same error in all of them is a bug.
            together = self.batch if made > 1 else max(self.batch, LEAST_DESIGN)
            done = max(0, made - 1)
            z = quasi_random.normal_points(min(together, n - done), d, self.seed, done)
            around = np.clip(range.start + self._design_scale() * range.step * z, range.lower, range.upper)
            return around if made else np.concatenate([range.start[None], around])
        if self.data.any_worked or not range.finite or made > MOST_FAILED:
            return None
        more = quasi_random.points(self.batch, d, self.seed, made - 1)
        return range.lower + more * (range.upper - range.lower)

    @property
    def _design_points(self) -> int:
        """Points of the first design, without the start."""
        return max(DESIGN * self.data.d, LEAST_DESIGN if self.range.anywhere else 2)

    def _design_scale(self) -> float:
        """The spread of the next points around the start, in steps: smaller after failures."""
        scale = 1.0
        for y in self.data.y[1 : self._design_points + 1]:
            scale = max(LEAST_SCALE, scale * SHORTER) if np.isnan(y) else min(1.0, scale / SHORTER)
        return scale

    def _propose_elsewhere(self, snap: Snap | None) -> Floats | None:
        range, data = self.range, self.data
        left = max(2, DESIGN * data.d) - (len(data) - data.first)
        if left <= 0:
            return None
        proposed: list[Floats] = []
        believed = data
        for i in np.arange(min(left, self.batch)):
            rng = self.rng(1 + int(i))
            proposed.append(elsewhere.propose(believed, self.ended, range.lower, range.upper, rng, snap))
            believed = with_median(believed, proposed[-1])
        return np.array(proposed)

    def _first_region(self) -> Region:
        range, data = self.range, self.data
        if len(self.ended):
            works = bool(np.isfinite(data.y[data.first :]).any())
            if not works:
                # Around the best point of this search, or of all.
                data.first = self.search_from if self.regions else 0
            return trust_region.begin(REGION_OF_RESTART if works else REGION_OF_NOTHING, len(data))
        size = REGION_IN_BOX
        if not range.anywhere:
            size = REGION_STEPS * float(range.step.mean())
            if self.around_start and np.isfinite(data.y[: self._design_points + 1]).any():
                size *= self._design_scale()
        return trust_region.begin(size, data.first)

    def _propose_in_region(self, snap: Snap | None) -> Floats | None:
        range, data = self.range, self.data
        if self.region is None:
            self.region = self._first_region()
            self._observed = len(data)
        if trust_region.has_ended(self.region, data):
            return None
        proposed: list[Floats] = []
        believed, region = data, self.region
        while len(proposed) < self.batch:
            point, region = trust_region.propose(
                believed, region, range.lower, range.upper, self.rng(1 + len(proposed)), snap
            )
            if not proposed:
                self.region = region
            # The models take turns within a batch too.
            region = region._replace(quadratic=not region.quadratic)
            if point is None:
                break
            proposed.append(point)
            if len(proposed) < self.batch:
                # The next point of the batch is chosen as if this one had the value of the median.
                believed = with_median(believed, point)
        return np.array(proposed) if proposed else None

    def observe(self) -> None:
        """Let the region see the evaluations that were added since."""
        data, region = self.data, self.region
        if region is None or self.phase != REGION:
            return
        for i in np.arange(self._observed, len(data)):
            y = data.y[: i + 1]
            before = data.y[data.first : i]
            best = np.nanmin(before) if np.isfinite(before).any() else math.inf
            median = 2 * float(np.median(y[np.isfinite(y)] / 2)) if np.isfinite(y).any() else 0.0
            region = trust_region.observe(region, float(y[-1]), float(best), median, data.d)
        self.region, self._observed = region, len(data)

    def hand_over(self) -> tuple[Floats, Floats] | None:
        """The best point and the axes (d, d) of the distribution that goes on from the region, as x.

        None: there was no region.
        """
        if self.region is None:
            return None
        data, size = self.data, self.region.size
        d = data.d
        self.handed_over = len(data)
        self.narrow = not self._edge_near_best()
        models = trust_region.fit(data, size, self.region.theta, False)
        self.smooth = self.narrow and models.value is not None and bool(models.value.tau >= SMOOTH)
        worked = np.flatnonzero(np.isfinite(data.y))
        best = worked[np.argsort(data.y[worked], kind="stable")]
        best = best[best >= data.first][: max(LEAST_SPREAD, d + 1)]
        z = (data.u[best] - models.centre) / models.half
        spread = math.sqrt((z[1:] ** 2).mean()) if len(best) > 1 else size / 2
        sigma = min(max(spread, SHORTEST_STEP * size), size)
        axes = np.diag(models.half)
        if d > 1 and models.edge is None and models.value is not None and models.value.tau > SHAPED:
            axes = models.half[:, None] * _curvature_axes(data, models, size)
        longest = np.linalg.norm(axes, axis=1).max() * sigma
        axes = axes * (sigma * min(1.0, LONGEST_STEP / longest))
        return self.points(models.centre), self.range.width[:, None] * axes

    def _edge_near_best(self) -> bool:
        """Whether one of the 3 d points nearest to the best one failed."""
        data = self.data
        squared = ((data.u - data.u[data.best]) ** 2).sum(axis=1)
        near = trust_region.nearest(squared, np.arange(len(squared)), 3 * data.d)
        return bool(np.isnan(data.y[near]).any())

    # -- saving

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        metadata: dict[str, Any] = {
            "seed": str(self.seed),
            "batch": self.batch,
            "phase": self.phase,
            "first": self.data.first,
            "forgotten": self.data.forgotten,
            "observed": self._observed,
            "around_start": self.around_start,
            "narrow": self.narrow,
            "smooth": self.smooth,
            "search_from": self.search_from,
            "regions": self.regions,
            "handed_over": self.handed_over,
            "first_step": self.first_step,
            "anywhere": self.range.anywhere,
            "region": None,
        }
        arrays: dict[str, NDArray[Any]] = {
            "surrogate.u": self.data.u,
            "surrogate.y": self.data.y,
            "surrogate.drawn": self.data.drawn,
            "surrogate.ended": self.ended,
        }
        for name in ("origin", "width", "lower", "upper", "start", "step"):
            arrays[f"surrogate.{name}"] = getattr(self.range, name)
        if self.region is not None:
            fields = self.region._asdict()
            theta = fields.pop("theta")
            metadata["region"] = fields
            if theta is not None:
                arrays["surrogate.theta"] = theta
        return {"surrogate": metadata}, arrays

    @classmethod
    def restore(cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]], *more: Any) -> Surrogate:
        """What `dump` gave. Raises ValueError, KeyError or TypeError for anything else."""
        saved = metadata["surrogate"]
        vectors = {
            name: np.array(arrays[f"surrogate.{name}"], dtype=np.float64)
            for name in ("origin", "width", "lower", "upper", "start", "step")
        }
        d = len(vectors["origin"])
        if any(vector.shape != (d,) or np.isnan(vector).any() for vector in vectors.values()):
            raise ValueError("a range of another dimension")
        units = SearchRange(**vectors, anywhere=saved["anywhere"] is True)
        self = cls(units, int(saved["seed"]), int(saved["batch"]), *more)
        u, y, drawn = (np.array(arrays[f"surrogate.{name}"]) for name in ("u", "y", "drawn"))
        if u.shape != (len(y), d) or drawn.shape != y.shape or drawn.dtype != np.bool_:
            raise ValueError("evaluations of another shape")
        self.data.restore(u.astype(np.float64), y.astype(np.float64), drawn)
        if saved["phase"] not in PHASES or self.batch < 1:
            raise ValueError(f"a phase {saved['phase']!r}")
        self.phase, self.narrow = saved["phase"], saved["narrow"] is True
        self.smooth = saved.get("smooth") is True
        self.around_start = saved["around_start"] is True
        self.data.first, self._observed = int(saved["first"]), int(saved["observed"])
        self.data.forgotten = int(saved["forgotten"])
        self.search_from, self.regions = int(saved["search_from"]), int(saved["regions"])
        self.handed_over, self.first_step = int(saved["handed_over"]), float(saved["first_step"])
        if not 0 < self.first_step < math.inf:
            raise ValueError(f"a first step of {self.first_step}")
        if not (
            0 <= self.data.first <= len(y)
            and self.data.forgotten >= 0
            and 0 <= self._observed <= len(y)
            and 0 <= self.search_from <= len(y)
            and -1 <= self.handed_over <= len(y)
        ):
            raise ValueError("counts beyond the evaluations")
        self.ended = np.array(arrays["surrogate.ended"], dtype=np.float64)
        if self.ended.shape != (len(self.ended), d) or not np.isfinite(self.ended).all():
            raise ValueError("ends of searches of another dimension")
        if saved["region"] is not None:
            theta = arrays.get("surrogate.theta")
            if theta is not None and (theta.shape != (d + 2,) or not np.isfinite(theta).all()):
                raise ValueError("length scales of another dimension")
            self.region = Region(**saved["region"], theta=theta)
        return self


def with_median(data: Evaluated, u: Floats) -> Evaluated:
    """A copy with this point, as if it had the median of the values."""
    copy = Evaluated(data.d)
    worked = data.y[np.isfinite(data.y)]
    value = 2 * float(np.median(worked / 2)) if len(worked) else math.nan
    copy.restore(np.concatenate([data.u, u[None]]), np.append(data.y, value), np.append(data.drawn, False))
    copy.first = data.first
    return copy


def _curvature_axes(data: Evaluated, models: trust_region.Models, size: float) -> Floats:
    """Axes of the inverse square root of the value model's Hessian, with determinant 1. (d, d)"""
    assert models.value is not None
    d = data.d
    z = (data.u - models.centre) / size / models.half
    worked = np.flatnonzero(np.isfinite(data.y))
    squared = np.einsum("ij,ij->i", z, z)
    chosen = trust_region.nearest(squared, worked, max((d + 1) * (d + 2), 20))
    y = value_model.transformed(models.value, data.y[chosen])
    values, vectors = np.linalg.eigh(_hessian(z[chosen], y))
    if not values[-1] > 0:
        return np.eye(d)
    lengths = np.maximum(values, values[-1] / LONGEST_AXIS**2) ** -0.5
    axes: Floats = vectors * (lengths / np.exp(np.log(lengths).mean()))
    return axes


def _hessian(z: Floats, y: Floats) -> Floats:
    """The curvature of the quadratic of least norm through the values y at z, up to a factor. (d, d)"""
    u = z / max(1e-300, math.sqrt((z * z).mean() * z.shape[1]))
    inner = u @ u.T
    kernel = 1.0 + inner + inner**2
    kernel[np.diag_indices(len(kernel))] += 1e-6 * max(1.0, np.trace(kernel) / len(kernel))
    hessian: Floats = (u.T * np.linalg.solve(kernel, y)) @ u
    return hessian
