"""Methods that use the values of constraints, and 13 engineering problems: `fmnes bench constraints`.

A method is called as `method(fun, start, max_evaluations, seed)`. `fun.both(x)` returns f and the numbers
g ≤ 0 of one evaluation and raises `Finished` at the end of the budget.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fmnes.constraints import Constraint
from fmnes.errors import ArgumentError, MissingExtra, nearest
from fmnes.run.minimize import minimize
from fmnes_bench.markdown import table
from fmnes_bench.peers import Array, Finished, Start
from fmnes_bench.trials import Store, open_folder, read_lines, run_all, versions

RESTARTS = 20
#: Of ours: the targets are closer to the optimum than the default tolerances.
TOLERANCE = 1e-12


class WithValues(Protocol):
    """What the methods see."""

    evaluations: int
    tolerances: Array
    """0 for g ≤ 0; for an equality g = 0 its tolerance. (m,)"""
    equality: Array
    """Which g are equalities. (m,)"""

    def both(self, x: Array) -> tuple[float, Array]: ...


# -- The methods


def ours(fun: WithValues, start: Start, max_evaluations: int, seed: int, *, surrogate: bool = False) -> None:
    """`fmnes.minimize` with `constraints=`."""
    options: dict[str, Any] = {"surrogate": surrogate}
    if start.bounded:
        options["bounds"] = list(zip(start.lower.tolist(), start.upper.tolist(), strict=True))
    made = [
        Constraint(0.0, 0.0, tolerance=float(tolerance)) if equal else Constraint(upper=0.0)
        for equal, tolerance in zip(fun.equality, fun.tolerances, strict=True)
    ]
    minimize(
        fun.both,
        start.x0,
        start.sigma0,
        constraints=made,
        max_evaluations=max_evaluations,
        rng=seed,
        xtol=TOLERANCE,
        ftol=TOLERANCE,
        restarts=RESTARTS,
        restart_from="start",
        evaluate_start=surrogate,
        **options,
    )


def failures(fun: WithValues, start: Start, max_evaluations: int, seed: int) -> None:
    """`fmnes.minimize` where a violated constraint is a failed evaluation."""

    def one(x: Array) -> float:
        f, g = fun.both(x)
        return f if (violations(fun, g) <= 0).all() else math.nan

    options: dict[str, Any] = {}
    if start.bounded:
        options["bounds"] = list(zip(start.lower.tolist(), start.upper.tolist(), strict=True))
    minimize(
        one,
        start.x0,
        start.sigma0,
        max_evaluations=max_evaluations,
        rng=seed,
        xtol=TOLERANCE,
        ftol=TOLERANCE,
        restarts=RESTARTS,
        surrogate=False,
        **options,
    )


def violations(fun: WithValues, g: Array) -> Array:
    """By how much each g is violated, at most 0 where it is not."""
    beyond: Array = np.where(fun.equality, np.abs(g) - fun.tolerances, g)
    return beyond


def as_inequalities(fun: WithValues, g: Array) -> Array:
    """Each equality as two inequalities, at the end."""
    equal = np.asarray(fun.equality, dtype=bool)
    h, tolerance = g[equal], fun.tolerances[equal]
    return np.concatenate([g[~equal], h - tolerance, -h - tolerance])


def cma_al(fun: WithValues, start: Start, max_evaluations: int, seed: int) -> None:
    """`cma.ConstrainedFitnessAL` around CMA-ES, restarted with twice the points."""
    import cma

    memory: dict[bytes, tuple[float, Array]] = {}

    def both(x: Array) -> tuple[float, Array]:
        key = np.asarray(x, dtype=float).tobytes()
        if key not in memory:
            if len(memory) > 64:
                memory.clear()
            memory[key] = fun.both(np.asarray(x, dtype=float))
        return memory[key]

    size, number = None, 0
    while True:
        options: dict[str, Any] = {"seed": (seed + number) % (2**31 - 1) + 1, "CMA_stds": start.sigma0}
        options |= {"verbose": -10, "verb_log": 0, "maxfevals": max_evaluations, "tolstagnation": 0}
        if size:
            options["popsize"] = size
        if start.bounded:
            options["bounds"] = [start.lower, start.upper]
        search = cma.CMAEvolutionStrategy(start.x0, 1.0, options)
        wrapped = cma.ConstrainedFitnessAL(
            lambda x: both(x)[0],
            lambda x: as_inequalities(fun, both(x)[1]),
            which="best",
            archives=False,
            logging=0,
        )
        while not search.stop():
            points = search.ask()
            search.tell(points, [wrapped(x) for x in points])
            wrapped.update(search)
        size, number = 2 * search.popsize, number + 1


def cobyqa(fun: WithValues, start: Start, max_evaluations: int, seed: int) -> None:
    """SciPy's COBYQA in units of the first steps, restarted anywhere in the region of interest.

    It asks again and again for the limits of its interpolation points: these are remembered, at no cost.
    """
    from scipy.optimize import Bounds, NonlinearConstraint
    from scipy.optimize import minimize as scipy_minimize

    rng, scale = np.random.default_rng(seed), start.sigma0
    memory: dict[bytes, tuple[float, Array]] = {}

    def both(u: Array) -> tuple[float, Array]:
        x = u * scale
        x = np.clip(x, start.lower, start.upper) if start.bounded else x
        key = x.tobytes()
        if key not in memory:
            memory[key] = fun.both(x)
        return memory[key]

    x0 = start.x0
    while True:
        before = fun.evaluations
        more = {"bounds": Bounds(start.lower / scale, start.upper / scale)} if start.bounded else {}
        low = np.where(fun.equality, 0.0, -np.inf)
        scipy_minimize(
            lambda u: both(u)[0],
            x0 / scale,
            method="COBYQA",
            constraints=NonlinearConstraint(lambda u: both(u)[1], low, 0.0),
            options={"maxfev": max_evaluations, "initial_tr_radius": 1.0, "maxiter": 10 * max_evaluations},
            **more,
        )
        if fun.evaluations == before:
            return
        x0 = rng.uniform(start.lower, start.upper)


def evolution(fun: WithValues, start: Start, max_evaluations: int, seed: int) -> None:
    """SciPy's differential evolution with `NonlinearConstraint`, in the region of interest."""
    from scipy.optimize import NonlinearConstraint, differential_evolution

    last: dict[str, Any] = {}

    def both(x: Array) -> tuple[float, Array]:
        key = np.asarray(x).tobytes()
        if last.get("key") != key:
            last.update(key=key, found=fun.both(np.array(x)))
        found: tuple[float, Array] = last["found"]
        return found

    tolerances = np.where(fun.equality, fun.tolerances, 0.0)
    low = np.where(fun.equality, -tolerances, -np.inf)
    number = 0
    while True:
        differential_evolution(
            lambda x: both(x)[0],
            list(zip(start.lower, start.upper, strict=True)),
            constraints=NonlinearConstraint(lambda x: both(x)[1], low, tolerances),
            rng=np.random.default_rng(seed + number),
            maxiter=max_evaluations,
            polish=False,
        )
        number += 1


Method = Callable[[WithValues, Start, int, int], None]
#: "…-values" use what is reported; the others are the peers, called as their documentation shows.
METHODS: dict[str, Method] = {
    "afm-nes-values": ours,
    "afm-nes-models": functools.partial(ours, surrogate=True),
    "afm-nes-failures": failures,
    "cma-al": cma_al,
    "cobyqa": cobyqa,
    "de": evolution,
}
_PACKAGES = {"cma-al": "cma", "cobyqa": "scipy", "de": "scipy"}


def check_methods(names: Sequence[str]) -> None:
    """Raises ArgumentError for unknown methods, MissingExtra for a missing package."""
    for name in names:
        if name not in METHODS:
            raise ArgumentError(
                f"methods: found {name!r}, wanted some of {', '.join(METHODS)}{nearest(name, METHODS)}"
            )
        if name in _PACKAGES:
            try:
                __import__(_PACKAGES[name])
            except ImportError:
                raise MissingExtra(_PACKAGES[name], "bench") from None


# -- The problems: from the literature on constrained optimisation (Coello 2000; Liang et al., CEC 2006).


class Problem(NamedTuple):
    f: Callable[[Array], float]
    g: Callable[[Array], Sequence[float]]
    lower: Sequence[float]
    upper: Sequence[float]
    best: float
    """The best known value."""
    equality: bool = False
    """Whether the one constraint is g = 0, within 1e-4."""


def _beam(x: Array) -> tuple[float, ...]:
    h, length, t, b = x
    first = 6000.0 / (math.sqrt(2) * h * length)
    R = math.hypot(length / 2, (h + t) / 2)
    J = 2 * math.sqrt(2) * h * length * (length**2 / 12 + ((h + t) / 2) ** 2)
    second = 6000.0 * (14 + length / 2) * R / J
    tau = math.sqrt(first**2 + first * second * length / R + second**2)
    buckling = 4.013 * 30e6 * math.sqrt(t**2 * b**6 / 36) / 196 * (1 - t / 28 * math.sqrt(30e6 / 48e6))
    return (
        tau - 13600,
        504000 / (b * t**2) - 30000,
        h - b,
        0.10471 * h**2 + 0.04811 * t * b * (14 + length) - 5,
        0.125 - h,
        65856000 / (30e6 * b * t**3) - 0.25,
        6000 - buckling,
    )


def _reducer(x: Array) -> float:
    b, m, z, l1, l2, d1, d2 = x
    return float(
        0.7854 * b * m**2 * (3.3333 * z**2 + 14.9334 * z - 43.0934)
        - 1.508 * b * (d1**2 + d2**2)
        + 7.4777 * (d1**3 + d2**3)
        + 0.7854 * (l1 * d1**2 + l2 * d2**2)
    )


def _reducer_limits(x: Array) -> tuple[float, ...]:
    b, m, z, l1, l2, d1, d2 = x
    return (
        27 / (b * m**2 * z) - 1,
        397.5 / (b * m**2 * z**2) - 1,
        1.93 * l1**3 / (m * z * d1**4) - 1,
        1.93 * l2**3 / (m * z * d2**4) - 1,
        math.sqrt((745 * l1 / (m * z)) ** 2 + 16.9e6) / (110 * d1**3) - 1,
        math.sqrt((745 * l2 / (m * z)) ** 2 + 157.5e6) / (85 * d2**3) - 1,
        m * z / 40 - 1,
        5 * m / b - 1,
        b / (12 * m) - 1,
        (1.5 * d1 + 1.9) / l1 - 1,
        (1.1 * d2 + 1.9) / l2 - 1,
    )


def _g01(x: Array) -> tuple[float, ...]:
    return (
        2 * x[0] + 2 * x[1] + x[9] + x[10] - 10,
        2 * x[0] + 2 * x[2] + x[9] + x[11] - 10,
        2 * x[1] + 2 * x[2] + x[10] + x[11] - 10,
        -8 * x[0] + x[9],
        -8 * x[1] + x[10],
        -8 * x[2] + x[11],
        -2 * x[3] - x[4] + x[9],
        -2 * x[5] - x[6] + x[10],
        -2 * x[7] - x[8] + x[11],
    )


def _g04(x: Array) -> tuple[float, ...]:
    u = 85.334407 + 0.0056858 * x[1] * x[4] + 0.0006262 * x[0] * x[3] - 0.0022053 * x[2] * x[4]
    v = 80.51249 + 0.0071317 * x[1] * x[4] + 0.0029955 * x[0] * x[1] + 0.0021813 * x[2] ** 2
    w = 9.300961 + 0.0047026 * x[2] * x[4] + 0.0012547 * x[0] * x[2] + 0.0019085 * x[2] * x[3]
    return u - 92, -u, v - 110, 90 - v, w - 25, 20 - w


def _g07(x: Array) -> float:
    return float(
        x[0] ** 2 + x[1] ** 2 + x[0] * x[1] - 14 * x[0] - 16 * x[1] + (x[2] - 10) ** 2 + 4 * (x[3] - 5) ** 2
        + (x[4] - 3) ** 2 + 2 * (x[5] - 1) ** 2 + 5 * x[6] ** 2 + 7 * (x[7] - 11) ** 2
        + 2 * (x[8] - 10) ** 2 + (x[9] - 7) ** 2 + 45
    )  # fmt: skip


def _g07_limits(x: Array) -> tuple[float, ...]:
    return (
        -105 + 4 * x[0] + 5 * x[1] - 3 * x[6] + 9 * x[7],
        10 * x[0] - 8 * x[1] - 17 * x[6] + 2 * x[7],
        -8 * x[0] + 2 * x[1] + 5 * x[8] - 2 * x[9] - 12,
        3 * (x[0] - 2) ** 2 + 4 * (x[1] - 3) ** 2 + 2 * x[2] ** 2 - 7 * x[3] - 120,
        5 * x[0] ** 2 + 8 * x[1] + (x[2] - 6) ** 2 - 2 * x[3] - 40,
        x[0] ** 2 + 2 * (x[1] - 2) ** 2 - 2 * x[0] * x[1] + 14 * x[4] - 6 * x[5],
        0.5 * (x[0] - 8) ** 2 + 2 * (x[1] - 4) ** 2 + 3 * x[4] ** 2 - x[5] - 30,
        -3 * x[0] + 6 * x[1] + 12 * (x[8] - 8) ** 2 - 7 * x[9],
    )


def _g09(x: Array) -> float:
    return float(
        (x[0] - 10) ** 2 + 5 * (x[1] - 12) ** 2 + x[2] ** 4 + 3 * (x[3] - 11) ** 2 + 10 * x[4] ** 6
        + 7 * x[5] ** 2 + x[6] ** 4 - 4 * x[5] * x[6] - 10 * x[5] - 8 * x[6]
    )  # fmt: skip


def _g09_limits(x: Array) -> tuple[float, ...]:
    return (
        -127 + 2 * x[0] ** 2 + 3 * x[1] ** 4 + x[2] + 4 * x[3] ** 2 + 5 * x[4],
        -282 + 7 * x[0] + 3 * x[1] + 10 * x[2] ** 2 + x[3] - x[4],
        -196 + 23 * x[0] + x[1] ** 2 + 6 * x[5] ** 2 - 8 * x[6],
        4 * x[0] ** 2 + x[1] ** 2 - 3 * x[0] * x[1] + 2 * x[2] ** 2 + 5 * x[5] - 11 * x[6],
    )


def _g10_limits(x: Array) -> tuple[float, ...]:
    return (
        -1 + 0.0025 * (x[3] + x[5]),
        -1 + 0.0025 * (x[4] + x[6] - x[3]),
        -1 + 0.01 * (x[7] - x[4]),
        -x[0] * x[5] + 833.33252 * x[3] + 100 * x[0] - 83333.333,
        -x[1] * x[6] + 1250 * x[4] + x[1] * x[3] - 1250 * x[3],
        -x[2] * x[7] + 1250000 + x[2] * x[4] - 2500 * x[4],
    )


PROBLEMS: dict[str, Problem] = {
    "pressure vessel": Problem(
        lambda x: (
            0.6224 * x[0] * x[2] * x[3]
            + 1.7781 * x[1] * x[2] ** 2
            + 3.1661 * x[0] ** 2 * x[3]
            + 19.84 * x[0] ** 2 * x[2]
        ),
        lambda x: (
            0.0193 * x[2] - x[0],
            0.00954 * x[2] - x[1],
            1296000 - math.pi * x[2] ** 2 * x[3] - 4 / 3 * math.pi * x[2] ** 3,
            x[3] - 240,
        ),
        (0.0625, 0.0625, 10, 10),
        (6.1875, 6.1875, 200, 200),
        5885.332773,
    ),
    "welded beam": Problem(
        lambda x: 1.10471 * x[0] ** 2 * x[1] + 0.04811 * x[2] * x[3] * (14 + x[1]),
        _beam,
        (0.1, 0.1, 0.1, 0.1),
        (2, 10, 10, 2),
        1.724852309,
    ),
    "spring": Problem(
        lambda x: (x[2] + 2) * x[1] * x[0] ** 2,
        lambda x: (
            1 - x[1] ** 3 * x[2] / (71785 * x[0] ** 4),
            (4 * x[1] ** 2 - x[0] * x[1]) / (12566 * (x[1] * x[0] ** 3 - x[0] ** 4))
            + 1 / (5108 * x[0] ** 2)
            - 1,
            1 - 140.45 * x[0] / (x[1] ** 2 * x[2]),
            (x[0] + x[1]) / 1.5 - 1,
        ),
        (0.05, 0.25, 2),
        (0.24, 1.3, 15),
        0.0126652328,
    ),
    "speed reducer": Problem(
        _reducer,
        _reducer_limits,
        (2.6, 0.7, 17, 7.3, 7.3, 2.9, 5),
        (3.6, 0.8, 28, 8.3, 8.3, 3.9, 5.5),
        2994.471066,
    ),
    "G01": Problem(
        lambda x: 5 * x[:4].sum() - 5 * (x[:4] ** 2).sum() - x[4:].sum(),
        _g01,
        (0,) * 13,
        (1,) * 9 + (100,) * 3 + (1,),
        -15.0,
    ),
    "G03": Problem(
        lambda x: -(10**5) * float(np.prod(x)),
        lambda x: (float(x @ x) - 1,),
        (0,) * 10,
        (1,) * 10,
        -1.000500100010,
        True,
    ),
    "G04": Problem(
        lambda x: 5.3578547 * x[2] ** 2 + 0.8356891 * x[0] * x[4] + 37.293239 * x[0] - 40792.141,
        _g04,
        (78, 33, 27, 27, 27),
        (102, 45, 45, 45, 45),
        -30665.53867178,
    ),
    "G06": Problem(
        lambda x: (x[0] - 10) ** 3 + (x[1] - 20) ** 3,
        lambda x: (
            -((x[0] - 5) ** 2) - (x[1] - 5) ** 2 + 100,
            (x[0] - 6) ** 2 + (x[1] - 5) ** 2 - 82.81,
        ),
        (13, 0),
        (100, 100),
        -6961.813875580,
    ),
    "G07": Problem(_g07, _g07_limits, (-10,) * 10, (10,) * 10, 24.306209068),
    "G08": Problem(
        lambda x: (
            -(math.sin(2 * math.pi * x[0]) ** 3) * math.sin(2 * math.pi * x[1]) / (x[0] ** 3 * (x[0] + x[1]))
        ),
        lambda x: (x[0] ** 2 - x[1] + 1, 1 - x[0] + (x[1] - 4) ** 2),
        (0.0, 0.0),
        (10, 10),
        -0.0958250414,
    ),
    "G09": Problem(_g09, _g09_limits, (-10,) * 7, (10,) * 7, 680.6300573745),
    "G10": Problem(
        lambda x: x[0] + x[1] + x[2],
        _g10_limits,
        (100, 1000, 1000, 10, 10, 10, 10, 10),
        (10000,) * 3 + (1000,) * 5,
        7049.248020529,
    ),
    "G11": Problem(
        lambda x: x[0] ** 2 + (x[1] - 1) ** 2,
        lambda x: (x[1] - x[0] ** 2,),
        (-1, -1),
        (1, 1),
        0.7499,
        True,
    ),
}
#: The relative distances to the best known value, 1 to 1e-6, that a run may reach.
TARGETS: tuple[float, ...] = tuple(10 ** (-i / 5) for i in range(31))
EQUALITY_TOLERANCE = 1e-4


class Recorder:
    """One problem as the methods see it, and the evaluation at which each target was first reached."""

    def __init__(self, problem: Problem, max_evaluations: int) -> None:
        self._problem, self._left = problem, max_evaluations
        m = len(problem.g(np.asarray(problem.upper, dtype=float)))
        self.equality = np.full(m, problem.equality)
        self.tolerances = np.full(m, EQUALITY_TOLERANCE if problem.equality else 0.0)
        self.evaluations = 0
        self.first_feasible = 0
        """The first evaluation within the limits; 0: none."""
        self.best = math.inf
        self.hits: list[int] = []

    def both(self, x: Array) -> tuple[float, Array]:
        if self._left <= 0 or len(self.hits) == len(TARGETS):
            raise Finished
        self._left -= 1
        self.evaluations += 1
        x = np.asarray(x, dtype=float)
        f, g = float(self._problem.f(x)), np.array(self._problem.g(x), dtype=float)
        if np.isfinite(f) and (violations(self, g) <= 0).all():
            self.first_feasible = self.first_feasible or self.evaluations
            self.best = min(self.best, f)
            gap = (self.best - self._problem.best) / abs(self._problem.best)
            while len(self.hits) < len(TARGETS) and gap <= TARGETS[len(self.hits)]:
                self.hits.append(self.evaluations)
        return f, g


def area(hits: Sequence[int], d: int, budget: int) -> float:
    """The area under the runtime curve, as on COCO's problems, for these targets."""
    t = np.asarray(hits, dtype=float) / d
    return float(np.clip(1 - np.log(t) / np.log(budget), 0, 1).sum() / len(TARGETS))


# -- A study: its runs, and the page


class Job(NamedTuple):
    problem: str
    seed: int
    method: str
    budget: int
    """Evaluations per dimension."""


class Run(NamedTuple):
    job: Job
    evaluations: int
    first_feasible: int
    best: float
    hits: tuple[int, ...]


def run_job(problem: str, seed: int, method: str, budget: int) -> Run:
    """From a random point of the box, with first steps of a fifth of its width."""
    known = PROBLEMS[problem]
    lower, upper = np.array(known.lower, dtype=float), np.array(known.upper, dtype=float)
    d = len(lower)
    number = zlib.crc32(f"{problem}/{seed}".encode())
    x0 = np.random.default_rng(number).uniform(lower, upper)
    start = Start(x0, (upper - lower) / 5, lower, upper, True, np.zeros(d, dtype=bool))
    fun = Recorder(known, budget * d)
    with contextlib.suppress(Finished), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        METHODS[method](fun, start, budget * d, number)
    return Run(
        Job(problem, seed, method, budget), fun.evaluations, fun.first_feasible, fun.best, tuple(fun.hits)
    )


HEADER = "problem,seed,method,budget,evaluations,first_feasible,best,hits"
CONFIGURATION = {"format": "fmnes-constraints", "version": 1}


def _line(run: Run) -> str:
    counts = f"{run.evaluations},{run.first_feasible},{run.best:.12g}"
    return f"{','.join(map(str, run.job))},{counts},{' '.join(map(str, run.hits))}"


def _read(fields: list[str]) -> Run:
    problem, seed, method, budget, evaluations, first, best, hits = fields
    job = Job(problem, int(seed), method, int(budget))
    return Run(job, int(evaluations), int(first), float(best), tuple(map(int, hits.split())))


def constraints(
    methods: Sequence[str],
    *,
    problems: Sequence[str] | None = None,
    seeds: int = 3,
    budget: int = 500,
    workers: int | None = None,
    out: str | Path = "constraints",
    progress: Callable[[float, float], None] | None = None,
) -> str:
    """Run the methods on the engineering problems; the page, which is also in the folder `out`.

    budget: evaluations per dimension.
    """
    check_methods(methods)
    for name in problems or ():
        if name not in PROBLEMS:
            raise ArgumentError(
                f"problems: found {name!r}, wanted some of {', '.join(PROBLEMS)}{nearest(name, PROBLEMS)}"
            )
    jobs = [
        Job(problem, seed, method, budget)
        for problem in (problems or PROBLEMS)
        for seed in range(seeds)
        for method in methods
    ]
    folder = Path(out)
    open_folder(folder, CONFIGURATION, **versions("cma", "scipy"))
    path = folder / "runs.csv"
    store: Store[Job, Run] = Store(
        path,
        HEADER,
        read=lambda: read_lines(path, HEADER, _read),
        key=lambda run: run.job,
        line=_line,
    )
    with closing(store):
        runs = run_all(
            run_job,
            jobs,
            store.trials,
            work=lambda job: float(job.budget * len(PROBLEMS[job.problem].lower)),
            keep=store.add,
            workers=workers,
            progress=progress,
        )
    text = page(runs)
    (folder / "constraints.md").write_text(text, encoding="utf-8")
    return text


def page(runs: Sequence[Run]) -> str:
    """One line for each problem: the mean area, and how many runs found a point within the limits."""
    budget = runs[0].job.budget
    methods = list(dict.fromkeys(run.job.method for run in runs))
    rows: list[list[Any]] = []
    for problem in dict.fromkeys(run.job.problem for run in runs):
        d = len(PROBLEMS[problem].lower)
        row: list[Any] = [problem, d]
        for method in methods:
            mine = [run for run in runs if run.job.problem == problem and run.job.method == method]
            mean = np.mean([area(run.hits, d, budget) for run in mine])
            row.append(f"{mean:.3f} ({sum(run.first_feasible > 0 for run in mine)})")
        rows.append(row)
    last: list[Any] = ["mean", ""]
    for method in methods:
        by_problem = [
            np.mean([
                area(run.hits, len(PROBLEMS[problem].lower), budget)
                for run in runs
                if run.job.problem == problem and run.job.method == method
            ])
            for problem in dict.fromkeys(run.job.problem for run in runs)
        ]  # fmt: skip
        last.append(f"{np.mean(by_problem):.3f}")
    seeds = len({run.job.seed for run in runs})
    head = (
        f"Area under the runtime curve at {budget} d evaluations, for {len(TARGETS)} targets from 1 to 1e-6 "
        f"of the best known value, and in brackets how many of {seeds} runs found a point within the limits. "
        "More is better. Each run starts at a random point of the box."
    )
    return "\n".join([head, "", *table(["problem", "d", *methods], [*rows, last]), ""])
