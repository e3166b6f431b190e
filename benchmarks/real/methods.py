"""Who searches: each called as its own documentation shows, from the same start, in the same box.

A failed evaluation is +inf to those that rank, an error to NOMAD and a failed trial to Optuna. Each method
knows which parameters are integers. A method that stops before the budget is spent is not restarted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import fmnes
from fmnes.strategies.fm_nes import DEPARTURES
from fmnes_bench.peers import PEERS, Start, nomad
from fmnes_bench.search.runs import WITHOUT, settle

from .tasks import Counted, Task


def ours(method: str) -> Callable[[Task, Counted, int], None]:
    def run(task: Task, counted: Counted, seed: int) -> None:
        options: dict[str, Any] = {"method": settle(method), "rng": seed, "vectorized": True}
        fmnes.minimize(counted.named, task.parameters, max_evaluations=task.budget, **options)

    return run


def theirs(name: str) -> Callable[[Task, Counted, int], None]:
    peer = PEERS[name].run if name != "nomad" else nomad

    def run(task: Task, counted: Counted, seed: int) -> None:
        integers = np.isin(np.arange(len(counted.x0)), counted.integers)
        start = Start(counted.x0, counted.sigma0, counted.lower, counted.upper, True, integers)
        peer(counted, start, task.budget, seed)

    return run


#: The peers of the comparison.
OTHERS = ("cma", "nomad", "optuna-tpe", "optuna-cmaes", "differential-evolution", "random")
METHODS: dict[str, Callable[[Task, Counted, int], None]] = {
    **{method: ours(method) for method in ("afm-nes", "fm-nes", "cma-es")},
    **{name: theirs(name) for name in OTHERS},
}
#: Who takes part only where asked for by name: the default with one departure from the paper taken back.
ASKED_FOR = {WITHOUT + name: ours(WITHOUT + name) for name in DEPARTURES}


def search(method: str, task: Task, counted: Counted, seed: int) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # theirs
        (METHODS | ASKED_FOR)[method](task, counted, seed)
