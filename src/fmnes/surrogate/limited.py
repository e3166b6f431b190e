"""Models under limits: the objective and each limit have a model, and a trust region moves by all of them.

The evaluations are ordered by a merit, f + Σ p_j (violation of g_j), where p_j is at least twice the
multiplier of g_j that the models gave last. In the region the next point is the minimum of the model of f
under the models of the limits (`constrained_step.py`); after MISSES of them without a gain, one point is that
of the largest expected improvement of the merit (`trust_region.py`). Where the models were too hopeful, a
margin is kept from the limit. Later the same minimum is evaluated beside each generation. Of a
long run models take part in the first evaluations only (`run/settings.py`).

The points do not depend on the units of f or of an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fmnes.surrogate import constrained_step, edge_model, output_models, trust_region
from fmnes.surrogate.edge_model import EdgeModel
from fmnes.surrogate.evaluated import MAX_POINTS
from fmnes.surrogate.output_models import OutputModels
from fmnes.surrogate.phases import LOCAL, REGION, SearchRange, Surrogate, with_median
from fmnes.surrogate.trust_region import Region, Snap

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

#: A penalty is at least this multiple of the multiplier; without need it falls to this share of itself, …
PENALTY, PENALTY_FALLS = 2.0, 0.7
#: … and it grows by this factor while the best point violates the limit by this share of its spread.
PENALTY_GROWS, FAR = 1.5, 1e-2
#: Minima of the models without a gain, before a point of the largest expected improvement.
MISSES = 2
#: Limits that are modelled, at most: those nearest to being violated, per dimension and at least.
MOST_PER_DIMENSION, MOST_LIMITS = 6, 40
#: A margin grows to twice itself, or to this share of the model's error, and shrinks by the second factor.
MARGIN_OF_ERROR, MARGIN_SHRINKS = 0.3, 0.1
#: The region ends below this share of its first size, or when the last evaluations gained less than this
#: share of the distance from the best merit to the median; …
SMALLEST, STALL_GAIN = 1e-7, 1e-10
#: … gains in between are compared with the last 2 d + 10 evaluations.
RECENT = 2.0
#: Two points this close in each coordinate, in units of the range, are one.
SAME = 1e-12
#: Beside a generation, the minimum is sought this many standard deviations around the best point.
REACH = 2.0
#: Points among which the minimum is sought where some may fail.
CANDIDATES = 500
#: Merits stay within this, so that they count as values.
LARGEST = 1e300
#: The score of a point that is expected to fail, less its margin; others are above, in units of f's spread.
LOWEST = -1e6
#: Entries of the table of limits, which is part of every snapshot.
MOST_ENTRIES = 2**21


class Limits(Protocol):
    """What the models need of `fmnes.constraints.Limits`."""

    equality: NDArray[np.bool_]
    tolerance: Floats

    @property
    def size(self) -> int: ...

    def excess(self, outputs: Floats) -> Floats: ...

    def violation(self, g: Floats) -> Floats: ...


class Fitted(NamedTuple):
    models: OutputModels
    chosen: Indices
    """The limits that are modelled, after f."""


class LimitedSurrogate(Surrogate):
    """The models of a search under limits. The values in `data` are merits."""

    def __init__(self, range: SearchRange, seed: int, batch: int, limits: Limits) -> None:
        super().__init__(range, seed, batch)
        m = limits.size
        self.limits = limits
        self.data.most = min(MAX_POINTS, MOST_ENTRIES // (m + 1))
        self._table = np.empty((64, m + 1))
        """g and, in the last column, f of each evaluation in `data`; NaN if it failed."""
        self.penalties, self.multipliers, self.margins = np.zeros(m), np.zeros(m), np.zeros(m)
        self.predicted: Floats | None = None
        """What the models say of the g of the point that is evaluated next; NaN without a model. (m,)"""
        self.missed = 0
        """Minima of the models since the last gain or expected improvement."""
        self.until: int | None = None
        """The evaluations in which models take part; None: all."""

    # -- the evaluations

    @property
    def f(self) -> Floats:
        """The objective, NaN for failed evaluations. (n,)"""
        return self._table[: len(self.data), -1]

    @property
    def g(self) -> Floats:
        """The numbers of the limits. (n, m)"""
        return self._table[: len(self.data), :-1]

    @property
    def is_over(self) -> bool:
        """Whether the models no longer take part."""
        return self.until is not None and len(self.data) >= self.until

    def add(self, x: Floats, value: float, drawn: bool = False, outputs: Floats | None = None) -> None:
        n = len(self.data)
        if self.is_over and self.phase == LOCAL:  # nothing will use it
            return
        if n == len(self._table):
            self._table = np.concatenate([self._table, np.empty_like(self._table)])
        self._table[n] = np.nan
        if outputs is not None and np.isfinite(value):
            self._table[n, :-1] = self.limits.excess(outputs[None])[0]
            self._table[n, -1] = value
        row = self._table[n : n + 1]
        super().add(x, float(self._merits(row[:, -1], row[:, :-1])[0]), drawn)

    def _forget_oldest(self) -> int:
        n = super()._forget_oldest()
        if n:
            self._table = self._table[n:].copy()
        return n

    def _merits(self, f: Floats, g: Floats) -> Floats:
        """f and what the violations cost; NaN for failed evaluations. (n,), (n, m) -> (n,)"""
        with np.errstate(all="ignore"):
            cost = np.where(self.penalties > 0, self.limits.violation(g) * self.penalties, 0.0).sum(axis=1)
            merits: Floats = np.where(np.isfinite(f), np.clip(f + cost, -LARGEST, LARGEST), np.nan)
        return merits

    def _settle(self, multipliers: Floats | None = None) -> None:
        """Adapt the penalties, and with them the merits of all evaluations."""
        worked = np.isfinite(self.f)
        if not worked.any():
            return
        g, p = self.g[worked], self.penalties
        violation = self.limits.violation(g)
        with np.errstate(all="ignore"):
            spread = _spread(g)
            if multipliers is not None:
                self.multipliers = np.where(np.isfinite(multipliers), multipliers, 0.0)
                p = np.maximum(PENALTY * np.abs(self.multipliers), PENALTY_FALLS * p)
                best = self.limits.violation(self.g[self.data.best])
                p = np.where(best > FAR * spread, np.maximum(p, PENALTY_GROWS * self.penalties), p)
            unit = float(_spread(self.f[worked])) or abs(float(np.median(self.f[worked]))) or 1.0
            p = np.where((p == 0) & (violation > 0).any(axis=0), unit / spread, p)
        self.penalties = np.where(np.isfinite(p), np.minimum(p, LARGEST), 0.0)
        self.data.y[:] = self._merits(self.f, self.g)

    # -- the models

    def _fit(self, z: Floats) -> Fitted | None:
        """Models of f, and of the limits nearest to being violated, in these coordinates; None: too few."""
        d = z.shape[1]
        with np.errstate(all="ignore"):
            squared = np.einsum("ij,ij->i", z, z)
        usable = np.flatnonzero(np.isfinite(self.f) & (squared < 1e100))
        near = trust_region.nearest(squared, usable, trust_region.value_points(d))
        if len(near) < 3:
            return None
        chosen = self._nearly_violated(self.g[near])
        y = np.column_stack([self.f[near], self.g[near][:, chosen]])
        models = output_models.fit(z[near], y, max(15, 2 * d))
        return None if models is None else Fitted(models, chosen)

    def _nearly_violated(self, g: Floats) -> Indices:
        """The limits that are modelled. g: of the nearest evaluations. (n, m)"""
        m = g.shape[1]
        most = max(MOST_LIMITS, MOST_PER_DIMENSION * self.data.d)
        if m <= most:
            return np.arange(m)
        with np.errstate(all="ignore"):
            beyond = np.where(self.limits.equality, np.inf, (g / _spread(g)).max(axis=0))
        beyond = np.where(np.isnan(beyond), -np.inf, beyond)
        return np.sort(np.argsort(-beyond, kind="stable")[:most])

    def _minimise(
        self, fitted: Fitted, start: Floats, low: Floats, high: Floats, margins: Floats
    ) -> constrained_step.Minimum:
        """The minimum of the models; its multipliers settle the penalties."""
        chosen = fitted.chosen
        equality, tolerance = self.limits.equality[chosen], self.limits.tolerance[chosen]
        slack = np.where(equality, np.maximum(tolerance - margins[chosen], 0.0), -margins[chosen])
        found = constrained_step.minimise(fitted.models, start, low, high, equality, slack)
        multipliers = np.zeros(self.limits.size)
        multipliers[chosen] = found.multipliers
        self._settle(multipliers)
        return found

    def _of_all(self, fitted: Fitted, values: Floats) -> Floats:
        """Numbers of the modelled limits, as numbers of all; NaN for the others. (m,)"""
        found = np.full(self.limits.size, np.nan)
        found[fitted.chosen] = values
        return found

    # -- the region

    def _propose_in_region(self, snap: Snap | None) -> Floats | None:
        data, range = self.data, self.range
        self._settle()
        self.predicted = None
        if self.region is None:
            self.region = self._first_region()._replace(quadratic=True)
            self._observed, self.missed = len(data), 0
        ended = self.is_over or self.region.size <= SMALLEST * self.region.first_size
        if ended or trust_region.stalled(data, self.region.began, trust_region.STALL_EVALUATIONS, STALL_GAIN):
            return None
        proposed: list[Floats] = []
        if self.region.quadratic:
            first = self._minimum_in(self.region, snap)
            if first is None:
                self.region = self.region._replace(quadratic=False)
            else:
                proposed.append(first)
        believed, region = data, self.region
        while len(proposed) < self.batch:
            if proposed:
                # The next point of the batch is chosen as if this one had the value of the median.
                believed = with_median(believed, proposed[-1])
            point, region = trust_region.propose(
                believed,
                region._replace(quadratic=False),
                range.lower,
                range.upper,
                self.rng(1 + len(proposed)),
                snap,
            )
            if believed is data:
                self.region = region
            if point is None:
                break
            proposed.append(point)
        return np.array(proposed) if proposed else None

    def _leave_plateau(self) -> bool:
        return not self.is_over and super()._leave_plateau()

    def _minimum_in(self, region: Region, snap: Snap | None) -> Floats | None:
        """The minimum of the models in the region; None: it was evaluated already, or may fail."""
        data, range = self.data, self.range
        centre = data.u[data.best]
        scale = region.size * (1.0 if region.theta is None else trust_region.half_axes(region.theta))
        known = (data.u - centre) / scale
        fitted = self._fit(known)
        if fitted is None:
            return None
        low = np.maximum((range.lower - centre) / scale, -1.0)
        high = np.minimum((range.upper - centre) / scale, 1.0)
        found = self._minimise(fitted, np.zeros(data.d), low, high, self.margins)
        best = found.z
        edge = trust_region.fit_edge(known, np.isfinite(self.f))
        cut = min(trust_region.MAX_CUT, trust_region.CUT * region.failures)
        if edge is not None and edge_model.margin(edge, best[None])[0] <= cut:
            best = self._minimum_off_edge(fitted, edge, cut, best, low, high)
        u: Floats = np.clip(centre + scale * best, range.lower, range.upper)
        if snap is not None:
            u = snap(u)
        z = (u - centre)[None] / scale
        if not np.isfinite(u).all() or data.near(u, SAME) or data.knows(u[None])[0]:
            return None
        if edge is not None and edge_model.margin(edge, z)[0] <= cut:
            return None
        self.predicted = self._of_all(fitted, output_models.predict(fitted.models, z)[0, 1:])
        return u

    def _minimum_off_edge(
        self, fitted: Fitted, edge: EdgeModel, cut: float, start: Floats, low: Floats, high: Floats
    ) -> Floats:
        """The point of the least modelled merit that is expected to work by more than `cut`. (d,)"""
        d, chosen, rng = len(start), fitted.chosen, self.rng(0)
        equality, tolerance = self.limits.equality[chosen], self.limits.tolerance[chosen]
        penalties, margins = self.penalties[chosen], self.margins[chosen]

        def score(z: Floats) -> Floats:
            values = output_models.predict(fitted.models, z)
            g = np.where(equality, np.abs(values[:, 1:]) - tolerance, values[:, 1:])
            merit = values[:, 0] - fitted.models.middle[0] + np.maximum(g + margins, 0.0) @ penalties
            merit = np.minimum(np.nan_to_num(merit / fitted.models.unit[0], nan=np.inf), 1e5)
            room = edge_model.margin(edge, z)
            found: Floats = np.where(room > cut, -merit, LOWEST + room)
            return found

        share = rng.random((CANDIDATES, 1))  # between the centre, which works, and all over the region
        z = np.clip(share * rng.uniform(-1.0, 1.0, (CANDIDATES, d)), low, high)
        on_the_way = start * np.linspace(0.0, 1.0, 50)[:, None]
        with np.errstate(all="ignore"):
            return trust_region.maximise(
                score, np.concatenate([z, on_the_way]), low, high, np.ones(d), rng, np.asarray
            )[0]

    def observe(self) -> None:
        """Let the margins and the region see the evaluations that were added since."""
        data, region = self.data, self.region
        if region is None or self.phase != REGION:
            return
        self._correct_margins()
        for i in np.arange(self._observed, len(data)):
            before, last = data.y[data.first : i], data.y[: i + 1]
            last = last[-trust_region.stall_window(data.d, RECENT) :]
            best = float(np.nanmin(before)) if np.isfinite(before).any() else np.inf
            median = float(np.median(last[np.isfinite(last)])) if np.isfinite(last).any() else 0.0
            after = trust_region.observe(region, float(data.y[i]), best, median, data.d)
            gained = after.quadratic == region.quadratic  # else it would be the other's turn
            self.missed = self.missed + 1 if region.quadratic and not gained else 0
            region = after._replace(quadratic=self.missed < MISSES)
        self.region, self._observed = region, len(data)

    def _correct_margins(self) -> None:
        """After the minimum of the models was evaluated: the first new evaluation."""
        i = self._observed
        if self.predicted is None or i >= len(self.data):
            return
        if np.isfinite(self.f[i]):
            g, equality = self.g[i], self.limits.equality
            with np.errstate(all="ignore"):
                error = np.where(equality, np.abs(g - self.predicted), g - self.predicted)
                grown = np.fmax(2 * self.margins, MARGIN_OF_ERROR * error)
                violated = self.limits.violation(g) > 0
                margins = np.where(violated, grown, MARGIN_SHRINKS * self.margins)
            self.margins = np.where(np.isfinite(margins) & (margins >= 0), margins, 0.0)
        self.predicted = None

    # -- beside the distribution

    def minimum_near_best(
        self, z: Floats, walls: tuple[Floats, Floats], margins: Floats
    ) -> tuple[Floats, Floats, Floats] | None:
        """The minimum of the models near the best point, in the coordinates of the distribution.

        Parameters
        ----------
        z : (n, d) array
            The evaluations.
        walls : pair of arrays
            Rows a (k, d) and offsets c (k,): bounds a · z + c ≤ 0.
        margins : (m,) array
            What is kept from the limits.

        Returns
        -------
        tuple of arrays, or None
            z (d,), the numbers g that the models predict (m,), and the lengths of their slopes (m,).
        """
        self._settle()
        if not self.data.any_worked or not np.isfinite(centre := z[self.data.best]).all():
            return None
        with np.errstate(all="ignore"):
            fitted = self._fit(z - centre)
        if fitted is None:
            return None
        reach = np.full(len(centre), REACH)
        found = self._minimise(fitted, np.zeros(len(centre)), -reach, reach, margins)
        step = found.z
        rows, offsets = walls
        if len(rows):  # back to the bounds, along the step
            room, along = -(offsets + rows @ centre), rows @ step
            with np.errstate(all="ignore"):
                share = np.where(along > 0, np.maximum(room, 0.0) / along, np.inf).min(initial=1.0)
            step = step * share
        values = output_models.predict(fitted.models, step[None])[0, 1:]
        slopes = output_models.slopes(fitted.models, step)[1:]
        lengths = np.sqrt(np.einsum("ij,ij->i", slopes, slopes))
        return centre + step, self._of_all(fitted, values), self._of_all(fitted, lengths)

    # -- saving

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        metadata, arrays = super().dump()
        metadata["surrogate"] |= {"missed": self.missed, "until": self.until}
        for name in ("f", "g", "penalties", "multipliers", "margins"):
            arrays[f"surrogate.{name}"] = getattr(self, name).copy()
        if self.predicted is not None:
            arrays["surrogate.predicted"] = self.predicted
        return metadata, arrays

    @classmethod
    def restore(
        cls, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]], limits: Limits | None = None
    ) -> LimitedSurrogate:
        assert limits is not None
        self = super().restore(metadata, arrays, limits)
        assert isinstance(self, cls)
        n, m = len(self.data), limits.size
        f, g = _checked(arrays, "f", (n,)), _checked(arrays, "g", (n, m))
        self._table = np.column_stack([g, f]) if n else self._table
        if not (np.isfinite(self.data.y) == np.isfinite(f)).all():
            raise ValueError("merits of other evaluations")
        for name in ("penalties", "multipliers", "margins"):
            found = _checked(arrays, name, (m,))
            if not np.isfinite(found).all():
                raise ValueError(f"NaN or infinity among the {name}")
            setattr(self, name, found)
        if (self.penalties < 0).any() or (self.margins < 0).any():
            raise ValueError("a negative penalty or margin")
        if "surrogate.predicted" in arrays:
            self.predicted = _checked(arrays, "predicted", (m,))
        saved = metadata["surrogate"]
        self.missed = int(saved["missed"])
        self.until = None if saved.get("until") is None else int(saved["until"])
        return self


def _checked(arrays: dict[str, NDArray[Any]], name: str, shape: Sequence[int]) -> Floats:
    found = np.array(arrays[f"surrogate.{name}"], dtype=np.float64)
    if found.shape != tuple(shape) or np.isinf(found).any():
        raise ValueError(f"{name} of shape {found.shape}, wanted {tuple(shape)} without infinity")
    return found


def _spread(v: Floats) -> Any:
    """The interquartile range along the first axis, or the whole range where that is 0."""
    v = np.sort(v, axis=0)
    last = len(v) - 1
    quartiles = v[3 * last // 4] - v[last // 4]
    return np.where(quartiles > 0, quartiles, v[-1] - v[0])
