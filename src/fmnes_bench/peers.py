"""The optimisers that fmnes is compared with: every peer once, called as its documentation shows.

A peer is a function `peer(evaluate, start, budget, seed)`. `evaluate` takes points (n, d) and returns values
(n,), which are not finite where the evaluation failed; it may raise `Finished` to end the run. `PEERS` has
their names, the packages they need, and how a failed evaluation is reported to each.
"""

from __future__ import annotations

import itertools
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmnes.run.minimize import minimize

Array = NDArray[np.float64]
Evaluate = Callable[[Array], Array]


class Finished(Exception):
    """Raised by the objective to end a run: the last target is reached or the budget is spent."""


class Start(NamedTuple):
    """What every method knows before its first evaluation."""

    x0: Array
    sigma0: Array
    lower: Array
    upper: Array
    """The region of interest."""
    bounded: bool
    """Must points stay in it? Elsewhere it only says where to look."""
    integers: NDArray[np.bool_]
    known: bool = True
    """Is `x0` a chosen start? Otherwise it is the centre of the box and may fail."""


Run = Callable[[Evaluate, Start, int, int], Any]


class Peer(NamedTuple):
    """A peer, and what the pages say about it."""

    run: Run
    modules: tuple[str, ...]
    """What must be importable."""
    install: str
    """The argument of `pip install` that brings it."""
    call: str
    failed: str
    """How a failed evaluation is reported to it."""


def is_installed(name: str) -> bool:
    """Can this peer run here?"""
    try:
        return all(find_spec(module) is not None for module in PEERS[name].modules)
    except ModuleNotFoundError:  # the parent of scipy.optimize
        return False


def load(name: str) -> None:
    """Import what a peer needs, so that its first evaluation does not pay for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cma warns that matplotlib is missing
        for module in PEERS[name].modules:
            import_module(module)


# -- What several peers share.


class Watched:
    """Evaluates one point at a time, counts, and keeps the best point."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self.evaluations = 0
        self.x: Array | None = None
        self.best, self.worst = np.inf, -np.inf

    def __call__(self, x: Any) -> float:
        """The value, or NaN where the evaluation failed."""
        point = np.array(x, dtype=float)
        value = float(self._evaluate(point[None])[0])
        self.evaluations += 1
        if not np.isfinite(value):
            return np.nan
        self.worst = max(self.worst, value)
        if value < self.best:
            self.best, self.x = value, point
        return value

    def or_worst(self, x: Any) -> float:
        """The value; where the evaluation failed, the worst value so far (0 before the first success)."""
        value = self(x)
        if np.isfinite(value):
            return value
        return self.worst if np.isfinite(self.worst) else 0.0


def restarted(run: Callable[[Array, int], Any], watched: Watched, start: Start, seed: int) -> None:
    """Call `run(x0, seed)` until the budget is spent.

    The first run is from the start, the second from the best point so far, the third from a random point of
    the box, and so on in turn. A start that fails is replaced by the first working one of uniformly random
    points of the box, because these methods need a value at their start.
    """
    rng = np.random.default_rng([seed, 1])

    def working(x: Array) -> Array:
        while np.isnan(watched(x)):
            x = rng.uniform(start.lower, start.upper)
        return x

    idle = 0
    for k in itertools.count():
        before = watched.evaluations
        if k == 0:
            x0 = start.x0 if start.known else working(start.x0)
        elif k % 2 and watched.x is not None:
            x0 = watched.x
        else:
            x0 = working(rng.uniform(start.lower, start.upper))
        run(np.clip(x0, start.lower, start.upper) if start.bounded else x0, seed + k)
        idle = idle + 1 if watched.evaluations == before else 0
        if idle > 2:  # it ends without an evaluation wherever it starts
            return


def box_of(start: Start) -> list[tuple[float, float]]:
    """[(lower, upper), ...] of the region."""
    return list(zip(start.lower.tolist(), start.upper.tolist(), strict=True))


# -- Ours.

#: More restarts than any budget has room for: each needs twice the evaluations of the one before.
RESTARTS = 20
#: Of ours: targets are closer to the optimum than the default tolerances.
TOLERANCE = 1e-12


def ours(fun: Any, start: Start, budget: int, seed: int, **options: Any) -> None:
    """`fmnes.minimize` with restarts; without a known start it gets only the box."""
    if start.bounded:
        options["bounds"] = box_of(start)
    if start.integers.any():
        options["integers"] = start.integers
    if start.known:
        options |= {"x0": start.x0, "sigma0": start.sigma0}
    defaults = {"restarts": RESTARTS, "xtol": TOLERANCE, "ftol": TOLERANCE}
    minimize(fun, max_evaluations=budget, rng=seed, **{**defaults, **options})


# -- CMA-ES: `cma` in one run, with restarts and with its surrogate, and `cmaes` with margin.


def cma(
    evaluate: Evaluate,
    start: Start,
    budget: int,
    seed: int,
    *,
    ended: Callable[[Any], bool] = lambda strategy: False,
    tolerances: bool = True,
) -> Any:
    """One run of `cma` by ask and tell; its strategy object. A failed evaluation is +inf.

    ended: called with the strategy before each generation.
    tolerances: False switches its stopping rules off, so that it runs to the limits of floating point.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that matplotlib is missing, and of many small things
        import cma as package

        # Seed 0 would be a random one; it takes 32 bits.
        options: dict[str, Any] = {"seed": 1 + seed % (2**32 - 1), "verbose": -9, "verb_log": 0}
        options |= {"maxfevals": budget, "CMA_stds": start.sigma0}
        options["integer_variables"] = np.flatnonzero(start.integers).tolist()
        if start.bounded:
            options["bounds"] = [start.lower.tolist(), start.upper.tolist()]
        if not tolerances:
            options |= dict.fromkeys(("tolx", "tolfun", "tolfunhist", "tolfunrel"), 0)
            options |= dict.fromkeys(
                ("tolstagnation", "tolflatfitness", "maxiter", "tolfacupx", "tolupsigma"), 1e9
            )
            options |= {"tolxstagnation": False}
        strategy = package.CMAEvolutionStrategy(start.x0, 1.0, options)
        while not strategy.stop() and not ended(strategy):
            points = strategy.ask()
            values = evaluate(np.array(points))
            strategy.tell(points, np.where(np.isfinite(values), values, np.inf).tolist())
    return strategy


def cma_restarted(evaluate: Evaluate, start: Start, budget: int, seed: int, *, bipop: bool = False) -> None:
    """`cma.fmin2` with its own restarts (IPOP or BIPOP) and its own handling of bounds and integers.

    A failed evaluation is +inf: NaN points are sampled again, which halves the targets reached.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cma as package

        watched = Watched(evaluate)

        def value(x: Array) -> float:
            found = watched(x)
            return np.inf if np.isnan(found) else found

        package.fmin2(value, start.x0, 1.0, _fmin_options(start, budget, seed), restarts=9, bipop=bipop)


def cma_bipop(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
    """`cma_restarted` with BIPOP."""
    cma_restarted(evaluate, start, budget, seed, bipop=True)


def cma_lq(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
    """`cma.fmin_lq_surr2`, CMA-ES with a linear-quadratic surrogate, and its own restarts.

    NaN means "not evaluated" to it, and its regression breaks on NaN and on +inf (`ValueError`,
    `AssertionError`), so a failed evaluation is the worst value so far: of NaN, +inf, the value at the start,
    a large number and this, it has the lowest regret.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cma as package

        value = Watched(evaluate).or_worst
        package.fmin_lq_surr2(value, start.x0, 1.0, _fmin_options(start, budget, seed), restarts=9)


def _fmin_options(start: Start, budget: int, seed: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "seed": seed % (2**31 - 1) + 1,  # 0 would be the time
        "CMA_stds": start.sigma0,
        "maxfevals": budget,
        "verbose": -10,  # also keeps it from reading a file of options
        "verb_log": 0,
    }
    if start.bounded:
        options["bounds"] = [start.lower, start.upper]
    if start.integers.any():
        options["integer_variables"] = np.flatnonzero(start.integers).tolist()
    return options


def cmawm(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
    """`cmaes`' CMA-ES with margin, restarted with twice the points as its examples do."""
    import cmaes

    size = None
    for restart in range(20):  # more than any budget has room for
        strategy = cmaes.CMAwM(
            start.x0,
            1.0,
            np.column_stack([start.lower, start.upper]),
            start.integers.astype(float),
            seed=(seed + restart) % 2**32,
            population_size=size,
            cov=np.diag(start.sigma0**2),
        )
        size = 2 * strategy.population_size
        while not strategy.should_stop():
            asked = [strategy.ask() for _ in range(strategy.population_size)]
            values = evaluate(np.array([x for x, _ in asked]))
            values = np.where(np.isfinite(values), values, np.inf)
            strategy.tell([(x, value) for (_, x), value in zip(asked, values.tolist(), strict=True)])


# -- NOMAD.

#: With this many parameters NOMAD runs without its quadratic models, which would take nearly all the time.
MANY = 50


def nomad(
    evaluate: Evaluate,
    start: Start,
    budget: int,
    seed: int,
    *,
    frame: bool = True,
    settings: Sequence[str] = (),
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """One run of NOMAD 4; its result. A failed evaluation is an error, as its guide says.

    `evaluate` must not raise: an exception cannot pass through NOMAD.

    frame: begin with a frame as wide as the first steps of fmnes; otherwise with its default.
    stop: asked after each iteration.
    """
    options = [f"MAX_BB_EVAL {budget}"]
    if frame:
        widths = start.sigma0.copy()
        widths[start.integers] = np.maximum(1.0, np.rint(widths[start.integers]))  # it wants whole numbers
        options.append(f"INITIAL_FRAME_SIZE ( {' '.join(map(repr, widths.tolist()))} )")
    if start.integers.any():
        types = " ".join("I" if whole else "R" for whole in start.integers)
        options.append(f"BB_INPUT_TYPE ( {types} )")
    if len(start.x0) >= MANY:
        options += [
            "QUAD_MODEL_SEARCH no",
            "EVAL_QUEUE_SORT DIR_LAST_SUCCESS",
            "DIRECTION_TYPE ORTHO N+1 NEG",
        ]
    lower, upper = (start.lower.tolist(), start.upper.tolist()) if start.bounded else ([], [])
    return _nomad(evaluate, start.x0, lower, upper, [*options, *settings], seed, stop)


def nomad_restarted(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
    """NOMAD from the start, the best and random points in turn, whenever its mesh has converged."""
    nomad_until_finished(evaluate, start, budget, seed, restart_from_best=True)


def nomad_until_finished(
    evaluate: Evaluate, start: Start, budget: int, seed: int, *, restart_from_best: bool, frame: bool = True
) -> None:
    """NOMAD with restarts; `Finished` raised by the objective ends it.

    restart_from_best: otherwise every restart is from the same start, with another seed.
    """
    over = False

    def careful(points: Array) -> Array:
        nonlocal over
        if over:
            return np.full(len(points), np.nan)
        try:
            return evaluate(points)
        except Finished:
            over = True
            return np.full(len(points), np.nan)

    watched = Watched(careful)

    def one(x0: Array, number: int) -> None:
        left = budget - watched.evaluations
        if over or left <= 0:
            raise Finished
        where = start._replace(x0=x0)
        nomad(lambda x: np.array([watched(x[0])]), where, left, number, frame=frame, stop=lambda: over)

    if restart_from_best:
        restarted(one, watched, start, seed)
        return
    while not over:
        before = watched.evaluations
        one(start.x0, seed + before)
        if watched.evaluations == before:
            return


def _nomad(
    evaluate: Evaluate,
    x0: Array,
    lower: Sequence[float],
    upper: Sequence[float],
    settings: Sequence[str],
    seed: int,
    stop: Callable[[], bool],
) -> dict[str, Any]:
    """Run NOMAD and return its result; the seed determines the run."""
    import PyNomad

    d = len(x0)

    def answer(point: Any) -> bool:
        value = float(evaluate(np.array([[point.get_coord(i) for i in range(d)]]))[0])
        if not np.isfinite(value):
            return False
        point.setBBO(repr(value).encode())
        return True

    def ended(_: Any) -> bool:
        return stop()

    small = seed % 10_000  # NOMAD draws `seed` numbers before its search
    # SEED has an effect only if it differs from the current one.
    PyNomad.setSeed(small + 1)
    PyNomad.setCustomMegaIterEndCallback(ended)  # keeps no reference to `ended`
    parameters = [f"DIMENSION {d}", "BB_OUTPUT_TYPE OBJ", "DISPLAY_DEGREE 0", f"SEED {small}", *settings]
    found: dict[str, Any]
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        found = PyNomad.optimize(answer, x0.tolist(), list(lower), list(upper), parameters)
    finally:
        # NOMAD leaves its own handler, with which a later Ctrl-C ends the process or is ignored.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
    return found


# -- Methods with models: COBYQA, PyBADS, Gaussian processes.


def cobyqa(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
    """SciPy's COBYQA in units of the first steps, restarted. A failed evaluation is NaN, a barrier."""
    from scipy.optimize import Bounds, minimize

    watched = Watched(evaluate)
    scale = start.sigma0
    more: dict[str, Any] = {}
    if start.bounded:
        more["bounds"] = Bounds(start.lower / scale, start.upper / scale)

    def value(u: Array) -> float:
        x = u * scale
        return watched(np.clip(x, start.lower, start.upper) if start.bounded else x)

    def one(x0: Array, number: int) -> None:
        options = {"initial_tr_radius": 1.0, "maxfev": budget, "maxiter": 10 * budget}
        minimize(value, x0 / scale, method="COBYQA", options=options, **more)

    restarted(one, watched, start, seed)


def pybads(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
    """PyBADS, restarted. Values must be finite, so a failed evaluation is the worst value so far.

    The plausible box is the start with two first steps on each side.
    """
    import logging

    from pybads import BADS

    logging.getLogger("BADS").setLevel(logging.CRITICAL)
    watched = Watched(evaluate)
    d = len(start.x0)
    lower = start.lower if start.bounded else np.full(d, -np.inf)
    upper = start.upper if start.bounded else np.full(d, np.inf)

    def one(x0: Array, number: int) -> None:
        options = {
            "display": "off",
            "show_tips": False,
            "random_seed": number,
            "max_fun_evals": max(budget - watched.evaluations, d + 2),
            "uncertainty_handling": False,
        }
        plausible = [np.clip(x0 + side * 2 * start.sigma0, start.lower, start.upper) for side in (-1.0, 1.0)]
        BADS(watched.or_worst, x0, lower, upper, *plausible, options=options).optimize()

    restarted(one, watched, start, seed)


def optuna_sampler(name: str) -> Run:
    """A sampler of Optuna; a known start is enqueued, a failed evaluation is a failed trial (NaN)."""

    def run(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
        import optuna as package

        package.logging.set_verbosity(package.logging.CRITICAL)
        names = [f"x{i}" for i in range(len(start.x0))]
        x0 = [
            int(x) if whole else float(x)
            for x, whole in zip(start.x0.tolist(), start.integers.tolist(), strict=True)
        ]
        first = dict(zip(names, x0, strict=True))
        own: dict[str, Any] = {}
        if name == "CmaEsSampler":
            own = {"x0": first, "with_margin": bool(start.integers.any())}
        elif name == "GPSampler":
            own = {"deterministic_objective": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of its options are experimental
            study = package.create_study(sampler=getattr(package.samplers, name)(seed=seed % 2**32, **own))
        if start.known:
            study.enqueue_trial(first)

        def objective(trial: Any) -> float:
            x = [
                trial.suggest_int(name, int(low), int(high))
                if whole
                else trial.suggest_float(name, low, high)
                for name, (low, high), whole in zip(names, box_of(start), start.integers, strict=True)
            ]
            value = float(evaluate(np.array([x], dtype=float))[0])
            return value if np.isfinite(value) else float("nan")  # NaN: the trial has failed

        study.optimize(objective, n_trials=budget)

    return run


def smac(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
    """SMAC3's black-box facade (a Gaussian process) by ask and tell.

    A failed evaluation has the status CRASHED and the worst value so far as its cost: the default cost is
    infinite, with which the Gaussian process cannot be fitted.
    """
    import logging

    from ConfigSpace import Configuration, ConfigurationSpace, Float
    from smac import BlackBoxFacade, Scenario
    from smac.runhistory import StatusType, TrialValue

    logging.getLogger("smac").setLevel(logging.CRITICAL)
    names = [f"x{i:03}" for i in range(len(start.x0))]  # it sorts them
    x0 = np.clip(start.x0, start.lower, start.upper).tolist()
    space = ConfigurationSpace(seed=seed % 2**31)
    space.add([Float(name, ends) for name, ends in zip(names, box_of(start), strict=True)])
    first = [Configuration(space, dict(zip(names, x0, strict=True)))] if start.known else []
    watched = Watched(evaluate)
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            space, deterministic=True, n_trials=budget, seed=seed % 2**31, output_directory=Path(folder)
        )
        search = BlackBoxFacade(
            scenario,
            lambda config, seed=0: 0.0,
            initial_design=BlackBoxFacade.get_initial_design(scenario, additional_configs=first),
            intensifier=BlackBoxFacade.get_intensifier(scenario, max_config_calls=1),
            overwrite=True,
            logging_level=False,
        )
        for _ in range(budget):
            asked = search.ask()
            value = watched([asked.config[name] for name in names])
            status = StatusType.CRASHED if np.isnan(value) else StatusType.SUCCESS
            cost = (watched.worst if np.isfinite(watched.worst) else 0.0) if np.isnan(value) else value
            search.tell(asked, TrialValue(cost=cost, status=status), save=False)


# -- Without models.


def differential_evolution(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
    """SciPy's differential evolution without its polishing. A failed evaluation is +inf."""
    from scipy.optimize import differential_evolution as search

    def values(x: Array) -> Array:
        found = evaluate(x.T)
        return np.where(np.isfinite(found), found, np.inf)

    options: dict[str, Any] = {"x0": start.x0, "polish": False, "vectorized": True, "updating": "deferred"}
    options["integrality"] = start.integers
    search(values, box_of(start), rng=seed, maxiter=budget, **options)


def random(evaluate: Evaluate, start: Start, budget: int, seed: int) -> None:
    """Anywhere in the region of interest: the floor."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(start.lower, start.upper, (budget, len(start.x0)))
    for i in np.flatnonzero(start.integers):
        points[:, i] = rng.integers(int(start.lower[i]), int(start.upper[i]), budget, endpoint=True)
    evaluate(points)


_RESTARTED = "restarted from the best and from random points in turn"

PEERS: dict[str, Peer] = {
    "cma": Peer(cma, ("cma",), "cma", "`cma.CMAEvolutionStrategy`, ask and tell, one run", "+inf"),
    "cma-ipop": Peer(cma_restarted, ("cma",), "cma", "`cma.fmin2(restarts=9)`", "+inf"),
    "cma-bipop": Peer(cma_bipop, ("cma",), "cma", "`cma.fmin2(restarts=9, bipop=True)`", "+inf"),
    "cma-lq": Peer(cma_lq, ("cma",), "cma", "`cma.fmin_lq_surr2(restarts=9)`", "the worst value so far"),
    "cmawm": Peer(cmawm, ("cmaes",), "cmaes", "`cmaes.CMAwM`, restarted with twice the points", "+inf"),
    "nomad": Peer(
        nomad_restarted,
        ("PyNomad",),
        "PyNomadBBO",
        f"`PyNomad.optimize`, `INITIAL_FRAME_SIZE` = the first steps, {_RESTARTED}",
        "error",
    ),
    "cobyqa": Peer(
        cobyqa,
        ("scipy.optimize",),
        "scipy",
        f'`scipy.optimize.minimize(method="COBYQA")` in units of the first steps, {_RESTARTED}',
        "NaN (an extreme barrier)",
    ),
    "pybads": Peer(
        pybads,
        ("pybads",),
        "pybads",
        f"`BADS(fun, x0, …)`, the plausible box two first steps around the start, {_RESTARTED}",
        "the worst value so far",
    ),
    "optuna-gp": Peer(
        optuna_sampler("GPSampler"),
        ("optuna", "torch", "scipy.optimize"),
        "optuna torch scipy",
        "`GPSampler(deterministic_objective=True)`, the start enqueued",
        "failed trial (NaN)",
    ),
    "optuna-tpe": Peer(
        optuna_sampler("TPESampler"),
        ("optuna",),
        "optuna",
        "`TPESampler`, the start enqueued",
        "failed trial (NaN)",
    ),
    "optuna-cmaes": Peer(
        optuna_sampler("CmaEsSampler"),
        ("optuna", "cmaes"),
        "optuna cmaes",
        "`CmaEsSampler(x0=…)`, the start enqueued, with margin if there are integers",
        "failed trial (NaN)",
    ),
    "smac": Peer(
        smac,
        ("smac",),
        "smac",
        "`BlackBoxFacade`, ask and tell, the start in its initial design",
        "CRASHED, with the worst value so far as its cost",
    ),
    "differential-evolution": Peer(
        differential_evolution, ("scipy.optimize",), "scipy", "`x0=`, `polish=False`, one run", "+inf"
    ),
    "random": Peer(random, (), "", "uniformly in the box", "ignored"),
}
