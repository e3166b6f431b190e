"""Search under limits on reported outputs: an augmented Lagrangian, and a projected point.

    f           the value of a point; the search is given its merit L instead
    g_j         number j of the limits: at most 0, or an equality, which is 0 (`fmnes.constraints`)
    λ_j, ω_j    multiplier and weight of g_j, both 0 until it is violated first; ρ_j ≥ 1, a boost of ω_j
    s(v)        spread of v over the generation: interquartile range / 1.349

    L = f + Σ_j  λ_j g_j + ω_j g_j²/2   if λ_j + ω_j g_j > 0, or for an equality
                 −λ_j²/(2 ω_j)          otherwise

Weights follow the spread of L (near an equality at most that of f) in the search's own units, so the points
do not depend on the units of f or of an output. Failed evaluations have no merit and rank last.

After a generation with a violated point, linear models of the g_j in the draws z, from the nearest points,
give the point that is nearest to the mean and within the limits. It is evaluated beside the next generation
but not ranked, and the mean is moved towards it if it is more than one standard deviation outside. Where the
models were too hopeful, a margin is kept, unless no point within √d standard deviations has all margins.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes._text import short
from fmnes.constraints import ConstraintResult, Limits
from fmnes.errors import SnapshotError
from fmnes.result import Vector
from fmnes.storage.snapshot import Saved, finite, shaped
from fmnes.surrogate.least_distance import least_distance, nonnegative_least_squares

if TYPE_CHECKING:
    from fmnes.search.distribution import Distribution

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: λ_j moves by this share of ω_j ĝ_j, where ĝ_j is g_j at the mean; of an equality at most s(g_j).
MULTIPLIER_RATE = 0.2
#: A spread is at least this share of the standard deviation.
LEAST_SPREAD = 1e-6
#: The linear models are made of 3 (d + 1) of the last 4 (d + 2) to 6 (d + 2) points, …
FITTED, KEPT, MOST_KEPT = 3, 4, 6
#: … with this ridge; a limit farther than NEAR standard deviations inside takes no part in the projection.
RIDGE, NEAR = 1e-6, -3.0
#: A margin grows to twice itself, or this multiple of the model's error, and shrinks by the second factor.
MARGIN_OF_ERROR, MARGIN_SHRINKS = 1.5, 0.7
#: In more dimensions the least squares take longer than the strategy: no point is projected.
MAX_DIMENSION = 200
#: Violated limits that a message names.
SHOWN = 3
#: A limit may be active if it is within this many standard deviations of the mean.
ACTIVE = 2.0
#: Merits stay within this: what is not finite would count as failed.
LARGEST_MERIT = 1e300


# -- the augmented Lagrangian


class Lagrangian(NamedTuple):
    """Multipliers λ, weights ω and boosts ρ of the numbers g. (m,)"""

    multipliers: Floats
    weights: Floats
    boosts: Floats
    on: Flags
    """Which take part: equalities, and those that were violated."""

    @classmethod
    def of(cls, m: int) -> Lagrangian:
        return cls(np.zeros(m), np.zeros(m), np.ones(m), np.zeros(m, dtype=bool))

    def penalty(self, g: Floats, equality: Flags) -> Floats:
        """L − f of points with these g. (n, m) -> (n,)"""
        lam, omega = self.multipliers, self.weights
        with np.errstate(all="ignore"):  # where ω is 0 nothing is used; huge g overflow
            inside = np.where(omega > 0, -lam * lam / (2 * omega), 0.0)
            outside = (lam * g) + omega * g * g / 2
            each = np.where((lam + omega * g > 0) | equality, outside, inside)
            total: Floats = np.where(self.on, each, 0.0).sum(axis=1)
        return total


def quartile_spread(v: Floats) -> Any:
    """s(v) along the first axis: the interquartile range over that of a standard normal distribution."""
    v = np.sort(v, axis=0)
    last = len(v) - 1

    def quantile(share: float) -> Any:
        below = math.floor(share * last)
        rest = share * last - below
        return v[below] + (v[min(below + 1, last)] - v[below]) * rest

    return (quantile(0.75) - quantile(0.25)) / 1.349


def spread_of_limits(g: Floats) -> Floats:
    """s(g_j), never far below the standard deviation. (n, m) -> (m,)"""
    with np.errstate(all="ignore"):
        spread: Floats = np.maximum(quartile_spread(g), LEAST_SPREAD * g.std(axis=0))
    return spread


def switch_on(state: Lagrangian, f: Floats, g: Floats, equality: Flags, d: int) -> Lagrangian:
    """Switch on what is violated for the first time: λ = 0, ω = s(f)/(√d s(g)²). f: (n,), g: (n, m)."""
    spread = spread_of_limits(g)
    new = ~state.on & (equality | (g > 0).any(axis=0)) & (spread > 0) & np.isfinite(spread)
    if not new.any():
        return state
    unit = quartile_spread(f)
    if not unit > 0:  # a flat objective: only the limits count
        unit = abs(np.median(f)) or 1.0
    with np.errstate(all="ignore"):
        first = unit / math.sqrt(d) / spread / spread
    new = new & np.isfinite(first) & (first > 0)
    return state._replace(weights=np.where(new, first, state.weights), on=state.on | new)


def adapt(state: Lagrangian, f: Floats, g: Floats, at_mean: Floats, equality: Flags, d: int) -> Lagrangian:
    """The state after a generation; at_mean: ĝ, the g of the mean. (m,)"""
    lam, omega, rho, on = state
    root = math.sqrt(d)
    with np.errstate(all="ignore"):
        spread = spread_of_limits(g)
        merit_spread = quartile_spread(np.clip(f + state.penalty(g, equality), -LARGEST_MERIT, LARGEST_MERIT))
        value_spread = quartile_spread(f)
        far = on & (np.where(equality, np.abs(at_mean), at_mean) > spread)
        rho = np.where(far, rho * 2 ** (1 / root), np.maximum(1.0, rho * 2 ** (-0.25 / root)))
        # Near an equality all of the spread of L may be the penalty's: λ and ω would feed on each other.
        capped = equality & (np.abs(at_mean) <= spread) & (value_spread > 0)
        unit = np.where(capped, np.minimum(merit_spread, value_spread), merit_spread)
        wanted = rho * (unit / root) / spread / spread
        near = on & (equality | (lam + omega * (at_mean + spread) > 0))
        rate = 0.5 / (1 + root)
        moved = omega * (wanted / omega) ** rate  # in logarithms; powers of two stay exact
        omega = np.where(near & np.isfinite(moved) & (moved > 0), moved, omega)
        excess = np.where(equality, np.clip(at_mean, -spread, spread), at_mean)
        lam = lam + MULTIPLIER_RATE * omega * excess
        lam = np.where(on & np.isfinite(lam), np.where(equality, lam, np.maximum(0.0, lam)), 0.0)
    return Lagrangian(lam, omega, np.minimum(rho, LARGEST_MERIT), on)


def limits_at_mean(g: Floats, worked: Flags, mirrored: bool) -> Floats:
    """ĝ: median over mirrored pairs of their mean, in which a linear g cancels; else the mean. (m,)"""
    if mirrored:
        both = worked.reshape(-1, 2).all(axis=1)
        if both.any():
            pairs = g.reshape(-1, 2, g.shape[1])[both]
            median: Floats = np.median((pairs[:, 0] + pairs[:, 1]) / 2, axis=0)
            return median
    mean: Floats = g[worked].mean(axis=0)
    return mean


# -- the projected point


def fit_lines(z: Floats, g: Floats) -> tuple[Floats, Floats] | None:
    """c (m,) and A (m, d) of g ≈ c + A z, by least squares on the nearest points; None with too few."""
    d = z.shape[1]
    with np.errstate(all="ignore"):
        squared = np.einsum("ij,ij->i", z, z)
    near = np.argsort(squared, kind="stable")[: FITTED * (d + 1)]
    near = near[squared[near] < 1e20]
    if len(near) < d + 2:
        return None
    weights = 1 / (1 + squared[near] / (2 * d))
    rows = np.concatenate([np.ones((len(near), 1)), z[near]], axis=1) * weights[:, None]
    ridge = np.diag(np.append(1e-12, np.full(d, RIDGE)))
    try:
        with np.errstate(all="ignore"):
            found = np.linalg.solve(rows.T @ rows + ridge, rows.T @ (g[near] * weights[:, None]))
    except np.linalg.LinAlgError:
        return None
    return found[0], found[1:].T


class Projected(NamedTuple):
    """A point to evaluate beside the next generation."""

    x: Vector
    predicted: Floats
    """What the models say of its g. (m,)"""
    lengths: Floats
    """The lengths of their slopes, which no margin exceeds. (m,)"""


# -- the state of a search


class BestSoFar:
    """The best feasible point with its outputs, or the least violated one; of all searches of a run."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        k, m = len(limits), limits.size
        self.fun = np.inf
        """The value of the best feasible point."""
        self.outputs = np.full(k, np.nan)
        """Its outputs. (k,)"""
        self.multipliers = np.zeros(m)
        self.largest = np.zeros(m)
        """The largest violation so far, the unit in which violations are added up. (m,)"""
        self.least_x: Vector | None = None
        self.least_fun = np.inf
        self.least_outputs = np.full(k, np.nan)

    @property
    def has_feasible(self) -> bool:
        """Whether a point within all limits is known."""
        return not bool(np.isnan(self.outputs[0]))

    def add(self, x: Floats, f: Floats, outputs: Floats) -> None:
        """Note evaluations as candidates for the least violated point. (n, d), (n,), (n, k)"""
        if self.has_feasible and self.least_x is not None:
            return
        rows = np.flatnonzero(np.isfinite(f))
        violations = self._violation(outputs[rows])
        for i, violation in zip(rows.tolist(), violations, strict=True):
            self.largest = np.maximum(self.largest, violation)
            if self.least_x is None or self._total(violation) < self._total(self._least_violation()):
                self.least_x, self.least_fun = x[i].copy(), float(f[i])
                self.least_x.setflags(write=False)
                self.least_outputs = outputs[i].copy()

    def _least_violation(self) -> Floats:
        found: Floats = self._violation(self.least_outputs[None])[0]
        return found

    def _violation(self, outputs: Floats) -> Floats:
        return self._limits.violation(self._limits.excess(outputs))

    def _total(self, violation: Floats) -> float:
        return float((violation / np.where(self.largest > 0, self.largest, 1.0)).sum())


class Constrained:
    """What a search under limits knows: the Lagrangian, the points of the models, the margins."""

    def __init__(self, limits: Limits, d: int, projects: bool, evaluates: bool = True) -> None:
        """projects: project the mean. evaluates: evaluate the projected point too."""
        self.limits, self.d = limits, d
        self.projects, self.evaluates = projects and d <= MAX_DIMENSION, evaluates
        m = limits.size
        self.lagrangian = Lagrangian.of(m)
        self._last: tuple[Floats, Floats, Floats] | None = None
        """f, g and ĝ of the generation that was ranked last."""
        self._violated = False
        self.margins = np.zeros(m)
        self.pending: Projected | None = None
        self.best = BestSoFar(limits)
        self.owns_best = False
        """Whether the best point is of this search."""
        self.first_value = np.nan
        """The median value of the first generation with a value."""
        self.generation_best = np.inf
        """The best value within the limits, of the last generation."""
        self._x = np.empty((0, d))
        """The last points that worked, …"""
        self._g = np.empty((0, m + 1))
        """… their g, and their f in the last column."""

    def again(self, distribution: Distribution) -> Constrained:
        """For the next search of the same run. distribution: where this one ended."""
        new = Constrained(self.limits, self.d, self.projects, self.evaluates)
        new.best = self.best
        new.best.multipliers = self.multipliers(distribution)
        return new

    def attained(self, f: Floats, outputs: Floats) -> Floats:
        """The values of the points within the limits; +inf for others that worked, NaN for failed ones."""
        within = self.limits.satisfied(self.limits.excess(outputs))
        values: Floats = np.where(np.isfinite(f) & ~within, np.inf, f)
        return values

    def rank(self, x: Floats, f: Floats, outputs: Floats, size: int, mirrored: bool) -> Floats:
        """The merits of a generation's draws, its first `size` points; NaN for failed ones. (size,)"""
        g = self.limits.excess(outputs)
        worked = np.isfinite(f)
        self.note(f, outputs)
        self._remember(x[worked], np.column_stack([g, f])[worked])
        self._correct_margins(g[size:], worked[size:])
        f, g, worked = f[:size], g[:size], worked[:size]
        self._violated = bool((self.limits.violation(g[worked]) > 0).any())
        self._last = None
        if np.count_nonzero(worked) >= 3:
            equality = self.limits.equality
            self.lagrangian = switch_on(self.lagrangian, f[worked], g[worked], equality, self.d)
            self._last = f[worked], g[worked], limits_at_mean(g, worked, mirrored)
        return self.merits(f, g)

    def note(self, f: Floats, outputs: Floats, multipliers: Floats | None = None) -> None:
        """Note the values of a generation; multipliers: of the models, if they have proposed its points."""
        worked = np.isfinite(f)
        self.generation_best = float(np.min(self.attained(f, outputs)[worked], initial=np.inf))
        if np.isnan(self.first_value) and worked.any():
            self.first_value = float(np.median(f[worked]))
        if multipliers is not None:
            self.lagrangian = self.lagrangian._replace(multipliers=multipliers)

    def merits(self, f: Floats, g: Floats) -> Floats:
        """L of points, NaN for failed ones. (n,), (n, m)"""
        with np.errstate(all="ignore"):
            merits = f + self.lagrangian.penalty(g, self.limits.equality)
        merits = np.clip(np.where(np.isnan(merits), LARGEST_MERIT, merits), -LARGEST_MERIT, LARGEST_MERIT)
        found: Floats = np.where(np.isfinite(f), merits, np.nan)
        return found

    def adapt(self, distribution: Distribution) -> None:
        """After the update: adapt the Lagrangian, project the mean, and pull it towards the limits."""
        if self._last is not None:
            f, g, at_mean = self._last
            self.lagrangian = adapt(self.lagrangian, f, g, at_mean, self.limits.equality, self.d)
        self.pending = None
        if self._violated and self.projects:
            projected = self._project(distribution)
            self.pending = projected if self.evaluates else None

    def _project(self, distribution: Distribution) -> Projected | None:
        lines = fit_lines(distribution.coordinates_of(self._x), self._g)
        if lines is None:
            return None
        c, a = (part[:-1] for part in lines)
        usable = np.isfinite(c) & np.isfinite(a).all(axis=1)
        with np.errstate(all="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", a, a))
        mean, axes = distribution.axes()
        equality, tolerance = self.limits.equality, self.limits.tolerance
        above = usable & (lengths > 0)
        below = above & equality
        low, high = distribution.bounds
        with np.errstate(all="ignore"):
            sides = np.sqrt(np.einsum("ij,ij->i", axes, axes))
            up, down = np.isfinite(high) & (sides > 0), np.isfinite(low) & (sides > 0)
            rows = np.concatenate([a[above], -a[below], axes[up], -axes[down]])
            norms = np.concatenate([lengths[above], lengths[below], sides[up], sides[down]])
            rows = rows / norms[:, None]

        def shortest(margins: Floats) -> tuple[Floats, float] | None:
            # An equality is met from both sides, as far as its tolerance leaves room for a margin.
            slack = np.where(equality, np.maximum(tolerance - margins, 0.0), -margins)
            with np.errstate(all="ignore"):
                offsets = [(c - slack)[above], (-c - slack)[below], (mean - high)[up], (low - mean)[down]]
                b = np.concatenate(offsets) / norms
            near = np.isfinite(rows).all(axis=1) & (b > NEAR) & np.isfinite(b)
            found = least_distance(rows[near], b[near])
            return None if found is None else (found[0], math.sqrt(found[0] @ found[0]))

        found = shortest(self.margins)
        # No point, or only far ones, has the margins if they are wider than the feasible part.
        if self.margins.any() and (found is None or found[1] >= math.sqrt(self.d)):
            found = shortest(np.zeros(len(c)))
        z, length = found or (np.zeros(self.d), 0.0)
        if length >= 10 * math.sqrt(self.d):  # the models hold no further
            z, length = np.zeros(self.d), 0.0
        x = distribution.nearest(np.clip(mean + axes @ z, low, high))
        if not np.isfinite(x).all():
            return None
        if 1 < length < 3 * math.sqrt(self.d):
            distribution.move_mean(mean + axes @ (z * (1 - 1 / length)))
        return Projected(x, c + a @ z, lengths)

    def _correct_margins(self, g: Floats, worked: Flags) -> None:
        """After the projected point was evaluated: g (0 or 1, m)."""
        if self.pending is None or not len(g):
            return
        if worked[0]:
            _, predicted, lengths = self.pending
            equality = self.limits.equality
            found = np.where(equality, np.abs(g[0]) - self.limits.tolerance, g[0])
            error = np.where(equality, np.abs(g[0] - predicted), g[0] - predicted)
            with np.errstate(all="ignore"):
                grown = np.maximum(2 * self.margins, MARGIN_OF_ERROR * error)
                margins = np.where(found > 0, grown, MARGIN_SHRINKS * self.margins)
                margins = np.minimum(margins, lengths)
            self.margins = np.where(np.isfinite(margins) & (margins >= 0), margins, 0.0)
        self.pending = None

    def _remember(self, x: Floats, g: Floats) -> None:
        if not self.projects:
            return
        self._x, self._g = np.concatenate([self._x, x]), np.concatenate([self._g, g])
        if len(self._x) > MOST_KEPT * (self.d + 2):
            self._x, self._g = self._x[-KEPT * (self.d + 2) :], self._g[-KEPT * (self.d + 2) :]

    def note_best(self, fun: float, outputs: Floats) -> None:
        """The value and the outputs (k,) of a new best point of this search within the limits."""
        if fun < self.best.fun:
            self.best.fun, self.best.outputs, self.owns_best = fun, outputs.copy(), True

    def multipliers(self, distribution: Distribution) -> Floats:
        """Multipliers at the best point: what a unit of each number g is worth there. (m,)

        Those of the linear models of f and g, if the search is at the best point: the λ_j of the smallest
        |∇f + Σ λ_j ∇g_j| over the limits and bounds near the mean.
        """
        if self.best.least_x is None or (self.best.has_feasible and not self.owns_best):
            return self.best.multipliers
        lines = fit_lines(distribution.coordinates_of(self._x), self._g) if self.projects else None
        if lines is None:
            return self.lagrangian.multipliers
        c, a = lines
        equality, m = self.limits.equality, self.limits.size
        mean, axes = distribution.axes()
        low, high = distribution.bounds
        with np.errstate(all="ignore"):
            c, slopes = (
                np.concatenate([c[:-1], mean - high, low - mean]),
                np.concatenate([a[:-1], axes, -axes]),
            )
            lengths = np.sqrt(np.einsum("ij,ij->i", slopes, slopes))
            near = np.isfinite(lengths) & (lengths > 0) & (c > -ACTIVE * lengths)
            near[:m] |= equality & (lengths[:m] > 0)
            near[:m] &= ~(equality & ~(lengths[:m] > 0))
        found = np.zeros(m)
        rows = np.flatnonzero(near)
        both = rows[rows < m][equality[rows[rows < m]]]  # either sign
        columns = np.concatenate([slopes[rows], -slopes[both]])
        norms = np.concatenate([lengths[rows], lengths[both]])
        size = math.sqrt(a[-1] @ a[-1])
        if len(rows) and 0 < size < math.inf:
            u = nonnegative_least_squares((columns / norms[:, None]).T, -a[-1] / size) / norms * size
            limits = rows < m
            found[rows[limits]] = u[: len(rows)][limits]
            found[both] -= u[len(rows) :]
        return found

    def report(self, feasible: bool, distribution: Distribution) -> dict[str, ConstraintResult] | None:
        """The constraints at the point that is returned; None if no evaluation worked."""
        if self.best.least_x is None:
            return None
        outputs = self.best.outputs if feasible else self.best.least_outputs
        return self.limits.report(outputs, self.multipliers(distribution))

    def violated_in_words(self) -> str:
        """Which limits the least violated point violates, for a message."""
        if self.best.least_x is None:
            return ""
        found = self.limits.report(self.best.least_outputs, np.zeros(self.limits.size))
        violated = [
            f"{short(name, 60)} = {one.value:.6g}, wanted {one.limits}"
            for name, one in found.items()
            if not one.satisfied
        ]
        more = f" and {len(violated) - SHOWN} more" if len(violated) > SHOWN else ""
        named = "; ".join(violated[:SHOWN])
        return f"; no point satisfies all limits: the least violated one has {named}{more}"

    # -- saving

    def dump(self) -> Saved:
        best, state = self.best, self.lagrangian
        arrays = {
            "multipliers": state.multipliers,
            "weights": state.weights,
            "boosts": state.boosts,
            "on": state.on,
            "margins": self.margins,
            "x": self._x,
            "g": self._g,
            "values": np.array([self.first_value, self.generation_best]),
            "best_fun": np.asarray(best.fun),
            "best_outputs": best.outputs,
            "best_multipliers": best.multipliers,
            "largest": best.largest,
        }
        if best.least_x is not None:
            arrays["least_x"], arrays["least_outputs"] = best.least_x, best.least_outputs
            arrays["least_fun"] = np.asarray(best.least_fun)
        if self.pending is not None:
            arrays |= {f"pending_{name}": value for name, value in self.pending._asdict().items()}
        metadata = {"constraints": self.limits.as_json(), "owns_best": self.owns_best}
        return metadata, {f"limits.{k}": v for k, v in arrays.items()}

    def restore(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore into a new object of the same limits."""
        self.owns_best = metadata["owns_best"] is True
        m, k, d = self.limits.size, len(self.limits), self.d
        found = {name.removeprefix("limits."): a for name, a in arrays.items() if name.startswith("limits.")}
        lam, omega, rho = (finite(found[name], (m,)) for name in ("multipliers", "weights", "boosts"))
        self.lagrangian = Lagrangian(lam, omega, rho, shaped(found["on"], (m,), kinds="b"))
        if (self.lagrangian.weights < 0).any():
            raise SnapshotError("a negative weight of a constraint")
        self.margins = finite(found["margins"], (m,))
        self._x = finite(found["x"], (len(found["x"]), d))
        self._g = finite(found["g"], (len(self._x), m + 1))
        self.first_value, self.generation_best = shaped(found["values"], (2,)).tolist()
        best = self.best
        best.fun = float(shaped(found["best_fun"], ())) if "best_fun" in found else np.inf
        best.outputs = shaped(found["best_outputs"], (k,))
        best.multipliers = finite(found["best_multipliers"], (m,))
        best.largest = finite(found["largest"], (m,))
        if "least_x" in found:
            best.least_x = finite(found["least_x"], (d,)).copy()
            best.least_x.setflags(write=False)
            best.least_fun = float(finite(found["least_fun"], ()))
            best.least_outputs = finite(found["least_outputs"], (k,))
        if "pending_x" in found:
            self.pending = Projected(
                finite(found["pending_x"], (d,)),
                shaped(found["pending_predicted"], (m,)),
                shaped(found["pending_lengths"], (m,)),
            )
