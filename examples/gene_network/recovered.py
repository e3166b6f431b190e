"""What of a network is found again, and what of it the data can tell at all."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fmnes.space import Space
from fmnes_bench import gene_network
from fmnes_bench.gene_network import courses

#: A kinetic order is found if it is as near as this.
NEAR = 0.5


class Recovered(NamedTuple):
    """Of one network beside the true one."""

    orders: int  # kinetic orders that are near their true value, of 50
    acting: int  # of those that are not 0, of 13
    signs: int  # of those that are not 0, the ones with the right sign
    idle: int  # of those that are 0, of 37
    start: int  # orders that were near already in the middle of the ranges
    rate_factor: float  # by how much rate constants are wrong, median over the 10


def compare(problem: gene_network.GeneNetworkProblem, point: Any) -> Recovered:
    true, found = problem.network(problem.true), problem.network(point)
    begun = problem.network(problem.start)
    orders, ours, first = (np.concatenate([network.g, network.h]) for network in (true, found, begun))
    near, acting = np.abs(ours - orders) < NEAR, orders != 0
    rates = np.log(np.r_[found.alpha, found.beta] / np.r_[true.alpha, true.beta])
    return Recovered(
        orders=int(near.sum()),
        acting=int(near[acting].sum()),
        signs=int((np.sign(ours) == np.sign(orders))[acting].sum()),
        idle=int(near[~acting].sum()),
        start=int((np.abs(first - orders) < NEAR).sum()),
        rate_factor=float(np.exp(np.median(np.abs(rates)))),
    )


def sensitivities(problem: gene_network.GeneNetworkProblem) -> np.ndarray:
    """By how much the error grows along each of 60 directions from the true network, the steepest first.

    Directions are the singular vectors of the derivatives of all relative errors, in quarters of the ranges.
    """
    space = Space(problem.parameters)
    bounds = space.start()["bounds"]
    step = 1e-4 * (np.array(bounds.upper) - np.array(bounds.lower)) / 4
    middle = space.numbers(problem.true)

    def errors(x: np.ndarray) -> np.ndarray:
        point = space.columns(x[None])
        network = problem.network({name: column[0] for name, column in point.items()})
        found = courses(network, problem.initial, problem.times, tolerance=1e-10)
        return (found[1:] / problem.observed[1:] - 1).reshape(-1)

    columns = [(errors(middle + one) - errors(middle - one)) / 2e-4 for one in np.diag(step)]
    return np.linalg.svd(np.array(columns), compute_uv=False) / np.sqrt(problem.observed[1:].size)
