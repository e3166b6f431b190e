"""Every optimizer that is timed, ours and the peers', behind the same two calls.

    ask()        -> points (λ, d)
    tell(x, f)   -> None

Same d, same λ, same start, one thread. Each adapter does what the peer's documentation shows and nothing
else; the objective is evaluated outside, between the two calls, and is not timed.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.search.optimizer import Optimizer

Points = NDArray[np.float64]


class Contestant(NamedTuple):
    ask: Callable[[], Any]
    tell: Callable[[Any, Points], Any]


def ours(method: str, d: int, population_size: int) -> Contestant:
    opt = Optimizer(np.full(d, 3.0), 1.0, method=method, population_size=population_size, rng=1)
    return Contestant(opt.ask, lambda x, f: opt.tell(f))


def cma(d: int, population_size: int) -> Contestant:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that matplotlib is missing
        import cma as package
    options = {"popsize": population_size, "verbose": -9, "seed": 1}
    es = package.CMAEvolutionStrategy(np.full(d, 3.0), 1.0, options)
    return Contestant(es.ask, lambda x, f: es.tell(x, f.tolist()))


def cmaes(d: int, population_size: int) -> Contestant:
    import cmaes as package

    es = package.CMA(np.full(d, 3.0), 1.0, population_size=population_size, seed=1)
    return Contestant(
        lambda: [es.ask() for _ in range(population_size)],
        lambda x, f: es.tell(list(zip(x, f.tolist(), strict=True))),
    )


def fcmaes(d: int, population_size: int) -> Contestant:
    from fcmaes import cmaescpp

    es = cmaescpp.ACMA_C(
        d,
        None,
        np.full(d, 3.0),
        1.0,
        popsize=population_size,
        rg=np.random.Generator(np.random.PCG64(1)),
    )
    return Contestant(es.ask, lambda x, f: es.tell(f))


def crfmnes(d: int, population_size: int) -> Contestant:
    """The authors' CR-FM-NES. It calls the objective itself, so its whole step is in `tell`."""
    from crfmnes import CRFMNES

    values: list[float] = []
    es = CRFMNES(
        d,
        lambda x: values.pop(),
        np.full((d, 1), 3.0),
        1.0,
        population_size,
        seed=1,
        use_constraint_violation=False,  # its default looks at every coordinate in a Python loop
    )
    placeholder = np.zeros((population_size, 1))

    def tell(_: Any, f: Points) -> None:
        values.extend(f[::-1].tolist())
        es.one_iteration()

    return Contestant(lambda: placeholder, tell)


Maker = Callable[[int, int], Contestant]
FULL_MATRIX: dict[str, Maker] = {
    "afm-nes": lambda d, lam: ours("afm-nes", d, lam),
    "fm-nes": lambda d, lam: ours("fm-nes", d, lam),
    "cma": cma,
    "cmaes": cmaes,
    "fcmaes": fcmaes,
}
LINEAR: dict[str, Maker] = {
    "cr-fm-nes": lambda d, lam: ours("cr-fm-nes", d, lam),
    "crfmnes": crfmnes,
}


def installed(makers: dict[str, Maker]) -> dict[str, Maker]:
    """Those that can be made here: a peer may be missing, or lack a library of its own."""
    found = {}
    for name, make in makers.items():
        with contextlib.suppress(ImportError):
            make(2, 6)
            found[name] = make
    return found
