"""The methods of fmnes and the peers behind one call: `method(fun, start, max_evaluations, seed)`.

`fun` takes a point and returns a number, or NaN for a failed evaluation; it raises `Finished` when the run is
over. A method may return earlier. All restart with twice the points when they have converged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from fmnes.errors import ArgumentError, MissingExtra, nearest
from fmnes.run.minimize import minimize
from fmnes.strategies import METHODS as OURS
from fmnes_bench import constraints, peers
from fmnes_bench.coco.problems import Recorder
from fmnes_bench.peers import Evaluate, Finished, Start

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
        points_of(fun),
        start.x0,
        start.sigma0,
        vectorized=True,
        max_evaluations=max_evaluations,
        rng=seed,
        **options,
    )


def points_of(fun: Recorder) -> Evaluate:
    """The recorder as the peers call it: many points at once."""
    return lambda points: np.array([fun(x) for x in points])


def theirs(fun: Recorder, start: Start, max_evaluations: int, seed: int, *, name: str) -> None:
    run = nomad if name == "nomad" else peers.PEERS[name].run
    try:
        peers.load(name)
    except ImportError as error:
        if name == "nomad":
            raise ArgumentError(
                "methods: found 'nomad', wanted its package: pip install PyNomadBBO"
            ) from None
        raise MissingExtra(error.name or name, "coco") from None
    run(points_of(fun), start, max_evaluations, seed)


def nomad(evaluate: Evaluate, start: Start, max_evaluations: int, seed: int) -> None:
    """NOMAD in the region of interest with its own first frame, restarted with another seed."""
    peers.nomad_until_finished(
        evaluate,
        start._replace(bounded=True),
        max_evaluations,
        seed,
        restart_from_best=False,
        frame=False,
    )


#: Methods that are given the values of violated constraints.
WITH_VALUES = ("afm-nes-values", "afm-nes-models", "cma-al", "cobyqa", "de")
PEERS = ("cma-ipop", "cma-bipop", "cmawm", "nomad", "random")
#: NOMAD is for few parameters and few evaluations: its models cost milliseconds an evaluation at d = 5.
NOMAD_DIMENSIONS, NOMAD_BUDGET = 10, 500


def method_named(name: str) -> Method:
    """A method of `minimize` by name, with "-bipop" appended for BIPOP restarts, or a peer."""
    if name in WITH_VALUES:
        return cast(Method, constraints.METHODS[name])
    if name in PEERS:
        return functools.partial(theirs, name=name)
    plain = name.removesuffix("-bipop")
    if plain not in OURS:
        known = [*OURS, *(f"{ours}-bipop" for ours in OURS), *PEERS, *WITH_VALUES]
        raise ArgumentError(
            f"methods: found {name!r}, wanted some of {', '.join(known)}{nearest(name, known)}"
        )
    return functools.partial(ours, method=plain, restarts=RESTARTS if plain == name else "bipop")


def check_method(name: str, suite: str) -> None:
    """Try one evaluation, so that a missing package or an unsupported suite is reported before any run."""
    if name in WITH_VALUES:
        if suite != "bbob-constrained":
            raise ArgumentError(f"methods: found {name!r} on {suite}, wanted it on bbob-constrained")
        return constraints.check_methods([name])
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
