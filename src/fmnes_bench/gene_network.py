"""Gene network: find the 60 numbers of an S-system of five genes from its time courses.

    result = fmnes.minimize(problem.fun, problem.parameters, vectorized=True, max_evaluations=5000)

>>> from fmnes_bench import gene_network
>>> problem = gene_network.problem()
>>> round(problem.fun(problem.start), 2)  # genes that do not act on each other: off by a quarter
0.25
>>> problem.reasons(problem.start | {"g22": 3, "alpha2": 100})
['X2 explodes']

Needs the extra `scipy`, which integrates. Where a concentration explodes or dies out before the last
measurement, or the integration takes too many right-hand sides, there is no course to compare: the evaluation
fails.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.arguments import shown
from fmnes.errors import ArgumentError, Infeasible, MissingExtra
from fmnes.parameters import Parameter, Real
from fmnes_bench import columns_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fmnes.result import Result

__all__ = ["GeneNetworkProblem", "Network", "draw", "problem"]

# -- A network of genes as an S-system, and its integration from many initial states at once.

Floats = NDArray[np.float64]

#: A concentration above this has exploded, one below its inverse has died out: those of the data are near 1.
HUGE = 1e6


class Network(NamedTuple):
    """An S-system of k genes.

    Attributes
    ----------
    alpha : ndarray
        Rate constants of production, (k,).
    beta : ndarray
        Rate constants of loss, (k,).
    g : ndarray
        Kinetic orders of production, (k, k).
    h : ndarray
        Kinetic orders of loss, (k, k).

    Examples
    --------
    >>> import numpy as np
    >>> from fmnes_bench.gene_network import Network, courses
    >>> one, zero = np.ones(1), np.zeros((1, 1))
    >>> gene = Network(alpha=2 * one, beta=one, g=zero, h=np.ones((1, 1)))  # dX/dt = 2 - X
    >>> courses(gene, np.ones((1, 1)), np.array([0.0, 1.0])).shape
    (2, 1, 1)
    """

    alpha: Floats  # (k,)
    beta: Floats  # (k,)
    g: Floats  # (k, k)
    h: Floats  # (k, k)


def slope(network: Network, states: int) -> Callable[[Floats], Floats]:
    """dY/dt of Y = log X, (states k,), one state after another.

    What is returned is written over by the next call.
    """
    k = len(network.alpha)
    orders = np.hstack([network.g.T - np.eye(k), network.h.T - np.eye(k)])
    constants = np.tile(np.log(np.r_[network.alpha, network.beta]), (states, 1))
    terms = np.empty((states, 2 * k))
    made, lost = terms[:, :k], terms[:, k:]
    change = np.empty((states, k))
    flat = change.reshape(-1)

    def at(y: Floats) -> Floats:
        np.dot(y.reshape(states, k), orders, terms)
        np.add(terms, constants, terms)
        np.exp(terms, terms)
        np.subtract(made, lost, change)
        return flat

    return at


def courses(
    network: Network, initial: Floats, times: Floats, *, limit: int | None = None, tolerance: float = 1e-4
) -> Floats:
    """Concentrations at these times, (t, s, k), from initial states (s, k) at the first of them.

    limit: how many right-hand sides it may take, all states together. tolerance: of a step, relative.
    Raises `fmnes.Infeasible` with the reason if the integration fails.
    """
    odeint, failed = _scipy()
    states, k = initial.shape
    rates = slope(network, states)
    edge = math.log(HUGE)
    taken = 0

    def right_hand_side(y: Floats, _: float) -> Floats:
        nonlocal taken
        taken += 1
        if limit is not None and taken > limit:
            raise Infeasible(f"needs more than {limit} right-hand sides")
        # The sum of squares is the cheaper question, and nearly always answers it.
        if not y.dot(y) < edge * edge and not np.abs(y).max() < edge:
            raise Infeasible(_left(y.reshape(states, k)))
        return rates(y)

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error", failed)
        try:
            # States do not act on each other, so that the Jacobian is a band.
            y = odeint(
                right_hand_side,
                np.log(initial).reshape(-1),
                times,
                ml=k - 1,
                mu=k - 1,
                rtol=tolerance,
                atol=tolerance,
                mxstep=10**6,
            )
        except failed:
            raise Infeasible("the integration does not get on") from None
    found: Floats = np.exp(y.reshape(len(times), states, k))
    return found


def _left(y: Floats) -> str:
    """Which concentration has left what can be, and where to."""
    gene = int(np.abs(np.nan_to_num(y, nan=np.inf)).max(0).argmax())
    return f"X{gene + 1} {'dies out' if y[:, gene].min() < -math.log(HUGE) else 'explodes'}"


def _scipy() -> tuple[Any, type[Warning]]:
    try:
        from scipy.integrate import ODEintWarning, odeint
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "scipy":
            raise
        raise MissingExtra("fmnes_bench.gene_network", "scipy") from None
    return odeint, ODEintWarning


# -- A network to be found: its data, its parameters and the objective, for one network or for many.

GENES = 5
#: The network of Hlavacek and Savageau (Journal of Molecular Biology 255, 1996) as Kikuchi et al.
#: (Bioinformatics 19, 2003) search for it; both are problem `ss_5genes` of Gennemark and Wedelin
#: (Bioinformatics 25, 2009). Rows are genes: α, g_i1 ... g_i5, β, h_i1 ... h_i5.
TRUE = (
    (5.0, (0, 0, 1, 0, -1), 10.0, (2, 0, 0, 0, 0)),
    (10.0, (2, 0, 0, 0, 0), 10.0, (0, 2, 0, 0, 0)),
    (10.0, (0, -1, 0, 0, 0), 10.0, (0, -1, 2, 0, 0)),
    (8.0, (0, 0, 2, 0, -1), 10.0, (0, 0, 0, 2, 0)),
    (10.0, (0, 0, 0, 2, 0), 10.0, (0, 0, 0, 0, 2)),
)
#: Concentrations at the beginning: all low but one gene, and all low but two neighbours.
LOW, HIGH = 0.2, 0.8
#: When they are measured: the network has all but come to rest at the end.
TIMES = np.linspace(0.0, 0.5, 11)
TIMES.flags.writeable = False
#: Right-hand sides. The true network takes about 150.
LIMIT = 500


def problem(*, limit: int = LIMIT) -> GeneNetworkProblem:
    """Return the estimation problem: five genes, 60 parameters, ten time courses of eleven points.

    Parameters
    ----------
    limit : int, optional
        Evaluations of the right-hand side after which an integration has failed.

    Returns
    -------
    GeneNetworkProblem
        The problem.

    Raises
    ------
    ArgumentError
        `limit` is not a positive whole number.
    MissingExtra
        SciPy is not installed.

    Examples
    --------
    >>> from fmnes_bench import gene_network
    >>> problem = gene_network.problem()
    >>> len(problem.parameters)
    60
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ArgumentError(f"limit: found {shown(limit)}, wanted how many right-hand sides, at least 1")
    true = Network(*(np.array(column, dtype=float) for column in _columns(TRUE)))
    initial = _initial_states()
    observed = courses(true, initial, TIMES, tolerance=1e-10)
    observed.flags.writeable = False
    return GeneNetworkProblem(_parameters(), initial, TIMES, observed, _point(true), limit)


@dataclass(frozen=True, eq=False, repr=False)
class GeneNetworkProblem:
    """A gene network to be estimated: `fmnes.minimize(problem.fun, problem.parameters, vectorized=True)`.

    Attributes
    ----------
    parameters : dict of str to Parameter
        The search space: `alpha1`, `beta1`, ..., and `g12`, `h12`: how gene 2 acts on gene 1.
    initial : ndarray
        Initial states (s, k), one state of all genes for each course.
    times : ndarray
        When concentrations are measured, (t,).
    observed : ndarray
        The measured concentrations, (t, s, k).
    true : dict of str to float
        The network that made the data: a point as for `fun`.
    limit : int
        Evaluations of the right-hand side after which an integration has failed.

    Examples
    --------
    >>> from fmnes_bench import gene_network
    >>> problem = gene_network.problem()
    >>> problem.parameters.keys() == problem.true.keys()
    True
    """

    parameters: dict[str, Parameter]
    initial: Floats = field(repr=False)
    times: Floats = field(repr=False)
    observed: Floats = field(repr=False)
    true: dict[str, float] = field(repr=False)
    limit: int = LIMIT

    def __repr__(self) -> str:
        times, states, genes = self.observed.shape
        return f"<gene network, {genes} genes, {states} courses of {times} points>"

    @property
    def start(self) -> dict[str, float]:
        """Where a search begins, the middle of all ranges: genes that do not act on each other."""
        return {name: p.start for name, p in self.parameters.items() if p.start is not None}

    def fun(self, points: Any) -> Any:
        """Return the root mean square of the relative errors of all concentrations after the first time.

        Parameters
        ----------
        points : dict or array_like
            One network, {name: number} or (d,); or many, {name: (n,)} or (n, d).

        Returns
        -------
        float or ndarray
            The error; for many networks (n,), with +inf for those that failed.

        Raises
        ------
        Infeasible
            The only network failed.
        """
        rows, one = self._rows(points)
        if one:
            return self._error(rows[0])
        values = np.full(len(rows), np.inf)
        for i, row in enumerate(rows):
            try:
                values[i] = self._error(row)
            except Infeasible:
                continue
        return values

    def reasons(self, points: Any) -> list[str]:
        """Return why each network failed.

        Parameters
        ----------
        points : dict or array_like
            As for `fun`.

        Returns
        -------
        list of str
            The reasons; empty for a network that did not fail.
        """
        found = []
        for row in self._rows(points)[0]:
            try:
                self._error(row)
            except Infeasible as reason:
                found.append(str(reason))
            else:
                found.append("")
        return found

    def network(self, point: Any) -> Network:
        """Return α, β, g and h of one point.

        Parameters
        ----------
        point : dict or array_like
            {name: number} or (d,), such as `result.x`.

        Returns
        -------
        Network
            The network.
        """
        return self._network(self._only(point))

    def courses(self, point: Any, times: Floats | None = None) -> Floats:
        """Return the concentrations of one network.

        Parameters
        ----------
        point : dict or array_like
            {name: number} or (d,), such as `result.x`.
        times : array_like, optional
            Ascending times from 0 on; by default those of the data.

        Returns
        -------
        ndarray
            (t, s, k).

        Raises
        ------
        Infeasible
            A concentration explodes or dies out, or the integration takes too long.
        ArgumentError
            `times` do not ascend from 0.
        """
        when = self.times if times is None else np.asarray(times, dtype=float)
        if when.ndim != 1 or len(when) < 2 or when[0] != 0 or not (np.diff(when) > 0).all():
            raise ArgumentError(f"times: found {shown(times)}, wanted ascending times from 0 on")
        return courses(self._network(self._only(point)), self.initial, when, limit=self.limit)

    def _error(self, row: Floats) -> float:
        found = courses(self._network(row), self.initial, self.times, limit=self.limit)
        return float(np.sqrt(np.mean((found[1:] / self.observed[1:] - 1) ** 2)))

    def _network(self, row: Floats) -> Network:
        alpha, beta, orders = row[:GENES], row[GENES : 2 * GENES], row[2 * GENES :]
        if not (alpha > 0).all() or not (beta > 0).all() or not np.isfinite(row).all():
            raise ArgumentError("points: found a network that cannot be, wanted numbers, rates above 0")
        g, h = orders.reshape(2, GENES, GENES)
        return Network(alpha, beta, g, h)

    def _only(self, point: Any) -> Floats:
        rows, one = self._rows(point)
        if not one:
            raise ArgumentError(f"point: found {len(rows)} networks, wanted one")
        row: Floats = rows[0]
        return row

    def _rows(self, points: Any) -> tuple[Floats, bool]:
        """(n, d), and whether it was one that was given as one."""
        columns, n = columns_of(points, self.parameters)
        rows = np.column_stack([np.atleast_1d(columns[name]) for name in self.parameters])
        return rows.astype(float), n is None


def _parameters() -> dict[str, Parameter]:
    """A search knows that what there is of a product drives its loss (h_ii above 0), and nothing else."""
    genes = range(1, GENES + 1)
    ranges: dict[str, Parameter] = {}
    for name in ("alpha", "beta"):
        ranges |= {f"{name}{i}": Real(0.1, 100, start=10**0.5, log=True) for i in genes}
    ranges |= {f"g{i}{j}": Real(-3, 3, start=0) for i in genes for j in genes}
    own, other = Real(0, 3, start=1.5), Real(-3, 3, start=0)
    ranges |= {f"h{i}{j}": own if i == j else other for i in genes for j in genes}
    return ranges


def _point(network: Network) -> dict[str, float]:
    numbers = np.concatenate([part.reshape(-1) for part in network])
    return dict(zip(_parameters(), numbers.tolist(), strict=True))


def _columns(rows: Any) -> tuple[Any, Any, Any, Any]:
    alpha, g, beta, h = zip(*rows, strict=True)
    return alpha, beta, g, h


def _initial_states() -> Floats:
    states = np.full((2 * GENES, GENES), LOW)
    for i in range(GENES):
        states[i, i] = HIGH
        states[GENES + i, [i, (i + 1) % GENES]] = HIGH
    states.flags.writeable = False
    return states


# -- Time courses of two networks, before and after, with the data that they are to meet.


def draw(
    problem: GeneNetworkProblem,
    before: Any,
    after: Any,
    *,
    states: Sequence[int] = (0, 2, 7),
    result: Result | None = None,
) -> Figure:
    """Draw the data as dots and the courses of two networks as lines, one network above the other.

    Parameters
    ----------
    problem : GeneNetworkProblem
        The problem.
    before : dict or array_like
        The point above, such as `problem.start`.
    after : dict or array_like
        The point below, such as `result.x`.
    states : sequence of int, optional
        The initial states to draw.
    result : Result, optional
        The result of `minimize(..., keep_evaluations=True)`: adds the best value so far below.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.

    Examples
    --------
    >>> from fmnes_bench import gene_network
    >>> problem = gene_network.problem()
    >>> figure = gene_network.draw(problem, problem.start, problem.true)
    """
    from fmnes.plots import drawing

    if not isinstance(problem, GeneNetworkProblem):
        raise ArgumentError(f"problem: found {shown(problem)}, wanted a gene_network.problem()")
    count = len(problem.initial)
    if not len(states) or not all(isinstance(s, int) and 0 <= s < count for s in states):
        raise ArgumentError(f"states: found {shown(states)}, wanted some of 0 to {count - 1}")
    figure = drawing.blank(11, 6 if result is None else 8.5)
    grid: Any = figure.add_gridspec(2 if result is None else 3, len(states))
    times = np.linspace(0, problem.times[-1], 101)
    for row, (name, point) in enumerate((("before", before), ("after", after))):
        found, error = problem.courses(point, times), problem.fun(point)
        for column, state in enumerate(states):
            axes = drawing.panel(figure, grid[row, column])
            _draw_courses(axes, problem, times, found, state)
            raised = " and ".join(f"X{i + 1}" for i in np.flatnonzero(problem.initial[state] == HIGH))
            drawing.title(axes, f"{'' if column else f'{name}, off by {error:.1%}: '}{raised} high at first")
            axes.set_ylim(0, 1.15 * float(problem.observed.max()))
            if row:
                axes.set_xlabel("time")
            if not column:
                axes.set_ylabel("concentration")
    if result is not None:
        _draw_best_so_far(drawing.panel(figure, grid[2, :]), result)
    drawing.legend(figure, figure.axes[0], columns=6)
    return figure


def _draw_courses(axes: Any, problem: GeneNetworkProblem, times: Floats, found: Floats, state: int) -> None:
    from fmnes.plots import drawing

    colours = (drawing.BLUE, drawing.GREEN, drawing.RED, drawing.PINK, drawing.ORANGE)
    for gene, colour in enumerate(colours):
        axes.plot(times, found[:, state, gene], color=colour, linewidth=1.4, label=f"X{gene + 1}")
        axes.plot(problem.times, problem.observed[:, state, gene], "o", color=colour, markersize=3.5)
    axes.plot([], [], "o", color=drawing.GREY, markersize=3.5, label="data")


def _draw_best_so_far(axes: Any, result: Result) -> None:
    from fmnes.plots import drawing, history
    from fmnes.plots.history import improvements
    from fmnes.reading.data import with_evaluations

    _, table = with_evaluations(result)
    at, best = improvements(table.value)
    axes.step(
        np.append(at, len(table)),
        np.append(best, best[-1:]),
        where="post",
        color=drawing.BLACK,
        linewidth=1.8,
    )
    history.failing(axes, np.flatnonzero(table.failed) + 1, "failed")
    drawing.log_scale(axes, "y")
    axes.set(xlabel="evaluations; ticks above: failed", ylabel="error, log scale", xlim=(0, len(table)))
    drawing.title(axes, f"best so far {drawing.number(result.fun)}, {int(table.failed.sum()):,} failed")
