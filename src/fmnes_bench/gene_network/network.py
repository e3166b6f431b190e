"""A network of genes as an S-system, and its integration from many initial states at once.

    i, j        genes
    X_i         concentration of what gene i makes
    α_i, β_i    rate constants of production and of loss
    g_ij, h_ij  kinetic orders: how much X_j promotes (above 0) or represses (below 0) either of them

    dX_i/dt = α_i Π_j X_j^g_ij − β_i Π_j X_j^h_ij

Y = log X is integrated: concentrations stay positive, tolerances are relative, and a right-hand side is one
product of matrices:

    dY_i/dt = exp(log α_i + Σ_j (g_ij − δ_ij) Y_j) − exp(log β_i + Σ_j (h_ij − δ_ij) Y_j)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import Infeasible, MissingExtra

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
    >>> from fmnes_bench.gene_network.network import Network, courses
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
