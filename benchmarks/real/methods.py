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
from fmnes_bench.nomad import optimize
from fmnes_bench.search.peers import WITHOUT, settle

from .tasks import Counted, Task

#: Parameters from which on NOMAD runs without its quadratic models: they would take nearly all of the time.
MANY = 50


def ours(method: str) -> Callable[[Task, Counted, int], None]:
    def run(task: Task, counted: Counted, seed: int) -> None:
        options: dict[str, Any] = {"method": settle(method), "rng": seed, "vectorized": True}
        fmnes.minimize(counted.named, task.parameters, max_evaluations=task.budget, **options)

    return run


def cma(task: Task, counted: Counted, seed: int) -> None:
    import cma as package

    options: dict[str, Any] = {"seed": seed + 1, "verbose": -9, "verb_log": 0, "maxfevals": task.budget}
    bounds = [counted.lower.tolist(), counted.upper.tolist()]
    options |= {"CMA_stds": counted.sigma0, "bounds": bounds, "integer_variables": counted.integers}
    strategy = package.CMAEvolutionStrategy(counted.x0, 1.0, options)
    while not strategy.stop():
        points = strategy.ask()
        strategy.tell(points, counted(points).tolist())


def nomad(task: Task, counted: Counted, seed: int) -> None:
    d = len(counted.x0)
    frame = counted.sigma0.copy()
    frame[counted.integers] = np.maximum(1.0, np.rint(frame[counted.integers]))  # it wants whole numbers
    sizes = " ".join(map(repr, frame.tolist()))
    settings = [f"MAX_BB_EVAL {task.budget}", f"INITIAL_FRAME_SIZE ( {sizes} )"]
    if counted.integers:
        types = ("I" if i in counted.integers else "R" for i in range(d))
        settings.append(f"BB_INPUT_TYPE ( {' '.join(types)} )")
    if d >= MANY:
        settings += [
            "QUAD_MODEL_SEARCH no",
            "EVAL_QUEUE_SORT DIR_LAST_SUCCESS",
            "DIRECTION_TYPE ORTHO N+1 NEG",
        ]
    lower, upper = counted.lower.tolist(), counted.upper.tolist()
    optimize(lambda x: float(counted(x[None])[0]), counted.x0, lower, upper, settings, seed)


def optuna(sampler: str) -> Callable[[Task, Counted, int], None]:
    def run(task: Task, counted: Counted, seed: int) -> None:
        import optuna as package

        package.logging.set_verbosity(package.logging.CRITICAL)
        names = [f"x{i}" for i in range(len(counted.x0))]
        x0 = [int(x) if i in counted.integers else float(x) for i, x in enumerate(counted.x0)]
        start = dict(zip(names, x0, strict=True))
        own = {"x0": start, "with_margin": bool(counted.integers)} if sampler == "CmaEsSampler" else {}
        study = package.create_study(sampler=getattr(package.samplers, sampler)(seed=seed, **own))
        study.enqueue_trial(start)

        def objective(trial: Any) -> float:
            x = [
                trial.suggest_int(name, int(low), int(high))
                if i in counted.integers
                else trial.suggest_float(name, low, high)
                for i, (name, low, high) in enumerate(zip(names, counted.lower, counted.upper, strict=True))
            ]
            value = float(counted([x])[0])
            return value if np.isfinite(value) else float("nan")  # NaN: the trial has failed

        study.optimize(objective, n_trials=task.budget)

    return run


def differential_evolution(task: Task, counted: Counted, seed: int) -> None:
    from scipy.optimize import differential_evolution as search

    box = list(zip(counted.lower, counted.upper, strict=True))
    options: dict[str, Any] = {"x0": counted.x0, "polish": False, "vectorized": True, "updating": "deferred"}
    options["integrality"] = np.isin(np.arange(len(counted.x0)), counted.integers)
    search(lambda x: counted(x.T), box, rng=seed, maxiter=task.budget, **options)


def random(task: Task, counted: Counted, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.uniform(counted.lower, counted.upper, (task.budget, len(counted.x0)))
    for i in counted.integers:
        points[:, i] = rng.integers(int(counted.lower[i]), int(counted.upper[i]), task.budget, endpoint=True)
    counted(points)


METHODS: dict[str, Callable[[Task, Counted, int], None]] = {
    **{method: ours(method) for method in ("afm-nes", "fm-nes", "cma-es")},
    "cma": cma,
    "nomad": nomad,
    "optuna-tpe": optuna("TPESampler"),
    "optuna-cmaes": optuna("CmaEsSampler"),
    "differential-evolution": differential_evolution,
    "random": random,
}
#: Who takes part only where asked for by name: the default with one departure from the paper taken back.
ASKED_FOR = {WITHOUT + name: ours(WITHOUT + name) for name in DEPARTURES}
#: What each needs to have installed.
PACKAGES = {"cma": "cma", "nomad": "PyNomad", "optuna-tpe": "optuna", "optuna-cmaes": "optuna"}
PACKAGES |= {"differential-evolution": "scipy"}


def search(method: str, task: Task, counted: Counted, seed: int) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # theirs
        (METHODS | ASKED_FOR)[method](task, counted, seed)
