"""What the failing points of a run have in common, as a rule of one or two conditions.

A rule is chosen by its mutual information with the outcome. It is reported only if chance would hardly give
such a rule anywhere: the tail of the hypergeometric distribution times the number of rules that were tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes._text import short
from fmnes.reading.data import CELLS, FINER_CELLS, Floats, Rows, distinct, evenly, on_scale

Mask = NDArray[np.bool_]

#: Largest probability that chance alone gives a rule, over all rules that were tried.
CHANCE = 0.01
#: A rule covers at least this share of the points that it describes.
COVERED = 0.5
#: It explains at least this share of the uncertainty about the outcome; a second condition adds as much.
EXPLAINED = 0.1
#: Fewer points than this have nothing in common that chance could not give.
LEAST = 5
#: With fewer distinct points than this of either kind, closer ones count too.
ENOUGH = 20
#: First conditions that are tried with a second one.
FIRST = 6
#: Parameters that are tried for a second condition.
SECOND = 50
#: A parameter with at most this many values is treated as discrete.
DISCRETE = 20
#: So is one whose values are whole numbers below this.
WHOLE = 2.0**53
#: Points of either kind that are searched, without close ones; the numbers of a rule are of all points.
SEARCHED = 10_000
#: Characters of a name in a sentence.
NAME = 60


class Condition(NamedTuple):
    """A condition on one parameter.

    Attributes
    ----------
    name : str
        The parameter.
    relation : str
        "<", ">", "≤", "≥" or "=".
    value : float
        The threshold, in the user's units.

    Examples
    --------
    >>> import fmnes
    >>> def simulate(p):
    ...     if p["layers"] < 3:
    ...         raise fmnes.Infeasible("mesh failed")
    ...     return p["layers"] + p["width"] ** 2
    >>> space = {"width": fmnes.Real(0, 1), "layers": fmnes.Integer(1, 6)}
    >>> result = fmnes.minimize(simulate, space, rng=1, keep_evaluations=True)
    >>> condition = fmnes.explain(result).failures[0].rule.conditions[0]
    >>> condition.name, condition.relation, condition.value
    ('layers', '≤', 2.0)
    """

    name: str
    relation: str
    value: float

    def holds(self, column: Floats) -> Mask:
        """Return where it holds.

        Parameters
        ----------
        column : ndarray
            The parameter's values. (n,)

        Returns
        -------
        ndarray of bool
            True where it holds. (n,)
        """
        return np.asarray(_HOLDS[self.relation](column, self.value), dtype=np.bool_)

    def __str__(self) -> str:
        return f"{short(self.name, NAME)} {self.relation} {self.value:.15g}"


_OPPOSITE = {"<": ">", ">": "<", "≤": ">", "≥": "<"}
_HOLDS = {
    "<": np.less,
    ">": np.greater,
    "≤": np.less_equal,
    "≥": np.greater_equal,
    "=": np.equal,
}


class Rule(NamedTuple):
    """A region that separates the described points from the others.

    Attributes
    ----------
    conditions : tuple of Condition
        One condition or two.
    outside : bool
        Whether one of two conditions is enough: the points lie on both sides of an interval.
    covered : int
        The described points in the region.
    described : int
        All described points: those that failed for one reason, or those that work.
    points : int
        All evaluated points in the region.
    failed : int
        The failed ones of these, for any reason.

    Examples
    --------
    >>> import fmnes
    >>> def simulate(p):
    ...     if p["layers"] < 3:
    ...         raise fmnes.Infeasible("mesh failed")
    ...     return p["layers"] + p["width"] ** 2
    >>> space = {"width": fmnes.Real(0, 1), "layers": fmnes.Integer(1, 6)}
    >>> result = fmnes.minimize(simulate, space, rng=1, keep_evaluations=True)
    >>> rule = fmnes.explain(result).failures[0].rule
    >>> rule.region, rule.covered == rule.described == rule.failed
    ('layers ≤ 2', True)
    """

    conditions: tuple[Condition, ...]
    outside: bool
    covered: int
    described: int
    points: int
    failed: int

    @property
    def region(self) -> str:
        """The conditions in words."""
        if self.outside:
            return " or ".join(map(str, self.conditions))
        if len(self.conditions) == 2 and self.conditions[0].name == self.conditions[1].name:
            low, high = sorted(self.conditions, key=lambda one: one.relation not in (">", "≥"))
            if low.relation in (">", "≥") and high.relation in ("<", "≤"):
                turned = {">": "<", "≥": "≤"}[low.relation]
                return f"{low.value:.15g} {turned} {high}"
        return " and ".join(map(str, self.conditions))


class _Found(NamedTuple):
    """A region while rules are searched."""

    conditions: tuple[Condition, ...]
    inside: int
    """Points in it, of those that are compared."""
    hits: int
    """The described ones of these."""
    information: float
    log_tries: float
    """Logarithm of the number of regions it was chosen from."""


def rule(
    points: Mapping[str, Floats], described: Mask, others: Mask, failed: Mask, logs: frozenset[str]
) -> Rule | None:
    """The best rule that describes some points and not the others; None if no rule is clear.

    points: columns by name. described, others: the points to tell apart; the rest is only counted.
    failed: of all points. logs: the parameters with a log scale.
    """
    x = on_scale(points, logs)
    rows = np.concatenate([_some(np.flatnonzero(these), x) for these in (described, others)])
    rows.sort()
    y = described[rows]
    if min(int(y.sum()), int((~y).sum())) < 1 or int(y.sum()) < LEAST:
        return None
    table = {name: column[rows] for name, column in points.items()}
    orders = {name: np.argsort(column, kind="stable") for name, column in table.items()}
    found = _best(table, orders, y, logs)
    interval = _best(table, orders, ~y, logs)
    outside = interval is not None and _is_better_outside(
        interval, found, EXPLAINED * _entropy(int(y.sum()), len(y))
    )
    if outside:
        found = interval
    if found is None:
        return None
    region = _inside(found.conditions, points) != outside
    conditions = found.conditions
    if outside:
        low, high = (condition._replace(relation=_OPPOSITE[condition.relation]) for condition in conditions)
        conditions = (low, high) if low.value < high.value else (high, low)
    if (region & described).sum() < COVERED * described.sum():  # close points count in the sentence
        return None
    return Rule(
        conditions=conditions,
        outside=outside,
        covered=int((region & described).sum()),
        described=int(described.sum()),
        points=int(region.sum()),
        failed=int((region & failed).sum()),
    )


def _is_better_outside(interval: _Found, found: _Found | None, least: float) -> bool:
    """Whether the outside of a region of the other points describes these better, if it is an interval."""
    if len(interval.conditions) < 2 or len({condition.name for condition in interval.conditions}) > 1:
        return False
    if {condition.relation for condition in interval.conditions} not in ({"<", ">"}, {"≤", "≥"}):
        return False
    if found is None:
        return True
    return interval.information > found.information + (least if len(found.conditions) == 1 else 0.0)


def _some(rows: Rows, x: Floats) -> Rows:
    """These rows with one of several close points, and at most SEARCHED of them, evenly spaced."""
    for cells in (CELLS, *FINER_CELLS):
        kept = rows[np.sort(distinct(x[rows], cells)[0])]
        if len(kept) >= ENOUGH:
            break
    return kept[evenly(len(kept), SEARCHED)]


def _inside(conditions: tuple[Condition, ...], points: Mapping[str, Floats]) -> Mask:
    inside: Mask = np.logical_and.reduce([one.holds(points[one.name]) for one in conditions])
    return inside


def _best(table: dict[str, Floats], orders: dict[str, Rows], y: Mask, logs: frozenset[str]) -> _Found | None:
    n, total = len(y), int(y.sum())
    least = EXPLAINED * _entropy(total, n)
    everywhere = np.full(n, True)
    singles = list(_candidates(table, orders, y, everywhere, logs))
    singles.sort(key=lambda one: -one.information)
    clear = [one for one in singles if one.information >= least and _is_clear(one, n, total)]
    best = clear[0] if clear else None
    floor = least if best is None else best.information + least
    names = {one.conditions[0].name for one in singles[:SECOND]}
    some = {name: column for name, column in table.items() if name in names}
    for first in singles[:FIRST]:
        within = _inside(first.conditions, table)
        for one in _candidates(some, orders, y, within, logs):
            # As many tries as for the first: the parameters were chosen by it.
            second = one._replace(log_tries=first.log_tries)
            both = one._replace(conditions=first.conditions + one.conditions, log_tries=2 * first.log_tries)
            if (
                both.information > floor
                and _is_clear(both, n, total)
                and _is_clear(second, first.inside, first.hits)
                and _is_clear(second, *_counts(one.conditions, table, y))
            ):
                best, floor = both, both.information
    return best


def _counts(conditions: tuple[Condition, ...], table: dict[str, Floats], y: Mask) -> tuple[int, int]:
    """The points in a region, and the described ones of these."""
    inside = _inside(conditions, table)
    return int(inside.sum()), int((inside & y).sum())


def _candidates(
    table: dict[str, Floats], orders: dict[str, Rows], y: Mask, within: Mask, logs: frozenset[str]
) -> Iterator[_Found]:
    """The best condition on each parameter for the points `within`.

    It has a larger share of described points than these, and covers enough of all described points.
    """
    n, total = len(y), int(y.sum())
    points, hits = int(within.sum()), int((y & within).sum())
    found = []
    tried = 0
    for name, column in table.items():
        order = orders[name][within[orders[name]]]
        values = column[order]
        ends = np.flatnonzero(values[1:] != values[:-1])  # rows before a gap
        if not len(ends):
            continue
        below = ends + 1
        k_below = np.cumsum(y[order])[ends]
        m, k = [below, points - below], [k_below, hits - k_below]
        few = len(ends) < DISCRETE
        whole = bool(np.all((values == np.rint(values)) & (np.abs(values) < WHOLE)))
        discrete = whole or (few and len(values) > 2 * DISCRETE)
        if few and discrete:
            m.append(np.diff(np.concatenate(([0], below, [points]))))
            k.append(np.diff(np.concatenate(([0], k_below, [hits]))))
        inside, described = np.concatenate(m), np.concatenate(k)
        tried += len(inside)
        usable = (described * points > hits * inside) & (described >= COVERED * total)
        if not usable.any():
            continue
        information = np.where(usable, _information(described, inside, total, n), -1.0)
        at = int(np.argmax(information))
        side, gap = (at // len(ends), at % len(ends)) if at < 2 * len(ends) else (2, at - 2 * len(ends))
        if side == 2:
            starts = np.concatenate(([0], below))
            condition = Condition(name, "=", float(values[starts[gap]]))
        else:
            low, high = float(values[ends[gap]]), float(values[ends[gap] + 1])
            condition = _threshold(name, low, high, side == 0, discrete, name in logs)
        found.append((condition, int(inside[at]), int(described[at]), float(information[at])))
    for condition, m_at, k_at, value in found:
        yield _Found((condition,), m_at, k_at, value, math.log(tried))


def _threshold(name: str, low: float, high: float, lower: bool, discrete: bool, log: bool) -> Condition:
    """The condition that separates two neighbouring values: the shortest number between them."""
    if not discrete:
        middle = math.sqrt(low) * math.sqrt(high) if log and low > 0 else low / 2 + high / 2
        for value in (0.0, *(float(f"{middle:.{digits}g}") for digits in range(1, 16))):
            if low < value < high:
                return Condition(name, "<" if lower else ">", value)
    return Condition(name, "≤", low) if lower else Condition(name, "≥", high)


# -- Information, and what chance gives


def _information(k: Rows, m: Rows, total: int, n: int) -> Floats:
    """Mutual information of region and outcome, times n, in nats.

    k of the m points in the region, and `total` of all n points, are described ones.
    """
    k, m = k.astype(float), m.astype(float)
    cells = (
        (k, m, total),
        (m - k, m, n - total),
        (total - k, n - m, total),
        (n - m - total + k, n - m, n - total),
    )
    amount = np.zeros(len(k))
    for count, row, column in cells:
        expected = row * column / n
        there = (count > 0) & (expected > 0)
        amount[there] += count[there] * np.log(count[there] / expected[there])
    return amount


def _entropy(total: int, n: int) -> float:
    """Entropy of the outcome, times n: the largest possible information."""
    return -sum(count * math.log(count / n) for count in (total, n - total) if count)


def _is_clear(found: _Found, n: int, total: int) -> bool:
    """Whether chance would hardly give such a region among n points with `total` described ones."""
    return _log_tail(found.hits, found.inside, total, n) + found.log_tries < math.log(CHANCE)


def _log_tail(k: int, m: int, total: int, n: int) -> float:
    """Logarithm of the probability of k or more described points among m drawn of n without replacement."""
    log_first = (
        _log_binomial(total, k) + _log_binomial(n - total, m - k) - _log_binomial(n, m)
    )  # of exactly k
    term = terms = 1.0
    for i in range(k, min(total, m)):
        term *= (total - i) * (m - i) / ((i + 1) * (n - total - m + i + 1))
        terms += term
        if term < 1e-17 * terms:
            break
    return min(log_first + math.log(terms), 0.0)


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
