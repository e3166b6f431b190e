"""The methods of fmnes and the peers behind one call: `method(fun, start, max_evaluations, seed)`.

`fun` takes a point and returns a number, or NaN for a failed evaluation; it raises `Finished` when the run is
over. A method may return earlier. All restart with twice the points when they have converged.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmnes.errors import ArgumentError, MissingExtra, nearest
from fmnes.run.minimize import minimize
from fmnes.strategies import METHODS as OURS
from fmnes_bench.coco.problems import Finished, Recorder, Start
from fmnes_bench.nomad import optimize

Method = Callable[[Recorder, Start, int, int], None]

#: More restarts than any budget has room for: each needs twice the evaluations of the one before.
RESTARTS = 20


def ours(
    fun: Recorder, start: Start, max_evaluations: int, seed: int, *, method: str, restarts: int | str
) -> None:
    options: dict[str, Any] = {"method": method, "restarts": restarts}
    if start.bounded:
        options["bounds"] = list(zip(start.lower.tolist(), start.upper.tolist(), strict=True))
    if start.integers.any():
        options["integers"] = start.integers
    minimize(
        lambda points: np.array([fun(x) for x in points]),
        start.x0,
        start.sigma0,
        vectorized=True,
        max_evaluations=max_evaluations,
        rng=seed,
        **options,
    )


def cma(fun: Recorder, start: Start, max_evaluations: int, seed: int, *, bipop: bool) -> None:
    """`cma` with its own restarts and its own handling of bounds and integers.

    A failed evaluation is +inf: NaN points are sampled again, which halves the targets reached.
    """
    package = _import("cma")
    options = {
        "seed": seed % (2**31 - 1) + 1,  # 0 would be the time
        "CMA_stds": start.sigma0,
        "maxfevals": max_evaluations,
        "verbose": -10,  # nor does it look for a file of options
        "verb_log": 0,
    }
    if start.bounded:
        options["bounds"] = [start.lower, start.upper]
    if start.integers.any():
        options["integer_variables"] = np.flatnonzero(start.integers).tolist()

    def told(x: NDArray[np.float64]) -> float:
        value = fun(x)
        return np.inf if np.isnan(value) else value

    package.fmin2(told, start.x0, 1.0, options, restarts=9, bipop=bipop)


def cmawm(fun: Recorder, start: Start, max_evaluations: int, seed: int) -> None:
    """`cmaes`' CMA-ES with margin, restarted with twice the points as its examples do."""
    package = _import("cmaes")
    size = None
    for restart in range(RESTARTS):
        es = package.CMAwM(
            start.x0,
            1.0,
            np.column_stack([start.lower, start.upper]),
            start.integers.astype(float),
            seed=(seed + restart) % 2**32,
            population_size=size,
            cov=np.diag(start.sigma0**2),
        )
        size = 2 * es.population_size
        while not es.should_stop():
            asked = [es.ask() for _ in range(es.population_size)]
            values = [fun(x) for x, _ in asked]
            told = [np.inf if np.isnan(value) else value for value in values]
            es.tell([(x, value) for (_, x), value in zip(asked, told, strict=True)])


def nomad(fun: Recorder, start: Start, max_evaluations: int, seed: int) -> None:
    """NOMAD, restarted with another seed when its mesh has converged."""
    _import("PyNomad")

    def value(x: NDArray[np.float64]) -> float:
        return np.nan if fun.finished else fun(x)

    kinds = " ".join("I" if whole else "R" for whole in start.integers)
    while not fun.finished:
        before = fun.evaluations
        settings = [f"MAX_BB_EVAL {max_evaluations - before}", f"BB_INPUT_TYPE ({kinds})"]
        lower, upper = start.lower.tolist(), start.upper.tolist()
        optimize(value, start.x0, lower, upper, settings, seed + before, lambda: fun.finished)
        if fun.evaluations == before:
            return


def random(fun: Recorder, start: Start, max_evaluations: int, seed: int) -> None:
    """Anywhere in the region of interest: the floor."""
    rng = np.random.default_rng(seed)
    while True:
        x = rng.uniform(start.lower, start.upper)
        fun(np.where(start.integers, rng.integers(start.lower.astype(int), start.upper.astype(int) + 1), x))


PEERS: dict[str, Method] = {
    "cma-ipop": functools.partial(cma, bipop=False),
    "cma-bipop": functools.partial(cma, bipop=True),
    "cmawm": cmawm,
    "nomad": nomad,
    "random": random,
}
#: NOMAD is for few parameters and few evaluations: its models cost milliseconds an evaluation at d = 5.
NOMAD_DIMENSIONS, NOMAD_BUDGET = 10, 500


def method_named(name: str) -> Method:
    """A method of `minimize` by name, with "-bipop" appended for BIPOP restarts, or a peer."""
    if name in PEERS:
        return PEERS[name]
    plain = name.removesuffix("-bipop")
    if plain not in OURS:
        known = [*OURS, *(f"{ours}-bipop" for ours in OURS), *PEERS]
        raise ArgumentError(
            f"methods: found {name!r}, wanted some of {', '.join(known)}{nearest(name, known)}"
        )
    return functools.partial(ours, method=plain, restarts=RESTARTS if plain == name else "bipop")


def check_method(name: str, suite: str) -> None:
    """Try one evaluation, so that a missing package or an unsupported suite is reported before any run."""
    d, mixed = 4, suite == "bbob-mixint"
    start = Start(
        np.ones(d), np.ones(d), np.full(d, -5.0), np.full(d, 5.0), mixed, np.arange(d) < (2 if mixed else 0)
    )
    try:
        method_named(name)(Recorder(lambda x: 1.0, 0.0, 1), start, 1, 1)
    except Finished:
        pass
    except ArgumentError as error:
        raise ArgumentError(f"methods: found {name!r}, which cannot run {suite}: {error}") from None


def _import(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cma warns that matplotlib is missing
        try:
            return __import__(name)
        except ImportError:
            if name == "PyNomad":
                raise ArgumentError(
                    "methods: found 'nomad', wanted its package: pip install PyNomadBBO"
                ) from None
            raise MissingExtra(name, "coco") from None
