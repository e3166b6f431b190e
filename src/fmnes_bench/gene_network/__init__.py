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

from fmnes_bench.gene_network.drawing import draw
from fmnes_bench.gene_network.estimation import GeneNetworkProblem, problem
from fmnes_bench.gene_network.network import Network

__all__ = ["GeneNetworkProblem", "Network", "draw", "problem"]
