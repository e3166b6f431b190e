"""A network to be found: its data, its parameters and the objective, for one network or for many."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fmnes.arguments import shown
from fmnes.errors import ArgumentError, Infeasible
from fmnes.parameters import Parameter, Real
from fmnes_bench.gene_network.network import Floats, Network, courses
from fmnes_bench.points import columns_of

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
