"""Golden trajectories: every evaluated point of many configurations, bit for bit.

    python -m tests.golden record FILE           # before a reorganisation
    python -m tests.golden compare FILE          # after it: exits with 1 and a list if anything differs
    python -m tests.golden record FILE WORD...   # only the cases whose name contains one of the words

A comparison is valid on one machine and in one environment only: other processors and other builds of NumPy
round differently. The file is therefore never committed. Only public names are used, so that the same script
runs before and after private modules are moved. Texts (messages, reasons) are not compared.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the order of sums depends on the number of threads

import hashlib
import inspect
import json
import platform
import random
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fmnes

#: name -> what to run; it returns JSON data.
CASES: dict[str, Callable[[], Any]] = {}
#: Digits of a digest that are kept for each evaluation: enough to find the first one that differs.
SHORT = 6


# -- what is recorded ----------------------------------------------------------------------------------------


def exact(value: Any) -> Any:
    """JSON data that is equal only if the value is equal to the last bit."""
    if isinstance(value, Mapping):
        return {str(key): exact(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [exact(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    return value.hex() if isinstance(value, float) else value


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(exact(value)).encode()).hexdigest()[:16]


class Trace:
    """An objective that keeps a digest of all evaluations so far, one for each of them."""

    def __init__(self, fun: Callable[[Any], Any]) -> None:
        self._fun = fun
        self._hash = hashlib.sha256()
        self.digests: list[str] = []

    def __call__(self, x: Any) -> Any:
        try:
            value = self._fun(x)
        except fmnes.Infeasible:
            self.add(x, "infeasible")
            raise
        self.add(x, value)
        return value

    def add(self, *values: Any) -> None:
        for value in values:
            if isinstance(value, np.ndarray):
                self._hash.update(repr((value.shape, value.dtype.str)).encode() + value.tobytes())
            elif isinstance(value, float):
                self._hash.update(struct.pack("<d", value))
            else:
                self._hash.update(json.dumps(exact(value)).encode())
        self.digests.append(self._hash.hexdigest()[:SHORT])


def of_result(result: fmnes.Result) -> dict[str, Any]:
    history = {name: column for name, column in result.history.items() if name != "seconds"}
    return {
        "x": exact(result.x),
        "fun": exact(float(result.fun)),
        "success": result.success,
        "stop": result.stop_reason.name if result.stop_reason else None,
        "nfev": int(result.nfev),
        "nit": int(result.nit),
        "n_infeasible": int(result.n_infeasible),
        "n_repeated": int(result.n_repeated),
        "second_looks": int(result.second_looks),
        "seed": result.seed,
        "sigma0": exact(float(result.sigma0)),
        "x_mean": digest(result.x_mean),
        "covariance": digest(result.covariance),
        "history": digest([[name, history[name]] for name in sorted(history)]),  # type: ignore[literal-required]
        "failures": [[f.count, digest(f.x)] for f in result.failures],
    }


def of_table(table: Any) -> dict[str, Any]:
    """The evaluations that a run has kept."""
    assert table is not None
    columns = ("restart", "generation", "slot", "redraw", "attempt", "status", "value")
    recorded = {name: digest(getattr(table, name)) for name in columns}
    return {
        "rows": len(table),
        **recorded,
        "points": digest(table.parameters),
        "outputs": digest(table.outputs),
    }


def of_view(view: fmnes.View) -> list[Any]:
    best = (view.best.x, float(view.best.fun), int(view.best.evaluation))
    counts = (view.generation, view.evaluations, view.population_size, view.restart, view.n_repeated)
    numbers = (view.sigma, view.feasible_share, view.generation_best, view.mean, view.axis_lengths)
    return [*map(int, counts), view.phase, *exact(numbers), exact(best)]


def of_run(path: Path) -> dict[str, Any]:
    run = fmnes.read_run(path)
    return {
        "best": exact(tuple(run.best)),
        "result": None if run.result is None else of_result(run.result),
        "table": of_table(run.evaluations),
    }


# -- configurations ------------------------------------------------------------------------------------------


def option(takes: Callable[..., Any], *names: str) -> str:
    """The first of these names that is an option of it: some have been renamed."""
    known = inspect.signature(takes).parameters
    return next(name for name in names if name in known)


OVERLAP = option(fmnes.minimize, "overlap", "ahead")
#: Defaults that may change; the trajectories are compared without models and to the same ends.
PLAIN: dict[str, Any] = {"xtol": 1e-12, "ftol": 1e-12}
if "surrogate" in inspect.signature(fmnes.minimize).parameters:
    PLAIN["surrogate"] = False


def minimize(fun: Callable[[Any], Any], *args: Any, **options: Any) -> dict[str, Any]:
    """Run it here, with every evaluation and every generation recorded."""
    trace = Trace(fun)
    seen: list[Any] = []

    def callback(view: fmnes.View) -> None:
        seen.append(of_view(view))

    options = {"rng": 1, "max_evaluations": 300, "callback": callback, **PLAIN, **options}
    result = fmnes.minimize(trace, *args, **options)
    return {"evaluations": trace.digests, "views": digest(seen), **of_result(result)}


def case(name: str, run: Callable[[], Any]) -> None:
    assert name not in CASES, name
    CASES[name] = run


def ellipsoid(x: Any) -> float:
    x = np.asarray(x, dtype=float)
    d = len(x)
    return float(((100 ** (np.arange(d) / max(d - 1, 1)) * x) ** 2).sum())


def quiet(fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """NaN where it raises Infeasible, for those who call it themselves."""

    def quietly(x: Any) -> Any:
        try:
            value = fun(x)
        except fmnes.Infeasible:
            return float("nan")
        return float("nan") if value is None else value

    return quietly


def constrained(x: Any) -> float:
    """The optimum is in a corner of the feasible region."""
    return ellipsoid(x) if min(x) >= 0 else float("nan")


def reasons(x: Any) -> float | None:
    """Fails in several ways."""
    if x[0] < -0.5:
        raise fmnes.Infeasible("x[0] is small")
    if x[-1] < -0.5:
        return None
    return ellipsoid(x)


def rastrigin(x: Any) -> float:
    x = np.asarray(x, dtype=float)
    return float((x**2 - 3 * np.cos(2 * np.pi * x) + 3).sum())


def narrow(x: Any) -> float:
    """Feasible between two curves: converging there needs another look."""
    return float((x[0] - 3) ** 2 + 5 * x[1] ** 2) if abs(x[1] - x[0] ** 2) < 0.3 else float("inf")


def steps(x: Any) -> float:
    return float(np.floor(np.abs(x)).sum())


def design(p: Mapping[str, Any]) -> float:
    if p["width"] * p["layers"] > 30:
        raise fmnes.Infeasible("too heavy")
    return (np.log10(p["width"]) - 0.3) ** 2 + (p["layers"] - 4.2) ** 2 / 10 + abs(p["angle"] - 12.6) / 9


SPACE: dict[str, Any] = {
    "width": fmnes.Real(0.01, 100, log=True),
    "layers": fmnes.Integer(1, 12),
    "angle": fmnes.Real(0, 45, multiple_of=0.25),
    "free": fmnes.Real(start=1.0, sigma=0.5),
    "half": fmnes.Real(lower=0, start=1.0, sigma=0.2),
}


def named(p: Mapping[str, Any]) -> float:
    return design(p) + p["free"] ** 2 + p["half"]


METHODS: dict[str, Any] = {
    "afm-nes": "afm-nes",
    "fm-nes": "fm-nes",
    "dx-nes-ic": "dx-nes-ic",
    "xnes": "xnes",
    "cma-es": "cma-es",
    "cr-fm-nes": "cr-fm-nes",
    "method A": fmnes.FMNES(rank_one="always"),
    "method B": fmnes.FMNES(reset=False),
    "method C": fmnes.FMNES(rank_one="always", reset=False),
    "rank_one never": fmnes.FMNES(rank_one="never"),
    "refresh 1": fmnes.FMNES(refresh=1),
    "path_rate printed": fmnes.FMNES(path_rate="printed"),
    "alpha public": fmnes.FMNES(alpha="public"),
    "ridge 1.02": fmnes.FMNES(ridge_threshold=1.02),
    "cma-es 2006": fmnes.CMAES(parameters="2006"),
    "cr-fm-nes as published": fmnes.CRFMNES(max_change=None),
    "xnes R": fmnes.Resampling(fmnes.XNES()),
    "cma-es R": fmnes.Resampling(fmnes.CMAES()),
    "cma-es 2006 R": fmnes.Resampling(fmnes.CMAES(parameters="2006")),
}
BY_NAME = ("afm-nes", "fm-nes", "dx-nes-ic", "xnes", "cma-es", "cr-fm-nes")


class Inline(Executor):
    """Evaluates at once, here: what is submitted first is done first."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def kept(fun: Any, *args: Any, **options: Any) -> dict[str, Any]:
    """Evaluated elsewhere: what the run has kept is recorded."""
    result = fmnes.minimize(fun, *args, **{"rng": 1, "keep_evaluations": True, **PLAIN, **options})
    return {**of_result(result), "table": of_table(result.evaluations)}


def resumed(fun: Callable[[Any], Any], *args: Any, cut: int, budget: int, **options: Any) -> dict[str, Any]:
    """Ctrl-C during an evaluation, then `resume`; and a budget that ends early, then a larger one."""
    recorded: dict[str, Any] = {}
    options = {"rng": 1, **PLAIN, **options}
    with tempfile.TemporaryDirectory() as folder:
        trace = Trace(fun)
        count = 0

        def objective(x: Any) -> Any:
            nonlocal count
            count += 1
            if count == cut:
                raise KeyboardInterrupt
            return trace(x)

        path = Path(folder, "interrupted")
        first = fmnes.minimize(objective, *args, max_evaluations=budget, run_dir=path, **options)
        recorded["interrupted"] = of_result(first)
        recorded["resumed"] = of_result(fmnes.resume(path, objective, keep_evaluations=True))
        recorded["evaluations"] = trace.digests
        recorded["read"] = of_run(path)

        path = Path(folder, "longer")
        recorded["short"] = of_result(
            fmnes.minimize(objective, *args, max_evaluations=cut, run_dir=path, **options)
        )
        recorded["longer"] = of_result(fmnes.resume(path, objective, max_evaluations=budget))
        recorded["finished"] = of_result(fmnes.resume(path, objective))
        recorded["read longer"] = of_run(path)
    return recorded


def asked(
    fun: Callable[[Any], Any],
    *args: Any,
    generations: int = 25,
    saved: int = 0,
    lost: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """ask() and tell(values). saved: every how many asks it is saved and loaded between ask and tell."""
    trace = Trace(quiet(fun))
    views = []
    opt = fmnes.Optimizer(*args, **{"rng": 1, **PLAIN, **options})
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(generations):
            if opt.stop_reason is not None:
                break
            X = opt.ask()
            if saved and i % saved == 0:
                opt.save(path := Path(folder, "state"))
                opt = fmnes.Optimizer.load(path)
                X = opt.ask()
            values = []
            for x in X:
                count += 1
                values.append(fmnes.LOST if lost and count % lost == 0 else trace(x))
            opt.tell(values)
            views.append(of_view(opt.view()))
    return {"evaluations": trace.digests, "views": digest(views), **of_result(opt.result())}


def asked_by_id(
    fun: Callable[[Any], Any], *args: Any, points: int = 200, saved: int = 0, **options: Any
) -> dict[str, Any]:
    """ask(n) and tell(id, value), a few under way at a time, told in another order."""
    trace = Trace(quiet(fun))
    order = random.Random(1)
    opt = fmnes.Optimizer(*args, **{"rng": 1, **PLAIN, **options})
    open_points: list[Any] = []
    ids = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(points):
            if opt.stop_reason is not None:
                break
            given = opt.ask(order.randint(1, 4))
            ids += [point.id for point in given]
            open_points += given
            if saved and i % saved == 0:
                opt.save(path := Path(folder, "state"))
                opt = fmnes.Optimizer.load(path)
            while len(open_points) > 4 or (open_points and not given):
                given = [open_points.pop(order.randrange(len(open_points)))]
                opt.tell(given[0].id, trace(given[0].x))
    return {
        "evaluations": trace.digests,
        "asked": len(ids),
        "view": digest(of_view(opt.view())),
        **of_result(opt.result()),
    }


def vectorized(fun: Callable[[Any], Any], *args: Any, **options: Any) -> dict[str, Any]:
    def several(x: Any) -> Any:
        return np.array([quiet(fun)(row) for row in x])

    return minimize(several, *args, vectorized=True, **options)


def warm_started(method: Any, **options: Any) -> dict[str, Any]:
    first = {"rng": 1, "method": method, "max_evaluations": 250, **PLAIN}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "before")
        before = fmnes.minimize(constrained, [3.0, 2.0, 1.0], 0.5, run_dir=path, **first)
        shifted = lambda x: constrained(np.asarray(x) - 0.1)  # noqa: E731
        return {
            "result": minimize(shifted, warm_start=before, method=method, **options),
            "directory": minimize(shifted, warm_start=path, method=method, **options),
            "sigma0": minimize(shifted, None, 0.3, warm_start=before, method=method, **options),
        }


def named_warm_start() -> dict[str, Any]:
    before = fmnes.minimize(named, SPACE, rng=1, max_evaluations=150, **PLAIN)
    return minimize(named, warm_start=before, max_evaluations=150)


def program() -> dict[str, Any]:
    script = (
        "import json, sys; x = json.load(sys.stdin)['x']; print(x[0] + x[1] ** 2 if x[0] > 0 else 'FAIL')"
    )
    return kept(fmnes.Command([sys.executable, "-S", "-c", script]), [1.0, 2.0], 0.5, max_evaluations=15)


def optuna_study() -> Any:
    try:
        import optuna

        from fmnes.integrations.optuna import FMNESSampler
    except ImportError:
        return "not installed"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(sampler=FMNESSampler(seed=1))

    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", -5, 5)
        k = trial.suggest_int("k", 0, 9)
        if x < 0:
            raise ValueError("x < 0")
        return (x - 1) ** 2 + (k - 3) ** 2

    study.optimize(objective, n_trials=60, catch=(ValueError,))
    return digest([[trial.params, trial.value, trial.state.name] for trial in study.trials])


def scipy_calls() -> Any:
    try:
        from scipy.optimize import minimize as scipy_minimize

        from fmnes.integrations.scipy import evolution_strategy
        from fmnes.integrations.scipy import fmnes as method
    except ImportError:
        return "not installed"
    trace = Trace(ellipsoid)
    first = scipy_minimize(
        trace,
        [1.0, 2.0],
        method=method,
        options={"sigma0": 0.5, "rng": 1, "max_evaluations": 150, **PLAIN},
    )
    second = evolution_strategy(trace, [(-3, 4)] * 2, rng=1, max_evaluations=150, **PLAIN)
    return {"evaluations": trace.digests, "x": exact([first.x, second.x])}


def _define() -> None:
    """The matrix."""
    for name, method in METHODS.items():
        for d in (1, 2, 5, 10, 40):
            x0 = np.linspace(1.0, 2.0, d)
            budget = 203 + 8 * d  # cuts a generation of most of them
            case(
                f"{name}, d={d}, constrained",
                lambda m=method, x=x0, n=budget: minimize(constrained, x, 0.5, method=m, max_evaluations=n),
            )
        for fun in (ellipsoid, reasons, rastrigin):
            case(
                f"{name}, d=3, to the end, {fun.__name__}",
                lambda m=method, f=fun: minimize(f, [1.0, 2.0, -0.3], 0.8, method=m, max_evaluations=1100),
            )

    for name in BY_NAME:
        x0 = np.array([2.0, 1.0, 0.5])
        box = [(0.2, 5), (None, 3), (-1, None)]
        some: dict[str, dict[str, Any]] = {
            "bounds map": {"bounds": box},
            "bounds failure": {"bounds": box, "bounds_as": "failure"},
            "bounds closed": {"bounds": fmnes.Bounds([0.2, -4, -1], [5, 3, 1])},
            "integers": {"integers": True},
            "integers mixed": {"integers": [True, 0.25, False], "bounds": [(-5, 5)] * 3},
            "integers failure": {"integers": [1, 1, 0], "bounds": [(-5, 5)] * 3, "bounds_as": "failure"},
            "sigma0 vector": {"sigma0": [0.5, 1.0, 2.0]},
            "known": {"known": [([2.0, 1.0, 0.4], 5.0), ([2.1, 1.0, 0.5], None), ([1.5, 1, 0.5], 2.5)]},
            "known integers": {"integers": True, "known": [([2, 1, 0], 9.0), ([1, 1, 0], float("nan"))]},
            "target": {"target": 0.5, "max_evaluations": 2000},
            "population 22": {"population_size": 22},
            "no start": {"evaluate_start": False},
            "xtol ftol": {"xtol": 1e-3, "ftol": None, "max_evaluations": 1500},
            "ftol": {"xtol": None, "ftol": 1e-3, "max_evaluations": 1500},
        }
        if name not in ("cma-es", "cr-fm-nes"):
            some["covariance"] = {"covariance": [[2.0, 0.5, 0], [0.5, 1, 0.1], [0, 0.1, 0.5]]}
        for label, options in some.items():
            options = {"method": name, "sigma0": 0.7, **options}
            case(f"{name}, {label}", lambda o=options, x=x0: minimize(reasons, x, **o))
        for label, options in {
            "restarts 2": {"restarts": 2, "max_evaluations": 1500},
            "restarts bipop": {"restarts": "bipop", "max_evaluations": 2500},
            "restart best": {"restarts": 2, "restart_from": "best", "max_evaluations": 1500},
            "restart uniform": {"restarts": 2, "restart_from": "uniform", "max_evaluations": 1500},
            "bipop uniform": {"restarts": "bipop", "restart_from": "uniform", "max_evaluations": 2500},
        }.items():
            options = {"method": name, "bounds": [(-4, 6)] * 2, "xtol": 1e-4, "ftol": 1e-6, **options}
            case(f"{name}, {label}", lambda o=options: minimize(rastrigin, [2.0, 3.0], 1.0, **o))
        for second in (True, False):
            key = option(fmnes.minimize, "second_look", "confirm")
            options = {"method": name, key: second, "xtol": 1e-5, "max_evaluations": 2500}
            case(f"{name}, second look {second}", lambda o=options: minimize(narrow, [0.5, 0.25], 0.3, **o))
        case(f"{name}, failing start", lambda m=name: minimize(constrained, [-0.3, 0.4], 0.5, method=m))
        case(f"{name}, never feasible", lambda m=name: minimize(lambda x: np.nan, [1.0, 2.0], 0.5, method=m))
        case(f"{name}, flat", lambda m=name: minimize(lambda x: 1.0, [1.0, 2.0], 0.5, method=m))
        case(f"{name}, steps", lambda m=name: minimize(steps, [7.0, 9.0], 2.0, method=m))
        case(
            f"{name}, runs away", lambda m=name: minimize(lambda x: float(sum(x)), [1.0, 2.0], 0.5, method=m)
        )
        case(f"{name}, named", lambda m=name: minimize(named, SPACE, method=m))
        case(f"{name}, warm start", lambda m=name: warm_started(m))
        case(f"{name}, vectorized", lambda m=name: vectorized(reasons, [2.0, 1.0], 0.7, method=m))
        case(f"{name}, ask", lambda m=name: asked(reasons, [2.0, 1.0, 0.5], 0.7, method=m))
        case(f"{name}, ask lost", lambda m=name: asked(reasons, [2.0, 1.0, 0.5], 0.7, method=m, lost=7))
        case(f"{name}, ask saved", lambda m=name: asked(reasons, [2.0, 1.0], 0.7, method=m, saved=3, lost=5))
        case(f"{name}, ask by id", lambda m=name: asked_by_id(reasons, [2.0, 1.0, 0.5], 0.7, method=m))
        case(
            f"{name}, ask by id saved",
            lambda m=name: asked_by_id(reasons, [2.0, 1.0], 0.7, method=m, saved=3),
        )
        case(
            f"{name}, overlap",
            lambda m=name: asked_by_id(reasons, [2.0, 1.0], 0.7, method=m, saved=5, **{OVERLAP: 0.5}),
        )
        case(
            f"{name}, resume", lambda m=name: resumed(reasons, [2.0, 1.0], 0.7, method=m, cut=40, budget=120)
        )

    for name, method in METHODS.items():
        if isinstance(method, fmnes.Resampling):
            case(f"{name}, ask saved", lambda m=method: asked(reasons, [1.0, 2.0], 0.7, method=m, saved=3))
            case(
                f"{name}, ask by id",
                lambda m=method: asked_by_id(reasons, [1.0, 2.0], 0.7, method=m, saved=4),
            )
            case(
                f"{name}, resume",
                lambda m=method: resumed(reasons, [1.0, 2.0], 0.7, method=m, cut=40, budget=90),
            )
            capped = replace(method, max_redraws=20)
            case(f"{name}, capped", lambda m=capped: minimize(constrained, [0.1] * 9, 0.5, method=m))

    case(
        "named, no log, integers only",
        lambda: minimize(lambda p: float(p["n"] ** 2), {"n": fmnes.Integer(-9, 9)}),
    )
    case("named, warm start", named_warm_start)
    case("named, ask by id", lambda: asked_by_id(named, SPACE, saved=4))
    case("named, ask", lambda: asked(named, SPACE, saved=4))
    case("named, resume", lambda: resumed(named, SPACE, cut=50, budget=130))
    case("named, known", lambda: minimize(named, SPACE, known=[(_point(), 0.4), (_point(layers=5), None)]))
    case("repeated, resume", lambda: resumed(steps, [7.0, 9.0], 2.0, integers=True, cut=50, budget=130))
    for restarts in (2, "bipop"):
        options: dict[str, Any] = {
            "restarts": restarts,
            "xtol": 1e-2,
            "bounds": [(-4, 6)] * 2,
            "cut": 290,
            "budget": 700,
        }
        case(f"restarts {restarts}, resume", lambda o=options: resumed(rastrigin, [2.0, 3.0], 1.0, **o))
    case(
        "second look, resume",
        lambda: resumed(narrow, [0.5, 0.25], 0.3, xtol=1e-3, cut=400, budget=900),
    )
    case(
        "bounds failure, resume",
        lambda: resumed(
            reasons, [2.0, 1.0], 0.7, bounds=[(0, 3)] * 2, bounds_as="failure", cut=31, budget=90
        ),
    )
    case("two workers", lambda: kept(reasons, [2.0, 1.0, 0.5], 0.7, workers=2, max_evaluations=80))
    case("two workers, named", lambda: kept(named, SPACE, workers=2, max_evaluations=60))
    case("two workers, crash", lambda: kept(_crashing, [2.0, 1.0], 0.7, workers=2, max_evaluations=40))
    case("executor", lambda: kept(reasons, [2.0, 1.0], 0.7, executor=Inline(), max_evaluations=80))
    case(
        "executor, overlap",
        lambda: kept(reasons, [2.0, 1.0], 0.7, executor=Inline(), max_evaluations=80, **{OVERLAP: 0.5}),
    )
    case("program", program)
    case("lost", lambda: minimize(_lost, [2.0, 1.0], 0.7, retries=0))
    case("stopped by the callback", lambda: minimize(reasons, [2.0, 1.0], 0.7, callback=_stop_at_40))
    case("generator as rng", lambda: minimize(reasons, [2.0, 1.0], 0.7, rng=np.random.default_rng(7)))
    case(
        "as many points as workers",
        lambda: kept(reasons, [2.0, 1.0], 0.7, workers=2, population_size="workers", max_evaluations=40),
    )
    case("optuna", optuna_study)
    case("scipy", scipy_calls)
    for number in range(1, 13):  # each length of the last generation
        case(f"budget {number}", lambda n=number: minimize(reasons, [2.0, 1.0], 0.7, max_evaluations=n))


def _point(**changed: Any) -> dict[str, Any]:
    return {"width": 2.0, "layers": 4, "angle": 12.5, "free": 0.1, "half": 0.2} | changed


def _lost(x: Any) -> float:
    if x[0] < 1:
        raise fmnes.Lost("no licence")
    return ellipsoid(x)


def _stop_at_40(view: fmnes.View) -> bool:
    return view.evaluations >= 40


def _crashing(x: Any) -> float:
    if x[0] < 0.5:
        os._exit(3)
    return ellipsoid(x)


_define()


# -- record and compare --------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """What decides how sums are rounded."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.machine()} {platform.node()}",
        "threads": os.environ["OPENBLAS_NUM_THREADS"],
    }


def run(words: list[str]) -> dict[str, Any]:
    chosen = [name for name in CASES if not words or any(word in name for word in words)]
    if not chosen:
        sys.exit(f"golden: no case has one of the words {', '.join(words)} in its name")
    recorded = {}
    for name in chosen:
        try:
            recorded[name] = CASES[name]()
        except Exception as error:
            recorded[name] = {"raised": f"{type(error).__name__}: {error}"}
    return json.loads(json.dumps(recorded))


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """One line for each place where they differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            place = f"{where}: {key}" if where else key
            if key not in before or key not in after:
                yield f"{place}: only {'after' if key in after else 'before'}"
            else:
                yield from differences(before[key], after[key], place)
    elif before != after:
        if where.endswith(": evaluations"):
            pairs = zip(before, after, strict=False)
            first = next((i for i, (b, a) in enumerate(pairs) if b != a), min(len(before), len(after)))
            yield f"{where}: the first that differs is number {first + 1} of {len(before)}, now {len(after)}"
        else:
            yield f"{where}: {str(before)[:60]}, now {str(after)[:60]}"


def main(argv: list[str]) -> int:
    if len(argv) < 2 or argv[0] not in ("record", "compare"):
        print(__doc__, file=sys.stderr)
        return 2
    path, words = Path(argv[1]), argv[2:]
    started = time.monotonic()
    if argv[0] == "record":
        cases = run(words)
        if wrong := {name: found["raised"] for name, found in cases.items() if "raised" in found}:
            sys.exit("\n".join(f"golden: {name}: {raised}" for name, raised in wrong.items()))
        recorded = {"environment": environment(), "cases": cases}
        path.write_text(json.dumps(recorded, indent=0), encoding="utf-8")
        print(f"golden: {len(recorded['cases'])} cases in {time.monotonic() - started:.0f} s, kept in {path}")
        return 0
    before = json.loads(path.read_text(encoding="utf-8"))
    if before["environment"] != environment():
        print(
            f"golden: recorded in another environment, {before['environment']}: not comparable",
            file=sys.stderr,
        )
        return 2
    wanted = {
        name: value for name, value in before["cases"].items() if not words or any(w in name for w in words)
    }
    found = list(differences(wanted, run(words or list(before["cases"]))))
    print("\n".join(found))
    seconds = time.monotonic() - started
    print(f"golden: {len(wanted)} cases in {seconds:.0f} s, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
