"""`fmnes.trade_off`: the front of two objectives, one of them held by a limit that is swept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import check_count, check_number, shown
from fmnes.constraints import Constraint, read_constraints
from fmnes.errors import ArgumentError, ObjectiveError, UsageError
from fmnes.result import Result
from fmnes.run.minimize import minimize
from fmnes.space import is_space

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Options of `minimize` that a sweep sets itself.
_OWN = ("warm_start", "run_dir", "known", "target", "vectorized")
#: Limits have equal ratios where the ends differ by a factor between these; beyond it one end is about 0.
_RATIO, _MOST_RATIO = 10.0, 1e6
#: A limit that excludes nothing.
_NO_LIMIT = 1e300


@dataclass(frozen=True, eq=False)
class TradeOff:
    """The front that `fmnes.trade_off` found, ordered by the first output.

    Attributes
    ----------
    first, second : str
        The names of the two outputs, both minimised.
    x : list of ndarray or dict
        The points of the front.
    values : ndarray
        Both outputs at each point. (n, 2)
    limits : list of float
        The limit on the second output with which each was found; inf for the end without a limit.
    results : list of Result
        The run that found each point.
    nfev : int
        Evaluations of all runs together.

    Examples
    --------
    >>> import fmnes
    >>> def plate(p):
    ...     return {"mass": p["t"], "stress": 1 / p["t"] ** 2}
    >>> front = fmnes.trade_off(plate, {"t": fmnes.Real(1, 4)}, "mass", "stress", points=3, rng=1)
    >>> [round(point["mass"], 2) for point in front]
    [1.0, 2.0, 4.0]
    """

    first: str
    second: str
    x: list[Any]
    values: NDArray[np.float64]
    limits: list[float]
    results: list[Result[Any]]
    nfev: int

    def __len__(self) -> int:
        return len(self.x)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows of the table: both outputs, then the parameters."""
        for x, (one, two) in zip(self.x, self.values.tolist(), strict=True):
            point = x if isinstance(x, dict) else {f"x{i}": value for i, value in enumerate(x.tolist())}
            yield {self.first: one, self.second: two, **point}

    def __str__(self) -> str:
        rows = list(self)
        heads = list(rows[0])
        cells = [heads, *([f"{value:.6g}" for value in row.values()] for row in rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
        return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells)

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame
            A row for each point: both outputs, then the parameters.
        """
        import pandas

        return pandas.DataFrame(list(self))

    def plot(self) -> Figure:
        """Draw the front.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        MissingExtra
            matplotlib is not installed.
        """
        from fmnes.plots import drawing

        figure = drawing.blank(6, 4.5)
        axes = drawing.panel(figure)
        values = self.values
        axes.plot(values[:, 0], values[:, 1], "o-", color=drawing.BLUE)
        axes.set_xlabel(self.first)
        axes.set_ylabel(self.second)
        return figure


def trade_off(
    fun: Callable[[Any], Any],
    x0: Any = None,
    first: str = "",
    second: str = "",
    *,
    points: int = 8,
    constraints: Any = None,
    max_evaluations: int | None = None,
    **options: Any,
) -> TradeOff:
    """Find the trade-off between two outputs, both minimised.

    Each output is minimised alone first, which gives the ends of the front. Between them the first output is
    minimised under a limit on the second, from one end to the other, and each run starts at its neighbour.
    The limits have equal distances, or equal ratios if they are positive and the ends differ by a factor
    between 10 and 1e6. This is the ε-constraint method, which finds fronts that are not convex too.

    Parameters
    ----------
    fun : callable
        Takes a point and returns {name: number}, or (value, {name: number}), whose value is not used.
    x0 : array_like or dict of str to Real or Integer
        As in `fmnes.minimize`.
    first, second : str
        The names of the two outputs.
    points : int, optional
        Points of the front, with its ends; at least 2.
    constraints : dict, optional
        Limits on further outputs, as in `fmnes.minimize`.
    max_evaluations : int, optional
        Budget of all runs together: half of it for the two ends.
    **options
        Further options of `fmnes.minimize`, for every run.

    Returns
    -------
    TradeOff
        The points of the front: iterate over it for rows, print it, or call `plot`.

    Raises
    ------
    ArgumentError
        An argument is wrong.
    UsageError
        No point is within the limits, so that there is no front.

    Examples
    --------
    >>> import fmnes
    >>> def beam(p):
    ...     return {"mass": p["w"] * p["h"], "deflection": 1 / (p["w"] * p["h"] ** 3)}
    >>> space = {"w": fmnes.Real(1, 2), "h": fmnes.Real(1, 3)}
    >>> front = fmnes.trade_off(beam, space, "mass", "deflection", points=4, rng=1)
    >>> len(front), bool((front.values[1:, 1] <= front.values[:-1, 1]).all())
    (4, True)
    """
    n = check_count("points", points, 2)
    for argument, name in (("first", first), ("second", second)):
        if not isinstance(name, str) or not name.strip():
            raise ArgumentError(f"{argument}: found {shown(name)}, wanted the name of an output")
    if first == second:
        raise ArgumentError(f"second: found {second!r}, which is the first one too; wanted another output")
    for name in _OWN:
        if name in options:
            raise ArgumentError(f"{name}: found it for a trade-off, which sets it itself; leave it out")
    read = read_constraints(constraints)
    others = {} if read is None else read.constraints
    if second in others or first in others:
        raise ArgumentError("constraints: found a limit on one of the two outputs; wanted limits on others")
    budget = check_number("max_evaluations", max_evaluations, above=0, whole=True)
    sweep = _Sweep(fun, x0, first, second, others, options)
    quarter = None if budget is None else max(1, budget // 4)
    low, high = sweep.run(first, math.inf, quarter), sweep.run(second, math.inf, quarter)
    if low is None or high is None:
        raise UsageError("trade_off: found no point within the limits; wanted limits that a point satisfies")
    best, worst = sweep.outputs(high)[1], sweep.outputs(low)[1]
    found, start = [(low, math.inf), (high, best)], low
    for i, limit in enumerate(_spread(worst, best, n)[1:-1], 1):
        left = None if budget is None else (budget - sweep.nfev) // (n - 1 - i)
        if not limit < worst or (left is not None and left < 1):
            break
        result = sweep.run(first, limit, left, start)
        if result is not None:
            found.append((result, limit))
            start = result
    return _front(sweep, found)


def _spread(worst: float, best: float, n: int) -> list[float]:
    """n limits from one end to the other."""
    by_ratio = best > 0 and _RATIO * best < worst < _MOST_RATIO * best
    found: NDArray[np.float64] = (np.geomspace if by_ratio else np.linspace)(worst, best, n)
    return [float(limit) for limit in found]


def _front(sweep: _Sweep, found: list[tuple[Result[Any], float]]) -> TradeOff:
    """Only points that no other one betters in both outputs, by the first one."""
    rows = [(*sweep.outputs(result), result, limit) for result, limit in found]
    rows.sort(key=lambda row: row[:2])
    kept: list[Any] = []
    for row in rows:
        if not kept or row[1] < kept[-1][1]:
            kept.append(row)
    return TradeOff(
        sweep.first,
        sweep.second,
        [result.x for _, _, result, _ in kept],
        np.array([row[:2] for row in kept]),
        [limit for *_, limit in kept],
        [result for _, _, result, _ in kept],
        sweep.nfev,
    )


class _Sweep:
    """Runs of one trade-off."""

    def __init__(
        self,
        fun: Callable[[Any], Any],
        x0: Any,
        first: str,
        second: str,
        others: dict[str, Constraint],
        options: dict[str, Any],
    ) -> None:
        self._fun, self._x0, self._others, self._options = fun, x0, others, options
        self.first, self.second = first, second
        self.nfev = 0

    def run(
        self, what: str, limit: float, left: int | None, start: Result[Any] | None = None
    ) -> Result[Any] | None:
        """Minimise one output under a limit on the other; None: no point is within the limits."""
        other = self.second if what == self.first else self.first
        # Without a limit one that excludes nothing: the other output is then reported with the result.
        limits = {other: Constraint(upper=min(limit, _NO_LIMIT)), **self._others}
        options = {**self._options, "x0": self._x0}
        if start is not None:
            options |= {"warm_start": start, "x0": self._x0 if is_space(self._x0) else None}
        result: Result[Any] = minimize(
            _Outputs(self._fun, what), **options, constraints=limits, max_evaluations=left
        )
        self.nfev += result.nfev
        return result if result.feasible else None

    def outputs(self, result: Result[Any]) -> tuple[float, float]:
        """The first and the second output at the point of a result, whichever of them was minimised."""
        found = result.constraints or {}
        one, two = (found[n].value if n in found else float(result.fun) for n in (self.first, self.second))
        return one, two


class _Outputs:
    """The objective with one of its outputs as the value; a class, so that workers can load it."""

    def __init__(self, fun: Callable[[Any], Any], what: str) -> None:
        self._fun, self._what = fun, what

    def __call__(self, x: Any) -> Any:
        returned = self._fun(x)
        if isinstance(returned, (tuple, list)) and len(returned) == 2:
            returned = returned[1]
        if returned is None:
            return None
        if not isinstance(returned, dict) or self._what not in returned:
            raise ObjectiveError(f"found {shown(returned)}, wanted a dict of outputs with {self._what!r}")
        return returned[self._what], {k: v for k, v in returned.items() if k != self._what}
