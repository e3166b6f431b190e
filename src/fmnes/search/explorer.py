"""Exploration of a finite box: generations of points that do not come from the search distribution.

Until an evaluation succeeds, the points are spread over the box. Before a restart in the box, they look for a
basin that no search was in. They fill the slots of ordinary generations, so that the log,
snapshots, workers and `ask` see nothing special; they make no update.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.bounds import Bounds
from fmnes.errors import SnapshotError
from fmnes.result import Vector
from fmnes.storage.snapshot import Saved, count, finite, shaped

Floats = NDArray[np.float64]

#: Points that are tried without a budget before a run in a box ends with NO_FEASIBLE: a working part of 0.1 %
#: of the box is found by 98 % of the runs.
MAX_FAILED = 3000
#: Earlier points that are kept; beyond it every second one is dropped.
MAX_POINTS = 6000
#: Points per dimension that are spread over the box before the first restart, …
FIRST_SAMPLE = 10
#: … and, each time twice as many up to the second number, when no archived point may be a start.
SAMPLE, MAX_SAMPLE = 8, 64
#: Evaluations for the hill test after which more points are spread instead.
MAX_TESTS = 12
#: Samples in a row without a start, as on a plateau, after which a search begins at the last point.
MAX_SAMPLES = 4
#: Uniform candidates for each point. More of them only move the points to the bounds.
CANDIDATES = 30
#: One of this number of points comes from the search distribution, around the start.
FROM_DISTRIBUTION = 4
#: The first steps from the first success, as a share of the usual ones, when it was the first evaluation.
FIRST_STEP = 0.4


class Begin(NamedTuple):
    """Where the search distribution begins after an exploration."""

    x: Vector
    share: float
    """Its step size, as a share of sigma0."""


class Explorer:
    """The points evaluated in a box so far, and the points to evaluate before the search begins."""

    def __init__(self, bounds: Bounds, first: bool = True, restarts: bool = False) -> None:
        """first: explore until an evaluation succeeds. restarts: begin restarts anywhere in the box."""
        self._lower, self._upper = bounds.lower, bounds.upper
        d = len(bounds.lower)
        self.first, self.restarts = first, restarts
        self.exploring = False
        """Whether generations consist of points from here."""
        self.succeeded = False
        """Whether an evaluation has succeeded."""
        self.evaluated = 0
        """Points evaluated so far."""
        self.best = np.inf
        """The best value so far."""
        self._points = np.empty((0, d))
        """Those that are kept, in the unit box."""
        self._values = np.empty(0)
        """Their values; NaN for failed ones."""
        self._tried = np.empty(0, dtype=bool)
        """Which of them were considered as starts."""
        self._queue = np.empty((0, d))
        """Points to evaluate next."""
        self._answers = np.empty(0)
        """Values of those before them that belong together."""
        self._candidate = np.empty(0)
        """A possible start, and its value, while the way to it is tested. (d + 1,)"""
        self._optima = np.empty((0, d + 1))
        """Where searches have ended, and their best values."""
        self._starts = np.empty((0, d))
        """Where searches have begun after an exploration."""
        self._sample = 0
        """Points of the next sample; 0: there was none."""
        self._samples = self._tests = 0
        """Samples, and evaluations for the hill test, since the last search."""

    @property
    def _d(self) -> int:
        return len(self._lower)

    # -- the points of a generation

    def next_points(self, rng: np.random.Generator, drawn: Floats) -> Floats:
        """Return the points of the next generation; drawn: its draws of the search distribution. (≤ n, d)"""
        if not self.succeeded:
            candidates = rng.random((len(drawn), CANDIDATES, self._d))
            return self._out(spread_points(self._points, candidates, self._in(drawn), self.evaluated))
        return self._out(self._queue[: len(drawn)])

    def add(self, x: Floats, f: Floats) -> None:
        """Store evaluated points, NaN for a failed one."""
        f = np.where(np.isfinite(f), f, np.nan)
        self.evaluated += len(f)
        if not np.isnan(f).all():
            self.succeeded = True
            self.best = min(self.best, float(np.nanmin(f)))
        self._points = np.concatenate((self._points, self._in(x)))
        self._values = np.concatenate((self._values, f))
        self._tried = np.concatenate((self._tried, np.zeros(len(f), dtype=bool)))
        if len(self._values) > MAX_POINTS:
            self._points, self._values, self._tried = self._points[::2], self._values[::2], self._tried[::2]

    @property
    def needs_success(self) -> bool:
        """Whether points are spread over the box because none has worked."""
        return self.first and not self.succeeded

    def begin_at_success(self) -> Begin:
        """End the exploration after the first success, and return where the search begins."""
        i = int(np.nanargmin(self._values))
        return self._begin(self._points[i], first_step_share(self.evaluated, self._d))

    # -- restarts

    def note_search(self, x: Vector | None, value: float) -> None:
        """Note where a search has ended, and its best value; None: nowhere that is worth to be avoided."""
        if x is not None and np.isfinite(value):
            self._optima = np.concatenate((self._optima, np.append(self._in(x), value)[None]))

    def look_for_start(self, rng: np.random.Generator) -> Begin | None:
        """Return where the next search begins; None: `next_points` have to be evaluated first."""
        self.exploring = True
        self._samples = self._tests = 0
        if not self.succeeded:
            return None
        if not self._sample:
            self._spread(rng, FIRST_SAMPLE * self._d)
            self._sample = SAMPLE * self._d
            return None
        return self._pick(rng)

    def take(self, f: Floats, rng: np.random.Generator) -> Begin | None:
        """Take the values of the points of a generation; return where the search begins, if that is known."""
        self._queue = self._queue[len(f) :]
        self._answers = np.concatenate((self._answers, f))
        if len(self._queue):
            return None
        answers, self._answers = self._answers, np.empty(0)
        if self._candidate.size:
            start, value = self._candidate[:-1], float(self._candidate[-1])
            self._candidate = np.empty(0)
            nearest = nearest_optima(start, self._optima[:, :-1])
            if hill_between(answers, value, self._optima[nearest, -1]):
                return self._begin_in_basin(start)
        return self._pick(rng)

    def _pick(self, rng: np.random.Generator) -> Begin | None:
        """Begin at an archived point, test the way to it, or spread more points."""
        if self._tests < MAX_TESTS:
            taken = np.concatenate((self._optima[:, :-1], self._starts))
            found = next_start(self._points, self._values, self._tried, taken)
            self._tried[found.examined] = True
            if found.number >= 0:
                start = self._points[found.number]
                if not len(self._optima):
                    return self._begin_in_basin(start)
                self._candidate = np.append(start, self._values[found.number])
                self._queue = points_on_the_way(start, self._optima[:, :-1])
                self._tests += len(self._queue)
                return None
        if self._samples == MAX_SAMPLES:
            return self._begin_in_basin(self._points[-1])
        self._tests = 0
        self._samples += 1
        self._spread(rng, self._sample)
        self._sample = min(2 * self._sample, MAX_SAMPLE * self._d)
        return None

    def _spread(self, rng: np.random.Generator, n: int) -> None:
        candidates = rng.random((n, CANDIDATES, self._d))
        self._queue = spread_points(self._points, candidates, None, 0)

    def _begin_in_basin(self, start: Floats) -> Begin:
        return self._begin(start, STEP * distance_between(len(self._points), self._d))

    def _begin(self, start: Floats, share: float) -> Begin:
        self.exploring = False
        self._starts = np.concatenate((self._starts, start[None]))
        return Begin(self._out(start), min(share, 1.0))

    # -- units, and saving

    def _in(self, x: Floats) -> Floats:
        """Convert points to the unit box. Halves, as a width may be too large for floating point."""
        u: Floats = (x / 2 - self._lower / 2) / (self._upper / 2 - self._lower / 2)
        return u

    def _out(self, u: Floats) -> Floats:
        x: Floats = np.clip((1 - u) * self._lower + u * self._upper, self._lower, self._upper)
        return x

    def dump(self) -> Saved:
        flags = [self.first, self.restarts, self.exploring, self.succeeded]
        counts = [self.evaluated, self._sample, self._samples, self._tests]
        return {"explorer": [flags, counts]}, {
            "explorer.best": np.asarray(self.best),
            **{f"explorer.{name}": getattr(self, f"_{name}") for name in _ARRAYS},
        }

    def restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore into a new explorer."""
        flags, counts = metadata["explorer"]
        if len(flags) != 4 or not all(type(flag) is bool for flag in flags):
            raise SnapshotError(f"exploration {flags!r}")
        self.first, self.restarts, self.exploring, self.succeeded = flags
        self.evaluated, self._sample, self._samples, self._tests = map(count, counts)
        found = {name: arrays[f"explorer.{name}"] for name in _ARRAYS}
        n, d = len(found["values"]), self._d
        self._values = shaped(found["values"], (n,))
        self._answers = shaped(found["answers"], (len(found["answers"]),))
        self._tried = shaped(found["tried"], (n,), kinds="b")
        self._points = finite(found["points"], (n, d))
        self._queue = finite(found["queue"], (len(found["queue"]), d))
        self._starts = finite(found["starts"], (len(found["starts"]), d))
        self._optima = finite(found["optima"], (len(found["optima"]), d + 1))
        self._candidate = finite(found["candidate"], (d + 1,) if found["candidate"].size else (0,))
        self.best = float(shaped(arrays["explorer.best"], ()))
        if self.evaluated < n or (self._candidate.size and not len(self._optima)):
            raise SnapshotError(f"{n} points of {self.evaluated}, {len(self._optima)} optima")
        if self.exploring and self.succeeded and not len(self._queue):
            raise SnapshotError("an exploration without points to evaluate")


_ARRAYS = ("points", "values", "tried", "queue", "answers", "candidate", "optima", "starts")


# -- Points all over the box: formulas without state, in the unit box.


def spread_points(before: Floats, candidates: Floats, drawn: Floats | None, n: int) -> Floats:
    """Return the next points: the candidate that is farthest from all earlier points, or a drawn point.

    before: all earlier points (k, d). candidates: some for each new point (m, c, d). drawn: a draw of the
    search distribution for each new point (m, d); every fourth point, counted from the n points evaluated
    in this way so far, is that draw. None: no point is drawn.
    """
    points = np.empty((len(candidates), candidates.shape[2]))
    for i, some in enumerate(candidates):
        if drawn is not None and (n + i) % FROM_DISTRIBUTION == FROM_DISTRIBUTION - 1:
            points[i] = drawn[i]
            continue
        distance2 = np.full(len(some), np.inf)
        for others in (before, points[:i]):
            if len(others):
                squares = np.zeros((len(some), len(others)))
                for j in range(some.shape[1]):  # (c, d, k) at once would be slower, and large
                    squares += (some[:, j, None] - others[:, j]) ** 2
                distance2 = np.minimum(distance2, squares.min(axis=1))
        points[i] = some[int(distance2.argmax())]
    return points


def first_step_share(evaluations: int, d: int) -> float:
    """Return the step size at the first success as a share of the usual one.

    It is FIRST_STEP times the typical distance between the evaluations so far: the working part of the box
    is not much larger, or an earlier point would have been in it.
    """
    return float(FIRST_STEP * max(evaluations, 1) ** (-1.0 / d))


# -- Where the next search in a box begins: formulas without state.
#
# All points are in the unit box. The neighbourhood of a point is MLSL's (A. Rinnooy Kan, G. Timmer,
# "Stochastic global optimization methods", 1987): it shrinks as the number of points grows.

#: Radius of a neighbourhood, in units of the typical distance between the points.
RADIUS = 0.35
#: First step of a search from an archived point, in the same units, as a multiple of a quarter of the widths.
STEP = 0.12 / 0.25
#: Where between an optimum and a possible start a hill is looked for, as shares of the way.
ON_THE_WAY = (0.5, 0.25)
#: Optima for which this is done: the nearest ones.
NEAREST = 2


class NextStart(NamedTuple):
    """A point from which a search may begin."""

    number: int
    """Of the point in the archive; -1: there is none."""
    examined: list[int]
    """All points that were considered; they need not be considered again."""


def distance_between(n: int, d: int) -> float:
    """Return the typical distance between n points of the unit box."""
    return float(max(n, 2) ** (-1.0 / d))


def next_start(points: Floats, values: Floats, tried: NDArray[np.bool_], taken: Floats) -> NextStart:
    """Return the best untried point that has no better point and no taken one within its neighbourhood.

    points: the archive (n, d); values: NaN for a failed one (n,). taken: known optima and earlier starts
    (m, d). Points with high values may be starts, too: the searches so far have filled the best of the
    archive with points of their own basins.
    """
    examined: list[int] = []
    radius = RADIUS * distance_between(len(points), points.shape[1])
    possible = np.flatnonzero(np.isfinite(values) & ~tried)
    for i in possible[np.argsort(values[possible], kind="stable")].tolist():
        examined.append(i)
        if len(taken) and np.linalg.norm(taken - points[i], axis=1).min() < radius:
            continue
        better = points[values < values[i]]  # not NaN
        if not len(better) or np.linalg.norm(better - points[i], axis=1).min() >= radius:
            return NextStart(i, examined)
    return NextStart(-1, examined)


def points_on_the_way(start: Floats, optima: Floats) -> Floats:
    """Return the points between the nearest optima and a possible start, one optimum after another. (n, d)"""
    nearest = nearest_optima(start, optima)
    return np.array([(1 - t) * optima[j] + t * start for j in nearest for t in ON_THE_WAY])


def nearest_optima(start: Floats, optima: Floats) -> NDArray[np.intp]:
    """Return which optima are compared with a possible start, the nearest first."""
    distances = np.linalg.norm(optima - start, axis=1)
    return np.argsort(distances, kind="stable")[:NEAREST]


def hill_between(on_the_way: Floats, value: float, optima_values: Floats) -> bool:
    """Return whether a hill, or a failing region, separates a possible start from each of these optima.

    on_the_way: the values of `points_on_the_way`, NaN for failed ones. value: of the start.
    """
    ways = on_the_way.reshape(len(optima_values), len(ON_THE_WAY))
    with np.errstate(invalid="ignore"):
        blocked = np.isnan(ways) | (ways > np.maximum(value, optima_values)[:, None])
    return bool(blocked.any(axis=1).all())
